"""The user who opened a connection on this machine, of real sockets."""

from __future__ import annotations

import os
import resource
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from gateway.devices.agent.connection_user import Address, find_connection_user, with_user_of_connection
from gateway.people.authentication.bearer import AuthenticatedKey

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux states the user")
OTHER = 12_345
HOSTS = ["127.0.0.1", "::1"]


@contextmanager
def listening(host: str) -> Iterator[tuple[socket.socket, Address]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family, backlog=4096)
    except OSError:
        pytest.skip(f"{host} does not exist here")
    with closing(server):
        yield server, server.getsockname()[:2]


@pytest.mark.parametrize("host", HOSTS)
def test_the_user_of_a_connection(host: str) -> None:
    with listening(host) as (server, place), closing(socket.create_connection(place)) as client:
        accepted, peer = server.accept()
        with closing(accepted):
            assert os.geteuid() == find_connection_user(peer[:2], place)
            assert os.geteuid() == find_connection_user(client.getsockname()[:2], place)


@pytest.mark.parametrize(("host", "form"), [("127.0.0.1", "ipv4:{}:{}"), ("::1", "ipv6:%5B{}%5D:{}")])
def test_the_ends_of_a_connection(host: str, form: str) -> None:
    """HTTP states tuples, and gRPC states texts. Without addresses, as of a unix socket, there is no user."""
    key = AuthenticatedKey("this machine", frozenset(), is_local=True)
    with listening(host) as (server, place), closing(socket.create_connection(place)):
        accepted, peer = server.accept()
        with closing(accepted):
            address = f"[{host}]:{place[1]}" if ":" in host else f"{host}:{place[1]}"
            for ends in ((peer, place), (form.format(*peer[:2]), address)):
                assert os.geteuid() == with_user_of_connection(key, *ends).local_user
    nowhere: tuple[object, ...] = (None, "", "unix:/run/x", ("127.0.0.1", 9))
    for client in nowhere:
        assert with_user_of_connection(key, client, None).local_user is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
@pytest.mark.parametrize("host", HOSTS)
def test_another_user(host: str) -> None:
    """The user is that of the process that connected, and not that of the server."""
    with listening(host) as (server, place):
        "localhost".encode("idna")  # another user may not be able to load this codec of Python
        child = os.fork()
        if child == 0:
            os.setgid(OTHER)
            os.setuid(OTHER)
            with closing(socket.create_connection(place)) as client:
                client.recv(1)
            os._exit(0)
        accepted, peer = server.accept()
        with closing(accepted):
            assert OTHER == find_connection_user(peer[:2], place)
        os.waitpid(child, 0)


def test_an_unknown_connection_has_no_user() -> None:
    with listening("127.0.0.1") as (_, place):
        assert find_connection_user(("127.0.0.1", 9), place) is None
        assert find_connection_user(("localhost", 9), place) is None
        assert find_connection_user(("::1", 9), place) is None


def test_a_process_without_netlink_knows_no_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service whose unit allows no netlink gets an error for the socket."""

    def refuse(*_: object) -> socket.socket:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr("gateway.devices.agent.connection_user.socket.socket", refuse)
    assert find_connection_user(("127.0.0.1", 9), ("127.0.0.1", 4318)) is None


@pytest.mark.proof
def test_a_search_among_2000_sockets_takes_less_than_a_fifth_of_a_millisecond() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with listening("127.0.0.1") as (server, place), ExitStack() as open_sockets:
        for _ in range(1000):
            open_sockets.enter_context(closing(socket.create_connection(place)))
            accepted, peer = server.accept()
            open_sockets.enter_context(closing(accepted))
        begin = time.process_time()
        assert {os.geteuid()} == {find_connection_user(peer[:2], place) for _ in range(500)}
        assert (time.process_time() - begin) / 500 < 0.0002

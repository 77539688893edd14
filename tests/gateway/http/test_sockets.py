"""Listening sockets that a service manager passes to the process."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from gateway.configuration.server import ServerSettings
from gateway.configuration.values import ConfigError
from gateway.http.listening import sockets
from gateway.http.listening.sockets import HTTP, METRICS, OPERATOR, ListeningSockets, socket_address

FIRST = 700  # a number that no other file of the test run has
Passed = Callable[..., dict[str, str]]


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Passed]:
    """Return a function that passes sockets to this process, and returns the variables that describe them."""
    monkeypatch.setattr(sockets, "_FIRST", FIRST)
    numbers: list[int] = []
    with ExitStack() as stack:

        def pass_on(*given: socket.socket, names: str = "") -> dict[str, str]:
            for number, each in enumerate(given, FIRST):
                numbers.append(os.dup2(stack.enter_context(each).fileno(), number))
            return {"LISTEN_FDS": str(len(given)), "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": names}

        yield pass_on
        for number in numbers:
            with suppress(OSError):  # the sockets may have been closed
                os.close(number)


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


@pytest.mark.parametrize(
    ("names", "name"), [("", HTTP), ("tollhouse.socket", HTTP), (HTTP, HTTP), (OPERATOR, OPERATOR)]
)
def test_a_single_socket_serves_http_unless_it_is_the_operators(
    passed: Passed, names: str, name: str
) -> None:
    one = listening()
    address, environ = socket_address(one), passed(one, names=names)
    found = ListeningSockets.from_service_manager(environ)
    assert {} == environ
    assert [name] == [each for each in (HTTP, OPERATOR, METRICS) if has(found, each)]
    settings = found.with_socket_addresses(ServerSettings())
    assert address == {HTTP: settings.listen, OPERATOR: settings.operator_listen}[name]
    found.close()
    assert not found


def has(found: ListeningSockets, name: str) -> bool:
    inherited = found.find(name)
    if inherited is not None:
        inherited.close()
    return inherited is not None


def test_several_sockets_have_names(passed: Passed) -> None:
    given = [listening() for _ in range(3)]
    addresses = [socket_address(each) for each in given]
    found = ListeningSockets.from_service_manager(passed(*given, names=f"{METRICS}:{HTTP}:{OPERATOR}"))
    settings = found.with_socket_addresses(ServerSettings())
    assert addresses == [settings.metrics_listen, settings.listen, settings.operator_listen]
    found.close()


@pytest.mark.parametrize("names", ["", "http:grpc", "http:http", "http"])
def test_names_that_say_too_little_are_refused(passed: Passed, names: str) -> None:
    """Several sockets need different names, all of which are known. The message has the words to write."""
    with pytest.raises(ConfigError, match="name the sockets with FileDescriptorName=http and "):
        ListeningSockets.from_service_manager(passed(listening(), listening(), names=names))


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # a process that refuses a socket ends
@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_a_socket_that_does_not_listen_is_refused(passed: Passed, kind: socket.SocketKind) -> None:
    with pytest.raises(ConfigError, match="not a listening TCP socket"):
        ListeningSockets.from_service_manager(passed(socket.socket(socket.AF_INET, kind)))


def test_sockets_of_another_process_are_left_alone() -> None:
    environ = {"LISTEN_FDS": "1", "LISTEN_PID": "1", "HOME": "/root"}
    assert not ListeningSockets.from_service_manager(environ)
    assert {"HOME": "/root"} == environ

"""
The user of this machine who opened a connection to a loopback address, as Linux knows it.

The kernel is asked for one socket, over netlink. To search /proc/net/tcp takes milliseconds with 2,000 sockets.
"""

from __future__ import annotations

import socket
import struct
import sys
from contextlib import closing
from dataclasses import replace
from urllib.parse import unquote

from gateway.people.authentication.bearer import AuthenticatedKey

_INET_DIAG = 4  # protocol of netlink
_SOCK_DIAG_BY_FAMILY = 20  # type of the request and of its answer
_NLM_F_REQUEST = 1
_ANY_STATE, _ANY_COOKIE = 0xFFFFFFFF, b"\xff" * 8
_HEADER = struct.Struct("=IHHII")
_USER_AT = _HEADER.size + 4 + 48 + 12  # after the state, the addresses, and the expiry and the queues
_MAX_ANSWER = 4096
Address = tuple[str, int]


def with_user_of_connection(bearer: AuthenticatedKey, client: object, server: object) -> AuthenticatedKey:
    """
    Return the local key with the user who opened a connection. The ends are socket addresses, or texts of gRPC such
    as `ipv6:%5B::1%5D:50312`.
    """
    ends = [_host_and_port(each) for each in (client, server)]
    user = None if None in ends else find_connection_user(*filter(None, ends))
    return replace(bearer, local_user=user)


def _host_and_port(end: object) -> Address | None:
    if isinstance(end, tuple):
        return end[0], end[1]
    host, _, port = unquote(str(end)).removeprefix("ipv4:").removeprefix("ipv6:").rpartition(":")
    return (host.strip("[]"), int(port)) if port.isdigit() else None


def find_connection_user(client: Address, server: Address) -> int | None:
    """Return the id of the user who opened a connection between two addresses, or None if it is unknown."""
    if sys.platform != "linux":
        return None
    try:
        family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
        ends = [socket.inet_pton(family, address).ljust(16, b"\0") for address, _ in (client, server)]
        names = struct.pack(">HH", client[1], server[1]) + b"".join(ends) + struct.pack("=I", 0) + _ANY_COOKIE
        body = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE) + names
        head = _HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
        with closing(socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _INET_DIAG)) as kernel:
            kernel.settimeout(1.0)
            kernel.sendto(head + body, (0, 0))
            answer = kernel.recv(_MAX_ANSWER)
    except OSError:
        return None
    if _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY or len(answer) < _USER_AT + 4:
        return None
    found: int = struct.unpack_from("=I", answer, _USER_AT)[0]
    return found

"""
The addresses that an account of the console may choose: none that is link-local, multicast or reserved, and
no service that gives a machine its credentials.

Each connection is checked after its name was resolved, so a name cannot later resolve to a forbidden address.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from exporters.errors import Misconfigured

Check = Callable[[str], None]  # raises Misconfigured for a refused address

_THIS_NETWORK: Final = ip_network("0.0.0.0/8")
# metadata services with credentials that are not link-local
_METADATA: Final = frozenset(
    map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
_NAT64: Final = ip_network("64:ff9b::/96")


def check_address_allowed(address: str) -> None:
    ip = _effective_ip(address)
    is_special = ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip.is_reserved
    if (is_special and not ip.is_loopback) or ip in _METADATA or ip in _THIS_NETWORK:
        raise Misconfigured(
            f"the address leads to {address}, to which Tollhouse sends nothing", answered=False
        )


def check_loopback_address(address: str) -> None:
    """Raise an error for an address without TLS that is not loopback."""
    if not _effective_ip(address).is_loopback:
        raise Misconfigured(
            f"the address leads to {address}: use https://, because http:// is accepted only for "
            "loopback addresses",
            answered=False,
        )


def address_check_for(url: str) -> Check:
    return check_loopback_address if url.startswith("http://") else check_address_allowed


def problems_of_forbidden_url(name: str, url: str) -> Iterator[str]:
    """Yield the problems of an address that are visible before its name is resolved."""
    host = urlsplit(url).hostname or ""
    if url.startswith("http://") and host != "localhost" and not _is_loopback(host):
        yield f"{name} must begin with https://, because http:// is accepted only for loopback addresses"
        return
    try:
        check_address_allowed(host)
    except ValueError:
        return  # the host is a name, whose addresses are checked at each connection
    except Misconfigured as error:
        yield f"{name}: {error}"


def checking_socket_factory(check: Check) -> Callable[[tuple[Any, ...]], socket.socket]:
    def make_socket(address_info: tuple[Any, ...]) -> socket.socket:
        family, type, proto, _, address = address_info
        check(address[0])
        return socket.socket(family=family, type=type, proto=proto)

    return make_socket


def connect_to_checked_address(host: str, port: int, timeout_s: float, check: Check) -> socket.socket:
    """Connect as `socket.create_connection` does, but call `check` for each address first."""
    error: OSError | None = None
    for address_info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        connection = checking_socket_factory(check)(address_info)
        try:
            connection.settimeout(timeout_s)
            connection.connect(address_info[4])
        except OSError as failure:
            connection.close()
            error = failure
        else:
            return connection
    raise error or OSError(f"{host} has no address")


def _effective_ip(address: str) -> IPv4Address | IPv6Address:
    ip = ip_address(address.partition("%")[0])
    if isinstance(ip, IPv4Address):
        return ip
    inner = ip.ipv4_mapped or ip.sixtofour
    if ip in _NAT64:
        inner = IPv4Address(int(ip) & 0xFFFFFFFF)
    return inner or ip


def _is_loopback(host: str) -> bool:
    try:
        return _effective_ip(host).is_loopback
    except ValueError:
        return False

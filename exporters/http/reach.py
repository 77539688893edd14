"""
Where requests may go whose address an account chose: not to addresses that mean this network, a group, or a service
that gives a machine its credentials.

Checked is the address of each connection, after its name was looked up: a name that leads elsewhere the next time is
checked again, and so is an address that is written as a number.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from exporters.errors import Misconfigured

Check = Callable[[str], None]  # raises Misconfigured for an address

_THIS_NETWORK: Final = ip_network("0.0.0.0/8")
# Services that give credentials, outside of the link-local range.
_METADATA: Final = frozenset(
    map(ip_address, ("100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254", "fd20:ce::254"))
)
_NAT64: Final = ip_network("64:ff9b::/96")


def check_reach(address: str) -> None:
    """Misconfigured for a link-local, multicast, reserved or unspecified address, and for a metadata service."""
    found = _meaning(address)
    is_special = found.is_link_local or found.is_multicast or found.is_unspecified or found.is_reserved
    if (is_special and not found.is_loopback) or found in _METADATA or found in _THIS_NETWORK:
        raise Misconfigured(f"the address leads to {address}, where nothing of ours is sent", answered=False)


def check_reach_in_clear(address: str) -> None:
    """As `check_reach`, for what is sent without TLS: to this machine alone."""
    if not _meaning(address).is_loopback:
        raise Misconfigured(
            f"the address leads to {address}, and must begin with https:// elsewhere than on loopback",
            answered=False,
        )


def check_of(url: str) -> Check:
    return check_reach_in_clear if url.startswith("http://") else check_reach


def problems_of_reach(name: str, url: str) -> Iterator[str]:
    """What can be said of an address before its name is looked up."""
    host = urlsplit(url).hostname or ""
    if url.startswith("http://") and host != "localhost" and not _is_loopback(host):
        yield f"{name} must begin with https:// elsewhere than on loopback"
        return
    try:
        check_reach(host)
    except ValueError:
        return  # a name, which is looked up for each connection
    except Misconfigured as error:
        yield f"{name}: {error}"


def checked_socket(check: Check) -> Callable[[tuple[Any, ...]], socket.socket]:
    """Return what makes the socket of one address that was looked up, and of no other."""

    def make(found: tuple[Any, ...]) -> socket.socket:
        family, type, proto, _, address = found
        check(address[0])
        return socket.socket(family=family, type=type, proto=proto)

    return make


def connect(host: str, port: int, timeout_s: float, check: Check) -> socket.socket:
    """Connect as `socket.create_connection` does, to the first address that answers; each is checked before."""
    error: OSError | None = None
    for found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        made = checked_socket(check)(found)
        try:
            made.settimeout(timeout_s)
            made.connect(found[4])
        except OSError as failure:
            made.close()
            error = failure
        else:
            return made
    raise error or OSError(f"{host} has no address")


def _meaning(address: str) -> IPv4Address | IPv6Address:
    """Return an address, or the address of version 4 that one of version 6 stands for."""
    found = ip_address(address.partition("%")[0])
    if isinstance(found, IPv4Address):
        return found
    inner = found.ipv4_mapped or found.sixtofour
    if found in _NAT64:
        inner = IPv4Address(int(found) & 0xFFFFFFFF)
    return inner or found


def _is_loopback(host: str) -> bool:
    try:
        return _meaning(host).is_loopback
    except ValueError:
        return False

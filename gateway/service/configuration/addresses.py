"""Addresses that settings name: to listen on, as HOST:PORT, and to send to."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT as its parts; an IPv6 host loses its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """True if a host is this machine alone. A name other than localhost may mean anything, so it counts as public."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_safe_address(address: str) -> bool:
    """True if nobody on the way can read or change what is sent to an address: https, or this machine itself."""
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if not host or not address.isprintable() or parts.username is not None or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))

"""Addresses to listen on, as HOST:PORT."""

from __future__ import annotations

import ipaddress


def split_address(address: str) -> tuple[str, int]:
    """HOST:PORT as its parts; an IPv6 host loses its brackets."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """
    True if a host is this machine alone. A name other than localhost may mean anything, so it counts as
    public.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

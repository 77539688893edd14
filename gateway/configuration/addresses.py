"""Addresses that settings name."""

from __future__ import annotations

from urllib.parse import urlsplit

from gateway.configuration.listening_addresses import is_loopback


def is_safe_address(address: str) -> bool:
    """
    True if nobody on the way can read or change what is sent to an address: https, or this machine itself.
    """
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        return False
    if not host or not address.isprintable() or parts.username is not None or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))

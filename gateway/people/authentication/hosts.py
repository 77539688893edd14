"""Names of this server in the headers Host and Origin."""

from __future__ import annotations

from collections.abc import Collection
from ipaddress import ip_address
from urllib.parse import urlsplit


def host_name(host: str) -> str:
    """The name in a Host header, without its port; empty if malformed."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def authority(origin: str) -> str | None:
    """The host and port of an origin; None when it is not an address at all."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def is_own_name(name: str, hosts: Collection[str]) -> bool:
    """True for a name that no stranger can point at this machine: only names can be rebound, addresses cannot."""
    if name == "localhost" or name in hosts:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

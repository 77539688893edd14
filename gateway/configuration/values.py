"""
Single values as people write them. Sizes and durations ("64MiB" and "10s") are converted to bytes and seconds
and back. Addresses are HOST:PORT for listeners and URLs for receivers.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from datetime import date
from functools import lru_cache
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from spool.settings import GIB, KIB, MIB, Duration, Size

UNITS: Final[Mapping[Any, Mapping[str, float]]] = {
    Size: {
        "": 1,
        "b": 1,
        "kib": KIB,
        "mib": MIB,
        "gib": GIB,
        "tib": 1024 * GIB,
        "kb": 1000,
        "mb": 1000**2,
        "gb": 1000**3,
    },
    Duration: {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0},
}
QUANTITY: Final = r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*"
_WHOLE: Final[Mapping[Any, Mapping[str, float]]] = {
    Size: {"GiB": GIB, "MiB": MIB, "KiB": KIB},
    Duration: {"d": 86400, "h": 3600, "m": 60, "s": 1, "ms": 0.001},
}


def parse_quantity(kind: Any, text: str) -> float | None:
    """Return the bytes of a Size or the seconds of a Duration, or None if the text is malformed."""
    match = re.fullmatch(QUANTITY, text)
    unit = UNITS[kind].get(match[2].lower()) if match else None
    return None if match is None or unit is None else float(match[1]) * unit


def format_quantity(kind: Any, value: float) -> str:
    """
    Return the shortest text that is read as `value`, such as 64MiB or 7d. A value of another kind becomes a
    plain number.
    """
    for unit, unit_size in _WHOLE.get(kind, {}).items():
        if value and (value / unit_size).is_integer():
            return f"{value / unit_size:.0f}{unit}"
    return f"{value:.15g}"


def split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def is_loopback(host: str) -> bool:
    """
    Return whether a host is this machine. Any name other than localhost counts as public, because it may
    resolve to any address.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
_MAPPED: Final = 96  # bits before the IPv4 address in an IPv6 address such as ::ffff:10.0.0.5


def parse_ip(text: str) -> Address | None:
    """
    Parse an address, with or without brackets, port and zone. Return None if it is malformed. An IPv4 address
    within an IPv6 address becomes the IPv4 address.
    """
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return (isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped) or address


def parse_network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """
    Parse an address or a network. An IPv4 network within IPv6 becomes the IPv4 network. Raises ValueError.
    """
    network = ipaddress.ip_network(text, strict=False)
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= _MAPPED:
        inner = network.network_address.ipv4_mapped
        if inner is not None:
            return ipaddress.IPv4Network((inner, network.prefixlen - _MAPPED))
    return network


class Networks:
    """A set of addresses and networks, in which an address can be looked up."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._networks = [parse_network(name) for name in names]
        self._find = lru_cache(1024)(self._contains_address)

    def __bool__(self) -> bool:
        return bool(self._networks)

    def __contains__(self, address: str) -> bool:
        return self._find(address)

    def _contains_address(self, text: str) -> bool:
        address = parse_ip(text)
        return address is not None and any(address in network for network in self._networks)


def is_safe_address(address: str) -> bool:
    """
    Return whether others cannot read or change data on the way to this address: it is https, or
    this machine itself.
    """
    try:
        parts = urlsplit(address)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        return False
    if not host or not address.isprintable() or parts.username is not None or parts.fragment:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))


class ConfigError(Exception):
    """Raised if the configuration cannot run. `problems` lists every reason, with the settings' names."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def has_literal_text(pattern: str) -> bool:
    return bool(pattern.strip("*?"))


def is_iso_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False

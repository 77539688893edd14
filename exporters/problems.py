"""Checks of single settings. Each yields one sentence per problem, with the setting's name."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

MAX_STREAM_KEYS = 5  # maximum number of dimensions of a unit-cost stream


def problems_of_choice(name: str, value: str, allowed: tuple[str, ...]) -> Iterator[str]:
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else "one of " + ", ".join(map(repr, allowed[:12]))
        yield f"{name}: {value!r} is not known; {hint}"


def problems_of_headers(name: str, values: Mapping[str, str]) -> Iterator[str]:
    for header, value in values.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", header) or not value.isprintable():
            yield f"{name}: {header!r} is not a valid header, or its value is not one line"


def problems_of_stream_name(name: str, value: str) -> Iterator[str]:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,256}", value):
        yield f"{name} is required: letters, digits, '_', '.' and '-', at most 256"


def problems_of_url(name: str, value: str) -> Iterator[str]:
    """
    Yield the problems of an address; "" is valid. Messages do not contain the address, because it may include
    a password.
    """
    if value and not _is_url(value):
        yield f"{name} must begin with http:// or https://"
    elif value and "@" in urlsplit(value).netloc:
        yield f"{name} must not contain a user or a password: remove the part before the @"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # the address has an unclosed bracket or an invalid port
        return False
    return text.startswith(("http://", "https://")) and has_host

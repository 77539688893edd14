"""Checks of single settings: each yields a sentence, in the user's own key names, for a problem."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

MAX_STREAM_KEYS = 5  # dimensions of a unit-cost stream


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> Iterator[str]:
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else "one of " + ", ".join(map(repr, allowed[:12]))
        yield f"{name}: {value!r} is not known; {hint}"


def headers(name: str, values: Mapping[str, str]) -> Iterator[str]:
    for header, value in values.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", header) or not value.isprintable():
            yield f"{name}: {header!r} is not a header, or its value is not one line"


def stream_name(name: str, value: str) -> Iterator[str]:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,256}", value):
        yield f"{name} is required: letters, digits, '_', '.' and '-', at most 256"


def url(name: str, value: str) -> Iterator[str]:
    """An empty URL is none. What is wrong is said without the address, which may hold a password."""
    if value and not _is_url(value):
        yield f"{name} must begin with http:// or https://"
    elif value and "@" in urlsplit(value).netloc:
        yield f"{name} must not hold a user or a password: take out what stands before the @"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, or a port that is none
        return False
    return text.startswith(("http://", "https://")) and has_host

"""Checks of single settings: each yields a sentence, in the user's own key names, for a problem."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

MAX_STREAM_KEYS = 5  # dimensions of a unit-cost stream


def one_of(name: str, value: str, allowed: tuple[str, ...]) -> Iterator[str]:
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else "one of " + ", ".join(map(repr, allowed[:12]))
        yield f"{name}: {value!r} is not known; {hint}"


def stream_name(name: str, value: str) -> Iterator[str]:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,256}", value):
        yield f"{name} is required: letters, digits, '_', '.' and '-', at most 256"


def url(name: str, value: str) -> Iterator[str]:
    """An empty URL is none."""
    if value and not _is_url(value):
        yield f"{name} must begin with http:// or https://"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets that do not close
        return False
    return text.startswith(("http://", "https://")) and bool(parts.hostname)

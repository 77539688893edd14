"""
Free metadata is bounded and never content (promise 4): the one place that decides what may become a tag.

At most 32 tags, names to 64 and values to 256 characters, scalars only, never under a content name.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

import msgspec

from gateway.normalise.reading.content import is_content, may_hold_content
from spool.record import MAX_TAGS

MAX_NAME = 64
MAX_VALUE = 256

_SECRET_NAME = re.compile(
    r"(?:.*[._-])?"
    r"(?:authorization|api[_-]?key|cookie|password|passwd|secret|credentials?|access[_-]?token|token)",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"(?:(?:Bearer|Basic)\s+\S+"
    r"|(?:sk|rk|pcsk|gsk|xai|pplx|csk)-\S{8,}"
    r"|(?:sk|rk|gsk|hf|r8|thd?|ghp|gho|ghs|ghu|github_pat|glpat)_\S{16,}"
    r"|(?:AKIA|ASIA|AIza)\w{12,}|xox[abprs]-\S+|ya29\.\S+|eyJ[\w-]+\.[\w-]+\.\S*"
    r"|\S{0,12}\.{3}\S{0,12})",
    re.IGNORECASE,
)
# How a text begins for which the expression is worth its time; letters that it takes for others are among them.
_SECRET_STARTS = frozenset({
    "be", "ba", "sk", "rk", "pc", "gs", "xa", "pp", "cs", "r8", "hf", "th", "gh", "gi", "gı", "gl", "ak", "as", "ai",
    "aı", "xo", "ya", "ey",
})  # fmt: skip


@lru_cache(maxsize=8192)
def names_secret(name: str) -> bool:
    """Whether metadata of that name is a credential: callers put those there too."""
    return _SECRET_NAME.fullmatch(name) is not None


def is_secret(value: Any) -> bool:
    """Whether text looks like a credential, or like one that was masked in part."""
    if not isinstance(value, str):
        return False
    if (value[:2].casefold()[:2] in _SECRET_STARTS or "..." in value) and _SECRET.fullmatch(value):
        return True
    return "***" in value and len(value.split()) == 1


def text_of(value: Any) -> str | None:
    """A scalar as a tag's text: `true` is "true", a number is its JSON text; None if it is no scalar."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, float):
        return msgspec.json.encode(value).decode()
    return None


def put(tags: dict[str, str], name: str, value: Any) -> bool:
    """Add what a sender wrote when it may be a tag; False when it was left out, so that the caller counts it."""
    text = text_of(value)
    if text is None or not name or len(name) > MAX_NAME:
        return False
    if may_hold_content(name) if text is value else is_content(name):  # no number is a prompt: `messages_sent` counts
        return False
    return _add(tags, name, text)


def put_label(tags: dict[str, str], name: str, text: str) -> bool:
    """Add a label, whose name an operator chose; False under a plain name of content, or when there is no room."""
    return len(name) <= MAX_NAME and not is_content(name) and _add(tags, name, text)


def _add(tags: dict[str, str], name: str, text: str) -> bool:
    if len(text) > MAX_VALUE:
        return False
    if len(tags) >= MAX_TAGS and name not in tags:
        return False
    tags[name] = text
    return True

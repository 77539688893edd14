"""
Rules for tags: free metadata is limited in size and never content (promise 4).

A record has at most 32 tags, with names up to 64 and values up to 256 characters. Only scalars become tags, and
never under a content name. Under a name that is neither known here nor configured, the value must also be short and
of few words, because no list of content names is complete, and a sentence may be a prompt.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import msgspec

from gateway.normalise.reading.content import is_content, may_be_name_of_content, needs_operator_permission
from spool.caches import cache_by_text
from spool.record import MAX_TAGS, Inference, UsageMetric

MAX_NAME = 64
MAX_VALUE = 256
MAX_FREE_WORDS = 5  # maximum words of a text under a name that is neither known nor configured
# maximum characters of a value of several words; a single word may be longer, such as an id or a path
MAX_FREE_VALUE = 64
MAX_FREE_WORD = 128
# Names of tags that mean the same for every sender.
KNOWN = frozenset({
    "agent", "branch", "claimed_device", "commit", "cost_center", "department", "device", "effort", "end_user",
    "environment", "organization", "plugin", "pull_request", "query_source", "repository", "route",
    "service", "service_tier", "speed", "tags", "ticket", "workspace",
})  # fmt: skip

# Tags whose value must be a single word, because several words may be content.
_ONE_WORD = frozenset({"branch", "commit", "pull_request", "repository", "ticket"})

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
_NO_WORDS = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|true|false")
_LETTERED = re.compile(r"\S*\w\S*")
# Matches letters of scripts without spaces between words: Thai to Myanmar, Khmer, Chinese, Japanese
_UNSPACED = re.compile(
    "[\u0e00-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff]"
)
# First letters of secrets. Only texts that begin with them are searched. Equal letters in other cases are
# included.
SECRET_STARTS = frozenset({
    "be", "ba", "sk", "rk", "pc", "gs", "xa", "pp", "cs", "r8", "hf", "th", "gh", "gi", "gı", "gl", "ak", "as", "ai",
    "aı", "xo", "ya", "ey",
})  # fmt: skip


@cache_by_text(8192)
def is_name_of_secret(name: str) -> bool:
    return _SECRET_NAME.fullmatch(name) is not None


def is_credential(value: Any) -> bool:
    """Return whether a value is a credential, even one that is partly masked."""
    if not isinstance(value, str):
        return False
    if (value[:2].casefold()[:2] in SECRET_STARTS or "..." in value) and _SECRET.fullmatch(value):
        return True
    return "***" in value and len(value.split()) == 1


def tag_text(value: Any) -> str | None:
    """Return a scalar as text: a number as its JSON text, `true` as "true". Return None for other values."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | Decimal):
        return str(value)
    if isinstance(value, float):
        return msgspec.json.encode(value).decode()
    return None


def put_tag_if_allowed(tags: dict[str, str], name: str, value: Any) -> bool:
    """Add a tag. Return False for a value that was left out, so that the caller counts it."""
    text = tag_text(value)
    if text is None or not name or len(name) > MAX_NAME:
        return False
    # a number is never a prompt, so it may have a name such as `messages_sent`
    if may_be_name_of_content(name) if text is value else is_content(name):
        return False
    if name in _ONE_WORD and len(text.split()) > 1:
        return False
    return _add_tag_within_limits(tags, name, text)


def put_tag_on_record(record: Inference | UsageMetric, name: str, value: Any) -> bool:
    """
    Add a tag to a record. The record gets a copy of its tags, because several records may share one dict.
    """
    tags = dict(record.tags)
    is_kept = put_tag_if_allowed(tags, name, value)
    record.tags = tags
    return is_kept


def put_tag_if_brief(tags: dict[str, str], name: str, value: Any, kept_names: frozenset[str]) -> bool:
    text = tag_text(value)
    return (
        text is not None
        and is_known_or_brief_tag(name, text, kept_names)
        and put_tag_if_allowed(tags, name, value)
    )


def is_known_or_brief_tag(name: str, text: str, kept_names: frozenset[str]) -> bool:
    """
    Return whether a tag is allowed: its name is known or in `kept_names`, or name and text are short and of few
    words.
    """
    if name in KNOWN or name in kept_names:
        return True
    if not _is_brief_tag_name(name) or not is_brief_text(text):
        return False
    return not needs_operator_permission(name) or _NO_WORDS.fullmatch(text) is not None


def remove_unknown_long_tags(tags: dict[str, str], kept_names: frozenset[str]) -> int:
    """
    Remove tags that are unknown and have a long name or text, for callers that add tags without access to the
    settings. Return their number.
    """
    gone = [name for name, text in tags.items() if not is_known_or_brief_tag(name, text, kept_names)]
    for name in gone:
        del tags[name]
    return len(gone)


@cache_by_text(8192)
def _is_brief_tag_name(name: str) -> bool:
    return is_brief_text(name)


def is_brief_text(text: str) -> bool:
    """Return True for a printable text that is as short as a label, a name or an id."""
    if len(text) <= MAX_FREE_VALUE and text.isascii() and text.isalnum():
        return True
    words = text.split()
    if len(text) > (MAX_FREE_VALUE if len(words) > 1 else MAX_FREE_WORD) or not text.isprintable():
        return False
    # scripts without spaces have about two letters per word
    unspaced = 0 if text.isascii() else len(_UNSPACED.findall(text))
    return sum(_LETTERED.fullmatch(word) is not None for word in words) + unspaced // 2 <= MAX_FREE_WORDS


def put_label_unless_content(tags: dict[str, str], name: str, text: str) -> bool:
    """Add a tag whose name an operator chose. Any name is allowed except a content name."""
    return len(name) <= MAX_NAME and not is_content(name) and _add_tag_within_limits(tags, name, text)


def _add_tag_within_limits(tags: dict[str, str], name: str, text: str) -> bool:
    if len(text) > MAX_VALUE:
        return False
    if len(tags) >= MAX_TAGS and name not in tags:
        return False
    tags[name] = text
    return True

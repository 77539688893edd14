"""Recognition of names for models and token counts in reports of unknown senders."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from gateway.normalise.payload import items as payload

MOST: Final = 8  # maximum names that are listed for one item
_LARGEST = 65_536  # maximum bytes of an inner object that is searched

_CONVENTION = re.compile(
    r"(?:gen_ai|llm|ai)\.(?:usage|request|response|system|provider|operation|token_count|model)"
)
_MODEL = re.compile(r"(?:^|[._])model(?:_name|_id|\.name|\.id)?$")
_USAGE = re.compile(
    r"(?:^|[._:])(?:(?:input|output|prompt|completion|total|cached?)_?[tT]okens?(?:[._]|$)"
    r"|tokens?(?:_used|_total|[A-Z]\w*)?$|token_?[cC]ount$|(?:prompt_)?eval_count$"
    r"|cost(?:[._]usd)?$|credits?(?:_(?:consumed|used))?$|(?:nano_)?a[ci]u(?:_consumed)?$)"
    r"|tokens(?:In|Out|Used)$"
)
# Matches other kinds of tokens, and prefixes of conventions that are not about AI.
_NO_USAGE = re.compile(
    r"(?:^|[._])(?:access|refresh|auth|oauth|csrf|bucket)(?:[._]|$)"
    r"|(?:http|rpc|db|dns|process|system|host|container|k8s|jvm|messaging|network|otel|faas|hw)\."
)
# Prefixes of AI attributes. One search for them takes a fifth of the time of four, and most names match none.
CONVENTION_BEGINNINGS = ("gen_ai.", "llm.", "ai.")
AI_PARTS = ("model", "oken", "cost", "credit", "eval_count", "acu", "aiu")
_AI_PARTS = re.compile("|".join(AI_PARTS))
_COUNT_ALONE = frozenset({"tokens", "tokenCount", "token_count"})
_NOTHING = frozenset({b"null", b"0", b"0.0", b'""', b'"0"', b'"-"', b'"None"', b"{}", b"[]", b"false"})
_LONGEST_NOTHING = max(map(len, _NOTHING))


def is_ai_name(name: str) -> bool:
    if _AI_PARTS.search(name) is None and not name.startswith(CONVENTION_BEGINNINGS):
        return False
    return bool(_CONVENTION.match(name) or is_model_attribute(name) or is_usage_name(name))


def is_usage_name(name: str) -> bool:
    return _USAGE.search(name) is not None and not is_usage_word_of_other_meaning(name)


def is_model_attribute(name: str) -> bool:
    return _MODEL.search(name) is not None


def is_usage_word_of_other_meaning(name: str) -> bool:
    """
    Return True for names with a usage word but another meaning, such as sign-in tokens or the cost of an HTTP
    request.
    """
    return _NO_USAGE.search(name) is not None


def ai_names_with_values(members: Mapping[str, msgspec.Raw]) -> list[str]:
    """
    Return at most MOST member names of a gateway log item that mean a model or a token count and have a
    value.

    Such a log has fewer names than a span, so the word `tokens` in a name already means a token count.
    """
    return sorted(name for _, name in zip(range(MOST), _iterate_ai_names(members), strict=False))


def _iterate_ai_names(members: Mapping[str, msgspec.Raw]) -> Iterator[str]:
    for name, value in members.items():
        if _is_ai_name_with_value(name, value):
            yield name
        elif len(value) <= _LARGEST and payload.first_byte(value) == b"{":
            yield from (
                f"{name}.{inner}"
                for inner, inner_value in payload.undecoded_members(value).items()
                if _is_ai_name_with_value(inner, inner_value)
            )


def _is_ai_name_with_value(name: str, value: msgspec.Raw) -> bool:
    if name.isupper():  # a name in capitals is that of a database column
        name = name.lower()
    return (name in _COUNT_ALONE or is_ai_name(name)) and not _is_empty_json_value(value)


def _is_empty_json_value(value: msgspec.Raw) -> bool:
    # compare the length first, so that large values are not copied
    return len(value) <= _LONGEST_NOTHING and bytes(value) in _NOTHING

"""Mistakes that show in the form of a wrong key. The descriptions never quote the key."""

from __future__ import annotations

import re

_WHOLE = "send only the key as the value of the Authorization header"
_NAMED = re.compile(
    r"(authorization|x-api-key|api-key|apikey|token|key|bearer)\s*[=:\s]|.*%20", re.IGNORECASE
)
_PLACEHOLDER = re.compile(
    r"[<${%\[].*|.*(\.\.\.|\u2026|xxx).*|((your|my|the|tollhouse|api|key|token|secret)[_ -]*)+", re.IGNORECASE
)


def describe_wrong_form(key: str) -> str:
    """Return what is wrong with the form of an unknown key and what to do, or "" if the form is right."""
    if key[:6].lower() == "basic ":
        return f"this address reads no Basic credentials: {_WHOLE}"
    if key[0] in "\"'`" or key[-1] in "\"'`":
        return f"the key is in quotes: {_WHOLE}, without quotes"
    if _PLACEHOLDER.fullmatch(key):
        return "this is a placeholder of an example: put a key into its place, which `tollhouse keys create` prints"
    if _NAMED.match(key):
        return f"the value has more than the key: {_WHOLE}"
    if any(character.isspace() for character in key):
        return f"the key has spaces or line ends: {_WHOLE}"
    if not key.startswith(("th_", "thd_", "the_")):
        return (
            "a key that `tollhouse keys create` prints begins with th_; keys of AI providers and of other products "
            "are not accepted"
        )
    return ""

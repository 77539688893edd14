"""
Lines of models: those of one family and rank, in the order in which they came out. Pure.

Only makers whose names state family, rank and version are known; any other name belongs to no line.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Place(NamedTuple):
    """Where a model stands."""

    line: str
    version: tuple[int, ...]


_CLAUDE = re.compile(r"claude-(?P<rank>opus|sonnet|haiku|fable|mythos)-(?P<version>\d{1,2}(?:[-.]\d{1,2})?)")
_OLD_CLAUDE = re.compile(r"claude-(?P<version>\d(?:[-.]\d)?)-(?P<rank>opus|sonnet|haiku)(?:-latest)?")
_GPT = re.compile(
    r"gpt-(?P<version>\d+(?:\.\d+)?)(?P<omni>o?)(?:-(?P<rank>mini|nano|luna|terra|sol|astra|pro))?"
)
_GEMINI = re.compile(r"gemini-(?P<version>\d+(?:\.\d+)?)-(?P<rank>pro|flash|flash-lite)")


def place_of(model: str) -> Place | None:
    """The place of a model by the name that its maker gave it, without a date; None if it belongs to no line."""
    for maker, pattern in (("claude", _CLAUDE), ("claude", _OLD_CLAUDE), ("gpt", _GPT), ("gemini", _GEMINI)):
        found = pattern.fullmatch(model)
        if found is not None:
            major, minor = [*map(int, re.findall(r"\d+", found["version"])), 0][:2]
            omni = int(bool(found.groupdict().get("omni")))  # gpt-4o came after gpt-4 and before gpt-4.1
            return Place(line=f"{maker}-{found['rank'] or 'base'}", version=(major, minor, omni))
    return None

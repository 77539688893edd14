"""Types of errors: a class, a code or an HTTP status, and never a message, because messages quote prompts."""

from __future__ import annotations

import re
from collections.abc import Iterable

OTHER = "_OTHER"
_READABLE = re.compile(r"[\w.:/,$+-]{1,128}")  # `com.shop.Client$Timeout`, `Shop.Client+Timeout`


def first_readable(types: Iterable[str | None]) -> str:
    """The first type that has the form of a name or a code; `_OTHER` if none has."""
    return next((found for found in types if found is not None and _READABLE.fullmatch(found)), OTHER)

"""What a failure may be called: an error's class, its code or an HTTP status; free text may quote a prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable

OTHER = "_OTHER"
_READABLE = re.compile(r"[\w.:/,$+-]{1,128}")  # `com.shop.Client$Timeout`, `Shop.Client+Timeout`


def first_readable(types: Iterable[str | None]) -> str:
    """The first of them that is meant for machines."""
    return next((found for found in types if found is not None and _READABLE.fullmatch(found)), OTHER)

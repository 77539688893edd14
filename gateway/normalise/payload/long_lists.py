"""Lists with an entry for each item of a body, encoded in turns: there may be hundreds of thousands."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import islice
from typing import Any, Final

import msgspec

AT_ONCE: Final = 2048  # entries that are encoded without a pause


def encoded(entries: Iterable[Any]) -> Generator[None, None, bytes]:
    """The JSON of a list whose entries are made as they are taken; each step is the event loop's turn."""
    left, parts = iter(entries), []
    while some := list(islice(left, AT_ONCE)):
        parts.append(msgspec.json.encode(some)[1:-1])
        if len(some) == AT_ONCE:
            yield
    return b"[" + b",".join(parts) + b"]"

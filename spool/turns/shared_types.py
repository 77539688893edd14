"""Types that threads read at the same time."""

from __future__ import annotations

from typing import Any

import msgspec


def prepare(*types: Any) -> None:
    """
    Let msgspec work out types now, where a module is imported, and not at the first use.

    Two threads that use a type for the first time at once end the process: the second one reads what the first
    one has half made.
    """
    for each in types:
        msgspec.msgpack.Decoder(each)

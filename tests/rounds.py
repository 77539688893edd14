"""
How many cases of a matrix one run tries: all in long rounds (`TOLLHOUSE_FAULTS=full`: `make faults`, `make
soak`), a part in `make test`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

IS_LONG = os.environ.get("TOLLHOUSE_FAULTS") == "full"
LEAST = 20

T = TypeVar("T")


def examples(most: int) -> int:
    """Of a property test: a third in `make test`, where each run tries the same ones, but not under 20."""
    return most if IS_LONG else min(most, max(LEAST, most // 3))


def part(cases: Sequence[T], *, every: int) -> list[T]:
    """Of cases that take the same way through the code: one of so many in `make test`, the first included."""
    return list(cases if IS_LONG else cases[::every])

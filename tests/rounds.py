"""
Sizes of test matrices. Long runs (`TOLLHOUSE_FAULTS=full`: `make faults`, `make soak`) try all cases. `make
test` tries a part.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

IS_LONG = os.environ.get("TOLLHOUSE_FAULTS") == "full"
LEAST = 6

T = TypeVar("T")


def examples(most: int) -> int:
    """Return the number of examples of a property test: all in long runs, else a tenth, but at least 6."""
    return most if IS_LONG else min(most, max(LEAST, most // 10))


def part(cases: Sequence[T], *, every: int) -> list[T]:
    """
    Return all cases in long runs, else every `every`-th, for cases that take the same path through the code.
    """
    return list(cases if IS_LONG else cases[::every])

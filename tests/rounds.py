"""
Sizes of test matrices. `make proofs` sets `TOLLHOUSE_PROOFS=1` and tries everything. `make test` tries a part.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, TypeVar

import pytest

IS_LONG = os.environ.get("TOLLHOUSE_PROOFS") == "1"
LEAST = 6

T = TypeVar("T")


def examples(most: int) -> int:
    """Return the number of examples of a property test: all in proofs, else a tenth, but at least 6."""
    return most if IS_LONG else min(most, max(LEAST, most // 10))


def reduced(size: int, *, by: int) -> int:
    """Return the size of an input in proofs, else its `by`-th part."""
    return size if IS_LONG else size // by


def some(cases: Sequence[T], *, every: int) -> list[T]:
    """Return all cases of a loop in proofs, else every `every`-th."""
    return list(cases if IS_LONG else cases[::every])


def part(cases: Sequence[Any], *, every: int) -> list[Any]:
    """
    Return all cases for `parametrize`, and mark all but every `every`-th as proofs.

    A tuple has one value for each parameter. A tuple that is itself the value of one parameter must be a
    `pytest.param`.
    """
    return [case if number % every == 0 else as_proof(case) for number, case in enumerate(cases)]


def as_proof(case: Any) -> Any:
    """Return a case of `parametrize` with the mark `proof`."""
    if isinstance(case, type(pytest.param())):
        return pytest.param(*case.values, marks=[*case.marks, pytest.mark.proof], id=case.id)
    values = case if isinstance(case, tuple) else (case,)
    return pytest.param(*values, marks=pytest.mark.proof)

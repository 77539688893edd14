"""Transactions over rows in memory: a change that raises leaves them as they were."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TypeVar

R = TypeVar("R")
T = TypeVar("T")


def change(rows: R, work: Callable[[R], T]) -> T:
    """Run `work` on rows whose attributes are collections; it replaces values in them and never alters one."""
    before = {name: copy(value) for name, value in vars(rows).items()}
    try:
        return work(rows)
    except BaseException:
        vars(rows).update(before)
        raise

"""Dimensions that are functions of the ledger's own. A question groups and filters by them; no sum knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived:
    """
    `value` takes the values of the `sources` in their order and gives the dimension's; "" is unknown on both sides.

    It is pure, may be called by any thread and raises nothing.
    """

    name: str
    label: str  # how it is shown
    sources: tuple[str, ...]
    value: Callable[[tuple[str, ...]], str]


DerivedDimensions: TypeAlias = Mapping[str, Derived]  # by name

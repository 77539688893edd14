"""
Mappings of declarations that are imported at their first use, so that a process loads only what it needs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")


class LazyDeclarations(Mapping[str, T]):
    """
    Declarations by name, imported when they are accessed. `places` maps a name to `MODULE` or `MODULE:NAME`;
    without NAME, it is the module's TYPE.
    """

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def __getitem__(self, name: str) -> T:
        module, _, attribute = self._places[name].partition(":")
        declared: T = getattr(import_module(module), attribute or "TYPE")
        return declared

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

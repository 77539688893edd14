"""What modules declare as TYPE, each imported when its declaration is asked for: a process pays for what it uses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

T = TypeVar("T")


class Declared(Mapping[str, T]):
    """Declarations by name; `modules` has the name of each one's module. The names are known without an import."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules

    def __getitem__(self, name: str) -> T:
        declared: T = import_module(self._modules[name]).TYPE
        return declared

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)

"""Attributes that note which of their values are asked for."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, ValuesView
from typing import Any, NoReturn

from gateway.normalise.otlp.model import Attributes


class NotObserved(Exception):
    """A rule used attributes in a way of which nobody knows what it read."""


def _refuse(*_: object) -> NoReturn:
    raise NotObserved


class ObservedAttributes(dict[str, Any]):
    """
    Empty for everybody who reads a dict past its methods: the result then differs from that of plain attributes.

    Names may be looked at freely.
    """

    def __init__(self, attributes: Attributes, read: set[str]) -> None:
        super().__init__()
        self._attributes = attributes
        self._read = read

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        return self._attributes[name]

    def get(self, name: str, default: Any = None) -> Any:
        self._read.add(name)
        return self._attributes.get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self._attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return self._attributes.keys()

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        self._read.update(self._attributes)
        return self._attributes.values()

    def items(self) -> ItemsView[str, Any]:  # type: ignore[override]
        self._read.update(self._attributes)
        return self._attributes.items()

    def copy(self) -> Attributes:
        self._read.update(self._attributes)
        return self._attributes.copy()

    __eq__ = __ne__ = __or__ = __ror__ = __ior__ = __setitem__ = __delitem__ = _refuse
    __reversed__ = pop = popitem = setdefault = update = clear = _refuse  # type: ignore[assignment]
    __hash__ = None

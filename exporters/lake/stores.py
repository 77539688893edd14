"""What a lake needs of a store of objects: names that are written once, sizes, ends and lists."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple, Protocol


class StoredObject(NamedTuple):
    name: str
    size: int


class Store(Protocol):
    """
    Names are below the destination's prefix. Raises exporters.errors: Retryable where the answer may be
    another one later, Misconfigured where the key, the address or the store itself is to be changed.
    """

    async def create(self, name: str, content: Path | bytes) -> bool:
        """Write an object whole, or nothing of it; False if there is one of that name already."""
        ...

    async def refuses_again(self, name: str, content: bytes) -> bool:
        """
        Write an object that is there with the bytes that it has, on the condition that it is not there: False if
        the store takes it.
        """
        ...

    async def size(self, name: str) -> int | None:
        """None if there is no such object."""
        ...

    async def end(self, name: str, size: int, count: int) -> bytes:
        """The last `count` bytes of an object of `size`."""
        ...

    async def fetch(self, name: str, path: Path) -> None:
        """Copy an object into a local file. FileNotFoundError if it is not there."""
        ...

    def names(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        """Objects whose name begins so, of those behind `after`, in order of their names."""
        ...

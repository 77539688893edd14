"""Waiting halves without a disk."""

from __future__ import annotations

from collections.abc import Sequence

from spool.pending import Kept


class MemoryPending:
    def __init__(self) -> None:
        self._kept: dict[bytes, Kept] = {}

    async def put(self, halves: Sequence[Kept]) -> None:
        self._kept.update({half.key: half for half in halves})

    async def forget(self, keys: Sequence[bytes]) -> None:
        for key in keys:
            self._kept.pop(key, None)

    async def load(self) -> Sequence[Kept]:
        return sorted(self._kept.values(), key=lambda half: (half.at, half.key))

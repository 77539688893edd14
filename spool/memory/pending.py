"""Waiting halves without a disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spool.log.pending import Kept


class MemoryPending:
    def __init__(self) -> None:
        self._kept: dict[bytes, Kept] = {}

    def follow(self, halves: Mapping[bytes, Kept | None]) -> None:
        """What a commit says of halves; None: it waits no more."""
        for key, half in halves.items():
            if half is None:
                self._kept.pop(key, None)
            else:
                self._kept[key] = half

    async def load(self) -> Sequence[Kept]:
        return sorted(self._kept.values(), key=lambda half: (half.at, half.key))

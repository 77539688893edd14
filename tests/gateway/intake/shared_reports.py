"""What several processes share of a log in memory: each reads what the others kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from spool.log.partial_reports import PartialReport
from spool.memory.partial_reports import MemoryPartialReports


class SharedReports(MemoryPartialReports):
    """As those of an engine that several processes use. `meanwhile` runs once between a read and its answer."""

    is_shared = True
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def find(
        self, keys: Collection[bytes], *, under: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        found = await super().find(keys, under=under)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found

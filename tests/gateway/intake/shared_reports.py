"""Storage in memory that behaves as if several processes shared it: each reads what the others stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from spool.log.partial_reports import PartialReport
from spool.sqlite.partial_reports import SqlitePartialReports, SqliteStoredSenders


class SharedReports(SqlitePartialReports):
    """
    Partial reports of a shared engine. Between the next read and its result, `meanwhile` is called once.
    """

    is_shared = True
    meanwhile: Callable[[], Awaitable[object]] | None = None

    async def find_reports(
        self, keys: Collection[bytes], *, key_prefixes: Collection[bytes] = ()
    ) -> Mapping[bytes, PartialReport]:
        found = await super().find_reports(keys, key_prefixes=key_prefixes)
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


class SharedHeard(SqliteStoredSenders):
    @property
    def has_any_sender(self) -> bool:
        return True

    async def find_senders_of_callers(self, callers: Collection[bytes]) -> Sequence[tuple[bytes, float]]:
        self._of_callers = {}
        await self.open()
        return await super().find_senders_of_callers(callers)

"""Limits on the growth of unit-cost streams. All keys that create streams share the space for totals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gateway.core.errors import Refusal
from spool.clock import Clock
from spool.record import UnitCostOperation
from spool.settings import SpoolSettings
from spool.streams import (
    REPLACE,
    SUM,
    KnownStreams,
    StreamReader,
    StreamSize,
    TelemetryStream,
    can_create_streams,
    has_room_for_bytes,
    operation_key,
)

FRESH_S: Final = 1.0  # seconds until the sizes are read again
# Seconds after which a rejected sender may retry. By then, acknowledged totals may have been deleted.
RETRY_S: Final = 300


class StreamAdmission:
    """The limit on new unit-cost streams. Only a key that exceeds its share of the limit is refused."""

    def __init__(
        self, reader: StreamReader, known_streams: KnownStreams, clock: Clock, settings: SpoolSettings
    ) -> None:
        self._reader = reader
        self._book = known_streams
        self._clock = clock
        self._settings = settings
        self._sizes: dict[str, StreamSize] = {}
        self._good_until = float("-inf")

    async def check_and_reserve_new_streams(
        self, key: str, operations: Sequence[UnitCostOperation], after: Mapping[str, TelemetryStream]
    ) -> list[str]:
        """Check the limits, and return the streams that the operations create. Raises Refusal 429."""
        sizes = await self._recent_stream_sizes()
        new = [name for name in after if self._book.find_stream(name) is None]
        if new and not can_create_streams(list(sizes.values()), key, len(new), self._settings.max_streams):
            raise _limit_refusal(
                "too_many_streams", "spool.max_streams", "Delete streams that are no longer used"
            )
        changed = [operation for operation in operations if operation.operation in (SUM, REPLACE)]
        crowded = {
            name
            for name in {operation.stream for operation in changed}
            if not self._has_room(sizes, key, name)
        }
        full = [operation for operation in changed if operation.stream in crowded]
        if full and await self._has_operation_that_needs_new_total(full):
            advice = "Old totals are deleted after they are sent; until then, change only existing records"
            raise _limit_refusal("too_many_records", "spool.max_stream_bytes", advice)
        for name in new:
            sizes[name] = StreamSize(name, key, 0)
        return new

    def expire_stream_sizes(self) -> None:
        """Read the sizes of streams again at the next check, because another gateway created some."""
        self._good_until = float("-inf")

    async def set_stream_owners(self, names: Iterable[str], key: str) -> None:
        for name in names:
            await self._reader.set_owner(name, key)

    def _has_room(self, sizes: Mapping[str, StreamSize], key: str, stream: str) -> bool:
        owner = sizes[stream].created_by if stream in sizes else key
        return has_room_for_bytes(list(sizes.values()), owner, self._settings.max_stream_bytes)

    async def _has_operation_that_needs_new_total(self, operations: Sequence[UnitCostOperation]) -> bool:
        places = {(operation.stream, operation_key(operation)) for operation in operations}
        return len(await self._reader.find_totals(sorted(places))) < len(places)

    async def _recent_stream_sizes(self) -> dict[str, StreamSize]:
        if self._clock.monotonic() >= self._good_until:
            self._sizes = {size.name: size for size in await self._reader.stream_sizes()}
            self._good_until = self._clock.monotonic() + FRESH_S
        return self._sizes


def _limit_refusal(type: str, setting: str, advice: str) -> Refusal:
    message = f"Nothing was stored: this key has reached its limit ({setting}). {advice}."
    return Refusal(429, type, message, retry_after_s=RETRY_S)

"""Streams and totals without a disk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spool.listing import ListPage, ListQuery, page_of
from spool.streams import Stream, Total


class MemoryStreams:
    """Both the table that operations change and what readers ask."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}
        self._totals: dict[tuple[str, str], Total] = {}

    def stream(self, name: str) -> Stream | None:
        return self._streams.get(name)

    def put_stream(self, stream: Stream) -> None:
        self._streams[stream.name] = stream

    def drop_stream(self, name: str) -> None:
        self._streams.pop(name, None)
        self._totals = {place: total for place, total in self._totals.items() if place[0] != name}

    def total(self, stream: str, key: str) -> Total | None:
        return self._totals.get((stream, key))

    def put_total(self, total: Total) -> None:
        self._totals[total.stream, total.key] = total

    def totals_at(self, stream: str, start_time: int) -> Sequence[Total]:
        return [one for one in self._totals.values() if one.stream == stream and one.start_time == start_time]

    def remove_total(self, stream: str, key: str) -> None:
        self._totals.pop((stream, key), None)

    async def streams(self) -> Sequence[Stream]:
        return sorted(self._streams.values(), key=lambda stream: stream.name)

    async def totals(self, stream: str) -> Sequence[Total]:
        found = [one for one in self._totals.values() if one.stream == stream]
        return sorted(found, key=lambda one: (one.start_time, one.key))

    async def page(self, stream: str, query: ListQuery) -> ListPage[Total]:
        return page_of(await self.totals(stream), query)

    async def find(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Total]:
        return {place: self._totals[place] for place in keys if place in self._totals}

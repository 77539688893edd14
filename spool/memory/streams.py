"""Streams and totals without a disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from spool.listing import ListPage, ListQuery, page_of
from spool.stream_limits import size_of, to_free
from spool.streams import ALL_TOTALS, Stream, StreamSize, Total, TotalsPart


class MemoryStreams:
    """Both the table that operations change and what readers ask."""

    def __init__(self) -> None:
        self._streams: dict[str, Stream] = {}
        self._totals: dict[tuple[str, str], Total] = {}
        self._owners: dict[str, str] = {}

    def stream(self, name: str) -> Stream | None:
        return self._streams.get(name)

    def put_stream(self, stream: Stream) -> None:
        self._streams[stream.name] = stream

    def drop_stream(self, name: str) -> None:
        self._streams.pop(name, None)
        self._owners.pop(name, None)
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

    async def page(self, stream: str, query: ListQuery, part: TotalsPart = ALL_TOTALS) -> ListPage[Total]:
        return page_of(filter(part.holds, await self.totals(stream)), query)

    async def find(self, keys: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Total]:
        return {place: self._totals[place] for place in keys if place in self._totals}

    async def sizes(self) -> Sequence[StreamSize]:
        return self._sizes()

    def _sizes(self) -> Sequence[StreamSize]:
        sizes = Counter(dict.fromkeys([*self._streams, *self._owners], 0))
        for total in self._totals.values():
            sizes[total.stream] += size_of(total)
        return [StreamSize(name, self._owners.get(name, ""), n) for name, n in sizes.items()]

    async def own(self, stream: str, key: str) -> None:
        self._owners.setdefault(stream, key)

    def trim(self, *, settled: float, old: int, max_bytes: int) -> int:
        """
        Remove the totals that may go; the newest start of them, 0 when none went.

        `settled`: what no operation in the log is about was changed before it. `old`: a start before which they go
        whatever they take up.
        """
        wanted = dict(to_free(self._sizes(), max_bytes))
        newest = 0
        for total in sorted(self._totals.values(), key=lambda one: one.start_time):
            is_wanted = wanted.get(total.stream, 0) > 0
            if total.updated_at < settled and (total.start_time < old or is_wanted):
                wanted[total.stream] = wanted.get(total.stream, 0) - size_of(total)
                newest = max(newest, total.start_time)
                self.remove_total(total.stream, total.key)
        return newest

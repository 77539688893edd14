"""Exact comparison of a data lake with the log, delivery by delivery, and with the totals, day by day."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from exporters.batch import TURN
from exporters.lake import manifest, names
from exporters.lake.columns import LakeTable
from exporters.lake.manifest import LakeManifest
from exporters.lake.tables import TABLES, LakeDay, RowDigest
from exporters.lake.verification import FOREIGN, MISSING, LakeDifference
from spool import money
from spool.deliveries.protocols import LakeDeliveries, LakeRecount
from spool.log.protocols import ReadableLog
from spool.log.values import LogEntry

MOST_NUMBERS: Final = 500_000  # maximum record numbers per run; a run takes about ten seconds
_READ_AT_ONCE: Final = 4096
_ANY: Final = 2**62  # greater than every record number
# Kinds of differences that no file can repair: changed prices, and calls from before the route was created.
REPRICED, BEFORE_START = "repriced", "before_start"
EXPLAINED: Final = frozenset({REPRICED, BEFORE_START})
_NONE: Final = LakeDay()


@dataclass(frozen=True, kw_only=True)
class LogRecount:
    landings: LakeDeliveries
    log: ReadableLog
    destination: str
    topic: str

    @property
    def _route(self) -> str:
        return f"{self.destination}/{self.topic}"

    @property
    def _table(self) -> LakeTable:
        return TABLES[self.topic]

    async def compare_deliveries(self, after_number: int) -> LakeRecount:
        """
        Compare the deliveries that begin after the number `after_number`, in order, up to MOST_NUMBERS records.
        """
        editions = await self.landings.find_or_begin_log_editions(self._route, _ANY)
        differs = dict[str, str]()
        compared = numbers = 0
        after_number = min(after_number, _ANY)
        while numbers < MOST_NUMBERS:
            page = await self.landings.lake_deliveries_after(
                self._route, after_number=after_number, max_deliveries=1
            )
            if not page:
                return LakeRecount(differs=differs, editions=editions, compared=compared, after=None)
            (landing,) = page
            after_number = landing.first
            numbers += landing.last - landing.first + 1
            contents = await asyncio.to_thread(manifest.decode_manifest, landing.body)
            if not await self._has_files_of_own_log_edition(contents):
                continue
            rows, digest = await self._recount_delivery(contents)
            if rows < contents.numbers.rows:  # the log lacks some of the records
                continue
            compared += 1
            if digest != contents.digest:
                name = names.manifest_name(
                    contents.edition, contents.first, contents.last, table=self._table.name
                )
                differs[name] = "the log has other rows for its numbers"
        return LakeRecount(differs=differs, editions=editions, compared=compared, after=after_number)

    async def _has_files_of_own_log_edition(self, lake_manifest: LakeManifest) -> bool:
        """
        Return whether the lake has the delivery's rows under its own record numbers. If the delivery was
        settled after a restore, the rows have numbers of the original log or are in other files.
        """
        editions = await self.landings.find_or_begin_log_editions(self._route, lake_manifest.first)
        return bool(lake_manifest.files) and editions[0] == lake_manifest.edition

    async def _recount_delivery(self, lake_manifest: LakeManifest) -> tuple[int, str]:
        digest = RowDigest(self._table)
        rows = 0
        for start in range(lake_manifest.first, lake_manifest.last + 1, _READ_AT_ONCE):
            last = min(lake_manifest.last, start + _READ_AT_ONCE - 1)
            for entry in await self.log.read(self.topic, start, last):
                for part in entry.split(TURN):
                    values = self._encode_rows(part, lake_manifest.edition)
                    rows += len(values)
                    digest.add_rows(values)
                    await asyncio.sleep(0)
        return rows, digest.hexdigest()

    def _encode_rows(self, entry: LogEntry, log_edition: str) -> list[tuple[Any, ...]]:
        rows = []
        for number, record in enumerate(entry.records, entry.first):
            if record is None:
                continue
            row = self._table.row_of(
                record, number=number, committed_at=entry.committed_at, log_edition=log_edition
            )
            rows.append(row.values)
        return rows


def ledger_differences(
    lake: Mapping[str, LakeDay], ledger: Mapping[str, LakeDay], *, began_later: bool
) -> Iterator[LakeDifference]:
    """
    Yield the days that differ. `began_later`: the route began after the totals, which then count earlier
    calls as well.
    """
    for day in sorted({*lake, *ledger}):
        lake_sums = lake.get(day, _NONE)
        ledger_sums = ledger.get(day, _NONE)
        if lake_sums != ledger_sums:
            yield LakeDifference(
                _difference_kind(lake_sums, ledger_sums, began_later),
                day,
                _describe_difference(lake_sums, ledger_sums),
            )


def _difference_kind(ours: LakeDay, theirs: LakeDay, began_later: bool) -> str:
    if ours._replace(spend=0) == theirs._replace(spend=0):
        return REPRICED
    is_less = ours.calls < theirs.calls or (
        ours.calls == theirs.calls and ours.input_tokens <= theirs.input_tokens
    )
    if not is_less:
        return FOREIGN
    return BEFORE_START if began_later else MISSING


def _describe_difference(ours: LakeDay, theirs: LakeDay) -> str:
    return f"it has {_describe_day(ours)}, but the totals have {_describe_day(theirs)}"


def _describe_day(day: LakeDay) -> str:
    tokens = f"{day.input_tokens} and {day.output_tokens} tokens"
    return f"{day.calls} calls, ${money.units_to_text(day.spend)}, {tokens}"

"""
Adoption after a restore: settles records that the data lake already has, and adds to the log the records that
the restored copy never had.

Up to the last number of the copy, a number means the same record in the copy and in the data lake, as the ids
prove. These numbers are settled as delivered. Later records are added to the log under new numbers and count
as delivered to this route. After a crash, every step can be repeated. The route stays paused until the last
step, because the data lake already uses its next numbers.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import Any, Final

from exporters.lake import manifest, names
from exporters.lake.columns import VERSION
from exporters.lake.destination import MOST_RECORDS
from exporters.lake.exporter import store_manifest
from exporters.lake.file_checks import find_file_format
from exporters.lake.manifest import AdoptionManifest, LakeManifest
from exporters.lake.past.records import RECORDS, TopicRecords, time_ns
from exporters.lake.stores import LakeStore
from exporters.lake.tables import RowDigest, table_for_route
from exporters.lake.verification import ReadManifest, read_manifests
from spool import money
from spool.clock import Clock
from spool.deliveries.protocols import Deliveries, LakeDeliveries
from spool.deliveries.values import Delivery, LakeDelivery, Settlement
from spool.erasure import Renaming
from spool.errors import NotAllowed
from spool.log.imported import (
    build_import_submission,
    imported_ranges,
    imported_ranges_key,
    rename_erased_person,
)
from spool.log.partial_reports import PartialReports
from spool.log.protocols import RecordLog
from spool.record import AI_TELEMETRY, NS, Record, decimal_text, utc_iso

_FOR_EVER_S: Final = 10**9  # seconds far in the future, to include deliveries that wait for another attempt
_AT_ONCE: Final = 1000
_ANY: Final = 2**62  # greater than every record number
_WRONG: Final = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError)


@dataclass(frozen=True, kw_only=True)
class LakeDeliverySettler:
    """
    Settles deliveries of a restored copy whose records are already in its data lake.

    The data lake has these records under the same numbers, or under the original's numbers. Deliveries that
    are taken but not settled wait for the next start of the routes. Files are fetched into `scratch`.
    """

    store: LakeStore
    landings: LakeDeliveries
    deliveries: Deliveries
    log: RecordLog
    clock: Clock
    route: str
    writer: int
    batch_records: int
    scratch: Path

    async def take_deliveries_away_from_route(self, first_number: int, last_number: int) -> list[Delivery]:
        """
        Take the deliveries of these record numbers, so that no route sends them. A delivery that also has
        other numbers is split.
        """
        await self._wait_until_records_closed(last_number)
        deliveries = list[Delivery]()
        while first_number <= last_number:
            delivery = await self._take_next_due(below_number=last_number + 1, max_records=MOST_RECORDS)
            if delivery is None or delivery.first != first_number:
                raise NotAllowed(
                    f"the number {first_number} is in the data lake, but no delivery of {self.route} waits "
                    "with it here"
                )
            if delivery.last > last_number:
                await self._split_delivery(delivery, last_number + 1)
                continue
            deliveries.append(delivery)
            first_number = delivery.last + 1
        return deliveries

    async def _split_delivery(self, delivery: Delivery, second_first_number: int) -> None:
        if delivery.mark is not None:
            raise NotAllowed(
                f"the delivery {delivery.first} to {delivery.last} of {self.route} has already begun to land"
            )
        await self.deliveries.split_delivery(
            delivery, reason="the data lake has a part of it", second_first_number=second_first_number
        )

    async def _take_next_due(self, *, below_number: int, max_records: int) -> Delivery | None:
        now = self.clock.now() + _FOR_EVER_S
        return await self.deliveries.take_due_delivery(
            self.route, now=now, max_records=max_records, below_number=below_number
        )

    async def _wait_until_records_closed(self, last_number: int) -> None:
        async for below in self.log.watermark_changes(self.route.partition("/")[2]):
            if below > last_number:
                return

    async def settle_added_records(self, first_number: int, last_number: int) -> list[Delivery]:
        """
        Settle the records `first_number` to `last_number`, which are in the data lake under other numbers. To
        reach them, this also takes the deliveries of lower numbers, and returns these unsettled.
        """
        await self._wait_until_records_closed(last_number)
        held = []
        for below in (first_number, last_number + 1):
            while (
                delivery := await self._take_next_due(below_number=below, max_records=self.batch_records)
            ) is not None:
                border = next(
                    (
                        boundary
                        for boundary in (first_number, last_number + 1)
                        if delivery.first < boundary <= delivery.last
                    ),
                    None,
                )
                if border is not None:
                    await self._split_delivery(delivery, border)
                elif first_number <= delivery.first <= last_number:
                    await self._settle_without_files(delivery)
                else:
                    held.append(delivery)
        return held

    async def _settle_without_files(self, delivery: Delivery) -> None:
        edition = (await self.landings.find_or_begin_log_editions(self.route, delivery.first))[0]
        contents = LakeManifest(
            route=self.route,
            edition=edition,
            first=delivery.first,
            last=delivery.last,
            writer=self.writer,
            schema=VERSION,
            digest=RowDigest(table_for_route(self.route)).hexdigest(),
            landed_at="",
            numbers=manifest.DeliveryNumbers(rows=0, shadow=0),
            kinds={},
            counted=manifest.CountedRows(calls=0, spend="0", input_tokens=0, output_tokens=0),
            files=[],
        )
        body = await store_manifest(self.store, self.landings, self.clock, contents, self.scratch)
        landing = LakeDelivery(
            route=self.route, first=delivery.first, last=delivery.last, edition=edition, body=body
        )
        await self.deliveries.store_settlement(
            delivery, Settlement(delivered=delivery.count, landing=landing)
        )

    async def settle_records_in_log_and_lake(
        self, read_manifest: ReadManifest, deliveries: Sequence[Delivery]
    ) -> None:
        """
        Settle the deliveries whose record numbers mean the same records in the restored log and in the data
        lake: they count as delivered. The settlement of the last one also stores the lake's manifest.
        """
        contents = read_manifest.body
        await self.store.fetch(read_manifest.name, self.scratch / "there")
        body = await asyncio.to_thread((self.scratch / "there").read_bytes)
        landing = LakeDelivery(
            route=self.route, first=contents.first, last=contents.last, edition=contents.edition, body=body
        )
        for delivery in deliveries:
            damaged = sum(delivery.first <= number <= delivery.last for number in contents.numbers.damaged)
            settlement = Settlement(
                delivered=delivery.count - damaged,
                damaged=damaged,
                landing=landing if delivery is deliveries[-1] else None,
            )
            await self.deliveries.store_settlement(delivery, settlement)


@dataclass(frozen=True, kw_only=True)
class AdoptionResult:
    """
    The result of an adoption, in numbers of records.

    `settled` records of the restored log are in the data lake. Of the records that this log never had,
    `brought` were added to it, `known` were already there, and `left` are only in the data lake.
    """

    settled: int = 0
    brought: int = 0
    known: int = 0
    left: int = 0


@dataclass(eq=False)
class _AdoptionCounts:
    brought: int = 0
    known: int = 0
    left: int = 0


@dataclass(eq=False)
class _RestoredRecords:
    """
    Records that are in the log again, by their new numbers and their ids.

    `ids`: added by an interrupted adoption. `seen`: added by this one.
    """

    ranges: list[tuple[int, int]] = field(default_factory=list)
    ids: set[bytes] = field(default_factory=set)
    seen: set[bytes] = field(default_factory=set)


@dataclass(frozen=True, kw_only=True)
class LakeAdoption:
    """
    An adoption: a log that was restored from a backup takes over later records from its data lake
    (`destination`). No server may use the storage meanwhile. Files are fetched into folders of `directory`.
    `writer`: see `FileFormat`. `batch_records`: limit of a delivery. `renaming`: of people who were erased.
    """

    store: LakeStore
    landings: LakeDeliveries
    deliveries: Deliveries
    log: RecordLog
    reports: PartialReports
    clock: Clock
    destination: str
    writer: int
    batch_records: int
    directory: Path
    records: TopicRecords = RECORDS[AI_TELEMETRY]
    renaming: Renaming | None = None

    @property
    def _topic(self) -> str:
        return self.records.topic

    @property
    def _route(self) -> str:
        return f"{self.destination}/{self._topic}"

    async def adopt_records(self, *, leaves_in_lake: bool, dry_run: bool) -> AdoptionResult:
        """
        Add to the restored log the records that only the data lake has.

        With `leaves_in_lake`, they stay only in the lake. With `dry_run`, nothing is written, and the result's
        `brought` counts the records that would be added. Raises NotAllowed if the data lake does not belong
        to this log. Raises the store's errors.
        """
        with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            return await self._adopt_manifests(Path(scratch), leaves_in_lake=leaves_in_lake, dry_run=dry_run)

    async def _adopt_manifests(self, scratch: Path, *, leaves_in_lake: bool, dry_run: bool) -> AdoptionResult:
        await self._check_none_held_back()
        manifests, adopted = await self._read_unknown_manifests(scratch)
        if not manifests:
            return AdoptionResult()
        shared = await self._find_last_number_in_lake_and_log(manifests, scratch)
        unshared = [
            lake_manifest
            for lake_manifest in manifests
            if lake_manifest.body.last > shared and lake_manifest.name not in adopted
        ]
        restored = await self._load_records_of_interrupted_adoption()
        counts = {lake_manifest.name: _AdoptionCounts() for lake_manifest in unshared}
        for lake_manifest in unshared:
            await self._add_missing_to_log(
                lake_manifest,
                shared,
                restored,
                counts[lake_manifest.name],
                scratch,
                leaves_in_lake=leaves_in_lake,
                dry_run=dry_run,
            )
        settled = sum(
            max(0, min(lake_manifest.body.last, shared) - lake_manifest.body.first + 1)
            for lake_manifest in manifests
        )
        if not dry_run:
            await self._mark_lake_records_delivered(manifests, unshared, counts, shared, restored, scratch)
        return AdoptionResult(
            settled=settled,
            brought=sum(counter.brought for counter in counts.values()),
            known=sum(counter.known for counter in counts.values()),
            left=sum(counter.left for counter in counts.values()),
        )

    async def _check_none_held_back(self) -> None:
        if any(
            delivery.route == self._route
            for delivery in await self.deliveries.deliveries_with_unknown_outcome()
        ):
            raise NotAllowed(
                f"deliveries of {self._route} are held back: first settle them with tollhouse streams "
                "resolve ID, as sent if the data lake has their numbers"
            )

    async def _read_unknown_manifests(self, scratch: Path) -> tuple[list[ReadManifest], set[str]]:
        state = next(
            (
                route_state
                for route_state in await self.deliveries.route_states()
                if route_state.name == self._route
            ),
            None,
        )
        if state is None:
            raise NotAllowed(f"the route {self._route} does not exist here yet: start the server once")
        editions = await self.landings.find_or_begin_log_editions(
            self._route, self.log.next_number(self._topic)
        )
        manifests = list[ReadManifest]()
        adopted = set[str]()
        async for lake_manifest in read_manifests(
            self.store, self.destination, scratch, table=self.records.table.name
        ):
            if isinstance(lake_manifest, AdoptionManifest):
                adopted.add(lake_manifest.manifest)
            elif isinstance(lake_manifest, ReadManifest) and lake_manifest.body.edition in editions[1:]:
                is_delivery = lake_manifest.body.imported is None and not names.parse_repair_number(
                    lake_manifest.name
                )
                if is_delivery and lake_manifest.body.last >= state.progress:
                    manifests.append(lake_manifest)
        # The manifest is noted as adopted before its record numbers are settled. After a crash in between,
        # the settling must be finished.
        waiting = [
            lake_manifest
            for lake_manifest in manifests
            if lake_manifest.name not in adopted or lake_manifest.body.first >= state.progress
        ]
        return sorted(waiting, key=lambda lake_manifest: lake_manifest.body.first), adopted

    async def _find_last_number_in_lake_and_log(
        self, manifests: Sequence[ReadManifest], scratch: Path
    ) -> int:
        """
        Return the last number with the same record in the data lake and in the log.

        Raises NotAllowed if an earlier number belongs to different records.
        """
        same = manifests[0].body.first - 1
        first_different = _ANY
        below = self.log.next_number(self._topic)
        for lake_manifest in manifests:
            if lake_manifest.body.first >= below:
                break
            ids = {
                number: record.id.hex()
                async for number, record in self._read_log_records(
                    lake_manifest.body.first, lake_manifest.body.last
                )
            }
            async for number, id in self._read_rows(lake_manifest.body, ("number", "id"), scratch):
                if number in ids:
                    same = max(same, number) if ids[number] == id else same
                    first_different = min(first_different, number) if ids[number] != id else first_different
        if first_different < same:
            raise NotAllowed(
                f"the number {first_different} is a different record here than in the data lake: this data is "
                "not a copy of what wrote it"
            )
        return same

    async def _read_rows(
        self, lake_manifest: LakeManifest, columns: Sequence[str], scratch: Path
    ) -> AsyncIterator[tuple[Any, ...]]:
        local_copy = scratch / "there"
        for file in lake_manifest.files:
            format = find_file_format(file.key)
            if format is None:
                raise NotAllowed(f"the format of {file.key} is unknown")
            try:
                await self.store.fetch(file.key, local_copy)
            except FileNotFoundError as error:
                raise NotAllowed(f"{file.key} is missing in the data lake") from error
            rows = format.read_rows(local_copy, columns)
            while part := await asyncio.to_thread(_next_row_batch, rows):
                for values in part:
                    yield values

    async def _load_records_of_interrupted_adoption(self) -> _RestoredRecords:
        report = next(
            (
                stored_report
                for stored_report in await self.reports.load()
                if stored_report.key == self._imported_ranges_key
            ),
            None,
        )
        restored = _RestoredRecords() if report is None else _RestoredRecords(imported_ranges(report))
        for first, last in restored.ranges:
            restored.ids |= {record.id async for _, record in self._read_log_records(first, last)}
        return restored

    async def _read_log_records(
        self, first_number: int, last_number: int
    ) -> AsyncIterator[tuple[int, Record]]:
        for start in range(first_number, last_number + 1, _AT_ONCE):
            end = min(last_number, start + _AT_ONCE - 1)
            for entry in await self.log.read(self._topic, start, end, includes_open_records=True):
                for number, record in enumerate(entry.records, entry.first):
                    if record is not None:
                        yield number, record

    @property
    def _imported_ranges_key(self) -> bytes:
        return imported_ranges_key("lake", self._route)

    async def _add_missing_to_log(
        self,
        lake_manifest: ReadManifest,
        last_number_in_both: int,
        restored: _RestoredRecords,
        counts: _AdoptionCounts,
        scratch: Path,
        *,
        leaves_in_lake: bool,
        dry_run: bool,
    ) -> None:
        waiting: list[Record] = []
        async for values in self._read_rows(lake_manifest.body, self.records.read_columns, scratch):
            row = dict(zip(self.records.read_columns, values, strict=True))
            if row["number"] <= last_number_in_both:
                continue
            record = None if leaves_in_lake else _restorable_record(row, self.records)
            if record is None:
                counts.left += 1
            elif record.id in restored.seen or self._is_known(record, restored):
                counts.known += 1
            else:
                counts.brought += 1
                restored.seen.add(record.id)
                if record.id not in restored.ids:
                    arrived_at = (time_ns(row["committed_at"]) or 0) / NS
                    rename_erased_person(record, self.renaming, arrived_at=arrived_at)
                    waiting.append(record)
            if len(waiting) >= _AT_ONCE and not dry_run:
                await self._append_to_log(waiting, restored)
                waiting = []
        if waiting and not dry_run:
            await self._append_to_log(waiting, restored)

    def _is_known(self, record: Record, restored: _RestoredRecords) -> bool:
        return record.id not in restored.ids and self.log.find_id_position(record.id) is not None

    async def _append_to_log(self, records: Sequence[Record], restored: _RestoredRecords) -> None:
        first = self.log.next_number(self._topic)
        ranges = _join_ranges([*restored.ranges, (first, first + len(records) - 1)])
        note = build_import_submission(
            self._topic,
            records,
            ranges_key=self._imported_ranges_key,
            imported_ranges=ranges,
            imported_at=self.clock.now(),
            checks_duplicates=False,
        )
        await self.log.append_submission(note)
        if self.log.next_number(self._topic) != first + len(records):
            raise NotAllowed(
                "another process writes to this log: stop every gateway, and restore the backup again"
            )
        restored.ranges = ranges

    async def _mark_lake_records_delivered(
        self,
        manifests: Sequence[ReadManifest],
        later_manifests: Sequence[ReadManifest],
        counts: dict[str, _AdoptionCounts],
        last_number_in_both: int,
        restored: _RestoredRecords,
        scratch: Path,
    ) -> None:
        """
        Mark the records that the data lake has as delivered. Records received since the restore become
        separate deliveries, which still wait.
        """
        settling = LakeDeliverySettler(
            store=self.store,
            landings=self.landings,
            deliveries=self.deliveries,
            log=self.log,
            clock=self.clock,
            route=self._route,
            writer=self.writer,
            batch_records=self.batch_records,
            scratch=scratch,
        )
        shared_deliveries = [
            (
                lake_manifest,
                await settling.take_deliveries_away_from_route(
                    lake_manifest.body.first, min(lake_manifest.body.last, last_number_in_both)
                ),
            )
            for lake_manifest in manifests
            if lake_manifest.body.first <= last_number_in_both
        ]
        held = list[Delivery]()
        for first, last in restored.ranges:
            held += await settling.settle_added_records(first, last)
        for lake_manifest in later_manifests:
            await self._store_adoption_in_lake(lake_manifest, last_number_in_both, counts[lake_manifest.name])
        for lake_manifest, deliveries in shared_deliveries:
            await settling.settle_records_in_log_and_lake(lake_manifest, deliveries)
        for delivery in held:
            await self.deliveries.schedule_retry(delivery, reason="it waited for an adoption", not_before=0)

    async def _store_adoption_in_lake(
        self, lake_manifest: ReadManifest, last_number_in_both: int, counts: _AdoptionCounts
    ) -> None:
        contents = lake_manifest.body
        first = max(contents.first, last_number_in_both + 1)
        note = AdoptionManifest(
            route=contents.route,
            edition=contents.edition,
            first=first,
            last=contents.last,
            manifest=lake_manifest.name,
            adopted_at=utc_iso(self.clock.now()),
            brought=counts.brought,
            known=counts.known,
            left=counts.left,
            damaged=sum(number >= first for number in contents.numbers.damaged),
        )
        await self.store.create_object(
            names.adoption_name(contents.edition, first, contents.last, table=self.records.table.name),
            manifest.encode_manifest(note),
        )


def _next_row_batch(rows: Iterator[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return list(islice(rows, _AT_ONCE))


def _restorable_record(row: dict[str, Any], records: TopicRecords) -> Record | None:
    """
    Return the record of a row. Return None for a correction, or if the record would be counted differently
    because some of its columns were left out.
    """
    try:
        record = records.restore_record(row)
    except _WRONG as error:
        raise NotAllowed(f"the number {row['number']} in the data lake is not a valid record") from error
    if record is None:
        return None
    committed_at = (time_ns(row["committed_at"]) or 0) / NS
    values = records.table.row_of(record, number=None, committed_at=committed_at, log_edition=None).values
    encoded_row = dict(zip(records.table.columns, values, strict=True))
    spend = None if row["spend"] is None else money.text_to_units(decimal_text(Decimal(row["spend"])))
    is_same = (encoded_row["counted"], encoded_row["calls"], encoded_row["spend"]) == (
        row["counted"],
        row["calls"],
        spend,
    )
    return record if is_same else None


def _join_ranges(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for first, last in ranges:
        if joined and joined[-1][1] + 1 == first:
            first, _ = joined.pop()
        joined.append((first, last))
    return joined

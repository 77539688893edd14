"""
Imports older records into a data lake, from record files and from files of another data lake.

New files are named by the SHA-256 of the source, so a repeated import changes nothing. Records whose id the data
lake already has for their date are left out. Rows have no number, because this installation's log does not have
them.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from hashlib import file_digest
from itertools import islice
from pathlib import Path
from typing import Any, Final

import orjson
from msgspec.structs import replace

from exporters.errors import Misconfigured
from exporters.lake import manifest, names
from exporters.lake.columns import LakeRow
from exporters.lake.exporter import store_file
from exporters.lake.file_checks import find_file_format
from exporters.lake.manifest import ImportedPart, LakeManifest
from exporters.lake.partitions import DeliveryFiles, FileFormat
from exporters.lake.past.records import RECORDS, TopicRecords, time_ns
from exporters.lake.stores import LakeStore
from spool import money
from spool.clock import Clock
from spool.record import AI_TELEMETRY, NS, decimal_text, utc_iso

_SHOWN: Final = {topic: "AI telemetry" if topic == AI_TELEMETRY else topic for topic in RECORDS}
PART_ROWS: Final = (
    # maximum records per part of a source; with another value, parts with the same records would get other names
    65_536
)
_ID_DIGITS: Final = 32
_NO_DELIVERY: Final = "import"  # imported files come from no delivery, so they have no edition
_WRONG: Final = (ValueError, TypeError, KeyError, AttributeError, ArithmeticError)


@dataclass(frozen=True, kw_only=True)
class LakeImport:
    """
    An import of files into a data lake. It makes new files in `directory`, with at most `part_rows` records
    in memory.

    `records`: how to read the topic's rows. `leave_out`: columns to omit.
    """

    store: LakeStore
    clock: Clock
    destination: str
    format: FileFormat
    directory: Path
    leave_out: Collection[str] = ()
    part_rows: int = PART_ROWS
    records: TopicRecords = RECORDS[AI_TELEMETRY]

    async def import_file(self, source: Path) -> list[LakeManifest]:
        """
        Import a file part by part. Return the manifests, including those of parts imported earlier.

        Raises ValueError if the file cannot be read to its end. The parts before the error stay. Raises
        the store's errors.
        """
        sha256 = await asyncio.to_thread(_file_sha256, source)
        rows = read_import_rows(source, self.records)
        manifests = list[LakeManifest]()
        while part := await asyncio.to_thread(lambda: list(islice(rows, self.part_rows))):
            with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
                imported = ImportedPart(
                    source=source.name, sha256=sha256, part=len(manifests) + 1, known=0, left_out=0
                )
                manifests.append(await self._import_part(imported, part, Path(scratch)))
        return manifests

    async def _import_part(
        self, imported: ImportedPart, part: Sequence[LakeRow | None], scratch: Path
    ) -> LakeManifest:
        name = names.import_manifest_name(imported.sha256, imported.part, table=self.records.table.name)
        if await self.store.object_size(name) is not None:
            return await self._read_manifest(name, scratch)
        rows = [row for row in part if row is not None]
        stem = names.import_stem(imported.sha256, imported.part)
        fresh = await self._drop_known_rows(rows, stem, scratch)
        files = DeliveryFiles(
            scratch,
            names.DeliveryRange(self.destination, _NO_DELIVERY, 1, 0),
            route=f"{self.destination}/{self.records.topic}",
            format=self.format,
            leave_out=tuple(self.leave_out),
            stem=stem,
            table=self.records.table,
        )
        files.add_rows(fresh)
        contents = await asyncio.to_thread(files.finish_and_describe)
        landed = [
            await store_file(self.store, self.format, file, files.path_of(file), contents.digest, scratch)
            for file in contents.files
        ]
        counted = replace(imported, known=len(rows) - len(fresh), left_out=len(part) - len(rows))
        contents = replace(contents, files=landed, imported=counted, landed_at=utc_iso(self.clock.now()))
        if not await self.store.create_object(name, manifest.encode_manifest(contents)):
            return await self._read_manifest(name, scratch)
        return contents

    async def _read_manifest(self, name: str, scratch: Path) -> LakeManifest:
        local_copy = scratch / "there.json"
        await self.store.fetch(name, local_copy)
        try:
            return manifest.decode_manifest(await asyncio.to_thread(local_copy.read_bytes))
        except ValueError as error:
            raise Misconfigured(f"{name}: {error}", answered=False) from error

    async def _drop_known_rows(self, rows: Sequence[LakeRow], stem: str, scratch: Path) -> list[LakeRow]:
        rows_by_date: dict[str, dict[str, LakeRow]] = defaultdict(dict)
        for row in rows:
            rows_by_date[names.format_date(row.day)].setdefault(row.id, row)
        local_copy = scratch / "there"
        data = names.data_prefix(self.records.table.name)
        for date, of_date in rows_by_date.items():
            async for stored_object in self.store.list_objects(f"{data}date={date}/"):
                format = find_file_format(stored_object.name)
                if format is not None and stem not in stored_object.name:
                    await self.store.fetch(stored_object.name, local_copy)
                    for id in await asyncio.to_thread(_known_ids, format, local_copy, of_date.keys()):
                        del of_date[id]
        return [row for of_date in rows_by_date.values() for row in of_date.values()]


def read_import_rows(source: Path, records: TopicRecords) -> Iterator[LakeRow | None]:
    """
    Yield the rows of a record file or a data lake file. Yield None for a correction, and for a record
    without a time.

    In a record file, the end of a call replaces the time of its commit. Raises ValueError for any other file.
    """
    format = find_file_format(source.name)
    rows = _read_lines(source, records) if format is None else format.read_rows(source, records.read_columns)
    for number, values in enumerate(rows, 1):
        row = dict(zip(records.read_columns, values, strict=True))
        try:
            yield _build_imported_row(row, records, is_from_data_lake=format is not None)
        except _WRONG as error:
            raise ValueError(
                f"{source.name}: row {number} is not a record of {_SHOWN[records.topic]}"
            ) from error


def _read_lines(source: Path, records: TopicRecords) -> Iterator[tuple[Any, ...]]:
    with source.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                row = orjson.loads(line)
                if row.get("meter") is not None:
                    row["meters"] = {row["meter"]: row["value"]}
            except _WRONG as error:
                raise ValueError(
                    f"{source.name}: line {number} is not a record of {_SHOWN[records.topic]}"
                ) from error
            yield tuple(row.get(name) for name in records.read_columns)


def _build_imported_row(
    row: dict[str, Any], records: TopicRecords, *, is_from_data_lake: bool
) -> LakeRow | None:
    if row["kind"] not in records.kinds or len(row["id"]) != _ID_DIGITS:
        raise ValueError("a row has a kind that this topic does not have, or no valid id")
    record = records.restore_record(row)
    times = [time_ns(row.get(name)) for name in ("committed_at", "end_time", "start_time")]
    committed_at = next((timestamp for timestamp in times if timestamp is not None), None)
    if record is None or committed_at is None:
        return None
    imported = records.table.row_of(record, number=None, committed_at=committed_at / NS, log_edition=None)
    if not is_from_data_lake or records.topic != AI_TELEMETRY:
        return imported
    # The spend that the other installation counted is used, because the columns for computing it may be left out.
    spend = None if row["spend"] is None else money.text_to_units(decimal_text(Decimal(row["spend"])))
    return imported.replace_counts_and_spend(counted=row["counted"], calls=row["calls"], spend=spend)


def _known_ids(format: FileFormat, path: Path, searched_ids: Collection[str]) -> set[str]:
    return {id for (id,) in format.read_rows(path, ("id",)) if id in searched_ids}


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()

"""
Reads records of past days from a data lake after the log has deleted them.

The stored manifests name the files. One file at a time is copied to a local directory. It is read in short
steps on a thread, so a query has only a part of it in memory.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

from exporters.errors import SendError
from exporters.lake import manifest
from exporters.lake.file_checks import find_file_format
from exporters.lake.manifest import LakeFile
from exporters.lake.partitions import FileFormat
from exporters.lake.past.records import READ, build_past_record
from exporters.lake.stores import LakeStore
from spool.deliveries.protocols import LakeDeliveries, PastDates, PastRecord
from spool.deliveries.values import LakeDelivery
from spool.disks import make_directory
from spool.errors import SpoolUnavailable
from spool.ledger.sums import AHEAD_S

READ_S: Final = 30.0  # maximum seconds per query
STEP: Final = 512  # rows read before the event loop runs other tasks
_PAGE: Final = 500
_PREFIX: Final = "read-"
_TAG: Final = "tag:"  # prefix of a tag name in dimensions
_NO_COLUMN: Final = frozenset({"sender"})
# columns that the dimension `model` needs
_MODEL: Final = frozenset({"response_model", "request_model", "model"})


@dataclass(frozen=True, kw_only=True)
class LakeHistory:
    """A reader of past records, as the protocol PastRecords requires. Files are copied below `directory`."""

    store: LakeStore
    landings: LakeDeliveries
    route: str
    directory: Path
    leave_out: Collection[str] = ()

    def has_dimension_missing_in_lake(self, dimensions: Collection[str]) -> bool:
        left_out = {*_NO_COLUMN, *self.leave_out}
        if _MODEL & left_out:
            left_out.add("model")
        tags = [name.removeprefix(_TAG) for name in dimensions if name.startswith(_TAG)]
        columns = {name for name in dimensions if not name.startswith(_TAG)}
        if tags:
            columns |= {"tags", *(f"tags.{name}" for name in tags)}
        return bool(columns & left_out)

    async def read_records(
        self,
        dates: PastDates,
        *,
        below_number: int,
        max_records: int | None = None,
        oldest_first: bool = False,
    ) -> AsyncGenerator[Sequence[PastRecord], None]:
        until = asyncio.get_running_loop().time() + READ_S
        files = await self._find_files(dates, below_number)
        remaining = max_records
        for file in files if oldest_first else reversed(files):
            skip = 0 if remaining is None else max(0, file.rows - remaining)
            async with aclosing(self._read_rows(file, skip, until)) as rows:
                async for records in rows:
                    yield [record for record in records if record.number < below_number]
            if remaining is not None:
                remaining -= file.rows - skip
                if remaining <= 0:
                    return

    async def find_record(self, id: bytes, dates: PastDates, *, below_number: int) -> PastRecord | None:
        until = asyncio.get_running_loop().time() + READ_S
        for file in await self._find_files(dates, below_number):
            async with self._temporary_copy(file, until) as (format, path):
                record = await asyncio.to_thread(_find_record, format, path, id.hex())
            if record is not None and record.number < below_number:
                return record
        return None

    async def _find_files(self, dates: PastDates, below_number: int) -> list[LakeFile]:
        since = datetime.fromisoformat(dates.first).replace(tzinfo=UTC).timestamp() - AHEAD_S
        after, files = await self._find_record_number_landed_before(since, below_number), list[LakeFile]()
        while page := await self.landings.lake_deliveries_after(
            self.route, after_number=after, max_deliveries=_PAGE
        ):
            files += await asyncio.to_thread(_files_in_dates, page, dates, below_number)
            after = page[-1].first
            if after >= below_number:
                break
        return files

    async def _find_record_number_landed_before(self, moment: float, below_number: int) -> int:
        low, high = 0, below_number
        while low < high:
            middle = (low + high + 1) // 2
            landing = await self.landings.lake_delivery_before(self.route, middle)
            if landing is None or _landing_time(landing) < moment:
                low = middle
            else:
                high = min(landing.first, middle - 1)
        landing = await self.landings.lake_delivery_before(self.route, low)
        return 0 if landing is None else landing.first

    async def _read_rows(
        self, file: LakeFile, skip: int, deadline: float
    ) -> AsyncGenerator[list[PastRecord], None]:
        async with self._temporary_copy(file, deadline) as (format, path):
            rows = format.read_rows(path, READ, skip=skip)
            while values := await asyncio.to_thread(_build_next_past_records, rows):
                yield [value for value in values if value is not None]
                if asyncio.get_running_loop().time() > deadline:
                    raise TimeoutError

    @asynccontextmanager
    async def _temporary_copy(
        self, file: LakeFile, deadline: float
    ) -> AsyncIterator[tuple[FileFormat, Path]]:
        """Copy a file for the block. Errors become SpoolUnavailable, including errors of the block itself."""
        format = find_file_format(file.key)
        if format is None:
            raise SpoolUnavailable(f"the format of {file.key} is unknown")
        directory = await asyncio.to_thread(_new_directory, self.directory)
        try:
            path = directory / "file"
            async with asyncio.timeout_at(deadline):
                await self.store.fetch(file.key, path)
            yield format, path
        except TimeoutError as error:
            message = f"reading the data lake took more than {READ_S:g} s: choose fewer days"
            raise SpoolUnavailable(message) from error
        except (SendError, ValueError, OSError) as error:
            raise SpoolUnavailable(f"cannot read the data lake: {error}") from error
        finally:
            with suppress(OSError):
                await asyncio.to_thread(shutil.rmtree, directory)


def _landing_time(landing: LakeDelivery) -> float:
    return datetime.fromisoformat(manifest.decode_manifest(landing.body).landed_at).timestamp()


def _new_directory(parent: Path) -> Path:
    make_directory(parent, 0o700)
    for old in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if time.time() - old.stat().st_mtime > 2 * READ_S:
                shutil.rmtree(old)
    return Path(tempfile.mkdtemp(dir=parent, prefix=_PREFIX))


def _build_next_past_records(rows: Iterator[tuple[object, ...]]) -> list[PastRecord | None]:
    return [build_past_record(values) for values in islice(rows, STEP)]


def _find_record(format: FileFormat, path: Path, id: str) -> PastRecord | None:
    ids = format.read_rows(path, ("id",))
    position = next((position for position, (known_id,) in enumerate(ids) if known_id == id), None)
    return None if position is None else build_past_record(next(format.read_rows(path, READ, skip=position)))


def _files_in_dates(page: Sequence[LakeDelivery], dates: PastDates, below_number: int) -> list[LakeFile]:
    manifests = [manifest.decode_manifest(landing.body) for landing in page if landing.first < below_number]
    return [
        file
        for lake_manifest in manifests
        for file in lake_manifest.files
        if dates.first <= file.date <= dates.last
    ]

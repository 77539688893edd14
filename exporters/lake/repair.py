"""
Restores missing files of a data lake under their names, from records that the log still has.

Nothing is overwritten. If a file has other bytes, it stays, and an operator must remove it. If a restored
file has other bytes than before, because a library changed, an additional manifest names the new bytes.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from exporters.lake import manifest, names
from exporters.lake.columns import LakeTable
from exporters.lake.exporter import write_entries_to_files
from exporters.lake.file_checks import find_file_format
from exporters.lake.formats import new_delivery_files
from exporters.lake.manifest import LakeFile, LakeManifest
from exporters.lake.partitions import DeliveryFiles
from exporters.lake.stores import LakeStore
from exporters.lake.tables import TABLES
from spool.clock import Clock
from spool.deliveries.protocols import LakeDeliveries, LakeRepairs
from spool.disks import make_directory
from spool.log.protocols import ReadableLog
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY, utc_iso

_PAGE: Final = 500
_READ_AT_ONCE: Final = 4096


@dataclass(frozen=True, kw_only=True)
class LakeRepair:
    store: LakeStore
    landings: LakeDeliveries
    log: ReadableLog
    clock: Clock
    destination: str
    directory: Path
    topic: str = AI_TELEMETRY
    leave_out: Collection[str] = ()

    @property
    def _table(self) -> LakeTable:
        return TABLES[self.topic]

    async def repair_files(self, *, dry_run: bool) -> LakeRepairs:
        uploaded = list[str]()
        lost = dict[str, str]()
        listed = {
            stored_object.name
            async for stored_object in self.store.list_objects(names.data_prefix(self._table.name))
        }
        after, route = 0, f"{self.destination}/{self.topic}"
        while page := await self.landings.lake_deliveries_after(
            route, after_number=after, max_deliveries=_PAGE
        ):
            for landing in page:
                contents = await asyncio.to_thread(manifest.decode_manifest, landing.body)
                missing = [
                    file
                    for file in contents.files
                    if file.key not in listed and not await self._is_stored(file)
                ]
                if missing:
                    await self._repair_delivery(
                        contents, landing.body, missing, uploaded, lost, dry_run=dry_run
                    )
            after = page[-1].first
        return LakeRepairs(put=uploaded, lost=lost)

    async def _is_stored(self, file: LakeFile) -> bool:
        """
        Return whether a file exists, although the list lacks it: it may have landed after the list was made.
        """
        return await self.store.object_size(file.key) is not None

    async def _repair_delivery(
        self,
        lake_manifest: LakeManifest,
        body: bytes,
        missing: list[LakeFile],
        restored_keys: list[str],
        lost: dict[str, str],
        *,
        dry_run: bool,
    ) -> None:
        await asyncio.to_thread(make_directory, self.directory, 0o700)
        directory = Path(await asyncio.to_thread(tempfile.mkdtemp, dir=self.directory, prefix="repair-"))
        try:
            rebuilt, files = await self._rebuild_files(lake_manifest, directory)
            if rebuilt.digest != lake_manifest.digest:
                reason = "the log no longer has its records"
                lost.update({file.key: f"{reason}: {file.rows} records, ${file.spend}" for file in missing})
                return
            restored_keys += [file.key for file in missing]
            if dry_run:
                return
            new = {file.key: file for file in rebuilt.files}
            for file in missing:
                await self.store.create_object(file.key, files.path_of(file))
            if any(new[file.key] != file for file in missing):
                await self._store_repair_manifest(
                    lake_manifest, body, {file.key: new[file.key] for file in missing}, directory
                )
        finally:
            with suppress(OSError):
                await asyncio.to_thread(shutil.rmtree, directory)

    async def _rebuild_files(
        self, lake_manifest: LakeManifest, directory: Path
    ) -> tuple[LakeManifest, DeliveryFiles]:
        format = find_file_format(lake_manifest.files[0].key)
        if format is None:
            raise ValueError(f"the format of {lake_manifest.files[0].key} is unknown")
        series = names.DeliveryRange(
            self.destination, lake_manifest.edition, lake_manifest.first, lake_manifest.last
        )
        files = new_delivery_files(
            directory,
            series,
            route=lake_manifest.route,
            format=format,
            leave_out=tuple(self.leave_out),
            table=self._table,
        )
        return await write_entries_to_files(
            files, self._read_entries(lake_manifest.first, lake_manifest.last)
        ), files

    async def _read_entries(self, first_number: int, last_number: int) -> AsyncIterator[LogEntry]:
        for start in range(first_number, last_number + 1, _READ_AT_ONCE):
            for entry in await self.log.read(self.topic, start, min(last_number, start + _READ_AT_ONCE - 1)):
                yield entry

    async def _store_repair_manifest(
        self, lake_manifest: LakeManifest, body: bytes, new: Mapping[str, LakeFile], directory: Path
    ) -> None:
        created, repair = False, 0
        while not created:
            repair += 1
            name = names.manifest_name(
                lake_manifest.edition,
                lake_manifest.first,
                lake_manifest.last,
                repair=repair,
                table=self._table.name,
            )
            if await self.store.object_size(name) is not None:
                lake_manifest = await self._read_manifest(name, directory)
                continue
            repaired = replace(
                lake_manifest,
                files=[new.get(file.key, file) for file in lake_manifest.files],
                landed_at=utc_iso(self.clock.now()),
                before=manifest.sha256_hex(body),
            )
            created = await self.store.create_object(name, manifest.encode_manifest(repaired))

    async def _read_manifest(self, name: str, directory: Path) -> LakeManifest:
        local_copy = directory / "manifest"
        await self.store.fetch(name, local_copy)
        return await asyncio.to_thread(lambda: manifest.decode_manifest(local_copy.read_bytes()))

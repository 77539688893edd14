"""
Writes deliveries into a data lake, each exactly once.

A delivery's range of numbers is stored before any record is read, and in all file names. So a repeat, after a
crash or elsewhere, finds its files or writes the same. A file with other rows pauses the route: nothing is
overwritten.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from importlib.metadata import version
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from exporters.batch import TURN
from exporters.errors import Misconfigured, Retryable
from exporters.exporter import StoreRouteMark, WholeDeliveryExporter, store_or_compare_delivery_mark
from exporters.lake import manifest, names
from exporters.lake.columns import LakeTable
from exporters.lake.formats import new_delivery_files
from exporters.lake.partitions import DeliveryFiles, FileFormat
from exporters.lake.stores import LakeStore
from exporters.lake.tables import table_for_route
from exporters.probe import OK, Probe
from spool.clock import Clock
from spool.deliveries.protocols import LakeDeliveries, store_last_lake_write_at
from spool.deliveries.rules import LAKE_MARK
from spool.deliveries.values import Delivery, LakeDelivery, RouteState, Settlement
from spool.disks import make_directory
from spool.errors import SpoolError
from spool.log.values import LogAccounting, LogEntry
from spool.record import utc_iso
from spool.statements import StatementStore

FOOTER_BYTES: Final = 1 << 20  # bytes to read from a file's end; there are about 5 KiB per row group
OWNER_NAME: Final = "_tollhouse.json"
_TRY_NAME: Final = "_check.json"  # name of the test object of an installation without data, which has no id
# Seconds between two stores of the newest landing time; deliveries may land several times a second.
NOTED_EVERY_S: Final = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LakeContext:
    """
    The objects that a lake exporter uses. `directory`: for files before they are stored. Without `verdicts`,
    nothing is checked.
    """

    directory: Path
    landings: LakeDeliveries
    installation: str
    books: Callable[[], Awaitable[LogAccounting]] | None = None
    routes: Callable[[], Awaitable[Sequence[RouteState]]] | None = None
    verdicts: StatementStore | None = None


class LakeExporter:
    in_flight = 1  # one, because a manifest has the hash of the previous one

    def __init__(
        self,
        store: LakeStore,
        context: LakeContext,
        *,
        destination: str,
        format: FileFormat,
        table: LakeTable,
        clock: Clock,
        max_records: int,
        leave_out: Sequence[str] = (),
    ) -> None:
        self.max_records = max_records
        self._store = store
        self._context = context
        self._destination = destination
        self._format = format
        self._table = table
        self._clock = clock
        self._leave_out = leave_out
        # record numbers of the deliveries that the store had when this process first wrote: edition, first, last
        self._foreign_ranges: list[tuple[str, int, int]] | None = None

    async def write_delivery(
        self, delivery: Delivery, entries: AsyncIterator[LogEntry], store_delivery_mark: StoreRouteMark
    ) -> Settlement:
        """
        Write the files and store their digest as the mark that recognizes a repeat. Then copy the files to
        the store, the manifest last.
        """
        await asyncio.to_thread(make_directory, self._context.directory, 0o700)
        editions = await self._context.landings.find_or_begin_log_editions(delivery.route, delivery.first)
        series = names.DeliveryRange(self._destination, editions[0], delivery.first, delivery.last)
        await self._check_no_foreign_files(delivery, editions)
        directory = self._context.directory / delivery.route.replace("/", "_")
        await asyncio.to_thread(_recreate_directory, directory)
        try:
            files = new_delivery_files(
                directory,
                series,
                route=delivery.route,
                format=self._format,
                leave_out=self._leave_out,
                table=self._table,
            )
            contents = await write_entries_to_files(files, entries)
            mark = f"{LAKE_MARK}writer={contents.writer};schema={contents.schema};digest={contents.digest}"
            await store_or_compare_delivery_mark(delivery, mark, store_delivery_mark)
            landed = [
                await store_file(
                    self._store, self._format, file, files.path_of(file), contents.digest, directory
                )
                for file in contents.files
            ]
            contents = replace(contents, files=landed)
            body = await store_manifest(self._store, self._context.landings, self._clock, contents, directory)
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        landing = LakeDelivery(
            route=delivery.route, first=series.first, last=series.last, edition=series.edition, body=body
        )
        return Settlement(
            delivered=contents.numbers.rows, damaged=len(contents.numbers.damaged), landing=landing
        )

    async def close(self) -> None:
        """Do nothing: no connection stays open."""

    async def _belongs_to_route(self, numbers: tuple[str, int, int], route: str) -> bool:
        """
        Return whether a manifest belongs to this route, because its delivery landed before the process ended and was
        not settled.
        """
        with tempfile.TemporaryDirectory(dir=self._context.directory) as directory:
            local_copy = Path(directory) / "there.json"
            await self._store.fetch(names.manifest_name(*numbers, table=self._table.name), local_copy)
            try:
                return manifest.decode_manifest(await asyncio.to_thread(local_copy.read_bytes)).route == route
            except ValueError:
                return False

    async def _check_no_foreign_files(self, delivery: Delivery, log_editions: Sequence[str]) -> None:
        """
        Raise Misconfigured if the prefix is another installation's, or has files with the delivery's numbers
        under other names: from the original of this copy, or an earlier route.
        """
        if self._foreign_ranges is None:
            await claim_prefix(self._store, self._context.installation)
            self._foreign_ranges = _listed_number_ranges(
                [
                    stored_object.name
                    async for stored_object in self._store.list_objects(
                        names.manifests_prefix(self._table.name)
                    )
                ]
            )
        own = (log_editions[0], delivery.first, delivery.last)
        for foreign_range in self._foreign_ranges:
            edition, first, last = foreign_range
            if edition not in log_editions or first > delivery.last or last < delivery.first:
                continue
            if foreign_range != own or not await self._belongs_to_route(foreign_range, delivery.route):
                raise Misconfigured(
                    f"the data lake already has the numbers {first} to {last} of edition {edition}, "
                    "from before this data was restored or this destination was created: stop the "
                    "server and run tollhouse lake adopt, or set another prefix (docs/lake/maintenance.md)",
                    answered=False,
                )


async def store_file(
    store: LakeStore, format: FileFormat, file: manifest.LakeFile, path: Path, digest: str, directory: Path
) -> manifest.LakeFile:
    """Store a file, unless a file with equal rows is stored. Return its description for the manifest."""
    created = await store.create_object(file.key, path)
    size = await store.object_size(file.key)
    if size is None:
        raise Retryable(f"{file.key} does not exist after it was written", answered=False)
    if created:
        if size != file.bytes:
            raise Misconfigured(f"{file.key} has {size} bytes instead of {file.bytes}", answered=False)
        return file
    end = await store.read_end(file.key, size, FOOTER_BYTES)
    if await asyncio.to_thread(_row_digest_in_footer, format, end) != digest:
        raise _foreign_object_error(file.key)
    local_copy = directory / "there"
    await store.fetch(file.key, local_copy)
    return replace(file, bytes=size, sha256=await asyncio.to_thread(_file_sha256, local_copy))


async def store_manifest(
    store: LakeStore,
    landings: LakeDeliveries,
    clock: Clock,
    lake_manifest: manifest.LakeManifest,
    directory: Path,
) -> bytes:
    """Store a manifest that has the hash of the route's previous one. Return the stored bytes."""
    before = await landings.lake_delivery_before(lake_manifest.route, lake_manifest.first)
    body = manifest.encode_manifest(
        replace(
            lake_manifest,
            landed_at=utc_iso(clock.now()),
            before=None if before is None else manifest.sha256_hex(before.body),
        )
    )
    name = names.manifest_name(
        lake_manifest.edition,
        lake_manifest.first,
        lake_manifest.last,
        table=table_for_route(lake_manifest.route).name,
    )
    if await store.create_object(name, body):
        return body
    local_copy = directory / "there.json"
    await store.fetch(name, local_copy)
    stored = await asyncio.to_thread(local_copy.read_bytes)
    try:
        is_own = manifest.decode_manifest(stored).digest == lake_manifest.digest
    except ValueError:
        is_own = False
    if not is_own:
        raise _foreign_object_error(name)
    return stored


async def write_entries_to_files(
    files: DeliveryFiles, entries: AsyncIterator[LogEntry]
) -> manifest.LakeManifest:
    """Write the entries to files, in short steps on a thread. Return their manifest."""
    async for entry in entries:
        for part in entry.split(TURN):
            files.add_entry(part)
            await asyncio.sleep(0)
            if files.has_full_part:
                await asyncio.to_thread(files.write_largest_part)
    return await asyncio.to_thread(files.finish_and_describe)


def _listed_number_ranges(listed: Sequence[str]) -> list[tuple[str, int, int]]:
    adopted = {
        adoption[::2]: adoption[1]
        for adoption in map(names.parse_adoption_range, listed)
        if adoption is not None
    }
    ranges = []
    for edition, first, last in filter(None, map(names.parse_record_range, listed)):
        last = adopted.get((edition, last), last + 1) - 1
        if first <= last:
            ranges.append((edition, first, last))
    return ranges


def _recreate_directory(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    make_directory(directory, 0o700)


def _row_digest_in_footer(format: FileFormat, end: bytes) -> str | None:
    try:
        return format.read_footer(end).get("tollhouse.digest")
    except ValueError:
        return None


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _foreign_object_error(name: str) -> Misconfigured:
    return Misconfigured(
        f"{name} contains other records: another installation, or a copy of this one, writes to this prefix",
        answered=False,
    )


class _LakeOwner(msgspec.Struct, frozen=True, kw_only=True):
    """
    A small object that names the installation below a prefix.

    The first installation writes it, and it never changes. A copy from a backup has the original's id. Tollhouse up to
    1.0 wrote no such object, so any installation may use such a prefix.
    """

    lake: int = 1
    installation: str | None = None
    release: str | None = None


_owner_decoder: Final = msgspec.json.Decoder(_LakeOwner)


async def claim_prefix(store: LakeStore, installation: str) -> None:
    """Claim a prefix for this installation. Raises Misconfigured if it belongs to another."""
    own_owner = _LakeOwner(installation=installation, release=version("tollhouse"))
    if await store.create_object(OWNER_NAME, _encode_owner(own_owner)):
        return
    owner = await _read_owner(store)
    if owner not in (installation, None):
        raise Misconfigured(
            f"the prefix belongs to another installation ({owner}, according to {OWNER_NAME}): set "
            "another prefix for this destination (docs/lake/index.md)",
            answered=False,
        )


async def probe_store(store: LakeStore, installation: str | None) -> Probe:
    if installation is None:
        name, owner = _TRY_NAME, await _read_owner(store)
        await store.create_object(name, _encode_owner(_LakeOwner()))
    else:
        name, owner = OWNER_NAME, None
        await claim_prefix(store, installation)
    body = await _read_object(store, name)
    if body is None:
        raise Retryable(f"{name} does not exist after it was written", answered=False)
    refuses = await store.probe_overwrite_refusal(name, body)
    async for _ in store.list_objects("_manifest/"):
        break
    messages = [f"{name} was written there and remains"]
    if not refuses:
        messages.append("the store ignores write conditions, so files are written without them")
    if owner is not None:
        messages.append(
            f"the prefix belongs to the installation {owner}, and this installation has no data yet"
        )
    return Probe(status=OK, words="; ".join(messages))


async def _read_owner(store: LakeStore) -> str | None:
    body = await _read_object(store, OWNER_NAME)
    if body is None:
        return None
    try:
        return _owner_decoder.decode(body).installation
    except msgspec.DecodeError as error:
        raise Misconfigured(f"{OWNER_NAME} was not written by Tollhouse: {error}", answered=False) from error


async def _read_object(store: LakeStore, name: str) -> bytes | None:
    size = await store.object_size(name)
    return None if size is None else await store.read_end(name, size, size)


def _encode_owner(owner: _LakeOwner) -> bytes:
    return msgspec.json.encode(owner) + b"\n"


class LandingRecorder:
    """
    An exporter for topics and tables, which have no manifests, that also records when deliveries landed.
    """

    def __init__(
        self, exporter: WholeDeliveryExporter, verdicts: StatementStore, route: str, clock: Clock
    ) -> None:
        self.in_flight, self.max_records = exporter.in_flight, exporter.max_records
        self._exporter = exporter
        self._verdicts = verdicts
        self._route = route
        self._clock = clock
        self._noted_at: float | None = None  # monotonic time of the last stored note

    async def write_delivery(
        self, delivery: Delivery, entries: AsyncIterator[LogEntry], store_delivery_mark: StoreRouteMark
    ) -> Settlement:
        settlement = await self._exporter.write_delivery(delivery, entries, store_delivery_mark)
        now = self._clock.monotonic()
        if self._noted_at is None or now >= self._noted_at + NOTED_EVERY_S:
            self._noted_at = now
            await self._store_landing_time()
        return settlement

    async def close(self) -> None:
        await self._exporter.close()

    async def _store_landing_time(self) -> None:
        try:
            await store_last_lake_write_at(self._verdicts, self._route, self._clock.now())
        except SpoolError as error:  # the lake has the delivery; only the time could not be stored
            extra = {"action": "landing_not_noted", "route": self._route}
            _log.warning("cannot store when %s last landed: %s", self._route, error, extra=extra)

"""
Brings the deliveries of a route into a lake, each once.

A delivery is a range of numbers that is stored before anything is read, and every name is made of it. So whoever
sends it again, after a crash or in another process, finds what is there, or writes the same rows under the same
names. What is there and holds other rows parks the route: nothing is ever overwritten.
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
from exporters.exporter import KeepMark, LandingExporter, keep_or_compare
from exporters.lake import manifest, names
from exporters.lake.columns import LakeTable
from exporters.lake.formats import files_of
from exporters.lake.partitions import DeliveryFiles, FileFormat
from exporters.lake.stores import Store
from exporters.lake.tables import table_of
from exporters.probe import OK, Probe
from spool.clock import Clock
from spool.deliveries.protocols import Landings, keep_landed
from spool.deliveries.rules import LAKE_MARK
from spool.deliveries.values import Delivery, Landing, RouteState, Settlement
from spool.disks import make_directory
from spool.errors import SpoolError
from spool.log.values import Books, Entry
from spool.record import moment
from spool.statements import Statements

FOOTER_BYTES: Final = 1 << 20  # a footer has some 5 KiB for each group of rows
OWNER_NAME: Final = "_tollhouse.json"
_TRY_NAME: Final = "_check.json"  # where the installation has no data yet, and so no identity
NOTED_EVERY_S: Final = 60.0  # at most once in this time: deliveries may land several times a second

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LakeContext:
    """
    What the routes to a lake need beside their deliveries; files are made below `directory`. Where `verdicts` is
    None, nobody looks at lakes. `installation` is the public id of who writes.
    """

    directory: Path
    landings: Landings
    installation: str
    books: Callable[[], Awaitable[Books]] | None = None
    routes: Callable[[], Awaitable[Sequence[RouteState]]] | None = None
    verdicts: Statements | None = None


class LakeExporter:
    in_flight = 1  # manifests are a chain

    def __init__(
        self,
        store: Store,
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
        self._others: list[tuple[str, int, int]] | None = None  # what a lake had when this process began

    async def land(
        self, delivery: Delivery, entries: AsyncIterator[Entry], keep_mark: KeepMark
    ) -> Settlement:
        """Write the files of a delivery, keep its mark, then bring them into the lake, and the manifest last."""
        await asyncio.to_thread(make_directory, self._context.directory, 0o700)
        editions = await self._context.landings.editions(delivery.route, delivery.first)
        series = names.Series(self._destination, editions[0], delivery.first, delivery.last)
        await self._check_others(delivery, editions)
        directory = self._context.directory / delivery.route.replace("/", "_")
        await asyncio.to_thread(_begin, directory)
        try:
            files = files_of(
                directory,
                series,
                route=delivery.route,
                format=self._format,
                leave_out=self._leave_out,
                table=self._table,
            )
            made = await made_of(files, entries)
            mark = f"{LAKE_MARK}writer={made.writer};schema={made.schema};digest={made.digest}"
            await keep_or_compare(delivery, mark, keep_mark)
            landed = [
                await bring(self._store, self._format, file, files.path_of(file), made.digest, directory)
                for file in made.files
            ]
            made = replace(made, files=landed)
            body = await bring_manifest(self._store, self._context.landings, self._clock, made, directory)
        finally:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
        landing = Landing(
            route=delivery.route, first=series.first, last=series.last, edition=series.edition, body=body
        )
        return Settlement(delivered=made.numbers.rows, damaged=len(made.numbers.damaged), landing=landing)

    async def close(self) -> None:
        """Nothing stays open between two requests."""

    async def _is_ours(self, other: tuple[str, int, int], route: str) -> bool:
        """True if a manifest is of this route: it was not settled before the process ended."""
        with tempfile.TemporaryDirectory(dir=self._context.directory) as directory:
            there = Path(directory) / "there.json"
            await self._store.fetch(names.manifest_name(*other, table=self._table.name), there)
            try:
                return manifest.read(await asyncio.to_thread(there.read_bytes)).route == route
            except ValueError:
                return False

    async def _check_others(self, delivery: Delivery, editions: Sequence[str]) -> None:
        """
        Park where the prefix belongs to another installation, or the lake has numbers of the delivery already,
        under other names: those of the installation that this one is a copy of, or of a route of before.
        """
        if self._others is None:
            await claim(self._store, self._context.installation)
            self._others = _not_adopted(
                [each.name async for each in self._store.names(names.manifests_of(self._table.name))]
            )
        own = (editions[0], delivery.first, delivery.last)
        for other in self._others:
            edition, first, last = other
            if edition not in editions or first > delivery.last or last < delivery.first:
                continue
            if other != own or not await self._is_ours(other, delivery.route):
                raise Misconfigured(
                    f"the lake has the numbers {first} to {last} of edition {edition} already, from before this "
                    "data was restored or this destination was made: stop the server and run tollhouse lake adopt, "
                    "or give it another prefix (docs/lake.md)",
                    answered=False,
                )


async def bring(
    store: Store, format: FileFormat, file: manifest.LakeFile, path: Path, digest: str, directory: Path
) -> manifest.LakeFile:
    """Return the file as it is in the lake: one that was there first stays, with its own bytes."""
    created = await store.create(file.key, path)
    size = await store.size(file.key)
    if size is None:
        raise Retryable(f"{file.key} is not there after it was written", answered=False)
    if created:
        if size != file.bytes:
            raise Misconfigured(f"{file.key} has {size} bytes in place of {file.bytes}", answered=False)
        return file
    end = await store.end(file.key, size, FOOTER_BYTES)
    if await asyncio.to_thread(_digest_of, format, end) != digest:
        raise _foreign(file.key)
    there = directory / "there"
    await store.fetch(file.key, there)
    return replace(file, bytes=size, sha256=await asyncio.to_thread(_sum, there))


async def bring_manifest(
    store: Store, landings: Landings, clock: Clock, made: manifest.LakeManifest, directory: Path
) -> bytes:
    """Return the manifest of a delivery as it is in the lake, behind the one before of its route."""
    before = await landings.before(made.route, made.first)
    body = manifest.written(
        replace(
            made,
            landed_at=moment(clock.now()),
            before=None if before is None else manifest.hash_of(before.body),
        )
    )
    name = names.manifest_name(made.edition, made.first, made.last, table=table_of(made.route).name)
    if await store.create(name, body):
        return body
    there = directory / "there.json"
    await store.fetch(name, there)
    found = await asyncio.to_thread(there.read_bytes)
    try:
        is_own = manifest.read(found).digest == made.digest
    except ValueError:
        is_own = False
    if not is_own:
        raise _foreign(name)
    return found


async def made_of(files: DeliveryFiles, entries: AsyncIterator[Entry]) -> manifest.LakeManifest:
    """Take the entries in short turns; what a library does of it runs on a thread."""
    async for entry in entries:
        for part in entry.parts(TURN):
            files.add(part)
            await asyncio.sleep(0)
            if files.has_part:
                await asyncio.to_thread(files.write_part)
    return await asyncio.to_thread(files.close)


def _not_adopted(listed: Sequence[str]) -> list[tuple[str, int, int]]:
    """The numbers of manifests, without those of which an adoption says what became of them."""
    adopted = {found[::2]: found[1] for found in map(names.adopted_in, listed) if found is not None}
    others = []
    for edition, first, last in filter(None, map(names.range_of, listed)):
        last = adopted.get((edition, last), last + 1) - 1
        if first <= last:
            others.append((edition, first, last))
    return others


def _begin(directory: Path) -> None:
    """Begin with an empty directory, whatever a process that was killed left in it."""
    shutil.rmtree(directory, ignore_errors=True)
    make_directory(directory, 0o700)


def _digest_of(format: FileFormat, end: bytes) -> str | None:
    """The digest in the footer at the end of a file; None if it has none."""
    try:
        return format.read_footer(end).get("tollhouse.digest")
    except ValueError:
        return None


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _foreign(name: str) -> Misconfigured:
    return Misconfigured(
        f"{name} holds other records: another installation, or a copy of this one, writes here",
        answered=False,
    )


class _LakeOwner(msgspec.Struct, frozen=True, kw_only=True):
    """
    Whose lake it is: one small object says which installation writes below a prefix.

    The first installation makes it, and nobody changes it. A copy that is restored from a backup has the identity of
    its original. Tollhouse up to 1.0 named no installation: the prefix is everybody's then.
    """

    lake: int = 1
    installation: str | None = None
    release: str | None = None


_owner_decoder: Final = msgspec.json.Decoder(_LakeOwner)


async def claim(store: Store, installation: str) -> None:
    """Make the prefix that of an installation. Misconfigured if it belongs to another one."""
    ours = _LakeOwner(installation=installation, release=version("tollhouse"))
    if await store.create(OWNER_NAME, _owner_bytes(ours)):
        return
    owner = await _owner_of(store)
    if owner not in (installation, None):
        raise Misconfigured(
            f"the prefix belongs to another installation ({owner}, as {OWNER_NAME} says): give this destination "
            "another one (docs/lake.md)",
            answered=False,
        )


async def tried(store: Store, installation: str | None) -> Probe:
    """Write one small object, which stays, read it, write it once more and list what is there."""
    if installation is None:
        name, owner = _TRY_NAME, await _owner_of(store)
        await store.create(name, _owner_bytes(_LakeOwner()))
    else:
        name, owner = OWNER_NAME, None
        await claim(store, installation)
    body = await _read_whole(store, name)
    if body is None:
        raise Retryable(f"{name} is not there after it was written", answered=False)
    refuses = await store.refuses_again(name, body)
    async for _ in store.names("_manifest/"):
        break
    words = [f"{name} is written there, and stays"]
    if not refuses:
        words.append("the store ignores conditions: files are written without")
    if owner is not None:
        words.append(f"the prefix belongs to the installation {owner}, and there is no data of one here yet")
    return Probe(status=OK, words="; ".join(words))


async def _owner_of(store: Store) -> str | None:
    """None if no installation is named."""
    body = await _read_whole(store, OWNER_NAME)
    if body is None:
        return None
    try:
        return _owner_decoder.decode(body).installation
    except msgspec.DecodeError as error:
        raise Misconfigured(f"{OWNER_NAME} is not of Tollhouse: {error}", answered=False) from error


async def _read_whole(store: Store, name: str) -> bytes | None:
    """None if there is no such object."""
    size = await store.size(name)
    return None if size is None else await store.end(name, size, size)


def _owner_bytes(owner: _LakeOwner) -> bytes:
    return msgspec.json.encode(owner) + b"\n"


class NotedLandings:
    """
    An exporter that lands as another one does, and writes down when: for topics and tables, which keep no manifests
    that would say it.
    """

    def __init__(self, exporter: LandingExporter, verdicts: Statements, route: str, clock: Clock) -> None:
        self.in_flight, self.max_records = exporter.in_flight, exporter.max_records
        self._exporter = exporter
        self._verdicts = verdicts
        self._route = route
        self._clock = clock
        self._noted_at: float | None = None  # by the monotonic clock

    async def land(
        self, delivery: Delivery, entries: AsyncIterator[Entry], keep_mark: KeepMark
    ) -> Settlement:
        settlement = await self._exporter.land(delivery, entries, keep_mark)
        now = self._clock.monotonic()
        if self._noted_at is None or now >= self._noted_at + NOTED_EVERY_S:
            self._noted_at = now
            await self._note()
        return settlement

    async def close(self) -> None:
        await self._exporter.close()

    async def _note(self) -> None:
        try:
            await keep_landed(self._verdicts, self._route, self._clock.now())
        except SpoolError as error:  # it landed all the same
            extra = {"action": "landing_not_noted", "route": self._route}
            _log.warning("when %s landed was not written down: %s", self._route, error, extra=extra)

"""
Looks at a lake and says what differs from its manifests, and those from the books; it changes nothing.

Listing: each file is there with its size, nothing else is, and the ranges of numbers leave no hole. Footers: each
file says by itself that it holds the rows of its manifest. Data: every byte is read, and every sum is made again.
The files are asked for by one list, whatever their number.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from exporters.lake import manifest, names
from exporters.lake.columns import TABLE
from exporters.lake.exporter import FOOTER_BYTES
from exporters.lake.file_checks import data_differs, footer_differs, format_of
from exporters.lake.manifest import Adoption, LakeFile, LakeManifest
from exporters.lake.partitions import FileFormat
from exporters.lake.stores import Store
from exporters.lake.tables import LakeDays
from spool.ledger import money

LISTING, FOOTERS, DATA = "listing", "footers", "data"
# The names that a difference may have.
MISSING, SIZE, CONTENT, FOREIGN, HOLE, OVERLAP = "missing", "size", "content", "foreign", "hole", "overlap"
EXPIRED: Final = "expired_by_rule"  # missing, as a rule of the store said
EDITION: Final = "edition"  # of deliveries of another life of the log, or of another log
_TOGETHER: Final = 16  # manifests, and ends of files, that are asked for at once


class LakeDifference(NamedTuple):
    kind: str
    name: str  # of the object
    words: str


class Dates(NamedTuple):
    """Dates of files, the first and the last of them; "" is no limit."""

    first: str = ""
    last: str = ""

    def have(self, date: str | None) -> bool:
        """True for each date of them, and for a file without a date if there is no limit."""
        if self == ALL_DATES:
            return True
        return date is not None and self.first <= date and (not self.last or date <= self.last)


ALL_DATES: Final = Dates()


@dataclass(frozen=True, kw_only=True)
class VerifiedLake:
    """
    `spend` is decimal text with all digits, `imported` how many of the rows are of no delivery. `records` are as many
    as the rows, where these are no charges of FOCUS. Of some dates: their
    files, and the deliveries that they are of. `left` are in no books: what an adoption found and the log did not get.
    """

    deliveries: int
    files: int
    read: int = 0  # of them, whole
    bytes: int
    rows: int
    records: int
    imported: int = 0
    left: int = 0
    first: int | None = None  # number of any delivery
    damaged: int
    calls: int
    spend: str
    editions: Sequence[str] = ()  # of all deliveries
    differences: Sequence[LakeDifference]


class ReadManifest(NamedTuple):
    name: str
    hash: str
    body: LakeManifest


Found = ReadManifest | Adoption | LakeDifference


async def read_manifests(
    store: Store, destination: str, scratch: Path, *, table: str = TABLE
) -> AsyncIterator[Found]:
    """
    Manifests of a destination in the order of their names, and those that are none; those of repairs are before
    the one of their delivery.
    """
    listed = [each.name async for each in store.names(names.manifests_of(table))]
    for start in range(0, len(listed), _TOGETHER):
        group = listed[start : start + _TOGETHER]
        read = [read_manifest(store, name, scratch / f"manifest-{n}") for n, name in enumerate(group)]
        for found in await asyncio.gather(*read):
            if isinstance(found, LakeDifference) or _route_of(found).partition("/")[0] == destination:
                yield found


def _route_of(found: ReadManifest | Adoption) -> str:
    return found.route if isinstance(found, Adoption) else found.body.route


async def read_manifest(store: Store, name: str, there: Path) -> Found:
    await store.fetch(name, there)
    body = await asyncio.to_thread(there.read_bytes)
    try:
        if names.adopted_in(name):
            return manifest.read_adoption(body)
        made = manifest.read(body)
    except ValueError as error:
        return LakeDifference(CONTENT, name, str(error))
    if not _is_named(name, made):
        return LakeDifference(CONTENT, name, "its name says other numbers than it does")
    return ReadManifest(name, manifest.hash_of(body), made)


def _is_named(name: str, made: LakeManifest) -> bool:
    """True if a manifest has the name of what it says."""
    if made.imported is not None:
        return names.import_in(name) == (made.imported.sha256, made.imported.part)
    return names.range_of(name) == (made.edition, made.first, made.last)


async def verify(
    store: Store,
    manifests: AsyncIterator[Found],
    *,
    level: str,
    scratch: Path,
    dates: Dates = ALL_DATES,
    table: str = TABLE,
    is_sampled: Callable[[], bool] | None = None,
    days: LakeDays | None = None,
) -> VerifiedLake:
    """
    Compare the files of a lake with its manifests; of some dates, those alone. Of DATA `is_sampled` says for
    each file whether every byte of it is read, or its end alone. What is read of them is added to `days`. The
    numbers and the chain are those of all manifests. A manifest of a repair comes before the one of its
    delivery. Raises what the store raises.
    """
    after = f"{names.data_of(table)}date={dates.first}" if dates.first else ""
    listed = store.names(names.data_of(table), after=after)
    there = {each.name: each.size async for each in listed if dates.have(names.date_in(each.name))}
    links: list[_Link] = []
    differences: list[LakeDifference] = []
    sums = _Sums()
    waiting: list[_ListedFile] = []
    look = _Look(store, level, scratch, is_sampled, days)
    repairs: dict[str, ReadManifest] = {}  # by the name of the delivery's own
    async for found in manifests:
        if isinstance(found, LakeDifference):
            differences.append(found)
            continue
        if isinstance(found, Adoption):
            sums.left += found.without_number
            continue
        if names.repair_in(found.name):
            _add_repair(repairs, found)
            continue
        made = found.body
        repair = repairs.pop(found.name, None)
        if repair is not None and repair.body.before != found.hash:
            differences.append(LakeDifference(CONTENT, repair.name, "it repairs another manifest"))
        elif repair is not None:
            made = repair.body
        if made.imported is None:
            links.append(
                _Link(made.edition, made.first, made.last, found.name, found.hash, found.body.before)
            )
        files = [file for file in made.files if dates.have(file.date)]
        if files or dates == ALL_DATES:
            sums.add(made, files)
        waiting += [_ListedFile(made, file, there.pop(file.key, None)) for file in files]
        if len(waiting) >= _TOGETHER:
            differences += await look.compared(waiting)
            waiting = []
    differences += await look.compared(waiting)
    sums.read = look.read
    alone = [LakeDifference(CONTENT, each.name, "it repairs none that is there") for each in repairs.values()]
    foreign = [LakeDifference(FOREIGN, name, "no manifest names it") for name in sorted(there)]
    verified = sums.verified([*_chain(links), *_ranges(links), *differences, *alone, *foreign])
    return replace(verified, editions=sorted({each.edition for each in links}))


def _add_repair(repairs: dict[str, ReadManifest], found: ReadManifest) -> None:
    """Keep the newest repair of a delivery."""
    own = names.repaired(found.name)
    known = repairs.get(own)
    if known is None or names.repair_in(known.name) < names.repair_in(found.name):
        repairs[own] = found


def expired_before(found: VerifiedLake, date: str) -> VerifiedLake:
    """Name the missing files of earlier dates apart: a rule of the store took them."""
    differences = [
        each._replace(kind=EXPIRED)
        if each.kind == MISSING and (names.date_in(each.name) or date) < date
        else each
        for each in found.differences
    ]
    return replace(found, differences=differences)


def books_differ(
    found: VerifiedLake, route: str, before: Mapping[str, int], after: Mapping[str, int]
) -> LakeDifference | None:
    """
    Compare the records and damaged numbers of the manifests with the terms that the books had of the route before
    the manifests were read, and after: what landed meanwhile may be in them or not.
    """
    landed = found.records - found.imported - found.left + found.damaged
    if landed < _settled(before):
        kind, settled = MISSING, _settled(before)
    elif landed > _settled(after):
        kind, settled = FOREIGN, _settled(after)
    else:
        return None
    return LakeDifference(
        kind, route, f"its manifests have {landed} records, the books of the route {settled}"
    )


def compared_with_books(
    differences: Sequence[LakeDifference],
    route: str,
    *,
    settled: int | None,
    absent: int,
    before: Mapping[str, int],
    after: Mapping[str, int],
) -> Sequence[LakeDifference]:
    """
    Return the differences of a table or a topic, which have no manifests: of the settled numbers `settled` are
    there, None if that is not known, and `absent` are not. Damaged records have a number and are nowhere.
    """
    found = list(differences)
    if absent <= after.get("damaged", 0):
        found = [each for each in found if each.kind != HOLE]
    least = before.get("delivered", 0)
    most = after.get("delivered", 0)
    if settled is not None and not least <= settled <= most:
        kind, delivered = (MISSING, least) if settled < least else (FOREIGN, most)
        words = f"it has {settled} records of numbers that are settled, the books of the route {delivered}"
        found.append(LakeDifference(kind, route, words))
    return found


def _settled(terms: Mapping[str, int]) -> int:
    return terms.get("delivered", 0) + terms.get("damaged", 0)


class _Link(NamedTuple):
    """A manifest, as far as others are compared with it."""

    edition: str
    first: int
    last: int
    name: str
    hash: str
    before: str | None


@dataclass(eq=False)
class _Sums:
    deliveries: int = 0
    files: int = 0
    read: int = 0
    bytes: int = 0
    rows: int = 0
    records: int = 0
    imported: int = 0
    left: int = 0
    first: int | None = None
    damaged: int = 0
    calls: int = 0
    spend: int = 0

    def add(self, made: LakeManifest, files: Sequence[LakeFile]) -> None:
        if made.imported is None:
            self.deliveries += 1
            self.first = made.first if self.first is None else min(made.first, self.first)
        self.files += len(files)
        self.damaged += len(made.numbers.damaged)
        self.records += made.numbers.rows if made.focus else sum(file.rows for file in files)
        for file in files:
            self.bytes += file.bytes
            self.rows += file.rows
            self.imported += 0 if made.imported is None else file.rows
            self.calls += file.calls
            self.spend += money.units(file.spend)

    def verified(self, differences: Sequence[LakeDifference]) -> VerifiedLake:
        return VerifiedLake(
            deliveries=self.deliveries,
            files=self.files,
            read=self.read,
            bytes=self.bytes,
            rows=self.rows,
            records=self.records,
            imported=self.imported,
            left=self.left,
            first=self.first,
            damaged=self.damaged,
            calls=self.calls,
            spend=money.text(self.spend),
            differences=differences,
        )


def _chain(links: Sequence[_Link]) -> Iterator[LakeDifference]:
    """Each manifest names one that is there; the first alone names none."""
    hashes = {each.hash for each in links}
    first = min((each.first for each in links), default=0)
    for each in links:
        if each.before is None and each.first != first:
            yield LakeDifference(CONTENT, each.name, "it names no manifest before it")
        elif each.before is not None and each.before not in hashes:
            yield LakeDifference(CONTENT, each.name, "the manifest before it is missing or was changed")


def _ranges(links: Sequence[_Link]) -> Iterator[LakeDifference]:
    """Within an edition the numbers leave no hole, and none is there twice."""
    for one, other in pairwise(sorted(links)):
        if one.edition != other.edition or other.first == one.last + 1:
            continue
        kind = OVERLAP if other.first <= one.last else HOLE
        words = f"it begins at {other.first}, the one before ends at {one.last}"
        yield LakeDifference(kind, other.name, words)


class _ListedFile(NamedTuple):
    made: LakeManifest
    file: LakeFile
    size: int | None  # None: it is not in the list


class _Look:
    """Looks at files, at a level; of DATA at some of them whole."""

    def __init__(
        self,
        store: Store,
        level: str,
        scratch: Path,
        is_sampled: Callable[[], bool] | None,
        days: LakeDays | None,
    ) -> None:
        self._store = store
        self._level = level
        self._scratch = scratch
        self._is_sampled = is_sampled
        self._days = days
        self.read = 0  # files, whole

    async def compared(self, files: Sequence[_ListedFile]) -> list[LakeDifference]:
        """The first difference of each file that has one. Ends are asked for together, whole files one by one."""
        if self._level == DATA:
            found = [await self._file(*each) for each in files]
        else:
            found = list(await asyncio.gather(*(self._file(*each) for each in files)))
        return [each for each in found if each is not None]

    async def _file(self, made: LakeManifest, file: LakeFile, listed: int | None) -> LakeDifference | None:
        """The first difference of a file, else None; one that is not listed may have come since."""
        size = await self._store.size(file.key) if listed is None else listed
        if size is None:
            return LakeDifference(MISSING, file.key, f"{file.rows} records, ${file.spend}")
        if size != file.bytes:
            return LakeDifference(SIZE, file.key, f"it has {size} bytes in place of {file.bytes}")
        if self._level == LISTING:
            return None
        format = format_of(file.key)
        if format is None:
            return LakeDifference(CONTENT, file.key, "its format is not known")
        end = await self._store.end(file.key, size, FOOTER_BYTES)
        words = await asyncio.to_thread(footer_differs, format, end, made, file)
        if words is None and self._level == DATA:
            words = await self._data(format, made, file)
        return None if words is None else LakeDifference(CONTENT, file.key, words)

    async def _data(self, format: FileFormat, made: LakeManifest, file: LakeFile) -> str | None:
        if self._is_sampled is not None and not self._is_sampled():
            return None
        self.read += 1
        there = self._scratch / "data"
        await self._store.fetch(file.key, there)
        return await asyncio.to_thread(data_differs, format, there, made, file, self._days)

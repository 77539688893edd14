"""
Compares a data lake with its manifests, and the manifests with the accounting. It changes nothing.

The level LISTING checks that each file exists with its size, that no others exist, and that record numbers have no
gaps. FOOTERS also reads the end of each file. DATA reads every byte and computes every sum again. Every level lists
the files only once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from exporters.lake import manifest, names
from exporters.lake.columns import TABLE
from exporters.lake.exporter import FOOTER_BYTES
from exporters.lake.file_checks import data_difference, find_file_format, footer_difference
from exporters.lake.manifest import AdoptionManifest, LakeFile, LakeManifest
from exporters.lake.partitions import FileFormat
from exporters.lake.stores import LakeStore
from exporters.lake.tables import LakeSumsByDay
from spool import money

LISTING, FOOTERS, DATA = "listing", "footers", "data"
MISSING, SIZE, CONTENT, FOREIGN, HOLE, OVERLAP = "missing", "size", "content", "foreign", "hole", "overlap"
EXPIRED: Final = "expired_by_rule"  # the file is missing because of a deletion rule of the store
EDITION: Final = "edition"  # the deliveries belong to another edition of the log, or to another log
_TOGETHER: Final = 16  # number of manifests, or of file ends, that are read at the same time


class LakeDifference(NamedTuple):
    kind: str
    name: str
    words: str


class DateRange(NamedTuple):
    """A range of dates. "" means no limit."""

    first: str = ""
    last: str = ""

    def contains(self, date: str | None) -> bool:
        """
        Return whether the range contains a date. A file without a date belongs only to the unlimited range.
        """
        if self == ALL_DATES:
            return True
        return date is not None and self.first <= date and (not self.last or date <= self.last)


ALL_DATES: Final = DateRange()


@dataclass(frozen=True, kw_only=True)
class VerifiedLake:
    """
    The result of a verification.

    `spend`: decimal text with all digits. `imported`: rows that belong to no delivery. `records` equals
    `rows` unless the rows are FOCUS charges. If only some dates were verified, all counts cover only their
    files and deliveries. `left`: records that a restored log does not count, because they stay only in the
    lake.
    """

    deliveries: int
    files: int
    read: int = 0  # files read completely
    bytes: int
    rows: int
    records: int
    imported: int = 0
    left: int = 0
    first: int | None = None  # lowest record number of all deliveries
    damaged: int
    calls: int
    spend: str
    editions: Sequence[str] = ()
    differences: Sequence[LakeDifference]


class ReadManifest(NamedTuple):
    name: str
    hash: str
    body: LakeManifest


ManifestResult = ReadManifest | AdoptionManifest | LakeDifference


async def read_manifests(
    store: LakeStore, destination: str, scratch: Path, *, table: str = TABLE
) -> AsyncIterator[ManifestResult]:
    """
    Yield the manifests of a destination in the order of their names. An unreadable manifest is yielded
    as a difference.

    The manifest of a repair comes before the manifest of its delivery.
    """
    listed = [stored_object.name async for stored_object in store.list_objects(names.manifests_prefix(table))]
    for start in range(0, len(listed), _TOGETHER):
        group = listed[start : start + _TOGETHER]
        read = [read_manifest(store, name, scratch / f"manifest-{n}") for n, name in enumerate(group)]
        for result in await asyncio.gather(*read):
            if isinstance(result, LakeDifference) or _manifest_route(result).partition("/")[0] == destination:
                yield result


def _manifest_route(lake_manifest: ReadManifest | AdoptionManifest) -> str:
    return lake_manifest.route if isinstance(lake_manifest, AdoptionManifest) else lake_manifest.body.route


async def read_manifest(store: LakeStore, name: str, local_copy: Path) -> ManifestResult:
    await store.fetch(name, local_copy)
    body = await asyncio.to_thread(local_copy.read_bytes)
    try:
        if names.parse_adoption_range(name):
            return manifest.decode_adoption_manifest(body)
        contents = manifest.decode_manifest(body)
    except ValueError as error:
        return LakeDifference(CONTENT, name, str(error))
    if not _has_matching_name(name, contents):
        return LakeDifference(CONTENT, name, "its content has other numbers than its name")
    return ReadManifest(name, manifest.sha256_hex(body), contents)


def _has_matching_name(name: str, lake_manifest: LakeManifest) -> bool:
    if lake_manifest.imported is not None:
        return names.parse_import_manifest_name(name) == (
            lake_manifest.imported.sha256,
            lake_manifest.imported.part,
        )
    return names.parse_record_range(name) == (lake_manifest.edition, lake_manifest.first, lake_manifest.last)


async def verify_files(
    store: LakeStore,
    manifests: AsyncIterator[ManifestResult],
    *,
    level: str,
    scratch: Path,
    dates: DateRange = ALL_DATES,
    table: str = TABLE,
    is_sampled: Callable[[], bool] | None = None,
    sums_by_day: LakeSumsByDay | None = None,
) -> VerifiedLake:
    """
    Compare the files of a data lake with its manifests. Raises the errors of the store.

    Only files of `dates` are compared, but all manifests are checked for their numbers and their chain. For
    DATA, `is_sampled` decides for each file whether to read every byte or only its end. The rows read are
    added to `sums_by_day`. In `manifests`, a repair must come before its delivery.
    """
    after = f"{names.data_prefix(table)}date={dates.first}" if dates.first else ""
    listed = store.list_objects(names.data_prefix(table), after=after)
    unseen = {
        stored_object.name: stored_object.size
        async for stored_object in listed
        if dates.contains(names.parse_date(stored_object.name))
    }
    links: list[_ManifestLink] = []
    differences: list[LakeDifference] = []
    sums = _LakeSums()
    waiting: list[_ListedFile] = []
    file_checks = _FileChecker(store, level, scratch, is_sampled, sums_by_day)
    repairs: dict[str, ReadManifest] = {}  # repairs by the name of the delivery's own manifest
    async for result in manifests:
        if isinstance(result, LakeDifference):
            differences.append(result)
            continue
        if isinstance(result, AdoptionManifest):
            sums.left += result.uncounted_records
            continue
        if names.parse_repair_number(result.name):
            _add_repair_if_newest(repairs, result)
            continue
        contents = result.body
        repair = repairs.pop(result.name, None)
        if repair is not None and repair.body.before != result.hash:
            differences.append(LakeDifference(CONTENT, repair.name, "it repairs another manifest"))
        elif repair is not None:
            contents = repair.body
        if contents.imported is None:
            links.append(
                _ManifestLink(
                    contents.edition,
                    contents.first,
                    contents.last,
                    result.name,
                    result.hash,
                    result.body.before,
                )
            )
        files = [file for file in contents.files if dates.contains(file.date)]
        if files or dates == ALL_DATES:
            sums.add_delivery(contents, files)
        waiting += [_ListedFile(contents, file, unseen.pop(file.key, None)) for file in files]
        if len(waiting) >= _TOGETHER:
            differences += await file_checks.compare_files(waiting)
            waiting = []
    differences += await file_checks.compare_files(waiting)
    sums.read = file_checks.read
    alone = [
        LakeDifference(CONTENT, repair.name, "it repairs a manifest that does not exist")
        for repair in repairs.values()
    ]
    foreign = [LakeDifference(FOREIGN, name, "no manifest names it") for name in sorted(unseen)]
    verified = sums.verification_result(
        [*_broken_links(links), *_gaps_and_overlaps(links), *differences, *alone, *foreign]
    )
    return replace(verified, editions=sorted({link.edition for link in links}))


def _add_repair_if_newest(repairs: dict[str, ReadManifest], repair: ReadManifest) -> None:
    own = names.strip_repair_number(repair.name)
    newest = repairs.get(own)
    if newest is None or names.parse_repair_number(newest.name) < names.parse_repair_number(repair.name):
        repairs[own] = repair


def with_expired_files_marked(verified_lake: VerifiedLake, expired_before_date: str) -> VerifiedLake:
    """
    Return the result with missing files of dates before a date marked as expired, because a rule of the store
    deleted them.
    """
    differences = [
        difference._replace(kind=EXPIRED)
        if difference.kind == MISSING
        and (names.parse_date(difference.name) or expired_before_date) < expired_before_date
        else difference
        for difference in verified_lake.differences
    ]
    return replace(verified_lake, differences=differences)


def accounting_difference(
    verified_lake: VerifiedLake, route: str, before: Mapping[str, int], after: Mapping[str, int]
) -> LakeDifference | None:
    """
    Return how records and damaged numbers in the manifests differ from a route's accounting, or None.

    `before` and `after`: the accounting before and after the manifests were read. Deliveries that landed in
    between may be counted or not.
    """
    landed = verified_lake.records - verified_lake.imported - verified_lake.left + verified_lake.damaged
    if landed < _settled_count(before):
        kind, settled = MISSING, _settled_count(before)
    elif landed > _settled_count(after):
        kind, settled = FOREIGN, _settled_count(after)
    else:
        return None
    return LakeDifference(
        kind, route, f"its manifests have {landed} records, but the accounting of the route has {settled}"
    )


def compare_with_accounting(
    differences: Sequence[LakeDifference],
    route: str,
    *,
    settled_count: int | None,
    absent_count: int,
    counts_before: Mapping[str, int],
    counts_after: Mapping[str, int],
) -> Sequence[LakeDifference]:
    """
    Return differences between the accounting and a table or topic, which have no manifests.

    `settled_count` and `absent_count`: how many of the settled record numbers it has (None if unknown), and
    how many it lacks. A damaged record has a number, but is nowhere.
    """
    result = list(differences)
    if absent_count <= counts_after.get("damaged", 0):
        result = [difference for difference in result if difference.kind != HOLE]
    least = counts_before.get("delivered", 0)
    highest = counts_after.get("delivered", 0)
    if settled_count is not None and not least <= settled_count <= highest:
        kind, delivered = (MISSING, least) if settled_count < least else (FOREIGN, highest)
        description = (
            f"it has {settled_count} records with settled numbers, but the accounting of the route has "
            f"{delivered}"
        )
        result.append(LakeDifference(kind, route, description))
    return result


def _settled_count(accounting_counts: Mapping[str, int]) -> int:
    return accounting_counts.get("delivered", 0) + accounting_counts.get("damaged", 0)


class _ManifestLink(NamedTuple):
    edition: str
    first: int
    last: int
    name: str
    hash: str
    before: str | None


@dataclass(eq=False)
class _LakeSums:
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

    def add_delivery(self, lake_manifest: LakeManifest, files: Sequence[LakeFile]) -> None:
        if lake_manifest.imported is None:
            self.deliveries += 1
            self.first = lake_manifest.first if self.first is None else min(lake_manifest.first, self.first)
        self.files += len(files)
        self.damaged += len(lake_manifest.numbers.damaged)
        self.records += (
            lake_manifest.numbers.rows if lake_manifest.focus else sum(file.rows for file in files)
        )
        for file in files:
            self.bytes += file.bytes
            self.rows += file.rows
            self.imported += 0 if lake_manifest.imported is None else file.rows
            self.calls += file.calls
            self.spend += money.text_to_units(file.spend)

    def verification_result(self, differences: Sequence[LakeDifference]) -> VerifiedLake:
        sums = {**asdict(self), "spend": money.units_to_text(self.spend)}
        return VerifiedLake(**sums, differences=differences)


def _broken_links(links: Sequence[_ManifestLink]) -> Iterator[LakeDifference]:
    """Yield broken links between manifests. Every manifest except the first must name an existing one."""
    hashes = {link.hash for link in links}
    first = min((link.first for link in links), default=0)
    for link in links:
        if link.before is None and link.first != first:
            yield LakeDifference(CONTENT, link.name, "it does not name a previous manifest")
        elif link.before is not None and link.before not in hashes:
            yield LakeDifference(CONTENT, link.name, "the previous manifest is missing or was changed")


def _gaps_and_overlaps(links: Sequence[_ManifestLink]) -> Iterator[LakeDifference]:
    for earlier, later in pairwise(sorted(links)):
        if earlier.edition != later.edition or later.first == earlier.last + 1:
            continue
        kind = OVERLAP if later.first <= earlier.last else HOLE
        description = f"it begins at {later.first}, but the previous delivery ends at {earlier.last}"
        yield LakeDifference(kind, later.name, description)


class _ListedFile(NamedTuple):
    made: LakeManifest
    file: LakeFile
    size: int | None  # None if the file is not in the list


class _FileChecker:
    def __init__(
        self,
        store: LakeStore,
        level: str,
        scratch: Path,
        is_sampled: Callable[[], bool] | None,
        sums_by_day: LakeSumsByDay | None,
    ) -> None:
        self._store = store
        self._level = level
        self._scratch = scratch
        self._is_sampled = is_sampled
        self._days = sums_by_day
        self.read = 0  # files read completely

    async def compare_files(self, files: Sequence[_ListedFile]) -> list[LakeDifference]:
        if self._level == DATA:
            differences = [await self._compare_file(*file_facts) for file_facts in files]
        else:
            differences = list(
                await asyncio.gather(*(self._compare_file(*file_facts) for file_facts in files))
            )
        return [difference for difference in differences if difference is not None]

    async def _compare_file(
        self, lake_manifest: LakeManifest, file: LakeFile, listed: int | None
    ) -> LakeDifference | None:
        """
        Return how a file differs, or None. A file that is not listed may have been written after the list was
        made.
        """
        size = await self._store.object_size(file.key) if listed is None else listed
        if size is None:
            return LakeDifference(MISSING, file.key, f"{file.rows} records, ${file.spend}")
        if size != file.bytes:
            return LakeDifference(SIZE, file.key, f"it has {size} bytes instead of {file.bytes}")
        if self._level == LISTING:
            return None
        format = find_file_format(file.key)
        if format is None:
            return LakeDifference(CONTENT, file.key, "its format is unknown")
        end = await self._store.read_end(file.key, size, FOOTER_BYTES)
        description = await asyncio.to_thread(footer_difference, format, end, lake_manifest, file)
        if description is None and self._level == DATA:
            description = await self._compare_data(format, lake_manifest, file)
        return None if description is None else LakeDifference(CONTENT, file.key, description)

    async def _compare_data(
        self, format: FileFormat, lake_manifest: LakeManifest, file: LakeFile
    ) -> str | None:
        if self._is_sampled is not None and not self._is_sampled():
            return None
        self.read += 1
        local_copy = self._scratch / "data"
        await self._store.fetch(file.key, local_copy)
        return await asyncio.to_thread(data_difference, format, local_copy, lake_manifest, file, self._days)

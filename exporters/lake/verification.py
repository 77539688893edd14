"""
Looks at a lake and says what differs from its manifests, and those from the books; it changes nothing.

Listing: each file is there with its size, nothing else is, and the ranges of numbers leave no hole. Footers: each
file says by itself that it holds the rows of its manifest. Data: every byte is read, and every sum is made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import file_digest
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from exporters.lake import manifest, names
from exporters.lake.exporter import FOOTER_BYTES
from exporters.lake.formats import FORMATS
from exporters.lake.partitions import FileFormat
from exporters.lake.stores import Store
from spool.ledger import money

LISTING, FOOTERS, DATA = "listing", "footers", "data"
# The names that a difference may have.
MISSING, SIZE, CONTENT, FOREIGN, HOLE, OVERLAP = "missing", "size", "content", "foreign", "hole", "overlap"
_COUNTED: Final = ("number", "counted", "calls", "spend", "input_tokens", "output_tokens")


class LakeDifference(NamedTuple):
    kind: str
    name: str  # of the object
    words: str


@dataclass(frozen=True, kw_only=True)
class VerifiedLake:
    """`spend` is decimal text with all digits; the sums are those of the manifests."""

    deliveries: int
    files: int
    bytes: int
    rows: int
    damaged: int
    calls: int
    spend: str
    differences: Sequence[LakeDifference]


class ReadManifest(NamedTuple):
    name: str
    hash: str
    body: manifest.LakeManifest


async def read_manifests(
    store: Store, destination: str, scratch: Path
) -> AsyncIterator[ReadManifest | LakeDifference]:
    """Manifests of a destination in the order of their names, and those that are none."""
    there = scratch / "manifest"
    async for found in store.names(names.MANIFESTS):
        await store.fetch(found.name, there)
        body = await asyncio.to_thread(there.read_bytes)
        try:
            made = manifest.read(body)
        except ValueError as error:
            yield LakeDifference(CONTENT, found.name, str(error))
            continue
        if names.range_of(found.name) != (made.edition, made.first, made.last):
            yield LakeDifference(CONTENT, found.name, "its name says other numbers than it does")
        elif made.route.partition("/")[0] == destination:
            yield ReadManifest(found.name, manifest.hash_of(body), made)


async def verify(store: Store, destination: str, *, level: str, scratch: Path) -> VerifiedLake:
    """Compare a lake with its manifests. Raises what the store raises."""
    read: list[ReadManifest] = []
    differences: list[LakeDifference] = []
    async for found in read_manifests(store, destination, scratch):
        if isinstance(found, ReadManifest):
            read.append(found)
        else:
            differences.append(found)
    there = {each.name: each.size async for each in store.names(names.DATA)}
    differences += _chain(read)
    differences += _ranges(read)
    known: set[str] = set()
    for each in read:
        for file in each.body.files:
            known.add(file.key)
            difference = await _file(store, each.body, file, there.get(file.key), level, scratch)
            if difference is not None:
                differences.append(difference)
    foreign = sorted(there.keys() - known)
    differences += [LakeDifference(FOREIGN, name, "no manifest names it") for name in foreign]
    bodies = [each.body for each in read]
    return VerifiedLake(
        deliveries=len(bodies),
        files=len(known),
        bytes=sum(file.bytes for body in bodies for file in body.files),
        rows=sum(body.numbers.rows for body in bodies),
        damaged=sum(len(body.numbers.damaged) for body in bodies),
        calls=sum(body.counted.calls for body in bodies),
        spend=money.text(sum(money.units(body.counted.spend) for body in bodies)),
        differences=differences,
    )


def books_differ(found: VerifiedLake, route: str, terms: Mapping[str, int]) -> LakeDifference | None:
    """Compare the records and damaged numbers of the manifests with the terms that the books have of the route."""
    landed = found.rows + found.damaged
    settled = terms.get("delivered", 0) + terms.get("damaged", 0)
    if landed == settled:
        return None
    kind = MISSING if landed < settled else FOREIGN
    return LakeDifference(
        kind, route, f"its manifests have {landed} records, the books of the route {settled}"
    )


def _chain(read: Sequence[ReadManifest]) -> Iterator[LakeDifference]:
    """Each manifest names one that is there; the first alone names none."""
    hashes = {each.hash for each in read}
    first = min((each.body.first for each in read), default=0)
    for each in read:
        before = each.body.before
        if before is None and each.body.first != first:
            yield LakeDifference(CONTENT, each.name, "it names no manifest before it")
        elif before is not None and before not in hashes:
            yield LakeDifference(CONTENT, each.name, "the manifest before it is missing or was changed")


def _ranges(read: Sequence[ReadManifest]) -> Iterator[LakeDifference]:
    """Within an edition the numbers leave no hole, and none is there twice."""
    ordered = sorted(read, key=lambda each: (each.body.edition, each.body.first))
    for one, other in pairwise(ordered):
        if one.body.edition != other.body.edition or other.body.first == one.body.last + 1:
            continue
        kind = OVERLAP if other.body.first <= one.body.last else HOLE
        yield LakeDifference(
            kind, other.name, f"it begins at {other.body.first}, the one before ends at {one.body.last}"
        )


async def _file(
    store: Store,
    made: manifest.LakeManifest,
    file: manifest.LakeFile,
    size: int | None,
    level: str,
    scratch: Path,
) -> LakeDifference | None:
    """The first difference of a file, None if there is none."""
    if size is None:
        return LakeDifference(MISSING, file.key, f"{file.rows} records, ${file.spend}")
    if size != file.bytes:
        return LakeDifference(SIZE, file.key, f"it has {size} bytes in place of {file.bytes}")
    format = next((each for each in FORMATS.values() if file.key.endswith(f".{each.ending}")), None)
    if level == LISTING:
        return None
    if format is None:
        return LakeDifference(CONTENT, file.key, "its format is not known")
    end = await store.end(file.key, size, FOOTER_BYTES)
    words = await asyncio.to_thread(_footer_differs, format, end, made)
    if words is None and level == DATA:
        there = scratch / "data"
        await store.fetch(file.key, there)
        words = await asyncio.to_thread(_data_differs, format, there, made, file)
    return None if words is None else LakeDifference(CONTENT, file.key, words)


def _footer_differs(format: FileFormat, end: bytes, made: manifest.LakeManifest) -> str | None:
    try:
        found = format.read_footer(end)
    except ValueError as error:
        return str(error)
    expected = {
        "route": made.route, "edition": made.edition, "first": str(made.first), "last": str(made.last),
        "digest": made.digest,
    }  # fmt: skip
    for name, value in expected.items():
        if found.get(f"tollhouse.{name}") != value:
            return f"its footer has another {name} than its manifest"
    return None


def _data_differs(
    format: FileFormat, path: Path, made: manifest.LakeManifest, file: manifest.LakeFile
) -> str | None:
    with path.open("rb") as opened:
        if file_digest(opened, "sha256").hexdigest() != file.sha256:
            return "its SHA-256 is not that of its manifest"
    try:
        found = _sums(format.read_rows(path, _COUNTED), made)
    except ValueError as error:
        return str(error)
    for name, value in found.items():
        if value != getattr(file, name):
            return f"its {name} are {value}, its manifest says {getattr(file, name)}"
    return None


def _sums(rows: Iterator[tuple[Any, ...]], made: manifest.LakeManifest) -> Mapping[str, object]:
    """Sums of rows as a manifest has them. ValueError for a number that is there twice, or that is another's."""
    numbers: set[int] = set()
    count = calls = spend = given_tokens = made_tokens = 0
    for number, counted, its_calls, its_spend, given, output in rows:
        count += 1
        numbers.add(number)
        if not made.first <= number <= made.last:
            raise ValueError(f"the number {number} is not one of its delivery")
        if counted:
            calls += its_calls
            spend += (
                0
                if its_spend is None
                else money.units(f"{its_spend:f}" if not isinstance(its_spend, str) else its_spend)
            )
            given_tokens += given or 0
            made_tokens += output or 0
    if len(numbers) != count:
        raise ValueError(f"{count - len(numbers)} numbers are there twice")
    return {
        "rows": count,
        "calls": calls,
        "spend": money.text(spend),
        "input_tokens": given_tokens,
        "output_tokens": made_tokens,
    }

"""
Periodic checks of a data lake, a topic or a table, run in addition to its route. The checks read no
file of records.

For files, the stored manifests are compared with a list of the store's objects. For a topic its progress, and
for a table its sums, are compared with the accounting.
"""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

from exporters.errors import SendError
from exporters.lake import manifest, names
from exporters.lake.exporter import LakeContext
from exporters.lake.manifest import AdoptionManifest
from exporters.lake.stores import LakeStore
from exporters.lake.tables import table_for_route
from exporters.lake.verification import (
    CONTENT,
    EDITION,
    FOREIGN,
    LISTING,
    MISSING,
    SIZE,
    LakeDifference,
    ManifestResult,
    ReadManifest,
    VerifiedLake,
    accounting_difference,
    compare_with_accounting,
    read_manifest,
    verify_files,
)
from spool.clock import Clock
from spool.deliveries.protocols import LakeDeliveries, LakeVerdict, read_lake_verdict, store_lake_verdict
from spool.deliveries.values import LakeDelivery
from spool.disks import make_directory
from spool.errors import SpoolError
from spool.loops import repeat
from spool.statements import StatementStore

FIRST_S: Final = 60.0  # seconds until the first check after a start, because a start has much other work
RETRY_S: Final = 600.0
# seconds between two checks while there are differences, so that a repair becomes visible soon; also
# the longest sleep
AGAIN_S: Final = 3600.0
_PAGE: Final = 500  # manifests read at once
_ANY: Final = 2**62  # greater than every record number

_log = logging.getLogger(__name__)


class LakeCheckResult(NamedTuple):
    differences: Sequence[LakeDifference]
    files: int = 0
    rows: int = 0


class CountedNumbers(NamedTuple):
    """
    How many of the delivered record numbers a topic or table has (`settled`, None if unknown), and how many
    it lacks (`absent`).
    """

    differences: Sequence[LakeDifference]
    settled: int | None
    absent: int
    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class LakeWatch:
    """
    Runs a periodic check of a destination. `check`: one check, which raises SendError. `every_s`: seconds
    between checks, whichever gateway makes them.
    """

    check: Callable[[], Awaitable[LakeCheckResult]]
    verdicts: StatementStore
    route: str
    every_s: float
    clock: Clock

    async def run(self) -> None:
        wait_s = FIRST_S

        async def wait_and_check() -> None:
            nonlocal wait_s
            await asyncio.sleep(wait_s)
            wait_s = await self.check_if_due_and_return_wait_s()

        await repeat(
            wait_and_check,
            every_s=0.0,
            failed=f"{self.route}: the destination could not be verified",
            action="lake_not_verified",
        )

    async def check_if_due_and_return_wait_s(self) -> float:
        """Verify the lake if the last check is old enough. Return the seconds until the next call."""
        try:
            newest = await read_lake_verdict(self.verdicts, self.route)
            wait_s = 0.0 if newest is None else self._wait_s(newest)
            if wait_s <= 0:
                newest = await self.check_and_log()
                await store_lake_verdict(self.verdicts, newest)
                wait_s = self._wait_s(newest)
        except Exception as error:  # noqa: BLE001 - the supervised loop
            extra = {"action": "lake_not_verified", "route": self.route}
            cause = None if isinstance(error, SendError | SpoolError | OSError) else error
            _log.warning(
                "%s: the destination could not be verified: %s",
                self.route,
                error,
                exc_info=cause,
                extra=extra,
            )
            return RETRY_S
        return min(wait_s, AGAIN_S)

    def _wait_s(self, newest_verdict: LakeVerdict) -> float:
        every_s = min(self.every_s, AGAIN_S) if newest_verdict.differences else self.every_s
        passed_s = self.clock.now() - newest_verdict.at
        # the difference is negative if the clock was set back meanwhile
        return every_s - passed_s if passed_s >= 0 else 0.0

    async def check_and_log(self) -> LakeVerdict:
        result = await self.check()
        for difference in result.differences:
            extra = {"action": "lake_differs", "route": self.route}
            _log.error(
                "%s: the destination differs from what was sent: %s",
                self.route,
                " ".join(difference),
                extra=extra,
            )
            break
        first = next((f"{difference.name}: {difference.words}" for difference in result.differences), "")
        return LakeVerdict(
            route=self.route,
            at=self.clock.now(),
            files=result.files,
            rows=result.rows,
            differences=dict(Counter(difference.kind for difference in result.differences)),
            words=first,
        )


async def check_lake_files(store: LakeStore, context: LakeContext, route: str) -> LakeCheckResult:
    verified = await compare_with_store(store, context, route)
    return LakeCheckResult(verified.differences, files=verified.files, rows=verified.rows)


async def compare_record_numbers_with_accounting(
    context: LakeContext, route: str, count_numbers_below: Callable[[int], Awaitable[CountedNumbers]]
) -> LakeCheckResult:
    """
    Compare the settled numbers with a topic or table, which have no manifests. `count_numbers_below`: gets
    the number below which all records are settled.
    """
    before = await _accounting_counts(context, route)
    counted = await count_numbers_below(await _first_unsettled_number(context, route, before))
    differences = compare_with_accounting(
        counted.differences,
        route,
        settled_count=counted.settled,
        absent_count=counted.absent,
        counts_before=before,
        counts_after=await _accounting_counts(context, route),
    )
    return LakeCheckResult(differences, rows=counted.rows)


async def _first_unsettled_number(
    context: LakeContext, route: str, accounting_counts: Mapping[str, int]
) -> int:
    if context.routes is None or not accounting_counts.get("delivered", 0) + accounting_counts.get(
        "damaged", 0
    ):
        return 1
    return next((state.progress for state in await context.routes() if state.name == route), 1)


async def compare_with_store(store: LakeStore, context: LakeContext, route: str) -> VerifiedLake:
    table = table_for_route(route).name
    listed = {
        stored_object.name: stored_object.size
        async for stored_object in store.list_objects(names.manifests_prefix(table))
    }
    before = await _accounting_counts(context, route)
    stored_manifests = _StoredManifests(store, context.landings, route, listed)
    await asyncio.to_thread(make_directory, context.directory, 0o700)
    with tempfile.TemporaryDirectory(dir=context.directory) as directory:
        scratch = Path(directory)
        verified = await verify_files(
            store, stored_manifests.read_manifests(scratch), level=LISTING, scratch=scratch, table=table
        )
    edition = await stored_manifests.find_or_begin_edition_after_settled()
    candidates = [*verified.differences, *await stored_manifests.unknown_manifest_differences()]
    differences = [
        difference
        for difference in candidates
        if not stored_manifests.can_be_delivery_in_progress(difference, edition)
    ]
    difference = accounting_difference(verified, route, before, await _accounting_counts(context, route))
    if difference is not None:
        differences.append(difference)
    return replace(verified, differences=differences)


async def _accounting_counts(context: LakeContext, route: str) -> Mapping[str, int]:
    assert context.books is not None
    return (await context.books()).routes.get(route, {})


class _StoredManifests:
    def __init__(
        self, store: LakeStore, landings: LakeDeliveries, route: str, listed: dict[str, int]
    ) -> None:
        self._store = store
        self._landings = landings
        self._route = route
        self._listed = listed
        self._last = 0

    async def read_manifests(self, scratch: Path) -> AsyncIterator[ManifestResult]:
        """
        Yield the manifests of repairs, imports and adoptions (records newer than a restored backup), read
        from the lake's store. Then yield each delivery's manifest as the log stored it, after a difference if
        the store's object is missing or has another size.
        """
        kinds = (names.parse_repair_number, names.parse_import_manifest_name, names.parse_adoption_range)
        for name in sorted(name for name in self._listed if any(kind(name) for kind in kinds)):
            del self._listed[name]
            lake_manifest = await read_manifest(self._store, name, scratch / "manifest")
            yield lake_manifest
            if isinstance(lake_manifest, AdoptionManifest) and names.parse_record_range(
                lake_manifest.manifest
            ) == names.parse_adoption_range(name):
                # The restored copy never had these record numbers, so it has no manifest for them.
                yield await self._read_adopted_delivery_manifest(lake_manifest.manifest, scratch)
        after = 0
        while page := await self._landings.lake_deliveries_after(
            self._route, after_number=after, max_deliveries=_PAGE
        ):
            for landing in page:
                difference = await self._compare_landing(landing)
                if difference is not None:
                    yield difference
                yield await asyncio.to_thread(_decode_landing, landing)
            after = page[-1].first

    async def _read_adopted_delivery_manifest(self, name: str, scratch: Path) -> ManifestResult:
        if self._listed.pop(name, None) is None:
            return LakeDifference(MISSING, name, "the manifest does not exist")
        return await read_manifest(self._store, name, scratch / "manifest")

    async def _compare_landing(self, landing: LakeDelivery) -> LakeDifference | None:
        """
        Return how the manifest in the lake's store differs from the delivery's own, or None if it does not.
        A manifest that is not listed may have been written after the list was made.
        """
        name = _manifest_name(landing)
        size = self._listed.pop(name, None)
        if size is None:
            size = await self._store.object_size(name)
        self._last = max(self._last, landing.last)
        if size is None:
            return LakeDifference(MISSING, name, "the manifest does not exist")
        if size != len(landing.body):
            return LakeDifference(SIZE, name, f"it has {size} bytes instead of {len(landing.body)}")
        return None

    async def find_or_begin_edition_after_settled(self) -> str:
        return (await self._landings.find_or_begin_log_editions(self._route, self._last + 1))[0]

    async def unknown_manifest_differences(self) -> list[LakeDifference]:
        description = "no delivery of this installation wrote it"
        editions = await self._landings.find_or_begin_log_editions(self._route, _ANY)
        differences = []
        for name in sorted(self._listed):
            numbers = names.parse_record_range(name)
            is_known = numbers is None or numbers[0] in editions
            kind = FOREIGN if is_known else EDITION
            differences.append(LakeDifference(kind, name, description))
        return differences

    def can_be_delivery_in_progress(self, difference: LakeDifference, log_edition: str) -> bool:
        """
        Return whether the difference may be a delivery that is being written, because its numbers are not
        settled.
        """
        numbers = names.parse_record_range(difference.name) if difference.kind == FOREIGN else None
        return numbers is not None and numbers[0] == log_edition and numbers[1] > self._last


def _manifest_name(landing: LakeDelivery) -> str:
    table = table_for_route(landing.route).name
    return names.manifest_name(landing.edition, landing.first, landing.last, table=table)


def _decode_landing(landing: LakeDelivery) -> ManifestResult:
    name = _manifest_name(landing)
    try:
        return ReadManifest(name, manifest.sha256_hex(landing.body), manifest.decode_manifest(landing.body))
    except ValueError as error:
        return LakeDifference(CONTENT, name, str(error))

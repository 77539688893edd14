"""
The checks of `tollhouse lake verify`: files, a Kafka topic or a ClickHouse table, compared with the
accounting of their deliveries.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import random
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from gateway.cli import exit_with_message
from gateway.cli.output import JsonObject
from spool.record import CURRENCY

if TYPE_CHECKING:
    from exporters.lake.tables import LakeDay, LakeSumsByDay
    from exporters.lake.verification import DateRange, LakeDifference, VerifiedLake
    from exporters.settings import DestinationSettings
    from gateway.cli.operator.client import OperatorClient

T = TypeVar("T")
_TOKENS = ("input_tokens", "output_tokens")
# result of a check of a lake: fields to print, and differences
Verified: TypeAlias = "tuple[JsonObject, Sequence[LakeDifference]]"


@dataclass(frozen=True, kw_only=True)
class RouteAccounting:
    """
    The accounting of a route, fetched before its destination is read. All records with a number less than
    `below` are acknowledged.
    """

    client: OperatorClient
    route: str
    terms: Mapping[str, int]
    below: int

    @classmethod
    def fetch_for_route(cls, client: OperatorClient, route: str) -> RouteAccounting:
        terms = _fetch_accounting_counts(client, route)
        states = client.request("GET", "/routes", query=[("route", route)])["routes"]
        has_begun = states and terms.get("delivered", 0) + terms.get("damaged", 0)
        return cls(client=client, route=route, terms=terms, below=states[0]["progress"] if has_begun else 1)

    def fetch_current_accounting_counts(self) -> Mapping[str, int]:
        return _fetch_accounting_counts(self.client, self.route)

    def has_waiting_records(self) -> bool:
        states = self.client.request("GET", "/routes", query=[("route", self.route)])["routes"]
        return any(state["queued"] for state in states)

    def ledger_totals_by_day(self, first: str, last: str) -> Mapping[str, LakeDay] | None:
        """Return the totals of each UTC day, or None if they may be incomplete."""
        from exporters.lake.tables import LakeDay
        from spool import money

        span = {"per": "daily", "from": first, "to": last, "tz": "UTC", "currency": CURRENCY}
        shown = [("show", name) for name in ("calls", "cost", *_TOKENS)]
        payload = self.client.request("GET", "/report", query=[*span.items(), *shown])
        if payload["report"]["truncated"] or payload["report"]["whole_since"]:
            return None
        return {
            row["period"][:10]: LakeDay(
                row["calls"], money.text_to_units(row["cost"]), *(row[name] for name in _TOKENS)
            )
            for row in payload["rows"]
        }


def compare_with_ledger(
    verified_lake: VerifiedLake, route_accounting: RouteAccounting, sums_by_day: LakeSumsByDay
) -> tuple[VerifiedLake, str]:
    """
    Add the days on which the lake differs from the totals. Also return a text that says how much was compared.
    """
    from exporters.lake.past.log_recount import ledger_differences

    if not sums_by_day.days:
        return verified_lake, "nothing to compare"
    if verified_lake.left:
        return verified_lake, f"not compared: {verified_lake.left} records are only in the lake"
    ledger = route_accounting.ledger_totals_by_day(min(sums_by_day.days), max(sums_by_day.days))
    if (
        ledger is None
        or route_accounting.has_waiting_records()
        or route_accounting.fetch_current_accounting_counts() != route_accounting.terms
    ):
        return (
            verified_lake,
            "not compared: records wait for the lake (tollhouse lake land), or arrived meanwhile",
        )
    began_later = (verified_lake.first or 1) > 1
    differences = ledger_differences(sums_by_day.days, ledger, began_later=began_later)
    return replace(
        verified_lake, differences=[*verified_lake.differences, *differences]
    ), f"{len(sums_by_day.days)} days compared"


def compare_lake_with_log(
    verified_lake: VerifiedLake, route_accounting: RouteAccounting
) -> tuple[VerifiedLake, str]:
    """
    Add differences for deliveries whose rows differ from the log, and for editions (lives of the log) that
    the route never had.

    Also return a text that says how many deliveries were compared.
    """
    from exporters.lake.verification import CONTENT, EDITION, LakeDifference

    differences = list(verified_lake.differences)
    known = set[str]()
    after: int | None = 0
    compared = 0
    destination, _, topic = route_accounting.route.partition("/")
    while after is not None:
        body = {"destination": destination, "topic": topic, "after": after}
        part = route_accounting.client.request("POST", "/lake-repairs", body=body)["recount"]
        for name, message in part["differs"].items():
            differences.append(LakeDifference(CONTENT, name, message))
        known.update(part["editions"])
        compared += part["compared"]
        after = part["after"]
    message = "no record number of this log had this edition"
    unknown = [
        LakeDifference(EDITION, edition, message)
        for edition in verified_lake.editions
        if edition not in known
    ]
    return replace(verified_lake, differences=[*differences, *unknown]), f"{compared} deliveries compared"


def with_accounting_difference(
    verified_lake: VerifiedLake, route_accounting: RouteAccounting
) -> VerifiedLake:
    """
    Add the difference between a lake's manifests and the route's counts of delivered records, if there is
    one.
    """
    from exporters.lake.verification import accounting_difference

    difference = accounting_difference(
        verified_lake,
        route_accounting.route,
        route_accounting.terms,
        route_accounting.fetch_current_accounting_counts(),
    )
    return (
        verified_lake
        if difference is None
        else replace(verified_lake, differences=[*verified_lake.differences, difference])
    )


async def verify_files(
    settings: DestinationSettings,
    route: str,
    level: str,
    dates: DateRange,
    share: float | None = None,
    sums_by_day: LakeSumsByDay | None = None,
) -> VerifiedLake:
    """
    Verify a lake of files. With `share`, reads only that part of the files completely, chosen at random.
    """
    from exporters.destinations.catalogue import destination_secret
    from exporters.lake.destination import open_store
    from exporters.lake.tables import table_for_route
    from exporters.lake.verification import read_manifests, verify_files

    store = open_store(settings, destination_secret(settings))
    table = table_for_route(route).name
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as directory:
        scratch = Path(directory)
        manifests = read_manifests(store, settings.name, scratch, table=table)
        return await verify_files(
            store,
            manifests,
            level=level,
            scratch=scratch,
            dates=dates,
            table=table,
            is_sampled=None if share is None else fraction_sampler(share),
            sums_by_day=sums_by_day,
        )


def fraction_sampler(share: float) -> Callable[[], bool]:
    """
    Return a function that returns True for the fraction `share` of its calls, evenly spaced from a random start.
    """
    position = random()

    def decide_next_item() -> bool:
        nonlocal position
        whole, position = divmod(position + share, 1)
        return bool(whole)

    return decide_next_item


def verify_table(
    settings: DestinationSettings, dates: DateRange, route_accounting: RouteAccounting | None
) -> Verified:
    """Return the state of a ClickHouse table, and its differences."""
    import msgspec

    from exporters.clickhouse.recount import VerifiedTable, recount_table
    from exporters.clickhouse.server import ClickHouseServer
    from exporters.destinations.catalogue import destination_secret
    from spool.clock import SystemClock

    async def recount_configured_table() -> VerifiedTable:
        server = ClickHouseServer(settings, destination_secret(settings), clock=SystemClock())
        try:
            return await recount_table(
                server,
                settings.table,
                below_number=None if route_accounting is None else route_accounting.below,
                dates=dates,
            )
        finally:
            await server.close()

    result = run_or_fail(recount_configured_table())
    editions = [msgspec.structs.asdict(edition) for edition in result.editions]
    return {**asdict(result), "editions": editions}, _differences_with_accounting(
        result.differences, route_accounting, result.settled, result.absent
    )


def verify_kafka_topic(
    settings: DestinationSettings, route: str, route_accounting: RouteAccounting | None, *, reads_all: bool
) -> Verified:
    """Return the route's progress by edition in a Kafka topic, and the differences from the accounting."""
    from exporters.destinations.catalogue import destination_secret
    from exporters.kafka.recount import recount_topic

    secret = destination_secret(settings)
    below = None if route_accounting is None else route_accounting.below
    result = run_or_fail(recount_topic(settings, secret, route, below_number=below, reads_all=reads_all))
    editions = [
        {"edition": edition, "first": newest.first, "last": newest.last}
        for edition, newest in sorted(result.progress.items())
    ]
    fields = {
        "messages": result.messages,
        "settled": result.settled,
        "absent": result.absent,
        "editions": editions,
    }
    return fields, _differences_with_accounting(
        result.differences, route_accounting, result.settled, result.absent or 0
    )


def _differences_with_accounting(
    differences: Sequence[LakeDifference],
    route_accounting: RouteAccounting | None,
    settled_count: int | None,
    absent_count: int,
) -> Sequence[LakeDifference]:
    if route_accounting is None:
        return differences
    from exporters.lake.verification import compare_with_accounting

    return compare_with_accounting(
        differences,
        route_accounting.route,
        settled_count=settled_count,
        absent_count=absent_count,
        counts_before=route_accounting.terms,
        counts_after=route_accounting.fetch_current_accounting_counts(),
    )


def _fetch_accounting_counts(client: OperatorClient, route: str) -> Mapping[str, int]:
    terms: Mapping[str, int] = client.request("GET", "/books")["routes"].get(route, {})
    return terms


def refuse_unsupported_options(type: str, given: Mapping[str, object]) -> None:
    """Exit with code 2 if an option was given that the destination type does not support."""
    for option, value in given.items():
        if value:
            exit_with_message(f"{option} does not apply to destinations of type {type!r}", 2)


def run_or_fail(work: Coroutine[Any, Any, T]) -> T:
    """Run the work and return its result. Exits if the destination or the storage fails."""
    from exporters.errors import SendError
    from spool.errors import OtherSchema, SpoolError

    try:
        return asyncio.run(work)
    except (SendError, SpoolError, ValueError, OSError) as error:
        exit_with_message(str(error), 2 if isinstance(error, OtherSchema) else 1)

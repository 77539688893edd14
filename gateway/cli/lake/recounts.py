"""What `tollhouse lake verify` asks for: the files of a lake, a topic or a table, and the books of their route."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import random
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from gateway.cli import fail
from gateway.cli.output import JsonObject
from spool.record import CURRENCY

if TYPE_CHECKING:
    from exporters.lake.tables import LakeDay, LakeDays
    from exporters.lake.verification import Dates, LakeDifference, VerifiedLake
    from exporters.settings import DestinationSettings
    from gateway.cli.operator.client import OperatorClient

T = TypeVar("T")
_TOKENS = ("input_tokens", "output_tokens")
Verified: TypeAlias = "tuple[JsonObject, Sequence[LakeDifference]]"  # what was found, and how it differs


@dataclass(frozen=True, kw_only=True)
class RouteBooks:
    """The running books of a route before its destination was asked; numbers `below` are settled."""

    client: OperatorClient
    route: str
    terms: Mapping[str, int]
    below: int

    @classmethod
    def of(cls, client: OperatorClient, route: str) -> RouteBooks:
        terms = _terms(client, route)
        states = client.request("GET", "/routes", query=[("route", route)])["routes"]
        has_begun = states and terms.get("delivered", 0) + terms.get("damaged", 0)
        return cls(client=client, route=route, terms=terms, below=states[0]["progress"] if has_begun else 1)

    def now(self) -> Mapping[str, int]:
        return _terms(self.client, self.route)

    def waits(self) -> bool:
        """True if records of the log are not in the lake yet."""
        states = self.client.request("GET", "/routes", query=[("route", self.route)])["routes"]
        return any(state["queued"] for state in states)

    def of_ledger(self, first: str, last: str) -> Mapping[str, LakeDay] | None:
        """Sums of the ledger by days in UTC; None if it may lack records of them."""
        from exporters.lake.tables import LakeDay
        from spool.ledger import money

        asked = {"per": "daily", "from": first, "to": last, "tz": "UTC", "currency": CURRENCY}
        shown = [("show", name) for name in ("calls", "cost", *_TOKENS)]
        payload = self.client.request("GET", "/report", query=[*asked.items(), *shown])
        if payload["report"]["truncated"] or payload["report"]["whole_since"]:
            return None
        return {
            row["period"][:10]: LakeDay(
                row["calls"], money.units(row["cost"]), *(row[name] for name in _TOKENS)
            )
            for row in payload["rows"]
        }


def with_ledger(found: VerifiedLake, books: RouteBooks, days: LakeDays) -> tuple[VerifiedLake, str]:
    """Add the days of a lake that differ from those of the ledger; say whether they were compared."""
    from exporters.lake.past.log_recount import ledger_differs

    if not days.days:
        return found, "nothing to compare"
    if found.left:
        return found, f"not compared: {found.left} records are in the lake alone"
    ledger = books.of_ledger(min(days.days), max(days.days))
    if ledger is None or books.waits() or books.now() != books.terms:
        return found, "not compared: records wait for the lake (tollhouse lake land), or came meanwhile"
    began_later = (found.first or 1) > 1
    differences = ledger_differs(days.days, ledger, began_later=began_later)
    return replace(found, differences=[*found.differences, *differences]), f"{len(days.days)} days compared"


def with_log(found: VerifiedLake, books: RouteBooks) -> tuple[VerifiedLake, str]:
    """
    Add the deliveries whose rows the log gives otherwise now, and editions that the route never had; say how many
    deliveries were compared.
    """
    from exporters.lake.verification import CONTENT, EDITION, LakeDifference

    differences = list(found.differences)
    known = set[str]()
    after: int | None = 0
    compared = 0
    destination, _, topic = books.route.partition("/")
    while after is not None:
        body = {"destination": destination, "topic": topic, "after": after}
        part = books.client.request("POST", "/lake-repairs", body=body)["recount"]
        for name, words in part["differs"].items():
            differences.append(LakeDifference(CONTENT, name, words))
        known.update(part["editions"])
        compared += part["compared"]
        after = part["after"]
    words = "no numbers of this log had this edition"
    unknown = [LakeDifference(EDITION, each, words) for each in found.editions if each not in known]
    return replace(found, differences=[*differences, *unknown]), f"{compared} deliveries compared"


def with_books(found: VerifiedLake, books: RouteBooks) -> VerifiedLake:
    """Add the difference of a lake of files to the books, if there is one."""
    from exporters.lake.verification import books_differ

    difference = books_differ(found, books.route, books.terms, books.now())
    return found if difference is None else replace(found, differences=[*found.differences, difference])


async def verify_files(
    settings: DestinationSettings,
    route: str,
    level: str,
    dates: Dates,
    share: float | None = None,
    days: LakeDays | None = None,
) -> VerifiedLake:
    """Verify a lake of files; with a `share` of them, chosen by chance, whole."""
    from exporters.destinations.catalogue import secret_of
    from exporters.lake.destination import store_of
    from exporters.lake.tables import table_of
    from exporters.lake.verification import read_manifests, verify

    store = store_of(settings, secret_of(settings))
    table = table_of(route).name
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as directory:
        scratch = Path(directory)
        manifests = read_manifests(store, settings.name, scratch, table=table)
        return await verify(
            store,
            manifests,
            level=level,
            scratch=scratch,
            dates=dates,
            table=table,
            is_sampled=None if share is None else sampled(share),
            days=days,
        )


def sampled(share: float) -> Callable[[], bool]:
    """Return what is true for a share of its calls, evenly; chance says for which."""
    position = random()

    def is_next() -> bool:
        nonlocal position
        whole, position = divmod(position + share, 1)
        return bool(whole)

    return is_next


def verified_table(settings: DestinationSettings, dates: Dates, books: RouteBooks | None) -> Verified:
    """Return what a table of ClickHouse has, and how it differs."""
    import msgspec

    from exporters.clickhouse.recount import VerifiedTable, recount
    from exporters.clickhouse.server import ClickHouseServer
    from exporters.destinations.catalogue import secret_of
    from spool.clock import SystemClock

    async def look() -> VerifiedTable:
        server = ClickHouseServer(settings, secret_of(settings), clock=SystemClock())
        try:
            return await recount(
                server, settings.table, below=None if books is None else books.below, dates=dates
            )
        finally:
            await server.close()

    found = result_of(look())
    editions = [msgspec.structs.asdict(each) for each in found.editions]
    return {**asdict(found), "editions": editions}, _compared(
        found.differences, books, found.settled, found.absent
    )


def verified_topic(
    settings: DestinationSettings, route: str, books: RouteBooks | None, *, reads_all: bool
) -> Verified:
    """Return how far a route has come in a topic of Kafka, and how the topic differs."""
    from exporters.destinations.catalogue import secret_of
    from exporters.kafka.recount import recount

    secret = secret_of(settings)
    below = None if books is None else books.below
    found = result_of(recount(settings, secret, route, below=below, reads_all=reads_all))
    editions = [
        {"edition": edition, "first": newest.first, "last": newest.last}
        for edition, newest in sorted(found.progress.items())
    ]
    fields = {
        "messages": found.messages,
        "settled": found.settled,
        "absent": found.absent,
        "editions": editions,
    }
    return fields, _compared(found.differences, books, found.settled, found.absent or 0)


def _compared(
    differences: Sequence[LakeDifference], books: RouteBooks | None, settled: int | None, absent: int
) -> Sequence[LakeDifference]:
    if books is None:
        return differences
    from exporters.lake.verification import compared_with_books

    return compared_with_books(
        differences, books.route, settled=settled, absent=absent, before=books.terms, after=books.now()
    )


def _terms(client: OperatorClient, route: str) -> Mapping[str, int]:
    terms: Mapping[str, int] = client.request("GET", "/books")["routes"].get(route, {})
    return terms


def refuse_options(type: str, given: Mapping[str, object]) -> None:
    """End the command if an option is given that has no meaning for a type."""
    for option, value in given.items():
        if value:
            fail(f"{option} has no meaning for a destination of type {type!r}", 2)


def result_of(work: Coroutine[Any, Any, T]) -> T:
    """Return what work comes to; the command ends if the destination or the storage fails."""
    from exporters.errors import SendError
    from spool.errors import SpoolError

    try:
        return asyncio.run(work)
    except (SendError, SpoolError, ValueError, OSError) as error:
        fail(str(error))

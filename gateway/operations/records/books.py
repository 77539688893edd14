"""
Operator API handlers for the clock, receipts, the accounting, unrecognized items, and conflicting reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from operator import itemgetter
from typing import Any

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.requests.address import OPERATION, call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.clock import SteadyClock, clock_doubts
from spool.log.values import AcceptedTwice, Books
from spool.record import moment
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION, VIEW_RECORDS

Finding = Mapping[str, Any]


class AcceptClock(RequestBody):
    """An empty object."""


def describe_books(books: Books) -> dict[str, object]:
    return {
        "topics": {topic: dict(terms) for topic, terms in books.topics.items()},
        "routes": {route: dict(terms) for route, terms in books.routes.items()},
        "balanced": not books.imbalances,
        "imbalances": list(books.imbalances),
    }


@call("GET", "/clock", VIEW_OPERATION, "Show the time in use, and a step of the clock", shows=OPERATION)
async def show_clock(request: OperatorRequest[SpoolServices, None]) -> Result:
    step_s, held_s = clock_doubts(request.shared.clock)
    return {
        "clock": {
            "now": moment(request.now()),
            "step_s": step_s,
            "held_s": held_s,
        }
    }


@call("POST", "/clock/accept", OPERATE_SPOOL, "Accept the clock after a step", shows=OPERATION)
async def accept_clock(request: OperatorRequest[SpoolServices, AcceptClock]) -> Result:
    """Accept the wall clock now, so that the retention of records follows it again."""
    clock = request.shared.clock
    step_s, held_s = clock_doubts(clock)
    if not isinstance(clock, SteadyClock) or not held_s:
        return {"clock": {"moved_s": 0.0, "was_held_s": 0.0}}
    async with request.audited("clock.accept", "clock", {"step_s": step_s}):
        moved_s = clock.accept_wall_clock()
    return {"clock": {"moved_s": moved_s, "was_held_s": held_s}}


@call("GET", "/receipts/{id}", VIEW_RECORDS, "Show the result of a submission")
async def receipt(request: OperatorRequest[SpoolServices, None]) -> Result:
    fields = await request.services.log.receipt(request.word("id"))
    at = fields.get("at")
    return {"receipt": {**fields, "at": moment(at)} if isinstance(at, float) else dict(fields)}


@call("GET", "/books", VIEW_OPERATION, "Show the running accounting")
async def show_running_books(request: OperatorRequest[SpoolServices, None]) -> Result:
    return describe_books(await request.services.log.books())


@call("GET", "/verify", VIEW_OPERATION, "Recount the accounting")
async def verify(request: OperatorRequest[SpoolServices, None]) -> Result:
    """
    Count commit rows and entries again, without the running counters. Compare all sums of the totals with the stored
    records, and those of days and rollups with the sums from which they were made. `imbalances` names the sums that
    differ, or says that the totals are being counted again, so that they could not be compared.

    `accepted_twice` lists, by topic, records that were accepted although their ids were already known, with
    the first record numbers.
    """
    services = request.services

    async def recounted() -> dict[str, object]:
        books = await services.log.verify()
        compared = await request.whole_ledger.compare(services.log)
        imbalances = [
            *books.imbalances,
            *compared.problem_sentences(),
            *_counted_twice_lines(books.accepted_twice),
        ]
        accepted_twice = {topic: asdict(twice) for topic, twice in books.accepted_twice.items()}
        return {**describe_books(replace(books, imbalances=imbalances)), "accepted_twice": accepted_twice}

    return await request.shared.questions.recount(f"person {request.actor.name}", recounted)


def _counted_twice_lines(twice_by_topic: Mapping[str, AcceptedTwice]) -> Iterator[str]:
    for topic, twice in twice_by_topic.items():
        numbers = ", ".join(map(str, twice.numbers))
        suffix = ", ..." if twice.records > len(twice.numbers) else ""
        yield (
            f"{topic}: records that count twice, because they were accepted although their ids were "
            f'known: {twice.records} (numbers {numbers}{suffix}); "Records that count twice" in '
            "docs/reliability.md says what to do"
        )


def describe_shape(shape: Finding) -> dict[str, object]:
    return {**shape, "last_seen": moment(shape["last_seen"])}


IGNORED: List[Finding] = List(
    root="ignored",
    show=describe_shape,
    identity=Sort(value=lambda shape: "\n".join(shape["names"])),
    sorts={
        "names": Sort(value=lambda shape: "\n".join(shape["names"])),
        "count": Sort(value=lambda shape: shape["count"]),
        "last_seen": Sort(value=lambda shape: shape["last_seen"]),
    },
    default_sort=("last_seen", "desc"),
    filters={"name": Filter(values=lambda shape: shape["names"])},
)

CONFLICTS: List[Finding] = List(
    root="conflicts",
    show=dict,
    identity=Sort(value=lambda pair: "\n".join((pair["topic"], pair["first_source"], pair["second_source"]))),
    sorts={name: Sort(value=itemgetter(name)) for name in ("count", "first_source", "second_source")},
    default_sort=("count", "desc"),
    filters={
        "topic": Filter(values=lambda pair: (pair["topic"],)),
        "first_source": Filter(values=lambda pair: (pair["first_source"],)),
        "second_source": Filter(values=lambda pair: (pair["second_source"],)),
    },
)


@call("GET", "/ignored", VIEW_OPERATION, "List unrecognized AI items", lists=IGNORED)
async def list_ignored(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(IGNORED, MemoryRows(await request.services.log.unrecognised()))


@call("GET", "/conflicts", VIEW_OPERATION, "List conflicting reports", lists=CONFLICTS)
async def list_conflicts(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(CONFLICTS, MemoryRows(await request.services.log.conflicts()))

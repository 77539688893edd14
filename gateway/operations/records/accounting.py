"""
Operator API handlers for the clock, receipts, the accounting, unrecognized items, and conflicting reports.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from operator import itemgetter
from typing import Annotated, Any

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.requests.address import OPERATION, operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.clock import SteadyClock, clock_ahead_and_deletion_delay_s
from spool.log.values import AcceptedTwice, LogAccounting
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION, VIEW_RECORDS

Finding = Mapping[str, Any]


class AcceptClock(RequestBody):
    """The request body, an empty JSON object."""


def describe_books(books: LogAccounting) -> dict[str, object]:
    return {
        "topics": {topic: dict(terms) for topic, terms in books.topics.items()},
        "routes": {route: dict(terms) for route, terms in books.routes.items()},
        "balanced": not books.imbalances,
        "imbalances": list(books.imbalances),
    }


class ServerClock(msgspec.Struct, kw_only=True):
    now: Annotated[str, words("The time that the server uses."), example("2026-11-27T01:45:03.740Z")]
    step_s: Annotated[
        float,
        words("The seconds by which the machine's clock is ahead of `now`; 0 while that clock is accepted."),
        example(0.0),
    ]
    held_s: Annotated[
        float,
        words("The seconds for which a clock step or a long stop still delays the deletion of old records."),
        example(0.0),
    ]


class AcceptedClockStep(msgspec.Struct, kw_only=True):
    moved_s: Annotated[float, words("The accepted step, in seconds."), example(0.0)]
    was_held_s: Annotated[
        float,
        words("The seconds for which the clock step would still have delayed the deletion of old records."),
        example(0.0),
    ]


class ReceiptItem(msgspec.Struct, kw_only=True):
    id: Annotated[
        str, words("The id in the header `Tollhouse-Receipt`."), example("h4e3zduc4mn6qeazpcns6ycgou72ccse")
    ]
    topic: Annotated[str, words("The topic of the records."), example("ai-telemetry")]
    at: Annotated[str, words("When the request was stored."), example("2026-11-27T01:44:40.120Z")]
    received: Annotated[int, words("The number of received items."), example(1)]
    records: Annotated[int, words("The number of records of the request."), example(1)]
    new: Annotated[int, words("The number of new records."), example(1)]
    duplicates: Annotated[int, words("The number of items that were already recorded."), example(0)]
    amended: Annotated[int, words("The number of open records that the request completed."), example(0)]
    ignored: Annotated[dict[str, int], words("The items that are not AI calls, by reason."), example({})]
    rejected: Annotated[dict[str, int], words("The rejected items, by reason."), example({})]
    first_number: Annotated[int | None, words("The number of the first new record, or null."), example(62573)]
    last_number: Annotated[int | None, words("The number of the last new record, or null."), example(62573)]
    state: Annotated[
        str,
        words("`open`, `kept`, `removed` if a record is deleted, or `known` if none is new."),
        example("kept"),
    ]


class BooksAnswer(msgspec.Struct, kw_only=True):
    topics: Annotated[
        dict[str, Any],
        words("The numbers of items by topic and by what happened to them."),
        example(
            {
                "ai-telemetry": {
                    "accepted": 62584,
                    "duplicates": 588,
                    "ignored.not_ai": 1,
                    "ignored.unrecognised_ai": 40,
                    "kept": 62584,
                    "pending": 0,
                    "received": 63213,
                    "unidentified": 1,
                },
                "unit-cost": {"accepted": 7, "kept": 7, "received": 7, "unidentified": 4},
                "usage-events": {"accepted": 1, "kept": 1, "received": 1},
            }
        ),
    ]
    routes: Annotated[
        dict[str, Any],
        words("The numbers of records by route and by what happened to them."),
        example(
            {
                "archive/ai-telemetry": {
                    "before_start": 0,
                    "delivered": 62579,
                    "refused_upstream": 0,
                    "dead": 5,
                    "discarded": 0,
                    "skipped": 0,
                    "damaged": 0,
                    "unknown": 0,
                    "shadow": 0,
                    "unmapped": 0,
                    "by_sync": 0,
                    "queued": 0,
                }
            }
        ),
    ]
    balanced: Annotated[bool, words("Whether all counts add up."), example(True)]
    imbalances: Annotated[list[str], words("The counts that do not add up."), example([])]


class VerifyAnswer(BooksAnswer, kw_only=True):
    accepted_twice: Annotated[
        dict[str, Any],
        words("Records that were accepted although their ids were known, by topic."),
        example({}),
    ]


class IgnoredItem(msgspec.Struct, kw_only=True):
    names: Annotated[
        list[str],
        words("The names in the telemetry."),
        example(["acme.completion.model", "acme.completion.tokens", "acme.prompt.tokens"]),
    ]
    count: Annotated[int, words("The number of ignored items."), example(40)]
    last_seen: Annotated[
        str, words("When the last item with these names arrived."), example("2026-11-27T01:19:36.554Z")
    ]


class ConflictFigures(msgspec.Struct, kw_only=True):
    input_tokens: Annotated[
        int | None, words("The sum of the input tokens that the reports state, or null."), example(1200)
    ]
    output_tokens: Annotated[
        int | None, words("The sum of the output tokens that the reports state, or null."), example(300)
    ]
    cost: Annotated[
        str | None, words("The sum of the costs that the reports state, or null."), example("0.006")
    ]


class ConflictItem(msgspec.Struct, kw_only=True):
    topic: Annotated[str, words("The topic of the records."), example("ai-telemetry")]
    first_source: Annotated[str, words("The source of the first report, which counts."), example("litellm")]
    second_source: Annotated[str, words("The source of the second report."), example("otel")]
    count: Annotated[int, words("The number of calls with this conflict."), example(1)]
    first: Annotated[ConflictFigures, words("The sums of the first report of each call.")]
    second: Annotated[
        ConflictFigures,
        words("The sums of the second report of each call."),
        example({"input_tokens": 1180, "output_tokens": 300, "cost": None}),
    ]
    request_id: Annotated[
        str | None,
        words("The id of a request with this conflict, or null."),
        example("chatcmpl-9J3uIL87gldCFtiIbyaOvTeYBR00"),
    ]


@operator_call(
    "GET",
    "/clock",
    VIEW_OPERATION,
    "Show the time in use, and a step of the clock",
    shows=OPERATION,
    answers=one_field_answer("OneClock", clock=Annotated[ServerClock, words("The clock of the server.")]),
)
async def show_clock(request: OperatorRequest[SpoolServices, None]) -> Result:
    step_s, held_s = clock_ahead_and_deletion_delay_s(request.shared.clock)
    return {"clock": {"now": utc_iso(request.now()), "step_s": step_s, "held_s": held_s}}


@operator_call(
    "POST",
    "/clock/accept",
    OPERATE_SPOOL,
    "Accept the clock after a step",
    shows=OPERATION,
    answers=one_field_answer(
        "AcceptClockAnswer", clock=Annotated[AcceptedClockStep, words("The clock of the server.")]
    ),
)
async def accept_clock(request: OperatorRequest[SpoolServices, AcceptClock]) -> Result:
    """Accept the wall clock now, so that the retention of records follows it again."""
    clock = request.shared.clock
    step_s, held_s = clock_ahead_and_deletion_delay_s(clock)
    if not isinstance(clock, SteadyClock) or not held_s:
        return {"clock": {"moved_s": 0.0, "was_held_s": 0.0}}
    async with request.audited_change("clock.accept", "clock", {"step_s": step_s}):
        moved_s = clock.accept_wall_clock_and_return_change_s()
    return {"clock": {"moved_s": moved_s, "was_held_s": held_s}}


@operator_call(
    "GET",
    "/receipts/{id}",
    VIEW_RECORDS,
    "Show the result of a submission",
    answers=one_field_answer(
        "OneReceipt",
        receipt=Annotated[ReceiptItem, words("The receipt of the request, with the fields below.")],
    ),
)
async def receipt(request: OperatorRequest[SpoolServices, None]) -> Result:
    fields = await request.services.log.describe_receipt(request.path_parameter("id"))
    at = fields.get("at")
    return {"receipt": {**fields, "at": utc_iso(at)} if isinstance(at, float) else dict(fields)}


@operator_call("GET", "/books", VIEW_OPERATION, "Show the running accounting", answers=BooksAnswer)
async def show_running_books(request: OperatorRequest[SpoolServices, None]) -> Result:
    return describe_books(await request.services.log.books())


@operator_call("GET", "/verify", VIEW_OPERATION, "Recount the accounting", answers=VerifyAnswer)
async def verify(request: OperatorRequest[SpoolServices, None]) -> Result:
    """
    Count commit rows and entries again, without the running counters. Compare the stored sums with the
    records, and the coarser sums with those from which they were made. `imbalances` names the sums that
    differ, or says that the totals are being counted again and cannot be compared.

    `accepted_twice` lists, by topic, records that were accepted although their ids were already known, with
    the first record numbers.
    """
    services = request.services

    async def recount_and_compare_books() -> dict[str, object]:
        books = await services.log.verify()
        # whole: this address requires access to all calls
        compared = await request.whole_ledger.compare_and_note_differences(services.log)
        imbalances = [
            *books.imbalances,
            *compared.problem_sentences(),
            *_counted_twice_lines(books.accepted_twice),
        ]
        accepted_twice = {topic: asdict(twice) for topic, twice in books.accepted_twice.items()}
        return {**describe_books(replace(books, imbalances=imbalances)), "accepted_twice": accepted_twice}

    return await request.shared.questions.run_recount(
        f"person {request.actor.name}", recount_and_compare_books
    )


def _counted_twice_lines(twice_by_topic: Mapping[str, AcceptedTwice]) -> Iterator[str]:
    for topic, twice in twice_by_topic.items():
        numbers = ", ".join(map(str, twice.numbers))
        suffix = ", ..." if twice.records > len(twice.numbers) else ""
        yield (
            f"{topic}: records that count twice, because they were accepted although their ids were "
            f'known: {twice.records} (numbers {numbers}{suffix}); "Records that count twice" in '
            "docs/promises/reliability.md says what to do"
        )


def describe_ignored_telemetry_shape(shape: Finding) -> dict[str, object]:
    return {**shape, "last_seen": utc_iso(shape["last_seen"])}


IGNORED: ListDefinition[Finding] = ListDefinition(
    root="ignored",
    show=describe_ignored_telemetry_shape,
    identity=Sort(value=lambda shape: "\n".join(shape["names"])),
    sorts={
        "names": Sort(value=lambda shape: "\n".join(shape["names"])),
        "count": Sort(value=lambda shape: shape["count"]),
        "last_seen": Sort(value=lambda shape: shape["last_seen"]),
    },
    default_sort=("last_seen", "desc"),
    filters={"name": Filter(values=lambda shape: shape["names"])},
)

CONFLICTS: ListDefinition[Finding] = ListDefinition(
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


@operator_call(
    "GET", "/ignored", VIEW_OPERATION, "List unrecognized AI items", lists=IGNORED, item=IgnoredItem
)
async def list_ignored(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list_page(IGNORED, MemoryRows(await request.services.log.unrecognised_items()))


@operator_call(
    "GET", "/conflicts", VIEW_OPERATION, "List conflicting reports", lists=CONFLICTS, item=ConflictItem
)
async def list_conflicting_reports(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list_page(CONFLICTS, MemoryRows(await request.services.log.list_conflicts()))

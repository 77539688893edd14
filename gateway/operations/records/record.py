"""The operator API handler for one stored record: its fields, and the reason for each figure."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from math import inf
from typing import Annotated

import msgspec
from msgspec import UNSET, UnsetType

from gateway.http.requests import Result
from gateway.intake.reasons import explanations_by_field, not_counted_reason, price_line_fields
from gateway.money.costs.times import parse_moment
from gateway.operations.answers import DeadItem, DeliveryItem, StoredRecord
from gateway.operations.money.work_links.declared import stored_unit_links
from gateway.operations.records.dead_letters import describe_dead
from gateway.operations.records.deliveries import describe_delivery
from gateway.operations.records.lake_records import dates_in_range, past_record
from gateway.operations.records.listing import STEP
from gateway.operations.records.newest import visible_records
from gateway.operations.records.published import KeptRecord, describe_place, describe_record
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from gateway.operations.services import OperatorServices
from spool.deliveries.values import DeadLetter, RouteState, UnsettledDelivery
from spool.errors import Invalid, NotThere
from spool.ledger.own_records import first_number_after
from spool.ledger.work import UNITS
from spool.log.planning.corrections import MOST, correction_id
from spool.log.protocols import RecordLog
from spool.log.values import LogEntry
from spool.people import USER, filter_values_of_dimension
from spool.record import TOPICS, Correction, Inference, Record, counted_cost, decimal_text, utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_RECORDS
from spool.turns.fair_turns import pause_for_others
from spool.viewed_people import note_viewed_people

LOOK_BACK_S = 86_400  # seconds to search back for an id that the list of recent ids does not contain
NOT_STORED = (
    "the reports that form the record: their payloads, the attribute of each figure, and which "
    "reports came later",
    "repeated reports of the call, which are only counted",
)

_ID = re.compile(r"[0-9a-f]{32}")
_NO_ID = (
    "this is not the id of a call. An id has 32 characters of 0-9 and a-f; copy it from the list of calls"
)


class FigureReasons(msgspec.Struct, kw_only=True):
    id: Annotated[
        str | UnsetType, words("How the call was recognized."), example("recognized by its response id")
    ] = UNSET
    cost: Annotated[str | UnsetType, words("Where the cost comes from."), example("reported by litellm")] = (
        UNSET
    )
    estimated_cost: Annotated[
        str | UnsetType,
        words("How the estimate was calculated, or why there is none."),
        example("calculated from its tokens with the price list genai-prices-0.2.3-2026-11-27"),
    ] = UNSET
    cost_source: Annotated[
        str | UnsetType,
        words("Whether the reported or the estimated cost counts."),
        example("the reported cost counts"),
    ] = UNSET
    corrections: Annotated[str | UnsetType, words("Why the record is not counted.")] = UNSET
    reason: Annotated[str | UnsetType, words("Why the corrected call is not counted.")] = UNSET
    status: Annotated[str | UnsetType, words("How a call from a cache is counted.")] = UNSET
    shadow: Annotated[str | UnsetType, words("Why the duplicate is not counted.")] = UNSET
    charges: Annotated[str | UnsetType, words("Where costs in other currencies come from.")] = UNSET
    value: Annotated[str | UnsetType, words("What the value of a counter record means.")] = UNSET


class PriceLineItem(msgspec.Struct, kw_only=True):
    of: Annotated[str, words("The quantity that the line prices, such as `input` tokens."), example("input")]
    quantity: Annotated[int | str, words("The quantity that was used."), example(1200)]
    price: Annotated[str, words("The price of the unit."), example("2.5")]
    amount: Annotated[str, words("The product of quantity and price."), example("0.003")]
    per: Annotated[str, words("The quantity that the price is for."), example("million")]


class RecordRoute(msgspec.Struct, kw_only=True):
    route: Annotated[str, words("The route that sends the records."), example("archive/ai-telemetry")]
    state: Annotated[
        str,
        words("The record on the route: `waiting`, `open`, `unknown`, `dead` or `passed`."),
        example("passed"),
    ]
    last_error: Annotated[
        str | None, words("The last error of the record's delivery, or null."), example(None)
    ]


class UnitsOfRecord(msgspec.Struct, kw_only=True):
    session: Annotated[
        str | UnsetType, words("The session of the call."), example("session:3f9c1a2b5d607e84")
    ] = UNSET
    pull_request: Annotated[
        str | UnsetType, words("The pull request of the call."), example("acme/shop#42")
    ] = UNSET
    branch: Annotated[str | UnsetType, words("The Git branch of the call.")] = UNSET
    commit: Annotated[str | UnsetType, words("The Git commit of the call.")] = UNSET
    run: Annotated[str | UnsetType, words("The agent run of the call.")] = UNSET
    repository: Annotated[str | UnsetType, words("The repository of the call.")] = UNSET
    ticket: Annotated[str | UnsetType, words("The ticket of the call.")] = UNSET


class RecordAnswer(msgspec.Struct, kw_only=True):
    record: Annotated[StoredRecord, words("The record, with the fields below.")]
    topic: Annotated[str, words("The topic of the records."), example("ai-telemetry")]
    number: Annotated[
        int | None, words("The record number; null for people with restricted access."), example(62580)
    ]
    committed_at: Annotated[
        str, words("When the record was flushed to disk."), example("2026-11-27T01:44:40.952Z")
    ]
    state: Annotated[str, words("The state of the record: `open` or `closed`."), example("closed")]
    why: Annotated[FigureReasons, words("The reason for each figure.")]
    price_lines: Annotated[list[PriceLineItem], words("The price lines of the estimate.")]
    deliveries: Annotated[
        list[DeliveryItem], words("The deliveries, each with the fields below."), example([])
    ]
    dead: Annotated[list[DeadItem], words("The rejected records."), example([])]
    routes: Annotated[list[RecordRoute], words("The routes, each with the fields below.")]
    work: Annotated[
        UnitsOfRecord, words("The units of work of the call, for costs. Sessions and runs are digests.")
    ]
    not_stored: Annotated[
        list[str],
        words("What Tollhouse does not store about a call."),
        example(
            [
                (
                    "the reports that form the record: their payloads, the attribute of "
                    "each figure, and which reports came later"
                ),
                "repeated reports of the call, which are only counted",
            ]
        ),
    ]
    corrections: Annotated[
        list[StoredRecord] | UnsetType, words("The corrections, each with the fields below.")
    ] = UNSET
    corrected_cost: Annotated[str | UnsetType, words("The cost after all corrections.")] = UNSET


@operator_call(
    "GET",
    "/records/{id}",
    VIEW_RECORDS,
    "Show a stored record and the reason for each figure",
    optional=("since",),
    shows=SLICED,
    answers=RecordAnswer,
)
async def show_record(request: OperatorRequest[OperatorServices, None]) -> Result:
    """
    Show a record. Refusal 404 if it is no longer stored; the message states how far was searched.

    People with restricted access get the record without its deliveries.
    """
    services = request.services
    word = request.path_parameter("id").lower()
    if not _ID.fullmatch(word):
        raise Invalid(_NO_ID)
    since = request.now() - LOOK_BACK_S
    if "since" in request.http.query:
        since = parse_moment("since", request.http.query["since"]).timestamp()
    id = bytes.fromhex(word)
    stored = await _find_recent(services.spool.log, id) or await _find_in_span(
        services.spool.log, id, since, inf
    )
    if stored is None and "since" in request.http.query:
        days = dates_in_range(since, request.now())
        stored = await past_record(request, services.spool, id, days)
    stored = None if stored is None else next(visible_records(request, [stored]), None)
    if request.has_limited_data_access and stored is not None and stored.committed_at < since:
        # the record is hidden, because other people's calls decide whether the list of recent ids still
        # has its id
        stored = None
    if stored is None:
        raise NotThere(
            f"no record with this id was stored since {utc_iso(since)}, and it is not among the recent "
            "ids: it may have been deleted after spool.retention, or be older; search further back "
            "with since"
        )
    note_viewed_people({USER: filter_values_of_dimension(USER, stored.value_for_filters)})
    book = await asyncio.to_thread(services.money.prices)
    corrections = await _find_corrections(request, services.spool.log, stored.record)
    digests, links = request.definitions.digests, stored_unit_links(request.shared.registry)
    shown = {
        "record": describe_record(stored.record),
        **describe_place(stored),
        "work": {name: value for name in UNITS if (value := stored.unit_values(name, digests, links)[-1])},
        "why": explanations_by_field(stored.record, book) | _reason_corrections_are_not_counted(corrections),
        "price_lines": price_line_fields(stored.record, book),
        **_correction_fields(corrections),
    }
    # deliveries are left out, because they also contain other people's records
    if request.has_limited_data_access:
        return {**shown, "deliveries": [], "dead": [], "routes": [], "not_stored": list(NOT_STORED)}
    held = [
        delivery
        for delivery in await services.spool.deliveries.unsettled_deliveries()
        if _contains_record(delivery, stored)
    ]
    dead = [
        letter
        for letter in await services.spool.deliveries.dead_letters()
        if (letter.topic, letter.number) == (stored.topic, stored.number)
    ]
    routes = await services.spool.deliveries.route_states()
    return {
        **shown,
        "deliveries": [describe_delivery(delivery) for delivery in held],
        "dead": [describe_dead(letter) for letter in dead],
        "routes": [
            _route_progress(route, stored, held, dead) for route in routes if route.topic == stored.topic
        ],
        "not_stored": list(NOT_STORED),
    }


async def _find_corrections(
    request: OperatorRequest[OperatorServices, None], record_log: RecordLog, record: Record
) -> list[Correction]:
    """Return the corrections of a call, oldest first. Most calls have none."""
    corrections: list[Correction] = []
    while len(corrections) < MOST and isinstance(record, Inference):
        stored = await _find_recent(record_log, correction_id(record.id, len(corrections) + 1))
        if (
            stored is None
            or next(visible_records(request, [stored]), None) is None
            or not isinstance(stored.record, Correction)
        ):
            break
        corrections.append(stored.record)
    return corrections


def _reason_corrections_are_not_counted(corrections: Sequence[Correction]) -> dict[str, str]:
    counted_by = corrections[-1].after.counted_by if corrections else None
    return {} if counted_by is None else {"corrections": not_counted_reason(counted_by)}


def _correction_fields(corrections: Sequence[Correction]) -> dict[str, object]:
    if not corrections:
        return {}
    return {
        "corrections": [describe_record(correction) for correction in corrections],
        "corrected_cost": decimal_text(counted_cost(corrections[-1].after)),
    }


async def _find_recent(record_log: RecordLog, id: bytes) -> KeptRecord | None:
    known = record_log.find_id_position(id)
    if known is None:
        return None
    if known.place is None:
        return await _find_in_span(record_log, id, known.since, known.until)
    topic, number = known.place
    entries = await record_log.read(topic, number, number, includes_open_records=True)
    return next((stored for stored in _records_with_id(record_log, entries, id)), None)


async def _find_in_span(record_log: RecordLog, id: bytes, since: float, until: float) -> KeptRecord | None:
    for topic in TOPICS:
        below = record_log.next_number(topic)
        last = below - 1 if until == inf else await first_number_after(record_log, topic, until, below) - 1
        while last > 0:
            entries = await record_log.read(topic, max(1, last - STEP + 1), last, includes_open_records=True)
            for stored in _records_with_id(record_log, entries, id):
                return stored
            if not entries or entries[0].committed_at < since:
                break
            last = entries[0].first - 1
            await pause_for_others()
    return None


def _records_with_id(record_log: RecordLog, entries: Sequence[LogEntry], id: bytes) -> Iterator[KeptRecord]:
    for entry in reversed(entries):
        for number, record in reversed(list(enumerate(entry.records, entry.first))):
            if record is not None and record.id == id:
                is_open = number >= record_log.lowest_open_number(entry.topic)
                yield KeptRecord(entry.topic, number, entry.committed_at, is_open, record)


def _route_progress(
    route: RouteState,
    stored_record: KeptRecord,
    unsettled_deliveries: Sequence[UnsettledDelivery],
    dead: Sequence[DeadLetter],
) -> dict[str, object]:
    """
    Return the state of a record on a route. `passed`: it is in an accepted delivery (perhaps rejected from
    it), or is older than the route.
    """
    delivery = next((delivery for delivery in unsettled_deliveries if delivery.route == route.name), None)
    if delivery is not None:
        return {"route": route.name, "state": delivery.state, "last_error": delivery.last_error}
    letter = next((letter for letter in dead if letter.route == route.name), None)
    if letter is not None:
        return {"route": route.name, "state": "dead", "last_error": letter.error}
    state = "passed" if stored_record.number < route.progress else "waiting"
    return {"route": route.name, "state": state, "last_error": None}


def _contains_record(delivery: UnsettledDelivery, stored_record: KeptRecord) -> bool:
    of_topic = delivery.route.rpartition("/")[2] == stored_record.topic
    return of_topic and delivery.first <= stored_record.number <= delivery.last

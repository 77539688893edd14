"""Records as operator API lists show them, closed and open. They have no content, because none is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Any

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.lists import Filter, ListDefinition, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import SpoolServices
from gateway.operations.money.work_links.declared import stored_unit_links
from gateway.operations.records import published as records
from gateway.operations.records.filters import (
    AMOUNTS,
    DATE,
    FIELDS,
    MAX_LIMIT,
    OPEN_SETS,
    STATE,
    TOPIC,
    VIEW,
    day_and_month,
    parse_bound,
    period_start,
)
from gateway.operations.records.published import (
    STATES,
    KeptRecord,
    SearchedRecords,
    describe_stored,
    newest_records_of_topics,
)
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.ledger.own_records import SliceRecord
from spool.ledger.work import SESSION, UNITS
from spool.ledger.work_links import BRANCH
from spool.people import filter_values_of_dimension
from spool.record import AI_TELEMETRY, TOPICS, Record
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_RECORDS

RATE_S = 60.0
MOST_SOURCES = 50


def _value_filter(name: str) -> Filter[KeptRecord]:
    return Filter(
        values=lambda stored: filter_values_of_dimension(name, stored.value_for_filters),
        is_open=name in OPEN_SETS,
        names_people=True,
    )


def _work_unit_filter(name: str) -> Filter[KeptRecord]:
    return Filter(is_open=True, names_people=name in (SESSION, BRANCH))


def _amount_filter(name: str) -> Filter[KeptRecord]:
    def is_amount_within_bound(stored_record: KeptRecord, text: str) -> bool:
        amount = AMOUNTS[name](stored_record.record)
        return amount is not None and parse_bound(name, text)(amount)

    return Filter(holds=is_amount_within_bound)


_PLACE: Sort[KeptRecord] = Sort(value=lambda stored: stored.commit_order_key)
RECORDS: ListDefinition[KeptRecord] = ListDefinition(
    root="records",
    shows_people=True,
    show=describe_stored,
    identity=_PLACE,
    sorts={"number": _PLACE, "start_time": Sort(value=lambda stored: stored.record.start_time)},
    default_sort=("number", "desc"),
    filters={
        "id": Filter(values=lambda stored: (stored.record.id.hex(),), is_open=True),
        **{name: _value_filter(name) for name in FIELDS},
        # the filters have no effect here, because `record_list_with_current_filters` applies them
        **{name: _work_unit_filter(name) for name in UNITS},
        TOPIC: Filter(values=lambda stored: (stored.topic,), valid_values=TOPICS),
        STATE: Filter(values=lambda stored: (stored.state,), valid_values=STATES),
        DATE: Filter(
            values=lambda stored: day_and_month(stored.record.start_time, stored.committed_at), is_open=True
        ),
        **{name: _amount_filter(name) for name in AMOUNTS},
        VIEW: Filter(),  # the filter has no effect here, because `record_list_with_current_filters` applies it
    },
    max_limit=MAX_LIMIT,
    beside={"looked_through": SearchedRecords},
)


async def record_list_with_current_filters(
    request: OperatorRequest[Any, None], list_definition: ListDefinition[KeptRecord] = RECORDS
) -> ListDefinition[KeptRecord]:
    """
    Return the list with filters for the current views, tags and published dimensions. `!` after a dimension
    excludes values. Refusal 400 for an unknown or broken view, or an invalid date or bound.
    """
    for word in request.http.query.getall(DATE, ()):
        period_start(word)
    for name in AMOUNTS:
        for word in request.http.query.getall(name, ()):
            parse_bound(name, word)
    visible = await request.cost_reader.read_visibility()
    view = cache(lambda word: request.cost_reader.find_view_among(word, visible))
    for word in request.http.query.getall("view", ()):
        view(word)
    derived = {dimension.name: dimension for dimension in request.definitions.derived_dimensions()}

    def unit_values(stored_record: KeptRecord, name: str) -> tuple[str, ...]:
        return stored_record.unit_values(
            name, request.definitions.digests, stored_unit_links(request.shared.registry)
        )

    def dimension_value_in_totals(stored_record: KeptRecord, name: str) -> str:
        if name in UNITS:
            return unit_values(stored_record, name)[-1]
        dimension = derived.get(name)
        if dimension is None:
            return stored_record.dimension_value_in_totals(name)
        return dimension.value(tuple(map(stored_record.dimension_value_in_totals, dimension.sources)))

    holds: Filter[KeptRecord] = Filter(
        holds=lambda stored, word: view(word).has_call(partial(dimension_value_in_totals, stored))
    )

    def dimension_filter(name: str) -> Filter[KeptRecord]:
        if name in UNITS:
            return replace(_work_unit_filter(name), values=lambda stored: unit_values(stored, name))
        return Filter(
            values=lambda stored: filter_values_of_dimension(
                name, partial(dimension_value_in_totals, stored)
            ),
            names_people=True,
        )

    named = await request.cost_reader.visible_dimensions(includes_work_units=True)
    filters = {
        name: dimension_filter(name) for name in named if name in UNITS or name not in list_definition.filters
    }
    out = {f"{name}!": replace(dimension_filter(name), excludes=True) for name in named}
    return replace(list_definition, filters={**list_definition.filters, **filters, **out, "view": holds})


class SourceRate(msgspec.Struct, kw_only=True):
    topic: Annotated[str, words("The topic of the records."), example("ai-telemetry")]
    source: Annotated[str, words("The product or gateway that reported the calls."), example("litellm")]
    records: Annotated[int, words("The number of records in the time."), example(6)]
    per_s: Annotated[float, words("The number of records per second."), example(0.1)]


class RecentRates(msgspec.Struct, kw_only=True):
    seconds: Annotated[float, words("The length of the time in seconds."), example(60.0)]
    records: Annotated[int, words("The number of records in the time."), example(17)]
    sources: Annotated[list[SourceRate], words("The products and gateways that report.")]


@operator_call(
    "GET",
    "/rates",
    VIEW_RECORDS,
    "Show the records per source in the last minute",
    shows=SLICED,
    answers=one_field_answer(
        "RatesAnswer", rates=Annotated[RecentRates, words("The records per source in the last minute.")]
    ),
)
async def show_rates(request: OperatorRequest[SpoolServices, None]) -> Result:
    """
    Count the records that each source committed in the last minute, or in the part of it that was searched.
    """
    newest_records, until = (
        await newest_visible_records(request, request.services),
        _counted_until(request, request.services),
    )
    seconds = RATE_S
    if len(newest_records) == records.LOOKED_THROUGH:
        seconds = min(RATE_S, max(1.0, until - newest_records[-1].committed_at))
    counts = Counter(
        (stored.topic, stored.record.source)
        for stored in newest_records
        if until - seconds < stored.committed_at <= until
    )
    sources = [
        {"topic": topic, "source": source, "records": count, "per_s": round(count / seconds, 3)}
        for (topic, source), count in counts.most_common(MOST_SOURCES)
    ]
    return {"rates": {"seconds": seconds, "records": counts.total(), "sources": sources}}


async def newest_visible_records(
    request: OperatorRequest[Any, Any], spool: SpoolServices, topics: Sequence[str] = TOPICS
) -> Sequence[KeptRecord]:
    """
    Return the newest records of some topics that the person may see, newest commit first.

    The search covers at most records.LOOKED_THROUGH records. For a person with restricted access, it covers
    the person's own calls of the last `own_records.LOOK_BACK_S`.
    """
    if not request.has_limited_data_access:
        return await newest_records_of_topics(spool.log, topics)
    if not request.rights.slice.parts:
        return []
    stored_records = await spool.own_records.newest_calls(
        request.rights.slice,
        call_visibility_test(request),
        dimensions=request.definitions.derived_dimensions(),
        max_records=records.LOOKED_THROUGH,
    )
    return list(map(to_kept_record, stored_records))


def to_kept_record(row: SliceRecord) -> KeptRecord:
    return KeptRecord(
        AI_TELEMETRY, row.number, row.committed_at, False, row.unpack_record(), is_number_shown=False
    )


def call_visibility_test(request: OperatorRequest[Any, Any]) -> Callable[[Record], bool]:
    """Return a test of closed calls that is True for calls that the person may see."""
    ledger = request.ledger
    return lambda record: ledger.has_call(
        KeptRecord(AI_TELEMETRY, 0, 0.0, False, record).dimension_value_in_totals
    )


def visible_records(
    request: OperatorRequest[Any, Any], stored_records: Iterable[KeptRecord]
) -> Iterator[KeptRecord]:
    """
    Yield the records that the person may see, in the form that this person sees.

    People with restricted access see only calls that match their roles. They see no open records, because a
    later report may still change whose call it is. They see no record numbers, because gaps would reveal how
    many records other people have.
    """
    if not request.has_limited_data_access:
        yield from stored_records
        return
    is_own = call_visibility_test(request)
    for stored in stored_records:
        if stored.topic == AI_TELEMETRY and not stored.is_open and is_own(stored.record):
            yield replace(stored, is_number_shown=False)


def _counted_until(request: OperatorRequest[Any, Any], spool: SpoolServices) -> float:
    """
    Return the time until which records are counted: now, or for people who see no open records, the time
    before which all are closed.
    """
    now = request.now()
    return now - spool.hold_s() if request.has_limited_data_access else now

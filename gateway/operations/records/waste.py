"""The operator API handler for the waste of one session: each lane call by call, judged from stored records."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import msgspec

from gateway.http.requests import Result
from gateway.money.waste.judging import GROUPS, Judge, JudgedCall
from gateway.money.waste.lane import Lane, group_by_lane, lane_fields_by_source, lane_of_call
from gateway.operations.money.costs.questions import ONE_SPAN, read_time_range
from gateway.operations.money.work_links.declared import stored_unit_links
from gateway.operations.records.listing import RankedRows
from gateway.operations.records.published import KeptRecord, SearchedRecords
from gateway.operations.requests.address import SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest
from gateway.operations.services import OperatorServices
from spool import money
from spool.errors import NotThere
from spool.ledger.work import SESSION
from spool.people import USER, filter_values_of_dimension
from spool.record import AI_TELEMETRY, NS, Correction, Inference, rfc3339
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import VIEW_RECORDS
from spool.viewed_people import note_viewed_people

MOST_CALLS = 1000  # calls that an answer lists, the last ones, so that an answer stays small
# Seconds after which a call that read a cache is known, because its report may arrive later than that of others
KNOWN_AFTER_S = 3600


class WastePart(msgspec.Struct, kw_only=True):
    kind: Annotated[str, words("The class, such as `break` or `pause`."), example("break")]
    group: Annotated[
        str, words("`avoidable` is waste. `choice` and `provider` stand next to it."), example("avoidable")
    ]
    tokens: Annotated[
        int | None,
        words(
            "The tokens that were paid again. Null for `repeated` and `uncached`, which compare whole calls."
        ),
        example(16500),
    ]
    amount: Annotated[str, words("What these tokens cost more, in US dollars."), example("0.056925")]
    formula: Annotated[
        str,
        words("How the tokens follow from the counts."),
        example("24,500 cached tokens were alive, 8,000 were read"),
    ]


class CallWaste(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the call's record."), example("f2a3980ffe64e0cc58240adccc936900")]
    lane: Annotated[
        str | None,
        words("The conversation of the call: its source, and what tells it from others of the session."),
        example("claude_code repl_main_thread"),
    ]
    start_time: Annotated[str | None, words("When the call began."), example("2026-11-27T01:43:08Z")]
    model: Annotated[str | None, words("The model of the call."), example("claude-sonnet-4-5")]
    input_tokens: Annotated[int | None, words("The number of input tokens."), example(30000)]
    cache_read_tokens: Annotated[int | None, words("The tokens read from the cache."), example(8000)]
    cache_write_tokens: Annotated[int | None, words("The tokens written to the cache."), example(22000)]
    cost: Annotated[
        str,
        words("The cost: the sum of `useful`, the amounts of `parts`, and `not_judged`."),
        example("0.0924"),
    ]
    useful: Annotated[str, words("The useful part of the cost."), example("0.035475")]
    not_judged: Annotated[str, words("The part of the cost that is not judged."), example("0")]
    reason: Annotated[str | None, words("Why a part is not judged, or null."), example(None)]
    parts: Annotated[list[WastePart], words("The parts of the cost that were paid again.")]


class SessionWaste(msgspec.Struct, kw_only=True):
    session: Annotated[str, words("The session, as its digest."), example("session:3f9c1a2b5d607e84")]
    calls: Annotated[int, words("The number of calls that were judged."), example(4)]
    cost: Annotated[str, words("The cost of the calls."), example("0.0924")]
    useful: Annotated[str, words("The useful part of the cost."), example("0.035475")]
    not_judged: Annotated[str, words("The part of the cost that is not judged."), example("0")]
    amounts: Annotated[
        dict[str, str], words("The amount of each class that occurred."), example({"break": "0.056925"})
    ]


class WasteAnswer(msgspec.Struct, kw_only=True):
    waste: Annotated[SessionWaste, words("The sums of the session's calls.")]
    calls: Annotated[list[CallWaste], words("The calls, lane by lane; of more than 1,000, the last ones.")]
    looked_through: Annotated[SearchedRecords, words("How many records were searched.")]


@operator_call(
    "GET",
    "/work/session/{id}/waste",
    VIEW_RECORDS,
    "Show which part of a session's cost was paid again, call by call",
    optional=ONE_SPAN,
    shows=SLICED,
    in_turn=True,
    answers=WasteAnswer,
)
async def show_waste(request: OperatorRequest[OperatorServices, None]) -> Result:
    """
    Judge the stored calls of a session, by default of the last seven days.

    Of a person with restricted access, only the own calls are judged, so it is unknown whether others read a cache.
    """
    id = request.path_parameter("id")
    since, until, _ = read_time_range(request.http.query, request.now(), default="last_7d")
    digests, links = request.definitions.digests, stored_unit_links(request.shared.registry)
    fields = lane_fields_by_source(request.services.money.sources())
    own, others = _Calls(), _Calls()

    def add_record(stored: KeptRecord) -> None:
        if isinstance(stored.record, Inference | Correction):
            is_own = id in stored.unit_values(SESSION, digests, links)
            (own if is_own else others).add(stored)
            if is_own:
                note_viewed_people({USER: filter_values_of_dimension(USER, stored.value_for_filters)})

    of_records: OperatorRequest[Any, None] = request
    rows = RankedRows(replace(of_records, services=request.services.spool))
    await rows.search(since.timestamp(), until.timestamp(), (AI_TELEMETRY,), add_record)
    if not own.latest():
        raise NotThere("no stored call of this session is in this time; choose another period")
    book = await asyncio.to_thread(request.services.money.prices)
    searched = rows.beside["looked_through"]
    assert isinstance(searched, Mapping)
    judge = Judge(
        estimate=book.estimate_record,
        known_until=int(min(until.timestamp(), request.now() - KNOWN_AFTER_S) * NS),
        knows_all=not request.has_limited_data_access and searched["records"] < searched["most"],
    )
    judged = await asyncio.to_thread(_judge_session, judge, own.latest(), others.readers(), fields)
    digest = digests.to_digest(SESSION, id)
    return {**(await asyncio.to_thread(_describe, digest, judged, fields)), **rows.beside}


class _Calls:
    """Calls as their last correction has them. Records come with the newest first."""

    def __init__(self) -> None:
        self._calls: dict[bytes, Inference] = {}

    def add(self, stored_record: KeptRecord) -> None:
        record = stored_record.record
        if isinstance(record, Correction):
            self._calls.setdefault(record.corrects, record.after)
        elif isinstance(record, Inference):
            self._calls.setdefault(record.id, record)

    def latest(self) -> Sequence[Inference]:
        return [call for call in self._calls.values() if not call.shadow]

    def readers(self) -> Sequence[Inference]:
        return [call for call in self.latest() if call.cache_read_tokens]


def _judge_session(
    judge: Judge,
    calls: Iterable[Inference],
    readers: Sequence[Inference],
    fields_by_source: Mapping[str, Sequence[str]],
) -> Sequence[JudgedCall]:
    """Judge a session's calls. The calls of others only show what they read of its caches."""
    lanes: Mapping[Lane | None, Sequence[Inference]] = group_by_lane(calls, fields_by_source)
    ordered = sorted(lanes.items(), key=lambda each: (each[0] is None, each[1][0].start_time or 0))
    return list(judge.judge(dict(ordered), others=readers))


def _describe(
    session: str, judged: Sequence[JudgedCall], fields_by_source: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    amounts = Counter[str]()
    for each in judged:
        amounts.update(each.amounts)
    return {
        "waste": {
            "session": session,
            "calls": len(judged),
            "cost": money.units_to_text(sum(each.cost for each in judged)),
            "useful": money.units_to_text(sum(each.useful for each in judged)),
            "not_judged": money.units_to_text(sum(each.not_judged for each in judged)),
            "amounts": {name: money.units_to_text(amounts[name]) for name in GROUPS if amounts[name]},
        },
        "calls": [
            _describe_call(each, lane_of_call(each.call, fields_by_source)) for each in judged[-MOST_CALLS:]
        ],
    }


def _describe_call(judged: JudgedCall, lane: Lane | None) -> dict[str, Any]:
    call = judged.call
    return {
        "id": call.id.hex(),
        "lane": None
        if lane is None
        else " ".join(value for value in lane if value not in ("", call.session)),
        "start_time": rfc3339(call.start_time),
        "model": call.response_model or call.request_model,
        "input_tokens": call.input_tokens,
        "cache_read_tokens": call.cache_read_tokens,
        "cache_write_tokens": call.cache_write_tokens,
        "cost": money.units_to_text(judged.cost),
        "useful": money.units_to_text(judged.useful),
        "not_judged": money.units_to_text(judged.not_judged),
        "reason": judged.reason,
        "parts": [
            {
                "kind": name,
                "group": GROUPS[name],
                "tokens": judged.tokens.get(name),
                "amount": money.units_to_text(amount),
                "formula": judged.formula(name),
            }
            for name, amount in judged.amounts.items()
        ],
    }

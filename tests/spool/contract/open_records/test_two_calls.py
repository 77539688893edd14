"""
Calls that resemble each other: equal counts, ends within seconds, one session or process. Reports of two calls never
become one record, whatever their order.
"""

from __future__ import annotations

from itertools import permutations
from random import Random
from typing import Any

import pytest

from spool.identity import (
    AS_ASSISTANT,
    AS_GATEWAY,
    build_nested_report,
    build_relayed_report,
    call_identity,
    caller_and_server_link_keys,
    dedup_keys_of_request_id,
    with_dedup_keys_and_links,
)
from spool.record import NS, Correction, Inference
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import NOON, add, assert_books_balance, call, everything
from tests.spool.contract.open_records.test_bridging import Report, calls, report

START = int(NOON) * NS


def _id(prefix: str, order: int, number: int) -> str:
    return f"{prefix}01AbCdEfGhIjKl{order:04}{number}"


def _call(order: int, **fields: Any) -> Inference:
    times = {"start_time": START, "end_time": START + NS}
    record, _ = call(1, **times, session=f"{order:032x}", request_model="claude-haiku-4-5", **fields)
    assert isinstance(record, Inference)
    return record


def of_assistant(order: int, number: int, **fields: Any) -> Report:
    record = _call(order, request_id=_id("req_", order, number), source="claude_code", **fields)
    relay = build_relayed_report(record, record.session, report_kind=AS_ASSISTANT, states_request_id=True)
    return record, call_identity(record, response_id=record.request_id)._replace(relay=relay)


def of_gateway(order: int, number: int, *, names_request: bool = False, **fields: Any) -> Report:
    record = _call(order, request_id=_id("msg_", order, number), source="litellm", **fields)
    relay = build_relayed_report(
        record, record.session, report_kind=AS_GATEWAY, states_request_id=names_request
    )
    if not names_request:
        return record, call_identity(record, response_id=record.request_id)._replace(relay=relay)
    record.request_id = f"call {order} of an attempt {number}"
    also = dedup_keys_of_request_id(record, _id("req_", order, number))
    return record, with_dedup_keys_and_links(
        call_identity(record, shared_id=record.request_id), also, (), (), relay=relay
    )


def of_provider(order: int, number: int) -> Report:
    record = _call(order, request_id=_id("msg_", order, number), source="claude_platform")
    also = dedup_keys_of_request_id(record, _id("req_", order, number))
    return record, with_dedup_keys_and_links(
        call_identity(record, response_id=record.request_id), also, (), ()
    )


def named(one: Report, id: bytes) -> Report:
    """Return a report whose record has the id of its identity, as the readers set it."""
    record, known_as = one
    record.id = id
    return record, known_as


async def _told(log: Any, clock: MovedClock, reports: list[Report], wait_s: float) -> None:
    for record, known_as in reports:
        await add(log, named((record, known_as), known_as.id))
        clock.move(wait_s)


@pytest.mark.rule
@pytest.mark.parametrize("wait_s", [0, 20])
async def test_equal_calls_of_a_session_stay_apart(
    open_spool: Opener, clock: MovedClock, wait_s: float
) -> None:
    """The assistant's report may join the gateway's report of the other call, but the provider's ids keep two calls."""
    log = (await open_spool(hold=10)).log
    random = Random(61)
    for order in range(40):
        before = await calls(log)
        reports = [kind(order, n) for kind in (of_assistant, of_gateway, of_provider) for n in (1, 2)]
        random.shuffle(reports)
        await _told(log, clock, reports, wait_s)
        clock.move(11)
        assert 2 <= await calls(log) - before <= 3, [known_as.id for _, known_as in reports]
    await assert_books_balance(log)


@pytest.mark.rule
async def test_failures_with_other_request_ids_stay_apart(open_spool: Opener, clock: MovedClock) -> None:
    """
    Failures with different request ids stay separate: if both reports of a failure state the id of the request,
    only equal ids join them.
    """
    log = (await open_spool(hold=10)).log
    none: dict[str, Any] = {"status": "error", "input_tokens": None, "output_tokens": None}
    for order in range(6):
        before = await calls(log)
        reports = [of_assistant(order, n, **none) for n in (1, 2)]
        reports += [of_gateway(order, n, names_request=True, **none) for n in (1, 2)]
        Random(order).shuffle(reports)
        await _told(log, clock, reports, 0)
        clock.move(11)
        assert 2 == await calls(log) - before


@pytest.mark.rule
@pytest.mark.parametrize("wait_s", [0, 20])
async def test_equal_calls_of_a_trace_stay_apart(
    open_spool: Opener, clock: MovedClock, wait_s: float
) -> None:
    """Two calls at the same time: an SDK's span lies within both, and its parent arrives last."""
    log = (await open_spool(hold=10)).log
    for order, numbers in enumerate(permutations(range(4))):
        before = await calls(log)
        trace = f"{order:032}"
        reports = []
        for number, (start, end) in enumerate([(0, 2), (0.5, 3)]):
            around, inner = f"{number:016}", f"{number + 8:016}"
            outcome = "100\x0020"
            maker, answerer = caller_and_server_link_keys(trace, around, outcome)
            for is_inner, (begin, finish) in (
                (False, (start, end)),
                (True, (0.9 + number / 10, 1.5 + number / 5)),
            ):
                record = _call(order, request_id=_id("msg_", order, number) if is_inner else None)
                record.trace_id, record.span_id = trace, inner if is_inner else around
                record.start_time, record.end_time = START + int(begin * NS), START + int(finish * NS)
                record.input_tokens, record.output_tokens = 100, 20
                nesting = build_nested_report(
                    record, [trace], record.start_time, record.end_time, is_inner=is_inner
                )
                identity = call_identity(record, response_id=record.request_id, span=True)
                pair = (answerer, maker) if is_inner else (maker, answerer)
                reports.append((record, with_dedup_keys_and_links(identity, (), (pair,), (), nesting)))
        await _told(log, clock, [reports[number] for number in numbers], wait_s)
        clock.move(11)
        assert 2 <= await calls(log) - before <= 3, numbers
    await assert_books_balance(log)


@pytest.mark.rule
@pytest.mark.parametrize("wait_s", [0, 20])
async def test_a_third_key_joins_no_calls_with_other_counts(
    open_spool: Opener, clock: MovedClock, wait_s: float
) -> None:
    """A holder of another key cannot take back a call of others by naming its id next to that of another call."""
    log = (await open_spool(hold=10)).log
    first, second = b"first of others.", b"second of others"
    await add(log, report(1, first, input_tokens=700, sender_key="gateway"))
    await add(log, report(2, second, input_tokens=900, sender_key="gateway"))
    clock.move(wait_s)
    await add(log, report(3, first, second, input_tokens=1, sender_key="laptop"))
    clock.move(11)
    assert 2 == await calls(log)
    await add(log, report(4, first, second, input_tokens=700, sender_key="gateway"))
    clock.move(11)
    assert 1 == await calls(log)
    await assert_books_balance(log)


@pytest.mark.one_engine
@pytest.mark.parametrize("wait_s", [0, 20])
async def test_a_key_replaces_no_cost_that_another_key_reported(
    open_spool: Opener, clock: MovedClock, wait_s: float
) -> None:
    """The final cost of a gateway replaces the guess of an assistant, and never the cost of another gateway."""
    log = (await open_spool(hold=10)).log
    for number, is_of_assistant in enumerate((True, False)):
        record = _call(number, request_id=_id("msg_", number, 0), cost="7", sender_key="victim")
        relay = build_relayed_report(record, record.session, report_kind=AS_ASSISTANT, states_request_id=True)
        identity = call_identity(record, response_id=record.request_id)._replace(relay=relay)
        record.id = identity.id
        await add(log, (record, identity._replace(is_of_assistant=is_of_assistant)))
    clock.move(wait_s)
    for number in range(2):
        record = _call(number, request_id=_id("msg_", number, 0), cost="1", sender_key="other")
        identity = call_identity(record, response_id=record.request_id)._replace(is_final=True)
        await add(log, (record, identity))
    clock.move(60)
    found = [known for known in await everything(log) if known is not None]
    costs = {known.id: known.cost for known in found if isinstance(known, Inference)}
    costs |= {known.corrects: known.after.cost for known in found if isinstance(known, Correction)}
    assert sorted(map(str, costs.values())) == ["1", "7"]

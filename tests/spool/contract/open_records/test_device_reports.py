"""
A report under a device's own key changes nothing that a server reported about a call. The result is the same in
every order of the reports, whether the record is open or closed, after restarts and on two gateways.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from spool.identity import RecordIdentity, dedup_key_of_response_id
from spool.log.amendments import TOKENS
from spool.log.planning.device_reports import ADDED, DECIDED, OF_RECORD, OWNER
from spool.record import DEVICE_KEYS, NS, Correction, Inference
from spool.settings import SpoolSettings
from tests.moved_clock import MovedClock
from tests.rounds import as_proof, part
from tests.spool.contract.conftest import Opener, open_node
from tests.spool.contract.examples import NOON, Observed, add, assert_books_balance, call, everything
from tests.spool.contract.open_records.test_bridging import Report, calls
from tests.spool.contract.open_records.test_names_told_later import KilledSpool
from tests.spool.ledger.engines import POSTGRES, schemas_of

HOLD_S = 10.0
# What a device may state about each field that a server decides, with a further field that the value needs.
STATED: dict[str, dict[str, Any]] = {
    "start_time": {"start_time": int((NOON - 30) * NS)},
    "end_time": {"end_time": int((NOON + 500) * NS)},
    "provider": {"provider": "openai"},
    "operation": {"operation": "invoke_agent"},
    "request_model": {"request_model": "gpt-4o"},
    "response_model": {"response_model": "gpt-4o-2024-08-06"},
    "input_tokens": {"input_tokens": 9000},
    "output_tokens": {"output_tokens": 9000},
    "cache_read_tokens": {"cache_read_tokens": 50},
    "cache_write_tokens": {"cache_write_tokens": 50},
    "cache_write_1h_tokens": {"cache_write_tokens": 50, "cache_write_1h_tokens": 50},
    "reasoning_tokens": {"reasoning_tokens": 5},
    "cost": {"cost": "777", "cost_source": "reported"},
    "estimated_cost": {"estimated_cost": "777", "cost_source": "estimated", "price_book": "mine"},
    "cost_source": {"cost": "777", "cost_source": "reported"},
    "price_book": {"estimated_cost": "777", "cost_source": "estimated", "price_book": "mine"},
    "status": {"status": "error"},
    "error_type": {"status": "error", "error_type": "rate_limit"},
    "api_key": {"api_key": "production"},
    "region": {"region": "eu-west-1"},
    "meters": {"meters": {"web_searches": 2}},
    "charges": {"charges": {"EUR": "777"}, "cost_source": "reported"},
}
CORRECTED = {
    *TOKENS,
    "cost",
    "estimated_cost",
    "cost_source",
    "price_book",
    "status",
    "error_type",
    "meters",
    "charges",
}
DEVICE: dict[str, Any] = {"sender_key": DEVICE_KEYS, "source": "claude_code"}
SERVER: dict[str, Any] = {"sender_key": "gateway", "source": "kong", "status": "ok"}
UNMEASURED: dict[str, Any] = {"input_tokens": None, "output_tokens": None}


def test_each_field_of_a_call_has_a_rule() -> None:
    """
    Each field of a call has a rule about who decides it. A new field is decided by a server, unless it is listed as
    one of the record or as one that devices add.
    """
    assert STATED.keys() == DECIDED
    named = [*OF_RECORD, *ADDED, "tags", *DECIDED]
    assert sorted(named) == sorted(Inference.__struct_fields__)
    assert set(OWNER) < set(ADDED)


async def counted(log: Any, reported: Report) -> Inference:
    """Return the only call of a report, as its newest correction describes it."""
    id, found = reported[1].id, []
    for record in await everything(log):
        if isinstance(record, Correction) and record.corrects == id:
            found.append(record.after)
        elif isinstance(record, Inference) and record.id == id:
            found.append(record)
    return found[-1]


async def sent(log: Any, clock: MovedClock, reports: Sequence[Report], pause_s: float) -> Inference:
    for each in reports:
        await add(log, each)
        clock.move(pause_s)
    clock.move(HOLD_S + 1)
    return await counted(log, reports[0])


@pytest.mark.rule
@pytest.mark.parametrize("pause_s", [0, HOLD_S + 1], ids=["open", "closed"])
@pytest.mark.parametrize("field", STATED)
async def test_a_server_decides_each_fact(
    open_spool: Opener, clock: MovedClock, field: str, pause_s: float
) -> None:
    """A device cannot state a fact that the server left out, before or after the server's report."""
    log = (await open_spool(hold=HOLD_S)).log
    for number, devices_place in enumerate((0, 1)):
        server, _ = reports = [call(number, **SERVER), call(number, **DEVICE | STATED[field])]
        if devices_place == 0:
            reports.reverse()
        if pause_s and not devices_place and field not in CORRECTED:
            continue  # a closed call changes only if its cost, a count, its status or its run does
        found = await sent(log, clock, reports, pause_s)
        assert getattr(server[0], field) == getattr(found, field), devices_place
        assert (100, 10, "ok", None) == (found.input_tokens, found.output_tokens, found.status, found.cost)
    await assert_books_balance(log)


@pytest.mark.rule
@pytest.mark.parametrize("mark", [{"service_tier": "flex"}, {"processing": "batch"}, {"speed": "fast"}])
async def test_a_device_states_no_tier(open_spool: Opener, clock: MovedClock, mark: dict[str, str]) -> None:
    log = (await open_spool(hold=HOLD_S)).log
    for number, order in enumerate((1, -1)):
        both = [call(number, **SERVER), call(number, **DEVICE, tags={**mark, "repository": "tollhouse"})]
        found = await sent(log, clock, both[::order], 0)
        assert {"repository": "tollhouse"} == found.tags


@pytest.mark.rule
async def test_a_device_states_the_owner_that_no_server_knows(open_spool: Opener, clock: MovedClock) -> None:
    """A server's owner counts in every order. The device's owner counts if no server states one."""
    log = (await open_spool(hold=HOLD_S)).log
    claimed = {"user": "bob", "team": "billing", "session": "s-1", "device": "laptop-1"}
    claimed |= {"request_id": "req_1", "run": "r-1", "parent_run": "r-0"}
    fields = [
        {**SERVER},
        {**DEVICE, **claimed},
        {**SERVER, "user": "ada"},
        {**SERVER, "team": "search", "user": "ada"},
    ]
    for number, order in enumerate(permutations(fields)):
        found = await sent(log, clock, [call(number, **each) for each in order], 0)
        assert ("ada", "search") == (found.user, found.team), order
        assert ("s-1", "laptop-1", "req_1") == (found.session, found.device, found.request_id), order
        assert ("r-1", "r-0") == (found.run, found.parent_run), order


@pytest.mark.rule
async def test_an_agreed_owner_stays(open_spool: Opener, clock: MovedClock) -> None:
    """If a server confirms the owner that a device stated, another server's owner does not replace it."""
    log = (await open_spool(hold=HOLD_S)).log
    first, device, last = {**SERVER, "user": "ada"}, {**DEVICE, "user": "ada"}, {**SERVER, "user": "eve"}
    for number, order in enumerate(([first, device, last], [device, first, last], [first, last, device])):
        assert "ada" == (await sent(log, clock, [call(number, **each) for each in order], 0)).user


@pytest.mark.rule
@pytest.mark.parametrize("pause_s", [0, HOLD_S + 1], ids=["open", "closed"])
async def test_a_call_that_no_server_counted_has_the_counts_of_its_device(
    open_spool: Opener, clock: MovedClock, pause_s: float
) -> None:
    """
    If only a device reported the counts of a call, they are used. The counts of a later server's report replace
    them.
    """
    log = (await open_spool(hold=HOLD_S)).log
    seen = {**SERVER, **UNMEASURED, "request_model": "gpt-4o"}
    device = {**DEVICE, "input_tokens": 7, "output_tokens": 3, "cache_read_tokens": 5}
    for number, order in enumerate(permutations([seen, device])):
        found = await sent(log, clock, [call(number, **each) for each in order], pause_s)
        assert (7, 3, 5) == (found.input_tokens, found.output_tokens, found.cache_read_tokens)
    server = {**SERVER, "request_model": "gpt-4o"}
    for number, order in enumerate(permutations([seen, device, server]), start=10):
        found = await sent(log, clock, [call(number, **each) for each in order], pause_s)
        assert (100, 10, None) == (found.input_tokens, found.output_tokens, found.cache_read_tokens), order
        assert "gpt-4o" == found.request_model
    await assert_books_balance(log)


@pytest.mark.rule
@pytest.mark.parametrize("pause_s", [0, HOLD_S + 1], ids=["open", "closed"])
async def test_devices_fill_the_gaps_of_each_other(
    open_spool: Opener, clock: MovedClock, pause_s: float
) -> None:
    log = (await open_spool(hold=HOLD_S)).log
    reports = [{**DEVICE, "cache_read_tokens": 50}, {**DEVICE, "status": "error", "error_type": "overloaded"}]
    for number, order in enumerate(permutations(reports)):
        found = await sent(log, clock, [call(number, **each) for each in order], pause_s)
        assert (50, "error") == (found.cache_read_tokens, found.status)


@pytest.mark.rule
@pytest.mark.parametrize("pause_s", [0, HOLD_S + 1], ids=["open", "closed"])
async def test_a_device_decides_nothing_when_two_records_become_one(
    open_spool: Opener, clock: MovedClock, pause_s: float
) -> None:
    """A server's report names the records of the device and of another server, in any order."""
    log = (await open_spool(hold=HOLD_S)).log
    for number, order in enumerate(permutations(range(3))):
        one, other = (bytes([number]) + name for name in (b"one", b"other"))
        server, (device, claimed), both = (
            call(10 * number, **SERVER),
            call(10 * number + 1, **DEVICE, cache_read_tokens=50, status="error", user="bob"),
            call(10 * number + 2, **SERVER),
        )
        reports = [
            (server[0], server[1]._replace(also=(one,))),
            (device, claimed._replace(also=(other,))),
            (both[0], both[1]._replace(also=(one, other))),
        ]
        before = await calls(log)
        await sent(log, clock, [reports[each] for each in order], pause_s)
        assert before + 1 == await calls(log), order
        records = [
            await counted(log, each)
            for each in (server, (device, claimed), both)
            if await is_stored(log, each)
        ]
        (found,) = [record for record in records if not record.shadow]
        assert (None, "ok") == (found.cache_read_tokens, found.status), order
        if not pause_s:
            assert found.user == "bob"
    await assert_books_balance(log)


@pytest.mark.rule
@pytest.mark.parametrize("pause_s", [0, HOLD_S + 1], ids=["open", "closed"])
@pytest.mark.parametrize("is_equal", [True, False])
async def test_a_device_makes_no_two_calls_one(
    open_spool: Opener, clock: MovedClock, pause_s: float, *, is_equal: bool
) -> None:
    """A device that knows the ids of two calls reports them as one. Both still count, with the servers' counts."""
    log = (await open_spool(hold=HOLD_S)).log
    for number, order in enumerate(permutations(range(3))):
        answers = [f"msg_{number:020}{each}" for each in range(2)]
        requests = [dedup_key_of_response_id(f"req_{number:020}{each}") for each in range(2)]
        ids = [dedup_key_of_response_id(answer) for answer in answers]
        both = [
            call(1, **SERVER, request_id=answer, input_tokens=100 if is_equal else 100 + each)[0]
            for each, answer in enumerate(answers)
        ]
        claim, _ = call(1, **DEVICE, request_id=answers[0], input_tokens=1)
        records = [*both, claim]
        identities = [
            RecordIdentity(ids[0], also=(requests[0],)),
            RecordIdentity(ids[1], also=(requests[1],)),
            RecordIdentity(ids[0], also=(requests[1],)),
        ]
        for record, known_as in zip(records, identities, strict=True):
            record.id = known_as.id
        reports = list(zip(records, identities, strict=True))
        before = await calls(log)
        await sent(log, clock, [reports[each] for each in order], pause_s)
        assert before + 2 == await calls(log), order
        assert [each.input_tokens for each in both] == [
            (await counted(log, each)).input_tokens for each in reports[:2]
        ]
    await assert_books_balance(log)


async def is_stored(log: Any, reported: Report) -> bool:
    return any(record is not None and record.id == reported[1].id for record in await everything(log))


EVERY_FACT: dict[str, Any] = {name: value for each in STATED.values() for name, value in each.items()}
ALL: list[dict[str, Any]] = [
    {**SERVER, "cache_read_tokens": 20},
    {
        **EVERY_FACT,
        **DEVICE,
        "cost": None,
        "charges": {},
        "user": "bob",
        "session": "s-1",
        "device": "laptop-1",
    },
    {**DEVICE, "status": "error", "tags": {"service_tier": "flex", "repository": "tollhouse"}},
    {**SERVER, "source": "litellm", "user": "ada", "cost": "0.5", "cost_source": "reported"},
]
RESULT: dict[str, Any] = {
    "input_tokens": 100, "output_tokens": 10, "cache_read_tokens": 20, "cache_write_tokens": None, "cost": "0.5",
    "cost_source": "reported", "estimated_cost": None, "status": "ok", "error_type": None, "meters": {},
    "charges": {}, "region": None, "provider": None, "request_model": None,
}  # fmt: skip
WITH_OWNER: dict[str, Any] = {
    "user": "ada",
    "session": "s-1",
    "device": "laptop-1",
    "tags": {"repository": "tollhouse"},
}


ORDERS = list(permutations(ALL))


@pytest.mark.parametrize("pause_s", [0, HOLD_S + 1], ids=["open", "closed"])
@pytest.mark.parametrize("stop", part(["kill", "stop"], every=2))
async def test_a_restart_between_reports_changes_nothing(
    tmp_path: Path, clock: MovedClock, stop: str, pause_s: float
) -> None:
    spool = KilledSpool(tmp_path / "data", clock, hold=HOLD_S)
    await spool.start()
    try:
        for place in range(len(ALL)):
            await spool.tell(*[call(number, **order[place]) for number, order in enumerate(ORDERS)])
            clock.move(pause_s)
            await getattr(spool, stop)()
        clock.move(HOLD_S + 1)
        await judge(spool.opened[-1].log, is_open=not pause_s)
    finally:
        for opened in spool.opened:
            await opened.close()


@pytest.mark.parametrize("pause_s", [0, as_proof(HOLD_S + 1)], ids=["open", "closed"])
async def test_two_gateways_count_the_same(
    request: pytest.FixtureRequest, clock: MovedClock, observed: Observed, pause_s: float
) -> None:
    """
    Two gateways on one database count the same: each report arrives at the other gateway than the report before.
    Half-way, one gateway is replaced.
    """
    schema = schemas_of(POSTGRES, request)()
    settings = SpoolSettings(hold=HOLD_S, retention=120)
    async with AsyncExitStack() as stack:
        nodes = [await open_node(stack, schema, settings, clock, observed) for _ in range(2)]
        for place in range(len(ALL)):
            for number, order in enumerate(ORDERS):
                await add(nodes[(place + number) % 2].log, call(number, **order[place]))
            clock.move(pause_s)
            if place == 1:
                nodes[0] = await open_node(stack, schema, settings, clock, observed)
        clock.move(HOLD_S + 1)
        for node in nodes:
            await node.log.read_foreign_commits()
            await judge(node.log, is_open=not pause_s)


async def judge(log: Any, *, is_open: bool) -> None:
    expected = RESULT | WITH_OWNER if is_open else RESULT
    for number, order in enumerate(ORDERS):
        found = await counted(log, call(number))
        assert expected == {name: getattr(found, name) for name in expected}, order
    await assert_books_balance(log)

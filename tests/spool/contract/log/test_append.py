"""Appending and reading: acknowledged records exist once and in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from decimal import Decimal
from itertools import count, permutations

import pytest

from spool import identity
from spool.errors import NotThere, SpoolUnavailable
from spool.identity import RecordIdentity
from spool.ledger.verdicts import counted_amounts
from spool.log.counted_names import MAX_SHAPES, MAX_TYPES, EventType
from spool.log.protocols import RecordLog
from spool.log.values import Commit, Submission
from spool.record import AI_TELEMETRY, NS, USAGE_EVENTS, Inference, UsageEvent
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG
from tests.spool.contract.conftest import Opener
from tests.spool.contract.examples import (
    NOON,
    Observed,
    add,
    assert_books_balance,
    call,
    entries,
    everything,
    submission,
    topic_terms,
)
from tests.waiting import limited


async def test_what_is_acknowledged_is_read_back(log: RecordLog) -> None:
    """Records are read back unchanged, numbered from 1 without gaps."""
    calls = [call(1, user="ada", tags={"env": "prod"}), call(2, cost="0.25"), call(3, status="error")]

    receipt = await add(log, *calls)

    assert receipt.records == 3
    assert receipt.ignored == 0
    assert receipt.rejected == 0
    assert [record for record, _ in calls] == await everything(log)
    assert [1] == [entry.first for entry in await entries(log)]
    assert 4 == log.lowest_open_number(AI_TELEMETRY)


async def test_a_range_is_cut_to_the_numbers(log: RecordLog) -> None:
    """A read returns exactly the numbers of its range, across commits."""
    for number in range(0, 9, 3):
        await add(log, call(number), call(number + 1), call(number + 2))

    found = await log.read(AI_TELEMETRY, 2, 7)

    assert [(2, 3), (4, 6), (7, 7)] == [(entry.first, entry.last) for entry in found]
    assert [call(number)[0] for number in range(1, 7)] == [
        record for entry in found for record in entry.records
    ]
    assert [] == list(await log.read(AI_TELEMETRY, 5, 4))
    assert [] == list(await log.read(AI_TELEMETRY, 10, 20))


@pytest.mark.rule
async def test_where_the_record_of_an_id_is(log: RecordLog, clock: MovedClock) -> None:
    """
    For one of the newest ids the log returns the record number. For an older id it returns only the time
    range between call and arrival, and for an unknown id nothing.
    """
    known = call(2)[1].id
    await add(log, call(1), call(2, at=NOON - 7200))
    place = log.find_id_position(known)
    assert place is not None and (AI_TELEMETRY, 2) == place.place
    clock.move(90_000)
    await add(log, call(3))  # this call moves the ids of the day before into a run
    later = log.find_id_position(known)
    assert later is not None and later.place is None
    assert later.since <= NOON - 7200 - 3600 and NOON == later.until
    assert log.find_id_position(call(4)[1].id) is None


async def test_ids_acknowledged_during_a_fold_stay_known(
    open_spool: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ids that are acknowledged while a fold is planned are still known after it."""
    monkeypatch.setattr("spool.log.duplicates.LARGE_BATCH", 1)
    calls = [call(number) for number in range(360)]
    spool = await open_spool(duplicate_ids=400)  # with this limit, the log moves ids in batches of a hundred
    for first in range(0, 360, 6):
        await add(spool.log, *calls[first : first + 6])

    async with limited():
        place = spool.log.find_id_position(calls[0][1].id)
        while place is None or place.place is not None:
            await add(spool.log, calls[0])
            place = spool.log.find_id_position(calls[0][1].id)
    before = (await topic_terms(spool.log)).get("duplicates", 0)
    await add(spool.log, *calls)
    terms = await topic_terms(spool.log)
    assert terms["accepted"] == 360
    assert terms["duplicates"] == before + 360
    await assert_books_balance(spool.log)


async def test_topics_count_apart(log: RecordLog) -> None:
    await add(log, call(1), call(2))

    await log.append_submission(submission([call(3)], topic=USAGE_EVENTS))

    assert log.lowest_open_number(AI_TELEMETRY) == 3
    assert log.lowest_open_number(USAGE_EVENTS) == 2
    assert 1 == (await topic_terms(log, USAGE_EVENTS))["accepted"]
    await assert_books_balance(log)


@pytest.mark.one_engine
async def test_a_large_commit_writes_several_entries(log: RecordLog) -> None:
    """Numbers continue across the entries of one commit, and every record is stored."""
    count = 9000

    receipt = await add(log, *[call(number) for number in range(count)])

    assert count == receipt.records
    assert [call(number)[0].id for number in range(count)] == [
        record.id for record in await everything(log) if record is not None
    ]
    await assert_books_balance(log)


async def test_an_empty_submission_is_counted(log: RecordLog) -> None:
    """A request without any AI call has accounting terms and a receipt."""
    receipt = await add(log, ignored={"not_ai": 3}, rejected={"malformed": 1})

    assert receipt.records == 0
    assert receipt.ignored == 3
    assert receipt.rejected == 1
    assert {"received": 4, "ignored.not_ai": 3, "rejected.malformed": 1} == await topic_terms(log)
    await assert_books_balance(log)


async def test_record_that_cannot_be_encoded_fails_only_its_submission(log: RecordLog) -> None:
    """A record that cannot be encoded is its sender's error. Submissions in the same commit are answered."""
    poison = call(1, input_tokens=1 << 70)

    answers = await asyncio.gather(
        add(log, call(2)), add(log, poison), add(log, call(3)), return_exceptions=True
    )

    assert [False, True, False] == [isinstance(answer, Exception) for answer in answers]
    assert [call(2)[0], call(3)[0]] == await everything(log)
    await assert_books_balance(log)


async def test_refused_record_opens_and_closes_nothing(open_spool: Opener, clock: MovedClock) -> None:
    """After a refused record, the next record gets its number and is open like any other."""
    log = (await open_spool(hold=10)).log
    with pytest.raises(OverflowError):
        await add(log, call(1, input_tokens=1 << 70))
    clock.move(11)
    assert 1 == log.lowest_open_number(AI_TELEMETRY)

    await add(log, call(2))
    await add(log, call(2, user="ada"))
    assert log.lowest_open_number(AI_TELEMETRY) == 1
    assert await everything(log) == []
    clock.move(11)
    assert [call(2, user="ada")[0]] == await everything(log)


async def test_cancelled_submission_is_stored_whole_or_not_at_all(log: RecordLog) -> None:
    tasks = [asyncio.create_task(add(log, call(2 * number), call(2 * number + 1))) for number in range(40)]
    for turn, task in enumerate(tasks):
        if turn % 3 == 0:
            await asyncio.sleep(0)
        if turn % 2:
            task.cancel()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    await add(log)

    kept = {record.id for record in await everything(log) if record is not None}
    for number, answer in enumerate(answers):
        pair = [call(2 * number)[0].id in kept, call(2 * number + 1)[0].id in kept]
        assert pair in ([True, True], [False, False])
        if not isinstance(answer, BaseException):
            assert [True, True] == pair
    await assert_books_balance(log)


async def test_a_closing_log_refuses(log: RecordLog) -> None:
    """After close the log accepts nothing, so the sender retries elsewhere or later."""
    await log.close()
    with pytest.raises(SpoolUnavailable):
        await add(log, call(1))


@pytest.mark.rule
async def test_a_submission_needs_one_identity_per_record(log: RecordLog) -> None:
    """
    Records without identities could not be recognized as duplicates, so the caller's mistake is refused
    before it is stored.
    """
    with pytest.raises(ValueError, match="identity"):
        await log.append_submission(Submission(topic=AI_TELEMETRY, received=1, records=[call(1)[0]]))


# -- duplicates ----------------------------------------------------------------------------------------------


async def test_a_repeat_counts_once(log: RecordLog, observed: Observed) -> None:
    """Sending a batch again adds nothing, and the sender gets the same answer as the first time."""
    batch = [call(number) for number in range(5)]

    first, second = await add(log, *batch), await add(log, *batch)

    assert first.records == 5
    assert second.records == 5
    assert 5 == len(await everything(log))
    assert observed.terms["accepted", "otel"] == 5
    assert observed.terms["duplicates", "otel"] == 5
    await assert_books_balance(log)


async def test_twins_in_one_group_count_once(log: RecordLog) -> None:
    """Equal calls in one submission, or in submissions of one commit, become one record."""
    await asyncio.gather(*[add(log, call(1), call(1)) for _ in range(10)])

    assert [call(1)[0]] == await everything(log)
    terms = await topic_terms(log)
    assert terms["accepted"] == 1
    assert terms["duplicates"] == 19


@pytest.mark.rule
async def test_local_servers_reuse_short_ids(log: RecordLog) -> None:
    """
    A server that numbers its calls chatcmpl-0 to chatcmpl-998 sends thousands of calls: all are stored, and
    repeats add nothing.
    """
    batch, count = [], 10_000 if IS_LONG else 2_500
    for number in range(count):
        record = Inference(
            id=b"",
            source="ollama",
            start_time=(NOON + number * 3) * NS,
            input_tokens=50 + number % 7,
            output_tokens=number % 11,
        )
        known_as = identity.call_identity(record, response_id=f"chatcmpl-{number % 999}")
        record.id = known_as.id
        batch.append((record, known_as))

    await add(log, *batch)
    assert count == log.lowest_open_number(AI_TELEMETRY) - 1
    await add(log, *batch)
    assert count == log.lowest_open_number(AI_TELEMETRY) - 1


@pytest.mark.rule
@pytest.mark.parametrize(("seconds", "new"), [(0, False), (3, False), (-3, False), (60, True), (-60, True)])
async def test_a_short_id_is_known_within_the_neighbour_steps(
    log: RecordLog, seconds: int, new: bool
) -> None:
    """
    Two reports with the same short id are one call if they are a few seconds apart, and two calls at a minute.
    """

    def reported(at: int) -> tuple[Inference, RecordIdentity]:
        record = Inference(id=b"", source="x", start_time=at * NS, input_tokens=1, output_tokens=1)
        known_as = identity.call_identity(record, response_id="chatcmpl-7")
        record.id = known_as.id
        return record, known_as

    await add(log, reported(NOON))
    await add(log, reported(NOON + seconds))

    assert (2 if new else 1) == len(await everything(log))


@pytest.mark.rule
@pytest.mark.parametrize("told_first", ["start_time", "end_time"])
async def test_an_old_call_is_known_by_its_end_alone(
    log: RecordLog, clock: MovedClock, told_first: str
) -> None:
    """
    A call of last week is reported twice, and only one report states its start. Both reports are one call,
    even if its id is in a run.
    """
    begun = NOON - 5 * 86_400
    by_start = call(1, at=begun, end_time=(begun + 1) * NS)
    by_end = call(1, start_time=None, end_time=(begun + 1) * NS)
    reports = (by_start, by_end) if told_first == "start_time" else (by_end, by_start)

    await add(log, reports[0])
    clock.move(90_000)
    await add(log, call(2))  # meanwhile the first id is a day old
    await add(log, reports[1])

    assert [reports[0][0], call(2)[0]] == await everything(log)
    assert 1 == (await topic_terms(log))["duplicates"]


@pytest.mark.rule
@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("in_one_request", [False, True])
async def test_reports_that_share_only_a_further_name_are_one_call(
    log: RecordLog, first: int, *, in_one_request: bool
) -> None:
    """One report names the trace, another the call id, a third both: they are one record in every order."""
    by_trace, by_call = b"trace-and-moment", b"call-and-moment-"
    also = ((by_trace,), (by_trace, by_call), (by_call,))
    reports = [(call(n)[0], call(n)[1]._replace(also=names)) for n, names in enumerate(also, start=1)]
    order = [reports[1], *reports[:1], *reports[2:]] if first == 1 else reports[:: -1 if first else 1]
    for group in [order] if in_one_request else [[report] for report in order]:
        await add(log, *group)

    assert 1 == len(await everything(log))
    assert 2 == (await topic_terms(log))["duplicates"]
    await assert_books_balance(log)


async def test_without_an_identity_nothing_is_a_duplicate(log: RecordLog, observed: Observed) -> None:
    """A record that no rule identifies is stored every time and counted as unidentified."""
    for number in range(3):
        id = number.to_bytes(16)  # for such a record, the rules generate a new id each time
        await add(log, (Inference(id=id, source="script"), RecordIdentity(id, certain=False)))

    assert 3 == len(await everything(log))
    assert 3 == observed.terms["unidentified", "script"]
    assert 3 == (await topic_terms(log))["unidentified"]
    await assert_books_balance(log)


async def test_left_out_tags_are_counted_outside_the_equations(log: RecordLog, observed: Observed) -> None:
    """
    The number of left-out tags is part of the commit, the accounting and the observer's terms, but of no equation.
    """
    await add(log, call(1), left_out=3)
    await add(log, call(2))
    await add(log, call(3), left_out=4)

    assert 7 == observed.terms["left_out", ""]
    assert 7 == (await topic_terms(log))["left_out"]
    await assert_books_balance(log)


@pytest.mark.rule
async def test_the_window_ends(open_spool: Opener, clock: MovedClock) -> None:
    """After the duplicate window a repeated id is a new record, and within the window a duplicate."""
    log = (await open_spool(duplicate_window=3600.0)).log
    await add(log, call(1))
    clock.move(1700)
    await add(log, call(1))
    assert 1 == len(await everything(log))
    clock.move(5400)
    await add(log, call(1))
    assert 2 == len(await everything(log))


@pytest.mark.rule
async def test_the_bound_on_ids_shortens_the_window(open_spool: Opener, clock: MovedClock) -> None:
    """
    Over duplicate_ids the oldest ids are forgotten. Memory stays limited, and the gauge shows the covered time.
    """
    log = (await open_spool(duplicate_ids=100)).log
    for number in range(400):
        await add(log, call(number, at=NOON + 20 * number))
        clock.move(20)

    stats = await log.stats()
    assert stats.duplicate_ids <= 200
    assert 0 < stats.duplicate_window_s < 8000
    await add(log, call(399, at=NOON + 20 * 399))
    assert 400 == len(await everything(log))
    await add(log, call(0))
    assert 401 == len(await everything(log))


@pytest.mark.rule
@pytest.mark.parametrize("hours", [0.2, 3, 24 * 400])
async def test_old_calls_are_known_as_long_as_new_ones(
    open_spool: Opener, clock: MovedClock, hours: float
) -> None:
    """
    A backfill is remembered by the hour of its calls, however old, until its ids have been known for one window.
    """
    log = (await open_spool(duplicate_ids=1000)).log
    # These calls have more ids than fit among the newest ids.
    old = [call(number, at=NOON - hours * 3600) for number in range(600)]
    await add(log, *old)
    clock.move(86_400)
    await add(log, *[call(1000 + number, at=NOON + 86_400) for number in range(100)])

    await add(log, *old)

    assert 700 == len(await everything(log))


@pytest.mark.rule
async def test_a_start_that_is_not_believed_is_known_by_its_arrival(
    open_spool: Opener, clock: MovedClock
) -> None:
    """
    Calls without a start, or with a start over an hour in the future, are known for a day after arrival.
    """
    log = (await open_spool(duplicate_ids=8)).log
    strange = [call(1, start_time=None), call(2, at=NOON + 90_000)]
    await add(log, *strange)
    clock.move(20 * 3600)
    # These calls push the ids of the strange calls out of the newest ids.
    await add(log, *[call(100 + number, at=NOON + 72_000) for number in range(4)])

    await add(log, *strange)

    assert 6 == len(await everything(log))


# -- receipts, shapes, observer ------------------------------------------------------------------------------


async def test_a_receipt_says_what_became_of_a_submission(open_spool: Opener, clock: MovedClock) -> None:
    """A receipt has terms, numbers, time and state. The state follows what happens to the records later."""
    log = (await open_spool(hold=10, retention=100, late_window=0)).log
    await add(log, call(1))
    receipt = await add(log, call(1), call(2), call(3), ignored={"not_ai": 2}, rejected={"malformed": 1})
    await add(log, call(9))

    expected = {
        "id": receipt.id, "topic": AI_TELEMETRY, "at": NOON, "received": 6, "records": 3, "new": 2, "duplicates": 1,
        "amended": 0, "ignored": {"not_ai": 2}, "rejected": {"malformed": 1}, "first_number": 2, "last_number": 3,
    }  # fmt: skip
    assert {**expected, "state": "open"} == await log.describe_receipt(receipt.id)
    clock.move(11)
    assert {**expected, "state": "kept"} == await log.describe_receipt(receipt.id)
    clock.move(200)
    await log.run_retention()
    with pytest.raises(NotThere, match="retention"):
        await log.describe_receipt(receipt.id)


@pytest.mark.rule
async def test_receipts_cannot_be_forged_or_read(open_spool: Opener) -> None:
    """Ids of consecutive receipts have nothing in common, and an id with one changed character is invalid."""
    log = (await open_spool()).log
    ids = [(await add(log, call(number))).id for number in range(20)]

    assert 20 == len(set(ids))
    assert 20 == len({id[:6] for id in ids})
    for forged in ["", "x", "é" * 32, ids[0][:-1], "a" * 32, ("b" if ids[0][0] != "b" else "c") + ids[0][1:]]:
        with pytest.raises(NotThere):
            await log.describe_receipt(forged)
    with pytest.raises(NotThere):
        await (await open_spool()).log.describe_receipt(ids[0])


async def test_unrecognised_shapes_are_counted_and_bounded(log: RecordLog) -> None:
    """
    Unrecognized shapes are listed with the most frequent first. The table is limited, so invented shapes
    cannot enlarge it.
    """
    await add(log, unrecognised=[("llm.tokens", "llm.model")], ignored={"unrecognised_ai": 1})
    await add(log, unrecognised=[("llm.model", "llm.tokens")], ignored={"unrecognised_ai": 1})

    assert [{"names": ["llm.model", "llm.tokens"], "count": 2, "last_seen": NOON}] == list(
        await log.unrecognised_items()
    )
    await add(log, unrecognised=[(f"x.{number}",) for number in range(5000)])
    assert len(await log.unrecognised_items()) <= 1000


async def test_types_of_usage_events_are_counted_and_bounded(open_spool: Opener) -> None:
    """
    New events and their amounts count by type. Repeats and other topics do not count, and the table stays small.
    """
    spool = await open_spool()
    events = [event(number, "api_call") for number in range(3)] + [event(3, "login")]
    amounts = {0: Decimal("1e30"), 1: Decimal("0.1"), 4: Decimal("0.2"), 5: Decimal(7)}
    shadow = event(5, "api_call")
    shadow[0].shadow = True
    for batch in (events, events[:1], [event(4, "api_call"), event(6, "api_call"), shadow]):
        records, identities = zip(*batch, strict=True)
        await spool.log.append_submission(
            Submission(
                topic=USAGE_EVENTS,
                received=len(batch),
                records=records,
                identities=identities,
                amount_of=lambda event: amounts.get(int.from_bytes(event.id)),
            )
        )
    await add(spool.log, call(1))
    api_calls = EventType(type="api_call", count=6, amount=Decimal(f"1{30 * '0'}.3"), last_seen=NOON)
    seen = [api_calls, EventType(type="login", count=1, last_seen=NOON)]
    assert seen == list(await spool.log.event_types())
    many = [event(number, f"type {number}") for number in range(10, 3000)]
    records, identities = zip(*many, strict=True)
    await spool.log.append_submission(
        Submission(topic=USAGE_EVENTS, received=len(many), records=records, identities=identities)
    )
    assert MAX_TYPES == len(await spool.log.event_types())
    assert 0 == len((await spool.log.books()).imbalances)


@pytest.mark.rule
async def test_made_up_names_push_out_made_up_names(log: RecordLog, clock: MovedClock) -> None:
    """Names in use stay in the lists of shapes and types, and a new name of another sender has a place."""

    async def bring(names: Sequence[str], times: int = 1) -> None:
        clock.move(1)
        events = [event(next(numbers), name) for name in names for _ in range(times)]
        records, identities = zip(*events, strict=True)
        await log.append_submission(
            Submission(topic=USAGE_EVENTS, received=len(events), records=records, identities=identities)
        )
        shown = [(name,) for name in names for _ in range(times)]
        await add(log, unrecognised=shown, ignored={"unrecognised_ai": len(shown)})

    numbers = count(1)
    await bring(["in use"], times=3)
    for part in range(3):
        await bring([f"made up {part} {number}" for number in range(700)])
    await bring(["first"])
    await bring([f"made up 3 {number}" for number in range(400)])
    types = {seen.type: seen.count for seen in await log.event_types()}
    assert types["in use"] == 3
    assert types["first"] == 1
    assert len(types) == MAX_TYPES
    shapes = {str(row["names"]): row["count"] for row in await log.unrecognised_items()}
    assert shapes["['in use']"] == 3
    assert shapes["['first']"] == 1
    assert len(shapes) == MAX_SHAPES


def event(number: int, type: str) -> tuple[UsageEvent, RecordIdentity]:
    id = number.to_bytes(16)
    return UsageEvent(id=id, source="app", event_type=type), RecordIdentity(id)


async def test_observer_gets_the_terms_of_every_commit(log: RecordLog, observed: Observed) -> None:
    """An observer gets terms by source and reason, and the durations of commit and flush."""
    await add(log, call(1), call(2, source="kong"), call(1), ignored={"not_ai": 1}, rejected={"malformed": 2})

    assert {
        ("received", ""): 6,
        ("accepted", "otel"): 1,
        ("accepted", "kong"): 1,
        ("duplicates", "otel"): 1,
        ("ignored", "not_ai"): 1,
        ("rejected", "malformed"): 2,
    } == dict(observed.terms)
    assert all(commit.seconds >= commit.flush_seconds >= 0 for commit in observed.commits)


async def test_a_failing_observer_undoes_nothing(
    open_spool: Opener, observed: Observed, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If an observer fails, all submissions of the commit still get receipts, and a record without identity
    is stored once.
    """

    def fails(commit: Commit) -> None:
        raise RuntimeError("no such label")

    log = (await open_spool()).log
    monkeypatch.setattr(observed, "note_commit", fails)
    records = [call(number)[0] for number in range(3)]
    alone = [(record, RecordIdentity(record.id, certain=False)) for record in records]

    receipts = await asyncio.gather(*[add(log, one) for one in alone])

    assert [1, 1, 1] == [receipt.records for receipt in receipts]
    assert 3 == len(await everything(log))
    assert "an observer of the log failed" in caplog.text


@pytest.mark.rule
@pytest.mark.parametrize("order", list(permutations(["made", "answered 1", "answered 2"])))
@pytest.mark.parametrize("together", [False, True])
async def test_two_sides_of_a_call_are_one_record(
    log: RecordLog, order: Sequence[str], together: bool
) -> None:
    """Names link the two sides. A second report of one side is another call, in any order."""
    sides = {"made": (b"made", b"answered"), "answered": (b"answered", b"made")}
    calls = []
    for number, name in enumerate(order):
        record, known_as = call(number)
        calls.append((record, known_as._replace(links=(sides[name.partition(" ")[0]],))))
    for group in [calls] if together else [[one] for one in calls]:
        await add(log, *group)
    await add(log, *calls)  # send each report again
    terms = await topic_terms(log)
    assert terms["accepted"] == 2
    assert terms["duplicates"] == 4
    await assert_books_balance(log)


@pytest.mark.rule
@pytest.mark.parametrize("order", list(permutations(["caller", "between", "answerer"])))
async def test_a_chain_of_sides_is_one_record(log: RecordLog, order: Sequence[str]) -> None:
    """
    A report in the middle answers one side and calls the other. Without it the ends are two calls. If it arrives
    last, the later of two closed records is taken back.
    """
    links: dict[str, tuple[tuple[bytes, bytes], ...]] = {
        "caller": ((b"made", b"answered"),),
        "between": ((b"made on", b"answered on"), (b"answered", b"made")),
        "answerer": ((b"answered on", b"made on"),),
    }
    for number, name in enumerate(order):
        record, known_as = call(number)
        await add(log, (record, known_as._replace(links=links[name])))
    assert 1 == sum(counted_amounts(record).calls for record in await everything(log) if record is not None)
    assert int(order[-1] == "between") == (await topic_terms(log)).get("bridged", 0)

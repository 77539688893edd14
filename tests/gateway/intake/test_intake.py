"""Intake: a large payload is stored in parts under one receipt, and a repeat adds nothing."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from gateway.configuration.attribution import Assignment, AttributionRule, Match, SourceSettings
from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import ReportedCallers
from gateway.normalise.outcome import NOT_AI, PART, ReadOutcome
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.errors import SpoolFull
from spool.identity import RecordIdentity, call_identity
from spool.log.protocols import RecordLog
from spool.log.values import CounterPoint, Receipt, Submission
from spool.record import AI_TELEMETRY, DEVICE_KEYS, NS, AiRecord, Inference, UsageMetric, record_to_json
from spool.settings import SpoolSettings
from spool.sqlite import in_memory
from tests.moved_clock import MovedClock

BEARER = AuthenticatedKey("sender", frozenset())
MANY = 2 * PART + 10


class FullFrom:
    """A log whose disk is full from the n-th submission on."""

    def __init__(self, record_log: RecordLog, submissions: int) -> None:
        self._log = record_log
        self._left = submissions

    async def append_submission(self, submission: Submission) -> Receipt:
        if not self._left:
            raise SpoolFull("full", retry_after_s=1)
        self._left -= 1
        return await self._log.append_submission(submission)


@pytest_asyncio.fixture
async def log() -> AsyncIterator[RecordLog]:
    spool = await in_memory.open_spool(settings=SpoolSettings(hold=0), clock=MovedClock())
    yield spool.log
    await spool.close()


def intake(record_log: RecordLog, config: Config | None = None) -> PayloadIntake:
    config = config or Config()
    prices = PriceBook.load(config.prices)
    return PayloadIntake(
        record_log, attributor=RecordAttributor(config), prices=prices, shadows=ReportedCallers(MovedClock())
    )


def payload(*, uncertain: int = 0) -> ReadOutcome:
    """
    Create a payload of MANY calls, after `uncertain` calls without a dedup key, packed as decoding does. It
    includes one ignored and one rejected item.
    """
    outcome = ReadOutcome(received=MANY + uncertain + 2)
    outcome.ignored[NOT_AI] = 1
    outcome.reject_item(7, "malformed", "no such thing")
    for number in range(uncertain):
        outcome.add_record(
            Inference(id=b"", source="otel", session=str(number)),
            RecordIdentity(os.urandom(16), certain=False),
        )
    for number in range(MANY):
        call = Inference(id=b"", source="otel", request_id=str(number))
        outcome.add_record(
            call,
            call_identity(call, response_id=f"chatcmpl-{number:032d}"),
            device="d" if number == PART else None,
        )
        outcome.pack_finished_part_if_full()
    return outcome


async def test_large_payload_is_stored_in_parts_under_one_receipt(log: RecordLog) -> None:
    """
    A large payload is stored in parts under one receipt, which covers the whole request for the sender and
    the operator. The accounting balances.
    """
    receipt = await intake(log).store_outcome(payload(), BEARER)
    assert receipt.records == MANY
    assert receipt.ignored == 1
    assert receipt.rejected == 1
    expected = {
        "received": MANY + 2, "records": MANY, "new": MANY, "duplicates": 0, "ignored": {NOT_AI: 1},
        "rejected": {"malformed": 1}, "first_number": 1, "last_number": MANY, "state": "kept",
    }  # fmt: skip
    shown = await log.describe_receipt(receipt.id)
    assert expected == {name: shown[name] for name in expected}
    assert [] == list((await log.verify()).imbalances)


async def test_the_records_of_parts_come_in_their_order(log: RecordLog) -> None:
    """
    Records are stored in the order in which decoding packed them, each with the device that its resource names.
    """
    await intake(log).store_outcome(payload(), BEARER)
    entries = await log.read(AI_TELEMETRY, 1, MANY)
    kept = [
        record.request_id for entry in entries for record in entry.records if isinstance(record, Inference)
    ]
    assert [str(number) for number in range(MANY)] == kept


async def test_a_record_keeps_the_name_of_its_key_and_says_it_to_nobody(log: RecordLog) -> None:
    """
    A record stores the key name of its first report and does not send it to destinations. All device keys
    have one name.
    """
    for number, bearer in enumerate(
        (BEARER, AuthenticatedKey("device 7", frozenset(), device="7"), AuthenticatedKey("", frozenset()))
    ):
        outcome = ReadOutcome(received=1)
        call = Inference(id=b"", source="otel", request_id=str(number))
        outcome.add_record(call, call_identity(call, response_id=f"chatcmpl-{number:032d}"))
        await intake(log).store_outcome(outcome, bearer)
    again = ReadOutcome(received=1)
    call = Inference(id=b"", source="otel", request_id="0")
    again.add_record(call, call_identity(call, response_id=f"chatcmpl-{0:032d}"))
    await intake(log).store_outcome(again, AuthenticatedKey("another", frozenset()))
    entries = await log.read(AI_TELEMETRY, 1, 9)
    kept = [record for entry in entries for record in entry.records if isinstance(record, Inference)]
    assert ["sender", DEVICE_KEYS, None] == [record.sender_key for record in kept]
    assert "sender_key" not in record_to_json(kept[0])


async def test_after_a_failure_half_way_the_repeat_adds_only_what_is_missing(log: RecordLog) -> None:
    """
    If storing fails half-way, the sender gets no receipt and repeats the payload. Every call counts once,
    including calls without a dedup key.
    """
    with pytest.raises(SpoolFull):
        await intake(FullFrom(log, 1)).store_outcome(payload(uncertain=3), BEARER)  # type: ignore[arg-type]
    assert PART - 3 <= (await log.books()).topics[AI_TELEMETRY]["accepted"] <= PART

    receipt = await intake(log).store_outcome(payload(uncertain=3), BEARER)
    terms = (await log.books()).topics[AI_TELEMETRY]
    assert MANY + 3 == receipt.records == terms["accepted"]
    assert [] == list((await log.verify()).imbalances)


def test_packing_moves_devices_and_marks_along_with_their_records() -> None:
    """
    When records are packed into parts, their devices and marks keep matching them, although some records stay
    back. Positions count from the beginning of a part.
    """
    outcome = ReadOutcome()
    for number in range(PART):
        certain = number % 2 == 0
        outcome.forwarded |= {number} if number in (2, 3) else set()
        call = Inference(id=b"", source="otel", request_id=str(number))
        outcome.add_record(
            call,
            RecordIdentity(os.urandom(16), certain=certain),
            device=f"device-{number}" if number < 4 else None,
        )
    outcome.received = PART
    outcome.pack_finished_part_if_full()

    packed, rest = outcome.yield_parts()
    assert packed.named == {0: "device-0", 1: "device-2"}
    assert packed.forwarded == {1}
    assert rest.named == {0: "device-1", 1: "device-3"}
    assert rest.forwarded == {1}
    assert [PART // 2, PART // 2] == [len(part.records) for part in (packed, rest)]
    assert PART == packed.received + rest.received


def test_a_payload_is_cut_for_a_commit_that_others_wait_for() -> None:
    """
    A large payload is divided into parts, so that other commits need not wait for all of it. The parts keep
    the order. Records that may be stored only after the others are in the last part.
    """
    outcome = ReadOutcome(received=12)
    for number in range(10):
        call = Inference(id=b"", source="otel", request_id=str(number))
        identity = RecordIdentity(os.urandom(16), certain=number != 1)
        outcome.add_record(call, identity, device="device" if number == 4 else None)
    outcome.forwarded = {5}
    outcome.reject_item(10, "malformed", "x")
    outcome.ignored["not_ai"] = 1
    parts = list(outcome.yield_parts(4))
    ids = [[record.request_id for record in part.records] for part in parts]  # type: ignore[union-attr]
    assert [["0", "2", "3", "4"], ["5", "6", "7", "8"], ["9"], ["1"]] == ids
    assert [{3: "device"}, {}, {}, {}] == [part.named for part in parts]
    assert [set(), {0}, set(), set()] == [part.forwarded for part in parts]
    assert [4, 4, 1, 3] == [part.received for part in parts]
    assert [False, False, False, True] == [part.is_last for part in parts]
    assert parts[0].rejects == []
    assert len(parts[-1].rejects) == 1
    assert 10 == outcome.count + len(outcome.records)


SPANS_DO_NOT_COUNT = Config(sources={"otel": SourceSettings(count=False)})


def told(source: str, *, start: int = 1_790_000_000, **fields: str) -> ReadOutcome:
    """Create a report of a local server's call, as one source sends it."""
    outcome = ReadOutcome(received=1)
    call = Inference(id=b"", source=source, start_time=start * NS, input_tokens=5, output_tokens=1, **fields)  # type: ignore[arg-type]
    outcome.add_record(call, call_identity(call, response_id="chatcmpl-7"))
    return outcome


async def kept(record_log: RecordLog) -> list[tuple[str, bool, str | None]]:
    entries = await record_log.read(AI_TELEMETRY, 1, MANY)
    records = [record for entry in entries for record in entry.records if isinstance(record, Inference)]
    return [(record.source, record.shadow, record.session) for record in records]


@pytest.mark.parametrize("later", [0, 4])
async def test_first_report_of_an_uncounted_source_hides_no_call(log: RecordLog, later: int) -> None:
    """
    The record is that of the source that counts, whichever report arrives first. Repeats of both
    reports are duplicates.
    """
    shading = intake(log, SPANS_DO_NOT_COUNT)
    for _ in range(2):
        await shading.store_outcome(told("otel", session="s"), BEARER)
        await shading.store_outcome(told("litellm", start=1_790_000_000 + later), BEARER)
    await shading.store_outcome(told("otel", start=1_790_000_000 + later), BEARER)
    assert [("otel", True, "s"), ("litellm", False, None)] == await kept(log)
    assert 3 == (await log.books()).topics[AI_TELEMETRY]["duplicates"]
    assert [] == list((await log.verify()).imbalances)


@pytest.mark.parametrize("later", [0, 4])
async def test_later_report_of_an_uncounted_source_fills_empty_fields(later: int) -> None:
    """
    A later report of a source that does not count fills empty fields of the call. The two reports make one
    record that counts.
    """
    clock = MovedClock()
    spool = await in_memory.open_spool(settings=SpoolSettings(hold=10), clock=clock)
    shading = intake(spool.log, SPANS_DO_NOT_COUNT)
    await shading.store_outcome(told("litellm"), BEARER)
    await shading.store_outcome(told("otel", start=1_790_000_000 + later, session="s"), BEARER)
    clock.move(11)
    assert [("litellm", False, "s")] == await kept(spool.log)
    await spool.close()


def report(record: AiRecord, identity: RecordIdentity, *, sessions: Iterable[str] = ()) -> ReadOutcome:
    outcome = ReadOutcome(received=1)
    record.tags = {"service": "codex_exec"}
    outcome.add_record(record, identity)
    for session in sessions:
        outcome.note_resource_session(record, session)
    return outcome


def event(**fields: Any) -> ReadOutcome:
    """Create the report of a call as the sender's events or spans have it."""
    sessions = fields.pop("sessions", ())
    record = Inference(id=b"", source="codex", request_id="r", **fields)
    return report(record, call_identity(record, response_id="resp_0123456789abcdef"), sessions=sessions)


def counter(number: int, **fields: Any) -> ReadOutcome:
    """Create an increase of one of the sender's counters."""
    record = UsageMetric(id=b"", source="codex", name="tokens", value=1, unit="{token}", **fields)
    return report(record, RecordIdentity(number.to_bytes(16, "big")))


async def all_kept(record_log: RecordLog) -> list[AiRecord]:
    return [record for entry in await record_log.read(AI_TELEMETRY, 1, 3) for record in entry.records]  # type: ignore[misc]


@pytest.mark.parametrize("user", ["alice", "alice@example.com"])
@pytest.mark.parametrize("by_rule", [False, True])
async def test_who_is_filled_in_does_not_part_counters_from_their_events(
    log: RecordLog, user: str, by_rule: bool
) -> None:
    """
    Codex names the account in its events but not in its counters. Both still belong to the same sender if a
    label or a rule fills the user.
    """
    rule = AttributionRule(match=Match(tag={"service": "codex_exec"}), set=Assignment(user=user))
    taking = intake(log, Config(attribution=(rule,)) if by_rule else None)
    laptop = AuthenticatedKey("laptop", frozenset(), {} if by_rule else {"user": user})
    another = AuthenticatedKey("another", frozenset(), {"user": "bob"})
    for outcome, bearer in ((event(user="acc-1"), laptop), (counter(1), laptop), (counter(2), another)):
        await taking.store_outcome(outcome, bearer)
    call, shadow, counted = await all_kept(log)
    assert call.user == "acc-1"
    assert shadow.shadow is True
    assert counted.shadow is False


async def test_counters_of_a_window_repeat_calls_of_its_sessions(log: RecordLog) -> None:
    """
    Copilot Chat's calls name the window and the session, but its counters name only the window. Counters of a
    window with calls are kept for reference, and counters of another window count.
    """
    taking = intake(log)
    for outcome in (
        event(session="chat", sessions=["window"]),
        counter(1, session="window"),
        counter(2, session="w2"),
    ):
        await taking.store_outcome(outcome, BEARER)
    call, shadow, counted = await all_kept(log)
    assert call.session == "chat"
    assert shadow.shadow is True
    assert counted.shadow is False


def growing() -> ReadOutcome:
    """Create MANY points of one rising counter, packed as decoding does. One point names a device."""
    outcome = ReadOutcome(received=MANY)
    template = UsageMetric(id=b"", source="cline", name="tokens", unit="{token}")
    for number in range(1, MANY + 1):
        point = CounterPoint(b"s" * 16, NS, NS + number, number, msgspec.structs.replace(template))
        outcome.add_point(point, device="d" if number == PART + 1 else None)
        outcome.pack_finished_part_if_full()
    return outcome


async def test_large_payload_of_counters_is_stored_in_parts(log: RecordLog) -> None:
    """
    A large payload of counters is also stored in parts, which keep the order and the devices of their points.
    A repeat after a failure counts only the missing points.
    """
    parts = [(len(part.points), part.named_points, part.received) for part in growing().yield_parts()]
    assert [(PART, {}, PART), (PART, {0: "d"}, PART), (10, {}, 10)] == parts
    with pytest.raises(SpoolFull):
        await intake(FullFrom(log, 2)).store_outcome(growing(), BEARER)  # type: ignore[arg-type]
    receipt = await intake(log).store_outcome(growing(), BEARER)
    counted = [record for entry in await log.read(AI_TELEMETRY, 1, MANY) for record in entry.records]
    assert [1] * MANY == [record.value for record in counted if isinstance(record, UsageMetric)]
    assert receipt.records == 10
    assert receipt.ignored == 2 * PART
    assert [] == list((await log.verify()).imbalances)

"""
The reports of one call give the same record in any order.

Each report states a part of the same truth. It leaves facts out, states an unknown part as 0, or says `ok`
because it knows of no failure. docs/promises/ordering.md lists the exceptions: facts that two reports state
differently.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from itertools import permutations
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import ReportedCallers
from gateway.normalise.outcome import ReadOutcome
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.identity import call_identity
from spool.log.amendments import PARTS
from spool.record import AI_TELEMETRY, NS, Inference, record_to_json
from spool.settings import SpoolSettings
from spool.sqlite import in_memory
from tests.moved_clock import MovedClock
from tests.rounds import examples
from tests.spool.contract.examples import NOON, assert_books_balance, everything

HOLD_S = 10
SENDER = AuthenticatedKey("sender", frozenset())
SOURCES = ("otel", "litellm", "langfuse", "openmeter")
prices = cache(PriceBook.load)

TRUTH: dict[str, Any] = {
    "request_id": "chatcmpl-" + "7" * 32, "trace_id": "1" * 32, "span_id": "2" * 16, "start_time": NOON * NS,
    "end_time": (NOON + 2) * NS, "provider": "anthropic", "operation": "chat", "request_model": "claude-sonnet-4-5",
    "response_model": "claude-sonnet-4-5-20250929", "input_tokens": 1000, "output_tokens": 300,
    "cache_read_tokens": 600, "cache_write_tokens": 250, "reasoning_tokens": 120, "cost": "0.01", "status": "error",
    "error_type": "timeout", "user": "ada", "team": "search", "session": "s-1", "api_key": "alpha",
}  # fmt: skip
NAMES = st.sampled_from(sorted(TRUTH))
UNKNOWN = {"status": "ok"}


@st.composite
def reports(draw: st.DrawFn) -> list[Inference]:
    """Draw two to four reports of one call from as many sources, each with part of the truth."""
    made = []
    for source in SOURCES[: draw(st.integers(2, 4))]:
        told = draw(st.sets(NAMES) | st.sets(NAMES, max_size=5).map(lambda left_out: set(TRUTH) - left_out))
        fields: dict[str, Any] = {name: TRUTH[name] if name in told else UNKNOWN.get(name) for name in TRUTH}
        for part in sorted(PARTS - told):
            fields[part] = draw(st.sampled_from([None, 0]))
        if fields["status"] == "ok":
            fields["error_type"] = None
        tags = {"env": "prod"} if draw(st.booleans()) else {}
        made.append(Inference(id=b"", source=source, tags=tags | {source: "true"}, **fields))
    return made


async def told(order: Sequence[Inference], cuts: Sequence[bool]) -> tuple[dict[str, Any], int]:
    """Return the call's record and the number of conflicts. `cuts` marks where a new request begins."""
    clock = MovedClock(NOON)
    storage = await in_memory.open_spool(settings=SpoolSettings(hold=HOLD_S), clock=clock)
    intake = PayloadIntake(
        storage.log, attributor=RecordAttributor(Config()), prices=prices(), shadows=ReportedCallers(clock)
    )
    outcome = ReadOutcome()
    for place, report in enumerate(order):
        outcome.add_record(
            msgspec.structs.replace(report), call_identity(report, response_id=TRUTH["request_id"])
        )
        outcome.received += 1
        if place + 1 == len(order) or cuts[place]:
            await intake.store_outcome(outcome, SENDER)
            outcome = ReadOutcome()
    clock.move(HOLD_S + 1)
    await assert_books_balance(storage.log)
    (record,) = await everything(storage.log)
    conflicts = (await storage.log.books()).topics[AI_TELEMETRY].get("conflict", 0)
    await storage.close()
    assert record is not None
    row = record_to_json(record)
    assert order[0].source == row.pop("source")
    return row, conflicts


@settings(deadline=None, max_examples=examples(60), print_blob=True)
@given(reports(), st.lists(st.booleans(), min_size=4, max_size=4))
def test_reports_of_one_truth_make_one_record_in_every_order(made: list[Inference], cuts: list[bool]) -> None:
    """
    In one request or several, all fields except the source are equal, including the estimate. No
    conflict is reported.
    """

    async def every_order() -> None:
        first, _ = await told(made, [True] * 4)
        for order in permutations(made):
            assert (first, 0) == await told(order, cuts)

    asyncio.run(every_order())

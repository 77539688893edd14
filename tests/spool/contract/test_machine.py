"""
For reports and deliveries in any order, both engines return the same, and the accounting balances exactly.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import spool.sqlite.in_memory
import spool.sqlite.spool
from spool.deliveries.protocols import Deliveries
from spool.deliveries.values import Delivery, RouteSpec, Settlement
from spool.identity import RecordIdentity
from spool.record import AI_TELEMETRY, Record
from spool.settings import SpoolSettings
from tests.moved_clock import MovedClock
from tests.rounds import examples
from tests.spool.contract.disk import killed
from tests.spool.contract.examples import NOON, call, everything, point, submission

T = TypeVar("T")

HOLD_S = 10
ROUTE = RouteSpec(name="upstream/ai-telemetry", topic=AI_TELEMETRY)
_UNIDENTIFIED = count()
# The limit of ids is higher than the number of ids that one run of the machine creates, because the contract
# does not state which ids still know their record number.
SETTINGS = SpoolSettings(hold=HOLD_S, retention=3600, duplicate_window=7200, duplicate_ids=1000)


def report(number: int, certain: bool, fields: dict[str, Any]) -> tuple[Record, RecordIdentity]:
    """Return a call, or a record that no rule identifies and whose id is unique."""
    record, known_as = call(number, **fields)
    if certain:
        return record, known_as
    record.id = next(_UNIDENTIFIED).to_bytes(16)
    return record, RecordIdentity(record.id, certain=False)


calls = st.builds(
    report,
    number=st.integers(0, 12),
    certain=st.sampled_from([True, True, True, False]),
    fields=st.fixed_dictionaries(
        {"source": st.sampled_from(["otel", "litellm", "kong"])},
        optional={
            "user": st.sampled_from(["ada", "bob"]),
            "team": st.just("search"),
            "cost": st.sampled_from(["0.1", "0.2"]),
            "input_tokens": st.sampled_from([None, 100, 101]),
            "tags": st.just({"env": "prod"}),
        },
    ),
)
points = st.builds(
    lambda value, at, series: point(value, at=NOON + at, series=bytes([series]) * 16),
    value=st.integers(0, 50),
    at=st.integers(1, 30),
    series=st.integers(0, 2),
)
reasons = st.dictionaries(st.sampled_from(["malformed", "not_ai", "merged"]), st.integers(1, 3), max_size=2)


Outcome = Callable[[Deliveries, Delivery], Awaitable[None]]


def outcome_of(name: str, *, at: float, answer: str | None, ambiguous: bool) -> Outcome:
    """Return what the test does with a sent delivery."""

    async def end(deliveries: Deliveries, delivery: Delivery) -> None:
        if name == "delivered":
            await deliveries.store_settlement(delivery, Settlement(delivered=delivery.count))
        elif name == "partly refused":
            settlement = Settlement(delivered=delivery.count - 1, refused=1, words="too old")
            await deliveries.store_settlement(delivery, settlement)
        elif name == "unknown":
            await deliveries.mark_outcome_unknown(delivery, reason=name)
        elif name in ("set aside", "refused") and delivery.count > 1:
            await deliveries.split_delivery(delivery, reason=name, refused=name == "refused")
        elif name == "set aside":
            await deliveries.set_aside(delivery, error=name, status="400")
        else:
            await deliveries.schedule_retry(
                delivery,
                reason=name,
                not_before=at,
                answer=answer,
                may_be_accepted=ambiguous,
                refused_at=at if name == "refused" else None,
                server_error=name == "server error",
            )

    return end


outcomes = st.builds(
    outcome_of,
    st.sampled_from(
        ["delivered", "delivered", "partly refused", "unknown", "set aside", "refused", "server error"]
    ),
    at=st.sampled_from([0.0, NOON + 20.0, NOON + 4000.0]),
    answer=st.sampled_from([None, "503", "429"]),
    ambiguous=st.booleans(),
)


def visible(delivery: Delivery) -> tuple[object, ...]:
    """Return a delivery without its id and key, which each engine creates itself."""
    return (
        delivery.first,
        delivery.last,
        delivery.attempts,
        delivery.server_errors,
        delivery.refusals,
        delivery.refused_at,
        delivery.proven,
        delivery.ambiguous,
        delivery.last_error,
        delivery.replay,
        delivery.kept,
    )


class Engines(RuleBasedStateMachine):
    """A log on disk and a log in memory that receive the same."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = MovedClock(NOON)
        self.root = Path(tempfile.mkdtemp())
        self.lives = count()
        self.directory = self.root / "0"
        self.disk = self.run(
            spool.sqlite.spool.open_spool(self.directory, settings=SETTINGS, clock=self.clock)
        )
        self.memory = self.run(spool.sqlite.in_memory.open_spool(settings=SETTINGS, clock=self.clock))

    def run(self, work: Awaitable[T]) -> T:
        async def wait() -> T:
            return await work

        return self.loop.run_until_complete(wait())

    def teardown(self) -> None:
        self.run(self.disk.close())
        self.run(self.memory.close())
        self.loop.close()
        shutil.rmtree(self.root)

    @rule(
        batch=st.lists(calls, max_size=6),
        deltas=st.lists(points, max_size=3),
        ignored=reasons,
        rejected=reasons,
        pending=st.integers(-1, 1),
        split=st.integers(0, 1),
    )
    def report(self, batch: list[tuple[Record, RecordIdentity]], deltas: list[Any], **terms: Any) -> None:
        one = submission(batch, points=deltas, **terms)
        shown = []
        for log in (self.disk.log, self.memory.log):
            receipt = self.run(log.append_submission(one))
            shown.append(dict(self.run(log.describe_receipt(receipt.id))))
        for row in shown:
            row.pop("id")
        assert shown[0] == shown[1]

    @rule(seconds=st.sampled_from([1, HOLD_S + 1, 1900, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.clock.move(seconds)

    @rule()
    def retention(self) -> None:
        assert self.run(self.memory.log.run_retention()) == self.run(self.disk.log.run_retention())

    @rule()
    def a_route_is_declared(self) -> None:
        for one in self.both:
            self.run(one.deliveries.set_routes([ROUTE]))

    @rule(records=st.integers(1, 5), outcome=outcomes, probes=st.booleans())
    def a_delivery_is_sent(self, records: int, outcome: Outcome, probes: bool) -> None:
        if not self.run(self.disk.deliveries.route_states()):
            return
        now = self.clock.now()
        sent = []
        for one in self.both:
            if probes:
                delivery = self.run(
                    one.deliveries.take_test_delivery(ROUTE.name, now=now, max_rejected_records=2)
                )
            else:
                delivery = self.run(
                    one.deliveries.take_due_delivery(ROUTE.name, now=now, max_records=records)
                )
            sent.append(delivery and visible(delivery))
            if delivery:
                self.run(outcome(one.deliveries, delivery))
        assert sent[0] == sent[1]

    @rule(choice=st.integers(0, 5), again=st.booleans())
    def an_operator_decides(self, choice: int, again: bool) -> None:
        """Decide about one dead letter and one unknown delivery, equally on both engines."""
        for one in self.both:
            letters = self.run(one.deliveries.dead_letters())
            if letters:
                decide = one.deliveries.retry_dead_letters if again else one.deliveries.discard_dead_letters
                assert 1 == self.run(decide([letters[choice % len(letters)].id]))
            unknowns = self.run(one.deliveries.deliveries_with_unknown_outcome())
            if unknowns:
                self.run(one.deliveries.settle_unknown(unknowns[choice % len(unknowns)].id, sent=not again))

    @rule(begin=st.integers(0, 2))
    def settled_numbers_are_replayed(self, begin: int) -> None:
        if not self.run(self.disk.deliveries.route_states()):
            return
        since = NOON + begin * 1800
        replayed = [
            self.run(
                one.deliveries.replay_records(ROUTE.name, since=since, until=since + 3600, dry_run=False)
            )
            for one in self.both
        ]
        assert replayed[0] == replayed[1]

    @rule()
    def the_process_is_killed(self) -> None:
        """A restart changes nothing: an open record stays open for the rest of its time."""
        directory = self.root / f"{next(self.lives)}-killed"
        killed(self.directory, directory)
        self.run(self.disk.close())
        self.directory = directory
        self.disk = self.run(spool.sqlite.spool.open_spool(directory, settings=SETTINGS, clock=self.clock))

    @property
    def both(self) -> tuple[spool.sqlite.spool.SqliteSpool, spool.sqlite.spool.SqliteSpool]:
        return self.disk, self.memory

    @invariant()
    def both_answer_alike(self) -> None:
        assert self.run(everything(self.memory.log)) == self.run(everything(self.disk.log))
        books = [self.run(one.log.books()) for one in self.both]
        assert books[0] == books[1]
        routes = [self.run(one.deliveries.route_states()) for one in self.both]
        assert routes[0] == routes[1]
        assert self.run(self.memory.log.list_conflicts()) == self.run(self.disk.log.list_conflicts())

    @invariant()
    def the_books_balance(self) -> None:
        for one in self.both:
            recounted = self.run(one.log.verify())
            assert [] == list(recounted.imbalances)
            assert self.run(one.log.books()) == recounted


TestEngines = Engines.TestCase
TestEngines.settings = settings(
    max_examples=examples(15), stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)

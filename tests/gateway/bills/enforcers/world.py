"""
A simulated LiteLLM, with the calls that it sends to Tollhouse. Its counters are right, unless a test plants a fault.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from gateway.bills.enforcers.auditing import (
    AuditSources,
    EnforcerAuditor,
    LimitAudit,
    faults_with_enforcer_names,
)
from gateway.bills.enforcers.faults import EnforcerFault, MoneyBudget
from gateway.bills.enforcers.reader import EnforcerReader
from gateway.bills.statements.puller import PullFailed
from gateway.configuration.sections import EnforcerSettings
from spool.record import NS
from tests.gateway.money.budgets.house import House
from tests.spool.ledger_log import HOUR, call

DAY = 24 * HOUR
STEP_S = 1800
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
ENFORCER = EnforcerSettings(
    name="litellm-eu", type="litellm", base_url="http://litellm.example", key_file=Path("/key"), every=STEP_S
)
MODELS = ("gpt-4o", "gpt-4o-mini")


@dataclass(frozen=True)
class Sent:
    """A call of a key at the simulated LiteLLM. `stored` is the time at which Tollhouse has it."""

    key: str
    begun: float
    ended: float
    stored: float
    cost: Decimal
    model: str
    status: str


@dataclass
class Counter:
    """A budget of the simulated LiteLLM. `counts` returns the amount that it adds for a call."""

    key: str
    duration: str = "30d"
    limit: str = "1000"
    counts: Callable[[Sent], Decimal] = lambda sent: sent.cost
    spent: Decimal = Decimal(0)
    resets_at: float = 0.0
    first_reset: float = 0.0

    def add(self, sent: Sent) -> None:
        self.spent += self.counts(sent)

    def reset(self, now: float) -> None:
        """Reset the counter if its window has ended. LiteLLM checks for such budgets every ten minutes."""
        if not self.resets_at:
            self.resets_at = self.first_reset or next_reset(self.duration, now)
        while now >= self.resets_at:
            self.spent = Decimal(0)
            self.resets_at = next_reset(self.duration, self.resets_at)

    def row(self) -> Mapping[str, Any]:
        return {
            "token": f"hash of {self.key}",
            "key_alias": self.key,
            "spend": float(self.spent),
            "max_budget": float(self.limit),
            "budget_duration": self.duration,
            "budget_reset_at": datetime.fromtimestamp(self.resets_at, UTC).isoformat(),
            "created_at": "2026-01-01T00:00:00Z",
            "blocked": None,
        }


def next_reset(duration: str, now: float) -> float:
    day = datetime.fromtimestamp(now, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if duration == "1d":
        return (day + timedelta(days=1)).timestamp()
    if duration == "7d":
        return (day + timedelta(days=7 - day.weekday())).timestamp()
    if duration == "30d":
        return (day.replace(day=1) + timedelta(days=32)).replace(day=1).timestamp()
    return now + int(duration.removesuffix("d")) * DAY


@dataclass
class World:
    house: House
    counters: Sequence[Counter]
    budgets: Sequence[MoneyBudget] = ()
    chance: random.Random = field(default_factory=lambda: random.Random(82))
    calls_per_hour: float = 1.5
    # times in which no call reaches Tollhouse, each with its begin and end
    outages: Sequence[tuple[float, float]] = ()
    # times in which LiteLLM answers nothing, each with its begin and end
    down: Sequence[tuple[float, float]] = ()
    shown: Callable[[Counter, int], Mapping[str, Any]] = lambda counter, reading: counter.row()
    readings: int = 0
    found: dict[str, EnforcerFault] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting: list[Sent] = []
        self.uncounted: list[Sent] = []
        self.sums: dict[str, Decimal] = defaultdict(Decimal)

    async def start(self) -> World:
        await self.house.start()
        self.reader = EnforcerReader(
            self.house.registry.enforcers, self.house.clock, lambda: [ENFORCER], self._fetch
        )

        async def delays() -> Mapping[str, float]:
            return {"litellm": 60.0}

        self.auditor = EnforcerAuditor(
            AuditSources(
                table=self.house.registry.enforcers,
                ledger=self.house.ledger,
                clock=self.house.clock,
                settings=lambda: [ENFORCER],
                delays=delays,
                budgets=lambda: self.budgets,
            )
        )
        return self

    async def _fetch(
        self, enforcer: EnforcerSettings, url: str, headers: Callable[[str], Mapping[str, str]]
    ) -> bytes:
        now = self.house.clock.at
        if any(begin <= now < end for begin, end in self.down):
            raise PullFailed("no connection", retry_after_s=60)
        if "/key/list" not in url:
            return json.dumps({"teams": [], "users": [], "total_pages": 0}).encode()
        rows = [self.shown(counter, self.readings) for counter in self.counters]
        return json.dumps({"keys": rows, "total_pages": 1}).encode()

    async def run(self, days: float, *, audits_every: int = 12) -> Sequence[LimitAudit]:
        """Let time pass. The faults of every audit are collected."""
        audits: Sequence[LimitAudit] = ()
        for step in range(int(days * DAY / STEP_S)):
            self._step()
            await self.reader.read_due()
            self.readings += 1
            if step % audits_every == audits_every - 1:
                await self.house.ledger.catch_up(self.house.log)
                audits = await self.auditor.audit_limits()
                self.found |= {fault.detector: fault for fault in faults_with_enforcer_names(audits)}
        return audits

    def _step(self) -> None:
        start, end = self.house.clock.at, self.house.clock.at + STEP_S
        is_night = start % DAY < 6 * HOUR
        for counter in self.counters:
            if not is_night and self.chance.random() < self.calls_per_hour * STEP_S / HOUR:
                self._call(counter.key, start)
        self._count(end)
        self.house.clock.at = end
        for counter in self.counters:
            # the counter may be reset some minutes late
            counter.reset(end - self.chance.choice([0, 300, 600]))
        self._deliver(end)

    def _call(self, key: str, start: float) -> None:
        begun = start + self.chance.uniform(0, STEP_S - 1)
        ended = begun + self.chance.choice([1, 5, 50])
        stored = ended + self.chance.uniform(0.1, 50)
        for begin, end in self.outages:
            if begin <= stored < end:
                stored = end + self.chance.uniform(0, 60)
        sent = Sent(
            key, begun, ended, stored,
            cost=Decimal(self.chance.randrange(1, 10**6)) / 10**6,
            model=self.chance.choice(MODELS),
            status="error" if self.chance.random() < 0.1 else "ok",
        )  # fmt: skip
        self.waiting.append(sent)
        self.uncounted.append(sent)

    def _count(self, until: float) -> None:
        """Add calls to the counters up to a minute after their end, as LiteLLM writes them in batches."""
        counted = [sent for sent in self.uncounted if sent.ended + 60 <= until]
        self.uncounted = [sent for sent in self.uncounted if sent.ended + 60 > until]
        for sent in counted:
            for counter in self.counters:
                if counter.key == sent.key:
                    counter.add(sent)

    def _deliver(self, until: float) -> None:
        arrived = sorted(
            (sent for sent in self.waiting if sent.stored <= until), key=lambda sent: sent.stored
        )
        self.waiting = [sent for sent in self.waiting if sent.stored > until]
        for sent in arrived:
            record = call(
                id=len(self.house.log.entries).to_bytes(16, "big"),
                start_time=int(sent.begun * NS),
                end_time=int(sent.ended * NS),
                estimated_cost=str(sent.cost),
                api_key=sent.key,
                request_model=sent.model,
                status=sent.status,
            )
            self.house.log.add([record], at=sent.stored)

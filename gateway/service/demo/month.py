"""
The invented calls of a month: with weekdays and nights, growing sessions, errors, cached responses, and
repeated reports.

The module does no I/O. The same seed and end give the same calls.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate
from typing import Any

import msgspec

from gateway.intake.prices import PriceBook
from gateway.service.demo.planted_problems import PlantedProblems, SessionTurn
from gateway.service.demo.workloads import WORKLOADS, Workload
from spool.identity import RecordIdentity, call_identity
from spool.record import CURRENCY, NS, AiRecord, Inference, UsageMetric

DAY_S = 86400
ERRORS = 0.015
CACHED = 0.01
PULL_REQUESTS = 40
REPEATS = 0.01  # share of reports that a sender sends twice, as after a lost response
# hour of the day (index) -> relative number of office calls
OFFICE = tuple([1] * 7 + [4, 10, 16, 18, 16, 10, 14, 18, 18, 15, 9, 5, 3, 2, 2, 1, 1])
ALWAYS = tuple([5] * 7 + [7, 9, 10, 11, 11, 10, 11, 11, 11, 10, 9, 8, 7, 7, 6, 6, 5])
# Calls on a weekend day as a share of the calls on a weekday. The key is True for office work.
WEEKEND = {True: 0.06, False: 0.55}

Report = tuple[AiRecord, RecordIdentity]


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """
    The length and size of a demo month, which ends now (`end`). `records` is the approximate number of calls.
    """

    end: int  # end of the month in epoch seconds
    days: int
    records: int

    @property
    def begin(self) -> int:
        return self.end - self.days * DAY_S


class SimulatedMonth:
    """Creates the reports of a month day by day, each day in time order."""

    def __init__(
        self,
        period: Period,
        *,
        seed: int,
        plants: PlantedProblems,
        prices: PriceBook,
        bill: Callable[[Inference], None] = lambda call: None,
    ) -> None:
        """
        Prepare the month. `bill` is called once for every call that a provider answers, however often the
        call is reported.
        """
        self._bill = bill
        self._period = period
        self._random = random.Random(seed)
        self._plants = plants
        self._prices = prices
        self._hours = {office: list(accumulate(OFFICE if office else ALWAYS)) for office in (True, False)}
        weights = sum(
            _call_share_on_day(day, workload)
            for day in self._day_starts()
            for workload in self._all_workloads()
        )
        self._scale = period.records / weights

    def iterate_days(self) -> Iterator[tuple[int, list[Report]]]:
        """Yield the start of each day, with the day's reports. The last day ends now."""
        for day in self._day_starts():
            reports: list[Report] = []
            for workload in self._all_workloads():
                reports += filter(
                    self._plants.is_sent_before_gateway_stopped, self._day_reports(day, workload)
                )
            reports.sort(key=lambda report: report[0].start_time or 0)
            yield day, reports

    def _all_workloads(self) -> Sequence[Workload]:
        return (*WORKLOADS, *self._plants.workloads)

    def _day_starts(self) -> range:
        return range(self._period.begin // DAY_S * DAY_S, self._period.end, DAY_S)

    def _day_reports(self, day: int, workload: Workload) -> Iterator[Report]:
        expected = self._scale * _call_share_on_day(day, workload) * self._plants.volume_factor(day, workload)
        remaining_calls = int(expected + self._random.random())
        while remaining_calls > 0:
            calls = 1
            if workload.turns > 1:
                calls = min(remaining_calls, 1 + int(self._random.expovariate(1 / workload.turns)))
            remaining_calls -= calls
            yield from self._session_reports(day, workload, calls)

    def _session_reports(self, day: int, workload: Workload, calls: int) -> Iterator[Report]:
        """Yield a session, or a single call. The input of each turn includes the earlier turns."""
        rng = self._random
        hours = self._hours[workload.office]
        hour = self._plants.hour_of_all_calls(day, workload)
        if hour is None:
            hour = rng.choices(range(24), cum_weights=hours)[0]
        at = (day + hour * 3600) * NS + rng.randrange(3600 * NS)
        number = rng.getrandbits(64) if workload.turns > 1 else None
        session = f"{workload.source}-{number:016x}" if number is not None else None
        user = rng.choice(workload.users) if workload.users else None
        input_tokens = self._random_tokens(workload.input_tokens)
        cached_tokens = 0
        for place in range(calls):
            if not self._period.begin * NS <= at < self._period.end * NS:
                return
            output_tokens = self._random_tokens(workload.output_tokens)
            turn = SessionTurn(
                at=at,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cached_tokens=cached_tokens,
                session=session,
                user=user,
                **(_units_of_work_fields(number, place) if number is not None and workload.device else {}),
            )
            yield from self._turn_reports(day, workload, turn)
            cached_tokens = input_tokens
            input_tokens += output_tokens + self._random_tokens(max(80, workload.input_tokens // 30))
            at += rng.randrange(15 * NS, 90 * NS)

    def _turn_reports(self, day: int, workload: Workload, turn: SessionTurn) -> Iterator[Report]:
        call = self._invent_call(workload, turn)
        call = self._plants.plant_problems_in_call(day, workload, call)
        self._bill(call)
        call.cost = self._reported_cost(workload, call)
        yield self._report_with_identity(workload, call)
        if self._random.random() < REPEATS:
            yield self._report_with_identity(workload, msgspec.structs.replace(call))
        twin = self._plants.planted_second_report(day, workload, call)
        if twin is not None:
            # a report with the same source is of another call; with another source, it is a second report of this call
            if twin.source == call.source:
                self._bill(twin)
            twin.span_id = f"{self._random.getrandbits(64):016x}"
            yield twin, call_identity(twin, span=True)
        if workload.source == "claude_code":
            yield from self._counters_of_assistant_call(call)

    def _invent_call(self, workload: Workload, turn: SessionTurn) -> Inference:
        rng = self._random
        took = int((0.4 + 0.012 * turn.output_tokens) * NS * rng.lognormvariate(0, 0.4))
        call = Inference(
            id=b"",
            source=workload.source,
            request_id=f"req_{rng.getrandbits(96):024x}",
            trace_id=f"{rng.getrandbits(128):032x}",
            span_id=f"{rng.getrandbits(64):016x}",
            start_time=turn.at,
            end_time=turn.at + took,
            provider=workload.provider,
            operation="chat",
            request_model=workload.model,
            user=turn.user,
            team=workload.team,
            session=turn.session,
            device=f"laptop-{turn.user}" if workload.device and turn.user else None,
            api_key=f"{workload.service or workload.source}-key",
            tags={"service": workload.service} if workload.service else dict(turn.tags),
            run=turn.run,
            parent_run=turn.parent_run,
        )
        chance = rng.random()
        if chance < ERRORS:
            call.status, call.error_type = "error", rng.choice(("429", "500", "timeout"))
            return call
        call.status = "cached" if chance < ERRORS + CACHED and workload.reports else "ok"
        call.response_model = workload.model
        call.input_tokens, call.output_tokens = turn.input_tokens, turn.output_tokens
        if workload.caches:
            call.cache_read_tokens = turn.cached_tokens if turn.cached_tokens >= 1024 else 0
            if workload.provider == "anthropic":
                call.cache_write_tokens = turn.input_tokens - call.cache_read_tokens
        return call

    def _reported_cost(self, workload: Workload, call: Inference) -> str | None:
        if not workload.reports or call.status != "ok":
            return None
        cost = self._prices.estimate_record(call)
        if cost is None:
            return None
        factor = self._plants.overcharge_factor(workload, call)
        return cost if factor == 1 else f"{Decimal(cost) * factor:f}"

    def _report_with_identity(self, workload: Workload, call: Inference) -> Report:
        if call.status == "error" or not workload.response_ids:
            return call, call_identity(call, span=True)
        return call, call_identity(call, response_id=call.request_id, own_id=call.request_id)

    def _counters_of_assistant_call(self, call: Inference) -> Iterator[Report]:
        """
        Yield the counters that coding assistants send next to their events. The intake recognizes them as
        repeats of the calls.
        """
        if call.status != "ok" or self._random.random() > 0.2:
            return
        amounts: tuple[tuple[str, str | None, str, int | str | None], ...] = (
            ("claude_code.token.usage", "output", "{token}", call.output_tokens),
            ("claude_code.cost.usage", None, CURRENCY, call.cost),
        )
        for name, kind, unit, value in amounts:
            if value is not None:
                metric = UsageMetric(
                    id=self._random.randbytes(16),
                    source=call.source,
                    name=name,
                    model=call.response_model,
                    token_type=kind,
                    value=value,
                    unit=unit,
                    start_time=call.start_time,
                    end_time=call.end_time,
                    session=call.session,
                    user=call.user,
                    team=call.team,
                    device=call.device,
                )
                yield metric, RecordIdentity(metric.id)

    def _random_tokens(self, usual: int) -> int:
        return max(1, int(usual * math.exp(self._random.gauss(0, 0.35))))


def _call_share_on_day(day: int, workload: Workload) -> float:
    weekend = (day // DAY_S + 3) % 7 >= 5
    return workload.share * (WEEKEND[workload.office] if weekend else 1.0)


def _units_of_work_fields(session: int, call_number: int) -> dict[str, Any]:
    run, started = f"{session:016x}", f"{session ^ 1:016x}"
    number = 100 + session % PULL_REQUESTS
    tags = {"repository": "acme/shop", "branch": f"change-{number}", "pull_request": f"acme/shop#{number}"}
    is_started = call_number >= 2 and call_number % 2 == 0
    return {
        "run": started if is_started else run,
        "parent_run": run if is_started else None,
        "tags": {**(tags if session % 3 else {}), "agent": "reviewer" if is_started else "lead"},
    }

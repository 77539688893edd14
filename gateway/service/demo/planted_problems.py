"""
Problems that can be planted in a demo month, each for one detector or one type of recommendation. This module
changes the calls. `samples.py` adds keys, devices and routes, and `bills.py` adds bills.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from gateway.service.demo.workloads import (
    CLAUDE_CODE,
    INVOICES,
    PEOPLE,
    SEARCH,
    SUMMARIES,
    SUPPORT,
    TUTOR,
    WORKLOADS,
    Workload,
)
from spool.identity import RecordIdentity
from spool.record import NS, AiRecord, Inference

DAY_S = 86400
LOSING_LAPTOP = f"laptop-{PEOPLE[0]}"  # the demo laptop whose calls do not arrive
STOPPED_SOURCE, STOPPED_S = "litellm", 6 * 3600  # the demo's sender that stopped sending, and for how long


def _workload_of_planted_problem(
    provider: str,
    model: str,
    service: str,
    input_tokens: int,
    output_tokens: int = 800,
    *,
    call_share: float = 12,
) -> Workload:
    return Workload(
        source="otel",
        provider=provider,
        model=model,
        team="operations",
        service=service,
        share=call_share,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
    )


# Word -> workload that it adds. Every call of such a workload could cost less, for one type of
# recommendation. All these workloads together cost about as much as all other calls. So each workload is
# large enough to be reported, and other planted problems are still visible. Prices of tiers and batches apply
# to these workloads on every day.
SAVINGS = {
    "unread-cache": _workload_of_planted_problem("anthropic", "claude-sonnet-5-5", "digests", 8_000, 370),
    "priority-tier": _workload_of_planted_problem("openai", "gpt-6.1-terra", "checkout", 2_700, 220),
    "regional-model": _workload_of_planted_problem(
        "aws.bedrock", "us.anthropic.claude-sonnet-5-5", "contracts", 16_000, 600
    ),
    "older-model": _workload_of_planted_problem("anthropic", "claude-sonnet-4-5", "minutes", 2_700, 220),
    "large-input": _workload_of_planted_problem(
        "gcp.gemini", "gemini-2.5-pro", "audits", 150_000, call_share=1.4
    ),
    "nightly-job": _workload_of_planted_problem("anthropic", "claude-fable-5-2", "catalogue", 400, 110),
    "paid-retries": _workload_of_planted_problem("openai", "gpt-4.1", "imports", 7_000, 200),
    "repeated-questions": _workload_of_planted_problem("openai", "gpt-4.1", "helpdesk", 6_200, 700),
}
NIGHT = 2  # hour of the day in which the nightly job makes its calls
QUESTIONS = 3  # number of different repeated questions

# Word -> problem that it plants.
PLANTS = {
    "spike": "a day on which one team spends eight times its usual amount",
    "missing-price": "a model without a list price",
    "cost-gap": "a gateway that reports 50 % more than its calls cost",
    "no-owner": "a service whose calls name neither a team nor a user",
    "doubled-source": "a service whose calls are reported by two sources under different ids",
    "unused-cache": "conversations that are sent repeatedly without using the cache",
    "dear-model": "a person who uses a far more expensive model than others",
    "retry-storm": "an hour in which a client fails and retries without a pause",
    "unrecognised": "items that look like AI calls and match no rule",
    "parked-route": "a route that is paused because of a wrong key",
    "dead-letters": "records that a destination rejected",
    "unknown-arrival": "unit-cost records that were sent and got no clear answer",
    "stopped-sender": "a gateway that sent each hour and stopped",
    "idle-key": "a key that nobody uses",
    "wide-key": "a key that may both send and read",
    "losing-laptop": "a laptop whose assistants are used, and whose calls are lost",
    "unreported-key": "a key that OpenAI bills and no source reports",
    "unread-cache": "a service that writes to the provider's cache and never reads it",
    "priority-tier": "a service that pays for the priority tier",
    "regional-model": "a service that uses a model in one region only",
    "older-model": "a service that uses a model with a cheaper successor",
    "large-input": "a service whose inputs are often slightly above a price tier",
    "nightly-job": "a nightly job that could be a batch",
    "paid-retries": "a service whose calls fail, are paid for, and are sent again",
    "repeated-questions": "a service that gets the same questions repeatedly",
    "idle-seat": "a seat of an assistant that nobody uses",
}


# Word of --plant for examples of what people create, such as budgets. No insight finds them, as they are no problems.
EXAMPLES = "examples"

# Planted problem (word of --plant) -> detector or type of recommendation that should find it.
FOUND_BY = {
    "spike": "spend_spike", "missing-price": "missing_price", "cost-gap": "cost_gap", "no-owner": "no_owner",
    "doubled-source": "doubled_source", "unused-cache": "prompt_caching", "dear-model": "cheaper_model",
    "retry-storm": "retry_storm", "unrecognised": "unrecognised_shape", "parked-route": "stuck_route",
    "dead-letters": "dead_letters", "unknown-arrival": "unknown_arrival", "stopped-sender": "stopped_sender",
    "idle-key": "idle_key",
    "wide-key": "wide_key", "losing-laptop": "fleet_losing", "unreported-key": "reconciliation_difference",
    "unread-cache": "cache_write_unread", "priority-tier": "priority_tier", "regional-model": "regional_surcharge",
    "older-model": "newer_model", "large-input": "context_tier", "nightly-job": "batch", "paid-retries": "retries",
    "repeated-questions": "response_cache", "idle-seat": "idle_seat",
}  # fmt: skip
# Word -> text that the title of its finding must contain, because its detector also reports other problems.
NAMED = {"spike": "search"}


def undetected_problem_names(
    problem_names: Collection[str], finding_titles: Mapping[str, Collection[str]]
) -> list[str]:
    """Return the words of --plant whose problem no detector found."""
    return [
        word
        for word in problem_names
        if word in FOUND_BY
        and not any(NAMED.get(word, "") in title.lower() for title in finding_titles.get(FOUND_BY[word], ()))
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastDemoSize:
    """
    The smallest month in which a planted problem is found: its number of days, and its number of calls, which
    is at least `per_day` on each day.
    """

    days: int = 1
    records: int = 1
    per_day: int = 0

    def needed_days_and_records(self, days: int, dilution_factor: float = 1.0) -> tuple[int, int]:
        """
        Return the days (at least `days`) and records with which a month shows the problem. `dilution_factor`
        is how many times as many records are needed because of other planted problems.
        """
        days = max(self.days, days)
        return days, math.ceil(max(self.records, self.per_day * days) * dilution_factor)


# Planted problem -> smallest month in which it is found. Detectors that compare calls need enough calls to
# compare. Problems that are not listed are found in any month. The values were measured for each problem
# alone, with different seeds, weekdays and end hours, and include a margin. If a problem adds calls, fewer
# of the month's calls belong to the usual workloads.
LEAST = {
    "spike": LeastDemoSize(days=14, records=10_000, per_day=500),
    "missing-price": LeastDemoSize(records=1_500, per_day=50),
    "cost-gap": LeastDemoSize(records=10_000, per_day=700),
    "no-owner": LeastDemoSize(records=5_000, per_day=200),
    "doubled-source": LeastDemoSize(records=700, per_day=35),
    "unused-cache": LeastDemoSize(days=2, records=30_000, per_day=1_000),
    "dear-model": LeastDemoSize(days=7, records=10_000, per_day=1_000),
    "retry-storm": LeastDemoSize(days=3, records=800, per_day=90),
    "dead-letters": LeastDemoSize(records=100, per_day=10),
    "unreported-key": LeastDemoSize(days=4),
    **dict.fromkeys(SAVINGS, LeastDemoSize(days=8, records=30_000)),
}


# Word -> maximum number of records in a month of 30 days or fewer. Longer months may have more in proportion.
# Detectors find these problems only in the newest records, which are a small part of a denser month.
MOST = dict.fromkeys(("paid-retries", "repeated-questions"), 150_000)
MOST_DAYS = 30


def unmet_size_requirements(problem_names: Collection[str], *, days: int, records: int) -> list[str]:
    """
    Return the planted problems that a month of this size cannot show, each with the days and records that it
    needs.
    """
    total_weight = _sum_workload_shares(problem_names)
    needs = {
        word: LEAST.get(word, LeastDemoSize()).needed_days_and_records(
            days, total_weight / _sum_workload_shares([word])
        )
        for word in problem_names
    }
    small = [
        f"{word} needs --days {least_days} --records {least_records} or more"
        for word, (least_days, least_records) in needs.items()
        if days < least_days or records < least_records
    ]
    longer = max(1.0, days / MOST_DAYS)
    max_records = {
        word: int(MOST[word] * longer * _sum_workload_shares([word]) / total_weight)
        for word in problem_names
        if word in MOST
    }
    return [
        *small,
        *(
            f"{word} needs --records {limit} or fewer"
            for word, limit in max_records.items()
            if records > limit
        ),
    ]


def least_demo_days_and_records(problem_names: Collection[str], *, days: int) -> tuple[int, int]:
    """
    Return the days and records of the smallest month of at least `days` days in which all these problems are
    found.
    """
    days = max(
        (LEAST.get(word, LeastDemoSize()).needed_days_and_records(days)[0] for word in problem_names),
        default=days,
    )
    total_weight = _sum_workload_shares(problem_names)
    records = (
        LEAST.get(word, LeastDemoSize()).needed_days_and_records(
            days, total_weight / _sum_workload_shares([word])
        )[1]
        for word in problem_names
    )
    return days, max(records, default=1)


def _sum_workload_shares(problem_names: Collection[str]) -> float:
    return sum(workload.share for workload in (*WORKLOADS, *_workloads_of_problems(problem_names)))


def _workloads_of_problems(problem_names: Collection[str]) -> Sequence[Workload]:
    return tuple(workload for word, workload in ADDED.items() if word in problem_names)


SPIKE_AGO = 2  # the spike is this number of days before the end of the month
SPIKE = 8.0
# calls on every day are multiplied by this factor, so that a large enough share of the cost has no owner
OWNERLESS = 1.8
STORM = 40.0  # calls in the storm's hour, as a multiple of the usual number
STORM_HOUR = 14
# The advice to use a cache counts only calls of the last days. Calls of these days get larger inputs, so that
# they cost enough.
CONVERSATION_DAYS = 5
LATE_DAYS = 12  # most planted problems appear within this number of days at the end of the month
DEAR_MODEL = "claude-opus-4-1"
DEAR_USER = "ben"
UNKNOWN = Workload(
    source="otel",
    provider="acme",
    model="acme-large-2026",
    team="research",
    service="trials",
    share=3,
    input_tokens=1500,
    output_tokens=300,
)


ADDED = {"missing-price": UNKNOWN, **SAVINGS}  # word of --plant -> workload that it adds


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTurn:
    """
    A call of a session before it becomes a record. `cached_tokens` is the part of its input that comes from
    the previous turn.
    """

    at: int
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    session: str | None
    user: str | None
    run: str | None = None
    parent_run: str | None = None
    tags: Mapping[str, str] = field(default_factory=dict)


class PlantedProblems:
    """
    The problems that the demo plants (`words`), as changes of the traffic of a month that ends at `end`.
    """

    def __init__(self, problem_names: Collection[str], *, end: int) -> None:
        self.words = frozenset(problem_names)
        self._end = end
        self._today = end // DAY_S * DAY_S
        self._late = self._today - LATE_DAYS * DAY_S
        self.workloads = _workloads_of_problems(self.words)

    def volume_factor(self, day: int, workload: Workload) -> float:
        """Return the factor by which a workload has more calls on a day than usual."""
        if "spike" in self.words and workload is SEARCH and day == self._today - SPIKE_AGO * DAY_S:
            return SPIKE
        if self._is_retry_storm(day, workload):
            return STORM
        if "no-owner" in self.words and workload is SUMMARIES:
            return OWNERLESS
        return 1.0

    def is_sent_before_gateway_stopped(self, report: tuple[AiRecord, RecordIdentity]) -> bool:
        """Return False for calls after the time at which their gateway stopped reporting."""
        record, _ = report
        has_stopped = "stopped-sender" in self.words and record.source == STOPPED_SOURCE
        return not (has_stopped and (record.start_time or 0) >= (self._end - STOPPED_S) * NS)

    def hour_of_all_calls(self, day: int, workload: Workload) -> int | None:
        """Return the hour of the day that has all calls of a workload, or None for the usual hours."""
        if workload is SAVINGS["nightly-job"]:
            return NIGHT
        return STORM_HOUR if self._is_retry_storm(day, workload) else None

    def plant_problems_in_call(self, day: int, workload: Workload, call: Inference) -> Inference:
        """
        Return the call with the planted changes. Each workload is changed by at most one planted problem.
        """
        _plant_savings_problem(self.words, workload, call)
        if "dear-model" in self.words and workload is CLAUDE_CODE and call.user == DEAR_USER:
            call.request_model = DEAR_MODEL
            call.response_model = DEAR_MODEL if call.response_model else None
        if "unused-cache" in self.words and workload is TUTOR and call.status == "ok":
            call.cache_read_tokens = call.cache_write_tokens = 0
            if day >= self._today - CONVERSATION_DAYS * DAY_S:
                call.input_tokens = 3 * (call.input_tokens or 0)
        if day < self._late:
            return call
        if "losing-laptop" in self.words and call.device == LOSING_LAPTOP:
            call.device = None
        if "no-owner" in self.words and workload is SUMMARIES:
            call.team = call.user = None
        if self._is_retry_storm(day, workload):
            _mark_failed(call)
        return call

    def overcharge_factor(self, workload: Workload, call: Inference) -> Decimal:
        late = (call.start_time or 0) >= self._late * NS
        return Decimal("1.5") if "cost-gap" in self.words and workload is SUPPORT and late else Decimal(1)

    def planted_second_report(self, day: int, workload: Workload, call: Inference) -> Inference | None:
        """
        Return a second report to plant: the same call from another source, or the retry of a failed call.
        Return None for other calls.
        """
        if workload is SAVINGS["paid-retries"] and call.status == "error" and call.input_tokens:
            start = (call.start_time or 0) + 5 * NS
            end = (call.end_time or 0) + 5 * NS
            return msgspec.structs.replace(
                call, request_id=None, status="ok", error_type=None, start_time=start, end_time=end
            )
        is_doubled = "doubled-source" in self.words and workload is SUPPORT and day >= self._late
        if not is_doubled or call.status != "ok":
            return None
        start = (call.start_time or 0) + NS
        return msgspec.structs.replace(
            call, source="openinference", request_id=None, cost=None, start_time=start, tags={}
        )

    def _is_retry_storm(self, day: int, workload: Workload) -> bool:
        return "retry-storm" in self.words and workload is INVOICES and day == self._today - DAY_S


def _mark_failed(call: Inference) -> None:
    call.status, call.error_type = "error", "429"
    call.response_model = call.input_tokens = call.output_tokens = None


def _plant_savings_problem(problem_names: frozenset[str], workload: Workload, call: Inference) -> None:
    word = next((word for word in problem_names if SAVINGS.get(word) is workload), None)
    if word is None or call.input_tokens is None:
        return
    if word == "unread-cache":
        call.cache_write_tokens = call.input_tokens
    elif word == "priority-tier":
        call.tags = {**call.tags, "service_tier": "priority"}
    elif word == "paid-retries":
        call.status, call.error_type = "error", "timeout"
    elif word == "repeated-questions":
        question = call.input_tokens % QUESTIONS
        call.input_tokens, call.output_tokens = workload.input_tokens + 1000 * question, 700 + 100 * question

"""
Recommendation about calls that failed, were paid, and were repeated within a minute, with the cost of
the failed calls.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from gateway.money.insights.findings import printable_name
from gateway.money.recommendations.facts import (
    Opportunity,
    ProgramAndModel,
    RecentCall,
    SavingFacts,
    cost_by_daily_use_index,
)
from gateway.money.recommendations.repricing import format_exact_dollars
from spool.record import NS, Inference
from spool.registry.insights import MEDIUM
from spool.registry.recommendations import STRONG

NAME = "retries"
TITLE = "Paid calls that fail and are repeated"
FORMULA = "cost of the failed calls that were repeated within a minute"
CONFIDENCE = STRONG
EFFORT = MEDIUM
ASSUMPTIONS = (
    "A call with the same number of input tokens, the same sender and the same model repeats the "
    "failed call.",
)
WITHIN_NS = 60 * NS
LEAST_CALLS = 5


class _RepeatedCallKey(NamedTuple):
    """The fields that must be equal for a failed call and the call that repeats it."""

    source: str
    model: str | None
    team: str | None
    user: str | None
    api_key: str | None
    session: str | None
    input_tokens: int | None


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    failed: dict[_RepeatedCallKey, list[RecentCall]] = defaultdict(list)
    works: dict[ProgramAndModel, list[RecentCall]] = defaultdict(list)
    compared: dict[ProgramAndModel, list[RecentCall]] = defaultdict(list)
    for recent_call in saving_facts.recent:  # the calls are in chronological order
        compared[saving_facts.uses[recent_call.use_index].program_and_model].append(recent_call)
        same = _retry_key(recent_call.call)
        for before in failed.pop(same, ()):
            if (recent_call.call.start_time or 0) - (before.call.start_time or 0) <= WITHIN_NS:
                works[saving_facts.uses[before.use_index].program_and_model].append(before)
        if recent_call.call.status == "error":
            failed[same].append(recent_call)
    for work, calls in works.items():
        if len(calls) < LEAST_CALLS:
            continue
        claims = cost_by_daily_use_index(calls)
        cost = sum(claims.values())
        [(error, _)] = Counter(
            printable_name(recent_call.call.error_type, "errors without a name") for recent_call in calls
        ).most_common(1)
        yield Opportunity(
            subject=work,
            work=work,
            claims=claims,
            title=f"Failed calls of {work.name} to {work.model}",
            seen=(
                f"{len(calls):,} of the newest calls of {work.name} to {work.model} failed (mostly "
                f"{error}), were paid, and were repeated within a minute."
            ),
            advice=(
                "Find the cause of the failures, such as a short timeout, a truncated output or a "
                "failing tool. Wait longer before each repeat."
            ),
            formula=f"{format_exact_dollars(cost)} for {len(calls):,} failed calls",
            current=work.processing_with_mode(),
            recommended=work.processing_with_mode(),
            measured_by=work.measured_by,
            compared=cost_by_daily_use_index(compared[work]),
        )


def _retry_key(call: Inference) -> _RepeatedCallKey:
    return _RepeatedCallKey(
        source=call.source,
        model=call.request_model or call.response_model,
        team=call.team,
        user=call.user,
        api_key=call.api_key,
        session=call.session,
        input_tokens=call.input_tokens,
    )

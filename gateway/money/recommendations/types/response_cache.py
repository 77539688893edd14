"""
Recommendation of a response cache for calls that look like a repeat of a call within the hour before.

Prompts are never stored, so calls are compared by their token counts. Some counts are equal by chance. The
number of matches by chance is estimated from calls with exactly one more input token, and subtracted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.money.recommendations.facts import (
    Opportunity,
    ProgramAndModel,
    RecentCall,
    SavingFacts,
    cost_by_daily_use_index,
)
from gateway.money.recommendations.repricing import format_exact_dollars
from spool.record import NS
from spool.registry.insights import MEDIUM
from spool.registry.recommendations import WEAK

NAME = "response_cache"
TITLE = "A response cache"
FORMULA = "cost of repeated calls x (repeats - repeats by chance) / repeats"
CONFIDENCE = WEAK
EFFORT = MEDIUM
ASSUMPTIONS = (
    "Calls of one program with the same input and output tokens within an hour are the same call.",
    "The same request may get the same response.",
)
WITHIN_NS = 3600 * NS
LEAST_CALLS = 20
LEAST_SHARE = 10  # minimum share of repeats, in percent of the calls
BY_CHANCE = 4  # at most 1/BY_CHANCE of the found repeats may be expected by chance


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    works: dict[ProgramAndModel, list[RecentCall]] = defaultdict(list)
    compared: dict[ProgramAndModel, list[RecentCall]] = defaultdict(list)
    for recent_call in saving_facts.recent:
        call, work = recent_call.call, saving_facts.uses[recent_call.use_index].program_and_model
        compared[work].append(recent_call)
        # Calls in a session are no repeats, because each input contains the earlier turns.
        if call.status == "ok" and call.session is None and call.input_tokens and call.output_tokens:
            works[work].append(recent_call)
    for work, calls in works.items():
        yield from _repeat_opportunities(work, calls, cost_by_daily_use_index(compared[work]))


def _repeat_opportunities(
    work: ProgramAndModel, calls: Sequence[RecentCall], compared: Mapping[int, int]
) -> Iterator[Opportunity]:
    seen: dict[tuple[int, int], int] = {}
    repeats: list[RecentCall] = []
    chance = 0
    for recent_call in calls:  # `calls` are in chronological order
        start, input_tokens, output_tokens = (
            recent_call.call.start_time or 0,
            recent_call.call.input_tokens or 0,
            recent_call.call.output_tokens or 0,
        )
        if start - seen.get((input_tokens, output_tokens), -WITHIN_NS - 1) <= WITHIN_NS:
            repeats.append(recent_call)
        chance += start - seen.get((input_tokens + 1, output_tokens), -WITHIN_NS - 1) <= WITHIN_NS
        seen[input_tokens, output_tokens] = start
    count = len(repeats)
    if count < LEAST_CALLS or 100 * count < LEAST_SHARE * len(calls) or BY_CHANCE * chance > count:
        return
    claims: dict[int, int] = defaultdict(int)
    for recent_call in repeats:
        claims[recent_call.use_index] += recent_call.cost * (count - chance) // count
    cost = sum(recent_call.cost for recent_call in repeats)
    yield Opportunity(
        subject=work,
        work=work,
        claims=claims,
        title=f"A response cache for {work.name} with {work.model}",
        seen=(
            f"{count:,} of the newest {len(calls):,} calls of {work.name} with {work.model} had the same "
            "number of input and output tokens as another call within the hour before. By chance, "
            f"{chance:,} such calls would be expected."
        ),
        advice=(
            "Check whether the same request is repeated, and cache its response for a while in the "
            "program or the gateway."
        ),
        formula=f"{format_exact_dollars(cost)} for {count:,} repeats x ({count:,} - {chance:,}) / {count:,}",
        current=work.processing_with_mode(),
        recommended=work.processing_with_mode(),
        measured_by=work.measured_by,
        compared=compared,
    )

"""
Recommendation of a prompt cache for conversations that send everything again and never read from
the provider's cache.

If a call continues a session within minutes, its input begins with the input of the previous call. With a cache,
that part would have been read from the cache. The cost of writing to the cache is subtracted from the saving.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from gateway.money.recommendations.facts import (
    DAY_S,
    Opportunity,
    ProgramAndModel,
    RecentCall,
    SavingFacts,
    cost_by_daily_use_index,
    scale_by_paid_share,
)
from gateway.money.recommendations.repricing import format_exact_dollars
from spool.record import NS, Inference
from spool.registry.insights import MEDIUM
from spool.registry.recommendations import STRONG

NAME = "prompt_caching"
TITLE = "A prompt cache for conversations"
FORMULA = (
    "cost of the calls - cost of the same calls if each wrote its input to the cache and read the "
    "input of the call before"
)
CONFIDENCE = STRONG
EFFORT = MEDIUM
ASSUMPTIONS = (
    "A call begins with the whole input of the previous call in its session.",
    "The provider keeps cached input for five minutes.",
)
# Only calls of the last five days count, so that the recommendation ends soon after a client was changed.
RECENT_NS = 5 * DAY_S * NS
ALIVE_NS = 300 * NS  # nanoseconds for which providers keep a cache entry that no call reads
LEAST_INPUT = 1024  # minimum input tokens, because providers do not cache shorter inputs
LEAST_CALLS = 20
LEAST_SHARE = 10  # minimum saving, in percent of the calls' cost


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    since = int(saving_facts.now) * NS - RECENT_NS
    works: dict[ProgramAndModel, list[RecentCall]] = defaultdict(list)
    compared: dict[ProgramAndModel, list[RecentCall]] = defaultdict(list)
    reading = set()
    for recent_call in saving_facts.recent:
        if (recent_call.call.start_time or 0) >= since:
            work = saving_facts.uses[recent_call.use_index].program_and_model
            compared[work].append(recent_call)
            if recent_call.call.cache_read_tokens:
                reading.add(work)
            elif recent_call.call.session and recent_call.call.status == "ok":
                works[work].append(recent_call)
    for work, calls in works.items():
        if work not in reading:
            yield from _caching_opportunities(
                saving_facts, work, calls, cost_by_daily_use_index(compared[work])
            )


def _caching_opportunities(
    saving_facts: SavingFacts, work: ProgramAndModel, calls: Sequence[RecentCall], compared: Mapping[int, int]
) -> Iterator[Opportunity]:
    sessions: dict[str | None, list[RecentCall]] = defaultdict(list)
    for recent_call in calls:
        sessions[recent_call.call.session].append(recent_call)
    claims: dict[int, int] = defaultdict(int)
    resent = cost = 0
    for session in sessions.values():
        before: Inference | None = None
        for recent_call in session:
            held = _tokens_readable_from_cache(before, recent_call.call)
            before = recent_call.call
            saving = _saving_with_cache(saving_facts, recent_call, held)
            # A session of one call is not a conversation, so a cache would save nothing.
            if saving is not None and len(session) > 1:
                claims[recent_call.use_index] += saving
                resent += held > 0
            cost += 0 if saving is None else recent_call.cost
    saved = sum(claims.values())
    if resent < LEAST_CALLS or 100 * saved < LEAST_SHARE * cost:
        return
    yield Opportunity(
        subject=work,
        work=work,
        claims=claims,
        title=f"Prompt caching with {work.model} for {work.name}",
        seen=(
            f"{resent:,} calls of the last five days of {work.name} with {work.model} sent a conversation "
            "again within minutes, but none read from the provider's cache."
        ),
        advice=(
            "Enable prompt caching in that client (a cache breakpoint after the system prompt), and keep "
            "the parts that change between calls at the end of the prompt."
        ),
        formula=f"{format_exact_dollars(cost)} without a cache - {format_exact_dollars(cost - saved)} with one",
        current=work.processing_with_mode(),
        recommended=work.processing_with_mode(),
        measured_by=work.measured_by,
        compared=compared,
    )


def _saving_with_cache(saving_facts: SavingFacts, recent_call: RecentCall, cached_tokens: int) -> int | None:
    as_it_was = saving_facts.estimate_call(recent_call.call)
    with_cache = saving_facts.estimate_call(_call_with_cached_tokens(recent_call.call, cached_tokens))
    if not as_it_was or with_cache is None:
        return None
    return scale_by_paid_share(as_it_was - with_cache, recent_call.cost, as_it_was)


def _tokens_readable_from_cache(previous_call: Inference | None, call: Inference) -> int:
    if previous_call is None or (call.start_time or 0) - (previous_call.start_time or 0) > ALIVE_NS:
        return 0
    tokens = previous_call.input_tokens or 0
    return tokens if LEAST_INPUT <= tokens <= (call.input_tokens or 0) else 0


def _call_with_cached_tokens(call: Inference, cached_tokens: int) -> Inference:
    written = (call.input_tokens or 0) - cached_tokens
    return msgspec.structs.replace(
        call,
        cache_read_tokens=cached_tokens,
        cache_write_tokens=written if written + cached_tokens >= LEAST_INPUT else 0,
    )

"""
Conversations that send everything again and read nothing from the provider's cache, where it would have paid.

A call that continues a session within minutes begins with what the last one held: that much would have been
read from the cache. What writing to the cache costs is taken off.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from decimal import Decimal

import msgspec

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, money, named, ordered, percent
from spool.record import NS, Inference
from spool.registry.insights import MEDIUM, Finding

NAME = "unused_cache"
RECENT_NS = 5 * 86400 * NS  # a client that was mended is soon forgiven
ALIVE_NS = 300 * NS  # how long providers keep what was not read
LEAST_INPUT = 1024  # tokens: shorter inputs are not cached
LEAST_CALLS = 20
LEAST_SHARE = Decimal("0.1")  # of what the calls cost
LEAST = Decimal("0.5")  # dollars

Estimate = Callable[[Inference], str | None]
Place = tuple[str, str | None, str | None]  # source, model, team


def find(facts: Facts) -> Sequence[Finding]:
    groups: dict[Place, list[Inference]] = defaultdict(list)
    reading = set()
    since = int(facts.now) * NS - RECENT_NS
    for call in facts.recent:
        if call.start_time is None or call.start_time < since:
            continue
        place = (call.source, call.response_model or call.request_model, call.team)
        if call.cache_read_tokens or call.status == "cached":
            reading.add(place)
        elif call.session and call.status == "ok" and place not in reading:
            groups[place].append(call)
    found = []
    for place, calls in groups.items():
        if place in reading:
            continue
        cost, saving, resent = _saving(calls, facts.estimate)
        if resent >= LEAST_CALLS and saving >= max(LEAST, LEAST_SHARE * cost):
            found.append(_finding(place, calls, cost, saving, resent))
    return ordered(found)


def _saving(calls: Sequence[Inference], estimate: Estimate) -> tuple[Decimal, Decimal, int]:
    """What the sessions cost, what a cache would have saved, and the calls that would have read from it."""
    sessions: dict[str | None, list[Inference]] = defaultdict(list)
    for call in calls:
        sessions[call.session].append(call)
    cost = saving = Decimal(0)
    resent = 0
    for session in sessions.values():
        session.sort(key=_start)
        before: Inference | None = None
        for call in session:
            held = _held(before, call)
            as_it_was, with_cache = estimate(call), estimate(_cached(call, held))
            before = call
            if as_it_was is None or with_cache is None:
                continue
            cost += Decimal(as_it_was)
            # A session of one call is no conversation: nothing would have been written to the cache for it.
            if len(session) > 1:
                saving += Decimal(as_it_was) - Decimal(with_cache)
                resent += held > 0
    return cost, saving, resent


def _held(before: Inference | None, call: Inference) -> int:
    """The tokens of a call's input that the cache would still have held."""
    if before is None or _start(call) - _start(before) > ALIVE_NS:
        return 0
    tokens = before.input_tokens or 0
    return tokens if LEAST_INPUT <= tokens <= (call.input_tokens or 0) else 0


def _cached(call: Inference, held: int) -> Inference:
    written = (call.input_tokens or 0) - held
    return msgspec.structs.replace(
        call, cache_read_tokens=held, cache_write_tokens=written if written + held >= LEAST_INPUT else 0
    )


def _start(call: Inference) -> int:
    return call.start_time or 0


def _finding(place: Place, calls: Sequence[Inference], cost: Decimal, saving: Decimal, resent: int) -> Finding:
    source, model, team = place
    return finding(
        NAME,
        place,
        title=f"Prompt caching would have saved {money(saving)} with {named(model)}",
        seen=f"{resent:,} calls of the last days of {named(source)} (team {named(team)}) with {named(model)} sent a "
        f"conversation again within minutes, and none read from the cache. They cost {money(cost)}; with a cache "
        f"{percent(saving, cost)} less.",
        advice="Switch prompt caching on in that client (a cache breakpoint after the system prompt), and keep what "
        "changes from call to call at the end of the prompt.",
        category="caching",
        effort=MEDIUM,
        impact=saving,
        newest=max(_start(call) for call in calls) / NS,
    )

"""
Calls that seem to arrive twice: two sources tell of the same model and tokens, with starts within five seconds.

Their ids do not match, so both count; this detector reports the suspicion and changes nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from decimal import Decimal

from gateway.insights.facts import Facts
from gateway.insights.findings import finding, money, named, ordered, percent
from spool.record import NS, Inference
from spool.registry.insights import LOW, Finding

NAME = "doubled_source"
APART_NS = 5 * NS
LEAST_PAIRS = 10
LEAST_SHARE = 0.2  # of the calls of the source that has fewer
LEAST_TOKENS = 50  # shorter calls look alike by chance

Pair = tuple[Inference, Inference]


def find(facts: Facts) -> Sequence[Finding]:
    calls = [call for call in facts.recent if _tells(call)]
    by_source = Counter(call.source for call in calls)
    pairs: dict[tuple[str, str], list[Pair]] = defaultdict(list)
    for first, second in _pairs(calls):
        one, other = sorted((first.source, second.source))
        pairs[one, other].append((first, second))
    return ordered(
        _finding(one, other, found, min(by_source[one], by_source[other]))
        for (one, other), found in pairs.items()
        if len(found) >= max(LEAST_PAIRS, LEAST_SHARE * min(by_source[one], by_source[other]))
    )


def _tells(call: Inference) -> bool:
    tokens = (call.input_tokens or 0) + (call.output_tokens or 0)
    return call.start_time is not None and tokens >= LEAST_TOKENS and call.status != "cached"


def _pairs(calls: Sequence[Inference]) -> Iterator[Pair]:
    """Each call in at most one pair, with the nearest call before it that fits."""
    alike: dict[tuple[str, int | None, int | None], list[Inference]] = defaultdict(list)
    for call in calls:
        alike[_model(call), call.input_tokens, call.output_tokens].append(call)
    for group in alike.values():
        waiting: list[Inference] = []
        for call in sorted(group, key=_start):
            waiting = [each for each in waiting if _start(call) - _start(each) <= APART_NS]
            other = next((each for each in reversed(waiting) if each.source != call.source), None)
            if other is None:
                waiting.append(call)
            else:
                waiting.remove(other)
                yield other, call


def _start(call: Inference) -> int:
    return call.start_time or 0


def _model(call: Inference) -> str:
    """Return the model without the prefix that gateways put before it: `openai/gpt-4o` is `gpt-4o`."""
    return (call.request_model or call.response_model or "").lower().rpartition("/")[2]


def _cost(call: Inference) -> Decimal:
    return Decimal(call.cost or call.estimated_cost or 0)


def _finding(one: str, other: str, pairs: Sequence[Pair], fewer: int) -> Finding:
    twice = sum((min(_cost(first), _cost(second)) for first, second in pairs), Decimal(0))
    return finding(
        NAME,
        (one, other),
        title=f"{named(one)} and {named(other)} seem to report the same calls",
        seen=f"{len(pairs):,} of the newest calls ({percent(len(pairs), fewer)} of the smaller source) have a twin in "
        f"the other source: same model, same tokens, starts within 5 s. {money(twice)} may count twice.",
        advice="Decide which of the two counts, and set count = false for the other, as in "
        f'[sources."{named(other)}"]: its records are then kept and shown, and not summed.',
        category="duplicates",
        effort=LOW,
        impact=twice,
        newest=max(_start(second) for _, second in pairs) / NS,
    )

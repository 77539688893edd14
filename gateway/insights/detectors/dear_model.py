"""
Somebody who pays far more per token than others do for the same work: a dearer model than the work needs.

The same work is the same service (else the same source) with inputs and outputs of about the same length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from statistics import median

from gateway.insights.facts import Facts, Spend
from gateway.insights.findings import finding, money, named, ordered
from spool.registry.insights import LOW, Finding

NAME = "dear_model"
LEAST_CALLS = 20
LEAST_PEERS = 3
MOST_WORKERS = 300  # at one work, the most costly: each is held against all others
TIMES = 3  # what the peers pay for a token
ALIKE = 2  # times longer or shorter, at most
LEAST = Decimal(1)  # dollars


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """Who did some work, and how."""

    work: str | None
    who: str
    model: str | None  # the one that cost most
    calls: int
    input_tokens: int
    output_tokens: int
    cost: Decimal
    newest: float

    @property
    def price(self) -> Decimal:
        """Of one token."""
        return self.cost / (self.input_tokens + self.output_tokens)

    def is_like(self, other: Worker) -> bool:
        return _near(self.input_tokens / self.calls, other.input_tokens / other.calls) and _near(
            self.output_tokens / self.calls, other.output_tokens / other.calls
        )


def find(facts: Facts) -> Sequence[Finding]:
    works: dict[str | None, list[Worker]] = defaultdict(list)
    for worker in _workers(facts.week):
        works[worker.work].append(worker)
    found = []
    for everybody in works.values():
        workers = sorted(everybody, key=lambda each: -each.cost)[:MOST_WORKERS]
        for worker in workers:
            peers = [each for each in workers if each is not worker and each.is_like(worker)]
            if len(peers) < LEAST_PEERS:
                continue
            usual = median(each.price for each in peers)
            excess = worker.cost - usual * (worker.input_tokens + worker.output_tokens)
            cheaper = min(peers, key=lambda each: abs(each.price - usual))
            if worker.price >= TIMES * usual and excess >= LEAST and cheaper.model != worker.model:
                found.append(_finding(worker, cheaper, len(peers), usual, excess))
    return ordered(found)


def _workers(week: Sequence[Spend]) -> Iterator[Worker]:
    groups: dict[tuple[str | None, str], list[Spend]] = defaultdict(list)
    for spend in week:
        who = spend.user or spend.team or spend.api_key
        if who and spend.cost and spend.calls:
            groups[spend.service or spend.source, who].append(spend)
    for (work, who), spends in groups.items():
        calls = sum(spend.calls for spend in spends)
        if calls >= LEAST_CALLS and any(spend.tokens for spend in spends):
            models: dict[str | None, Decimal] = defaultdict(Decimal)
            for spend in spends:
                models[spend.model] += spend.cost
            yield Worker(
                work=work,
                who=who,
                model=max(models, key=lambda each: models[each]),
                calls=calls,
                input_tokens=sum(spend.input_tokens for spend in spends),
                output_tokens=sum(spend.output_tokens for spend in spends),
                cost=sum((spend.cost for spend in spends), Decimal(0)),
                newest=max(spend.start for spend in spends),
            )


def _near(one: float, other: float) -> bool:
    low, high = sorted((one, other))
    return high <= ALIKE * low


def _finding(worker: Worker, peer: Worker, peers: int, usual: Decimal, excess: Decimal) -> Finding:
    return finding(
        NAME,
        (worker.work, worker.who),
        title=f"{named(worker.who)} pays {worker.price / usual:.0f} times what others pay in {named(worker.work)}",
        seen=f"{named(worker.who)} uses {named(worker.model)} for {worker.calls:,} calls in a week. {peers} others do "
        f"work of the same shape there, most of them with models such as {named(peer.model)}.",
        advice=f"Try {named(peer.model)} for this work; it would have cost {money(excess)} less in that week.",
        category="model choice",
        effort=LOW,
        impact=excess,
        newest=worker.newest,
    )

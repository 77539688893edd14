"""
Recommendation of a cheaper model to users who pay far more per token than others do for the same work, with
the cost at the prices of the other users' model.

Calls are the same work if they have the same service (or the same source, if the service is unknown) and
inputs and outputs of similar length.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median_low

from msgspec.structs import replace

from gateway.money.recommendations.facts import DailyUse, Opportunity, SavingFacts
from gateway.money.recommendations.repricing import format_exact_dollars
from spool.record import NS
from spool.registry.insights import LOW
from spool.registry.recommendations import WEAK, Processing

NAME = "cheaper_model"
TITLE = "The model that others use for the same work"
FORMULA = "cost of the work - cost of the same tokens at the prices of the model that peers use"
CONFIDENCE = WEAK
EFFORT = LOW
ASSUMPTIONS = (
    "Calls of one service with inputs and outputs of similar length are the same work.",
    "The other model needs the same number of tokens.",
)
LEAST_CALLS = 20
LEAST_PEERS = 3
# Maximum users compared per kind of work, those with the highest cost. Each is compared with all others.
MOST_WORKERS = 300
TIMES = 3  # minimum ratio between the user's price per token and the median of the other users
ALIKE = 2  # maximum ratio between the mean token counts of similar inputs or outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class UserWorkUsage:
    """One user's calls of a kind of work. `main` is the use of the model for which the user paid most."""

    work: str
    who: str
    main: DailyUse
    places: tuple[int, ...]
    calls: int
    input_tokens: int
    output_tokens: int
    cost: int

    @property
    def price_per_million(self) -> int:
        return self.cost * 1_000_000 // (self.input_tokens + self.output_tokens)

    def has_similar_calls(self, other: UserWorkUsage) -> bool:
        return _are_near(self.input_tokens * other.calls, other.input_tokens * self.calls) and _are_near(
            self.output_tokens * other.calls, other.output_tokens * self.calls
        )


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    works: dict[str, list[UserWorkUsage]] = defaultdict(list)
    for worker in _group_uses_by_user_and_work(saving_facts):
        works[worker.work].append(worker)
    for everybody in works.values():
        workers = sorted(everybody, key=lambda candidate: (-candidate.cost, candidate.who))[:MOST_WORKERS]
        for worker in workers:
            peers = [
                candidate
                for candidate in workers
                if candidate is not worker and candidate.has_similar_calls(worker)
            ]
            if len(peers) >= LEAST_PEERS:
                usual = median_low(peer_worker.price_per_million for peer_worker in peers)
                peer = min(
                    peers, key=lambda candidate: (abs(candidate.price_per_million - usual), candidate.who)
                )
                is_other = peer.main.dimensions.model != worker.main.dimensions.model
                if is_other and worker.price_per_million >= TIMES * usual:
                    yield _model_switch_opportunity(saving_facts, worker, peer, len(peers))


def _group_uses_by_user_and_work(saving_facts: SavingFacts) -> Iterator[UserWorkUsage]:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for use_index, use in enumerate(saving_facts.uses):
        dimensions = use.dimensions
        work = use.program_and_model
        who = dimensions.user or dimensions.team or dimensions.api_key
        if who:
            groups[work.service or work.source, who].append(use_index)
    for (work_name, who), places in groups.items():
        uses = [saving_facts.uses[use_index] for use_index in places]
        calls = sum(use.tokens.calls for use in uses)
        input_tokens = sum(use.tokens.input_tokens for use in uses)
        output_tokens = sum(use.tokens.output_tokens or 0 for use in uses)
        if calls >= LEAST_CALLS and input_tokens + output_tokens:
            costs: dict[str | None, int] = defaultdict(int)
            for use in uses:
                costs[use.dimensions.model] += use.cost
            model = max(costs, key=lambda name: (costs[name], name or ""))
            yield UserWorkUsage(
                work=work_name,
                who=who,
                main=next(use for use in uses if use.dimensions.model == model),
                places=tuple(places),
                calls=calls,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cost=sum(use.cost for use in uses),
            )


def _are_near(one: int, other: int) -> bool:
    low, high = sorted((one, other))
    return high <= ALIKE * low


def _model_switch_opportunity(
    saving_facts: SavingFacts, user_work: UserWorkUsage, peer: UserWorkUsage, peer_count: int
) -> Opportunity:
    peer_tokens = peer.main.tokens
    claims: dict[int, int] = {}
    cost = 0
    for use_index in user_work.places:
        use = saving_facts.uses[use_index]
        instead = replace(
            use.tokens,
            provider=peer_tokens.provider,
            response_model=peer_tokens.response_model,
            request_model=peer_tokens.request_model,
            mode=peer_tokens.mode,
            time=int(saving_facts.now) * NS,
        )
        saving = saving_facts.saving_if_priced_as(use, instead)
        if saving is not None:
            claims[use_index] = saving
            cost += use.cost
    now = user_work.main.dimensions
    then = peer.main.dimensions
    return Opportunity(
        subject=(user_work.work, user_work.who),
        claims=claims,
        title=f"{then.model} for {user_work.who} in {user_work.work} instead of {now.model}",
        seen=(
            f"{user_work.who} pays {user_work.price_per_million / max(1, peer.price_per_million):.0f} times as much "
            f"per token as others in {user_work.work}. The model is mostly {now.model}, for {user_work.calls:,} calls. "
            f"{peer_count} others do similar work there, with models such as {then.model}."
        ),
        advice=f"Try {then.model} for this work.",
        formula=(
            f"{format_exact_dollars(cost)} with the current models - "
            f"{format_exact_dollars(cost - sum(claims.values()))} at the prices "
            f"of {then.model}"
        ),
        current=Processing(model=now.model, provider=now.provider),
        recommended=Processing(model=then.model, provider=then.provider),
        measured_by={
            **user_work.main.program_and_model.measured_by,
            "user": user_work.main.dimensions.user or "",
        },
    )

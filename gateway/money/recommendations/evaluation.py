"""
Evaluation of all types over the facts: it removes overlaps between their opportunities, and builds the
savings to store. Pure and slow.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b

from gateway.money.insights.findings import printable_name
from gateway.money.recommendations.facts import (
    DAYS,
    DailyUse,
    Opportunity,
    RecommendationType,
    SavingFacts,
    dimension_value,
    seat_dimension_value,
)
from gateway.money.recommendations.list import BY_NAME, OF_SEATS
from gateway.money.recommendations.repricing import format_dollars, format_exact_dollars
from spool import money
from spool.people import filter_values_of_dimension
from spool.registry.insights import IGNORED, MAX_TEXT, MAX_TITLE
from spool.registry.recommendations import Recommendation, Saving, TypeSettings

MOST = 20  # maximum opportunities per type; the opportunities with the largest savings are kept
# maximum values per dimension of a recommendation; the values with the largest savings are kept
MOST_VALUES = 50
# Seconds after a recommendation was addressed. Earlier events do not count against it, because a change needs
# some time to take effect.
GRACE_S = 3 * 86400.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAdvice:
    """Stored data that an evaluation needs: the settings of each type, and the recommendations by key."""

    settings: Mapping[str, TypeSettings] = field(default_factory=dict)
    recommendations: Mapping[str, Recommendation] = field(default_factory=dict)

    def is_enabled(self, type: str) -> bool:
        return self.settings.get(type, TypeSettings()).enabled


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """
    The savings without overlaps, the types that were searched and those that failed, and the cost of all uses
    in units of money.
    """

    settled: Sequence[SavingWithoutOverlap]
    looked_for: Sequence[str]
    failed: Sequence[str]
    spent: int


def evaluate_types(
    saving_facts: SavingFacts, types: Sequence[RecommendationType], stored_advice: StoredAdvice
) -> Evaluation:
    """Run the types over the facts. This is slow, so call it outside the event loop."""
    candidates: list[tuple[str, Opportunity]] = []
    looked_for, failed = [], []
    for type in types:
        try:
            opportunities = [
                _opportunity_of_month(saving_facts, opportunity, type.NAME, stored_advice)
                for opportunity in type.find_opportunities(saving_facts)
            ]
        except Exception:  # noqa: BLE001 - the supervised loop: a mistake in one type must not stop the others
            _log.exception(
                "a type of recommendations failed, so its recommendations stay as they were",
                extra={"action": "recommendation_type_failed", "type": type.NAME},
            )
            failed.append(type.NAME)
        else:
            looked_for.append(type.NAME)
            largest = sorted(opportunities, key=lambda item: (-item.gross_saving, list(item.subject)))[:MOST]
            candidates += [
                (type.NAME, opportunity) for opportunity in largest if opportunity.gross_saving > 0
            ]
    spent = sum(use.cost for use in saving_facts.uses)

    def least_saving_of_type(type: str) -> int:
        settings = stored_advice.settings.get(type, TypeSettings())
        whole = saving_facts.seats_cost if type in OF_SEATS else spent
        share = money.text_to_units(settings.least_share) * whole // (100 * money.UNIT)
        return int(max(money.text_to_units(settings.least_savings), share))

    def is_opportunity_ignored(type: str, opportunity: Opportunity) -> bool:
        recommendation = stored_advice.recommendations.get(opportunity_key(type, opportunity))
        return recommendation is not None and recommendation.status == IGNORED

    settled = remove_overlaps(
        saving_facts.uses, candidates, minimum_saving=least_saving_of_type, is_ignored=is_opportunity_ignored
    )
    return Evaluation(settled=settled, looked_for=looked_for, failed=failed, spent=spent)


def opportunity_key(type: str, opportunity: Opportunity) -> str:
    digest = blake2b(json.dumps(list(opportunity.subject)).encode(), digest_size=16).hexdigest()
    return f"{type}:{digest}"


def build_savings(
    saving_facts: SavingFacts, evaluation: Evaluation, *, dimensions: Sequence[str], price_book: str
) -> list[Saving]:
    return [
        _build_saving(saving_facts, settled_pair, dimensions, price_book)
        for settled_pair in evaluation.settled
    ]


def _opportunity_of_month(
    saving_facts: SavingFacts, opportunity: Opportunity, type: str, stored_advice: StoredAdvice
) -> Opportunity:
    """
    Scale an opportunity to the whole month. If its recommendation was addressed, count only uses and seats
    from GRACE_S after that time on.
    """
    recommendation = stored_advice.recommendations.get(opportunity_key(type, opportunity))
    if recommendation is None or recommendation.addressed_at is None:
        return _scale_to_month(saving_facts, opportunity)
    since = recommendation.addressed_at + GRACE_S

    def amounts_since_recommendation_addressed(amounts: Mapping[int, int]) -> Mapping[int, int]:
        return {index: amount for index, amount in amounts.items() if saving_facts.uses[index].day >= since}

    seats = [seat for seat in opportunity.seats if seat.first_day >= since]
    counted = replace(
        opportunity,
        claims=amounts_since_recommendation_addressed(opportunity.claims),
        compared=amounts_since_recommendation_addressed(opportunity.compared),
        seats=seats,
    )
    return _scale_to_month(saving_facts, counted, since)


def _scale_to_month(saving_facts: SavingFacts, opportunity: Opportunity, since_day: float = 0) -> Opportunity:
    """
    Scale an opportunity to the whole month. If only recent calls were compared, the share that they could
    have saved is applied to the other calls of the same work from `since_day` on.
    """
    saved, compared = opportunity.gross_saving, sum(opportunity.compared.values())
    if opportunity.work is None or saved <= 0 or compared <= 0:
        return opportunity
    rest = {
        index: cost
        for index in saving_facts.use_indexes_by_work[opportunity.work]
        if (use := saving_facts.uses[index]).day >= since_day
        and (cost := use.cost - opportunity.compared.get(index, 0)) > 0
    }
    if not rest:
        return opportunity
    claims = dict.fromkeys(opportunity.compared, 0) | dict(opportunity.claims)
    for index, cost in rest.items():
        claims[index] = claims.get(index, 0) + cost * saved // compared
    whole = compared + sum(rest.values())
    return replace(
        opportunity,
        claims=claims,
        seen=(
            f"{opportunity.seen} That is {format_dollars(saved)} of {format_dollars(compared)}. The saving assumes the "
            f"same share of all {format_dollars(whole)} that this work cost in the last {DAYS} days."
        ),
        formula=f"({opportunity.formula}) x {format_exact_dollars(whole)} / {format_exact_dollars(compared)}",
    )


def _build_saving(
    saving_facts: SavingFacts, settled: SavingWithoutOverlap, dimensions: Sequence[str], price_book: str
) -> Saving:
    opportunity = settled.opportunity
    type = BY_NAME[settled.type]
    days = list(_opportunity_days(saving_facts, opportunity))
    seen = printable_name(opportunity.seen, max_characters=MAX_TEXT)
    advice = printable_name(opportunity.advice, max_characters=MAX_TEXT)
    description = f"What was seen: {seen}\n\nWhat to do: {advice}"
    if settled.saving < opportunity.gross_saving:
        description += (
            f"\n\nOn its own, it would save {format_dollars(opportunity.gross_saving)}. "
            f"{format_dollars(settled.saving)} remain after larger recommendations for the same "
            "tokens."
        )
    return Saving(
        key=opportunity_key(settled.type, opportunity),
        type=settled.type,
        title=printable_name(opportunity.title, max_characters=MAX_TITLE),
        description=description,
        formula=printable_name(opportunity.formula, max_characters=MAX_TEXT),
        effort=type.EFFORT,
        confidence=type.CONFIDENCE,
        assumptions=list(type.ASSUMPTIONS),
        spent=money.units_to_text(settled.spent),
        gross_savings=money.units_to_text(opportunity.gross_saving),
        monthly_savings=money.units_to_text(settled.saving),
        price_book=price_book,
        current=opportunity.current,
        recommended=opportunity.recommended,
        dimensions={
            name: values for name in dimensions if (values := _known_values(saving_facts, opportunity, name))
        },
        measured_by=dict(opportunity.measured_by),
        first_day=_format_day(min(days)),
        last_day=_format_day(max(days)),
        concerns=opportunity.shared_dimension_values,
    )


def _opportunity_days(saving_facts: SavingFacts, opportunity: Opportunity) -> Iterator[int]:
    for use_index in opportunity.claims:
        yield saving_facts.uses[use_index].day
    for seat in opportunity.seats:
        yield seat.first_day
        yield seat.last_day


def _known_values(saving_facts: SavingFacts, opportunity: Opportunity, dimension: str) -> list[str]:
    """Return the known values of a dimension. The values with the largest savings are first."""
    amounts: dict[str, int] = defaultdict(int)
    for use_index, claim in opportunity.claims.items():
        dimensions = saving_facts.uses[use_index].dimensions
        for name in filter_values_of_dimension(dimension, partial(dimension_value, dimensions)):
            amounts[name] += claim
    for seat in opportunity.seats:
        amounts[seat_dimension_value(seat.person, seat.team, dimension)] += seat.fee
    amounts.pop("", None)
    return sorted(amounts, key=lambda value: (-amounts[value], value))[:MOST_VALUES]


def _format_day(moment: int) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d")


@dataclass(frozen=True, slots=True, kw_only=True)
class SavingWithoutOverlap:
    """An opportunity to save, the cost of its tokens, and its savings without overlaps."""

    type: str
    opportunity: Opportunity
    spent: int
    saving: int


def remove_overlaps(
    uses: Sequence[DailyUse],
    opportunities: Sequence[tuple[str, Opportunity]],
    *,
    minimum_saving: Callable[[str], int],
    is_ignored: Callable[[str, Opportunity], bool] = lambda *_: False,
) -> list[SavingWithoutOverlap]:
    """
    Remove overlaps between opportunities, and drop opportunities below the minimum of their type.

    Each token is saved only once. The opportunities are applied one after the other, the largest first. Each takes
    its share of the cost that the earlier ones left, so all together never save more than was spent. Opportunities
    with `is_ignored` reduce no others, because nobody will act on them.
    """
    remaining_costs = [use.cost for use in uses]
    settled = []
    for type, opportunity in sorted(
        opportunities, key=lambda pair: (is_ignored(*pair), -pair[1].gross_saving, pair[0], *pair[1].subject)
    ):
        claimed = {
            index: claim * remaining_costs[index] // uses[index].cost
            for index, claim in opportunity.claims.items()
            if uses[index].cost
        }
        # A claimed saving is negative if the use would cost more. It shrinks if an earlier opportunity
        # claimed a part of the use, so without this limit the sum could exceed the gross savings.
        saving = min(opportunity.gross_saving, sum(claimed.values()) + opportunity.seat_fees)
        if saving <= 0 or saving < minimum_saving(type):
            continue
        for index, amount in claimed.items():
            remaining_costs[index] -= max(0, amount)
        spent = sum(uses[index].cost for index in opportunity.claims) + opportunity.seat_fees
        settled.append(SavingWithoutOverlap(type=type, opportunity=opportunity, spent=spent, saving=saving))
    return settled

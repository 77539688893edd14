"""Recommendation to cancel unused seats of assistants, by plan and team, with their fees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from gateway.money.recommendations.facts import Opportunity, SavingFacts, UnusedSeat
from gateway.money.recommendations.repricing import format_exact_dollars
from spool.registry.insights import LOW
from spool.registry.recommendations import STRONG, Processing

NAME = "idle_seat"
TITLE = "Seats that nobody uses"
FORMULA = "fees of the seats without a successful call"
CONFIDENCE = STRONG
EFFORT = LOW
ASSUMPTIONS = (
    "Telemetry reports every call of the assistant.",
    "The vendor accepts returned seats at the end of a billing cycle.",
)
MOST_NAMED = 10  # maximum seats named in a sentence or a formula: the seats with the highest fees


def find_opportunities(saving_facts: SavingFacts) -> Iterable[Opportunity]:
    groups: dict[tuple[str, str], list[UnusedSeat]] = defaultdict(list)
    for seat in saving_facts.seats:
        groups[seat.plan, seat.team].append(seat)
    for (plan, team), members in groups.items():
        seats = sorted(members, key=lambda seat: (-seat.fee, seat.user))
        people = _join_first([seat.user for seat in seats], ", ")
        yield Opportunity(
            subject=(plan, team),
            claims={},
            seats=seats,
            title=f"{_count_phrase(seats)} without use",
            seen=f"{people} had no successful call since the start of the last finished billing cycle.",
            advice="Ask whether these seats are still needed, and cancel those that are not.",
            formula=_fee_formula(seats),
            current=Processing(),
            recommended=Processing(),
            measured_by={},
        )


def _count_phrase(seats: Sequence[UnusedSeat]) -> str:
    first = seats[0]
    noun = "seat" if len(seats) == 1 else "seats"
    team = f" ({first.team})" if first.team else ""
    return f"{len(seats)} {noun} of {first.plan}{team}"


def _fee_formula(seats: Sequence[UnusedSeat]) -> str:
    total = format_exact_dollars(sum(seat.fee for seat in seats))
    if len(seats) == 1:
        return f"seat fee of {seats[0].user}: {total}"
    fees = [f"{seat.user} {format_exact_dollars(seat.fee)}" for seat in seats]
    return f"seat fees, {total}: {_join_first(fees, '; ')}"


def _join_first(texts: Sequence[str], between: str) -> str:
    joined = between.join(texts[:MOST_NAMED])
    hidden_count = len(texts) - MOST_NAMED
    return joined if hidden_count <= 0 else f"{joined}{between}and {hidden_count} more"

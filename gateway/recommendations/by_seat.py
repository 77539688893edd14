"""Puts the seats that could cost less together: those of one plan, one team and one way to spend less."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gateway.recommendations.amounts import exact
from gateway.recommendations.facts import Opportunity, SavingFacts, SeatSaving
from spool.registry.recommendations import Processing

MOST_NAMED = 10  # the seats of a formula: those that save most
_NO_MODEL = Processing()


def of_one_kind(facts: SavingFacts, kind: str) -> Iterator[Sequence[SeatSaving]]:
    """Yield the seats of a kind by plan, team and what is advised, those that save most first."""
    groups: dict[tuple[str, str, str], list[SeatSaving]] = defaultdict(list)
    for seat in facts.seats:
        if seat.kind == kind:
            groups[seat.plan, seat.team, seat.instead].append(seat)
    for seats in groups.values():
        yield sorted(seats, key=lambda seat: (-seat.saves, seat.user))


def opportunity(seats: Sequence[SeatSaving], *, title: str, seen: str, advice: str) -> Opportunity:
    first = seats[0]
    return Opportunity(
        subject=(first.plan, first.team, first.instead),
        claims={},
        seats=seats,
        title=title,
        seen=seen,
        advice=advice,
        formula=_formula(seats),
        current=_NO_MODEL,
        recommended=_NO_MODEL,
        measured_by={},
    )


def counted(seats: Sequence[SeatSaving]) -> str:
    """Return how many seats of which plan and team, such as "2 seats of Claude Team (search)"."""
    first = seats[0]
    noun = "seat" if len(seats) == 1 else "seats"
    team = f" ({first.team})" if first.team else ""
    return f"{len(seats)} {noun} of {first.plan}{team}"


def people(seats: Sequence[SeatSaving]) -> str:
    return _some([seat.user for seat in seats], ", ")


def _formula(seats: Sequence[SeatSaving]) -> str:
    parts = [f"{seat.user} {exact(seat.saves)} ({seat.formula})" for seat in seats]
    if len(parts) == 1:
        return parts[0]
    total = sum(seat.saves for seat in seats)
    return f"{exact(total)}: {_some(parts, '; ')}"


def _some(texts: Sequence[str], between: str) -> str:
    """Join the first of some texts, and say how many others there are."""
    joined = between.join(texts[:MOST_NAMED])
    others = len(texts) - MOST_NAMED
    return joined if others <= 0 else f"{joined}{between}and {others} more"

"""
Tokens that the ledger has under one tier or kind, and the statement under another, and what they are
worth there. Pure.

They are as dear as the ledger's own were, by the list prices of both places: large inputs stay large inputs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

from gateway.bills.reconciliation.sides import (
    INPUT_METERS,
    METERS,
    STANDARD,
    Cell,
    CountedSums,
    Place,
    Prices,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """So many tokens, where the ledger has them and where the statement does; prices are of one token."""

    source: Place
    target: Place
    tokens: int
    price: Fraction  # what those of the ledger came to
    target_price: Fraction
    listed: int  # where the ledger has them, of an input that is not large

    @property
    def worth(self) -> Fraction:
        return self.tokens * self.price


def moves(
    told: Mapping[Cell, Mapping[str, int]],
    counted: Mapping[Cell, CountedSums],
    prices: Prices,
    times: Callable[[Cell], Fraction] = lambda _: Fraction(1),
) -> Iterator[Move]:
    """
    Yield the moves between the tiers of a model, and then between kinds of its input; `told` are billed
    tokens by METERS. They are searched in the tokens of one time, where the statement has them more `times`.
    """
    groups: dict[Cell, list[Cell]] = defaultdict(list)
    for cell in sorted(told):
        groups[cell._replace(tier=STANDARD)].append(cell)
    for cells in groups.values():
        extras = {
            (cell, meter): int(told[cell].get(meter, 0) / times(cell))
            - (counted[cell].tokens.get(meter, 0) if cell in counted else 0)
            for cell in cells
            for meter in METERS
        }
        for meters in (*((meter,) for meter in METERS), INPUT_METERS):
            chosen = {place: extra for place, extra in extras.items() if place[1] in meters}
            for move in _matched(chosen, extras, counted, prices):
                yield replace(move, tokens=int(move.tokens * times(move.source[0])))


def _matched(
    chosen: Mapping[Place, int], left: dict[Place, int], counted: Mapping[Cell, CountedSums], prices: Prices
) -> Iterator[Move]:
    """Moves among some places, whose tokens are taken from what is `left`."""
    if min(chosen.values()) >= 0 or max(chosen.values()) <= 0:
        return
    for source in (place for place, extra in chosen.items() if extra < 0):
        cell, meter = source
        valued, listed = (
            counted[cell].valued.get(meter, 0),
            prices(cell.model, cell.tier, cell.day).get(meter, 0),
        )
        for target in (place for place, extra in chosen.items() if extra > 0) if valued and listed else ():
            tokens = min(-left[source], left[target])
            there = prices(target[0].model, target[0].tier, target[0].day).get(target[1], 0)
            if tokens <= 0 or not there:
                continue
            left[source] += tokens
            left[target] -= tokens
            price = Fraction(counted[cell].values[meter], valued)
            target_price = price * there / listed
            yield Move(
                source=source,
                target=target,
                tokens=tokens,
                price=price,
                target_price=target_price,
                listed=listed,
            )


def levelled(
    found: list[Move],
    coarse: Callable[[Cell], Cell],
    worth: Callable[[Place], int],
    listed: Callable[[Place], int],
    paid: Callable[[Place], int | None],
) -> Iterator[tuple[Move, int, int]]:
    """
    Yield how much more each move is worth than its prices say, at both ends: because of the large inputs in it.

    Where both ends are billed by themselves, it is what makes them billed at one share of our price, as far
    as no token becomes cheaper than its list price. `worth` is of the billed tokens of a place of money, and
    `listed` the same at list prices, each of its tier.
    """
    between: dict[tuple[Place, Place], list[Move]] = defaultdict(list)
    for move in found:
        source = move.source
        target = move.target
        between[(coarse(source[0]), source[1]), (coarse(target[0]), target[1])].append(move)
    ends = [place for pair in between for place in pair]
    for (source, target), group in between.items():
        paid_source = paid(source)
        paid_target = paid(target)
        is_alone = ends.count(source) == ends.count(target) == 1
        if (
            source == target
            or not is_alone
            or paid_source is None
            or paid_target is None
            or worth(source) <= 0
        ):
            continue
        moved = sum((move.worth for move in group), Fraction(0))
        ratio = sum((move.tokens * move.target_price for move in group), Fraction(0)) / moved
        both = ratio * worth(source) + worth(target)
        share = (ratio * paid_source + paid_target) / both if both > 0 else Fraction(0)
        least = sum(move.tokens * move.listed for move in group) - moved
        most = worth(source) - listed(source)
        if share <= 0 or least > most or least > 0 or most < 0:
            continue
        more = min(max(worth(source) - paid_source / share, least), Fraction(most))
        for move in group:
            part = more * move.worth / moved
            yield move, int(part), int(part * ratio)

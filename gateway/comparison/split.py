"""
The change of costs between two times, split into volume, price, mix, new and gone.

Groups that were there both times are measured in tokens. Had all of them grown as their sum did, at their old
prices, the change would be volume. That some grew more than others, at old prices, is mix. The rest is price:
a token of the same group costs more or less. Costs are units (spool.ledger.money), and parts always add up to
the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TypeVar

from spool.turns.ordering import ordered

Group = tuple[str | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """
    What a group came to in one time. `estimated` is the part of the cost that no source reported. `unpriced`:
    calls of unknown cost, so that the truth is higher.
    """

    cost: int = 0
    tokens: int = 0
    calls: int = 0
    unpriced: int = 0
    estimated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a change of costs is made of."""

    volume: int = 0
    price: int = 0
    mix: int = 0
    new: int = 0
    gone: int = 0

    @property
    def change(self) -> int:
        return self.volume + self.price + self.mix + self.new + self.gone


PARTS = tuple(each.name for each in fields(Parts))
_Sum = TypeVar("_Sum", Spending, Parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Driver:
    """A group, what it came to before and now, and what its change is made of."""

    group: Group
    before: Spending
    now: Spending
    parts: Parts


def split(before: Mapping[Group, Spending], now: Mapping[Group, Spending]) -> list[Driver]:
    """Every group of either time, the largest change first."""
    nothing = Spending()
    pairs = {group: (before.get(group, nothing), now.get(group, nothing)) for group in {**before, **now}}
    measured = [pair for pair in pairs.values() if pair[0].tokens > 0 and pair[1].tokens > 0]
    was, grown = sum(old.tokens for old, _ in measured), sum(new.tokens for _, new in measured)
    drivers = [
        Driver(group=group, before=old, now=new, parts=_parts(old, new, grown=grown, of=was))
        for group, (old, new) in pairs.items()
    ]
    return ordered(drivers, key=lambda each: (-abs(each.parts.change), [name or "" for name in each.group]))


def together(drivers: Iterable[Driver], *, group: Group) -> Driver:
    """The sums of drivers, as one."""
    drivers = list(drivers)
    return Driver(
        group=group,
        before=_sum(Spending, [each.before for each in drivers]),
        now=_sum(Spending, [each.now for each in drivers]),
        parts=_sum(Parts, [each.parts for each in drivers]),
    )


def _sum(kind: type[_Sum], values: Sequence[_Sum]) -> _Sum:
    return kind(**{each.name: sum(getattr(value, each.name) for value in values) for each in fields(kind)})


def _parts(old: Spending, new: Spending, *, grown: int, of: int) -> Parts:
    """The parts of a group's change, where all measured groups together grew from `of` tokens to `grown`."""
    if old == Spending():
        return Parts(new=new.cost)
    if new == Spending():
        return Parts(gone=-old.cost)
    if old.tokens > 0 and new.tokens > 0:
        evenly = old.cost * grown // of
        at_old_price = old.cost * new.tokens // old.tokens
        return Parts(volume=evenly - old.cost, mix=at_old_price - evenly, price=new.cost - at_old_price)
    # Images and the like have no tokens: such a group is measured by its own calls, and is no part of the
    # mix.
    at_old_price = old.cost * new.calls // old.calls if old.calls > 0 else old.cost
    return Parts(volume=at_old_price - old.cost, price=new.cost - at_old_price)

"""
The ledger as one person may see it: the sums of a slice of the calls, and nothing of the others.

A joint sum, of values that were too many to keep apart (see `spool.ledger.counting`), is in no slice that
would have to divide it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property, lru_cache
from itertools import product
from math import prod

from spool.ledger.counting import OWNERS, WORK
from spool.ledger.ledger import Ledger
from spool.ledger.queries import TAG, CostQuery, CostRow, Derived, Wanted, check_dimension, within
from spool.ledger.sums import OTHER
from spool.log.protocols import ReadableLog
from spool.registry.roles import LedgerSlice, RoleFilter

# Of the derived dimensions here: no question can name it, because it is in no list of dimensions.
_NAME = "(slice)"
_YES = "yes"
_MEMO = 10_000
_MOST_COMBINATIONS = 1000  # of included values, of which a derived dimension is made one by one


class SlicedLedger:
    """Asks a ledger about the calls of a slice. What a role says of a dimension that is gone shows nothing."""

    def __init__(self, ledger: Ledger, slice: LedgerSlice) -> None:
        self._ledger = ledger
        self._slice = slice.without_unknown(ledger.dimensions())
        self._derived = {each.name: each for each in ledger.derived()}
        self._parts = [_Part(part, frozenset(self._sources(part))) for part in self._slice.parts]

    @property
    def is_whole(self) -> bool:
        return self._slice.is_everything

    @property
    def limits(self) -> Sequence[str]:
        """The dimensions whose values decide what is in the slice."""
        return self._slice.dimensions

    @property
    def sources(self) -> frozenset[str]:
        """The ledger's own dimensions that decide what is in the slice."""
        return frozenset[str]().union(*(part.sources for part in self._parts))

    async def catch_up(self, log: ReadableLog) -> int:
        return await self._ledger.catch_up(log)

    async def costs(self, query: CostQuery) -> Sequence[CostRow]:
        """Return costs as `Ledger.costs` does, of the calls in the slice alone."""
        [found] = await self.costs_of([query])
        return found

    async def costs_of(self, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]:
        """Return what `Ledger.costs_of` does, of the calls in the slice alone."""
        return await self._ledger.costs_of(list(map(self._cut, queries)))

    def _cut(self, query: CostQuery) -> CostQuery:
        if self._slice.has_every_call:
            return query
        if _NAME in query.named:
            check_dimension(_NAME)
        cut = within(query, include={_NAME: (_YES,)}, exclude={})
        if query.arranged:  # what is of nobody's calls is in no slice
            from spool.ledger.billed import LAYERS, SLICED_CHARGES, UNALLOCATED

            charges = (*SLICED_CHARGES, *(LAYERS if self._ledger.shows_layers else ()))
            cut = within(cut, include={"charge": charges}, exclude={"basis": (UNALLOCATED,)})
        return replace(cut, derived={**query.derived, _NAME: self._membership})

    async def values(self, dimension: str) -> Sequence[str]:
        """Return values as `Ledger.values` does, of the calls in the slice alone."""
        if self._slice.has_every_call:
            return await self._ledger.values(dimension)
        asked, inside = self._derived.get(dimension), self._membership
        if asked is None:
            check_dimension(dimension)
        own = (dimension,) if asked is None else asked.sources

        def value(values: tuple[str, ...]) -> str:
            mine, rest = values[: len(own)], values[len(own) :]
            if not inside.value(rest):
                return ""
            return mine[0] if asked is None else asked.value(mine)

        return await self._ledger.values(replace(inside, sources=(*own, *inside.sources), value=value))

    async def row_tags(self) -> Sequence[str]:
        """Return what `Ledger.row_tags` does if every call is seen: names tell of what is not seen."""
        return await self._ledger.row_tags() if self._slice.has_every_call else ()

    async def whole_since(self) -> int:
        return await self._ledger.whole_since()

    async def since_hours(self, since: datetime) -> datetime:
        return await self._ledger.since_hours(since)

    def derived(self) -> Sequence[Derived]:
        return self._ledger.derived()

    def own_dimensions(self) -> Sequence[str]:
        return self._ledger.own_dimensions()

    def dimensions(self) -> Sequence[str]:
        return self._ledger.dimensions()

    def holds(self, value_of: Callable[[str], str]) -> bool:
        """True if the call, or the sum, with these values of the ledger's own dimensions is in the slice."""

        def value(name: str) -> str:
            derived = self._derived.get(name)
            return value_of(name) if derived is None else derived.value(tuple(map(value_of, derived.sources)))

        return any(part.is_apart(value_of) and part.passes(value) for part in self._parts)

    async def contained(self) -> Callable[[Wanted, Wanted], bool]:
        """
        Return a test of a filter, given by what it includes and excludes: True if the slice has all sums that
        pass it, False if unsure.
        """
        if self._slice.has_every_call or not self._slice.parts:
            return lambda *_: self._slice.has_every_call
        has_joint = await self._ledger.has_joint_sums()

        def is_contained(include: Wanted, exclude: Wanted) -> bool:
            is_exact = not has_joint or self._leaves_joint_out(include)
            return is_exact and self._slice.contains({**self._made_of(include), **include}, exclude)

        return is_contained

    def _made_of(self, include: Wanted) -> Wanted:
        """The values of derived dimensions that the values of their sources make, where there are not too many."""
        found = {}
        for name in set(self._slice.dimensions) & set(self._derived):
            derived = self._derived[name]
            chosen = [include.get(source) for source in derived.sources]
            if all(chosen) and prod(len(values or ()) for values in chosen) <= _MOST_COMBINATIONS:
                combined = product(*(values or () for values in chosen))
                found[name] = tuple(dict.fromkeys(map(derived.value, combined)))
        return found

    @cached_property
    def _membership(self) -> Derived:
        """The dimension that is _YES for what is in the slice."""
        sources = (*sorted({"source", "user"}.union(*(part.sources for part in self._parts))),)
        places = {name: place for place, name in enumerate(sources)}

        @lru_cache(_MEMO)  # few of the values differ
        def value(values: tuple[str, ...]) -> str:
            return _YES if self.holds(lambda name: values[places[name]]) else ""

        return Derived(name=_NAME, label="", sources=sources, value=value)

    def _sources(self, part: Collection[RoleFilter]) -> Iterator[str]:
        """The ledger's own dimensions that decide about a part."""
        for each in part:
            derived = self._derived.get(each.dimension)
            yield from (each.dimension,) if derived is None else derived.sources

    def _leaves_joint_out(self, include: Wanted) -> bool:
        """True if a filter passes no joint sum that a part of the slice would have to divide."""
        asks_owner = any(part.asks_owner for part in self._parts)
        for name, values in include.items():
            divides = _is_owner(name) or (name in WORK and not asks_owner)
            joint = "" if name.startswith(TAG) else OTHER
            if divides and joint not in values:
                return True
        return False


class _Part:
    """One part of a slice: filters that a call passes all."""

    def __init__(self, filters: Collection[RoleFilter], sources: frozenset[str]) -> None:
        self._filters = filters
        self.sources = sources  # the ledger's own dimensions that decide
        self.asks_owner = any(map(_is_owner, sources))
        self._asks_work = not sources.isdisjoint(WORK)

    def is_apart(self, value_of: Callable[[str], str]) -> bool:
        """True if a sum still has the values apart that the filters ask for. Every call has."""
        if self.asks_owner:
            return value_of("user") != OTHER
        return value_of("source") != OTHER or not self._asks_work

    def passes(self, value_of: Callable[[str], str]) -> bool:
        return all(each.holds(value_of(each.dimension)) for each in self._filters)


def _is_owner(name: str) -> bool:
    """True if a dimension is among those that a joint sum is first not known by."""
    return name in OWNERS or name.startswith(TAG)

"""
The totals as a person with restricted access sees them: only the calls of a slice, which match the filters of
the person's roles.

In periods with too many combinations, calls share joint sums (see `spool.ledger.counting`). A joint sum is
left out if it may contain calls outside the slice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from itertools import chain, compress, product, repeat
from math import prod
from operator import itemgetter
from typing import TYPE_CHECKING

from spool.ledger.counting import OWNERS, WORK
from spool.ledger.dimensions import TAG, DerivedDimension, WantedValues
from spool.ledger.ledger import Ledger
from spool.ledger.queries import SLICE, CostQuery, CostRow, check_dimension, narrow_query
from spool.ledger.sums import OTHER
from spool.ledger.usages import UsageByGroup
from spool.ledger.work import OF_PEOPLE, TREES, UNITS, RunLineage
from spool.log.protocols import ReadableLog
from spool.people import SECOND_NAME, USER, filter_values_of_dimension
from spool.registry.roles import IS, LedgerSlice, RoleFilter

if TYPE_CHECKING:
    from spool.ledger.billed import BilledDay

_YES = "yes"
_MEMO = 10_000
# maximum combinations of included values for which derived values are computed
_MOST_COMBINATIONS = 1000
_MOST_FOUND = 10_000  # maximum values in a search result
# names of units that a search reads at once, and how often, to find some with calls
_NAMES_OF_PAGE, _MOST_NAME_PAGES = 500, 10


class SlicedLedger:
    """
    The ledger limited to the calls of a slice. A filter by a deleted dimension matches no call. `person`:
    e-mail address of the reader.
    """

    def __init__(self, ledger: Ledger, slice: LedgerSlice, *, person: str = "") -> None:
        self._ledger = ledger
        self._slice = slice.without_unknown_dimensions(ledger.dimensions())
        self._derived = {dimension.name: dimension for dimension in ledger.derived_dimensions()}
        self._parts = [
            _SlicePart(part, frozenset(self._stored_dimensions(part))) for part in self._slice.parts
        ]
        self._person = person

    @property
    def is_whole(self) -> bool:
        return self._slice.is_everything

    @property
    def has_every_call(self) -> bool:
        """Return whether the reader sees every call, though perhaps not every cost type."""
        return self._slice.has_every_call

    @property
    def slice_dimensions(self) -> Sequence[str]:
        return self._slice.dimensions

    @property
    def slice_sources(self) -> frozenset[str]:
        return frozenset[str]().union(*(part.sources for part in self._parts))

    async def require_complete_totals(self, record_log: ReadableLog) -> None:
        await self._ledger.require_complete_totals(record_log)

    async def costs(self, query: CostQuery) -> Sequence[CostRow]:
        [result] = await self.costs_of_queries([query])
        return result

    async def costs_of_queries(self, queries: Sequence[CostQuery]) -> Sequence[Sequence[CostRow]]:
        return await self._ledger.costs_of_queries(list(map(self._limit_to_slice, queries)))

    async def usages_of_queries(self, queries: Sequence[CostQuery]) -> Sequence[UsageByGroup]:
        return await self._ledger.usages_of_queries(list(map(self._limit_to_slice, queries)))

    def _limit_to_slice(self, query: CostQuery) -> CostQuery:
        if self._slice.has_every_call:
            return query
        if self._has_person_filters_beyond_own:
            self._ledger.check_work_by_people_allowed((*query.used_dimensions, "user"))
        if SLICE in query.used_dimensions:
            check_dimension(SLICE)
        # The slice is the first filter, so engines apply others only to visible calls. Otherwise, the time
        # would reveal whether a hidden value exists.
        cut = replace(query, include={SLICE: (_YES,), **query.include})
        if query.arranged:  # amounts of a bill that belong to no call are in no slice
            from spool.ledger.billed import LAYERS, SLICED_CHARGES, UNALLOCATED

            charges = (*SLICED_CHARGES, *(LAYERS if self._ledger.shows_layers else ()))
            cut = narrow_query(cut, include={"charge": charges}, exclude={"basis": (UNALLOCATED,)})
        trees_of = self._slice_dimension if query.aggregated else None
        return replace(cut, derived={**query.derived, SLICE: self._slice_dimension}, trees_of=trees_of)

    async def run_lineage(
        self, query: CostQuery, unit: str, names: Sequence[str], max_runs: int, *, includes_runs_below: bool
    ) -> Sequence[RunLineage]:
        """Return `Ledger.run_lineage`, computed only from calls in the slice around the query's time."""
        of = self._limit_to_slice(replace(query, aggregated=True))
        return await self._ledger.run_lineage(
            unit, names, max_runs, includes_runs_below=includes_runs_below, limiting_query=of
        )

    async def values(self, dimension: str) -> Sequence[str]:
        if self._slice.has_every_call:
            return await self._ledger.values(dimension)
        derived = self._ledger.person_dimension if dimension == USER else self._derived.get(dimension)
        inside = self._slice_dimension
        if derived is None:
            check_dimension(dimension)
        own = (dimension,) if derived is None else derived.sources

        def visible_value(values: tuple[str, ...]) -> str:
            own_values, rest = values[: len(own)], values[len(own) :]
            if not inside.value(rest):
                return ""
            return own_values[0] if derived is None else derived.value(own_values)

        return await self._ledger.values(
            replace(inside, sources=(*own, *inside.sources), value=visible_value)
        )

    async def values_containing(self, dimensions: Sequence[str], text: str) -> Mapping[str, Sequence[str]]:
        """Return values that contain a text (in lower case) and occur in visible calls."""
        inside = self._slice_dimension
        derived = {
            name: self._ledger.person_dimension if name == USER else self._derived.get(name)
            for name in dimensions
        }
        parts = {name: (name,) if each is None else each.sources for name, each in derived.items()}
        sources = (*dict.fromkeys(chain(*parts.values(), inside.sources)),)
        places = {name: index for index, name in enumerate(sources)}
        is_inside = lru_cache(_MEMO)(inside.value)

        def select_columns(
            rows: Sequence[tuple[str, ...]], names: Sequence[str]
        ) -> Iterable[tuple[str, ...]]:
            columns = [map(itemgetter(places[name]), rows) for name in names]
            return zip(*columns, strict=True) if names else repeat((), len(rows))

        def find_visible_values_with_text(
            combinations: Iterator[Sequence[tuple[str, ...]]],
        ) -> Mapping[str, Sequence[str]]:
            known: dict[str, set[tuple[str, ...]]] = {name: set() for name in dimensions}
            for rows in combinations:
                if not self.has_every_call:
                    rows = [*compress(rows, map(is_inside, select_columns(rows, inside.sources)))]
                for name, own in parts.items():
                    known[name].update(select_columns(rows, own))
            found = {}
            for name, combined in known.items():
                of_values = derived[name]
                value: Callable[[tuple[str, ...]], str] = (
                    itemgetter(0) if of_values is None else of_values.value
                )
                values = {each for each in map(value, combined) if each and text in each.casefold()}
                found[name] = sorted(values)[:_MOST_FOUND]
            return found

        return await self._ledger.value_combinations(sources, find_visible_values_with_text)

    async def work_units_containing(
        self, query: CostQuery, text: str, max_units: int
    ) -> Mapping[str, Sequence[str]]:
        """
        Return by kind the names of units of work that contain a text and have visible calls in the query's time. A
        session or run is found only by its whole id or digest.

        Readers of every call get at most about `max_units` of a kind, the best matches. For others, the visible units
        come first and the text after, so no name of a hidden unit has an effect.
        """
        digest = self._ledger.digests.to_digest
        wanted: dict[str, tuple[str, ...]] = {unit: (digest(unit, text),) for unit in TREES}
        if not self.has_every_call:
            named = dict.fromkeys(unit for unit in UNITS if unit not in TREES)
            found = await self._work_units_with_calls(query, {**wanted, **named})
            low = text.casefold()
            return {
                unit: [name for name in names if unit in TREES or low in name.casefold()]
                for unit, names in found.items()
            }
        names: dict[str, list[str]] = {unit: [] for unit in UNITS}
        for page in range(_MOST_NAME_PAGES):
            known = await self._ledger.work_unit_names_containing(text, _NAMES_OF_PAGE, page * _NAMES_OF_PAGE)
            wanted |= {unit: tuple(page_names) for unit, page_names in known.items() if page_names}
            for unit, with_calls in (await self._work_units_with_calls(query, wanted)).items():
                names[unit] += with_calls
            if sum(map(len, known.values())) < _NAMES_OF_PAGE or all(
                len(names[unit]) >= max_units for unit in known
            ):
                break
            wanted = {}
        return names

    async def _work_units_with_calls(
        self, query: CostQuery, names: Mapping[str, tuple[str, ...] | None]
    ) -> Mapping[str, list[str]]:
        """Return those of the units of each kind that have visible calls. None stands for all units of a kind."""
        queries = [
            replace(query, group_by=(unit,), include={} if wanted is None else {unit: wanted})
            for unit, wanted in names.items()
        ]
        results = await self.costs_of_queries(queries)
        return {
            unit: [name for row in rows if (name := row.group[0]) and name != OTHER]
            for unit, rows in zip(names, results, strict=True)
        }

    async def billing_row_tags(self) -> Sequence[str]:
        """Return none to people who do not see every call, because tag names would reveal hidden rows."""
        return await self._ledger.billing_row_tags() if self._slice.has_every_call else ()

    async def first_hour_with_calls(self) -> datetime | None:
        """
        Return the start of the first hour (or day, if it has only daily sums) with visible calls. Readers of every
        call get that of the first stored sum.
        """
        span = await self._ledger.stored_span()
        if span is None or self.has_every_call:
            return span and span[0]
        since, until = span[0].replace(hour=0), span[1].replace(hour=0) + timedelta(days=1)
        hourly_start = await self._ledger.hourly_sums_start()
        for granularity, longest in (
            ("monthly", timedelta(31)),
            ("daily", timedelta(1)),
            ("hourly", timedelta(0)),
        ):
            if granularity == "hourly" and since < hourly_start:
                break
            query = CostQuery(since=since, until=until, granularity=granularity, measures=("calls",))
            start = min((row.start for row in await self.costs(query) if row.calls), default=None)
            if start is None:
                return None
            since = max(since, start)
            until = min(until, since + longest)
        return since

    async def billed_days(self, since_s: int, until_s: int) -> Sequence[BilledDay]:
        """Return the days of bills, which depend on no call."""
        return await self._ledger.billed_days(since_s, until_s)

    async def start_of_complete_hours(self) -> int:
        return await self._ledger.start_of_complete_hours()

    async def earliest_moment_with_hourly_sums(self, since: datetime) -> datetime:
        return await self._ledger.earliest_moment_with_hourly_sums(since)

    def derived_dimensions(self) -> Sequence[DerivedDimension]:
        return self._ledger.derived_dimensions()

    def cached_dimension(
        self, depends_on: object, define: Callable[[], DerivedDimension]
    ) -> DerivedDimension:
        return self._ledger.cached_dimension(depends_on, define)

    def builtin_and_tag_dimensions(self) -> Sequence[str]:
        return self._ledger.builtin_and_tag_dimensions()

    def dimensions(self) -> Sequence[str]:
        return self._ledger.dimensions()

    def has_call(self, value_of: Callable[[str], str]) -> bool:
        """
        Return whether a call or sum with these stored dimensions is in the slice. `value_of`: returns a
        dimension's value.
        """

        def resolved_value(name: str) -> str:
            derived = self._derived.get(name)
            return value_of(name) if derived is None else derived.value(tuple(map(value_of, derived.sources)))

        return any(
            part.has_needed_values(value_of) and part.is_met_by(resolved_value) for part in self._parts
        )

    async def filters_within_slice_test(self) -> Callable[[WantedValues, WantedValues], bool]:
        """
        Return a function that returns whether every sum that passes include and exclude filters is in the
        slice. It returns False if that is unknown.
        """
        if self._slice.has_every_call or not self._slice.parts:
            return lambda *_: self._slice.has_every_call
        has_joint = await self._ledger.has_values_merged_into_other()

        def is_contained(include: WantedValues, exclude: WantedValues) -> bool:
            is_exact = not has_joint or self._has_no_values_merged_into_other(include)
            return is_exact and self._slice.contains({**self._derived_values(include), **include}, exclude)

        return is_contained

    def _derived_values(self, include: WantedValues) -> WantedValues:
        derived_values = {}
        for name in set(self._slice.dimensions) & set(self._derived):
            derived = self._derived[name]
            chosen = [include.get(source) for source in derived.sources]
            if all(chosen) and prod(len(values or ()) for values in chosen) <= _MOST_COMBINATIONS:
                combined = product(*(values or () for values in chosen))
                derived_values[name] = tuple(dict.fromkeys(map(derived.value, combined)))
        return derived_values

    @cached_property
    def _slice_dimension(self) -> DerivedDimension:
        sources = (*sorted({"source", "user"}.union(*(part.sources for part in self._parts))),)
        places = {name: index for index, name in enumerate(sources)}

        @lru_cache(_MEMO)  # cached, because few distinct values occur
        def yes_if_visible(values: tuple[str, ...]) -> str:
            return _YES if self.has_call(lambda name: values[places[name]]) else ""

        return DerivedDimension(name=SLICE, label="", sources=sources, value=yes_if_visible)

    @cached_property
    def _has_person_filters_beyond_own(self) -> bool:
        people = self._ledger.people

        def is_filter_for_own_person(condition: RoleFilter) -> bool:
            if condition.dimension != "user" or condition.mode != IS or people is None or not self._person:
                return False
            return {people.person_identity(value) for value in condition.values} == {
                people.person_identity(self._person)
            }

        return any(
            not set(OF_PEOPLE).isdisjoint(self._stored_dimensions([condition]))
            and not is_filter_for_own_person(condition)
            for part in self._slice.parts
            for condition in part
        )

    def _stored_dimensions(self, part: Collection[RoleFilter]) -> Iterator[str]:
        for condition in part:
            derived = self._derived.get(condition.dimension)
            yield from (condition.dimension,) if derived is None else derived.sources
            if condition.dimension == USER:
                yield SECOND_NAME

    def _has_no_values_merged_into_other(self, include: WantedValues) -> bool:
        asks_owner = any(part.asks_owner for part in self._parts)
        for name, values in include.items():
            divides = _is_owner(name) or (name in WORK and not asks_owner)
            joint = "" if name.startswith(TAG) else OTHER
            if divides and joint not in values:
                return True
        return False


class _SlicePart:
    """One alternative of a slice: filters that a call must all match."""

    def __init__(self, filters: Collection[RoleFilter], sources: frozenset[str]) -> None:
        self._filters = filters
        self.sources = sources
        self.asks_owner = any(map(_is_owner, sources))
        self._asks_work = not sources.isdisjoint(WORK)

    def has_needed_values(self, value_of: Callable[[str], str]) -> bool:
        """
        Return whether a sum has the values that the filters need. A sum of several owners or units of work
        lacks them.
        """
        if self.asks_owner:
            return value_of("user") != OTHER
        return value_of("source") != OTHER or not self._asks_work

    def is_met_by(self, value_of: Callable[[str], str]) -> bool:
        return all(
            condition.is_met_by(*filter_values_of_dimension(condition.dimension, value_of))
            for condition in self._filters
        )


def _is_owner(name: str) -> bool:
    """
    Return whether a dimension depends on the owner of calls. If sums are joined because there are too many,
    these dimensions are lost first.
    """
    return name in OWNERS or name.startswith(TAG)

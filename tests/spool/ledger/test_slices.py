"""A person sees exactly the cost of the records in their slice, recounted one by one, on every engine."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spool.ledger import counting
from spool.ledger.counting import OWNERS, WORK
from spool.ledger.dimensions import TOTAL, DerivedDimension
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery
from spool.ledger.slices import SlicedLedger
from spool.ledger.sums import Dimensions
from spool.record import Inference
from spool.registry.roles import EXCEPT, IS, LedgerSlice, RoleFilter
from tests.rounds import IS_LONG, as_proof
from tests.spool.ledger.engines import MEMORY, POSTGRES, SQLITE, Ledgers
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog, call

TEAMS = (None, "search", "ads", "it's")
USERS = (None, "ada", "bob")
SERVICES = (None, "web", "batch")
WHOLE = CostQuery(
    since=datetime.fromtimestamp(BEGIN, UTC),
    until=datetime.fromtimestamp(BEGIN + 24 * HOUR, UTC),
    granularity=TOTAL,
)
# The organization derives this dimension from two of the ledger's dimensions.
PLACE = DerivedDimension(
    name="own:place",
    label="Place",
    sources=("team", "tag:service"),
    value=lambda values: "front" if values == ("search", "web") else "back" if values[1] else "",
)
DIMENSIONS = ("team", "user", "tag:service", "own:place")
VALUES = {
    "team": ("", "search", "ads", "it's", "nobody"),
    "user": ("", "ada", "bob"),
    "tag:service": ("", "web", "batch"),
    "own:place": ("", "front", "back"),
}


@dataclass(frozen=True)
class Spent:
    records: Sequence[Inference]
    ledger: Ledger


def records() -> list[Inference]:
    return [
        call(team=team, user=user, tags={"service": service} if service else {}, cost=f"{place}.001",
             cost_source="reported")
        for place, (team, user, service) in enumerate(product(TEAMS, USERS, SERVICES))
    ]  # fmt: skip


def value_of(record: Inference, name: str) -> str:
    if name == PLACE.name:
        return PLACE.value(tuple(value_of(record, source) for source in PLACE.sources))
    found = record.tags.get(name[4:]) if name.startswith("tag:") else getattr(record, name)
    return found or ""


@asynccontextmanager
async def spent(ledgers: Ledgers, given: list[Inference], max_rows: int = 5000) -> AsyncIterator[Spent]:
    ledger = await ledgers.open(clock=FakeClock(BEGIN + 23 * HOUR), max_rows=max_rows)
    ledger.set_derived_dimensions([PLACE])
    log = FakeLog()
    log.add(given)
    try:
        await ledger.catch_up(log)
        yield Spent(given, ledger)
    finally:
        await ledgers.close()


def part(*filters: tuple[str, str, tuple[str, ...]]) -> tuple[RoleFilter, ...]:
    return tuple(RoleFilter(dimension=name, mode=mode, values=values) for name, mode, values in filters)


filters = st.sampled_from(DIMENSIONS).flatmap(
    lambda name: st.builds(
        RoleFilter,
        dimension=st.just(name),
        mode=st.sampled_from([IS, EXCEPT]),
        values=st.lists(st.sampled_from(VALUES[name]), min_size=1, max_size=3, unique=True).map(tuple),
    )
)
slices = st.builds(
    LedgerSlice, parts=st.lists(st.lists(filters, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)
)


@pytest.mark.proves("A person with restricted access sees other calls")
@pytest.mark.parametrize("engine", [SQLITE, as_proof(POSTGRES)])
@settings(
    max_examples=4 if IS_LONG else 2,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(asked=st.lists(st.tuples(slices, st.sampled_from(DIMENSIONS), filters), min_size=12, max_size=12))
def test_the_sums_of_a_slice_are_those_of_its_records(
    request: pytest.FixtureRequest, engine: str, tmp_path: Path, asked: Any
) -> None:
    """
    A slice combines several roles, with filters and groups by any dimension. Values of dimensions are those
    of its records.
    """

    async def check() -> None:
        async with spent(Ledgers.of(engine, request, tmp_path), []) as empty:
            assert not await SlicedLedger(empty.ledger, LedgerSlice()).costs(WHOLE)
        async with spent(Ledgers.of(engine, request, tmp_path / "full"), records()) as full:
            for slice, by, only in asked:
                await _check_slice(full, slice, by, only)

    (tmp_path / "full").mkdir(exist_ok=True)
    for old in [*tmp_path.glob("*.sqlite*"), *tmp_path.glob("full/*")]:
        old.unlink()
    asyncio.run(check())


async def _check_slice(full: Spent, slice: LedgerSlice, by: str, only: RoleFilter) -> None:
    seen = [each for each in full.records if slice.has_call(lambda name, each=each: value_of(each, name))]  # type: ignore[misc]
    sliced = SlicedLedger(full.ledger, slice)
    assert [sliced.has_call(lambda name, each=each: value_of(each, name)) for each in full.records] == [  # type: ignore[misc]
        each in seen for each in full.records
    ]
    wanted: dict[str, Decimal] = defaultdict(Decimal)
    for each in seen:
        if only.is_met_by(value_of(each, only.dimension)):
            wanted[value_of(each, by)] += Decimal(each.cost or 0)
    chosen = {only.dimension: only.values}
    include, exclude = (chosen, {}) if only.mode == IS else ({}, chosen)
    rows = await sliced.costs(replace(WHOLE, group_by=(by,), include=include, exclude=exclude))
    assert wanted == {row.group[0] or "": Decimal(row.cost) for row in rows}
    assert sorted({value_of(each, by) for each in seen} - {""}) == list(await sliced.values(by))


async def test_role_exception_on_a_deleted_dimension_shows_nothing(ledgers: Ledgers) -> None:
    """
    If a role's exception names values of a deleted dimension, it must not show everything, so it shows nothing. The
    person's other roles still apply.
    """
    gone = part(("own:gone", EXCEPT, ("front",)))
    async with spent(ledgers, records()) as full:
        assert not await SlicedLedger(full.ledger, LedgerSlice(parts=(gone,))).costs(WHOLE)
        both = SlicedLedger(full.ledger, LedgerSlice(parts=(gone, part(("team", IS, ("ads",))))))
        assert ["ads"] == list(await both.values("team"))


async def test_no_question_names_the_slice(ledgers: Ledgers) -> None:
    """A slice appears in no list of dimensions, and no query can group or filter by it."""
    async with spent(ledgers, records()) as full:
        sliced = SlicedLedger(full.ledger, LedgerSlice(parts=(part(("team", IS, ("ads",))),)))
        known = sliced.dimensions()
        assert set(known) == set(full.ledger.dimensions())
        await sliced.costs(WHOLE)
        for ledger in (sliced, full.ledger):
            with pytest.raises(ValueError, match="is not a dimension"):
                await ledger.values("(slice)")
            with pytest.raises(ValueError, match="is not a dimension"):
                await ledger.costs(replace(WHOLE, group_by=("(slice)",)))


@pytest.mark.proves("A finding or a joint sum reveals what others spent")
async def test_joint_sums_are_in_no_slice_that_would_have_to_divide_them(ledgers: Ledgers) -> None:
    """
    A merged sum of several users or teams contains calls that the person may not see, so it is left out.
    People see less, never more.
    """
    async with spent(ledgers, records(), max_rows=19) as full:
        assert await full.ledger.has_values_merged_into_other()
        cost = {}
        for name, values in (
            ("user", ("bob",)),
            ("tag:service", ("web",)),
            ("team", ("it's",)),
            ("status", ("error",)),
        ):
            sliced = SlicedLedger(full.ledger, LedgerSlice(parts=(part((name, EXCEPT, values)),)))
            rows = await sliced.costs(replace(WHOLE, group_by=("user", "source")))
            cost[name] = sum((Decimal(row.cost) for row in rows), Decimal(0))
            groups = {row.group for row in rows}
            assert (("(other)", "(other)") in groups) == (name == "status")
            assert (("(other)", "litellm") in groups) == (name in ("team", "status"))
        assert (
            cost["user"]
            < cost["team"]
            < cost["status"]
            == sum(Decimal(each.cost or 0) for each in full.records)
        )


async def test_filter_is_within_a_slice_if_all_its_sums_are(tmp_path: Path) -> None:
    """
    A filter lies within a slice only if all its sums do. If values are merged, only a filter that matches no merged
    sum lies within the slice.
    """
    slice = LedgerSlice(parts=(part(("team", EXCEPT, ("ads",))), part(("user", IS, ("ada",)))))
    for max_rows, may_except in ((5000, True), (6, False)):
        async with spent(Ledgers(MEMORY, tmp_path, None), records(), max_rows=max_rows) as full:
            contains = await SlicedLedger(full.ledger, slice).filters_within_slice_test()
            assert contains({"user": ("ada",)}, {})
            assert not contains({}, {})
            assert not contains({"team": ("ads", "search")}, {})
            assert contains({}, {"team": ("ads",)}) == may_except
            assert contains({"team": ("(other)",)}, {}) == may_except
    async with spent(Ledgers(MEMORY, tmp_path, None), records()) as full:
        everything = await SlicedLedger(full.ledger, LedgerSlice(parts=((),))).filters_within_slice_test()
        nothing = await SlicedLedger(full.ledger, LedgerSlice()).filters_within_slice_test()
        assert everything({}, {}) is True
        assert nothing({"team": ("ads",)}, {}) is False


def test_slices_recognize_merged_sums_by_their_dimensions() -> None:
    """Slices recognize merged sums by the dimensions that are merged first and last."""
    apart = Dimensions(*Dimensions._fields)._replace(tags='{"service": "web"}')  # type: ignore[arg-type]
    first, last = map(
        Dimensions._make, (counting.replace_owners_with_other(apart), counting.replace_work_with_other(apart))
    )
    assert {*OWNERS, "tags"} == {
        name for name in Dimensions._fields if getattr(first, name) != getattr(apart, name)
    }
    assert {*OWNERS, *WORK, "tags"} == {
        name for name in apart._fields if getattr(last, name) != getattr(apart, name)
    }


async def test_filter_on_source_dimensions_is_within_a_derived_value(tmp_path: Path) -> None:
    """
    A filter on source dimensions lies within a derived value if it names values of all sources and each
    combination gives a visible value.
    """
    front = LedgerSlice(parts=(part(("own:place", IS, ("front",))),))
    async with spent(Ledgers(MEMORY, tmp_path, None), records()) as full:
        contains = await SlicedLedger(full.ledger, front).filters_within_slice_test()
        assert contains({"team": ("search",), "tag:service": ("web",)}, {})
        assert contains({"own:place": ("front",)}, {})
        assert not contains({"team": ("search",)}, {})
        assert not contains({"team": ("search", "ads"), "tag:service": ("web",)}, {})
        assert not contains({"team": ("search",), "tag:service": ("web", "")}, {})

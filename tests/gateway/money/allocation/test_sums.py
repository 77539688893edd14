"""For any definition, the elements of a dimension add up exactly to the total."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.money.allocation.difference import compare_definitions, sources_read_by
from gateway.money.allocation.evaluation import build_dimension_evaluators
from gateway.money.allocation.language import join_definitions, parse_definition
from gateway.money.allocation.published import AllocationDefinitionHolder
from spool import money
from spool.ledger.dimensions import TOTAL
from spool.ledger.ledger import Ledger
from spool.ledger.queries import CostQuery, CostRow
from spool.sqlite.in_memory import new_in_memory_ledger
from spool.sqlite.ledger import SqliteLedger
from tests.rounds import examples
from tests.spool.contract.test_ledger import records
from tests.spool.ledger_log import BEGIN, HOUR, FakeClock, FakeLog

SOURCES = ("model", "provider", "team", "user", "tag:service")
DAY = 24 * HOUR

values = st.lists(st.sampled_from(["a", "b", "ä", "x", "y", "gpt"]), min_size=1, max_size=2)
sources = st.fixed_dictionaries({"Source": st.sampled_from(SOURCES)})
comparisons = st.tuples(
    sources, st.sampled_from(["Equals", "BeginsWith", "Contains", "EndsWith"]), values
).map(lambda parts: {**parts[0], parts[1]: parts[2]})
presence = st.tuples(sources, st.sampled_from(["true", "false"])).map(
    lambda parts: {**parts[0], "HasValue": parts[1]}
)
conditions = st.recursive(
    comparisons | presence,
    lambda inner: st.tuples(
        st.sampled_from(["And", "Or", "Not"]), st.lists(inner, min_size=1, max_size=2)
    ).map(lambda parts: {parts[0]: parts[1]}),
    max_leaves=4,
)
groups = st.tuples(st.sampled_from(["one", "two"]), st.lists(conditions, min_size=1, max_size=2)).map(
    lambda parts: {"Type": "Group", "Name": parts[0], "Conditions": parts[1]}
)
group_by = sources.map(lambda source: {"Type": "GroupBy", "Transforms": [{"Type": "Normalize"}], **source})
rules = st.lists(groups | group_by, min_size=1, max_size=3)


@st.composite
def definitions(draw: st.DrawFn) -> bytes:
    """Draw three dimensions. The last one is built on the first."""
    first = {"Rules": draw(rules), **draw(st.sampled_from([{}, {"DefaultValue": "none"}]))}
    of_it = {
        "Type": "Group",
        "Name": "same",
        "Conditions": [{"Source": "User:Defined:A", "Equals": ["one", "a"]}],
    }
    return json.dumps(
        {"Dimensions": {"A": first, "B": {"Rules": draw(rules)}, "C": {"Rules": [of_it, *draw(rules)]}}}
    ).encode()


def sums(rows: list[CostRow]) -> dict[Any, tuple[int, int, int]]:
    """Sum cost, savings and calls of each element over all periods."""
    totals: dict[Any, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        for index, value in enumerate(
            (money.text_to_units(row.cost), money.text_to_units(row.saved), row.calls)
        ):
            totals[row.group[0] if row.group else ""][index] += value
    return {name: (each[0], each[1], each[2]) for name, each in totals.items()}


@pytest.mark.parametrize("engine", ["sqlite", "memory"])
@settings(max_examples=examples(60), deadline=None)
@given(kept=st.lists(records(), max_size=8), text=definitions(), other=definitions())
def test_elements_add_up_to_the_total(
    tmp_path_factory: pytest.TempPathFactory, engine: str, kept: list[Any], text: bytes, other: bytes
) -> None:
    """The elements of each dimension and period add up to the total, for both sides of a comparison."""

    async def run() -> None:
        clock = FakeClock(BEGIN + 8 * HOUR)
        store: Any = new_in_memory_ledger()
        if engine == "sqlite":
            store = await SqliteLedger.open(tmp_path_factory.mktemp("ledger"), clock)
        log, ledger = FakeLog(), await Ledger(store, clock=clock).load()
        try:
            log.add(kept, at=BEGIN)
            await ledger.catch_up(log)
            definition = join_definitions({"": parse_definition(text, ledger.builtin_and_tag_dimensions())})
            AllocationDefinitionHolder(ledger).put_in_force(definition, version="1")
            span = CostQuery(since=_at(BEGIN - 3 * DAY), until=_at(BEGIN + 3 * DAY), granularity=TOTAL)

            async def asked(granularity: str, *groups: str) -> list[CostRow]:
                query = CostQuery(
                    since=span.since, until=span.until, granularity=granularity, group_by=groups
                )
                return list(await ledger.costs(query))

            [whole] = sums(await asked(TOTAL)).values() or [(0, 0, 0)]
            by_sources = await asked(TOTAL, *SOURCES)
            for decision in build_dimension_evaluators(definition):
                expected: dict[Any, list[CostRow]] = defaultdict(list)
                for row in by_sources:
                    known = dict(zip(SOURCES, (value or "" for value in row.group), strict=True))
                    expected[
                        decision.element_of_values(tuple(known[name] for name in decision.sources)) or None
                    ].append(row)
                for granularity in (TOTAL, "daily", "hourly"):
                    element_sums = sums(await asked(granularity, decision.dimension.id))
                    assert whole == tuple(
                        sum(element_sum[index] for element_sum in element_sums.values()) for index in range(3)
                    )
                    assert element_sums.keys() == expected.keys()
                    for element, rows in expected.items():
                        assert element_sums[element][0] == sum(money.text_to_units(row.cost) for row in rows)
            after = parse_definition(other, ledger.builtin_and_tag_dimensions())
            names = sources_read_by(definition, after)
            change = compare_definitions(definition, after, names, await asked(TOTAL, *names))
            assert whole[0] == change.total.cost
            assert whole[2] == change.total.calls
            for dimension in change.dimensions:
                for side in ("before", "after"):
                    spends = [getattr(element, side) for element in dimension.elements]
                    assert whole[0] == sum(s.cost for s in spends)
                    assert whole[2] == sum(s.calls for s in spends)
        finally:
            await ledger.close()

    asyncio.run(run())


def _at(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)

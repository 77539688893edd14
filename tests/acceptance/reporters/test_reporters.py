"""One call has one record, whoever reports it and in whatever order: every set of reporters of `table.py`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.acceptance.reporters.excepted import EXCEPTED
from tests.acceptance.reporters.rounds import (
    NOTHING,
    ROUNDS,
    SEED,
    SET_CALLS,
    SETS,
    Counted,
    Place,
    Played,
    Round,
    played,
    total,
)
from tests.acceptance.reporters.table import ReporterSet
from tests.spool.postgres_cluster import Schemas, storage_table

# The first test of a round waits for the whole round.
pytestmark = [pytest.mark.timeout(1800), pytest.mark.proof]


@pytest.fixture(scope="module", params=ROUNDS, ids=lambda one: one.name)
def results(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    one: Round = request.param
    place = tmp_path_factory.mktemp("gateways")
    folders = [place / f"gateway-{number}" for number in range(one.gateways)]
    storage = [""]
    if one.gateways > 1:
        schemas: Schemas = request.getfixturevalue("schemas")
        schema = schemas.take()
        request.addfinalizer(lambda: schemas.give_back(schema))
        storage = [storage_table(place, dsn=schema.dsn, schema=schema.name)] * one.gateways
    with played(one, folders, storage) as found:
        print(summary(one, found))
        yield found


def right(one: ReporterSet) -> dict[Place, Counted]:
    """Return what the calls of a set count, by place."""
    found: defaultdict[Place, list[Counted]] = defaultdict(list)
    for each in SET_CALLS:
        if each.set == one:
            found[each.place].append(each.right)
    return {place: total(counted) for place, counted in found.items()}


def summary(one: Round, results: Played) -> str:
    """Return the sets that are not right, with their numbers of doubles, losses and other differences."""
    lines = []
    for each in SETS:
        pairs = [(counted, results.archived.get(place, NOTHING)) for place, counted in right(each).items()]
        wrong = sum(expected != found for expected, found in pairs)
        more = [found.calls - expected.calls for expected, found in pairs]
        doubles, losses = sum(max(one, 0) for one in more), sum(max(-one, 0) for one in more)
        if wrong:
            lines.append(f"{each.name}: {wrong} of {len(pairs)} wrong, {doubles} doubles, {losses} losses")
    return "\n".join([f"{one.name}: {len(SET_CALLS)} calls of {len(SETS)} sets", *lines])


@pytest.mark.parametrize("one", [one for one in SETS if one.name not in EXCEPTED], ids=lambda one: one.name)
def test_each_call_counts_once(results: Played, one: ReporterSet) -> None:
    """
    After all waves, the record file has one record per call, with its outcome, tokens and cost, including
    corrections.
    """
    expected = right(one)
    assert expected == {place: results.archived.get(place, NOTHING) for place in expected}


@pytest.mark.parametrize("name", EXCEPTED)
def test_an_excepted_set_counts_twice_and_loses_nothing(results: Played, name: str) -> None:
    """
    The calls of an excepted set are counted more than once, and none is lost. If a set fails here because its calls
    count once, remove it from the exceptions.
    """
    [one] = [one for one in SETS if one.name == name]
    more = [results.archived[place].calls - counted.calls for place, counted in right(one).items()]
    assert min(more) >= 0
    assert max(more) > 0


def test_the_ledger_has_the_sums_of_the_records(results: Played) -> None:
    expected = {
        one.name: total(counted for (name, _), counted in results.archived.items() if name == one.name)
        for one in SETS
    }
    assert expected == dict(results.ledger)


def test_the_upstream_has_the_records_and_the_corrections(results: Played) -> None:
    assert results.archived_calls == results.sent
    assert results.corrections == results.sent_corrections

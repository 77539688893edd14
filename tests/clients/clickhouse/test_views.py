"""
The statements of `tollhouse lake sql --for clickhouse` over the files of a lake, in ClickHouse's own engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from exporters.lake.views.statements import VIEWS, view_statements
from exporters.settings import DestinationSettings
from tests.clients.clickhouse.test_engine import Engine
from tests.exporters.spools import record_id
from tests.integration.lake.test_views import land

pytestmark = pytest.mark.clients
DAY = "2026-09-21"
ANSWERS = {
    "SELECT count(), uniqExact(id), toString(sum(spend)) FROM once": "25\t25\t2.3",
    "SELECT count(), toString(sum(spend)), toString(sum(usd)) FROM spend": "24\t2.3\t2.3",
    "SELECT id, toString(spend), corrections FROM calls WHERE corrections > 0": f"{record_id(1).hex()}\t0.3\t1",
    "SELECT toString(day), calls, toString(spend), input_tokens FROM daily": f"{DAY}\t21\t2.3\t231",
    "SELECT team, calls, toString(spend) FROM by_owner ORDER BY team": "search\t20\t2.2\n\\N\t1\t0.1",
    "SELECT toString(known_on), count(), toString(sum(spend)) FROM late GROUP BY known_on": "2026-09-23\t2\t0.1",
    "SELECT toString(sum(BilledCost)), sum(x_Calls) FROM focus": "2.3\t21",
}


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Start an engine with the views over the files of a lake."""
    directory = tmp_path_factory.mktemp("views")
    asyncio.run(land(directory))
    made = Engine(directory / "engine")
    try:
        settings = DestinationSettings(type="file", path=directory / "lake")
        for statement in view_statements("clickhouse", settings).split(";\n"):
            if statement.strip():
                made.ask(statement)
        yield made
    finally:
        made.kill()


@pytest.mark.parametrize("question", ANSWERS)
def test_the_views_are_the_truth(question: str, engine: Engine) -> None:
    """ClickHouse and DuckDB give the same results for the same lake."""
    assert ANSWERS[question] == engine.ask(question)


def test_every_view_has_a_query(engine: Engine) -> None:
    """Every view has a query in ANSWERS, so that a new view is tested as well."""
    queried = {question.partition(" FROM ")[2].split()[0] for question in ANSWERS}
    assert set(VIEWS) - {"lake"} == queried
    assert "25" == engine.ask("SELECT count() FROM lake")

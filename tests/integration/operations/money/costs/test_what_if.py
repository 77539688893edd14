"""The cost of past calls with another model, over the operator API and as a command."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.intake.prices import PriceBook
from gateway.money.recommendations.facts import dimension_value
from gateway.operations.money.costs import what_if
from spool.engines import SQLITE
from spool.ledger.sums import Dimensions
from spool.record import Inference
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
AT = int(datetime(2026, 9, 5, 12, tzinfo=UTC).timestamp())
TOKENS = {"input_tokens": 10_000, "output_tokens": 1000, "cache_read_tokens": 2000}


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, engine=SQLITE, clock=clock) as server:
        book = PriceBook.load()
        paid = {"cost": "0.001", "cost_source": "reported"}
        fields: tuple[tuple[str, str, dict[str, str]], ...] = (
            ("checkout", "gpt-4o", {}),
            ("checkout", "gpt-4o", paid),
            ("ads", "gpt-4o", {}),
            ("ads", "of-our-own", paid | {"cost": "5"}),
        )
        for number, (team, model, more) in enumerate(fields):
            made = call(
                number, at=AT + number, team=team, provider="openai", request_model=model, **TOKENS, **more
            )
            book.price_record(made[0])
            await add(server.services.spool.log, made)
        yield server


def price(model: str) -> Decimal:
    text = PriceBook.load().estimate_record(
        Inference(id=b"", source="", request_model=model, start_time=AT * 10**9, **TOKENS)  # type: ignore[arg-type]
    )
    assert text is not None
    return Decimal(text)


async def asked(server: OperatorServer, query: str) -> Any:
    answer = await server.ask("GET", f"/what-if?{query}")
    assert 200 == answer.status, answer.payload
    return answer.payload


@pytest.mark.parametrize("hour", [2, 12])
async def test_calls_of_a_model_with_prices_by_the_hour_are_unchanged(
    server: OperatorServer, hour: int
) -> None:
    """
    Calls of a model whose prices depend on the hour stay unchanged in a what-if calculation of a day. The sum of a
    day has no hours, and the price of midnight would make such calls look twice as cheap as they were.
    """
    at = AT - (12 - hour) * 3600
    night = call(9, at=at, team="night", provider="deepseek", request_model="deepseek-flash", **TOKENS)
    PriceBook.load().price_record(night[0])
    await add(server.services.spool.log, night)
    payload = await asked(server, "by=team&model=gpt-4o-mini&range=this_month")
    [row] = [row for row in payload["rows"] if row["team"] == "night"]
    assert Decimal(night[0].estimated_cost or "") == Decimal(row["cost"]) == Decimal(row["as_if"])
    assert (1, Decimal(row["cost"])) == (row["calls"], Decimal(row["unchanged"]))


async def test_sums_are_priced_and_grouped_in_a_thread(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Sums for what-if costs are priced and grouped in a thread. A day may have thousands of sums, so this would block
    all other requests on the event loop.
    """
    are_on_loop = set()

    def noted(dimensions: Dimensions, name: str) -> str:
        are_on_loop.add(threading.current_thread() is threading.main_thread())
        return dimension_value(dimensions, name)

    monkeypatch.setattr(what_if, "dimension_value", noted)
    await asked(server, "model=gpt-4o-mini&by=team&where=team=ads&from=2026-09-01&to=2026-09-10")
    assert {False} == are_on_loop


async def test_the_same_tokens_at_the_prices_of_another_model(server: OperatorServer) -> None:
    """
    Reported costs scale with the ratio of the list prices. Calls without a list price stay unchanged, and the
    answer names them.
    """
    found = await asked(server, "model=gpt-4o-mini&by=team&from=2026-09-01&to=2026-09-10")
    rows = {row["team"]: row for row in found["rows"]}
    saves = price("gpt-4o") - price("gpt-4o-mini")
    # a call that cost a tenth of the list price saves a tenth of the price difference
    of_reported = saves * Decimal("0.001") / price("gpt-4o")
    assert abs(Decimal(rows["checkout"]["saves"]) - saves - of_reported) < Decimal("1e-12")
    assert saves == Decimal(rows["ads"]["saves"])
    assert rows["ads"]["unchanged"] == "5"
    assert rows["ads"]["calls"] == 2
    for row in (*rows.values(), found["total"]):
        assert Decimal(row["cost"]) - Decimal(row["saves"]) == Decimal(row["as_if"])
    total, told = found["total"], found["what_if"]
    assert sum(Decimal(row["saves"]) for row in rows.values()) == Decimal(total["saves"])
    assert told["days"] == 10
    assert told["left_out"] == "0"
    assert Decimal(total["saves"]) * 3 == Decimal(told["saves_a_month"])
    report = await server.ask("GET", "/report?from=2026-09-01&to=2026-09-10")
    assert report.payload["total"]["cost"] == total["cost"]


async def test_filters_hold_and_dearer_is_below_nothing(server: OperatorServer) -> None:
    found = await asked(server, "model=gpt-4&where=team=ads&where=model!=of-our-own")
    assert 1 == found["total"]["calls"]
    assert Decimal(found["total"]["saves"]) < 0


WRONG_QUESTIONS: Sequence[tuple[str, str]] = [
    ("", "model"),
    ("model=none", "no list price is known"),
    ("model=gpt-4o&by=x", "x"),
]


async def test_a_wrong_question_is_refused(server: OperatorServer) -> None:
    for query, words in WRONG_QUESTIONS:
        status, _, message = (await server.ask("GET", f"/what-if?{query}")).error
        assert status == 400, message
        assert words in message, message

"""The cost per user, customer or counted unit, and the savings of prompt caches, as optional measures."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from gateway.intake.prices import PriceBook
from spool.identity import RecordIdentity
from spool.record import NS, UNIT_COST, Inference, UnitCostOperation
from spool.settings import SpoolSettings
from spool.sqlite.spool import open_spool
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call, counted_from, submission

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
# Each row has day, team, user and cost. Team ads has two users and a call without a user. Team ml has one of
# the two users.
SPENT = (
    ("2026-09-01", "ads", "ann", "3"),
    ("2026-09-02", "ads", "ann", "1"),
    ("2026-09-02", "ads", "bob", "2"),
    ("2026-09-02", "ads", None, "100"),
    ("2026-09-03", "ml", "bob", "5"),
    ("2026-09-03", "none", None, "7"),
)


def at(day: str) -> float:
    return datetime.fromisoformat(f"{day}T12:00+00:00").timestamp()


def spent(rows: Sequence[tuple[str, str, str | None, str]]) -> list[Any]:
    return [
        call(number, at=at(day), team=team, user=user, cost=cost, cost_source="reported", request_model="gpt")
        for number, (day, team, user, cost) in enumerate(rows)
    ]


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    clock = MovedClock(NOW.timestamp())
    async with operator_server(tmp_path, clock=clock) as server:
        await add(server.services.spool.log, counted_from("2026-08-31"), *spent(SPENT))
        yield server


async def asked(server: OperatorServer, query: str) -> Any:
    answer = await server.ask("GET", f"/report?{query}")
    assert 200 == answer.status, answer.payload
    return answer.payload


def each(row: Mapping[str, Any]) -> tuple[str | None, str | None]:
    return row["units"], row["cost_per_unit"]


UNIT = "unit=user&show=cost,units,cost_per_unit"


async def test_the_cost_of_a_user(server: OperatorServer) -> None:
    """
    Each distinct user counts once per row and once in the total. Only calls with a user count. Without any,
    there is no figure. The folded row also counts its users once.
    """
    found = await asked(server, f"by=team&{UNIT}")
    rows = {row["team"]: each(row) for row in found["rows"]}
    assert {"ads": ("2", "3"), "ml": ("1", "5"), "none": (None, None)} == rows
    assert ("2", "5.5") == each(found["total"])
    folded = await asked(server, f"by=team&top=1&top_by=cost&{UNIT}")
    assert {"ads": ("2", "3"), "(other)": ("1", "5")} == {row["team"]: each(row) for row in folded["rows"]}
    daily = await asked(server, f"per=daily&{UNIT}")
    assert [("1", "3"), ("2", "1.5"), ("1", "5")] == [each(row) for row in daily["rows"]]
    compared = await asked(server, f"from=2026-09-02&to=2026-09-02&compare=previous&{UNIT}")
    assert ("1", "3") == each(compared["total"]["previous"])


async def test_a_unit_is_named_and_known(server: OperatorServer) -> None:
    """A missing or unknown unit gets an error that says what to write."""
    for query in ("show=units", "unit=banana&show=units", "unit=stream:none&show=units"):
        answer = await server.ask("GET", f"/report?{query}")
        assert 400 == answer.status, query
        assert "unit" in answer.payload["error"]["message"]


async def test_the_cost_of_what_a_stream_counts(server: OperatorServer) -> None:
    """
    The units are the stream's values in the range. They are grouped by period and by the stream's dimensions.
    By any other dimension there is no figure.
    """
    log = server.services.spool.log
    values = (
        ("2026-09-01", "ads", "10"),
        ("2026-09-02", "ads", "43"),
        ("2026-09-03", "ml", "2.5"),
        ("2026-08-31", "ml", "99"),
    )
    counted = [
        UnitCostOperation(
            id=bytes([number + 1]) * 16, stream="orders", stream_type="metric", operation="sum", value=value,
            start_time=int(at(day) * NS), granularity="DAILY", dimensions={"team": [team]},
        )
        for number, (day, team, value) in enumerate(values)
    ]  # fmt: skip
    await log.append_submission(
        submission([(each, RecordIdentity(each.id)) for each in counted], topic=UNIT_COST)
    )
    stream = "unit=stream:orders&show=units,cost_per_unit"
    whole = await asked(server, stream)
    assert ("55.5", f"{(Decimal(118) / Decimal('55.5')).quantize(Decimal(10) ** -12)}") == each(
        whole["total"]
    )
    by_team = await asked(server, f"by=team&{stream}")
    assert {"ads": ("53", "2"), "ml": ("2.5", "2"), "none": (None, None)} == {
        row["team"]: each(row) for row in by_team["rows"]
    }
    assert {(None, None)} == {each(row) for row in (await asked(server, f"by=model&{stream}"))["rows"]}
    assert ["orders"] == whole["report"]["streams"]


async def test_what_a_prompt_cache_saved(server: OperatorServer) -> None:
    """
    The saving is the price difference of the tokens read, less the extra cost of writing. It is negative if
    nothing was read.
    """
    book, log = PriceBook.load(), server.services.spool.log

    def priced(**tokens: int) -> Decimal:
        call: Any = {"provider": "anthropic", "request_model": "claude-sonnet-4-5", **tokens}
        start_time = int(at("2026-09-05") * 10**9)
        text = book.estimate_record(
            Inference(id=b"", source="", start_time=start_time, output_tokens=0, **call)
        )
        assert text is not None
        return Decimal(text)

    cached = {
        "reader": {"input_tokens": 100_000, "cache_read_tokens": 80_000, "cache_write_tokens": 10_000},
        "writer": {"input_tokens": 100_000, "cache_write_tokens": 90_000},
    }
    for number, (team, tokens) in enumerate(cached.items(), start=50):
        made = call(number, at=at("2026-09-05"), team=team, provider="anthropic", request_model="claude-sonnet-4-5",
                    output_tokens=0, **tokens)  # fmt: skip
        book.price_record(made[0])
        await add(log, made)
    found = await asked(server, "by=team&show=cost,saved_by_caching")
    saved = {row["team"]: row["saved_by_caching"] for row in found["rows"]}
    expected = {team: priced(input_tokens=100_000) - priced(**tokens) for team, tokens in cached.items()}
    assert expected["reader"] > 0 > expected["writer"]
    assert expected == {team: Decimal(saved[team]) for team in cached}
    assert saved["ads"] is None
    assert sum(expected.values()) == Decimal(found["total"]["saved_by_caching"])


def test_the_command_has_a_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Columns without figures are left out. Sums have a dollar sign and the decimals that they need to add up.
    """
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "store"
    small = [("2026-09-04", f"t{number}", "eve", "0.00025") for number in range(2)]

    async def fill() -> None:
        spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=MovedClock(NOW.timestamp()))
        await add(spool.log, *spent((*SPENT, *small)))
        await spool.close()

    asyncio.run(fill())
    words = [
        "report",
        "--by",
        "team",
        "--unit",
        "user",
        "--from",
        "2026-09-01",
        "--to",
        "2026-09-21",
        "--data",
        str(directory),
    ]
    done = CliRunner().invoke(main, words)
    assert 0 == done.exit_code, done.output
    [titles, *lines] = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()]
    titles = [title.lower() for title in titles]
    assert {"units", "cost_per_unit"} < {title.replace(" ", "_") for title in titles}
    assert {"cached", "saved", "unpriced"}.isdisjoint(titles)
    cost = titles.index("cost")
    shown = {line[0]: line[cost] for line in lines}
    assert all(text.startswith("$") for text in shown.values())
    amounts = {team: Decimal(text.strip("$").replace(",", "")) for team, text in shown.items()}
    assert amounts.pop("total") == sum(amounts.values()) == Decimal("118.0005")
    as_json = CliRunner().invoke(main, [*words, "--json"])
    assert "2" == next(row["units"] for row in json.loads(as_json.stdout)["rows"] if row["team"] == "ads")

"""The colours of names in charts: the same in every report, and no name beyond those of the rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from zlib import crc32

import pytest

from spool.errors import SpoolFull
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

NOW = datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
CHART = {"by": "model_family", "per": "daily", "top": "20", "colours": "names", "show": "cost"}


async def send(server: OperatorServer, *models: str, cost: str = "1") -> None:
    made = [
        call(
            crc32(f"{model} {cost}".encode()),
            at=NOW.timestamp() - 86_400,
            cost=cost,
            cost_source="reported",
            request_model=model,
            team="search" if model.endswith("0") else None,
        )
        for model in models
    ]
    await add(server.services.spool.log, *made)


async def asked(server: OperatorServer, path: str, **query: str) -> Any:
    answer = await server.ask("GET", f"{path}?{urlencode({'from': '2026-09-01'} | query)}")
    assert 200 == answer.status, answer.payload
    return answer.payload


async def test_a_name_keeps_its_colour(tmp_path: Path) -> None:
    """
    A name keeps its colour in all charts. The largest names get colours first, and the overview shows the same
    colours. A ninth and a twentieth name, a filter, a range and a view change no colour, and an answer has only the
    names of its rows.
    """
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await send(server, "small-0")
        await send(server, "large-1", cost="9")
        first = (await asked(server, "/report", **CHART))["colours"]
        assert {"large-1": 1, "small-0": 2} == first
        assert first == (await asked(server, "/overview"))["overview"]["colours"]
        await send(server, *(f"model-{n}" for n in range(18)), cost="20")
        every = (await asked(server, "/report", **CHART))["colours"]
        assert 20 == len(every)
        assert first == {name: every[name] for name in first}
        assert set(range(1, 9)) == set(every.values())
        overview = (await asked(server, "/overview"))["overview"]
        assert overview["colours"] == {
            row["model_family"]: every[row["model_family"]]
            for row in overview["days"]
            if row["model_family"] != "(other)"
        }
        narrow = await asked(server, "/report", **CHART, where="team=search")
        assert {name: every[name] for name in ("model-0", "model-10", "small-0")} == narrow["colours"]
        assert "colours" not in await asked(server, "/report", by="model")


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("colours=all&by=team&top=5", "colours must be names"),
        ("colours=names&top=5", "needs by, and top of at most 20"),
        ("colours=names&by=team", "needs by, and top of at most 20"),
        ("colours=names&by=team&top=21", "needs by, and top of at most 20"),
    ],
)
async def test_a_chart_has_few_names(tmp_path: Path, query: str, reason: str) -> None:
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        answer = await server.ask("GET", f"/report?{query}")
        assert 400 == answer.status
        assert reason in answer.payload["error"]["message"]


async def test_a_full_disk_costs_only_new_colours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If the disk is full, colours of new names cannot be stored. The report still answers, and known names keep their
    colours.
    """
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await send(server, "one-1")
        assert {"one-1": 1} == (await asked(server, "/report", **CHART))["colours"]
        await send(server, "two-2", cost="2")

        async def full(*_: object) -> None:
            raise SpoolFull("no space", retry_after_s=1)

        monkeypatch.setattr(type(server.services.money.colours), "find_or_assign_colours", full)
        assert {"one-1": 1} == (await asked(server, "/report", **CHART))["colours"]
        monkeypatch.undo()
        assert {"one-1": 1, "two-2": 2} == (await asked(server, "/report", **CHART))["colours"]

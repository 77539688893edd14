"""
Tokens that model servers served, next to the calls that were reported for the same models, over the operator API.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.normalise.otlp.metrics import SERVERS
from gateway.operations.records import served_tokens
from spool.identity import RecordIdentity
from spool.log.planning.corrections import correction_subtracting_duplicate
from spool.record import NS, UsageMetric
from tests.integration.operations.server import OperatorServer, operator_server
from tests.spool.contract.examples import add, call

MODEL = "Qwen/Qwen3-32B"
DAY_S = 86400


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, hold=10) as server:
        yield server


def counter(
    number: int,
    kind: str,
    value: int | str,
    *,
    at: float,
    source: str = "vllm",
    model: str | None = MODEL,
    shadow: bool = True,
    unit: str = "{token}",
) -> tuple[UsageMetric, RecordIdentity]:
    id = number.to_bytes(16)
    metric = UsageMetric(
        id=id, source=source, name=f"{source}:{kind}", model=model, token_type=kind, value=value, unit=unit,
        start_time=int(at) * NS, shadow=shadow, tags={"service": "gpu-3"},
    )  # fmt: skip
    return metric, RecordIdentity(id)


def told(number: int, at: float, **fields: Any) -> Any:
    counts = {"input_tokens": 100, "output_tokens": 10, "start_time": int(at) * NS}
    return call(number, **{"request_model": "qwen3-32b", "response_model": None, **counts, **fields})


async def test_served_tokens_less_reported_ones_are_listed(server: OperatorServer) -> None:
    """
    Served tokens less reported ones are listed by model, whatever suffix its name has. Calls from a cache, calls
    kept for reference, and calls of other days and models do not count.
    """
    now = server.clock.now()
    twice, counted = told(18, now, source="strands"), told(10, now)
    gone = correction_subtracting_duplicate(twice[0], 0, counted[0].id, counted[0], now_ns=int(now * NS))
    await add(
        server.services.spool.log,
        twice,
        (gone, RecordIdentity(gone.id)),
        counter(1, "input", 1000, at=now),
        counter(2, "output", 90, at=now),
        counter(3, "cache_read", 700, at=now),  # cached tokens are a part of the input tokens
        counter(4, "input", 50, at=now, source="sglang"),
        counter(5, "input", 5, at=now - 2 * DAY_S),
        counted,
        told(11, now, source="litellm"),
        told(12, now, status="cached"),
        told(13, now, shadow=True),
        told(14, now, request_model="gpt-5"),
        told(15, now - 2 * DAY_S),
        counter(16, "input", 30, at=now, source="otel", shadow=False, model="qwen3-32b"),
        # This counter counts money, not tokens.
        counter(17, "input", "12.5", at=now, source="otel", shadow=False, unit="EUR"),
    )
    answer = await server.ask("GET", "/served")
    today = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d")
    assert answer.status == 200
    assert answer.payload["date"] == today
    [row] = answer.payload["models"]
    assert {
        "model": MODEL,
        "servers": ["sglang gpu-3", "vllm gpu-3"],
        "told_by": ["litellm", "otel"],
        "calls": 2,
        "served": {"input_tokens": 1050, "output_tokens": 90},
        "told": {"input_tokens": 230, "output_tokens": 20},
        "untold": {"input_tokens": 820, "output_tokens": 70},
    } == {**row, "told_by": [name for name in row["told_by"] if name in ("litellm", "otel")]}
    before = datetime.fromtimestamp(now - 2 * DAY_S, UTC).strftime("%Y-%m-%d")
    [row] = (await server.ask("GET", "/served", date=before)).payload["models"]
    assert {"input_tokens": 5 - 100, "output_tokens": -10} == row["untold"]
    assert (400, 400) == tuple(
        [(await server.ask("GET", "/served", date=date)).status for date in ("2026-11", "soon")]
    )


async def test_a_server_that_counts_and_one_without_a_model(server: OperatorServer) -> None:
    """
    If counters of a model server count as usage themselves, none of its tokens is unreported. A server that names
    no model cannot be compared with calls.
    """
    now = server.clock.now()
    await add(
        server.services.spool.log,
        counter(1, "input", 40, at=now, source="tgi", shadow=False),
        counter(2, "input", 70, at=now, source="llama_cpp", model=None),
        told(10, now, request_model=None),
    )
    rows = {row["model"]: row for row in (await server.ask("GET", "/served")).payload["models"]}
    assert {"input_tokens": 0, "output_tokens": 0} == rows[MODEL]["untold"]
    assert rows[None]["untold"] is None
    assert rows[None]["served"]["input_tokens"] == 70


async def test_more_models_than_are_added_up(server: OperatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the maximum number of models, only the models that came first are summed."""
    monkeypatch.setattr(served_tokens, "MOST_MODELS", 1)
    now = server.clock.now()
    await add(
        server.services.spool.log,
        counter(1, "input", 1, at=now),
        counter(2, "input", 1, at=now, model="other"),
    )
    assert [MODEL] == [row["model"] for row in (await server.ask("GET", "/served")).payload["models"]]


async def test_servers_of_models() -> None:
    """
    The counters of the listed products include every call that the server answered. Products that count only their
    own calls are not in this list.
    """
    assert {"vllm", "sglang", "tgi", "nim", "ollama", "llama_cpp"} == SERVERS

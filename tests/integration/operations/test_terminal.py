"""`tollhouse tail` and `tollhouse top` next to a running server."""

from __future__ import annotations

import asyncio
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGINT
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from gateway.cli import main
from spool.deliveries.values import RouteSpec
from spool.record import AI_TELEMETRY
from tests.integration.conftest import Serve, Serving
from tests.processes.copied import copying_command
from tests.spool.contract.examples import add, call
from tests.waiting import limited


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """
    Restore the default SIGINT. A shell makes background processes ignore it, and their children inherit that.
    """
    before = signal.signal(SIGINT, signal.default_int_handler)
    yield
    signal.signal(SIGINT, before)


@asynccontextmanager
async def command(serving: Serving, *words: str) -> AsyncIterator[Process]:
    program, number = copying_command()
    words = (*words, "--data", str(serving.app.config.data_dir))
    process = await asyncio.create_subprocess_exec(
        program, *words, stdout=PIPE, stderr=PIPE, pass_fds=[number]
    )
    try:
        async with limited():
            yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def line(process: Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode().rstrip("\n")


async def test_tail_shows_older_and_new_records(serve: Serve) -> None:
    """Matching records appear once each, in commit order. Ctrl-C ends the command normally."""
    serving = await serve()
    log = serving.app.services.storage.log
    await add(log, call(1, team="search"), call(2, team="ads"))
    async with command(serving, "tail", "--team", "search", "--json") as process:
        rows = [orjson.loads(await line(process))]
        await add(log, call(3, team="ads"), call(4, team="search"))
        rows.append(orjson.loads(await line(process)))
        assert [1, 4] == [row["number"] for row in rows]
        process.send_signal(SIGINT)
        assert (b"", b"") == await process.communicate()
        assert 0 == process.returncode


async def test_a_line_for_people_has_the_figures(serve: Serve) -> None:
    """
    A line of `tail` has model, team, user, tokens and cost. Unknown values are a dash, and terminal control
    characters are removed.
    """
    serving = await serve()
    known: dict[str, Any] = {
        "response_model": "gpt-5",
        "team": "se\x1barch",
        "cost": "0.25",
        "cost_source": "reported",
    }
    await add(serving.app.services.storage.log, call(1, **known), call(2, status="error"))
    async with command(serving, "tail", "--last", "2") as process:
        first, second = [re.split(" {2,}", await line(process)) for _ in range(2)]
    assert ["otel", "gpt-5", "se arch", "-", "100 in", "10 out", "$0.25"] == first[1:]
    assert ["otel", "-", "-", "-", "100 in", "10 out", "-", "error"] == second[1:]


async def test_tail_says_that_the_server_stopped(serve: Serve) -> None:
    """If the server stops, the command says what to do and does not wait forever."""
    serving = await serve()
    await add(serving.app.services.storage.log, call(1))
    async with command(serving, "tail") as process:
        await line(process)
        await serving.app.stop()
        _, errors = await process.communicate()
    assert process.returncode == 1
    assert b"run the command again" in errors


async def test_tail_without_a_server_says_so(tmp_path: Path) -> None:
    """Without a server, `tail` says so and ends, because no record would ever arrive."""
    done = await asyncio.to_thread(CliRunner().invoke, main, ["tail", "--data", str(tmp_path)])
    assert done.exit_code == 1
    assert "tollhouse serve" in done.stderr


async def test_a_wrong_filter_is_wrong_use(serve: Serve) -> None:
    """A wrong filter ends with exit code 2 and the valid values."""
    serving = await serve()
    async with command(serving, "tail", "--state", "asleep") as process:
        _, errors = await process.communicate()
    assert process.returncode == 2
    assert b"open, closed" in errors


async def test_top_shows_rates_and_routes(serve: Serve) -> None:
    """
    The output has last minute's records by source, how far the totals are behind, and every route with its reason.
    """
    serving = await serve()
    storage = serving.app.services.storage
    await storage.deliveries.set_routes([RouteSpec(name="archive/ai-telemetry", topic=AI_TELEMETRY)])
    await storage.deliveries.set_route_state("archive/ai-telemetry", "parked", "403: no scope")
    await add(storage.log, call(1), call(2), call(3, source="litellm"))
    async with command(serving, "top", "--once") as process:
        output, _ = await process.communicate()
    words = [each.split() for each in output.decode().splitlines()]
    assert "3 records in 60 s (0.1/s), totals behind by" in output.decode()
    assert ["otel", "ai-telemetry", "2", "0.0"] in words
    assert any(each[:3] == ["archive/ai-telemetry", "paused", "3"] and "403:" in each for each in words)

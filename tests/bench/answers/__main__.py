"""
`python -m tests.bench.answers` requests the largest response of every operation from a large ledger, while
a sender sends.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import click

from gateway.core.paths import AS, OPERATOR_API, socket_path
from spool.clock import SystemClock
from spool.registry.scopes import INGEST
from spool.sqlite.ledger import open_ledger
from tests.answers.largest_questions import BUDGET, VIEW, Question, plans_of, questions
from tests.answers.many_sums import fill
from tests.integration.payloads import json_span, json_traces

SEND_EVERY_S = 0.01
LOOK_EVERY_S = 0.005
REST_S = 0.5
ANSWER_S = 600.0
SETTINGS = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
[mcp]
calls_per_minute = 0
"""


@dataclass
class Server:
    """
    A running `tollhouse serve`. `waits` holds the seconds that a sender and a probe of /livez waited
    for each response.
    """

    process: subprocess.Popen[str]
    url: str
    http: aiohttp.ClientSession
    socket: aiohttp.ClientSession
    keys: dict[str, str]

    def peak_mib(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+)", status)[0]) / 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    async def ask(self, question: Question) -> tuple[int, int]:
        """Send one request; return the response's status and size in bytes."""
        session, url, headers = self.http, self.url + question.path, {}
        if question.scope is None:
            session, url, headers = self.socket, f"http://tollhouse{question.path}", {AS: "ada@example.com"}
        else:
            headers = {"Authorization": await self.key(question.scope)}
        async with session.request(question.method, url, json=question.body, headers=headers) as response:
            size = 0
            async for piece in response.content.iter_any():
                size += len(piece)
            return response.status, size

    async def operate(self, path: str, body: Any) -> Any:
        url = f"http://tollhouse{OPERATOR_API}{path}"
        async with self.socket.post(url, json=body, headers={AS: "ada@example.com"}) as response:
            return json.loads(await response.read())

    async def key(self, scope: str) -> str:
        if scope not in self.keys:
            made = await self.operate("/keys", {"name": f"key of {scope}", "scopes": [scope]})
            self.keys[scope] = made["secret"]
        return self.keys[scope]


class Beside:
    """A background task that repeats a request and records how long each response took."""

    def __init__(self, server: Server, *, every_s: float, key: str = "") -> None:
        self._server = server
        self._every_s = every_s
        self._key = key
        self.waits: list[float] = []

    async def go_on(self) -> None:
        while True:
            begun = time.perf_counter()
            await self._once()
            self.waits.append(time.perf_counter() - begun)
            await asyncio.sleep(self._every_s)

    async def _once(self) -> None:
        if not self._key:
            async with self._server.http.get(f"{self._server.url}/livez") as response:
                await response.read()
            return
        body = json_traces(json_span())
        headers = {"Authorization": self._key, "Content-Type": "application/json"}
        async with self._server.http.post(
            f"{self._server.url}/v1/traces", data=body, headers=headers
        ) as response:
            await response.read()


@dataclass(frozen=True)
class Row:
    question: Question
    statuses: Sequence[int]
    size: int
    seconds: float
    above_mib: float
    lag_ms: float
    p99_ms: float

    def line(self) -> str:
        path = shown(self.question)[:90]
        said = "" if self.question.body is None else f" {str(self.question.body)[40:150]}"
        statuses = ",".join(map(str, sorted(set(self.statuses))))
        return (
            f"| {self.question.method} {path}{said} | {statuses} | {self.size:,} | {self.seconds:.2f} | "
            f"{self.above_mib:.0f} | {self.lag_ms:.0f} | {self.p99_ms:.0f} |"
        )


HEAD = (
    "| operation | status | bytes | s | MiB above idle | longest lag ms | sender's p99 ms |\n"
    + "|---" * 7
    + "|"
)


async def measure(server: Server, question: Question, at_once: int, idle_mib: float) -> Row:
    if question.scope:
        await server.key(question.scope)
    sender = Beside(server, every_s=SEND_EVERY_S, key=await server.key(INGEST))
    looker = Beside(server, every_s=LOOK_EVERY_S)
    beside = [asyncio.create_task(each.go_on()) for each in (sender, looker)]
    await asyncio.sleep(REST_S)
    for each in (sender, looker):
        each.waits.clear()
    server.forget_peak()
    begun = time.perf_counter()
    answers = await asyncio.gather(*(server.ask(question) for _ in range(at_once)))
    seconds = time.perf_counter() - begun
    await asyncio.sleep(2 * SEND_EVERY_S)
    for task in beside:
        task.cancel()
    await asyncio.gather(*beside, return_exceptions=True)
    waits = sorted(sender.waits) or [0.0]
    return Row(
        question=question,
        statuses=[status for status, _ in answers],
        size=max(size for _, size in answers),
        seconds=seconds,
        above_mib=server.peak_mib() - idle_mib,
        lag_ms=max(looker.waits, default=0.0) * 1000,
        p99_ms=waits[int(len(waits) * 0.99)] * 1000,
    )


async def walk(place: Path, combinations: int, hours: int, at_once: int, wanted: Sequence[str]) -> list[Row]:
    """Fill a ledger, start a server on it, and measure every operation."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
    begin = hour - timedelta(hours=hours - 1)
    data = place / "data"
    data.mkdir(mode=0o700)
    ledger = await open_ledger(data, clock=SystemClock())
    await fill(ledger, combinations=combinations, hours=hours, begin=int(begin.timestamp()))
    await ledger.close()
    settings = place / "tollhouse.toml"
    settings.write_text(f'data_dir = "{data}"\n{SETTINGS}')
    command = [sys.executable, "-m", "gateway", "serve", "--config", str(settings)]
    with (place / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ})
    try:
        assert process.stdout is not None
        line = await asyncio.to_thread(process.stdout.readline)
        url = line.removeprefix("listening on ").split()[0]
        return await asked(process, url, data, begin, hour, at_once, combinations, wanted)
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)


async def asked(
    process: subprocess.Popen[str],
    url: str,
    data: Path,
    begin: datetime,
    end: datetime,
    at_once: int,
    combinations: int,
    wanted: Sequence[str],
) -> list[Row]:
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    connector = aiohttp.UnixConnector(str(socket_path(data)))
    async with (
        aiohttp.ClientSession(timeout=timeout) as http,
        aiohttp.ClientSession(connector=connector, timeout=timeout) as socket,
    ):
        server = Server(process, url, http, socket, {})
        view = (await server.operate("/views", VIEW))["view"]["id"]
        budget = (await server.operate("/budgets", {**BUDGET, "view": {"id": view}}))["budget"]["id"]
        for plan in plans_of(view, combinations):
            await server.operate("/plans", plan)
        idle_mib = server.peak_mib()
        rows = []
        ids = {"views": view, "budgets": budget}
        largest = list(questions(f"{begin:%Y-%m-%d}", f"{end:%Y-%m-%d}", ids))
        for question in chosen(largest, wanted):
            rows.append(await measure(server, question, at_once, idle_mib))
            click.echo(rows[-1].line(), err=True)
        return rows


def chosen(asked: Sequence[Question], wanted: Sequence[str]) -> list[Question]:
    """
    Select the requests of the named operations. A name is a handler or an address template from the table.
    """
    names = {f"{each.method} {shown(each).partition('?')[0]}": each.name for each in asked}
    unknown = set(wanted) - set(names) - set(names.values())
    if unknown:
        raise click.BadParameter(
            f"no operation is {', '.join(sorted(unknown))}. There are:\n" + "\n".join(names)
        )
    handlers = {names.get(each, each) for each in wanted}
    return [each for each in asked if not wanted or each.name in handlers]


def shown(question: Question) -> str:
    return question.path.removeprefix(OPERATOR_API)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, metavar="[OPERATION]...")
@click.option(
    "--combinations", default=5000, show_default=True, help="Users of each hour, each with sums of its own."
)
@click.option("--hours", default=168, show_default=True, help="Hours of the ledger.")
@click.option(
    "--at-once", default=3, show_default=True, help="How often each question is asked at the same time."
)
def answers(names: tuple[str, ...], combinations: int, hours: int, at_once: int) -> None:
    """Request the largest possible response of each OPERATION (default: all)."""
    with tempfile.TemporaryDirectory() as directory:
        rows = asyncio.run(walk(Path(directory), combinations, hours, at_once, names))
    click.echo("\n".join((HEAD, *(row.line() for row in sorted(rows, key=lambda row: -row.size)))))


if __name__ == "__main__":
    answers(prog_name="python -m tests.bench.answers")

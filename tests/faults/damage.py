"""Random damage to the files of a data directory, and the rules that every start on it must satisfy."""

from __future__ import annotations

import asyncio
import json
import logging
import random
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import urllib3

from exporters.settings import DestinationSettings
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.service.app import TollhouseApp
from spool.record import AI_TELEMETRY
from spool.registry.operators import Actor
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings
from spool.sqlite.damage.notes import is_marked_damaged, read_note
from spool.sqlite.database import PAGE
from spool.sqlite.reserve import FILE as RESERVE
from tests.acceptance.payloads import post, request, span
from tests.faults.oracle import content_hash
from tests.processes.copied import COMMAND, Process, start_process
from tests.waiting import limited, until

REQUESTS = 40
ROUTE = f"archive/{AI_TELEMETRY}"
TABLES = (
    "facts", "entries", "sizes", "amendments", "commits", "books", "id_runs", "series", "routes", "deliveries", "dead",
    "devices", "clusters", "streams", "pending",
)  # fmt: skip

Damage = Callable[[Path, random.Random], None]


@dataclass
class Calls:
    """Calls by response id, sent and acknowledged, each with the hash of its content."""

    key: str = ""
    sent: dict[str, str] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Calls:
        return Calls(self.key, dict(self.sent), dict(self.acknowledged))

    async def send(self, app: TollhouseApp, rng: random.Random, count: int) -> int:
        """Send one request with `count` new calls; return its status."""
        calls = [(f"chatcmpl-{rng.getrandbits(96):024x}", rng.randrange(1, 10**6)) for _ in range(count)]
        made = {name: content_hash(name, tokens, "ada") for name, tokens in calls}
        self.sent.update(made)
        status = await self.post(
            app, request([span(name, tokens=tokens, user__id="ada") for name, tokens in calls])
        )
        if status == 200:
            self.acknowledged.update(made)
        return status

    async def post(self, app: TollhouseApp, body: bytes) -> int:
        """Return the response's status, or 0 without a response."""
        try:
            return (await asyncio.to_thread(post, app.url, body, self.key)).status
        except urllib3.exceptions.HTTPError:
            return 0


def config(directory: Path, *, archive: bool) -> Config:
    destination = DestinationSettings(name="archive", type="ndjson", path=directory / "archive.ndjson")
    return Config(
        data_dir=directory,
        server=ServerSettings(listen="127.0.0.1:0", grpc_listen=""),
        spool=SpoolSettings(hold=0.02, counter_wait=0),
        destinations=(destination,) if archive else (),
    )


@asynccontextmanager
async def running(directory: Path, *, archive: bool = True, **server: Any) -> AsyncIterator[TollhouseApp]:
    """Run a server with extra [server] settings."""
    async with started(config(directory, archive=archive), **server) as app:
        yield app


@asynccontextmanager
async def started(base: Config, **server: Any) -> AsyncIterator[TollhouseApp]:
    """Run a server from this configuration with extra [server] settings."""
    app = TollhouseApp(replace(base, server=replace(base.server, **server)), version="0")
    await app.start()
    try:
        yield app
    finally:
        await app.stop()


async def make_corpus(directory: Path, rng: random.Random, *, archive: bool) -> Calls:
    """
    Fill `directory`/rest, which was closed, and `directory`/killed, which is as a kill leaves it with
    its write-ahead log.
    """
    calls = Calls()
    async with running(directory / "rest", archive=archive) as app:
        registry = app.services.storage.registry
        assert registry is not None
        actor = Actor("tests", "local")
        _, calls.key = await registry.keys.create(name="load", use_cases=[SEND_AI_TELEMETRY], actor=actor)
        for _ in range(REQUESTS):
            assert 200 == await calls.send(app, rng, rng.choice([1, 5, 20]))
        assert await drain(app)
        await _until_noted(directory / "rest", len(calls.acknowledged), archive=archive)
        copy_running(directory / "rest", directory / "killed")
    return calls


async def _until_noted(directory: Path, calls: int, *, archive: bool) -> None:
    """Wait until the calls are booked as acknowledged and, if configured, archived."""

    def is_noted() -> bool:
        note = read_note(directory)
        is_archived = note.progress.get(ROUTE, 0) > calls or not archive
        return note.accepted.get(AI_TELEMETRY, 0) >= calls and is_archived

    await until(is_noted, f"{calls} calls are noted")


def copy_running(directory: Path, copy: Path) -> None:
    """
    Copy a running directory. Copy the archive last, because the database says how much of it is complete.
    """
    copy.mkdir()
    for path in sorted(directory.iterdir(), key=lambda path: ".sqlite" not in path.name):
        if path.is_file() and not path.name.startswith(RESERVE):
            shutil.copy2(path, copy)


# -- damage --------------------------------------------------------------------------------------------------


def flip_bits(file: Path, rng: random.Random) -> None:
    with changed(file) as data:
        for _ in range(rng.choice([1, 1, 2, 20])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_in_header(file: Path, rng: random.Random) -> None:
    with changed(file) as data:
        for _ in range(rng.choice([1, 2])):
            data[rng.randrange(min(len(data), 128))] ^= 1 << rng.randrange(8)


def overwrite_pages(file: Path, rng: random.Random) -> None:
    """Overwrite pages with zeros, noise, or content from other places."""
    with changed(file) as data:
        pages = max(1, len(data) // PAGE)
        for _ in range(rng.choice([1, 1, 3])):
            at = rng.randrange(pages) * PAGE
            other = rng.randrange(pages) * PAGE
            there = data[other : other + PAGE].ljust(PAGE, b"\0")
            data[at : at + PAGE] = rng.choice([bytes(PAGE), rng.randbytes(PAGE), there])[: len(data) - at]


def cut_off(file: Path, rng: random.Random) -> None:
    with changed(file) as data:
        del data[rng.randrange(len(data)) :]


def cut_little_off(file: Path, rng: random.Random) -> None:
    with changed(file) as data:
        del data[-rng.randrange(1, min(len(data), 2 * PAGE)) :]


def zero_the_end(file: Path, rng: random.Random) -> None:
    with changed(file) as data:
        count = rng.randrange(1, len(data))
        data[-count:] = bytes(count)


def change_types(file: Path, rng: random.Random) -> None:
    """Change the type of values in some rows of one table, as a damaged row header does."""
    if file.name != "spool.sqlite":
        flip_bits(file, rng)
        return
    table = rng.choice(TABLES)
    connection = sqlite3.connect(file, isolation_level=None)
    try:
        found = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchone()
        if found is None:
            raise sqlite3.DatabaseError(f"no table {table}")
        [text] = found
        loose = text.replace(") STRICT, WITHOUT ROWID", ") WITHOUT ROWID").replace(") STRICT", ")")
        for statement, values in ((loose.replace("NOT NULL", ""), True), (text, False)):
            connection.execute("PRAGMA writable_schema = ON")
            connection.execute("UPDATE sqlite_schema SET sql = ? WHERE name = ?", (statement, table))
            connection.close()
            connection = sqlite3.connect(file, isolation_level=None)
            if values:
                columns = connection.execute(
                    f"SELECT name FROM pragma_table_info('{table}') WHERE name != 'id'"
                )
                column = rng.choice(columns.fetchall())[0]
                value = rng.choice([None, -(2**40), 7.5, "\u00e9", b"\xff\x00", 2**60, ""])
                odd = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE abs(random()) % 3 = 0"
                connection.execute(odd, (value,))
    except sqlite3.DatabaseError:
        # A file without its log, or of an earlier version, may lack the table. In that case, flip bits.
        flip_bits(file, rng)
    finally:
        connection.close()


def remove(file: Path, rng: random.Random) -> None:
    file.unlink()


@contextmanager
def changed(file: Path) -> Iterator[bytearray]:
    """Change the file in place, so that a server that has it open sees the damage."""
    data = bytearray(file.read_bytes())
    yield data
    with file.open("r+b") as target:
        target.write(data)
        target.truncate(len(data))


KINDS: tuple[Damage, ...] = (
    flip_bits, flip_bits, flip_in_header, overwrite_pages, overwrite_pages, cut_off, cut_little_off, zero_the_end,
    change_types, change_types, remove,
)  # fmt: skip
WHILE_RUNNING: tuple[Damage, ...] = (flip_bits, overwrite_pages, overwrite_pages, zero_the_end)


def harm(directory: Path, rng: random.Random, kinds: tuple[Damage, ...], *, only: str = "") -> str:
    """Damage one or two files of the directory; return a description."""
    done = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        files = sorted(path for path in directory.glob("*.sqlite*") if not path.name.endswith("-shm"))
        files = [path for path in files if path.stat().st_size and (only or path.name) == path.name]
        if not files:
            break
        file, kind = rng.choice(files), rng.choice(kinds)
        kind(file, rng)
        done.append(f"{kind.__name__} {file.name}")
    return ", ".join(done)


# -- the judge -----------------------------------------------------------------------------------------------


@dataclass
class Found:
    """Result of a start of the server on a damaged directory."""

    delivered: Counter[str]
    missing: set[str]
    # records that the accounting lists as damaged, or that a log message reported as lost with a new log
    counted: int
    problems: list[str]


class Said(logging.Handler):
    """Log lines by their action, with the lost records that they report."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lost: list[object] = []
        self.actions: Counter[str] = Counter()

    def emit(self, record: logging.LogRecord) -> None:
        action = getattr(record, "action", "")
        self.actions[action] += 1
        if action == "spool_lost":
            self.lost.append(getattr(record, "records", 0))

    @contextmanager
    def listening(self) -> Iterator[Said]:
        logging.getLogger().addHandler(self)
        try:
            yield self
        finally:
            logging.getLogger().removeHandler(self)


async def judged(directory: Path, calls: Calls, rng: random.Random, said: Said) -> Found:
    """
    Start, drain, recount, and send a fresh record. Do it a second time if the server met damage meanwhile, as
    its log then requests.
    """
    async with limited():
        problems, counted = await _run(directory, calls, rng)
        if is_marked_damaged(directory):
            problems, counted = await _run(directory, calls, rng)
    delivered, strange = _archived(directory, calls)
    missing = set(calls.acknowledged) - set(delivered)
    problems += strange
    if len(missing) > counted and "unknown" not in said.lost:
        counted += sum(n for n in said.lost if isinstance(n, int))
    if len(missing) > counted and "spool_lost" not in said.actions:
        problems.append(f"{len(missing)} are missing and {counted} are counted")
    return Found(delivered, missing, counted, problems)


async def _run(directory: Path, calls: Calls, rng: random.Random) -> tuple[list[str], int]:
    """Run a start; return its defects and the records that the accounting lists as damaged."""
    problems = []
    async with running(directory) as app:
        storage = app.services.storage
        fresh = await calls.send(app, rng, 1)
        if fresh not in ((200, 401) if storage.registry is not None else (503,)):
            problems.append(f"a fresh record was answered {fresh}")
        if not await drain(app):
            problems.append(f"not drained: {await storage.deliveries.route_states()}")
        books = await storage.log.verify()
        problems += books.imbalances
        counted = books.topics.get(AI_TELEMETRY, {}).get("damaged", 0)
        counted = counted or sum(terms["damaged"] for terms in books.routes.values())
    return problems, counted


async def drain(app: TollhouseApp) -> bool:
    """Wait until the archive has everything, or until damage is found. Return whether the archive has it."""
    deliveries = app.services.storage.deliveries

    async def ended() -> str:
        if all(route.queued == 0 for route in await deliveries.route_states() if route.name == ROUTE):
            return "drained"
        return "damaged" if is_marked_damaged(app.config.data_dir) else ""

    return await until(ended, "the archive has everything") == "drained"


def _archived(directory: Path, calls: Calls) -> tuple[Counter[str], list[str]]:
    delivered: Counter[str] = Counter()
    strange = []
    path = directory / "archive.ndjson"
    for line in path.read_text().splitlines() if path.exists() else ():
        record = json.loads(line)
        name = record["request_id"]
        delivered[name] += 1
        if content_hash(name, record["input_tokens"], "ada") != calls.sent.get(name):
            strange.append(f"{name} says something else than was sent")
    return delivered, strange


def fresh_copy(corpus: Path, directory: Path) -> Path:
    shutil.copytree(corpus, directory, ignore=shutil.ignore_patterns("reserve*"))
    return directory


def start_and_kill(directory: Path, *, share: float) -> None:
    """Kill a server after this share of the time that a start takes until it listens."""
    after_s = share * _start_s()
    with _server(directory) as process, suppress(subprocess.TimeoutExpired):
        process.wait(after_s)


@cache
def _start_s() -> float:
    """Measure a start on an empty directory on this machine."""
    with tempfile.TemporaryDirectory() as directory:
        # Run a short command first, because the first start also starts the process from which all
        # commands are copied.
        start_process([str(COMMAND), "version"], cwd=Path(directory)).wait()
        began = time.monotonic()
        with _server(Path(directory), is_read=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("listening on")
            return time.monotonic() - began


@contextmanager
def _server(directory: Path, *, is_read: bool = False) -> Iterator[Process]:
    words = ["serve", "--data", str(directory), "--listen", "127.0.0.1:0", "--grpc-listen", ""]
    process = start_process([str(COMMAND), *words], cwd=directory, is_read=is_read)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()

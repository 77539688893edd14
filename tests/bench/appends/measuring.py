"""Appends to one PostgreSQL log by one process and by three, compared with appends to files."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from spool.engines import POSTGRES, SQLITE
from spool.settings import REPLICATED
from tests.acceptance.conftest import ROOT
from tests.bench.gateways.shared import used
from tests.spool.postgres_cluster import Pair, Server

ALONE, SHARED = "bench_alone", "bench_shared"  # names of the database schemas for one writer and for several
LOGS = "entries", "commits", "amendments"
SMALL, LARGE = 100, 4096  # number of records per group


class Writer(Protocol):
    """A process or thread that appends on command; see tests.bench.appends.writer."""

    def tell(self, **job: object) -> None: ...

    def hear(self) -> dict[str, Any]:
        """Return the result of the last command."""
        ...

    def close(self) -> None: ...


class Process:
    def __init__(self, **options: object) -> None:
        command = [sys.executable, "-m", "tests.bench.appends.writer", json.dumps(options)]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.hear()  # wait until the writer process is ready

    def tell(self, **job: object) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, "a writer of the benchmark has ended"
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def ask(writer: Writer, **job: object) -> dict[str, Any]:
    writer.tell(**job)
    return writer.hear()


@dataclass(kw_only=True)
class AppendFigures:
    """Joint figures of several writers in one turn. Processor time is microseconds per record."""

    name: str
    writers: int
    group: int
    records_per_s: float
    writer_us: float
    p50_ms: float
    p99_ms: float
    primary_us: float = 0.0
    standby_us: float = 0.0
    follow_us: float = 0.0


@dataclass(kw_only=True)
class Writers:
    """
    Ready writers: one on files, one that has a PostgreSQL schema to itself, three that share a schema, and
    one that only follows the first.
    """

    on_files: Writer
    alone: Writer
    shared: Sequence[Writer]
    follower: Writer


def write_secrets(folder: Path, dsn: str) -> None:
    for name, data in (("dsn", dsn.encode()), ("secret", secrets.token_bytes(32))):
        (folder / name).touch(0o600)
        (folder / name).write_bytes(data)


@contextmanager
def writers(folder: Path, pair: Pair) -> Iterator[Writers]:
    write_secrets(folder, pair.dsn)
    options = {"directory": str(folder), "engine": POSTGRES, "durability": REPLICATED, "follows": False}
    with ExitStack() as stack:

        def begin(name: str, number: int, **more: object) -> Process:
            process = Process(**{**options, "name": name, "number": number, **more})
            stack.callback(process.close)
            return process

        yield Writers(
            on_files=begin("files", 0, engine=SQLITE),
            alone=begin("alone", 1, schema=ALONE),
            shared=[begin(f"shared-{n}", n, schema=SHARED) for n in (2, 3, 4)],
            follower=begin("follower", 5, schema=ALONE, follows=True),
        )


def rounds(
    found: Writers, servers: Sequence[Server], *, count: int, seconds: float, groups: Sequence[int]
) -> list[AppendFigures]:
    """Measure the writers alternately, so that other load on the machine affects all of them."""
    for writer in (found.on_files, found.alone, *found.shared):
        # let the writer process warm up for a quarter of the time
        ask(writer, group=groups[0], seconds=seconds / 4)
    figures = []
    for group in groups:
        for _ in range(count):
            figures.append(measure("files", [found.on_files], (), group, seconds))
            ask(found.follower, follow=True)
            alone = measure("postgres", [found.alone], servers, group, seconds)
            followed = ask(found.follower, follow=True)
            alone.follow_us = followed["cpu_s"] / max(1, followed["records"]) * 1e6
            figures.append(alone)
            figures.append(measure("postgres", found.shared, servers, group, seconds))
    return figures


def measure(
    name: str, writers: Sequence[Writer], servers: Sequence[Server], group: int, seconds: float
) -> AppendFigures:
    before = [used(server) for server in servers]
    for writer in writers:
        writer.tell(group=group, seconds=seconds)
    answers = [writer.hear() for writer in writers]
    records = sum(answer["records"] for answer in answers)
    took = [(used(server) - early) / records * 1e6 for server, early in zip(servers, before, strict=True)]
    primary_us, standby_us, *_ = *took, 0.0, 0.0
    return AppendFigures(
        name=name,
        writers=len(writers),
        group=group,
        records_per_s=sum(answer["records"] / answer["seconds"] for answer in answers),
        writer_us=sum(answer["cpu_s"] for answer in answers) / records * 1e6,
        p50_ms=max(answer["p50_ms"] for answer in answers),
        p99_ms=max(answer["p99_ms"] for answer in answers),
        primary_us=primary_us,
        standby_us=standby_us,
    )


def bytes_on_disk(found: Writers, primary: Server, schema: str) -> tuple[float, float]:
    """
    Return the disk bytes per record, and per id in the stored runs, of a log with one writer. Both
    include the indexes.
    """
    ask(found.alone, fold=True)
    tables = ", ".join(f"'{schema}.{table}'::regclass" for table in LOGS)
    [(log,)] = primary.execute(
        f"SELECT sum(pg_total_relation_size(i.inhrelid)) FROM pg_inherits i WHERE i.inhparent IN ({tables})"
    )
    [(records,)] = primary.execute(f"SELECT sum(count) FROM {schema}.entries")
    # free the space of id runs that were merged into other runs
    primary.execute(f"VACUUM FULL {schema}.id_runs")
    [(runs, ids)] = primary.execute(
        f"SELECT pg_total_relation_size('{schema}.id_runs'), coalesce(sum(count), 0) FROM {schema}.id_runs"
    )
    return _ratio(log, records), _ratio(runs, ids)


def _ratio(one: object, other: object) -> float:
    return float(str(one)) / max(1.0, float(str(other)))


def of(figures: Sequence[AppendFigures], name: str, writers: int, group: int) -> list[AppendFigures]:
    return [one for one in figures if (one.name, one.writers, one.group) == (name, writers, group)]


def against(ones: Sequence[AppendFigures], others: Sequence[AppendFigures]) -> float:
    """Return the median, over the rounds, of the first writers' rate divided by the second writers' rate."""
    return median(one.records_per_s / other.records_per_s for one, other in zip(ones, others, strict=True))


def medians(figures: Sequence[AppendFigures]) -> Mapping[str, float]:
    names = ("records_per_s", "writer_us", "primary_us", "standby_us", "follow_us", "p50_ms", "p99_ms")
    return {name: median(getattr(one, name) for one in figures) for name in names}

"""A short round of the append benchmark. Only `python -m tests.bench.appends` measures costs."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from spool.engines import POSTGRES, SQLITE
from spool.settings import LOCAL
from tests.bench.appends.__main__ import table, targets
from tests.bench.appends.measuring import LARGE, SMALL, Process, Writers, bytes_on_disk, rounds, write_secrets
from tests.bench.appends.writer import open_writer
from tests.spool.postgres_cluster import Schema, Server


class Thread:
    """A writer of the benchmark on a thread instead of a process."""

    def __init__(self, loop: asyncio.AbstractEventLoop, options: dict[str, Any]) -> None:
        self._loop = loop
        self._writer = self._run(open_writer(options)).result()
        self._answer: Future[dict[str, Any]]

    def tell(self, **job: object) -> None:
        self._answer = self._run(self._writer.obey(job))

    def hear(self) -> dict[str, Any]:
        return self._answer.result()

    def close(self) -> None:
        self._run(self._writer.close()).result()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.bench
def test_a_short_round(tmp_path: Path, cluster: Server, fresh_schema: Schema) -> None:
    """Each row of the table has its figure, and each target has a measured value."""
    write_secrets(tmp_path, fresh_schema.dsn)
    options = {
        "directory": str(tmp_path),
        "engine": POSTGRES,
        "durability": LOCAL,
        "schema": fresh_schema.name,
    }
    with ExitStack() as stack:
        loop = stack.enter_context(running_loop())

        def begin(number: int, *, follows: bool = False) -> Thread:
            one = Thread(loop, {**options, "name": f"node-{number}", "number": number, "follows": follows})
            stack.callback(one.close)
            return one

        files = Process(name="files", number=0, directory=str(tmp_path), engine=SQLITE, follows=False)
        stack.callback(files.close)
        found = Writers(
            on_files=files,
            alone=begin(1),
            shared=[begin(n) for n in (2, 3, 4)],
            follower=begin(5, follows=True),
        )
        figures = rounds(found, [cluster], count=1, seconds=0.05, groups=(SMALL, LARGE))
        sizes = bytes_on_disk(found, cluster, fresh_schema.name)
    assert 2 * 3 == len(figures)
    assert all(one.records_per_s > 0 for one in figures)
    shown = table(figures)
    assert all(
        f"| {name} | {n} | {group} |" in shown
        for name, n in (("files", 1), ("postgres", 3))
        for group in (100, 4096)
    )
    rows = list(targets(figures, *sizes))
    assert 2 * 4 + 2 == len(rows)
    assert 0 < sizes[0] < 1000

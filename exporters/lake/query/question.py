"""
Asks a question in SQL of the files of a lake.

The files of the dates that are asked for are copied into a directory, and a process without credentials answers:
DuckDB would load a part of itself from the network to read a store.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from exporters.lake.columns import TABLE
from exporters.lake.query.local_files import LocalFiles, bring_here
from exporters.lake.stores import Store
from exporters.lake.tables.catalogue import TABLES
from exporters.lake.verification import Dates
from exporters.lake.views.statements import VIEWS, view_of_topic, views_for
from exporters.settings import DestinationSettings

_CHILD: Final = "exporters.lake.query.child"
_LONGEST_LINE: Final = 64 << 20
_KEPT: Final = ("PATH", "PYTHONPATH", "LANG", "LC_ALL", "TMPDIR")  # of the environment: no credentials
_WORD: Final = re.compile(r"\w+")


class QueryAnswer(NamedTuple):
    """`files` of so many `bytes` were copied, or looked at where they are; `more` rows are not shown."""

    rows: int
    more: bool
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class LakeQuestion:
    """What does not fit into `memory_mib` goes to the disk, up to `scratch_mib`."""

    store: Store
    settings: DestinationSettings
    text: str
    dates: Dates
    most_bytes: int
    most_rows: int
    memory_mib: int
    scratch_mib: int
    timeout_s: float

    async def ask(self, show: Callable[[Sequence[Any]], None]) -> QueryAnswer:
        """
        Give `show` the names of the columns, then each row. ValueError for a question that cannot be answered, and
        if it takes too long. Raises what the store raises.
        """
        with tempfile.TemporaryDirectory(prefix="tollhouse-") as made:
            scratch = await asyncio.to_thread(Path(made).resolve)
            files = await bring_here(
                self.store,
                self.settings,
                _tables(self.settings, self.text),
                self.dates,
                directory=scratch / "files",
                most_bytes=self.most_bytes,
            )
            if not files.files:
                raise ValueError("the lake has no files of these dates that the question asks for")
            end = await self._answered(files, scratch / "overflow", show)
        return QueryAnswer(end["rows"], end["more"], files.files, files.bytes)

    async def _answered(
        self, files: LocalFiles, scratch: Path, show: Callable[[Sequence[Any]], None]
    ) -> dict[str, Any]:
        """Return the last line of the process, which ends with this."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            _CHILD,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            limit=_LONGEST_LINE,
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
        )
        try:
            async with asyncio.timeout(self.timeout_s):
                return await _told(process, self._request(files, scratch), show)
        except TimeoutError as error:
            words = (
                f"it took more than {self.timeout_s:g} s: ask for fewer dates, or allow more with --timeout"
            )
            raise ValueError(words) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    def _request(self, files: LocalFiles, scratch: Path) -> bytes:
        request = {
            "views": _views(self.settings, files),
            "text": self.text,
            "directories": [str(place) for place in files.opened],
            "scratch": str(scratch),
            "scratch_mib": self.scratch_mib,
            "memory_mib": self.memory_mib,
            "most_rows": self.most_rows,
        }
        return msgspec.json.encode(request)


async def _told(process: Process, request: bytes, show: Callable[[Sequence[Any]], None]) -> dict[str, Any]:
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write(request)
    process.stdin.close()
    errors = asyncio.create_task(process.stderr.read())
    try:
        async for line in process.stdout:
            said = msgspec.json.decode(line)
            if isinstance(said, dict):
                return said
            show(said)
        words = (await errors).decode(errors="replace").strip()
    finally:
        errors.cancel()
    status = await process.wait()
    raise ValueError(words or f"the process that answers ended with {status}")


def _tables(settings: DestinationSettings, text: str) -> frozenset[str]:
    """The tables of the topics that a question asks for, by its words."""
    words = set(_WORD.findall(text.lower()))
    asked = {TABLE: not words.isdisjoint(VIEWS)}
    names = {TABLES[topic].name for topic in settings.topics}
    return frozenset(name for name in names if asked.get(name, name in words))


def _views(settings: DestinationSettings, files: LocalFiles) -> str:
    """The views of AI telemetry, and a table of each other topic."""
    made = []
    if TABLE in files.tables:
        here = DestinationSettings(type="file", path=files.directory, format=settings.format)
        made.append(views_for("duckdb", here))
    for table in sorted(files.tables - {TABLE}):
        made.append(view_of_topic(table, _rows_of(settings, files, table)))
    return "".join(made)


def _rows_of(settings: DestinationSettings, files: LocalFiles, table: str) -> str:
    place = f"{files.directory}/{table}/v1/*/*".replace("'", "''")
    if settings.format == "parquet":
        return f"read_parquet('{place}.parquet', hive_partitioning = true, union_by_name = true)"
    return f"read_json('{place}.ndjson.zst', format = 'newline_delimited', hive_partitioning = true)"

"""List pages over a million rows, with and without the values of their filters, compared in the same run."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence
from dataclasses import astuple, fields, replace
from math import ceil
from pathlib import Path
from statistics import median

import pytest

from spool.clock import SystemClock
from spool.container_files.files import ContainerFiles
from spool.container_files.values import DELIVERED, FILE, ContainerFile
from spool.engines import SQLITE, open_storage
from spool.listing import DESCENDING, ListQuery, Position, SortField
from spool.settings import SpoolSettings
from spool.storage import StorageOptions
from tests.rounds import IS_LONG

ROWS, PAGES = (1_000_000, 200) if IS_LONG else (5_000, 20)
CLUSTERS = 40
# generous limits for a short round, which only shows that the test runs
MOST, SLACK_S = (1.2, 0.0) if IS_LONG else (10, 5.0)


def row(number: int) -> ContainerFile:
    cluster = number % CLUSTERS
    return ContainerFile(
        id=f"{number:032x}", kind=FILE, account=f"account-{cluster % 8}", region=f"region-{cluster % 5}",
        cluster=f"cluster-{cluster}", reference=f"file-{number}", key="agent", state=DELIVERED, size=10**6,
        announced_at=1_790_000_000.0 + number,
    )  # fmt: skip


def add_rows(directory: Path) -> None:
    names = [each.name for each in fields(ContainerFile)]
    places = ", ".join("?" * len(names))
    connection = sqlite3.connect(directory / "spool.sqlite")
    statement = f"INSERT INTO container_files ({', '.join(names)}) VALUES ({places})"
    with connection:
        connection.executemany(statement, (astuple(row(number)) for number in range(ROWS)))
    connection.close()


async def walked(files: ContainerFiles, query: ListQuery) -> tuple[float, dict[str, int]]:
    """Return the time of one page, and the number of values that it lists per field."""
    began = time.perf_counter()
    page = await files.page(query)
    took = time.perf_counter() - began
    assert query.limit == len(page.rows)
    return took, {name: len(values) for name, values in page.known.items()}


def p99(times: Sequence[float]) -> float:
    return sorted(times)[ceil(0.99 * len(times)) - 1]


@pytest.mark.bench
async def test_filter_values_slow_pages_by_at_most_a_fifth(tmp_path: Path) -> None:
    """
    Pages that list the values of three filters take at most 1.2 times as long as the same pages without, in
    the median. The values are read again every few seconds, and the page that reads them scans all rows.
    """
    options = StorageOptions(settings=SpoolSettings(), directory=tmp_path, clock=SystemClock())
    await (await open_storage(options, engine=SQLITE)).close()
    add_rows(tmp_path)
    storage = await open_storage(options, engine=SQLITE)
    try:
        plain = ListQuery(sort=SortField("announced_at"), order=DESCENDING, identity="id", limit=100)
        with_values = replace(plain, known=("account", "region", "cluster"))
        times: dict[str, list[float]] = {"with": [], "without": []}
        for number in range(PAGES):
            at = row(ROWS - 1 - 100 * number)
            position = Position(value=at.announced_at, identity=at.id)
            for name, query in (("with", with_values), ("without", plain)):
                took, values = await walked(storage.container_files, replace(query, position=position))
                times[name].append(took)
                if name == "with":
                    assert {"account": 8, "region": 5, "cluster": CLUSTERS} == values
        for name, spans in times.items():
            print(f"\n{ROWS:,} rows, {name} values: median {median(spans):.3f} s, p99 {p99(spans):.3f} s")
        assert median(times["with"]) <= MOST * median(times["without"]) + SLACK_S
    finally:
        await storage.close()

"""
`tollhouse lake verify` counts the rows of a ClickHouse table and compares them with the route's accounting.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gateway.cli.lake.command import lake as command
from tests.exporters.clickhouse.server import Table, served
from tests.exporters.spools import calls
from tests.integration.lake.lakes import opened


def configured(directory: Path, url: str) -> list[str]:
    file = directory / "tollhouse.toml"
    file.write_text(
        f'data_dir = "{directory}/data"\n[[destinations]]\nname = "lake"\ntype = "clickhouse"\nurl = "{url}"\n'
    )
    return ["verify", "--config", str(file), "--json"]


def verify(words: list[str], *more: str) -> Result:
    return CliRunner().invoke(command, [*words, *more])


async def filled(directory: Path, table: Table) -> None:
    """Land three deliveries of ten records."""
    async with served(table) as url, opened(directory / "data") as house:
        await house.add(calls(1, 30, cost="0.1", cost_source="reported"))
        async with house.forwarding(type="clickhouse", url=url):
            await house.until(queued=0)


def changed(**values: object) -> Callable[[Table], object]:
    """Return a change that adds the first row once more with other values."""
    return lambda table: table.rows.append({**table.rows[0], **values})


BREAK: dict[str, tuple[Callable[[Table], object], list[str], list[str]]] = {
    "nothing": (lambda table: None, [], []),
    "a row comes twice": (changed(), [], []),
    "a row is gone": (lambda table: table.rows.pop(4), ["hole", "missing"], ["hole"]),
    "the last rows are gone": (lambda table: table.rows.__delitem__(slice(25, 30)), ["missing"], []),
    "all rows are gone": (lambda table: table.rows.clear(), ["missing"], []),
    "another id": (changed(id="ff"), ["overlap", "foreign"], ["overlap"]),
    "another edition": (changed(edition="ffffffff", id="ff"), ["overlap", "foreign"], ["overlap"]),
    "numbers that nobody sent": (changed(number=200_000, id="ff"), ["foreign"], ["hole"]),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAK)
def test_what_differs_has_a_name(name: str, tmp_path: Path) -> None:
    """Without the route's accounting, differences that the table itself cannot show are not found."""
    damage, with_books, without = BREAK[name]
    table = Table()

    async def look() -> tuple[Result, Result]:
        await filled(tmp_path, table)
        damage(table)
        async with served(table) as url:
            words = configured(tmp_path, url)
            alone = await asyncio.to_thread(verify, words, "--without-books")
            return await asyncio.to_thread(verify, words), alone

    for result, expected in zip(asyncio.run(look()), (with_books, without), strict=True):
        found = json.loads(result.stdout)
        assert expected == [each["kind"] for each in found["differences"]], found
        assert (1 if expected else 0) == result.exit_code, result.output
        if name in ("nothing", "a row comes twice"):
            assert (len(table.rows), 30, 30, "3") == tuple(
                found[each] for each in ("stored", "rows", "calls", "spend")
            )
            [edition] = found["editions"]
            assert edition["first"] == 1
            assert edition["last"] == 30
            assert edition["numbers"] == 30

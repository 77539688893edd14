"""kill -9 within an import of a bill or its undo: the change is stored whole, or not at all."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spool.registry.registry import Registry
from spool.sql.registry import SqlRegistryRows
from spool.sqlite.registry import SqliteRegistry
from tests.moved_clock import MovedClock
from tests.rounds import part, reduced
from tests.spool.contract.registry.test_statement_imports import answers, random_statement
from tests.spool.contract.registry.test_statements import ADA


@pytest.mark.parametrize("seed", part(range(8), every=8))
def test_an_import_is_stored_whole_or_not_at_all(seed: int, tmp_path: Path) -> None:
    """
    kill -9 within an import or an undo: the next process has every answer from before or from after, and an import
    again gives the answers of an uninterrupted one.
    """
    directory, wanted = tmp_path / "killed", tmp_path / "wanted"
    chance = random.Random(seed)
    steps = [chance.choice(("import", "import", "undo")) for _ in range(reduced(3, by=3))]
    known = {}
    for place in (wanted, directory):
        place.mkdir()
        known[place] = [asyncio.run(change_in_directory(place, "import", 0, None))]
    for number, step in enumerate(steps, start=1):
        after = asyncio.run(change_in_directory(wanted, step, number, None))
        code = subprocess.run(
            [sys.executable, "-m", __name__, str(directory), step, str(number), str(chance.randint(1, 12))],
            check=False,
        ).returncode
        found = asyncio.run(answers_in_directory(directory))
        assert found in (known[wanted][-1], after)
        if found != after:
            assert -signal.SIGKILL == code
            assert after == asyncio.run(change_in_directory(directory, step, number, None))
        known[wanted].append(after)


async def change_in_directory(directory: Path, step: str, number: int, writes: int | None) -> bytes:
    """Change the registry of a directory. The process is killed at a write of the change."""
    registry = await registry_in(directory)
    if writes is not None:
        remaining = itertools.count(writes, -1)
        original = SqlRegistryRows.put_documents

        def put_or_be_killed(self: SqlRegistryRows, *arguments: Any) -> None:
            original(self, *arguments)
            if next(remaining) == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        SqlRegistryRows.put_documents = put_or_be_killed  # type: ignore[assignment, method-assign]
    if step == "undo":
        counting = [each.id for each in await registry.statements.imports() if each.state != "undone"]
        if counting:
            await registry.statements.undo(counting[-1], actor=ADA)
    else:
        given, _ = random_statement(random.Random(number), number)
        await registry.statements.import_statement(given, actor=ADA, replace=True)
    found = await answers(registry)
    await registry.close()
    return found


async def answers_in_directory(directory: Path) -> bytes:
    registry = await registry_in(directory)
    found = await answers(registry)
    await registry.close()
    return found


async def registry_in(directory: Path) -> Registry:
    return await Registry.open(await SqliteRegistry.open(directory), secret=b"s" * 32, clock=MovedClock())


if __name__ == "__main__":
    asyncio.run(change_in_directory(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))

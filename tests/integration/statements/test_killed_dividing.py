"""kill -9 while a month's bills are divided, closed, restated or reopened."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.integration.statements.dividing import STAGES, Kept, divide, kept_in
from tests.processes.copied import ROOT, run_process
from tests.rounds import IS_LONG, part

PROGRAM = "tests.integration.statements.dividing"
# The process is killed before these statements. Each day of a provider has four statements, in one transaction.
SHORT = {"first": (2, 13), "newer": (6,), "closed": (3, 17), "restated": (2,), "reopened": (5,)}
BEYOND = 1_000  # a number of statements that no stage reaches


@pytest.fixture(scope="module")
def steady(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Kept, Kept]]:
    """Return each stage without a kill: its files, and the stored days before and after it."""
    place = tmp_path_factory.mktemp("steady")
    data = place / "data"
    data.mkdir(mode=0o700)
    before: Kept = {}
    found = {}
    for stage in STAGES:
        copy = place / stage
        shutil.copytree(data, copy)
        after = asyncio.run(divide(data, stage))
        assert before != after
        found[stage] = (copy, before, after)
        before = after
    return found


@pytest.mark.parametrize("stage", part([*STAGES], every=2))
def test_a_killed_process_leaves_whole_days_and_the_next_one_all_of_them(
    stage: str, steady: dict[str, tuple[Path, Kept, Kept]], tmp_path: Path
) -> None:
    """
    After a kill at any statement, each day is either old or new. The next start completes all days, equal to
    the last digit to a run without a kill.
    """
    files, before, after = steady[stage]
    kills = 0
    for statement in range(1, BEYOND) if IS_LONG else SHORT[stage]:
        data = tmp_path / f"{statement}"
        shutil.copytree(files, data)
        if not _is_killed(data, stage, statement):
            break
        kills += 1
        for day, kept in asyncio.run(kept_in(data)).items():
            assert kept in (before.get(day), after.get(day))
        assert after == asyncio.run(divide(data, stage))
    assert kills


def _is_killed(data: Path, stage: str, statement: int) -> bool:
    """Return False if the process ended before the kill."""
    command = [sys.executable, "-m", PROGRAM, str(data), stage, str(statement)]
    ended = run_process(command, cwd=ROOT)
    assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
    return ended.returncode != 0

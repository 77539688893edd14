"""
A restart is invisible: the same requests have the same result with and without a restart between them.

Responses, accounting, records, sums, insights, alerts and upstream requests are equal after an orderly stop,
two stops, a kill, and a takeover by another process. `running.NOT_COMPARED` lists permitted differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from spool.engines import POSTGRES, SQLITE
from tests.acceptance.restarts.running import CUTS, Site, differences, none, run_workload
from tests.acceptance.restarts.workload import captured, together, workload
from tests.rounds import IS_LONG
from tests.spool.postgres_cluster import storage_table

# Two runs of the whole workload take ten seconds. The first test waits for the run without a cut.
pytestmark = [pytest.mark.proof, pytest.mark.timeout(1200)]

FAMILIES = () if IS_LONG else ("claude_code", "claude_code_traced", "copilot_cli", "qwen_code")
DECIDED, OPEN = "all is decided at the cut", "all is open at the cut"
EVERY = [(engine, state, cut) for engine in (SQLITE, POSTGRES) for state in (DECIDED, OPEN) for cut in CUTS]
SOME = [(SQLITE, DECIDED, "kill and stop"), (SQLITE, OPEN, "take-over"), (POSTGRES, DECIDED, "stop")]
# The workload gets 422 for another body under a used key, and 429 for a tool call beyond the daily limit.
ANSWERS = {200, 207, 422, 429}
Run = Callable[[str, str, str], Mapping[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Run:
    """
    Return the result of the workload on an engine, in a state, with a cut. The cut "" means no restart; that
    run is made once and reused.
    """

    def installation(name: str) -> Path:
        return tmp_path_factory.mktemp(name) / "installation"

    site = Site(installation("prepared"))

    def storage(engine: str) -> str:
        if engine == SQLITE:
            return ""
        schema = request.getfixturevalue("schemas").take()
        folder = tmp_path_factory.mktemp("storage")
        table = storage_table(folder, dsn=schema.dsn, schema=schema.name)
        (folder / "installation.secret").unlink()  # the copied installation has its own secret
        return table

    def of(engine: str, state: str, cut: str) -> Mapping[str, Any]:
        is_open = state == OPEN
        sent = together(workload(), captured(FAMILIES)) if is_open else workload()
        place, there = installation("run"), storage(engine)
        return run_workload(site, place, sent, CUTS.get(cut, none), is_open=is_open, storage=there)

    without_a_cut = cache(lambda engine, state: of(engine, state, ""))
    return lambda engine, state, cut: of(engine, state, cut) if cut else without_a_cut(engine, state)


@pytest.mark.parametrize(("engine", "state", "cut"), EVERY if IS_LONG else SOME)
def test_a_restart_is_invisible(run: Run, engine: str, state: str, cut: str) -> None:
    """A restart is visible nowhere: not to senders, operators, the upstream, or alert receivers."""
    uninterrupted = run(engine, state, "")
    assert ANSWERS == {answer["status"] for answer in uninterrupted["answers"]}
    found = list(differences(uninterrupted, run(engine, state, cut)))
    assert not found, "\n".join(found)

"""A process whose stop hangs ends anyway, and logs where it hung."""

from __future__ import annotations

import json
import sys

import pytest

from tests.processes.copied import ROOT, run_process


def stopped(how: str, *, within_s: float) -> tuple[int, list[dict[str, object]]]:
    program = [sys.executable, "-m", "tests.integration.stopping_app", how, str(within_s)]
    done = run_process(program, cwd=ROOT)
    return done.returncode, [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("how", ["task", "loop"])
def test_a_stop_that_hangs_is_ended(how: str) -> None:
    """
    Whether a task never ends or the event loop is blocked, the exit code is 1 and the log names what
    was still running.
    """
    code, log = stopped(how, within_s=0.3)
    assert code == 1
    assert [line["action"] for line in log] == ["stop_cut"]
    assert ("a part of the app" in str(log[0]["tasks"])) == (how == "task")


def test_a_stop_that_ends_is_left_alone() -> None:
    """The timer ends with the stop, so it cannot end the process later. The process has its own exit code."""
    assert (7, []) == stopped("not at all", within_s=120)

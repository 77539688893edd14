"""
A plugin that records what a part of `make test` proved. `tests/verdict.py` reads the records of all parts.

    pytest -p tests.proved --record FILE   writes outcome, processor time and promises of each test to FILE
    ... --repeat-later                     exits with 0 if only waits failed that the last step repeats
    pytest -p tests.proved --promise NAME  runs only the tests that prove a promise

Processor time of a test includes the processes that it waited for, that of a part all of its processes.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.promises import changed_promises, promises

PASSED, SKIPPED, FAILED = "passed", "skipped", "failed"
# A wait of a test that the last step repeats. It has neither failed nor proved anything.
WAITED = "waited"
# The first line of the error after a wait that did not end: of tests/waiting.py, and of pytest's own limit.
WAITS = re.compile(r"(tests\.waiting\.)?StillWaiting: |Failed: Timeout \(>[\d.]+s\) from pytest-timeout")
# Folders of lost records and hangs. There, a failure in one of ten runs is a defect, so that no test is repeated.
NEVER_REPEATED = {"faults", "order", "deadlocks"}

# Operations and statuses of the answers that servers in this process have sent.
ANSWERS: set[tuple[str, int]] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", metavar="FILE", help="write what each test of this run proved to FILE")
    parser.addoption(
        "--repeat-later", action="store_true", help="leave waits that did not end to tests.verdict"
    )
    parser.addoption("--promise", metavar="NAME", default="", help="run only the tests of this promise")
    parser.addoption(
        "--changed", metavar="COMMIT", default="", help="... of promises whose code differs from COMMIT"
    )


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("record")
    if name:
        config.pluginmanager.register(Recorder(Path(name), repeats=config.getoption("repeat_later")))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect tests of other promises."""
    name, commit = config.getoption("promise"), config.getoption("changed")
    if not name and not commit:
        return
    wanted = {*([name] if name else ()), *(changed_promises(commit) if commit else ())}
    if unknown := wanted - promises().keys():
        raise pytest.UsageError(f"no document promises: {', '.join(unknown)}")
    others = [item for item in items if wanted.isdisjoint(promises_of(item))]
    config.hook.pytest_deselected(items=others)
    items[:] = [item for item in items if not wanted.isdisjoint(promises_of(item))]


def promises_of(item: pytest.Item) -> list[str]:
    return [promise for mark in item.iter_markers("proves") for promise in mark.args]


class Recorder:
    """Writes a line for each test, and at the end the answers of operations and the time of the whole run."""

    def __init__(self, path: Path, *, repeats: bool) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("w")
        self._repeats = repeats
        self._waited = 0
        self._process = os.getpid()
        self._started_s = time.monotonic()
        self._reports: dict[str, list[pytest.TestReport]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reports[report.nodeid].append(report)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        cpu_s, wall_s = processor_s(), time.monotonic()
        result = yield
        reports = self._reports.pop(item.nodeid, [])
        outcome = outcome_of(reports)
        if outcome == FAILED and self._repeats and is_repeatable(item.nodeid, failures_of(reports)):
            outcome = WAITED
            self._waited += 1
        self._write(
            id=item.nodeid,
            outcome=outcome,
            failure=next(iter(failures_of(reports)), ""),
            cpu_s=round(processor_s() - cpu_s, 3),
            wall_s=round(time.monotonic() - wall_s, 3),
            promises=promises_of(item),
            seeds=seeds_of(reports),
        )
        return result

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if session.exitstatus == pytest.ExitCode.TESTS_FAILED and session.testsfailed == self._waited:
            session.exitstatus = pytest.ExitCode.OK
        if os.getpid() == self._process:
            self._write(answers=sorted(ANSWERS))
            cpu_s, wall_s = processor_s() + processor_s_of_descendants(), time.monotonic() - self._started_s
            self._write(cpu_s=round(cpu_s, 3), wall_s=round(wall_s, 3))
            self._file.close()

    def _write(self, **line: Any) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def processor_s() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def processor_s_of_descendants() -> float:
    """Return the processor time of living descendants and of the processes that these have waited for."""
    spent_s: dict[int, tuple[int, float]] = {}  # parent and seconds by process id
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # the process has already ended
            fields = path.read_text().rpartition(")")[2].split()
            ticks = sum(map(int, fields[11:15]))
            spent_s[int(path.parent.name)] = int(fields[1]), ticks / os.sysconf("SC_CLK_TCK")
    found, total_s = {os.getpid()}, 0.0
    while children := {child for child, (parent, _) in spent_s.items() if parent in found} - found:
        total_s += sum(spent_s[child][1] for child in children)
        found |= children
    return total_s


def outcome_of(reports: Iterable[pytest.TestReport]) -> str:
    outcomes = {report.outcome for report in reports}
    return FAILED if FAILED in outcomes else SKIPPED if SKIPPED in outcomes else PASSED


def seeds_of(reports: Sequence[pytest.TestReport]) -> list[str]:
    """Return the seeds that a test printed. The last report has the output of all."""
    return [
        seed for report in reports[-1:] for seed in re.findall(r"TOLLHOUSE_\w*SEED=\d+", report.capstdout)
    ]


def failures_of(reports: Iterable[pytest.TestReport]) -> list[str]:
    """Return the first line of the error of each failed report."""
    crashes = [getattr(report.longrepr, "reprcrash", None) for report in reports if report.failed]
    return [str(crash.message).partition("\n")[0] if crash else "" for crash in crashes]


def is_repeatable(id: str, failures: Sequence[str]) -> bool:
    """Return whether a test failed only because waits did not end, outside the folders of lost records and hangs."""
    folders = Path(id.partition("::")[0]).parts
    return NEVER_REPEATED.isdisjoint(folders) and all(map(WAITS.match, failures))

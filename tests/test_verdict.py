"""The record of a part of `make test`, and what the last step concludes from the records of all parts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests import verdict
from tests.promises import ROOT, promises
from tests.proved import FAILED, PASSED, SKIPPED, is_repeatable
from tests.verdict import Part, operations, unanswered, unproved

ONE = "One call, one record"
TESTS = f"""
import pytest

@pytest.mark.proves({ONE!r})
def test_that_passes():
    print("TOLLHOUSE_SEED=7")

@pytest.mark.proves({ONE!r})
def test_that_is_skipped():
    pytest.skip("a program is missing")

@pytest.fixture
def broken():
    yield
    raise ValueError("the end")

def test_that_fails_at_its_end(broken):
    pass

@pytest.mark.proof
def test_that_is_long():
    pass
"""


def recorded(tmp_path: Path, *options: str) -> list[Mapping[str, Any]]:
    (tmp_path / "test_some.py").write_text(TESTS)
    record = tmp_path / "record/part.ndjson"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.proved", "--record", str(record), *options]
    slow_plugins = ["-p", "no:schemathesis", "-p", "no:hypothesispytest"]
    done = subprocess.run(
        [*command, *slow_plugins, "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stdout
    return [json.loads(line) for line in record.read_text().splitlines()]


def test_each_test_is_recorded_with_its_outcome(tmp_path: Path) -> None:
    """A failure in a fixture is a failure. A proof does not run."""
    *tests, answers, whole = recorded(tmp_path)
    assert {
        "test_that_passes": PASSED,
        "test_that_is_skipped": SKIPPED,
        "test_that_fails_at_its_end": FAILED,
    } == {test["id"].partition("::")[2]: test["outcome"] for test in tests}
    assert [[ONE], [ONE], []] == [test["promises"] for test in tests]
    assert [["TOLLHOUSE_SEED=7"], [], []] == [test["seeds"] for test in tests]
    assert "ValueError: the end" == tests[-1]["failure"]
    assert {"answers": []} == answers
    assert whole["cpu_s"] >= sum(test["cpu_s"] for test in tests) > 0


def test_only_the_tests_of_a_promise_run(tmp_path: Path) -> None:
    *tests, _, _ = recorded(tmp_path, "--promise", ONE)
    assert ["test_that_passes", "test_that_is_skipped"] == [test["id"].partition("::")[2] for test in tests]


LATE = """
from pathlib import Path
from tests.waiting import StillWaiting

def test_that_waits():
    there = Path(__file__).with_name("there")
    if not there.exists():
        there.touch()
        raise StillWaiting("waited 600 s for: the moon")

def test_that_waits_for_ever():
    raise StillWaiting("waited 600 s for: godot")

def test_that_counts_wrong():
    try:
        raise StillWaiting("waited 600 s for: the count")
    except StillWaiting:
        assert 1 == 2
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """Return a function that runs tests like a part of `make test`, and then the last repeats."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(verdict, "ROOT", tmp_path)
    (tmp_path / "test_late.py").write_text(LATE)

    def run(*tests: str) -> tuple[int, str]:
        record = ["--record", "record/part.ndjson", "--repeat-later"]
        names = [f"test_late.py::{name}" for name in tests]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.proved", *record, *names]
        code = subprocess.run(command, cwd=tmp_path, capture_output=True).returncode
        records = tmp_path / "record"
        return code, "\n".join(verdict.repeat_waits(records, verdict.read_parts(records)))

    return run


def test_only_waits_are_repeated_and_only_once(
    run: Callable[..., tuple[int, str]], capfd: pytest.CaptureFixture[str]
) -> None:
    code, problems = run("test_that_waits", "test_that_waits_for_ever")
    assert code == 0
    assert re.fullmatch("failed twice: .*::test_that_waits_for_ever: .* for: godot", problems)
    assert 1 == len(re.findall("slow: .*::test_that_waits: ", capfd.readouterr().out))
    assert (1, "") == run("test_that_counts_wrong")


@pytest.mark.parametrize("folder", ["faults", "order", "deadlocks"])
def test_waits_among_lost_records_and_hangs_are_not_repeated(folder: str) -> None:
    late = ["tests.waiting.StillWaiting: waited 600 s for: the moon"]
    assert is_repeatable("tests/acceptance/test_chain.py::test_x[faults]", late)
    assert not is_repeatable(f"tests/integration/{folder}/test_chain.py::test_x", late)


def test_an_error_beside_a_wait_is_an_error() -> None:
    late = "Failed: Timeout (>900.0s) from pytest-timeout."
    assert is_repeatable("tests/test_x.py::test_x", [late, "tests.waiting.StillWaiting: waited"])
    assert not is_repeatable("tests/test_x.py::test_x", [late, "AssertionError: assert 1 == 2"])
    assert not is_repeatable("tests/test_x.py::test_x", [late, ""])


def part(outcomes: Mapping[str, str]) -> Part:
    tests: list[Mapping[str, Any]] = [
        {"id": "x", "outcome": outcome, "promises": [name]} for name, outcome in outcomes.items()
    ]
    return Part("one", tests=tests)


def test_a_promise_without_a_passed_test_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Only a passed test proves a promise. Where a program is missing, a skipped test is reported."""
    passed = dict.fromkeys(promises(), PASSED)
    assert [] == [*unproved([part(passed)], is_ci=True)]
    without = {name: outcome for name, outcome in passed.items() if name != ONE}
    lost = [f"no passed test proves: {ONE} (Guarantees)"]
    assert lost == [*unproved([part(without)], is_ci=False)]
    assert lost == [*unproved([part({**passed, ONE: FAILED})], is_ci=False)]
    assert lost == [*unproved([part({**passed, ONE: SKIPPED})], is_ci=True)]
    assert "" == capsys.readouterr().out
    assert [] == [*unproved([part({**passed, ONE: SKIPPED})], is_ci=False)]
    assert f"not proved here: {ONE}" in capsys.readouterr().out


def test_an_operation_without_a_success_or_a_refusal_is_named() -> None:
    every = {(name, row.status) for name, row in operations().items()}
    refused = {(name, 403) for name, row in operations().items() if row.security}
    assert [] == [*unanswered(every | refused)]
    name, row = next((name, row) for name, row in operations().items() if row.security)
    address = f"{name} ({', '.join(row.methods)} {row.documented_path})"
    assert [f"no success: {address}"] == [*unanswered((every | refused) - {(name, row.status)})]
    assert [f"no refusal: {address}"] == [*unanswered((every | refused) - {(name, 403)})]


def test_a_part_that_was_cut_off_is_not_whole(tmp_path: Path) -> None:
    (tmp_path / "cut.ndjson").write_text(json.dumps({"id": "x", "outcome": PASSED, "promises": []}) + "\n")
    (tmp_path / "whole.ndjson").write_text(json.dumps({"cpu_s": 1.0, "wall_s": 2.0}) + "\n")
    assert {"cut": False, "whole": True} == {
        each.name: each.is_whole for each in verdict.read_parts(tmp_path)
    }


def test_a_whole_run_is_written_over_the_last() -> None:
    for words in ("`make proofs` has not run as a whole yet.", verdict.describe_run([part({})])):
        assert 1 == len(verdict.WHOLE_RUN.findall(f"before\n{words}\nafter"))

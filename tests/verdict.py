"""
The last step of `make test`: what all parts proved together.

    python -m tests.verdict DIRECTORY    fails if a promise or a published operation has no passed test

Before that, it repeats each test whose wait did not end, once and alone. No other test is repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gateway.http.address import ApiAddress
from gateway.service.addresses.table import ADDRESSES
from tests.promises import EVIDENCE, ROOT, promises
from tests.proved import PASSED, SKIPPED, WAITED

REFUSED = (401, 403)
NO_CONTENT = 204  # also the answer to OPTIONS, which has no document
WHOLE_RUN = re.compile(r"^`make proofs` (passed on .*|has not run as a whole yet\.)$", re.MULTILINE)
MAX_CPU_S, MAX_WALL_S = 2.0, 10.0  # a test of `make test` that takes longer proves a promise


@dataclass
class Part:
    """The record of one part of `make test`."""

    name: str
    tests: list[Mapping[str, Any]] = field(default_factory=list)
    answers: set[tuple[str, int]] = field(default_factory=set)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    is_whole: bool = False  # False if the run of the part did not reach its end


def read_parts(directory: Path) -> list[Part]:
    return [read_part(path) for path in sorted(directory.glob("*.ndjson"))]


def read_part(path: Path) -> Part:
    part = Part(path.stem)
    for text in path.read_text().splitlines():
        line = json.loads(text)
        if "id" in line:
            part.tests.append(line)
        elif "answers" in line:
            part.answers.update((name, status) for name, status in line["answers"])
        else:
            part.cpu_s, part.wall_s, part.is_whole = line["cpu_s"], line["wall_s"], True
    return part


def repeat_waits(directory: Path, parts: Iterable[Part]) -> Iterator[str]:
    """Repeat the tests that waited, each alone. Yield those that failed again, and print the others as slow."""
    waited = [test for part in parts for test in part.tests if test["outcome"] == WAITED]
    for number, test in enumerate(waited):
        record = directory / f"again-{number}.ndjson"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.proved", "--record", str(record)]
        if subprocess.run([*command, test["id"]], cwd=ROOT).returncode:
            yield f"failed twice: {test['id']}: {test['failure']}"
        else:
            print(f"slow: {test['id']}: {test['failure']}")


def unproved(parts: Iterable[Part], *, is_ci: bool) -> Iterator[str]:
    """
    Yield each promise without a passed test. A promise whose tests were all skipped is reported, but fails only in
    continuous integration, because the machine lacks a program.
    """
    outcomes: dict[str, set[str]] = defaultdict(set)
    for part in parts:
        for test in part.tests:
            for promise in test["promises"]:
                outcomes[promise].add(test["outcome"])
    for promise, heading in promises().items():
        if PASSED in outcomes[promise]:
            continue
        if outcomes[promise] == {SKIPPED} and not is_ci:
            print(f"not proved here: {promise} ({heading})")
        else:
            yield f"no passed test proves: {promise} ({heading})"


def unanswered(answers: Iterable[tuple[str, int]]) -> Iterator[str]:
    """Yield each operation without a documented success, or without a refusal where it needs a right."""
    statuses: dict[str, set[int]] = defaultdict(set)
    for operation, status in answers:
        statuses[operation].add(status)
    for operation, row in operations().items():
        if statuses[operation].isdisjoint({row.status, *row.gives, NO_CONTENT}):
            yield f"no success: {operation} ({', '.join(row.methods)} {row.documented_path})"
        if row.security and statuses[operation].isdisjoint(REFUSED):
            yield f"no refusal: {operation} ({', '.join(row.methods)} {row.documented_path})"


def operations() -> Mapping[str, ApiAddress]:
    return {name: row for row in ADDRESSES for name in row.operation_ids_by_method.values()}


def long_tests(parts: Iterable[Part]) -> Iterator[str]:
    """Yield the tests that should be marked `proof` or `proves`."""
    for test in (test for part in parts for test in part.tests):
        if (test["cpu_s"] > MAX_CPU_S or test["wall_s"] > MAX_WALL_S) and not test["promises"]:
            yield f"{test['cpu_s']:7.1f} s of processor, {test['wall_s']:6.1f} s: {test['id']}"


def removed_tests() -> Iterator[str]:
    """Yield each test function that the branch main has and this checkout has not."""
    command = ["git", "grep", "-hoE", "^ *(async )?def test_[a-z0-9_]+", "main", "--", "tests"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    there = "".join(path.read_text() for path in (ROOT / "tests").rglob("*.py"))
    names = {line.rpartition("def ")[2] for line in found.stdout.splitlines()}
    yield from sorted(names - set(re.findall(r"\bdef (test_[a-z0-9_]+)", there)))


def describe_run(parts: Sequence[Part]) -> str:
    """Return the sentence of a whole run of `make proofs` for tests/EVIDENCE.md."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
    commit, day = done.stdout.strip(), f"{datetime.now(UTC):%d %B %Y}"
    tests = [test for part in parts for test in part.tests]
    seeds = sum(len(test["seeds"]) for test in tests)
    minutes = sum(part.cpu_s for part in parts) / 60
    return (
        f"`make proofs` passed on {day} at commit `{commit}`: {len(tests):,} tests, {seeds:,} random rounds, "
        f"{minutes:,.0f} minutes of processor time."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Report what the parts of `make test` proved.")
    parser.add_argument("directory", type=Path)
    parser.add_argument(
        "--long", action="store_true", help="list the tests that are too long for `make test`"
    )
    parser.add_argument(
        "--write", action="store_true", help="write a whole run of `make proofs` into EVIDENCE.md"
    )
    options = parser.parse_args()
    failed_twice = [*repeat_waits(options.directory, read_parts(options.directory))]
    parts = read_parts(options.directory)
    for part in parts:
        times = f"{part.cpu_s / 60:6.2f} min of processor {part.wall_s / 60:6.2f} min"
        print(f"{part.name:18} {len(part.tests):6} tests {times}")
    total_s = sum(part.cpu_s for part in parts)
    print(
        f"{'together':18} {sum(len(part.tests) for part in parts):6} tests {total_s / 60:6.2f} min of processor"
    )
    if options.long:
        print(*sorted(long_tests(parts), reverse=True), sep="\n")
    print(*(f"main has a test that is not here: {name}" for name in removed_tests()), sep="\n")
    problems = [
        *failed_twice,
        *(f"{part.name} did not reach its end" for part in parts if not part.is_whole),
        *unproved(parts, is_ci=bool(os.environ.get("CI"))),
        *unanswered(answer for part in parts for answer in part.answers),
    ]
    if problems:
        sys.exit("\n".join(problems))
    if options.write:
        EVIDENCE.write_text(WHOLE_RUN.sub(lambda _: describe_run(parts), EVIDENCE.read_text(), count=1))


if __name__ == "__main__":
    main()

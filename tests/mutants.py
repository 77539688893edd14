"""
Mutants show whether the tests of `make test` notice a defect.

    python -m tests.mutants --count 60 --seed 7

A mutant changes one place of the three packages, in a clone of the last commit: a comparison, `and`, `+`, `not`, a
whole number or a returned value. A test in the folder that mirrors the module must fail, or another test of
`make test` that executes the function, or a proof. `tests/mutants.toml` says why a mutant that survives is equal.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("gateway", "exporters", "spool")
COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
LIMIT_S = 3600.0  # some mutants wait for ever
SHORT = "not proof and not bench and not clients and not chroot"
PROOFS = SHORT.removeprefix("not ")
NO_TESTS = 5  # an exit code of pytest
FOLDER, TEST, PROOF, SURVIVED, EQUAL = "folder", "other test", "only a proof", "survived", "equal"


@dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    function: int  # line of its first statement
    begin: int  # byte of the file
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {' '.join(self.before.split())} -> {self.after}"

    def change(self, source: bytes) -> bytes:
        return source[: self.begin] + self.after.encode() + source[self.begin + len(self.before.encode()) :]

    def mirrored(self) -> str:
        """Return the folder of tests that mirrors the module."""
        folder = Path("tests", self.file).parent
        while not (ROOT / folder).exists():
            folder = folder.parent
        return str(folder)

    def is_equal(self) -> bool:
        """Return whether `tests/mutants.toml` names this mutant."""
        stated = tomllib.loads((ROOT / "tests/mutants.toml").read_text()).get("equal", [])
        return (self.file, self.before, self.after) in {
            (one["file"], one["before"], one["after"]) for one in stated
        }


def changed(node: ast.AST) -> ast.expr | None:
    """Return what replaces an expression, if it is of a kind that is changed."""
    match node:
        case ast.Compare(left, [operator, *others], comparators):
            return ast.Compare(left, [COMPARISONS[type(operator)](), *others], comparators)
        case ast.BoolOp(ast.And(), values):
            return ast.BoolOp(ast.Or(), values)
        case ast.BinOp(left, ast.Add(), right):
            return ast.BinOp(left, ast.Sub(), right)
        case ast.UnaryOp(ast.Not(), operand):
            return operand
        case ast.Constant(int(number)) if not isinstance(number, bool):
            return ast.Constant(number + 1)
    return None


def mutants_of(file: str, text: str) -> Iterator[Mutant]:
    """Yield all mutants of a module's functions."""
    starts = [0]
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def found(node: ast.AST, function: int) -> Iterator[Mutant]:
        is_return = isinstance(node, ast.Return)
        old = node.value if isinstance(node, ast.Return) else node
        new = ast.Constant(None) if is_return else changed(node)
        if function and new and isinstance(old, ast.expr) and ast.unparse(old) != ast.unparse(new):
            before = ast.get_source_segment(text, old) or ""
            begin = starts[old.lineno - 1] + old.col_offset
            yield Mutant(file, old.lineno, function, begin, before, f"({ast.unparse(new)})")
        children = ast.iter_child_nodes(node)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function, children = first_line(node), iter(node.body)
        for child in children:
            if not isinstance(child, ast.JoinedStr):  # Python 3.11 does not know the places inside
                yield from found(child, function)

    yield from found(ast.parse(text), 0)


def first_line(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    decorators: list[ast.expr] = getattr(first, "decorator_list", [])
    return min([first.lineno, *(each.lineno for each in decorators)])


def draw(count: int, seed: int) -> list[Mutant]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    every = [
        one for path in paths for one in mutants_of(str(path.relative_to(ROOT)), path.read_text("utf-8"))
    ]
    print(f"{count} of {len(every)} places, seed {seed}", flush=True)
    return random.Random(seed).sample(every, count)


class Clone:
    """A clone of the last commit, which uses the environment of this checkout."""

    def __init__(self, place: Path) -> None:
        self.place = place
        subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(place)], check=True)
        (place / ".venv").symlink_to((ROOT / ".venv").resolve())
        self.passes = cache(self._passes)

    def notices(self, mutant: Mutant, tests: Sequence[str], selection: str) -> bool:
        """Return whether tests pass without the mutant and fail with it."""
        path = self.place / mutant.file
        source = path.read_bytes()
        path.write_bytes(mutant.change(source))
        try:
            is_noticed = bool(tests) and not self._passes(tuple(tests), selection, "-x")
        finally:
            path.write_bytes(source)
        return is_noticed and self.passes(tuple(tests), selection)

    def _passes(self, tests: Sequence[str], selection: str, *more: str) -> bool:
        size = {"TOLLHOUSE_PROOFS": "1"} if selection == PROOFS else {}
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", selection, *more, *tests],
            cwd=self.place,
            env={**os.environ, **size, "PYTHONPATH": str(self.place), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            return process.wait(LIMIT_S) in (0, NO_TESTS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False

    def executing_files(self, mutants: Sequence[Mutant]) -> Mapping[Mutant, Sequence[str]]:
        """Run all tests once. Return the files of those that execute the function of each mutant."""
        notes = self.place / "notes"
        notes.touch()
        lines: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
        for number, mutant in enumerate(mutants):
            call = f"__import__('tests.executed', fromlist=['']).note({str(notes)!r}, {number})"
            lines[mutant.file][mutant.function].append(call)
        for file, calls in lines.items():
            text = (self.place / file).read_text("utf-8").splitlines(keepends=True)
            for line in sorted(calls, reverse=True):
                first = text[line - 1]
                indent = first[: len(first) - len(first.lstrip())]
                text.insert(line - 1, f"{indent}{'; '.join(calls[line])}\n")
            (self.place / file).write_text("".join(text), "utf-8")
        self._passes(["tests"], f"({SHORT}) or ({PROOFS})")
        subprocess.run(["git", "checkout", "--quiet", "."], cwd=self.place, check=True)
        files: dict[Mutant, set[str]] = defaultdict(set)
        for note in notes.read_text().splitlines():
            noted, test = note.split(" ", 1)
            files[mutants[int(noted)]].add(test)
        return {mutant: sorted(found) for mutant, found in files.items()}


def judge(clone: Clone, mutants: Iterable[Mutant]) -> Iterator[tuple[Mutant, str]]:
    """Yield what notices each mutant, those of the mirrored folders first."""
    remaining = []
    for mutant in mutants:
        if clone.notices(mutant, [mutant.mirrored()], SHORT):
            yield mutant, FOLDER
        elif mutant.is_equal():
            yield mutant, EQUAL
        else:
            remaining.append(mutant)
    files = clone.executing_files(remaining) if remaining else {}
    for mutant in remaining:
        if clone.notices(mutant, files.get(mutant, []), SHORT):
            yield mutant, TEST
        else:
            is_proved = clone.notices(mutant, files.get(mutant, []), PROOFS)
            yield mutant, PROOF if is_proved else SURVIVED


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Change one place of the packages at a time, and run its tests."
    )
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the time")
    options = parser.parse_args()
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="tollhouse-mutants-") as place:
        for mutant, outcome in judge(Clone(Path(place) / "clone"), draw(options.count, options.seed)):
            outcomes[outcome] += 1
            print(f"{outcome:14} {mutant}", flush=True)
    print(dict(outcomes))
    if outcomes[SURVIVED]:
        sys.exit("write a test for each survivor, or state in tests/mutants.toml why it is equal")


if __name__ == "__main__":
    main()

"""
The promises in the documents, and the tests that name them: the rows of tables, and the marks in the sources.

    python -m tests.promises    writes the tests of each promise into tests/EVIDENCE.md
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "tests/EVIDENCE.md"
# Documents and the headings of their tables of promises. The first cell of a row names the promise.
TABLES = {
    "docs/promises/reliability.md": ("Guarantees",),
    "docs/promises/versioning.md": ("Public parts",),
    "tests/EVIDENCE.md": ("Threats", "Audit findings", "Billed costs"),
}


@dataclass(frozen=True, order=True)
class Proof:
    """A test that names a promise. `is_long` means that only `make proofs` runs it."""

    promise: str
    test: str
    is_long: bool


@cache
def promises(root: Path = ROOT) -> Mapping[str, str]:
    """Return each promise with the heading of its table, in the order of the documents."""
    found: dict[str, str] = {}
    for document, headings in TABLES.items():
        text = (root / document).read_text()
        for heading in headings:
            for promise in _first_cells(text, heading):
                assert promise not in found, f"two promises have the same words: {promise}"
                found[promise] = heading
    return found


def _first_cells(text: str, heading: str) -> Iterator[str]:
    section = re.split(r"^## ", text.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    for row in rows[1:]:
        if not row.startswith("| ---"):
            yield promise_of(row)


def promise_of(row: str) -> str:
    """Return the first cell of a row, without the addresses of links."""
    return re.sub(r"\[(.*?)\]\(.*?\)", r"\1", row.split("|")[1]).strip()


def proofs(root: Path = ROOT) -> list[Proof]:
    """Return the tests that the sources mark with `proves`, in the order of their files."""
    return _proofs(root)


@cache
def _proofs(root: Path) -> list[Proof]:
    found: list[Proof] = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        text = path.read_text()
        if ".proves(" in text:
            found += _proofs_of_module(ast.parse(text), str(path.relative_to(root)))
    return found


def _proofs_of_module(module: ast.Module, path: str) -> Iterator[Proof]:
    is_long = any(
        _is_proof(node.value) for node in module.body if isinstance(node, ast.Assign) and _assigns_marks(node)
    )
    classes = [node for node in module.body if isinstance(node, ast.ClassDef)]
    for node in (*module.body, *(each for one in classes for each in one.body)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            is_marked_long = is_long or any(_is_proof(each) for each in node.decorator_list)
            for decorator in node.decorator_list:
                if isinstance(decorator, ast.Call) and _mark_name(decorator.func) == "proves":
                    for argument in decorator.args:
                        yield Proof(ast.literal_eval(argument), f"{path}::{node.name}", is_marked_long)


def _assigns_marks(node: ast.Assign) -> bool:
    return [ast.unparse(target) for target in node.targets] == ["pytestmark"]


def _is_proof(node: ast.AST) -> bool:
    if isinstance(node, ast.List | ast.Tuple):
        return any(_is_proof(each) for each in node.elts)
    return _mark_name(node) == "proof"


def _mark_name(node: ast.AST) -> str:
    is_mark = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "pytest.mark"
    return node.attr if is_mark and isinstance(node, ast.Attribute) else ""


def evidence(root: Path = ROOT) -> str:
    """Return the text of EVIDENCE.md with the tests of each promise, taken from the marks."""
    found = proofs(root)
    text = (root / "tests/EVIDENCE.md").read_text()
    for heading in TABLES["tests/EVIDENCE.md"]:
        before, title, rest = text.partition(f"\n## {heading}\n")
        section, *more = re.split(r"^(?=## )", rest, maxsplit=1, flags=re.MULTILINE)
        lines = [_with_tests(line, found) for line in section.splitlines()]
        text = before + title + "\n".join(lines) + "\n" + "".join(more)
    for document in ("docs/promises/reliability.md", "docs/promises/versioning.md"):
        for heading in TABLES[document]:
            rows = _first_cells((root / document).read_text(), heading)
            table = [_with_tests(f"| {promise} | |", found) for promise in rows]
            text = _with_section(text, heading, ["| promise | tests |", "|---|---|", *table])
    return text


def _with_tests(line: str, found: list[Proof]) -> str:
    """Return a row of a table with the tests of its promise in the last cell. Return other lines unchanged."""
    cells = line.split("|")
    promise = promise_of(line) if len(cells) > 2 else ""
    tests = [proof for proof in found if proof.promise == promise]
    if not tests:
        return line
    names = ", ".join(f"`{each.test}`{' (`make proofs`)' if each.is_long else ''}" for each in tests)
    return "|".join([*cells[:-2], f" {names} ", ""])


def _with_section(text: str, heading: str, table: list[str]) -> str:
    before, title, rest = text.partition(f"\n## {heading}\n")
    assert title, f"EVIDENCE.md has no section {heading}"
    section, *more = re.split(r"^(?=## )", rest, maxsplit=1, flags=re.MULTILINE)
    words = [line for line in section.splitlines() if not line.startswith("|")]
    body = "\n".join(words).strip()
    return before + title + f"\n{body}\n\n" + "\n".join(table) + "\n\n" + "".join(more)


def changed_promises(commit: str, root: Path = ROOT) -> list[str]:
    """Return the guarantees whose code in ARCHITECTURE.md differs from `commit`."""
    command = ["git", "diff", "--name-only", commit, "--"]
    found = []
    for promise, paths in kept_in(root).items():
        done = subprocess.run([*command, *paths], cwd=root, capture_output=True, text=True, check=True)
        if done.stdout:
            found.append(promise)
    return found


def kept_in(root: Path = ROOT) -> Mapping[str, list[str]]:
    """Return the files that keep each guarantee, from the table of ARCHITECTURE.md."""
    text = (root / "ARCHITECTURE.md").read_text().partition("\n## Promises and where they are kept\n")[2]
    rows = [line for line in text.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    return {
        promise_of(row): re.findall(r"`((?:spool|gateway|exporters)/[\w/]+(?:\.py)?)`", row) for row in rows
    }


if __name__ == "__main__":
    EVIDENCE.write_text(evidence())

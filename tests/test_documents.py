"""What the documents name exists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.documents import parsed_yaml
from tests.faults.scenarios import SCENARIOS

ROOT = Path(__file__).parents[1]
DEVELOP = tuple(
    f"docs/develop/{name}.md"
    for name in ("begin-reading", "where-to-add", "add-a-source", "compiled-module", "tests", "evidence")
)
DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md", *DEVELOP)
PATH = re.compile(r"`((?:gateway|exporters|spool|tests|docs)/[\w./-]+)`")
LINK = re.compile(r"\]\(([\w./-]+)\)")
PLACEHOLDERS = ("NAME", "CASE", "GROUP")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_in_documents_exist(name: str) -> None:
    """Modules and folders that a document names are there; NAME, CASE and GROUP stand for the reader's own."""
    text = (ROOT / name).read_text()
    named = {
        path
        for path in PATH.findall(text) + LINK.findall(text)
        if not any(word in path for word in PLACEHOLDERS)
    }
    assert set() == {
        path for path in named if not any((base / path).exists() for base in (ROOT, (ROOT / name).parent))
    }


def test_make_targets_in_documents_exist() -> None:
    """Every `make` command that a document names is a target."""
    files = [ROOT / "Makefile", *(path for path in ROOT.glob("*/*.mk") if path.parent.name[0] != ".")]
    targets = {name for path in files for name in re.findall(r"^([a-z-]+):", path.read_text(), re.MULTILINE)}
    for name in DOCUMENTS:
        commands = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", (ROOT / name).read_text(), re.MULTILINE)
        assert set() == set(commands) - targets, name


@pytest.mark.parametrize(
    ("page", "title"),
    [
        ("develop/evidence", "Threats"),
        ("develop/evidence", "Audit findings"),
        ("develop/evidence", "Billed costs"),
    ],
)
def test_the_tests_that_a_page_names_exist(page: str, title: str) -> None:
    """Every threat, finding and rule names a test, and the test is there."""
    text = (ROOT / f"docs/{page}.md").read_text()
    section = text.partition(f"## {title}")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert rows
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), test


def pages(nav: object) -> set[str]:
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ()
    return {page for part in parts for page in pages(part)}


def test_every_document_is_in_the_navigation() -> None:
    """A page without a line in mkdocs.yml is not found; the decisions are for those who change Tollhouse."""
    nav = parsed_yaml((ROOT / "mkdocs.yml").read_text())["nav"]
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md") if "decisions" not in path.parts}
    assert there == pages(nav)


def test_every_fault_scenario_is_in_the_evidence() -> None:
    """Under the name that the tests give it, and in the number that the first pages state."""
    rows = re.findall(
        r"^\| ([AF]\d+) \| (.*?) \|", (ROOT / "docs/develop/evidence.md").read_text(), re.MULTILINE
    )
    assert SCENARIOS == {name: words for name, words in rows if name in SCENARIOS}
    for page in ("README.md", "docs/reliability.md"):
        assert f"{len(SCENARIOS)} fault scenarios" in (ROOT / page).read_text(), page


@pytest.mark.parametrize("lock", sorted(path.name for path in (ROOT / "deploy/locks").glob("*.lock")))
def test_locks_have_hashes_and_name_no_index(lock: str) -> None:
    """What is installed is what was locked, from whichever index."""
    text = (ROOT / "deploy/locks" / lock).read_text()
    pinned = re.findall(
        r"^[\w.\[\]-]+==\S+(?: ; [^\\\n]+)? \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE
    )
    stated = re.findall(r"^[a-zA-Z]", text, re.MULTILINE)
    assert pinned and len(stated) == len(pinned)
    assert "http" not in re.sub(r"^[\w.-]+==.*$|#.*$", "", text, flags=re.MULTILINE)


def test_a_decision_has_a_number_of_its_own() -> None:
    """Its file and its title say the same one."""
    files = sorted((ROOT / "docs/decisions").glob("0*.md"))
    numbers = [int(file.name[:4]) for file in files]
    assert sorted(set(numbers)) == numbers
    assert numbers == [int(re.findall(r"^# (\d+)\.", file.read_text())[0]) for file in files]


def test_make_run_says_what_it_does() -> None:
    """Each step that takes long has its line before it: a minute without a word looks like a fault."""
    dry = ["make", "--no-print-directory", "--dry-run", "--what-if=deploy/locks/requirements.lock", "run"]
    steps = subprocess.run(
        dry, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    ).stdout.splitlines()
    slow = [place for place, step in enumerate(steps) if "-m pip " in step or "-m venv" in step]
    assert 3 == len(slow)
    assert all(steps[place - 1].startswith("echo ") for place in slow)

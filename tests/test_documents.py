"""Everything that the documents name exists: paths, make targets and tests."""

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
    """A document names only modules and folders that exist. NAME, CASE and GROUP are placeholders."""
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
    """Every row of threats, findings and rules names a test that exists."""
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
    """Every page has a line in mkdocs.yml, because readers cannot find it otherwise. Decisions are exempt."""
    nav = parsed_yaml((ROOT / "mkdocs.yml").read_text())["nav"]
    docs = ROOT / "docs"
    there = {str(path.relative_to(docs)) for path in docs.rglob("*.md") if "decisions" not in path.parts}
    assert there == pages(nav)


def test_every_fault_scenario_is_in_the_evidence() -> None:
    """
    The evidence page lists each scenario under its name in the tests. The first pages state the right number.
    """
    rows = re.findall(
        r"^\| ([AF]\d+) \| (.*?) \|", (ROOT / "docs/develop/evidence.md").read_text(), re.MULTILINE
    )
    assert SCENARIOS == {name: words for name, words in rows if name in SCENARIOS}
    for page in ("README.md", "docs/reliability.md"):
        assert f"{len(SCENARIOS)} fault scenarios" in (ROOT / page).read_text(), page


@pytest.mark.parametrize("lock", sorted(path.name for path in (ROOT / "deploy/locks").glob("*.lock")))
def test_locks_have_hashes_and_name_no_index(lock: str) -> None:
    """Locks pin every package by hash, so it does not matter from which index pip installs."""
    text = (ROOT / "deploy/locks" / lock).read_text()
    pinned = re.findall(
        r"^[\w.\[\]-]+==\S+(?: ; [^\\\n]+)? \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE
    )
    stated = re.findall(r"^[a-zA-Z]", text, re.MULTILINE)
    assert pinned and len(stated) == len(pinned)
    assert "http" not in re.sub(r"^[\w.-]+==.*$|#.*$", "", text, flags=re.MULTILINE)


def test_a_decision_has_a_number_of_its_own() -> None:
    """The number of a decision is unique, and its file and title agree on it."""
    files = sorted((ROOT / "docs/decisions").glob("0*.md"))
    numbers = [int(file.name[:4]) for file in files]
    assert sorted(set(numbers)) == numbers
    assert numbers == [int(re.findall(r"^# (\d+)\.", file.read_text())[0]) for file in files]


def test_make_run_says_what_it_does() -> None:
    """`make run` prints a line before each slow step, because a minute of silence looks like a fault."""
    dry = ["make", "--no-print-directory", "--dry-run", "--what-if=deploy/locks/requirements.lock", "run"]
    steps = subprocess.run(
        dry, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
    ).stdout.splitlines()
    slow = [place for place, step in enumerate(steps) if "-m pip " in step or "-m venv" in step]
    assert 3 == len(slow)
    assert all(steps[place - 1].startswith("echo ") for place in slow)

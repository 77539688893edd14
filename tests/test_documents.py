"""What the documents name exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ("ARCHITECTURE.md", "CONTRIBUTING.md", "README.md")
PATH = re.compile(r"`((?:gateway|exporters|spool|tests|docs)/[\w./-]+)`")
LINK = re.compile(r"\]\(([\w./-]+)\)")
PLACEHOLDERS = ("NAME", "CASE", "GROUP")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_in_documents_exist(name: str) -> None:
    """Modules and folders that a document names are there; NAME, CASE and GROUP stand for the reader's own."""
    text = (ROOT / name).read_text()
    named = {path for path in PATH.findall(text) + LINK.findall(text) if not any(word in path for word in PLACEHOLDERS)}
    assert set() == {path for path in named if not (ROOT / path).exists()}


def test_make_targets_in_documents_exist() -> None:
    """Every `make` command that a document names is a target."""
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for name in DOCUMENTS:
        commands = re.findall(r"(?:^ {4}|`)make ([a-z-]+)", (ROOT / name).read_text(), re.MULTILINE)
        assert set() == set(commands) - targets, name


def test_the_tests_of_the_threat_model_exist() -> None:
    """Every threat names a test, and the test is there."""
    text = (ROOT / "docs/threat-model.md").read_text()
    rows = [line for line in text.partition("## Threats")[2].splitlines() if line.startswith("| ")][1:]
    for row in rows:
        named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", row)
        assert named, row
        for file, test in named:
            assert f"def {test}(" in (ROOT / file).read_text(), test


@pytest.mark.parametrize("lock", sorted(path.name for path in ROOT.glob("requirements*.lock")))
def test_locks_have_hashes_and_name_no_index(lock: str) -> None:
    """What is installed is what was locked, from whichever index."""
    text = (ROOT / lock).read_text()
    pinned = re.findall(r"^[\w.\[\]-]+==\S+(?: ; [^\\\n]+)? \\\n    --hash=sha256:[0-9a-f]{64}", text, re.MULTILINE)
    stated = re.findall(r"^[a-zA-Z]", text, re.MULTILINE)
    assert pinned and len(stated) == len(pinned)
    assert "http" not in re.sub(r"^[\w.-]+==.*$|#.*$", "", text, flags=re.MULTILINE)

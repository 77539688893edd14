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

"""A name that a docstring or a comment of the code quotes exists, so a rename changes it there, too."""

from __future__ import annotations

import re
import tokenize
from pathlib import Path

from tests.documents import ROOT
from tests.figures import PACKAGES

_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r"`([A-Za-z_][\w.]*\w)(?:\(\))?`")
_BEGINS_A_STATEMENT = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
_OTHERS = (
    "gateway/console/static/**/*.mjs",
    "native/**/*.rs",
    "tests/**/*.py",
    "docs/**/*.md",
    "deploy/**/*.*",
)


def test_a_quoted_name_exists() -> None:
    quoted: dict[str, Path] = {}
    known: set[str] = set()
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        known.update(path.relative_to(ROOT).with_suffix("").parts)
        texts, words = _read(path)
        known |= words
        quoted |= {name: path for text in texts for name in _QUOTED.findall(text) if "_" in name}
    for pattern in _OTHERS:
        for path in ROOT.glob(pattern):
            known.update(_WORD.findall(path.read_text(errors="replace")) if path.is_file() else ())
    assert {} == {name: path for name, path in quoted.items() if not known.issuperset(name.split("."))}


def _read(path: Path) -> tuple[list[str], set[str]]:
    """Return the docstrings and comments of a file, and the words of the rest."""
    texts, words, before = [], set(), tokenize.ENCODING
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            is_docstring = token.type == tokenize.STRING and before in _BEGINS_A_STATEMENT
            if is_docstring or token.type == tokenize.COMMENT:
                texts.append(token.string)
            elif token.type in (tokenize.NAME, tokenize.STRING):
                words.update(_WORD.findall(token.string))
            if token.type not in (tokenize.COMMENT, tokenize.NL):
                before = token.type
    return texts, words

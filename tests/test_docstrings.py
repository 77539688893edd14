"""A name that a docstring or a comment of the code quotes exists, so a rename changes it there, too."""

from __future__ import annotations

import re
from pathlib import Path

from tests.documents import ROOT
from tests.figures import PACKAGES

_WORD = re.compile(r"\w+")
_QUOTED = re.compile(r"`([A-Za-z_][\w.]*\w)(?:\(\))?`")
# Docstrings and comments by their usual form, which takes a fifth of the time of the module tokenize.
_PROSE = re.compile(r'^ *r?"""[\s\S]*?"""$|^#.*$| *# .*$', re.MULTILINE)
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
        text = path.read_text()
        known.update(path.relative_to(ROOT).with_suffix("").parts)
        known.update(_WORD.findall(_PROSE.sub("", text)))
        quoted |= {name: path for name in _QUOTED.findall(text) if "_" in name}
    for pattern in _OTHERS:
        for path in ROOT.glob(pattern):
            known.update(_WORD.findall(path.read_text(errors="replace")) if path.is_file() else ())
    assert {} == {name: path for name, path in quoted.items() if not known.issuperset(name.split("."))}

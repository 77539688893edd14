"""
Readers of approved text files. A case is a line `=== title`, the input, and the expected texts as lines
of `> text`.
"""

from __future__ import annotations

import re
from pathlib import Path


def approved(file: Path) -> list[tuple[str, str, list[str]]]:
    """Return the title, the input and the expected texts of each case."""
    cases = []
    for title, case in re.findall(r"^=== (.*)\n((?:(?!===).*\n)*)", file.read_text(), re.MULTILINE):
        text, *words = case.rstrip("\n").split("\n> ")
        cases.append((title, text, words))
    return cases

"""Files of inputs with the words that are said of each: `=== title`, the input, and lines of `> words`."""

from __future__ import annotations

import re
from pathlib import Path


def approved(file: Path) -> list[tuple[str, str, list[str]]]:
    """Title, input and words of each case."""
    found = []
    for title, case in re.findall(r"^=== (.*)\n((?:(?!===).*\n)*)", file.read_text(), re.MULTILINE):
        text, *words = case.rstrip("\n").split("\n> ")
        found.append((title, text, words))
    return found

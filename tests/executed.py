"""Note which tests execute a function: `tests/mutants.py` writes calls of this module into a copy of the packages."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


def note(file: str, number: int) -> None:
    # also in a process that a test has started, which has the variable of its start
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition("::")[0]
    if test:
        _note_once(file, number, test)


@cache
def _note_once(file: str, number: int, test: str) -> None:
    with Path(file).open("a") as notes:
        notes.write(f"{number} {test}\n")

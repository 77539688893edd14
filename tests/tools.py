"""External programs that tests run. Without its program, a test is skipped with a stated reason."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

# `make test` puts programs here. For each program that it could not fetch, a file NAME.missing states the reason.
FETCHED = Path(sys.prefix) / "tools"


def program(name: str, fetched: str = "") -> str:
    """Return the path of a program on this machine, or of the copy that `make test` fetched."""
    path = shutil.which(name) or (shutil.which(FETCHED / fetched) if fetched else None)
    return path or without(name, FETCHED / f"{name}.missing", "make test")


def without(name: str, reason: Path, command: str) -> NoReturn:
    """
    Skip the test and state why its program is missing.

    If `TOOLS=required`, fail instead. In continuous integration (`CI`), fail if no reason was recorded.
    """
    why = reason.read_text().strip() if reason.exists() else ""
    if os.environ.get("TOOLS") == "required" or (os.environ.get("CI") and not why):
        pytest.fail(f"{name} is missing: {why or f'`{command}` fetches it'}")
    pytest.skip(f"{name} is missing: {why or f'`{command}` fetches it'}")

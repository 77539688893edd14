"""Programs that tests run and that are no part of Tollhouse: without one a test is skipped, and never in silence."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import NoReturn

import pytest

# What `make test` fetched, and for each program that it could not fetch a file NAME.missing with the reason.
FETCHED = Path(sys.prefix) / "tools"


def program(name: str, fetched: str = "") -> str:
    """The path of a program: of this machine, or in the folder of what `make test` fetched."""
    path = shutil.which(name) or (shutil.which(FETCHED / fetched) if fetched else None)
    return path or without(name, FETCHED / f"{name}.missing", "make test")


def without(name: str, reason: Path, command: str) -> NoReturn:
    """
    Skips a test and says why its program cannot be had.

    It fails instead where the program is required (`TOOLS=required`), and in continuous integration (`CI`)
    where no reason was found.
    """
    why = reason.read_text().strip() if reason.exists() else ""
    if os.environ.get("TOOLS") == "required" or (os.environ.get("CI") and not why):
        pytest.fail(f"{name} is missing: {why or f'`{command}` fetches it'}")
    pytest.skip(f"{name} is missing: {why or f'`{command}` fetches it'}")

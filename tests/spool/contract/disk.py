"""A data directory as a killed process leaves it."""

from __future__ import annotations

import shutil
from pathlib import Path

from spool.sqlite.reserve import FILE as RESERVE


def killed(directory: Path, copy: Path) -> Path:
    """What is on disk at this moment, without anything that a close would still do."""
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns(RESERVE, "*.new"))
    return copy

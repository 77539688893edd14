"""A data directory in the state of a killed process."""

from __future__ import annotations

import shutil
from pathlib import Path

from spool.sqlite.reserve import FILE as RESERVE


def killed(directory: Path, copy: Path) -> Path:
    """Copy the directory as it is on disk now, without the work of a close."""
    shutil.copytree(directory, copy, ignore=shutil.ignore_patterns(RESERVE, "*.new"))
    return copy

"""Files that are made to cost much memory, by every way that a file comes in: refused with a reason, or read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.scenarios import LONG
from tests.hostile_files.files import FILES, MIB, SHORT

MOST = 256 * MIB  # of a process from its start on; before, it was 300 MiB to 10 GiB for most of them
ALL = [f"{way}/{name}" for way, names in FILES.items() for name in names]
TIMEOUT_S = 1800


@pytest.mark.parametrize("file", ALL if LONG else SHORT)
def test_no_file_takes_more_memory_than_may_be(tmp_path: Path, file: str) -> None:
    """The highest memory of the process that reads it, and of each that it starts, over its whole life."""
    way, _, name = file.partition("/")
    path = tmp_path / "file"
    FILES[way][name](path)
    read = subprocess.run(
        [sys.executable, "-m", "tests.hostile_files.reading", way, str(path)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    path.unlink()
    assert 0 == read.returncode, read.stderr[-2000:]
    told = json.loads(read.stdout)
    assert told["bytes"] <= MOST, told
    assert told["said"].startswith("Invalid: ") or told["said"].strip("[]").isdecimal(), told


def test_the_short_list_names_files() -> None:
    assert set(SHORT) <= set(ALL)
    assert 20 <= len(ALL)

"""
Files that would need much memory are refused with a reason or read within limits, by every way into Tollhouse.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hostile_files.files import FILES, MIB, SHORT
from tests.rounds import as_proof

# limit for the memory peak of each process; before limits, most files took 300 MiB to 10 GiB
MOST = 256 * MIB
ALL = [f"{way}/{name}" for way, names in FILES.items() for name in names]
TIMEOUT_S = 1800


@pytest.mark.proves("A small file uses much memory (Parquet, CSV, JSON, lists, rates)")
@pytest.mark.parametrize("file", [name if name in SHORT else as_proof(name) for name in ALL])
def test_no_file_uses_more_memory_than_permitted(tmp_path: Path, file: str) -> None:
    """Measure the peak memory of the process that reads the file, and of each process that it starts."""
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
    result = json.loads(read.stdout)
    assert result["bytes"] <= MOST, result
    assert result["said"].startswith("Invalid: ") or result["said"].strip("[]").isdecimal(), result


def test_the_short_list_names_files() -> None:
    assert set(SHORT) <= set(ALL)
    assert 20 <= len(ALL)

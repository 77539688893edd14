from __future__ import annotations

from pathlib import Path

import pytest

from tests.times import TIMES, run_at

TEST = """
import subprocess
import time
from datetime import UTC, datetime

def test_clocks():
    began = time.monotonic()
    assert datetime(2027, 3, 1, 0, 5) <= datetime.now(UTC).replace(tzinfo=None) < datetime(2027, 3, 1, 0, 50)
    shown = subprocess.run(["date", "-u", "+%F"], capture_output=True, text=True, check=True).stdout
    assert "2027-03-01" == shown.strip()
    time.sleep(0.01)
    assert 0.01 <= time.monotonic() - began < 600
"""


def test_all_processes_have_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    (tmp_path / "test_clocks.py").write_text(TEST)
    assert "2027-03-01T00:05:00+00:00" in TIMES
    assert 0 == run_at(
        "2027-03-01T00:05:00+00:00", ["--rootdir", str(tmp_path), "-c", "/dev/null", str(tmp_path)]
    )

"""
Run tests at times where calendars go wrong: python -m tests.times tests/acceptance tests/browser

The wall clock of all processes is moved, and the monotonic clock runs as usual.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from datetime import datetime
from math import ceil
from pathlib import Path

from tests.faults.machine_faults import MachineFaults

ROOT = Path(__file__).parents[1]
TIMES = (
    "2028-02-28T12:00:00+00:00",
    "2028-02-29T12:00:00+00:00",
    "2027-03-01T00:05:00+00:00",
    "2026-12-31T23:58:00+00:00",
    "2027-01-04T00:03:00+00:00",  # a Monday
    "2027-03-28T00:58:00+00:00",  # before and after both changes of Berlin's clock
    "2027-10-31T00:58:00+00:00",
)


def main() -> None:
    failed = [time for time in TIMES if run_at(time, sys.argv[1:])]
    if failed:
        sys.exit(f"tests failed at {', '.join(failed)}")


def run_at(time: str, arguments: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="tollhouse-times-") as place:
        machine = MachineFaults(Path(place))
        begin = datetime.fromisoformat(time)
        machine.move_clock(
            ceil((begin - datetime.now(begin.tzinfo)).total_seconds())
        )  # moves by whole seconds
        print(f"from {time} on:", flush=True)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", *arguments]
        return subprocess.run(command, cwd=ROOT, env={**os.environ, **machine.environment}).returncode


if __name__ == "__main__":
    main()

"""
Flame graphs of a running server by py-spy, which has its own environment. Without py-spy use tests.bench.profiled.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.conftest import ROOT

ENVIRONMENT = ROOT / ".venv-profile"
RATE = 200  # samples of the profiler per second


def sampler() -> Path | None:
    """Return py-spy, installed at the first call, or None if it is unavailable."""
    program = ENVIRONMENT / "bin/py-spy"
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", str(ENVIRONMENT)], check=True)
        install = [str(ENVIRONMENT / "bin/python"), "-m", "pip", "install", "--quiet", "py-spy"]
        if subprocess.run(install, check=False).returncode != 0:
            return None
    return program


@contextmanager
def flame_graph(pid: int, path: Path, seconds: float) -> Iterator[None]:
    """Sample every thread of the process into an SVG while the block runs, at most for `seconds`."""
    program = sampler()
    assert program is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    words = [
        "record",
        "--pid",
        str(pid),
        "--duration",
        str(max(1, round(seconds))),
        "--rate",
        str(RATE),
        "--threads",
        "--gil",
    ]
    process = subprocess.Popen(
        [str(program), *words, "--output", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield
    finally:
        _, said = process.communicate(timeout=seconds + 60)
        if process.returncode != 0:
            print(f"no profile: {said.strip()}", file=sys.stderr)

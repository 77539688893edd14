from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spool.postgres_cluster import programs
from tests.waiting import wait_until

ROOT = Path(__file__).parents[3]
RUN = """
import sys
from tests.spool.postgres_cluster import Server, folder
with folder() as place:
    server = Server(place / "data", {})
    server.initialise()
    server.start()
    print(place, server._postmaster(), flush=True)
    sys.stdin.read()
"""


@pytest.mark.proof
def test_server_ends_with_a_killed_run() -> None:
    if programs() is None:
        pytest.skip("PostgreSQL's server programs are not installed (Debian: apt-get install postgresql)")
    run = subprocess.Popen(
        [sys.executable, "-c", RUN], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    place, server = run.stdout.readline().split()
    process = Path("/proc") / server
    assert process.exists()
    run.kill()
    run.communicate()
    wait_until(
        lambda: not process.exists() or not (process / "cmdline").read_bytes(), "the end of the server"
    )
    shutil.rmtree(place)

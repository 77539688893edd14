"""This release refuses a filled data directory of a newer release and does not change it."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from spool.sqlite.migrations import application_id
from tests.faults.damage import make_corpus
from tests.faults.scenarios import Trial

pytestmark = pytest.mark.fault("F22")


@pytest.mark.proof
@pytest.mark.parametrize("file", ["spool.sqlite", "registry.sqlite", "ledger.sqlite"])
def test_a_downgrade_refuses_with_words(file: str, trial: Trial, tmp_path: Path) -> None:
    """A file of a newer version is left unchanged, and the message says what to do."""
    for place, rng in enumerate(trial.rounds(short=1, full=1)):
        corpus = tmp_path / f"at-{place}"
        calls = asyncio.run(make_corpus(corpus, rng, archive=False))
        directory = corpus / "rest"
        with closing(sqlite3.connect(directory / file)) as connection:
            connection.execute(f"PRAGMA user_version = {99 << 24}")
            connection.execute(f"PRAGMA application_id = {application_id(99 << 24)}")
        done = subprocess.run(
            [sys.executable, "-m", "gateway", "serve", "--data", str(directory), "--listen", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert 2 == done.returncode
        assert "newer Tollhouse (version 99" in done.stderr
        assert "upgrade, or restore a backup" in done.stderr
        assert not list(directory.glob("*.damaged-*"))
        trial.count(acknowledged=len(calls.acknowledged))

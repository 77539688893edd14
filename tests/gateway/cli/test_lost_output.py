"""A command whose output cannot be written says so in one sentence, and exits with 1."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.conftest import COMMAND, Tollhouse
from tests.rounds import part

FULL = Path("/dev/full")
COMMANDS = (
    ("version",),
    ("--help",),
    ("report", "--help"),
    ("report", "--json"),
    ("report", "--csv"),
    ("keys", "list"),
    ("spool", "status", "--json"),
    ("check",),
    ("doctor", "--json"),
)


@pytest.mark.skipif(not FULL.exists(), reason="only Linux has a device that is always full")
@pytest.mark.parametrize("words", part([pytest.param(words) for words in COMMANDS], every=9), ids=" ".join)
def test_a_full_disk_is_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    """
    An error of standard output is reported with and without a buffer, which may hold the output until the program
    ends.
    """
    house = Tollhouse(tmp_path, "")
    where = [] if {"--help", "version"} & {*words} else ["--config", str(house.config)]
    command = [str(COMMAND), *words, *where]
    env = {**os.environ, "PYTHONUNBUFFERED": "" if "--json" in words else "1"}
    with FULL.open("w") as full:
        done = subprocess.run(
            command, cwd=tmp_path, env=env, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "tollhouse: the output cannot be written: No space left on device" == done.stderr.splitlines()[-1]
    assert 1 == done.returncode

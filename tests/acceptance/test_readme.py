"""The README is true: its shell snippets run against a running tollhouse, its configuration loads."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.reader import load
from tests.acceptance.conftest import COMMAND, ROOT

README = (ROOT / "README.md").read_text()


def snippets(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_shell_snippets_run_in_their_order(installations: Any, tmp_path: Path) -> None:
    """Every command of the README succeeds, each in a shell that stops at the first failure."""
    tollhouse = installations()
    env = {
        **os.environ,
        "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
        "TOLLHOUSE_KEY": tollhouse.key("readme"),
        "TOLLHOUSE_URL": tollhouse.start(),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    (tollhouse.directory / "tests").symlink_to(ROOT / "tests")
    commands = snippets("sh")
    assert commands
    for script in commands:
        done = subprocess.run(
            ["bash", "-euc", script], cwd=tollhouse.directory, env=env, capture_output=True, text=True, timeout=60
        )
        assert 0 == done.returncode, f"{script}\n{done.stdout}\n{done.stderr}"
    tollhouse.wait_until_drained()
    assert 3 == len(tollhouse.records()), "the example, the curl line and the file"


@pytest.mark.parametrize("text", snippets("toml"))
def test_configuration_snippets_load(text: str, tmp_path: Path) -> None:
    """What the README shows of the configuration has no problem."""
    path = tmp_path / "tollhouse.toml"
    path.write_text(text)
    load(path, env={})

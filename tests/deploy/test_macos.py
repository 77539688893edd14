"""The macOS launch agent, as far as another system can test it."""

from __future__ import annotations

import plistlib
import subprocess
from pathlib import Path

from tests.acceptance.conftest import COMMAND, ROOT


def test_the_launch_agent_starts_the_agent(tmp_path: Path) -> None:
    """
    The property list of the macOS agent is well-formed. Its command reports that the sample leaves out the setting
    of the gateway.
    """
    agent = plistlib.loads((ROOT / "deploy/macos/tollhouse.agent.plist").read_bytes())
    assert "tollhouse.agent" == agent["Label"]
    assert 0o077 == agent["Umask"]
    program, *words, settings = agent["ProgramArguments"]
    assert Path(program).name == "tollhouse"
    assert Path(settings).name == "agent.toml"
    (tmp_path / "agent.toml").write_text("")
    done = subprocess.run(
        [COMMAND, *words, tmp_path / "agent.toml"], capture_output=True, text=True, timeout=60
    )
    assert 2 == done.returncode
    assert "agent.gateway is required" in done.stderr


def test_the_probe_is_started_every_five_minutes(tmp_path: Path) -> None:
    """The property list of the probe is well-formed, and its command prints the states."""
    probe = plistlib.loads((ROOT / "deploy/macos/tollhouse.agent.probe.plist").read_bytes())
    assert "tollhouse.agent.probe" == probe["Label"]
    assert 300 == probe["StartInterval"]
    _, *words, _ = probe["ProgramArguments"]
    (tmp_path / "agent.toml").write_text('data_dir = "data"\n')
    (tmp_path / "data").mkdir()
    done = subprocess.run(
        [COMMAND, *words, tmp_path / "agent.toml"], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert 0 == done.returncode, done.stderr
    assert (tmp_path / "data/states.json").exists()

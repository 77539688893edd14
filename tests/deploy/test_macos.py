"""The launch agent of macOS, as far as it can be tested elsewhere."""

from __future__ import annotations

import plistlib
import subprocess
from pathlib import Path

from tests.acceptance.conftest import COMMAND, ROOT


def test_the_launch_agent_starts_the_agent(tmp_path: Path) -> None:
    """The property list is well formed, and its command asks for the gateway that its settings leave out."""
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

"""The scripts that packages run at their removal, in a folder that stands for the root of a machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.conftest import ROOT

KEY, RECORD = "var/lib/private/tollhouse-agent/device.key", "var/lib/private/tollhouse-agent/log.db"
SETTINGS, SECRET = "etc/tollhouse/agent.toml", "etc/tollhouse/agent-keys/enrolment"
SERVER, AGENT = "deploy/debian/postrm", "deploy/agent/linux/postremove.sh"
ALL = {KEY, RECORD, SETTINGS, SECRET}
# the script, what dpkg and rpm say at a removal, and what is left
STEPS = [
    *((script, step, ALL) for script in (SERVER, AGENT) for step in ("remove", "upgrade", "1")),
    *((script, "purge", {RECORD}) for script in (SERVER, AGENT)),
    (SERVER, "0", ALL),
    (AGENT, "0", {RECORD, SETTINGS}),
]


@pytest.mark.parametrize(("script", "step", "expected"), STEPS)
def test_what_a_removal_leaves(tmp_path: Path, script: str, step: str, expected: set[str]) -> None:
    """
    The package scripts delete settings and secrets at a purge, so that a later installation enrols again. rpm knows no
    purge, so a removal of the agent (0) deletes the secrets. Records always stay.
    """
    root, tools = tmp_path / "root", tmp_path / "tools"
    tools.mkdir()
    for tool in ("rm", "rmdir"):  # no other program, above all none that changes services of this machine
        (tools / tool).symlink_to(shutil.which(tool) or "")
    for name in ALL:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    text = re.sub(r"(?<=[\s\"])/(?=(?:etc|var|run)/)", f"{root}/", (ROOT / script).read_text())
    assert not re.search(r"(?<=[\s\"])/(?!dev/null)", text.replace(f"{root}/", "").partition("\n")[2])
    for _ in range(2):  # a package script must be able to run again after an interruption
        done = subprocess.run(
            ["/bin/sh", "-c", text, "postrm", step], env={"PATH": str(tools)}, capture_output=True, text=True
        )
        assert (0, "") == (done.returncode, done.stderr)
    assert expected == {name for name in ALL if (root / name).exists()}

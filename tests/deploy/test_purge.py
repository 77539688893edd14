"""The scripts that packages run at their removal, in a folder that stands for the root of a machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.acceptance.conftest import ROOT

KEY, RECORD = "var/lib/private/tollhouse-agent/device.key", "var/lib/private/tollhouse-agent/log.db"
SETTINGS = "etc/tollhouse/agent.toml"
SCRIPTS = ("deploy/debian/postrm", "deploy/agent/linux/postremove.sh")
# what dpkg and rpm say at a removal, and whether the settings and the device's key go
STEPS = [("purge", True), ("remove", False), ("upgrade", False), ("0", False), ("1", False)]


@pytest.mark.parametrize("script", SCRIPTS)
@pytest.mark.parametrize(("step", "is_purge"), STEPS)
def test_only_a_purge_deletes_the_key_of_the_device(
    tmp_path: Path, script: str, step: str, is_purge: bool
) -> None:
    """
    The package scripts delete settings and key at a purge, so that a later installation enrols again. Records
    always stay.
    """
    root, tools = tmp_path / "root", tmp_path / "tools"
    tools.mkdir()
    for tool in ("rm", "rmdir"):  # no other program, above all none that changes services of this machine
        (tools / tool).symlink_to(shutil.which(tool) or "")
    for name in (KEY, RECORD, SETTINGS):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name)
    text = re.sub(r"(?<=[\s\"])/(?=(?:etc|var|run)/)", f"{root}/", (ROOT / script).read_text())
    assert not re.search(r"(?<=[\s\"])/(?!dev/null)", text.replace(f"{root}/", "").partition("\n")[2])
    for _ in range(2):  # a package script must be able to run again after an interruption
        done = subprocess.run(
            ["/bin/sh", "-c", text, "postrm", step], env={"PATH": str(tools)}, capture_output=True, text=True
        )
        assert (0, "") == (done.returncode, done.stderr)
    left = {name for name in (KEY, RECORD, SETTINGS) if (root / name).exists()}
    assert left == ({RECORD} if is_purge else {KEY, RECORD, SETTINGS})

"""The scheduled task of the probe on Windows, as far as another system can test it."""

from __future__ import annotations

import shlex
from xml.etree import ElementTree as ET

from click.testing import CliRunner

from gateway.cli import main
from tests.acceptance.conftest import ROOT

SPACE = "{http://schemas.microsoft.com/windows/2004/02/mit/task}"


def test_the_task_runs_the_probe_every_five_minutes() -> None:
    """The file of the scheduled task is well-formed. It runs as LocalSystem, with options that exist."""
    task = ET.parse(ROOT / "deploy/windows/tollhouse-agent-probe.xml").getroot()
    assert f"{SPACE}Task" == task.tag
    assert "PT5M" == task.findtext(f".//{SPACE}Interval")
    assert "S-1-5-18" == task.findtext(f".//{SPACE}UserId")
    words = shlex.split(task.findtext(f".//{SPACE}Arguments") or "", posix=False)
    assert ["agent", "probe", "--config"] == words[:3]
    shown = CliRunner().invoke(main, [*words[:2], "--help"])
    assert "--config" in shown.output

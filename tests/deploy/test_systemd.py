"""The systemd units are valid, and Tollhouse starts with them."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.reader import load_config
from tests.acceptance.conftest import COMMAND, ROOT, installations

__all__ = ["installations"]

SYSTEMD = ROOT / "deploy/systemd"
SYSTEM_UNITS = ("tollhouse.service", "tollhouse-agent.service")
SETTINGS = {"tollhouse.service": "tollhouse.toml", "tollhouse-agent.service": "agent.toml"}
EXPOSURE = 2.0
PROBE = ("tollhouse-agent-probe.service", 3.0)

analysed = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def service(name: str) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(SYSTEMD / name)
    return unit["Service"]


@analysed
@pytest.mark.parametrize(("name", "most"), [*((name, EXPOSURE) for name in SYSTEM_UNITS), PROBE])
def test_the_exposure_of_a_unit_is_small(name: str, most: float) -> None:
    """`systemd-analyze security` rates each system unit at most 2.0 of 10, and the probe, which is root, 3.0."""
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(SYSTEMD / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) <= most, done.stdout


@analysed
@pytest.mark.parametrize(
    "name",
    [
        *SYSTEM_UNITS,
        "tollhouse.socket",
        "tollhouse-agent-probe.service",
        "tollhouse-agent-probe.timer",
        "tollhouse-agent-probe.path",
        "user/tollhouse-agent.service",
        "user/tollhouse-agent-probe.service",
        "user/tollhouse-agent-probe.timer",
    ],
)
def test_systemd_understands_a_unit(name: str, tmp_path: Path) -> None:
    """`systemd-analyze verify` reports nothing for a unit whose program is installed."""
    unit = tmp_path / Path(name).name
    for each in (each for each in (SYSTEMD / name).parent.iterdir() if each.is_file()):
        (tmp_path / each.name).write_text(each.read_text().replace("=tollhouse ", f"={COMMAND} "))
    whose = ["--user"] if name.startswith("user/") else []
    done = subprocess.run(
        ["systemd-analyze", *whose, "verify", "--man=no", unit],
        capture_output=True,
        text=True,
        env={"XDG_RUNTIME_DIR": str(tmp_path), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("name", SYSTEM_UNITS)
def test_settings_fit_their_unit(name: str, tmp_path: Path) -> None:
    """The settings load, even with their examples enabled, and use the unit's directory and credentials."""
    text = (SYSTEMD / SETTINGS[name]).read_text()
    path = tmp_path / "settings.toml"
    for variant in (text, re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE)):
        path.write_text(variant)
        config = load_config(path, env={})
        assert Path("/var/lib") / service(name)["StateDirectory"] == config.data_dir
    identity = service(name)["LoadCredential"].partition(":")[0]
    secrets = re.findall(r'"(/run/.+)"', text)
    assert secrets
    assert set() == {each for each in secrets if not each.startswith(f"/run/credentials/{name}/{identity}_")}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become other users")
def test_the_probe_needs_no_more_rights_than_its_unit_has(tmp_path: Path) -> None:
    """With the unit's capabilities alone, the probe reads the agent's private directory, and writes into it."""
    capabilities = service("tollhouse-agent-probe.service")["CapabilityBoundingSet"].lower().split()
    bounding = ",".join(["-all", *(name.replace("cap_", "+") for name in capabilities)])
    parent, data = tmp_path / "private", tmp_path / "private/agent"
    data.mkdir(parents=True)
    parent.chmod(0o700)
    data.chmod(0o700)
    (data / "link.json").write_text('{"url": "http://127.0.0.1:1"}')
    (data / "link.json").chmod(0o600)
    for path in (data, data / "link.json"):
        os.chown(path, 54321, 54321)
    (tmp_path / "agent.toml").write_text(f'data_dir = "{data}"\n')
    command = [
        "setpriv",
        f"--bounding-set={bounding}",
        "--no-new-privs",
        str(COMMAND),
        "agent",
        "probe",
        "--config",
    ]
    done = subprocess.run([*command, tmp_path / "agent.toml"], capture_output=True, text=True, timeout=60)
    assert (0, "") == (done.returncode, done.stderr)
    assert 54321 == (data / "states.json").stat().st_uid


def test_the_gateway_starts_by_the_command_of_its_unit(installations: Any) -> None:
    """The command of ExecStart starts a server with the settings next to the unit."""
    text = (SYSTEMD / "tollhouse.toml").read_text()
    one = installations(
        config=re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:0", text).replace("/var/lib/tollhouse", "data")
    )
    words = service("tollhouse.service")["ExecStart"].split()
    assert ["tollhouse", "serve", "--config", "/etc/tollhouse/tollhouse.toml"] == words
    assert one.start().startswith("http://127.0.0.1:")
    one.stop()

"""`tollhouse agent probe` and `status` with the installed command."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import agent_probe
from gateway.configuration.reader import load_config
from tests.acceptance.conftest import ROOT, Tollhouse, installations

__all__ = ["installations"]

CODEX = '[otel.exporter.otlp-http]\nendpoint = "http://127.0.0.1:4318/v1/logs"\nprotocol = "binary"\n'


@pytest.fixture
def laptop(installations: Any, monkeypatch: pytest.MonkeyPatch) -> Tollhouse:
    """Make the data directory of an agent that does not run, and a home with Codex."""
    made: Tollhouse = installations(config='[server]\nlisten = "127.0.0.1:1"\n')
    home = made.directory / "home"
    monkeypatch.setenv("HOME", str(home))
    (home / ".codex").mkdir(parents=True)
    (home / ".codex/config.toml").write_text(CODEX.replace("4318", "1"))
    made.data.mkdir(exist_ok=True)
    return made


def test_the_file_of_states(laptop: Tollhouse) -> None:
    """`tollhouse agent probe` stores what it prints, in a file that only the owner of the directory can read."""
    if os.geteuid() == 0:
        laptop.data.chmod(0o700)
        os.chown(laptop.data, 54321, 54321)
    assert "ASSISTANT" in laptop.run("agent", "probe")
    printed = laptop.json("agent", "probe")
    file = laptop.data / "states.json"
    stored = json.loads(file.read_text())
    assert set(printed) == set(stored)
    assert {"looked_at", "os", "assistants"} <= set(stored)
    assert len(stored["assistants"]) == 6
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)
    assert laptop.data.stat().st_uid == file.stat().st_uid
    assert [] == list(laptop.data.glob("*.new"))
    assert str(laptop.directory) not in file.read_text()


def test_no_agent_yet(laptop: Tollhouse, tmp_path: Path) -> None:
    """Without the agent's directory, the states are printed and not stored."""
    missing = tmp_path / "missing"
    assert "ASSISTANT" in laptop.run("agent", "probe", "--data", str(missing))
    assert not missing.exists()


def test_a_word_that_heartbeats_cannot_state(laptop: Tollhouse) -> None:
    with (laptop.directory / "tollhouse.toml").open("a") as file:
        file.write('[agent]\nreport = ["use", "prompts"]\n')
    found = laptop.attempt("agent", "probe")
    assert 2 == found.returncode
    assert "agent.report may have user, use, serial, endpoint" in found.stderr


def test_a_link_in_the_place_of_the_file(laptop: Tollhouse, tmp_path: Path) -> None:
    """
    If the owner of the agent's directory puts a link in place of the probe's file, root replaces the link and does
    not write to its target.
    """
    victim = tmp_path / "victim"
    victim.write_text("as before")
    for name in ("states.json", "states.json.new"):
        (laptop.data / name).symlink_to(victim)
    laptop.run("agent", "probe")
    assert "as before" == victim.read_text()
    assert not (laptop.data / "states.json").is_symlink()


def test_the_states_for_an_mdm(laptop: Tollhouse) -> None:
    """
    For Jamf, the command prints the state between tags. For Intune, it prints one line and sets the exit code.
    """
    states = {name: row["state"] for name, row in laptop.json("agent", "probe")["assistants"].items()}
    rows = {row["assistant"]: row for row in laptop.json("agent", "status")["assistants"]}
    assert states == {name: row["state"] for name, row in rows.items()}
    for name, row in rows.items():
        cause = f" ({row['cause']})" if row["cause"] else ""
        assert f"<result>{row['state']}{cause}</result>\n" == laptop.run("agent", "status", "--jamf", name)
    done = laptop.attempt("agent", "status", "--intune")
    fine = set(states.values()) <= {"reporting", "unused", "not_installed"}
    assert (0 if fine else 1) == done.returncode
    assert 1 == done.stdout.count("\n")
    assert 2 == laptop.attempt("agent", "status", "--intune", "--json").returncode


def test_the_probe_starts_with_few_modules(laptop: Tollhouse) -> None:
    """The probe runs every five minutes on each laptop, so it imports no server and no rules of other settings."""
    program = (
        "import sys; from gateway.cli import main\n"
        f"try: main(['agent', 'probe', '--config', {str(laptop.config)!r}])\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    laptop.config.write_text('data_dir = "data"\n')
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=laptop.directory, capture_output=True, text=True, check=True
    )
    modules = set(done.stderr.split())
    assert "gateway.devices.agent.probe.look" in modules
    unwanted = ("asyncio", "aiohttp", "sqlite3", "cryptography", "plistlib", "gateway.configuration.sections")
    assert [] == [name for name in unwanted if name in modules]


@pytest.mark.parametrize(
    "text",
    [
        'data_dir = "d"',
        'data_dir = "/var/lib/x"\n[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = ""',
        'data_dir = "d"\n[agent]\ngateway = "https://g.example.com"\nreport = ["serial"]\n[agent.labels]\nteam = "a"',
        (ROOT / "deploy/systemd/agent.toml").read_text(),
    ],
)
def test_a_usual_file_is_read_as_all_settings_are(tmp_path: Path, text: str) -> None:
    """
    The probe reads only a few settings of the agent's file. It gets the same values as a reader of all settings,
    also for settings that the file leaves out.
    """
    (tmp_path / "agent.toml").write_text(text)
    whole = load_config(tmp_path / "agent.toml", env={})
    expected = (
        whole.data_dir,
        whole.server.listen,
        whole.server.grpc_listen,
        whole.agent.gateway,
        whole.agent.report,
    )
    assert expected == agent_probe.read_probe_settings(tmp_path / "agent.toml", None, env={})
    assert (
        tmp_path / "other"
        == agent_probe.read_probe_settings(tmp_path / "agent.toml", tmp_path / "other", env={}).data_dir
    )

"""The files between agent and probe, and the numbers of heartbeats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.devices.agent.link import (
    HEARTBEATS_FILE,
    MOST_BYTES,
    PROBE_STALE_S,
    STATES_FILE,
    HeartbeatNumbers,
    LinkFile,
    ProbedAssistantStates,
    resident_memory,
    service_manager_kind,
)
from gateway.devices.fleet.heartbeat_facts import valid_facts

STATES: dict[str, Any] = {
    "looked_at": "2026-11-27T20:00:00.000Z",
    "os": "debian 12",
    "hardware_id": "ab" * 32,
    "policy": {"sha256": "cd" * 32},
    "assistants": {"codex": {"state": "unused", "configured": True, "used_at": "2026-11-27T20:00:00.000Z"}},
}


def store(directory: Path, states: object) -> None:
    draft = directory / "draft"
    draft.write_text(states if isinstance(states, str) else json.dumps(states))
    draft.replace(directory / STATES_FILE)


def test_heartbeats_include_only_known_fields_of_the_probe(tmp_path: Path) -> None:
    probed = ProbedAssistantStates(tmp_path)
    assert {} == probed.probed_fields()
    store(tmp_path, {**STATES, "prompt": "hello", "labels": {"team": "x"}, "device_id": "other"})
    assert {"os", "hardware_id", "policy", "assistants"} == set(probed.probed_fields())
    (tmp_path / STATES_FILE).unlink()
    assert {} == probed.probed_fields()


@pytest.mark.parametrize("text", ["", "{", "[]", "[" * 100_000, '{"os": "' + "x" * MOST_BYTES + '"}'])
def test_a_damaged_file_of_states(tmp_path: Path, text: str) -> None:
    store(tmp_path, text)
    probed = ProbedAssistantStates(tmp_path)
    assert {} == probed.probed_fields()
    assert probed.states_to_compare() == ProbedAssistantStates(tmp_path / "missing").states_to_compare()


def test_the_version_of_the_states(tmp_path: Path) -> None:
    """
    The digest of a probe's result changes with a state, a cause, a version or the policy, and not with a use or
    another look.
    """
    probed = ProbedAssistantStates(tmp_path)

    def version(**codex: object) -> object:
        store(tmp_path, {**STATES, "assistants": {"codex": {**STATES["assistants"]["codex"], **codex}}})
        return probed.states_to_compare()

    before = version()
    assert before == version(used_at="2026-11-27T21:00:00.000Z")
    versions = [version(state="unreachable"), version(cause="tls"), version(version="0.170.0")]
    store(tmp_path, {**STATES, "policy": {}})
    versions.append(probed.states_to_compare())
    assert before not in versions
    store(tmp_path, {**STATES, "assistants": [1]})
    assert ([], STATES["policy"], STATES["hardware_id"]) == probed.states_to_compare()


def test_states_age_while_the_machine_is_awake(tmp_path: Path) -> None:
    """
    A dead probe makes a state unknown. Its use stays, so that a use that waited for its call is no loss. The next look
    ends this.
    """
    now = 0.0
    probed = ProbedAssistantStates(tmp_path, monotonic=lambda: now)
    missing = {"claude-code": {"state": "not_installed", "configured": False}}
    waiting = {"codex": {**STATES["assistants"]["codex"], "use": "waiting"}}
    states = {**STATES, "assistants": {**waiting, **missing, "broken": 1}}
    store(tmp_path, states)
    good = probed.probed_fields()
    assert states["assistants"] == good["assistants"]
    version = probed.states_to_compare()
    now = PROBE_STALE_S
    assert good == probed.probed_fields()
    now += 1
    stale = {"codex": {"state": "unknown", "cause": "probe_stale", "use": "waiting"}, **missing}
    assert {**good, "assistants": stale} == probed.probed_fields() == read_known(probed)
    assert version != probed.states_to_compare()
    store(tmp_path, states)
    assert good == probed.probed_fields()
    again = ProbedAssistantStates(tmp_path, monotonic=lambda: now)
    assert good == again.probed_fields()  # a restart of the agent makes nothing unknown


def read_known(probed: ProbedAssistantStates) -> dict[str, Any]:
    """Return the fields with the assistants as a gateway reads them."""
    fields = dict(probed.probed_fields())
    return {**fields, "assistants": valid_facts(fields)["assistants"]}


def test_numbers_of_heartbeats(tmp_path: Path) -> None:
    """The number of a heartbeat, and its word, are stored before they are used. After a restart, both continue."""
    numbers = HeartbeatNumbers(tmp_path)
    assert {"seq": 1} == numbers.number_next_heartbeat()
    numbers.store_heartbeat_token("1.abc")
    assert {"seq": 1, "next": "1.abc"} == json.loads((tmp_path / HEARTBEATS_FILE).read_text())
    assert {"seq": 2, "next": "1.abc"} == HeartbeatNumbers(tmp_path).number_next_heartbeat()
    assert 0o600 == (tmp_path / HEARTBEATS_FILE).stat().st_mode & 0o777
    numbers.store_heartbeat_token("x" * 257)
    assert "1.abc" == numbers.number_next_heartbeat()["next"]
    (tmp_path / HEARTBEATS_FILE).write_text("{")
    assert {"seq": 1} == HeartbeatNumbers(tmp_path).number_next_heartbeat()


def test_the_file_of_the_link_is_written_when_it_changes(tmp_path: Path) -> None:
    file = LinkFile(tmp_path)
    file.write_if_changed(forward="", oldest_at=None)
    inode = (tmp_path / "link.json").stat().st_ino
    file.write_if_changed(forward="", oldest_at=None)
    assert inode == (tmp_path / "link.json").stat().st_ino
    file.write_if_changed(forward="tls", oldest_at=None)
    assert "tls" == json.loads((tmp_path / "link.json").read_text())["forward"]


def test_how_the_agent_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("INVOCATION_ID", "MANAGERPID"):
        monkeypatch.delenv(name, raising=False)
    assert "manual" == service_manager_kind()
    monkeypatch.setenv("INVOCATION_ID", "1")
    assert "daemon" == service_manager_kind()
    monkeypatch.setenv("MANAGERPID", "1")
    assert "user" == service_manager_kind()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux states memory in a file")
def test_resident_memory() -> None:
    assert 1 < resident_memory()["rss_mib"] < 4096

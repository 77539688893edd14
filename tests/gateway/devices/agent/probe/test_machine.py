"""The facts of the real machine: the agent's port and files, processes, the hardware's ids."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from gateway.devices.agent.policy.targets import MANAGED
from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.probe.machine import (
    HARDWARE_PREFIX,
    Processes,
    hashed_hardware_id,
    machine_identity_fields,
    probe_machine,
    user_at_screen,
)
from gateway.devices.agent.probe.places import PLACES
from gateway.devices.agent.probe.telemetry import READERS
from gateway.devices.agent.sessions import PROGRAMS_BY_NAME
from gateway.devices.fleet.heartbeat_facts import hash_serial
from tests.gateway.devices.agent.probe.trees import SESSIONS, heard, key_of

UUID = "4c4c4544-0043-3010-8052-b4c04f564231"


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Answer one connection with these bytes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        thread.join()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the home of a user who used Codex an hour ago."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("gateway.devices.agent.probe.machine.os.geteuid", lambda: 1000)
    session = tmp_path / "home" / SESSIONS["codex"]
    session.parent.mkdir(parents=True)
    session.write_text("a prompt" * 640)
    os.utime(session, (time.time() - 3600,) * 2)
    (tmp_path / "data").mkdir()
    return tmp_path / "home"


def state(home: Path, listen: str) -> tuple[str, str]:
    """Return the state of Codex, if earlier looks saw four uses without a call in the hour before."""
    endpoint = f"http://{listen}/v1/logs"
    (home / ".codex/config.toml").write_text(f'[otel.exporter.otlp-http]\nendpoint = "{endpoint}"\n')
    data, before = home.parent / "data", time.time() - 7200
    uses = [[key_of("codex"), before + 400 * number, 400.0 * number] for number in range(4)]
    memory = {"setting": "configured", "used": before, "looked": before + 1300, "awake": 5000, "open": uses}
    (data / "uses.json").write_text(json.dumps({"codex 1000": memory}))
    looked = probe_machine(data, ours=[f"http://{listen}"], report=("use",), now=time.time(), listen=listen)
    row = looked.found["assistants"]["codex"]
    return row["state"], row.get("cause", "")


def test_the_port_of_the_agent(home: Path) -> None:
    with answering(b"") as listen:
        assert ("unreachable", "port_taken") == state(home, listen)
    assert ("unreachable", "agent_down") == state(home, listen)
    with answering(b"HTTP/1.1 200 OK\r\n\r\n<html>") as listen:
        assert ("unreachable", "port_taken") == state(home, listen)
    with answering(b"SSH-2.0-OpenSSH_9.2\r\n") as listen:
        assert ("unreachable", "port_taken") == state(home, listen)
    with answering(b'HTTP/1.1 200 OK\r\n\r\n{"live":true}') as listen:
        assert ("unreachable", "") == state(home, listen)


def test_the_files_of_the_agent(home: Path) -> None:
    """The probe reads the newest calls and the state of the forwarding, whatever their types are."""
    data = home.parent / "data"
    answer = b'HTTP/1.1 200 OK\r\n\r\n{"live":true}'
    calls = {"sessions": heard("codex", time.time() - 3600)}
    (data / "heard.json").write_bytes(msgspec.json.encode(calls))
    with answering(answer) as listen:
        assert ("reporting", "") == state(home, listen)
    (data / "link.json").write_text(json.dumps({"forward": "tls", "oldest_at": time.time() - 7200}))
    with answering(answer) as listen:
        assert ("unreachable", "tls") == state(home, listen)
    for text in ("[]", "{", '{"codex": []}', '{"codex": "x", "oldest_at": "x", "url": 1}'):
        for name in ("link.json", "heard.json"):
            (data / name).write_text(text)
        with answering(answer) as listen:
            assert ("unreachable", "") == state(home, listen)


@pytest.mark.parametrize("text", ["[]", "{", '{"codex 1000": {"open": "x"}}', '{"codex 1000": 1}'])
def test_a_damaged_memory_is_none(home: Path, text: str) -> None:
    """Without a memory, the first look finds no loss. It remembers the setting and the use."""
    data = home.parent / "data"
    (data / "uses.json").write_text(text)
    looked = probe_machine(data, ours=[], report=("use",), now=time.time(), listen="127.0.0.1:9")
    assert "not_configured" == looked.found["assistants"]["codex"]["state"]
    memory = looked.memories["codex 1000"]
    assert ("not_configured", None, False) == (memory.setting, memory.unheard, memory.is_losing)
    assert memory.used is not None


def test_processes(tmp_path: Path) -> None:
    """
    The probe finds a running program as the command itself or as the script of an interpreter, and never in later
    words of the command line.
    """
    ticks = os.sysconf("SC_CLK_TCK")
    (tmp_path / "stat").write_text("cpu 1 2\nbtime 1000\n")
    commands = {
        "7": (b"/opt/codex/codex\0exec\0", 50),
        "8": (b"node\0/usr/bin/gemini\0-p\0qwen\0", 60),
        "9": (b"codex\0", 40),
        "10": (b"", 1),
    }
    for pid, (command, seconds) in commands.items():
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cmdline").write_bytes(command)
        fields = " ".join(["S", *["0"] * 18, str(seconds * ticks), "0"])
        (tmp_path / pid / "stat").write_text(f"{pid} (a) b) {fields}\n")
    (tmp_path / "11").mkdir()  # ended meanwhile
    found = Processes(tmp_path)
    user = os.getuid()
    assert 1040 == found.started_at("codex", user)
    assert 1060 == found.started_at("gemini", user)
    assert found.started_at("qwen", user) is None
    assert found.started_at("codex", user + 1) is None
    assert found.started_at("codex", None) is None
    assert Processes(tmp_path / "missing").started_at("codex", user) is None


def test_this_process_is_found() -> None:
    program = Path("/proc/self/cmdline").read_bytes().split(b"\0")[0].rpartition(b"/")[2].decode()
    begin = Processes().started_at(program, os.geteuid())
    assert begin is not None
    assert begin <= time.time()


def test_hardware_ids() -> None:
    """The hardware id is a hash, and is equal for all ways to write the UUID. Placeholder UUIDs have no id."""
    assert sha256(HARDWARE_PREFIX + UUID.encode()).hexdigest() == hashed_hardware_id(UUID)
    assert hashed_hardware_id(UUID) == hashed_hardware_id(f" {UUID.upper()}\n")
    for placeholder in (
        "",
        "00000000-0000-0000-0000-000000000000",
        "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
        "03000200-0400-0500-0006-000700080009",
        "Not Specified",
    ):
        assert "" == hashed_hardware_id(placeholder)


def test_the_serial_number_is_stated_only_if_it_may_be(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/virtual/dmi/id"
    folder.mkdir(parents=True)
    (folder / "product_uuid").write_text(UUID + "\n")
    (folder / "product_serial").write_text("C02XL0THJGH5\n")
    place = GuardedFolder(tmp_path)
    found = machine_identity_fields(place, ("user", "use"))
    assert {"os", "hardware_id", "serial_hash"} == set(found)
    assert hash_serial(" c02xl0thjgh5") == found["serial_hash"]
    assert "C02XL0THJGH5" == machine_identity_fields(place, ("serial",))["serial"]
    (folder / "product_serial").write_text("To be filled by O.E.M.\n")
    assert {"os", "hardware_id"} == set(machine_identity_fields(place, ("serial",)))


def test_every_program_of_the_policy_has_places() -> None:
    assert set(PROGRAMS_BY_NAME) == set(PLACES) == set(READERS)
    assert set(MANAGED) == {program.assistant for program in PROGRAMS_BY_NAME.values()}


def test_the_person_at_the_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    logind names the active account of a machine. A greeter, an unknown account and an unreadable file count as
    nobody.
    """
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {1000: SimpleNamespace(pw_name="ada")}[uid])
    seat = tmp_path / "run/systemd/seats/seat0"
    assert "" == user_at_screen(GuardedFolder(tmp_path))
    seat.parent.mkdir(parents=True)
    for text, user in (
        ("ACTIVE=c2\nACTIVE_UID=1000\nUIDS=1000 115\n", "ada"),
        ("ACTIVE=c1\nACTIVE_UID=115\n", ""),
        ("ACTIVE_UID=1001\n", ""),
        ("IS_SEAT0=1\nCAN_GRAPHICAL=1\n", ""),
        (f"ACTIVE_UID={10**40}\n", ""),
    ):
        seat.write_text(text)
        assert user == user_at_screen(GuardedFolder(tmp_path)), text

"""`tollhouse drill`: its measurements, and the data that it never touches."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.cli.drill import command as drill_command
from gateway.cli.drill import server as drill_server
from gateway.cli.drill.command import DrillEnvironment
from gateway.cli.drill.server import DrillServer, drill_config
from gateway.cli.drill.surroundings import (
    DrillReceiver,
    DrillTraffic,
    PowerCutDisk,
    PowerCutFailed,
    build_drill_request,
)
from gateway.configuration.reader import load_config
from tests.processes.copied import Process, start_process
from tests.rounds import reduced
from tests.waiting import wait_until

CONFIG = """
data_dir = "data"
[server]
listen = "0.0.0.0:{port}"
grpc_listen = ""
[spool]
hold = "50ms"
[upstream]
base_url = "http://127.0.0.1:{port}"
connection_id = "billing"
[[upstream.keys]]
name = "telemetry"
secret_env = "DRILL_UPSTREAM_KEY"
use_cases = ["Send AI Telemetry"]
[[destinations]]
name = "archive"
type = "ndjson"
path = "records.ndjson"
"""


@pytest.fixture
def copied_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let the servers under test be copies of a process that has imported everything. A copy is no child of this process,
    so its stop is seen in /proc.
    """

    def copy(command: list[str], **_: object) -> Process:
        return start_process(command, cwd=Path.cwd(), is_read=True)

    def suspend(server: DrillServer) -> None:
        os.kill(server.pid, signal.SIGSTOP)
        wait_until(lambda: thread_states(server.pid) == {"T"}, "the server is stopped")

    names = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "TimeoutExpired")}
    monkeypatch.setattr(drill_server, "subprocess", SimpleNamespace(Popen=copy, **names))
    monkeypatch.setattr(DrillServer, "suspend_process", suspend)


def thread_states(pid: int) -> set[str]:
    return {each.read_text().rpartition(") ")[2][0] for each in Path(f"/proc/{pid}/task").glob("*/stat")}


@pytest.fixture
def states_at_cuts(monkeypatch: pytest.MonkeyPatch) -> list[set[str]]:
    """Return a list that receives the states of the server's threads at each power cut."""
    states: list[set[str]] = []
    pids: list[int] = []

    start, cut_power = DrillServer.start, PowerCutDisk.cut_power

    def start_seen(server: DrillServer) -> None:
        start(server)
        pids.append(server.pid)

    def cut_power_seen(disk: PowerCutDisk) -> None:
        states.append(thread_states(pids[-1]))
        cut_power(disk)

    monkeypatch.setattr(DrillServer, "start", start_seen)
    monkeypatch.setattr(PowerCutDisk, "cut_power", cut_power_seen)
    return states


@pytest.mark.usefixtures("copied_servers")
def test_a_drill_measures_and_touches_nothing_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Every fault is survived. The data directory and the archive do not change, and no request reaches the upstream.
    """
    for name, value in (("KILLS", 1), ("CUTS", 1), ("OUTAGE_S", 0.5), ("FULL_S", 0.5)):
        monkeypatch.setattr(drill_command, name, value)
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "spool.sqlite").write_bytes(b"not for a drill")
    with socket.create_server(("127.0.0.1", 0)) as upstream:
        upstream.settimeout(0.1)
        config = tmp_path / "tollhouse.toml"
        config.write_text(CONFIG.format(port=upstream.getsockname()[1]))
        ran = CliRunner().invoke(main, ["drill", "--config", str(config), "--json"])
        with pytest.raises(TimeoutError):
            upstream.accept()
    assert 0 == ran.exit_code, ran.output
    drilled = json.loads(ran.stdout)["drill"]
    rows = {row["fault"]: row for row in drilled["faults"]}
    assert drilled["passed"]
    assert {"kill -9", "power cut", "full disk", "cost service outage", "poison record"} == set(rows)
    for fault in ("kill -9", "full disk", "cost service outage", "poison record"):
        row = rows[fault]
        assert row["lost"] == 0, row
        assert row["duplicates"] == 0, row
        assert row["acknowledged"], row
        assert row["recovery_s"] is not None
    assert {"data", "tollhouse.toml"} == {path.name for path in tmp_path.iterdir()}
    assert b"not for a drill" == (data / "spool.sqlite").read_bytes()


def test_configuration_copy_has_no_upstream_and_only_loopback_addresses(tmp_path: Path) -> None:
    """
    The copy has no upstream, no destination except the drill's, and only loopback addresses. Limits stay.
    """
    path = tmp_path / "tollhouse.toml"
    path.write_text(CONFIG.format(port=4318))
    copy = drill_config(
        load_config(path), scratch=tmp_path / "x", receiver="http://127.0.0.1:1/", listen="127.0.0.1:0"
    )
    assert copy.upstream.base_url == ""
    assert copy.upstream.keys == ()
    assert copy.upstream.connection_id == ""
    assert ["http://127.0.0.1:1/"] == [destination.url for destination in copy.destinations]
    assert copy.server.listen == "127.0.0.1:0"
    assert copy.server.grpc_listen == ""
    assert copy.spool.hold == 0.05
    assert copy.data_dir == tmp_path / "x" / "data"


@pytest.mark.usefixtures("flushed")
def test_power_cut_loses_only_unflushed_content(tmp_path: Path) -> None:
    """
    After a cut, the drill's file system still has a flushed file, and has lost the content of an unflushed one.
    """
    try:
        disk = PowerCutDisk(tmp_path)
    except PowerCutFailed as error:
        pytest.skip(str(error))
    try:
        for name, is_flushed in (("flushed", True), ("not flushed", False)):
            with (disk.directory / name).open("wb") as file:
                file.write(bytes(100))
                file.flush()
                if is_flushed:
                    os.fsync(file.fileno())
        disk.cut_power()
        disk.unmount()
        disk.mount()
        assert 100 == (disk.directory / "flushed").stat().st_size
        there = disk.directory / "not flushed"
        assert not there.exists() or 0 == there.stat().st_size
    finally:
        disk.unmount()


def test_a_cut_finds_the_server_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states_at_cuts: list[set[str]]
) -> None:
    """No thread of the server runs when the power is cut, so it acknowledges nothing that the cut loses."""
    cuts = reduced(3, by=3)
    monkeypatch.setattr(drill_command, "CUTS", cuts)
    receiver = DrillReceiver()
    server = DrillServer(None, scratch=tmp_path, receiver=receiver.url)
    site = DrillEnvironment(
        config=None,
        scratch=tmp_path,
        server=server,
        receiver=receiver,
        traffic=DrillTraffic(server),
        hold_s=0.0,
    )
    result = drill_command.run_power_cut_drill(site)
    receiver.close()
    if not result.rounds:
        pytest.skip(result.note)
    assert [{"T"}] * cuts == states_at_cuts
    assert result.has_passed, result


def test_losses_and_repeats_are_counted(tmp_path: Path) -> None:
    """
    An acknowledged record that never arrives is lost. A record that arrives under two keys is a duplicate.
    Under one key it is not.
    """
    receiver = DrillReceiver()
    server = DrillServer(None, scratch=tmp_path, receiver=receiver.url)
    site = DrillEnvironment(
        config=None,
        scratch=tmp_path,
        server=server,
        receiver=receiver,
        traffic=DrillTraffic(server),
        hold_s=0.0,
    )
    lost, once, again, twice = build_drill_request(4).names
    site.traffic.acknowledged.update((lost, once, again, twice))
    body = json.dumps({"records": [{"request_id": name} for name in (once, twice)]}).encode()
    other = json.dumps({"records": [{"request_id": name} for name in (again, twice)]}).encode()
    for sent, key in ((body, "1"), (body, "1"), (other, "2"), (other, "2")):
        assert 200 == receiver.receive_delivery(sent, key)
    result = site.fault_result("kill -9", set())
    assert result.acknowledged == 4
    assert result.lost == 1
    assert result.duplicates == 1
    assert result.has_passed is False
    receiver.close()

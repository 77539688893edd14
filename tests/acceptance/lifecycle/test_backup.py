"""A backup of a running installation, and the installation restored from it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.cli.drill.surroundings import DrillReceiver, DrillRequest, build_drill_request
from tests.acceptance.conftest import ARCHIVE, COMMAND, Tollhouse
from tests.acceptance.lifecycle.killed import killed, seconds_of
from tests.acceptance.lifecycle.load import load
from tests.acceptance.payloads import post, request, span
from tests.processes.copied import run_process
from tests.rounds import part
from tests.waiting import wait_until

Installations = Callable[..., Tollhouse]


def restored(one: Tollhouse, backup: Path, *more: str, code: int = 0) -> tuple[Tollhouse, str]:
    """Restore a backup into another installation; return it and the command's output."""
    other = Tollhouse(one.directory.with_name("other"), one.config.read_text())
    done = other.attempt("restore", str(backup), "--no-erasures", *more)
    assert code == done.returncode, done.stdout + done.stderr
    return other, done.stdout + done.stderr


def send(one: Tollhouse, key: str, count: int, first: int = 0) -> None:
    spans = [
        span(f"chatcmpl-{number:020}", start_ns=time.time_ns()) for number in range(first, first + count)
    ]
    assert 200 == post(one.url, request(spans), key).status


def test_a_backup_under_load_is_whole(installations: Installations) -> None:
    """
    A backup under load has everything acknowledged before it started. Its accounting balances, the ledger
    agrees, keys work, and its files are private.
    """
    one = installations()
    key = one.key("load")
    url = one.start()
    backup = one.directory / "backup"
    with load(url, key, connections=2) as tally:
        wait_until(lambda: tally.acknowledged > 30, "some load")
        before = tally.records
        assert "backed up to" in one.run("backup", str(backup))
        wait_until(lambda: tally.records > before, "more load")
    assert {} == dict(tally.failed)
    assert {0o700} == {backup.stat().st_mode & 0o777}
    assert {0o600} == {path.stat().st_mode & 0o777 for path in backup.iterdir()}
    held = json.loads((backup / "manifest.json").read_text())["records"]["ai-telemetry"]
    one.stop()
    other, _ = restored(one, backup, "--queued", "hold")
    assert {0o700} == {(other.directory / "tollhouse-data").stat().st_mode & 0o777}
    books = other.json("spool", "verify")
    kept = books["topics"]["ai-telemetry"]["accepted"]
    assert books["balanced"]
    assert held <= kept and before <= kept <= tally.records
    try:
        other.start()
        send(other, key, 1, first=10**6)
        (total,) = other.json("report", "--from", "2020-01-01")["rows"]
        assert kept + 1 == total["calls"]
    finally:
        other.stop()


UNREACHABLE = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
[upstream]
base_url = "http://127.0.0.1:1"
[[upstream.keys]]
name = "telemetry"
secret_env = "NOBODY_ASKS_FOR_IT"
use_cases = ["Send AI Telemetry"]
"""


def test_what_waited_is_not_sent_twice_in_silence(installations: Installations) -> None:
    """
    Without --queued nothing is restored. With `hold` the records wait for a decision. With `resend`,
    unfinished deliveries retain their idempotency keys.
    """
    one = installations(config=UNREACHABLE)
    key = one.key("sender")
    one.start(env={"NOBODY_ASKS_FOR_IT": "a-secret-of-the-upstream"})
    send(one, key, 3)
    wait_until(lambda: one.json("spool", "deliveries")["deliveries"], "a delivery was cut")
    backup = one.directory / "backup"
    one.run("backup", str(backup))
    one.stop()
    other, message = restored(one, backup, code=2)
    assert "upstream/ai-telemetry: 3 records" in message and "--queued" in message
    assert [] == [path for one in other.directory.glob("tollhouse-data*") for path in one.iterdir()]
    other, message = restored(one, backup, "--queued", "hold")
    assert "upstream/ai-telemetry: 3 records are held back" in message
    route = other.route("upstream/ai-telemetry")
    assert route["queued"] == 0
    assert route["unknown"] == 3
    assert other.json("spool", "verify")["balanced"]
    (unknown,) = other.json("streams", "list", "--unknown")["unknown"]
    assert ": may have been sent since" in unknown["reason"]
    shutil.rmtree(other.directory / "tollhouse-data")
    other, message = restored(one, backup, "--queued", "resend")
    route = other.route("upstream/ai-telemetry")
    assert route["queued"] == 3
    assert route["unknown"] == 0
    assert route["ambiguous"] == 3


WEBHOOK = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
[[destinations]]
name = "costs"
type = "webhook"
url = "{url}"
"""


@pytest.mark.proof
def test_a_call_repeated_after_a_restore_has_a_second_key(installations: Installations) -> None:
    """
    The page on backups warns of this: the receiver gets a call that arrived after the backup under two keys.
    A call of the backup arrives once.
    """
    receiver = DrillReceiver()
    one = installations(config=WEBHOOK.format(url=receiver.url))
    key = one.key("sender")
    one.start()
    before, after = build_drill_request(1), build_drill_request(1)

    def repeat(at: Tollhouse, calls: DrillRequest) -> None:
        assert 200 == post(at.url, calls.body, key).status

    repeat(one, before)
    wait_until(lambda: not receiver.names_not_received(set(before.names)), "the first call")
    wait_until(lambda: not one.route("costs/ai-telemetry")["queued"], "its delivery is settled")
    one.run("backup", str(one.directory / "backup"))
    repeat(one, after)
    wait_until(lambda: not receiver.names_not_received(set(after.names)), "the second call")
    one.stop()
    other, _ = restored(one, one.directory / "backup", "--queued", "hold")
    try:
        other.start()
        for calls in (before, after):
            repeat(other, calls)
        wait_until(lambda: receiver.names_received_twice(), "the second call, again")
        assert set(after.names) == receiver.names_received_twice()
    finally:
        other.stop()
        receiver.close()


def test_a_restore_follows_the_link_of_a_systemd_service(installations: Installations) -> None:
    """
    With DynamicUser, systemd makes the data directory a link. A restore keeps the link, and puts the data into its
    target.
    """
    one = installations()
    key = one.key("first")
    one.start()
    send(one, key, 3)
    backup = one.directory / "backup"
    one.run("backup", str(backup))
    one.stop()
    link = one.directory.with_name("other") / "tollhouse-data"
    behind = link.with_name("private") / "tollhouse"
    behind.mkdir(parents=True)
    link.symlink_to(behind)
    other, _ = restored(one, backup, "--queued", "hold")
    assert link.is_symlink()
    assert 3 == other.json("spool", "verify")["topics"]["ai-telemetry"]["accepted"]


def test_a_directory_in_use_and_a_damaged_backup_are_refused(installations: Installations) -> None:
    """
    A backup of a directory in use and a restore of a damaged backup are refused with exit code 2 or 1 and the
    reason. No files remain.
    """
    one = installations()
    one.key("sender")
    backup = one.directory / "backup"
    one.run("backup", str(backup))
    done = one.attempt("restore", str(backup), "--no-erasures")
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    done = one.attempt("backup", str(backup))
    assert done.returncode == 2
    assert "already exists" in done.stderr
    done = one.attempt("backup", str(one.directory / "no" / "backup"))
    assert done.returncode == 2
    assert "does not exist" in done.stderr
    with (backup / "spool.sqlite").open("r+b") as file:
        file.seek(5000)
        file.write(b"x")
    other, message = restored(one, backup, code=1)
    assert "spool.sqlite has changed since" in message
    (backup / "manifest.json").write_text("{}")
    _, message = restored(one, backup, code=1)
    assert "manifest.json is damaged" in message
    (backup / "manifest.json").unlink()
    _, message = restored(one, backup, code=2)
    assert "is not a backup" in message
    assert [] == [path for one in other.directory.glob("tollhouse-data*") for path in one.iterdir()]


@pytest.fixture(scope="module")
def whole_s(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Return the durations of a backup and of a restore that are not killed."""
    config = ARCHIVE.format(server="", hold="0s", more="")
    one, other = (Tollhouse(tmp_path_factory.mktemp(name), config) for name in ("one", "other"))
    one.key("sender")
    backup = str(one.directory / "backup")
    return [
        seconds_of("backup", backup, "--config", str(one.config)),
        seconds_of("restore", backup, "--no-erasures", "--config", str(other.config)),
    ]


@pytest.mark.parametrize("share", part([0.2, 0.5, 0.8, 1.05], every=4))
def test_a_kill_leaves_nothing_that_looks_whole(
    installations: Installations, whole_s: list[float], share: float
) -> None:
    """A killed backup or restore is either complete or absent, and the next attempt succeeds."""
    one = installations()
    one.key("sender")
    backup, other = (
        one.directory / "backup",
        Tollhouse(one.directory.with_name("other"), one.config.read_text()),
    )
    other.data.rmdir()  # the data directory must not exist until the restore is complete
    runs = (
        (["backup", str(backup), "--config", str(one.config)], backup),
        (
            ["restore", str(backup), "--no-erasures", "--config", str(other.config)],
            other.directory / "tollhouse-data",
        ),
    )
    for (words, made), took_s in zip(runs, whole_s, strict=True):
        killed(*words, delay_s=share * took_s)
        if not made.exists():
            assert 0 == run_process([str(COMMAND), *words], cwd=one.directory).returncode
        assert not made.with_name(f"{made.name}.unfinished").exists()
    assert ["sender"] == [row["name"] for row in other.json("keys", "list")["keys"]]
    assert other.json("spool", "verify")["balanced"]

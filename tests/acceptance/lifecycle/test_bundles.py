"""A backlog that is handed over from one data directory to another as a sealed file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import Tollhouse, wait_for
from tests.acceptance.lifecycle.killed import killed, seconds_of
from tests.acceptance.payloads import post, request, span

Installations = Callable[..., Tollhouse]
ROUTE = "upstream/ai-telemetry"
WITHOUT_ANSWER = """
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
[upstream]
base_url = "http://127.0.0.1:1"
"""
COUNT = 1200


@pytest.fixture
def leaving(installations: Installations) -> Tollhouse:
    """An installation with a backlog, stopped, and the key of the bundle beside it."""
    one = installations("leaving", config=WITHOUT_ANSWER)
    key = one.key("sender")
    one.start()
    for first in range(0, COUNT, 400):
        spans = [span(f"chatcmpl-{number:020}") for number in range(first, first + 400)]
        assert 200 == post(one.url, request(spans), key).status
    wait_for(lambda: one.route(ROUTE)["reason"], 60, "the route is parked: no key covers it")
    one.stop()
    (one.directory / "key").write_text("a passphrase of the two sites\n")
    return one


def start_and_be_refused(one: Tollhouse) -> None:
    """A parked route tries once when it starts, and what it has in hand is not handed over."""

    def attempts(deliveries: Sequence[dict[str, Any]]) -> int:
        return sum(delivery["attempts"] for delivery in deliveries)

    before = attempts(one.json("spool", "deliveries")["deliveries"])
    one.start()
    wait_for(
        lambda: attempts(one.asked("/deliveries")["deliveries"]) > before, 60, "the attempt of the start"
    )


def export(one: Tollhouse, *more: str, code: int = 0) -> Path:
    bundle = one.directory / "backlog.bundle"
    one.run("spool", "export", str(bundle), "--key-file", str(one.directory / "key"), *more, code=code)
    return bundle


def bring(other: Tollhouse, one: Tollhouse, bundle: Path) -> dict[str, Any]:
    words = ("spool", "import", str(bundle), "--key-file", str(one.directory / "key"))
    brought: dict[str, Any] = other.json(*words)["import"]
    return brought


@pytest.mark.parametrize("is_running", [False, True])
def test_a_backlog_is_delivered_once(
    installations: Installations, leaving: Tollhouse, is_running: bool
) -> None:
    """By the installation that imports it, however often it does; both books balance, and the first sends nothing."""
    if is_running:
        start_and_be_refused(leaving)
    bundle = export(leaving)
    assert 0o600 == bundle.stat().st_mode & 0o777
    books = leaving.json("spool", "verify")
    assert (True, COUNT) == (books["balanced"], books["routes"][ROUTE]["handed_over"])
    assert (0, 0) == (leaving.queued(ROUTE), leaving.route(ROUTE)["unknown"])
    other = installations("staying")
    if is_running:
        other.start()
    assert {"file": str(bundle), "added": COUNT, "known": 0} == bring(other, leaving, bundle)
    assert {"file": str(bundle), "added": 0, "known": COUNT} == bring(other, leaving, bundle)
    if not is_running:
        other.start()
    other.wait_until_drained()
    assert COUNT == len(other.records()) == len({record["id"] for record in other.records()})
    books = other.json("spool", "verify")
    assert (True, COUNT) == (books["balanced"], books["topics"]["ai-telemetry"]["accepted"])


def test_records_that_came_another_way_count_once(installations: Installations, leaving: Tollhouse) -> None:
    """A sender that repeated to the other installation what it had sent to the first."""
    other = installations("staying")
    key = other.key("sender")
    other.start()
    assert (
        200 == post(other.url, request([span(f"chatcmpl-{number:020}") for number in range(100)]), key).status
    )
    brought = bring(other, leaving, export(leaving))
    assert (COUNT - 100, 100) == (brought["added"], brought["known"])
    other.wait_until_drained()
    assert COUNT == len({record["id"] for record in other.records()}) == len(other.records())


def test_a_bundle_that_was_changed_brings_nothing(installations: Installations, leaving: Tollhouse) -> None:
    """One byte of it, its end cut off, or another key: exit 2, and the log is as it was."""
    bundle = export(leaving)
    other = installations("staying")
    whole = bundle.read_bytes()
    key = leaving.directory / "key"
    words = ("spool", "import", str(bundle), "--key-file", str(key))
    for changed in (
        whole[:-40],
        whole[:900] + bytes([whole[900] ^ 1]) + whole[901:],
        whole + b"x",
        b"",
        whole[:10],
    ):
        bundle.write_bytes(changed)
        assert 2 == other.attempt(*words).returncode
    bundle.write_bytes(whole)
    key.write_text("another passphrase")
    done = other.attempt(*words)
    assert (2, True) == (done.returncode, "the key does not open" in done.stderr)
    assert 0 == next(iter(other.json("spool", "status")["topics"]), {"accepted": 0})["accepted"]


def test_wrong_use_is_explained_and_hands_nothing_over(leaving: Tollhouse) -> None:
    """An existing file, a place that is not there, a short key, an unknown route, unit-cost operations."""
    key = leaving.directory / "key"
    (leaving.directory / "there").write_text("")
    for name, route, secret, told in (
        ("there", ROUTE, "long enough for it", "exists already"),
        ("no/where", ROUTE, "long enough for it", "cannot be written"),
        ("new", ROUTE, "short", "at least 12"),
        ("new", "upstream/nothing", "long enough for it", "no route named"),
        ("new", "upstream/unit-cost", "long enough for it", "unit-cost"),
    ):
        key.write_text(secret)
        words = ("spool", "export", str(leaving.directory / name), "--key-file", str(key), "--route", route)
        done = leaving.attempt(*words)
        assert (2, True) == (done.returncode, told in done.stderr), done.stderr
    assert (COUNT, 0) == (leaving.queued(ROUTE), leaving.route(ROUTE)["unknown"])


@pytest.mark.parametrize("share", [1.0, 1.2, 1.4])
def test_a_kill_loses_nothing_and_doubles_nothing(
    installations: Installations, leaving: Tollhouse, share: float
) -> None:
    """What an export that was killed held back is settled by hand; an import that was killed is repeated."""
    delay_s = share * seconds_of(
        "spool", "status", "--config", str(leaving.config)
    )  # as long as they take to begin
    bundle, key = leaving.directory / "backlog.bundle", str(leaving.directory / "key")
    killed(
        "spool", "export", str(bundle), "--key-file", key, "--config", str(leaving.config), delay_s=delay_s
    )
    if not bundle.exists():
        for row in leaving.json("streams", "list", "--unknown")["unknown"]:
            assert "handed over in bundle" in row["reason"]
            leaving.run("streams", "resolve", str(row["id"]), "unsent")
        export(leaving)
    other = installations("staying")
    killed("spool", "import", str(bundle), "--key-file", key, "--config", str(other.config), delay_s=delay_s)
    bring(other, leaving, bundle)
    other.start()
    other.wait_until_drained()
    assert COUNT == len(other.records()) == len({record["id"] for record in other.records()})
    assert leaving.json("spool", "verify")["balanced"] and other.json("spool", "verify")["balanced"]

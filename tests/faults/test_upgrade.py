"""Data directories of earlier versions: they open, drain and verify, also damaged and also when killed meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from gateway.configuration.sections import Config
from spool.devices.device import Device
from spool.record import AI_TELEMETRY
from spool.registry.keys import LEGACY_NAME
from spool.registry.operators import Actor
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.sqlite.migrations import MARK
from tests.acceptance.payloads import request, span
from tests.faults.damage import KINDS, Calls, config, drain, harm, running, start_and_kill, started
from tests.faults.scenarios import Trial

EARLIER = sorted((Path(__file__).parent / "earlier").glob("v*.tar.xz"))
CALLS = {f"chatcmpl-{number:04d}" for number in range(1, 25)}
LAST_USED = 1_790_000_000.5
pytestmark = pytest.mark.fault("F22")


def unpack(archive: Path, directory: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(directory, filter="data")
    return directory


async def drained(directory: Path) -> tuple[set[str], int, list[str]]:
    """What is archived, how many the books call damaged, and what is wrong with them."""
    async with running(directory) as app:
        storage = app.services.storage
        assert await drain(app)
        books = await storage.log.verify()
    archive = directory / "archive.ndjson"
    lines = archive.read_text().splitlines() if archive.exists() else []
    told = [line.partition('"request_id":"')[2].partition('"')[0] for line in lines]
    names = [name for name in told if name]  # records of other kinds have none
    assert len(names) == len(set(names))
    return set(names), books.topics.get(AI_TELEMETRY, {}).get("damaged", 0), list(books.imbalances)


@pytest.mark.parametrize("archive", EARLIER, ids=lambda path: path.name.partition(".")[0])
def test_an_earlier_directory_opens_drains_and_verifies(archive: Path, trial: Trial, tmp_path: Path) -> None:
    """Every call once; a call that it knew is recognised when it comes again."""
    directory = unpack(archive, tmp_path / "data")
    for _ in trial.rounds(short=1, full=1):
        assert (CALLS, 0, []) == asyncio.run(drained(directory))
        assert (0, 24) == asyncio.run(_send_again(directory))
        trial.count(acknowledged=len(CALLS))


def test_devices_of_an_earlier_directory_are_there(trial: Trial, tmp_path: Path) -> None:
    """With the values that later columns begin with."""
    directory = unpack(EARLIER[-1].with_name("v8.tar.xz"), tmp_path / "data")
    for _ in trial.rounds(short=1, full=1):
        [device] = asyncio.run(_devices(directory))
        assert ("laptop-1", "linux", 0, "") == (
            device.id,
            device.platform,
            device.reset_version,
            device.revoked_by,
        )


@pytest.mark.parametrize("version", [1, 8, 14])
def test_the_key_of_a_file_stays_in_use(version: int, trial: Trial, tmp_path: Path) -> None:
    """
    No request of it is refused by the upgrade; it becomes a key with the last use of before, and a disabled
    one stays disabled.
    """
    directory = unpack(EARLIER[0].with_name(f"v{version}.tar.xz"), tmp_path / "data")
    connection = sqlite3.connect(directory / "registry.sqlite")
    used = ("legacy_last_accessed", repr(LAST_USED))  # as those versions kept it
    connection.execute("INSERT INTO facts (name, value) VALUES (?, ?)", used)
    connection.commit()
    connection.close()
    for _ in trial.rounds(short=1, full=1):
        upgraded = config(directory, archive=False)
        assert (LAST_USED, [200, 200, 200, 401]) == asyncio.run(key_in_use(upgraded))
        assert [401] * 3 == asyncio.run(key_in_use(upgraded))[1][:3]
        trial.count(acknowledged=3)


async def key_in_use(upgraded: Config) -> tuple[float | None, list[int]]:
    """When it was used last, the answers to three calls, and to one after it was disabled."""
    file = upgraded.data_dir.parent / "key"
    file.write_text("a-key-in-use")
    calls, sent = Calls("a-key-in-use"), request([span("chatcmpl-in-use", tokens=1)])
    async with started(upgraded, api_key_file=file) as app:
        used = app.services.operators.senders.access.key(LEGACY_NAME).last_accessed
        registry = app.services.storage.registry
        assert registry is not None
        statuses = [await calls.post(app, sent) for _ in range(3)]
        await registry.keys.disable(LEGACY_NAME, actor=Actor("tests", "local"))
        return used, [*statuses, await calls.post(app, sent)]


async def _devices(directory: Path) -> list[Device]:
    async with running(directory) as app:
        return app.services.storage.devices.all()


async def _send_again(directory: Path) -> tuple[int, int]:
    """How many calls are new and how many are duplicates when every call comes again."""
    async with running(directory) as app:
        registry, log = app.services.storage.registry, app.services.storage.log
        assert registry is not None
        _, key = await registry.keys.create(
            name="again", use_cases=[SEND_AI_TELEMETRY], actor=Actor("tests", "local")
        )
        before = (await log.books()).topics[AI_TELEMETRY]
        for number, name in enumerate(sorted(CALLS), start=1):
            again = span(name, tokens=100 + number, start_ns=(1_790_000_000 + number) * 10**9)
            again |= {"traceId": f"{number:032x}", "spanId": f"{number:016x}"}
            assert 200 == await Calls(key).post(app, request([again]))
        after = (await log.books()).topics[AI_TELEMETRY]
    return after["accepted"] - before["accepted"], after["duplicates"] - before["duplicates"]


def test_an_earlier_directory_that_is_damaged_starts(trial: Trial, tmp_path: Path) -> None:
    """Damage and upgrade in one start: what is readable is delivered, the rest counted."""
    for place, rng in enumerate(trial.rounds(short=5, full=300)):
        directory = unpack(rng.choice(EARLIER), tmp_path / f"data-{place}")
        print(harm(directory, rng, KINDS))
        found, damaged, wrong = asyncio.run(drained(directory))
        assert [] == wrong
        assert found <= CALLS
        trial.count(acknowledged=len(CALLS))
        print(f"{len(found)} delivered, {damaged} damaged")


def test_a_kill_during_the_upgrade_is_harmless(trial: Trial, tmp_path: Path) -> None:
    """Killed at any moment of the first starts on it, it opens as if nothing had been."""
    for place, rng in enumerate(trial.rounds(short=1, full=40)):
        directory = unpack(rng.choice(EARLIER), tmp_path / f"data-{place}")
        for _ in range(3):
            start_and_kill(directory, share=rng.uniform(0.2, 1.2))
        assert (CALLS, 0, []) == asyncio.run(drained(directory))
        trial.count(acknowledged=len(CALLS))


@pytest.mark.parametrize("file", ["spool.sqlite", "registry.sqlite", "ledger.sqlite"])
def test_a_downgrade_refuses_with_words(file: str, trial: Trial, tmp_path: Path) -> None:
    """A file of a newer version is left as it is, and the message says what to do."""
    for _ in trial.rounds(short=1, full=1):
        directory = unpack(EARLIER[-1], tmp_path / "data")
        asyncio.run(drained(directory))
        connection = sqlite3.connect(directory / file)
        connection.execute("PRAGMA user_version = 99")
        connection.execute(f"PRAGMA application_id = {MARK + 99}")
        connection.close()
        done = subprocess.run(
            [sys.executable, "-m", "gateway", "serve", "--data", str(directory), "--listen", "127.0.0.1:0"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert 2 == done.returncode
        assert "newer Tollhouse (version 99" in done.stderr
        assert "upgrade, or restore a backup" in done.stderr
        assert not list(directory.glob("*.damaged-*"))

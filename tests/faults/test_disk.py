"""
Full disks, failing flushes and vanished file systems: no acknowledged record is lost, and no restart is needed.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
import urllib3

from spool.sqlite import reserve
from tests.acceptance.payloads import post
from tests.faults.conftest import Sites
from tests.faults.machine_faults import MachineFaults
from tests.faults.scenarios import Trial
from tests.faults.site import FaultSite
from tests.faults.upstream import ACCEPT, refuse
from tests.rounds import IS_LONG
from tests.small_disk import fill, small_disk, take_inodes, touch_all
from tests.waiting import wait_until

DISK_MIB = 160
CODES = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)
FAILURES = (
    [(call, code) for call in ("sync", "write") for code in CODES]
    if IS_LONG
    else [("sync", errno.EIO), ("write", errno.ENOSPC)]
)


def data_of(site: FaultSite) -> Path:
    return site.tollhouse.directory / "tollhouse-data"


@contextmanager
def on_small_disk(site: FaultSite, *, mib: int = DISK_MIB, inodes: int = 0) -> Iterator[Path]:
    """Put the data directory of an unstarted site on its own file system."""
    data = data_of(site)
    made = data.rename(data.with_name("made"))
    with small_disk(data, mib=mib, inodes=inodes) as disk:
        shutil.copytree(made, disk, dirs_exist_ok=True)
        yield disk
        site.tollhouse.kill()


def refused(site: FaultSite) -> bool:
    """Return whether a new record gets 503."""
    fresh = site.oracle.make(1)
    try:
        return post(site.url, fresh.body, site.oracle.key).status == 503
    except urllib3.exceptions.HTTPError:
        return False


def refused_when_filled(site: FaultSite, filler: Path) -> bool:
    """Return whether a sender is refused. Otherwise, refill the space that the reserve file freed."""
    if refused(site):
        return True
    with suppress(OSError), filler.open("ab") as file:
        file.write(bytes(8 << 20))
    return False


def wait_until_refused(site: FaultSite, what: str) -> None:
    wait_until(lambda: refused(site), what)


def wait_until_forwarded(site: FaultSite) -> None:
    """Wait until every acknowledged record is upstream and in the archive."""
    names = site.oracle.acknowledged.keys()
    wait_until(lambda: names <= site.upstream.taken.keys(), "the open file is drained")
    archive = site.tollhouse.archive
    # count whole lines, because the last line may be incomplete
    wait_until(lambda: archive.read_bytes().count(b"\n") >= len(names), "the archive is drained")


@pytest.mark.proves("A 2xx means the record is on disk")
@pytest.mark.fault("F5")
def test_a_disk_that_fills_up_under_load(trial: Trial, sites: Sites) -> None:
    """
    Twice, senders get 503 while the disk is full. Within seconds of free space the server continues
    without a restart.
    """
    for rng in trial.rounds(short=1, full=10):
        site = sites(rng)
        with on_small_disk(site) as disk:
            site.start()
            began = time.monotonic()
            for _ in range(2):
                with site.oracle.load(site.url):
                    time.sleep(rng.uniform(0.2, 0.8))
                    filler = fill(disk)
                    wait_until(partial(refused_when_filled, site, filler), "the disk is full")
                    time.sleep(rng.uniform(0.1, 0.5))
                    filler.unlink()
                    began = time.monotonic()
                    time.sleep(rng.uniform(0.2, 0.8))
            site.close(trial, since=began)


@pytest.mark.proof
@pytest.mark.fault("F6")
@pytest.mark.parametrize(
    "gone", [(reserve.FILE,), (reserve.FILE, reserve.START_FILE)], ids=["reserve", "both"]
)
def test_a_disk_that_is_full_at_the_start(trial: Trial, sites: Sites, gone: tuple[str, ...]) -> None:
    """
    After a kill on a full disk, the next start opens or waits, answers 503, and continues when there is space.
    """
    for rng in trial.rounds(short=1, full=10):
        site = sites(rng)
        with on_small_disk(site) as disk:
            site.start()
            with site.oracle.load(site.url):
                site.oracle.wait_until_taken()
                time.sleep(rng.uniform(0.0, 0.4))
                site.kill()
            for name in gone:
                (disk / name).unlink(missing_ok=True)
            filler = fill(disk)
            starting = threading.Thread(target=site.start)
            starting.start()
            wait_until_refused(site, "a start on a full disk answers 503")
            filler.unlink()
            began = time.monotonic()
            starting.join()
            site.close(trial, since=began)


@pytest.mark.proof
@pytest.mark.fault("F7")
@pytest.mark.parametrize(("call", "code"), FAILURES, ids=lambda each: errno.errorcode.get(each, each))
def test_flushes_and_writes_that_fail(
    trial: Trial, sites: Sites, tmp_path: Path, call: str, code: int
) -> None:
    """While flushes or writes fail, nothing is acknowledged. Afterwards the server recovers without help."""
    for rng in trial.rounds(short=1, full=5):
        faults = MachineFaults(tmp_path)
        site = sites(rng)
        site.start(**faults.environment)
        began = time.monotonic()
        with site.oracle.load(site.url):
            for _ in range(2):
                time.sleep(rng.uniform(0.1, 0.4))
                with faults.failing(**{call: code}):
                    wait_until_refused(site, "a commit fails")
                    time.sleep(rng.uniform(0.0, 0.4))
                began = time.monotonic()
            time.sleep(rng.uniform(0.1, 0.4))
        assert faults.injected
        site.close(trial, since=began)


@pytest.mark.proof
@pytest.mark.fault("F7")
def test_no_inode_is_left(trial: Trial, sites: Sites) -> None:
    """
    A running server needs no new file. A start without free inodes waits, and continues when inodes are free.
    """
    for rng in trial.rounds(short=1, full=5):
        site = sites(rng)
        with on_small_disk(site, inodes=200) as disk:
            site.start()
            with site.oracle.load(site.url):
                time.sleep(rng.uniform(0.2, 0.5))
                filler = take_inodes(disk)
                enough = len(site.oracle.acknowledged) + 400
                time.sleep(rng.uniform(1.0, 2.0))
                wait_until(lambda: len(site.oracle.acknowledged) >= enough, "senders are answered")  # noqa: B023
                site.kill()
            (disk / "spool.sqlite-shm").unlink()
            touch_all(filler, "last")
            starting = threading.Thread(target=site.start)
            starting.start()
            wait_until_refused(site, "a start without an inode answers 503")
            shutil.rmtree(filler)
            began = time.monotonic()
            starting.join()
            site.close(trial, since=began)


@pytest.mark.proof
@pytest.mark.fault("F8")
def test_missing_data_directory_stops_acknowledgement_until_it_returns(trial: Trial, sites: Sites) -> None:
    """
    While the directory is gone, nothing is acknowledged and the probes report it. Acknowledged records
    are intact afterwards.
    """
    for rng in trial.rounds(short=1, full=10):
        site = sites(rng)
        site.start()
        data = data_of(site)
        aside = data.with_name("aside")
        with site.oracle.load(site.url):
            time.sleep(rng.uniform(0.2, 0.6))
            data.rename(aside)
            wait_until_refused(site, "it is noticed")
            site.oracle.wait_until_refused()
            taken = len(site.oracle.acknowledged)
            time.sleep(rng.uniform(0.1, 0.4))
            assert taken == len(site.oracle.acknowledged)
            assert 503 == urllib3.request("GET", f"{site.url}/readyz").status
            aside.rename(data)
            began = time.monotonic()
            time.sleep(rng.uniform(0.2, 0.6))
        site.close(trial, since=began)


@pytest.mark.proof
@pytest.mark.fault("F8")
def test_files_that_are_removed(trial: Trial, sites: Sites) -> None:
    """
    If files are removed, records that were acknowledged before are delivered. Nothing is acknowledged afterwards.
    """
    for rng in trial.rounds(short=1, full=10):
        site = sites(rng)
        site.start()
        site.oracle.send_all(site.url, 200)
        site.upstream.behave(refuse(503))
        site.oracle.send_all(site.url, 100)
        for file in data_of(site).glob("spool.sqlite*"):
            file.unlink()
        acknowledged = len(site.oracle.acknowledged)
        with site.oracle.load(site.url):
            wait_until_refused(site, "it is noticed")
            site.oracle.wait_until_refused()
        assert acknowledged == len(site.oracle.acknowledged)
        site.upstream.behave(ACCEPT)
        wait_until_forwarded(site)
        site.kill()
        began = time.monotonic()
        site.start()
        site.close(trial, since=began)


@pytest.mark.proof
@pytest.mark.fault("F8")
def test_memory_is_named(trial: Trial, sites: Sites) -> None:
    """Receipts on tmpfs warn that a machine restart deletes all data."""
    for rng in trial.rounds(short=1, full=1):
        site = sites(rng)
        with on_small_disk(site) as disk:
            assert os.path.ismount(disk)
            site.start()
            fresh = site.oracle.make(1)
            answer = post(site.url, fresh.body, site.oracle.key)
            assert answer.headers["Tollhouse-Receipt"].endswith("durability=memory")
            site.close(trial)

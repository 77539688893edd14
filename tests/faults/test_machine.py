"""The clock jumps, flushes hang, the process is frozen, or a reader holds the log open."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import urllib3

from tests.acceptance.payloads import post
from tests.faults.conftest import Sites
from tests.faults.machine_faults import MachineFaults
from tests.faults.scenarios import Trial
from tests.rounds import IS_LONG
from tests.waiting import wait_until

DAY = 86_400.0


def status_is(url: str, status: int) -> bool:
    return urllib3.request("GET", url).status == status


@pytest.mark.proof
@pytest.mark.fault("F20")
@pytest.mark.parametrize("jump", [8 * DAY, -DAY, 400 * DAY] if IS_LONG else [8 * DAY, -DAY])
def test_the_clock_jumps_under_load(trial: Trial, sites: Sites, tmp_path: Path, jump: float) -> None:
    """After a jump and back, every call counts once on its own day, and its repeat is a duplicate."""
    for rng in trial.rounds(short=1, full=5):
        faults = MachineFaults(tmp_path)
        site = sites(rng)
        site.start(**faults.environment)
        early = site.oracle.make(20)
        assert site.oracle.send(site.url, early)
        with site.oracle.load(site.url):
            for ahead, noticed in ((jump, "clock_stepped"), (0.0, "clock_back")):
                time.sleep(rng.uniform(0.2, 0.6))
                faults.move_clock(ahead)
                log = site.tollhouse.log
                wait_until(lambda: any(noticed in line for line in log), noticed)  # noqa: B023
            began = time.monotonic()
            time.sleep(rng.uniform(0.2, 0.6))
        assert site.oracle.send(site.url, early)
        site.close(trial, since=began)
        starts = {record["start_time"][:10] for record in site.tollhouse.records()}
        days = {time.strftime("%Y-%m-%d", time.gmtime(time.time() - ago)) for ago in (0, 600)}
        assert starts <= days


@pytest.mark.proof
@pytest.mark.fault("F24")
def test_a_reader_that_holds_the_log_open(trial: Trial, sites: Sites) -> None:
    """
    While a reader holds the log open, acknowledging and forwarding continue. When the reader is gone, the log is
    moved into the file.
    """
    for rng in trial.rounds(short=1, full=5):
        site = sites(rng)
        site.start()
        site.oracle.send_all(site.url, 50)
        file = site.tollhouse.directory / "tollhouse-data" / "spool.sqlite"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM entries").fetchone()
            with site.oracle.load(site.url):
                time.sleep(rng.uniform(1.0, 2.0))
            reader.rollback()
        site.close(trial, since=time.monotonic())


@pytest.mark.proof
@pytest.mark.fault("F27")
def test_flushes_that_hang(trial: Trial, sites: Sites, tmp_path: Path) -> None:
    """
    While flushes hang, the server is not ready after 5 s but always alive. Waiting requests are refused in time;
    afterwards the server continues.
    """
    for rng in trial.rounds(short=1, full=5):
        faults = MachineFaults(tmp_path)
        site = sites(rng, spool='commit_wait = "2s"')
        site.start(**faults.environment)
        with site.oracle.load(site.url):
            time.sleep(rng.uniform(0.2, 0.6))
            with faults.hanging():
                wait_until(partial(status_is, f"{site.url}/readyz", 503), "readiness follows the commit")
                # send only now, because an earlier call could join the hanging commit, which nothing can end
                fresh = site.oracle.make(1)
                began = time.monotonic()
                assert 503 == post(site.url, fresh.body, site.oracle.key).status
                assert time.monotonic() - began < 60
                assert status_is(f"{site.url}/livez", 200)
            began = time.monotonic()
            time.sleep(rng.uniform(0.2, 0.6))
        site.close(trial, since=began)


@pytest.mark.proof
@pytest.mark.fault("F27")
def test_a_process_that_is_stopped_for_seconds(trial: Trial, sites: Sites) -> None:
    """A frozen process answers no one, like a blocked event loop, and loses nothing."""
    for rng in trial.rounds(short=1, full=5):
        site = sites(rng)
        site.start()
        process = site.tollhouse.process
        assert process is not None
        with site.oracle.load(site.url):
            time.sleep(rng.uniform(0.2, 0.6))
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(rng.uniform(1.0, 3.0))
            os.kill(process.pid, signal.SIGCONT)
            began = time.monotonic()
            time.sleep(rng.uniform(0.2, 0.6))
        site.close(trial, since=began)


@pytest.mark.fault("F27")
@pytest.mark.proof
def test_a_stop_within_a_flush_that_hangs(trial: Trial, sites: Sites, tmp_path: Path) -> None:
    """SIGTERM ends the process within 30 s whatever the disk does, and acknowledged records survive."""
    for rng in trial.rounds(short=1, full=2):
        faults = MachineFaults(tmp_path)
        site = sites(rng, spool='commit_wait = "2s"')
        site.start(**faults.environment)
        site.oracle.send_all(site.url, 200)
        process = site.tollhouse.process
        assert process is not None
        with site.oracle.load(site.url), faults.hanging():
            wait_until(lambda: faults.hung > 0, "a flush hangs")  # noqa: B023 - called here
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=30)
        site.tollhouse.stop(code=None)
        began = time.monotonic()
        site.start()
        site.close(trial, since=began)

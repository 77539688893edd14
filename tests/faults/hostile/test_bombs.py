"""Bodies that are made to cost much: answered in time, within the memory, and while others go on."""

from __future__ import annotations

import gzip
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import urllib3

from tests.faults.conftest import Sites
from tests.faults.hostile.bombs import BOMBS, MIB
from tests.faults.scenarios import LONG, Trial
from tests.faults.site import FaultSite

PEAK_MIB = 350  # of the process: it was 600 to 4,700 for each of the first
WAIT_S = 3.0  # of a machine that others keep busy; it was up to 50
SIZE = (60 if LONG else 12) * MIB
ANSWERS = {200, 400, 413, 503}


class Prober:
    """Asks for health all the time: how long the longest answer took is how long the event loop stood still."""

    def __init__(self, url: str) -> None:
        self.longest_s = 0.0
        self._url = url
        self._stop = threading.Event()

    @contextmanager
    def probing(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _run(self) -> None:
        with urllib3.PoolManager() as pool:
            while not self._stop.wait(0.005):
                began = time.monotonic()
                pool.request("GET", f"{self._url}/livez", retries=False)
                self.longest_s = max(self.longest_s, time.monotonic() - began)


def peak_mib(site: FaultSite) -> int:
    assert site.tollhouse.process is not None
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{site.tollhouse.process.pid}/status").read_text())
    assert found is not None
    return int(found[1]) // 1024


@pytest.mark.fault("F23")
@pytest.mark.timeout(600)
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads memory as Linux tells it")
def test_a_bomb_costs_nobody_a_turn(trial: Trial, sites: Sites) -> None:
    """All of them one after the other, in the order of chance, beside an honest sender who loses nothing."""
    for rng in trial.rounds(short=1, full=5):
        site = sites(rng)
        site.start()
        names = rng.sample(sorted(BOMBS), len(BOMBS))
        with site.oracle.load(site.url, senders=1, pause_s=0.05), urllib3.PoolManager() as pool:
            for name in names:
                path, content_type, make, is_packed = BOMBS[name]
                body = make(SIZE)
                sent = gzip.compress(body, 6) if is_packed else body
                headers = {"Authorization": site.oracle.key, "Content-Type": content_type}
                headers |= {"Content-Encoding": "gzip"} if is_packed else {}
                prober = Prober(site.url)
                with prober.probing():
                    answer = pool.request(
                        "POST", site.url + path, body=sent, headers=headers, retries=False, timeout=60
                    )
                peak, size, wire = peak_mib(site), len(body) / MIB, len(sent) / 1024
                waited = f"{prober.longest_s * 1000:5.0f} ms"
                print(f"{name:24} {size:5.1f} MiB, {wire:8.1f} KiB sent: {answer.status}, {waited}, {peak} MiB")
                assert answer.status in ANSWERS, name
                assert peak < PEAK_MIB, name
                assert prober.longest_s < WAIT_S, name
        site.close(trial)

"""
If commits vanish with a primary, their numbers are reused. The records acknowledged under them later are
stored, delivered and counted once.

The standby is away for longer than `spool.hold`, so by their age the lost commits would already be closed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.faults.gateways.broken_database import ANSWERED_S
from tests.faults.gateways.shared_site import SharedSite
from tests.faults.oracle import SentRequest
from tests.faults.scenarios import Trial
from tests.spool.postgres_cluster import STANDBY, SUCCESSOR, Pair, confirming, folder
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(1800)

HOLD_S = 0.5
COMMIT_WAIT_S = 6.0  # long enough for a reader that waits for a commit to continue after the takeover


class LaggingPair:
    """Two gateways on a primary whose standby is away, receives nothing, and takes over."""

    def __init__(self, folder: Path, pair: Pair, rng: random.Random) -> None:
        self.pair = pair
        self.rng = rng
        self.site = SharedSite(
            folder, dsn=pair.dsn, schema="gateways", rng=rng, count=2, hold=f"{HOLD_S * 1000:.0f}ms",
            durability="replicated", commit_timeout="1s", spool=f'commit_wait = "{COMMIT_WAIT_S:.0f}s"',
        )  # fmt: skip
        self.site.oracle.patience_s = ANSWERED_S
        self.site.start()
        self.sends(3)
        self._is_counted()
        pair.catch_up()
        pair.standby.stop()
        self.taken_over_at = 0.0

    def sends(self, calls: int) -> None:
        """Send calls one by one until a gateway acknowledges each."""
        for _ in range(calls):
            taken = partial(self._is_taken, self.site.oracle.make(1))
            wait_until(taken, "a call is acknowledged")

    def _is_taken(self, sent: SentRequest) -> bool:
        return any(self.site.oracle.is_taken(url, sent) for url in self.site.urls())

    def _is_counted(self) -> None:
        calls = len(self.site.oracle.acknowledged)

        def counted() -> bool:
            return bool(self.site.gateways[0].asked("/ledger")["ledger"]["reach"] > calls)

        wait_until(counted, "the first calls are counted")

    def refuses(self, calls: int) -> None:
        """Send `calls` calls to each gateway at once. All are refused, and none is sent again."""
        requests = [(one, self.site.oracle.make(1)) for one in self.site.gateways for _ in range(calls)]
        with ThreadPoolExecutor(len(requests)) as threads:
            taken = list(threads.map(lambda pair: self.site.oracle.is_taken(pair[0].url, pair[1]), requests))
        assert not any(taken)

    def outlasts_the_hold(self) -> None:
        """
        Wait until the refused calls are old enough to close, so that readers read them during the takeover.
        """
        time.sleep(HOLD_S * 2 + self.rng.uniform(0, 1))

    @contextmanager
    def taken_over(self) -> Iterator[None]:
        """Let the standby take over without the refused calls."""
        self.taken_over_at = time.monotonic()
        if self.pair.primary.is_running:
            self.pair.primary.stop()
        self.pair.standby.start()
        self.pair.promote()
        with confirming(self.pair.standby):
            self.pair.standby.change(synchronous_standby_names=SUCCESSOR)
            yield

    def names(self, names: str) -> None:
        self.pair.primary.change(synchronous_standby_names=names)


Way = Callable[[LaggingPair], None]


def cut_off(lagging: LaggingPair) -> None:
    lagging.refuses(4)
    lagging.outlasts_the_hold()


def restarted(lagging: LaggingPair) -> None:
    """
    The primary crashes while a call waits, and restarts. The waiting call is then stored, but not on the standby.
    """
    lagging.refuses(1)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lagging.refuses, 1)
        time.sleep(lagging.rng.uniform(0, 1))
        lagging.pair.primary.stop()
        lagging.pair.primary.start()
        waiting.result()
    lagging.outlasts_the_hold()


def emptied(lagging: LaggingPair) -> None:
    """Without a named standby, waiting commits complete as if the standby had them."""
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(lagging.refuses, 4)
        time.sleep(lagging.rng.uniform(0, 1))
        lagging.names("")
        time.sleep(lagging.rng.uniform(0.5, 1))
        lagging.names(STANDBY)
        waiting.result()
    lagging.outlasts_the_hold()


@pytest.mark.proof
@pytest.mark.proves("calls that vanish with a primary")
@pytest.mark.fault("F46")
def test_cut_off(trial: Trial, tmp_path: Path) -> None:
    """Calls wait for a standby that is cut off; then it takes over without them."""
    vanish(trial, tmp_path, cut_off)


@pytest.mark.proof
@pytest.mark.fault("F47")
def test_restarted(trial: Trial, tmp_path: Path) -> None:
    """The primary crashes and restarts while the standby is cut off; then the standby takes over."""
    vanish(trial, tmp_path, restarted)


@pytest.mark.proof
@pytest.mark.fault("F48")
def test_emptied(trial: Trial, tmp_path: Path) -> None:
    """
    `synchronous_standby_names` is empty for a moment while the standby is cut off; then the standby takes over.
    """
    vanish(trial, tmp_path, emptied)


def vanish(trial: Trial, tmp_path: Path, way: Way) -> None:
    for place, rng in enumerate(trial.rounds(short=1, full=50)):
        with folder() as where, ExitStack() as stack:
            pair = Pair(where)
            stack.callback(pair.stop)
            pair.start()
            lagging = LaggingPair(tmp_path / f"site-{place}", pair, rng)
            site = lagging.site
            stack.callback(site.close)
            way(lagging)
            with lagging.taken_over():
                lagging.sends(rng.randint(2, 6))
                took = time.monotonic() - lagging.taken_over_at
                wait_until(lambda: all(site.is_ready()), "every gateway is ready")  # noqa: B023
                verdict = site.judge()
            print(f"senders saw {dict(site.oracle.answers)}; acknowledged {took:.1f} s after the takeover")
            trial.count(
                acknowledged=verdict.acknowledged,
                lost=len(verdict.lost),
                duplicates=len(verdict.duplicates),
                recovery_s=took,
            )
            verdict.check()

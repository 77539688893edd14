"""Gateways on a database that each row of the failure table breaks and heals, and the checks of every row."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults.gateways.shared_site import SharedSite
from tests.faults.scenarios import Trial
from tests.spool.postgres_cluster import Pair
from tests.waiting import wait_until

COMMIT_TIMEOUT_S = 2.0
# How long commits wait for the standby or for a frozen server. This is the shortest valid setting.
SPOOL = f'commit_wait = "{COMMIT_TIMEOUT_S:.0f}s"'
ANSWERED_S = 180.0  # limit in seconds, generous for a busy machine; the test prints the measured time


class BrokenDatabase:
    """
    Gateways that every row finds and leaves healthy. Records that one row loses or duplicates also fail the
    rows after it.
    """

    def __init__(self, site: SharedSite) -> None:
        self.site = site
        self.healed_at = 0.0

    @contextmanager
    def row(self, trial: Trial, *, load: bool = True) -> Iterator[None]:
        """
        Keep up load before, during and after the block. The block calls `healed` when the database works again.

        Raises AssertionError if acknowledged records are lost or duplicated, or if the accounting does not balance.
        """
        oracle = self.site.oracle
        before = len(oracle.acknowledged)
        with oracle.balanced(senders=3 if load else 0):
            self.site.passes()
            oracle.answers.clear()
            self.healed_at = time.monotonic()
            yield
            self.site.passes()
            took = time.monotonic() - self.healed_at
            self.site.repeat()
        wait_until(lambda: all(self.site.is_ready()), "every gateway is ready")
        verdict = self.site.judge()
        acknowledged = verdict.acknowledged - before
        print(
            f"{trial.name}: senders saw {dict(oracle.answers)}; {acknowledged} acknowledged, "
            f"{len(verdict.lost)} lost, "
            f"{len(verdict.duplicates)} twice; a fresh record was delivered {took:.1f} s afterwards"
        )
        trial.count(
            acknowledged=acknowledged,
            lost=len(verdict.lost),
            duplicates=len(verdict.duplicates),
            recovery_s=took,
        )
        verdict.check()

    def nothing_is_kept(self) -> None:
        """
        Check that every gateway answers 503 to every sender, is not ready, is alive, and acknowledges nothing.
        """
        took_s = self.site.refuses()
        print(f"503 from every gateway after at most {took_s:.1f} s")
        assert took_s < COMMIT_TIMEOUT_S + ANSWERED_S
        self.site.oracle.wait_until_refused()
        acknowledged = len(self.site.oracle.acknowledged)
        wait_until(lambda: not any(self.site.is_ready()), "no gateway is ready")
        self.site.refuses()
        assert len(self.site.oracle.acknowledged) == acknowledged

    def keeps_on(self, calls: int) -> None:
        """Wait until `calls` more calls are acknowledged."""
        enough = len(self.site.oracle.acknowledged) + calls
        wait_until(lambda: len(self.site.oracle.acknowledged) >= enough, "senders are answered")

    def healed(self) -> None:
        """Record that the database works again or will recover without help."""
        self.healed_at = time.monotonic()


class BrokenPair(BrokenDatabase):
    """Two gateways on a primary and its synchronous standby."""

    def __init__(self, pair: Pair, folder: Path) -> None:
        # a role without privileges, as operators create it
        pair.primary.execute("CREATE ROLE gateway LOGIN")
        pair.primary.execute("GRANT pg_monitor TO gateway; GRANT CREATE ON DATABASE postgres TO gateway")
        self.pair = pair
        site = SharedSite(
            folder,
            dsn=pair.dsn.replace("user=tollhouse", "user=gateway"),
            schema="gateways",
            rng=random.Random("failure"),
            count=2,
            durability="replicated",
            commit_timeout=f"{COMMIT_TIMEOUT_S:.0f}s",
            spool=SPOOL,
        )
        super().__init__(site)
        site.start()

    def is_booked(self, commit: int) -> None:
        """Wait until the accounting includes this commit."""
        booked = "SELECT 1 FROM gateways.marks WHERE booked >= "
        wait_until(lambda: self.pair.primary.execute(f"{booked}{commit}"), "the books have a commit")

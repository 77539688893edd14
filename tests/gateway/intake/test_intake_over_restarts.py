"""
After a restart, an intake on files still knows which senders report calls, even if their records are deleted.
"""

from __future__ import annotations

from pathlib import Path

from gateway.configuration.sections import Config
from gateway.intake.attribution import RecordAttributor
from gateway.intake.callers import WINDOW_S
from gateway.intake.intake import PayloadIntake
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import ReportedCallers
from gateway.normalise.outcome import ReadOutcome
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.identity import RecordIdentity, call_identity, dedup_key_of_parts
from spool.record import NS, Inference, UsageMetric
from spool.settings import SpoolSettings
from spool.sqlite.spool import SqliteSpool, open_spool
from tests.moved_clock import MovedClock
from tests.rounds import reduced

PRICES = PriceBook.load()


class Running:
    """An intake over files that decides at once, because the waiting time is 0."""

    def __init__(self, directory: Path, **settings: float) -> None:
        self._directory = directory
        self._settings = SpoolSettings(hold=0, **settings)  # type: ignore[arg-type]
        self.clock = MovedClock()

    async def start(self) -> SqliteSpool:
        self.spool = await open_spool(self._directory, settings=self._settings, clock=self.clock)
        self.shadows = ReportedCallers(
            self.clock, heard=self.spool.heard, max_senders=self._settings.max_senders
        )
        await self.shadows.restore_missing_callers(self.spool.log)
        self.intake = PayloadIntake(
            self.spool.log, attributor=RecordAttributor(Config()), prices=PRICES, shadows=self.shadows
        )
        return self.spool

    async def restart(self) -> None:
        await self.spool.close()
        await self.start()

    async def take_calls(self, first: int, count: int, key: str = "fleet") -> None:
        """Send one call for each of `count` sessions."""
        outcome = ReadOutcome(received=count)
        for number in range(first, first + count):
            call = Inference(
                id=b"",
                source="claude_code",
                session=f"s{number}",
                start_time=int(self.clock.now() * NS),
                request_model="claude-opus-4-8",
                tags={"service": "svc"},
            )
            outcome.add_record(call, call_identity(call, own_id=str(number)))
            call.id = outcome.identities[-1].id
        await self.intake.store_outcome(outcome, AuthenticatedKey(key, frozenset()))

    async def is_repeat(self, session: str) -> bool:
        """Return whether a counter of the session is taken as a repeat of its calls."""
        metric = UsageMetric(
            id=b"", source="claude_code", name="tokens", session=session, tags={"service": "svc"}
        )
        outcome = ReadOutcome(received=1)
        outcome.add_record(metric, RecordIdentity(dedup_key_of_parts(7, session, self.clock.now())))
        metric.id = outcome.identities[0].id
        await self.intake.store_outcome(outcome, AuthenticatedKey("counters", frozenset()))
        return metric.shadow


async def test_counter_of_a_deleted_record_is_recognized_as_repeat(tmp_path: Path) -> None:
    """
    With a retention below an hour, the record of a call is deleted before its counter arrives after a
    restart. The counter is still recognized as a repeat.
    """
    running = Running(tmp_path, retention=60)
    await running.start()
    await running.take_calls(1, 1)
    running.clock.move(WINDOW_S / 2)
    await running.spool.log.run_retention()
    await running.restart()
    assert await running.is_repeat("s1")
    assert not await running.is_repeat("s2")
    running.clock.move(WINDOW_S / 2 + 1)
    assert not await running.is_repeat("s1")
    await running.spool.close()


async def test_more_senders_than_records_that_a_start_would_read(tmp_path: Path) -> None:
    """Storage grows by one row per key and commit, plus a few bytes per sender. A start reads all senders."""
    running = Running(tmp_path)
    await running.start()
    sessions, at_once = reduced(20_000, by=4), 500
    for first in range(0, sessions, at_once):
        await running.take_calls(first, at_once)
    rows, size = await running.spool.database.read(
        lambda connection: connection.execute("SELECT COUNT(*), SUM(LENGTH(senders)) FROM heard").fetchone()
    )
    parts = sessions // 128 + sessions // at_once  # a large request is committed in parts
    assert rows <= parts
    assert size <= 32 * sessions
    await running.restart()
    for number in (0, 1, sessions // 2, sessions - 1):
        assert await running.is_repeat(f"s{number}")
    assert not await running.is_repeat(f"s{sessions}")
    await running.spool.close()


async def test_a_key_that_floods_pushes_out_nobody_elses_over_a_restart(tmp_path: Path) -> None:
    """
    If a key floods the gateway with senders, the senders of other keys stay known, in memory and on disk.
    """
    running = Running(tmp_path, max_senders=500)
    await running.start()
    await running.take_calls(1, 1, key="other")
    await running.take_calls(2, 2000, key="flood")
    assert await running.is_repeat("s1")
    await running.spool.heard.delete_old(0.0)
    await running.restart()
    assert await running.is_repeat("s1")
    assert not await running.is_repeat("s2")
    await running.spool.close()

"""Langfuse's halves through a real house: two requests, a restart, a refusal, the end of the window."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from gateway.access import Bearer
from gateway.attribution import Attribution
from gateway.config import Config
from gateway.intake import Intake
from gateway.normalise.formats.langfuse import normalise
from gateway.normalise.options import Options
from gateway.normalise.outcome import Outcome
from gateway.prices import PriceBook
from gateway.shadows import Shadows
from gateway.window import Window
from spool.errors import SpoolUnavailable
from spool.log import LogSettings, Receipt
from spool.record import AI_TELEMETRY, Inference
from spool.sqlite import SqliteSpool, open_spool
from tests.gateway.formats.langfuse_events import batch, create, trace, update
from tests.integration.conftest import Serving
from tests.moved_clock import MovedClock

pytestmark = pytest.mark.asyncio

ALICE = Bearer("alice", frozenset(), {"team": "search"})
INGESTION = "/api/public/ingestion"


class House:
    """A spool with a window before its intake."""

    def __init__(self, spool: SqliteSpool, clock: MovedClock) -> None:
        self.spool = spool
        self.clock = clock
        config = Config()
        self.intake = Intake(
            spool.log, attribution=Attribution(config), prices=PriceBook.load(), shadows=Shadows(clock)
        )
        self.window = Window(spool.pending, self.intake, clock)

    @classmethod
    async def open(cls, directory: Path, clock: MovedClock) -> House:
        house = cls(await open_spool(directory, settings=LogSettings(hold_s=0), clock=clock), clock)
        await house.window.start()
        return house

    async def take(self, body: bytes) -> Receipt:
        return await self.window.take(finished(normalise(body, options=Options())), ALICE)

    async def records(self) -> list[Inference]:
        log = self.spool.log
        entries = await log.read(AI_TELEMETRY, 1, log.closed_below(AI_TELEMETRY) - 1)
        return [record for entry in entries for record in entry.records if isinstance(record, Inference)]

    async def assert_sound(self, pending: int) -> None:
        """The books balance, and count as pending what is on disk."""
        books = await self.spool.log.verify()
        assert ([], pending) == (list(books.imbalances), books.topics[AI_TELEMETRY].get("pending", 0))


def finished(steps: Generator[None, None, Outcome]) -> Outcome:
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            outcome: Outcome = stop.value
            return outcome


async def test_two_requests_are_one_call(serving: Serving) -> None:
    """Through the door, each with its 207; one record with the model of the one and the tokens of the other."""
    for body in (batch(create()), batch(trace(), update())):
        assert 207 == (await serving.send(INGESTION, body)).status
    (record,) = await serving.records()
    assert isinstance(record, Inference)
    assert ("gpt-4o-mini", 10, "u-1") == (record.request_model, record.input_tokens, record.user)


async def test_a_restart_between_the_halves_loses_nothing(tmp_path: Path) -> None:
    """The first half was on disk before its 2xx."""
    clock = MovedClock()
    house = await House.open(tmp_path, clock)
    await house.take(batch(trace(), create()))
    await house.assert_sound(pending=1)
    await house.spool.close()
    house = await House.open(tmp_path, clock)
    await house.take(batch(update()))
    (record,) = await house.records()
    assert ("gpt-4o-mini", 10, "u-1", "search") == (record.request_model, record.input_tokens, record.user, record.team)
    await house.assert_sound(pending=0)
    await house.spool.close()


async def test_a_crash_after_the_record_counts_it_once(tmp_path: Path) -> None:
    """The half is forgotten after the record is on disk: found again, it meets its own record."""
    clock = MovedClock()
    house = await House.open(tmp_path, clock)
    await house.take(batch(create()))
    kept = await house.spool.pending.load()
    await house.take(batch(update()))
    await house.spool.pending.put(kept)  # as if the crash came before it was forgotten
    await house.spool.close()
    house = await House.open(tmp_path, clock)
    await house.take(batch(update()))  # its sender never heard the answer
    assert [10] == [record.input_tokens for record in await house.records()]
    assert [] == list((await house.spool.log.verify()).imbalances)
    await house.spool.close()


async def test_when_the_window_ends_the_call_is_kept_as_it_is(tmp_path: Path) -> None:
    """Under the labels of the key that brought it, once."""
    clock = MovedClock()
    house = await House.open(tmp_path, clock)
    await house.take(batch(trace(), create()))
    assert 0 == await house.window.release()
    clock.move(600)
    assert 2 == await house.window.release()  # the generation, and what its trace said
    (record,) = await house.records()
    assert ("gpt-4o-mini", None, "search") == (record.request_model, record.input_tokens, record.team)
    await house.assert_sound(pending=0)
    assert [] == list(await house.spool.pending.load())
    await house.spool.close()


async def test_a_refused_request_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log says no; repeated, the request is taken as if for the first time."""
    house = await House.open(tmp_path, MovedClock())
    await house.take(batch(create()))

    async def refuse(outcome: Outcome, bearer: Bearer) -> Receipt:
        raise SpoolUnavailable("no")

    with monkeypatch.context() as broken:
        broken.setattr(house.intake, "take", refuse)
        with pytest.raises(SpoolUnavailable):
            await house.take(batch(update()))
        house.clock.move(600)
        with pytest.raises(SpoolUnavailable):
            await house.window.release()
    await house.take(batch(update()))
    assert [10] == [record.input_tokens for record in await house.records()]
    await house.assert_sound(pending=0)
    await house.spool.close()

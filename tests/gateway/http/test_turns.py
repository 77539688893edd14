"""Long jobs beside an event loop that goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Generator, Sequence
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.http import turns as http_turns
from gateway.http.holders.receivers import ReceiverServices
from gateway.http.inflight_bytes import InflightBytes, busy
from gateway.http.turns import LARGE, aside, drive_aside
from gateway.intake.receivers.otlp_http import SLICED, read_export
from gateway.normalise import any_format, otlp
from gateway.normalise.options import Options
from gateway.normalise.outcome import Outcome
from gateway.service.errors import Refusal
from gateway.service.monitoring.metrics import Metrics
from spool.turns.fair_turns import FairTurns

pytestmark = pytest.mark.asyncio
CALL = '{"id": "x", "call_type": "completion", "model": "m", "prompt_tokens": 1, "completion_tokens": 2, '
INNER = '{"b": [1, 2.5, true, null, "s\\u00e9"], "c": {"d": {}}}, '
MIB = 1 << 20


async def turns_during(body: bytes, format: str) -> int:
    """How often the event loop had its turn while a body was read."""
    turns, is_done = 0, asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not is_done.is_set():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await drive_aside(
        lambda hold: any_format.normalise(format, body, options=Options(), hold=hold),
        lambda _: None,
        size=len(body),
    )
    is_done.set()
    await counting
    assert 1 == found.outcome.received
    return turns


@pytest.mark.parametrize(
    ("format", "document"),
    [
        ("litellm", CALL + '"messages": [' + INNER * (6 * MIB // len(INNER)) + "0]}"),
        ("litellm", CALL + '"cost": NaN, "messages": [' + INNER * (6 * MIB // len(INNER)) + "0]}"),
        ("litellm", CALL + '"cost": NaN, "prompt": "' + 'he said \\"hi\\"\\n' * (MIB // 2) + '"}'),
        ("litellm", CALL + '"prompt": "' + "\\ud800" * MIB + '"}'),
        (
            "langfuse",
            '{"batch": [{"type": "x", "body": {"input": [' + INNER * (6 * MIB // len(INNER)) + "0]}}]}",
        ),
        ("bedrock", '{"requestId": "r", "records": [{"data": "' + "bm9uZQ==" * MIB + '"}]}'),
    ],
    ids=[
        "nested",
        "NaN",
        "NaN beside a prompt",
        "half characters",
        "one event of Langfuse",
        "one record of Firehose",
    ],
)
async def test_one_large_document_leaves_the_loop_its_turns(format: str, document: str) -> None:
    """Whatever is in it: read in one go, it would leave two or three."""
    assert await turns_during(document.encode(), format) > 20


async def places_of(slices: int) -> Sequence[bool]:
    """Read a small body in slices; for each True if it was read on the event loop's thread."""
    here, places = threading.current_thread(), []

    def work(_: Callable[[int], None]) -> Generator[None, None, str]:
        for _turn in range(slices):
            places.append(threading.current_thread() is here)
            yield
        return "done"

    assert "done" == await drive_aside(work, lambda _: None, size=10)
    return places


async def test_what_does_not_end_soon_goes_on_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small body may unfold to a large one."""
    monkeypatch.setattr(http_turns, "ALONE_S", 0.0)
    assert [True, False, False] == await places_of(3)
    here = threading.current_thread()
    assert here is not await aside(threading.current_thread, is_large=True)
    assert here is await aside(threading.current_thread, is_large=False)


@pytest.mark.parametrize(("others", "places"), [(0, [True] * 3), (1, [True, False, False])])
async def test_slices_of_who_is_alone_stay_on_the_loop(
    monkeypatch: pytest.MonkeyPatch, others: int, places: Sequence[bool]
) -> None:
    """So that requests that come together share a commit; beside others the loop is theirs after each slice."""
    monkeypatch.setattr(http_turns, "ALONE_S", 60.0)
    fair = FairTurns()
    for number in range(others):
        fair.enter(fair.party(f"other {number}"))
    with fair.request("own") as work:
        await work.begin()
        assert places == await places_of(3)


async def test_memory_is_taken_by_the_loop_after_each_slice() -> None:
    """The bytes in flight are counted on one thread; a refusal ends the job."""
    taken: list[tuple[int, bool]] = []
    here = threading.current_thread()

    def work(hold: Callable[[int], None]) -> Generator[None, None, None]:
        for held in range(1, 5):
            hold(held)
            hold(10 * held)
            yield

    def take(n: int) -> None:
        taken.append((n, threading.current_thread() is here))
        if n > 30:
            raise busy()

    with pytest.raises(Refusal, match="Too many bytes are in flight"):
        await drive_aside(work, take, size=LARGE + 1)
    assert [(11, True), (22, True), (33, True)] == taken


async def test_a_job_that_fails_says_so() -> None:
    """Wherever it ran."""

    def work(_: Callable[[int], None]) -> Generator[None, None, None]:
        yield
        raise Refusal(413, "too_many_items", "too many")

    for size in (1, LARGE + 1):
        with pytest.raises(Refusal, match="too many"):
            await drive_aside(work, lambda _: None, size=size)


async def test_bodies_take_turns_on_the_thread() -> None:
    """A large one does not keep back another until it is done."""
    order = []

    def work(name: str, _: Callable[[int], None]) -> Generator[None, None, None]:
        for _turn in range(4):
            order.append(name)
            yield

    jobs = [drive_aside(partial(work, name), lambda _: None, size=LARGE + 1) for name in "ab"]
    await asyncio.gather(*jobs)
    assert list("abababab") == order


async def test_a_large_export_is_read_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice may be all of its one item; smaller requests stay on the loop, where they cost no change of threads."""
    places = []

    def work(_signal: str, body: bytes, **_: object) -> Generator[None, None, Outcome]:
        for _turn in range(2):
            places.append(threading.current_thread() is here)
            yield
        return Outcome(received=len(body))

    here = threading.current_thread()
    monkeypatch.setattr(otlp, "normalise", work)
    receivers = cast(
        ReceiverServices, SimpleNamespace(workers=None, options=Options(), metrics=Metrics(), memory=None)
    )
    for size in (SLICED, LARGE + 1):
        share = InflightBytes(LARGE).share()
        found = await read_export("traces", bytes(size), json=True, receivers=receivers, share=share)
        assert size == found.received
    assert [True, True, False, False] == places

"""Results of workers, and what happens to a body if a worker dies, hangs or refuses."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from itertools import zip_longest
from pathlib import Path

import msgspec
import pytest

from exporters.http.compression import gzipped
from exporters.otlp import encoding
from exporters.otlp.encoding import encode
from exporters.otlp.spans import SpanEncoder
from gateway.http.inflight_bytes import busy
from gateway.intake.workers.jobs import NotDone, SentBody
from gateway.intake.workers.messages import PIECE, MessageKind
from gateway.intake.workers.pool import DIED, MOST_KILLS, NOT_STARTED, SILENT, WorkerPool
from gateway.intake.workers.process import StartChild, environment, starter
from gateway.intake.workers.serving import Link, serve
from gateway.normalise.formats.engine.declaration import Normalised
from gateway.normalise.outcome import PART, Options
from gateway.service.errors import BadPayload, Refusal
from spool.record import Inference
from spool.settings import MIB
from spool.turns.fair_turns import FairTurns
from tests.bench.load import payloads
from tests.gateway.intake.workers.children import ThreadChild, on_a_thread
from tests.integration.payloads import json_span, json_traces, proto_span, proto_traces

PARTED = ("records", "identities", "forwarded", "named", "points", "named_points")
PROCESS = starter("-m", "gateway.service.assembly.worker_process", "{socket}", str(512 * MIB))


class Told:
    """Records the calls of the pool's observer."""

    def __init__(self) -> None:
        self.deaths: Counter[str] = Counter()
        self.bodies: Counter[str] = Counter()
        self.changed = asyncio.Event()

    def worker_died(self, reason: str) -> None:
        self.deaths[reason] += 1
        self.changed.set()

    def body_decoded(self, by: str) -> None:
        self.bodies[by] += 1


@asynccontextmanager
async def workers(
    start: StartChild, count: int = 1, silent_s: float = 30.0
) -> AsyncIterator[tuple[WorkerPool, Told]]:
    told = Told()
    pool = WorkerPool(count, start, silent_s=silent_s, observer=told)
    pool.start()
    try:
        yield pool, told
    finally:
        await pool.close()


def here(body: SentBody, options: Options | None = None) -> Normalised:
    """Decode the same body in this process."""
    work = body.normalise(options or Options(), lambda _: None)
    while True:
        try:
            next(work)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]


def shown(normalised: Normalised) -> list[object]:
    """
    Return everything that the intake reads, in order. Parts are joined, because their boundaries depend
    on the clock.
    """
    outcome, reports = normalised
    parts = list(outcome.parts())
    assert max(max(len(part.records), len(part.points)) for part in parts) <= PART
    shared = msgspec.structs.replace(
        parts[-1],
        received=sum(part.received for part in parts),
        count=0,
        **{name: type(getattr(parts[-1], name))() for name in PARTED},
    )
    return [
        *reports,
        shared,
        *[
            (record, identity, place in part.forwarded, part.named.get(place))
            for part in parts
            for place, (record, identity) in enumerate(zip(part.records, part.identities, strict=True))
        ],
        *[(point, part.named_points.get(place)) for part in parts for place, point in enumerate(part.points)],
    ]


def other_than(here: list[object], there: list[object]) -> tuple[object, object] | None:
    """Return the first pair that differs, because pytest takes minutes to compare lists of megabytes."""
    return next((pair for pair in zip_longest(here, there) if pair[0] != pair[1]), None)


def spans(count: int) -> SentBody:
    return SentBody.of_export("traces", proto_traces(*[proto_span() for _ in range(count)]), json=False)


def calls(count: int) -> SentBody:
    """Create calls without any id by which a repeat would be recognized."""
    return SentBody.of_format("litellm", b"[%s]" % b",".join([b'{"model": "m", "prompt_tokens": 1}'] * count))


async def decode(pool: WorkerPool, body: SentBody, options: Options | None = None) -> Normalised:
    return await pool.decode(body, options or Options(), lambda _: None)


async def test_bodies_of_any_size_come_back_as_they_are_decoded_here() -> None:
    """Long lists, packed parts, rejected items and partial reports all arrive in order."""
    good = json_span()
    bodies = [
        spans(1),
        spans(PART + PIECE + 10),
        SentBody.of_export("traces", json_traces(*[good] * 3, {**good, "startTimeUnixNano": "x"}), json=True),
        SentBody.of_export(
            "traces", json_traces(*[{**good, "startTimeUnixNano": "x"}] * (2 * PIECE + 1)), json=True
        ),
        SentBody.of_export("metrics", b"", json=False),
    ]
    async with workers(on_a_thread) as (pool, told):
        await pool.complete()
        for body in bodies:
            differing = other_than(shown(here(body)), shown(await decode(pool, body)))
            assert differing is None
    assert {"worker": len(bodies)} == told.bodies
    assert not told.deaths


async def test_many_bodies_at_once_get_their_own_results() -> None:
    """Interleaved messages are assigned to the right jobs."""
    async with workers(on_a_thread, count=2) as (pool, _):
        await pool.complete()
        bodies = [spans(1 + number % 7) for number in range(60)]
        found = await asyncio.gather(*(decode(pool, body) for body in bodies))
    assert [shown(here(body)) for body in bodies] == [shown(one) for one in found]


async def test_the_next_job_is_that_of_who_used_least() -> None:
    """
    The next job is that of the party that used least time. So a small body does not wait for all large bodies
    of another party.
    """
    turns, order = FairTurns(), list[str]()
    turns.party("busy").spend(10.0)

    async def as_party(name: str, body: SentBody) -> None:
        with turns.request(name) as work:
            await work.begin()
            await decode(pool, body)
            order.append(name)

    async with workers(on_a_thread) as (pool, _):
        await pool.complete()
        large = spans(5 * MIB // len(spans(1).content) // 4)
        jobs = [asyncio.create_task(as_party("busy", large)) for _ in range(5)]
        await asyncio.sleep(0)
        jobs.append(asyncio.create_task(as_party("small", spans(10))))
        await asyncio.wait_for(asyncio.gather(*jobs), 60)
    assert order.index("small") < 3


async def test_records_without_an_identity_come_back() -> None:
    """Records without a dedup key stay in the last part, for any number of records."""
    count = 2 * PIECE + 5
    async with workers(on_a_thread) as (pool, _):
        await pool.complete()
        outcome = (await decode(pool, calls(count))).outcome
    assert outcome.received == count
    assert len(outcome.records) == count
    assert len(outcome.identities) == count
    assert {identity.id for identity in outcome.identities} == {record.id for record in outcome.records}


async def test_the_sender_is_told_the_same() -> None:
    """The error for an unreadable body has the same text from a worker as from this process."""
    body = SentBody.of_export("traces", b"\xff\xff", json=False)
    with pytest.raises(BadPayload) as expected:
        here(body)
    async with workers(on_a_thread) as (pool, _):
        await pool.complete()
        with pytest.raises(Refusal) as found:
            await decode(pool, body)
    assert vars(expected.value) == vars(found.value)


async def test_options_are_those_of_each_body() -> None:
    """A job uses the options at its own start, so a reload applies to later bodies."""
    small, large = Options(max_items=1000), Options(max_items=5000)
    body = spans(2000)
    async with workers(on_a_thread) as (pool, _):
        await pool.complete()
        for options in (large, large):
            assert 2000 == (await decode(pool, body, options)).outcome.received
        with pytest.raises(Refusal, match="max_items"):
            await decode(pool, body, small)
        assert 2000 == (await decode(pool, body, large)).outcome.received


async def test_memory_of_items_is_held_by_the_request() -> None:
    """
    Memory beyond the body's own bytes is counted while decoding. If the limit is reached, the worker stops.
    """
    many = SentBody.of_format("litellm", b"[%s]" % b",".join([b"{}"] * 10_000))
    held: list[int] = []

    def hold_little(size: int) -> None:
        if sum(held) > MIB:
            raise busy()
        held.append(size)

    async with workers(on_a_thread) as (pool, told):
        await pool.complete()
        with pytest.raises(Refusal) as found:
            await pool.decode(many, Options(), hold_little)
        assert "busy" == found.value.type
        held.clear()
        assert 10_000 == (await pool.decode(many, Options(), held.append)).outcome.received
        assert sum(held) > 2 * MIB
        assert 1 == (await decode(pool, spans(1))).outcome.received
    assert not told.deaths


async def test_a_delivery_is_the_same_bytes_whoever_encodes_it() -> None:
    """
    A worker encodes a delivery to the same bytes as this process, with and without compression. The result
    includes the uncompressed size.
    """
    outcome = here(spans(200)).outcome
    records = [(record, 1.5) for record in outcome.records if isinstance(record, Inference)]
    plain = SpanEncoder().request(records)
    async with workers(on_a_thread) as (pool, _):
        await pool.complete()
        for compresses, expected in ((True, gzipped(plain)), (False, plain)):
            answer = await pool.encode(encoding.packed(records, compresses=compresses))
            assert answer is not None
            found = encoding.unpacked(answer, compresses=compresses)
            assert encoding.Encoded(expected, len(plain), compresses) == found


async def test_what_a_worker_cannot_do_is_done_here() -> None:
    """
    If a worker meets an internal error, the caller does the job itself. If the error is in the job, the
    caller gets it as well.
    """
    async with workers(on_a_thread) as (pool, told):
        await pool.complete()
        assert await pool.encode(b"this is not a message") is None
    assert not told.deaths


async def test_nothing_waits_for_workers_that_are_not_there() -> None:
    """Without a ready worker, or after the pool has ended, the caller does the job at once."""
    async with workers(on_a_thread) as (pool, _):
        with pytest.raises(NotDone):
            await decode(pool, spans(1))
        await pool.complete()
    with pytest.raises(NotDone):
        await decode(pool, spans(1))


async def test_a_worker_that_cannot_be_started_is_counted() -> None:
    """A worker that cannot be started is counted, and the server continues without it."""

    def fails(_: socket.socket) -> ThreadChild:
        raise OSError("no process")

    async with workers(fails) as (pool, told):
        await told.changed.wait()
        assert 0 == pool.ready
    assert {NOT_STARTED: 1} == told.deaths


def mortal(*lives: Callable[[Link], None]) -> StartChild:
    """Start children with the given behaviours in turn, and healthy children afterwards."""
    left: Iterator[Callable[[Link], None]] = iter(lives)
    return lambda theirs: ThreadChild(theirs, next(left, lambda link: serve(link, encode)))


def dies_of_its_first_job(link: Link) -> None:
    link.send(MessageKind.READY, 0)
    while link.receive().kind != MessageKind.DECODE:
        pass


def says_nothing(link: Link) -> None:
    link.send(MessageKind.READY, 0)
    while True:
        try:
            link.receive()
        except Exception:
            return


async def test_jobs_of_a_worker_that_dies_are_done_again() -> None:
    """If a worker dies, the next worker repeats its running job, and the callers do its waiting jobs."""
    async with workers(mortal(dies_of_its_first_job)) as (pool, told):
        await pool.complete()
        first, *others = await asyncio.gather(
            *(decode(pool, spans(3)) for _ in range(5)), return_exceptions=True
        )
        assert isinstance(first, Normalised)
        assert 3 == first.outcome.received
        assert all(isinstance(one, NotDone) for one in others)
    assert {DIED: 1} == told.deaths


async def test_a_body_that_two_workers_leave_is_done_by_a_third() -> None:
    """
    If two workers are killed from outside while they decode a body, a third one decodes it, because the body
    is not at fault.
    """
    async with workers(mortal(*[dies_of_its_first_job] * (MOST_KILLS - 1))) as (pool, told):
        await pool.complete()
        assert 3 == (await decode(pool, spans(3))).outcome.received
    assert {DIED: MOST_KILLS - 1} == told.deaths


async def test_a_body_of_which_every_worker_dies_is_refused() -> None:
    """
    If every worker dies of a body, the body is refused. It is not retried forever, and the server never
    decodes it itself. The next body gets a worker.
    """
    async with workers(mortal(*[dies_of_its_first_job] * MOST_KILLS)) as (pool, told):
        await pool.complete()
        with pytest.raises(Refusal) as refused:
            await decode(pool, spans(3))
        assert refused.value.status == 400
        assert refused.value.type == "undecodable"
        await pool.complete()
        assert 3 == (await decode(pool, spans(3))).outcome.received
    assert {DIED: MOST_KILLS} == told.deaths


async def test_a_worker_that_says_nothing_is_replaced() -> None:
    """A worker that does not answer in time is replaced. The next worker repeats the running job."""
    async with workers(mortal(says_nothing), silent_s=0.2) as (pool, told):
        await pool.complete()
        decoding = asyncio.create_task(decode(pool, spans(3)))
        await told.changed.wait()
        pool._silent_s = 60.0  # a generous limit, because the next worker may be slow
        assert 3 == (await decoding).outcome.received
    assert {SILENT: 1} == told.deaths


def speaks_otherwise(link: Link) -> None:
    """Behave like a worker of another version, as after an upgrade under a running server."""
    link.send(MessageKind.READY, 0)
    while (message := link.receive()).kind != MessageKind.DECODE:
        pass
    link.send(MessageKind.DONE, message.job, b"\xc1")
    link.send(MessageKind.ROWS, message.job, b"\xc1")
    link.flush()
    says_nothing(link)


async def test_a_worker_that_is_not_understood_is_replaced() -> None:
    """
    If a worker's answer cannot be understood, the worker is replaced. Its job returns to the caller instead
    of waiting forever.
    """
    async with workers(mortal(speaks_otherwise)) as (pool, told):
        await pool.complete()
        async with asyncio.timeout(30):
            with pytest.raises(NotDone):
                await decode(pool, spans(3))
            await told.changed.wait()
            await pool.complete()
            assert 3 == (await decode(pool, spans(3))).outcome.received
    assert {DIED: 1} == told.deaths


async def test_a_caller_that_goes_leaves_no_job_behind() -> None:
    """A caller may be cancelled while its job waits or runs. The worker then continues with the next job."""
    async with workers(on_a_thread) as (pool, _):
        await pool.complete()
        waiting = [asyncio.create_task(decode(pool, spans(200))) for _ in range(40)]
        await asyncio.sleep(0)
        for task in waiting[1:]:
            task.cancel()
        assert 200 == (await waiting[0]).outcome.received
        assert 3 == (await decode(pool, spans(3))).outcome.received
        assert pool.has_room


async def test_a_process_ends_as_it_should(monkeypatch: pytest.MonkeyPatch) -> None:
    """A killed worker is replaced, it gets no secrets, and no worker remains at the end."""
    monkeypatch.setenv("UPSTREAM_KEY", "secret-in-the-environment")
    async with workers(PROCESS) as (pool, told):
        await pool.complete()
        (pid,) = pool.pids
        assert b"secret-in-the-environment" not in Path(f"/proc/{pid}/environ").read_bytes()
        body = spans(50)
        assert shown(here(body)) == shown(await decode(pool, body))
        # A service manager sends SIGTERM to all processes of a service, but a worker continues until the
        # server stops it.
        os.kill(pid, signal.SIGTERM)
        assert 50 == (await decode(pool, body)).outcome.received
        os.kill(pid, signal.SIGKILL)
        await told.changed.wait()
        await pool.complete()
        (next_pid,) = pool.pids
        assert 50 == (await decode(pool, body)).outcome.received
    assert {DIED: 1} == told.deaths
    assert not [one for one in (pid, next_pid) if Path(f"/proc/{one}").exists()]


async def test_a_body_that_needs_more_memory_than_a_worker_has_is_refused() -> None:
    """
    If a body needs more memory than a worker may use, it is refused, and the machine's memory is not used up.
    The next worker decodes bodies that fit.
    """
    body = SentBody.of_export(
        "traces", payloads.protobuf_spans(20_000, first=0, users=50, age_s=0), json=False
    )
    little = starter("-m", "gateway.service.assembly.worker_process", "{socket}", str(40 * MIB))
    async with workers(little) as (pool, told):
        await pool.complete()
        with pytest.raises(Refusal) as refused:
            await decode(pool, body)
        assert "undecodable" == refused.value.type
        await pool.complete()
        assert 50 == (await decode(pool, spans(50))).outcome.received
    assert {DIED: MOST_KILLS} == told.deaths


async def test_a_worker_ends_in_peace_when_the_server_went_while_it_started() -> None:
    """
    If the server stops while a worker starts, nobody reads the worker's ready message. The worker still ends
    without an error.
    """
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.shutdown(socket.SHUT_WR)
        serve(Link(theirs), encode)


async def test_the_environment_of_a_worker_holds_no_secret() -> None:
    """
    A worker's environment has no secret: only variables for finding modules and reading text are passed on.
    """
    given = {
        "PATH": "/bin",
        "PYTHONPATH": "x",
        "UPSTREAM_KEY": "secret",
        "TOLLHOUSE_SERVER__WORKERS": "2",
        "TZ": "UTC",
    }
    assert {"PATH": "/bin", "PYTHONPATH": "x", "TZ": "UTC"} == environment(given)

"""Long jobs leave time to the event loop, and large queries take turns per person and in total."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.configuration.server import AnswerSettings
from gateway.core.errors import Refusal
from gateway.http import turns as http_turns
from gateway.http.inflight_bytes import InflightBytes, busy_refusal
from gateway.http.turns import (
    LARGE,
    EventLoopJobBatch,
    QueryTurnScheduler,
    run_in_slices,
    run_on_thread_if_large,
)
from gateway.normalise import any_format, otlp
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.operations.receivers.otlp_http import SLICED, read_export
from gateway.operations.requests.receiver_services import ReceiverServices
from spool.errors import AskedTooMuch
from spool.turns.fair_turns import FairTurnScheduler
from spool.turns.question_limit import limit_of_running_query
from tests.rounds import reduced

CALL = '{"id": "x", "call_type": "completion", "model": "m", "prompt_tokens": 1, "completion_tokens": 2, '
INNER = '{"b": [1, 2.5, true, null, "s\\u00e9"], "c": {"d": {}}}, '
LONG_TEXT = reduced(6 << 20, by=4)
SETTINGS = AnswerSettings(at_once=2, max_waiting=2, max_time=30)


async def turns_during(body: bytes, format: str) -> int:
    """Count the turns of the event loop while a body is read."""
    turns, is_done = 0, asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not is_done.is_set():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await run_in_slices(
        lambda hold: any_format.normalise_body(format, body, options=ReadOptions(), hold=hold),
        lambda _: None,
        body_bytes=len(body),
    )
    is_done.set()
    await counting
    assert 1 == found.outcome.received
    return turns


@pytest.mark.parametrize(
    ("format", "document"),
    [
        ("litellm", CALL + '"messages": [' + INNER * (LONG_TEXT // len(INNER)) + "0]}"),
        ("litellm", CALL + '"cost": NaN, "messages": [' + INNER * (LONG_TEXT // len(INNER)) + "0]}"),
        ("litellm", CALL + '"cost": NaN, "prompt": "' + 'he said \\"hi\\"\\n' * (LONG_TEXT // 12) + '"}'),
        ("litellm", CALL + '"prompt": "' + "\\ud800" * (LONG_TEXT // 6) + '"}'),
        (
            "langfuse",
            '{"batch": [{"type": "x", "body": {"input": [' + INNER * (LONG_TEXT // len(INNER)) + "0]}}]}",
        ),
        ("bedrock", '{"requestId": "r", "records": [{"data": "' + "bm9uZQ==" * (LONG_TEXT // 6) + '"}]}'),
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
    """
    A large document is read in many steps with turns of the event loop between them. In one step, the loop
    would get two or three turns.
    """
    assert await turns_during(document.encode(), format) > 20


async def places_of(slices: int) -> Sequence[bool]:
    """Read a small body in slices. Each item is True if its slice ran on the event loop's thread."""
    here, places = threading.current_thread(), []

    def work(_: Callable[[int], None]) -> Generator[None, None, str]:
        for _turn in range(slices):
            places.append(threading.current_thread() is here)
            yield
        return "done"

    assert "done" == await run_in_slices(work, lambda _: None, body_bytes=10)
    return places


async def test_long_reading_moves_to_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A small body may inflate to a large one. If reading it takes long on the event loop, the rest is read
    on another thread.
    """
    monkeypatch.setattr(http_turns, "ALONE_S", 0.0)
    assert [True, False, False] == await places_of(3)
    here = threading.current_thread()
    assert here is not await run_on_thread_if_large(threading.current_thread, is_large=True)
    assert here is await run_on_thread_if_large(threading.current_thread, is_large=False)


@pytest.mark.parametrize(("others", "places"), [(0, [True] * 3), (1, [True, False, False])])
async def test_slices_of_who_is_alone_stay_on_the_loop(
    monkeypatch: pytest.MonkeyPatch, others: int, places: Sequence[bool]
) -> None:
    """
    If no other request waits, the slices of a body stay on the event loop, so that simultaneous requests
    share a commit. Otherwise slices move to the thread.
    """
    monkeypatch.setattr(http_turns, "ALONE_S", 60.0)
    fair = FairTurnScheduler()
    for number in range(others):
        fair.note_request(fair.find_or_add_party(f"other {number}"))
    with fair.new_request("own") as work:
        await work.set_party_and_wait_for_turn()
        assert places == await places_of(3)


async def test_memory_is_counted_on_the_loop_after_each_slice() -> None:
    """
    In-flight bytes are counted only on the event loop's thread, after each slice. If the memory is refused,
    the job ends.
    """
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
            raise busy_refusal()

    with pytest.raises(Refusal, match="Too many bytes are in flight"):
        await run_in_slices(work, take, body_bytes=LARGE + 1)
    assert [(11, True), (22, True), (33, True)] == taken


async def test_a_job_that_fails_says_so() -> None:
    """The error of a job reaches its caller, whether the job ran on the event loop or on the thread."""

    def work(_: Callable[[int], None]) -> Generator[None, None, None]:
        yield
        raise Refusal(413, "too_many_items", "too many")

    for size in (1, LARGE + 1):
        with pytest.raises(Refusal, match="too many"):
            await run_in_slices(work, lambda _: None, body_bytes=size)


async def test_bodies_take_turns_on_the_thread() -> None:
    """
    Bodies on the thread take turns after each slice, so that a large body does not delay the others until
    it is finished.
    """
    order = []

    def work(name: str, _: Callable[[int], None]) -> Generator[None, None, None]:
        for _turn in range(4):
            order.append(name)
            yield

    jobs = [run_in_slices(partial(work, name), lambda _: None, body_bytes=LARGE + 1) for name in "ab"]
    await asyncio.gather(*jobs)
    assert list("abababab") == order


async def test_a_large_export_is_read_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A large export is read on the thread, even if a single item fills a slice. Smaller requests stay on the
    loop and need no thread switch.
    """
    places = []

    def work(_signal: str, body: bytes, **_: object) -> Generator[None, None, ReadOutcome]:
        for _turn in range(2):
            places.append(threading.current_thread() is here)
            yield
        return ReadOutcome(received=len(body))

    here = threading.current_thread()
    monkeypatch.setattr(otlp, "normalise_otlp", work)
    receivers = cast(
        ReceiverServices,
        SimpleNamespace(options=ReadOptions(), compiled_decoder=None, together=EventLoopJobBatch()),
    )
    for size in (SLICED, LARGE + 1):
        share = InflightBytes(LARGE).new_share()
        found = await read_export("traces", bytes(size), json=True, receivers=receivers, reservation=share)
        assert size == found.received
    assert [True, True, False, False] == places


@pytest.mark.parametrize("error", [ValueError, BaseException])
async def test_jobs_that_begin_together_run_one_after_another(error: type[BaseException]) -> None:
    """
    All jobs of one pass run before their requests continue. A job that fails fails only its own request, also with
    an error that is no Exception, such as a panic of the compiled module.
    """
    together, steps = EventLoopJobBatch(), list[str]()

    def job(name: str) -> Generator[None, None, str]:
        steps.append(f"begin {name}")
        yield
        if name == "bad":
            raise error(name)
        return name

    async def request(name: str) -> None:
        steps.append(f"continue {await together.run(job(name))}")

    found = await asyncio.gather(*map(request, ("a", "bad", "b")), return_exceptions=True)
    assert ["begin a", "begin bad", "begin b", "continue a", "continue b"] == steps
    assert [None, error, None] == [one and type(one) for one in found]


async def test_the_job_of_a_cancelled_request_does_not_run() -> None:
    """A request that is cancelled before its pass costs nothing. The other requests of the pass continue."""
    together, begun = EventLoopJobBatch(), list[int]()

    def job(number: int) -> Generator[None, None, int]:
        begun.append(number)
        yield from ()
        return number

    tasks = [asyncio.ensure_future(together.run(job(number))) for number in range(3)]
    tasks[1].cancel()
    assert [0, "CancelledError", 2] == [
        type(one).__name__ if isinstance(one, BaseException) else one
        for one in await asyncio.gather(*tasks, return_exceptions=True)
    ]
    assert [0, 2] == begun


async def test_long_jobs_let_other_tasks_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few milliseconds of jobs, the event loop runs once before the next job."""
    together, steps = EventLoopJobBatch(), list[str]()
    monkeypatch.setattr(http_turns, "ALONE_S", 0.0)

    def job(number: int) -> Generator[None, None, None]:
        steps.append(f"job {number}")
        yield from ()

    tasks = [asyncio.ensure_future(together.run(job(number))) for number in range(3)]
    for number in range(3):
        await asyncio.sleep(0)
        steps.append(f"pass {number}")
    await asyncio.gather(*tasks)
    assert ["job 0", "pass 0", "job 1", "pass 1", "job 2", "pass 2"] == steps


async def test_a_job_is_charged_to_its_party() -> None:
    """The time of a job counts as use of its party. With several parties, a job runs within its own request."""
    turns, together, ran_in = FairTurnScheduler(), EventLoopJobBatch(), list[object]()

    def job() -> Generator[None, None, None]:
        ran_in.append(asyncio.current_task())
        until = time.perf_counter() + 0.01
        while time.perf_counter() < until:
            pass
        yield

    async def request(name: str) -> float:
        with turns.new_request(name) as work:
            await work.set_party_and_wait_for_turn()
            assert work.party is not None
            before = work.party.used
            await together.run(job())
            return work.party.used - before

    assert 0.01 <= await asyncio.create_task(request("alone"))
    assert [None] == ran_in
    with turns.new_request("other") as work:
        await work.set_party_and_wait_for_turn()
        task = asyncio.create_task(request("alone"))
        await task
    assert [None, task] == ran_in


class Work:
    """Queries that run until the test lets them end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.end: dict[str, asyncio.Event] = {}

    def __call__(self, name: str) -> Callable[[], Awaitable[str]]:
        self.end[name] = asyncio.Event()

        async def work() -> str:
            self.begun.append(name)
            await self.end[name].wait()
            return name

        return work


async def sent(answer: str) -> str:
    return answer


async def settle() -> None:
    """Let the loop run until every task waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_of_a_person_and_a_few_of_all() -> None:
    """
    A person's second query waits for the first. If all places are used, the next person waits for a place.
    """
    questions, work = QueryTurnScheduler(lambda: SETTINGS), Work()
    asked = [("ada", "a1"), ("ada", "a2"), ("bob", "b"), ("eva", "e")]
    tasks = [asyncio.create_task(questions.answer_in_turn(who, work(name), sent)) for who, name in asked]
    await settle()
    assert ["a1", "b"] == work.begun
    work.end["a1"].set()
    await settle()
    assert ["a1", "b", "e"] == work.begun  # eva's query has waited longer for a place than ada's second query
    for name in ("b", "e", "a2"):
        work.end[name].set()
    assert ["a1", "a2", "b", "e"] == await asyncio.gather(*tasks)


async def test_a_moment_without_questions_is_waited_for() -> None:
    """
    A moment without queries is noticed even if it is very short, whichever query ends last. A refused query
    does not count as activity.
    """
    questions, work = QueryTurnScheduler(lambda: replace(SETTINGS, max_waiting=0)), Work()
    await questions.wait_until_idle()
    first = asyncio.create_task(questions.answer_in_turn("ada", work("a"), sent))
    other = asyncio.create_task(questions.answer_in_turn("bob", work("b"), sent))
    idle = asyncio.create_task(questions.wait_until_idle())
    await settle()
    with pytest.raises(Refusal):
        await questions.answer_in_turn("ada", work("refused"), sent)
    work.end["a"].set()
    await first
    await settle()
    assert not idle.done()
    work.end["b"].set()
    next_one = asyncio.create_task(other_after(other, questions, work))
    await idle
    work.end["next"].set()
    assert "next" == await next_one


async def other_after(ended: asyncio.Task[str], questions: QueryTurnScheduler, work: Work) -> str:
    await ended
    return await questions.answer_in_turn("eva", work("next"), sent)


async def test_a_slow_reader_keeps_its_own_turn_alone() -> None:
    """
    An answer stays in memory while it is sent to a slow reader. Until then, only this reader's next query waits.
    """
    questions, work = QueryTurnScheduler(lambda: replace(SETTINGS, at_once=1)), Work()
    read = asyncio.Event()

    async def slowly(answer: str) -> str:
        await read.wait()
        return answer

    first = asyncio.create_task(questions.answer_in_turn("ada", work("a1"), slowly))
    second = asyncio.create_task(questions.answer_in_turn("ada", work("a2"), sent))
    other = asyncio.create_task(questions.answer_in_turn("bob", work("b"), sent))
    work.end["a1"].set()
    work.end["b"].set()
    assert "b" == await other
    assert ["a1", "b"] == work.begun
    read.set()
    work.end["a2"].set()
    assert ["a1", "a2"] == list(await asyncio.gather(first, second))


async def test_one_more_that_waits_is_refused() -> None:
    """
    A query beyond the limit of waiting queries gets 429 with Retry-After, and the earlier ones are answered.
    """
    questions, work = QueryTurnScheduler(lambda: SETTINGS), Work()
    tasks = [
        asyncio.create_task(questions.answer_in_turn("ada", work(str(number)), sent)) for number in range(3)
    ]
    await settle()
    with pytest.raises(Refusal, match=r"answers\.max_waiting") as refused:
        await questions.answer_in_turn("ada", work("3"), sent)
    assert refused.value.status == 429
    assert bool(refused.value.retry_after_s)
    for number in range(3):
        work.end[str(number)].set()
    assert ["0", "1", "2"] == await asyncio.gather(*tasks)


async def test_cancelled_query_releases_its_turn() -> None:
    """A query may be cancelled while it waits for the person's turn, waits for a place, or runs."""
    questions, work = QueryTurnScheduler(lambda: replace(SETTINGS, at_once=1)), Work()
    asked = [("ada", "a1"), ("ada", "a2"), ("bob", "b"), ("eva", "e")]
    tasks = {
        name: asyncio.create_task(questions.answer_in_turn(who, work(name), sent)) for who, name in asked
    }
    await settle()
    for name in ("a2", "b", "a1"):
        tasks[name].cancel()
    await settle()
    assert ["a1", "e"] == work.begun
    work.end["e"].set()
    assert "e" == await tasks["e"]
    work.end["again"] = asyncio.Event()
    again = work("again")
    work.end["again"].set()
    assert "again" == await questions.answer_in_turn("ada", again, sent)


async def test_a_question_ends_in_time() -> None:
    """A query that runs too long is refused with advice. A query that waits too long may be repeated."""
    questions, work = QueryTurnScheduler(lambda: replace(SETTINGS, max_time=0.05)), Work()
    with pytest.raises(AskedTooMuch, match=r"answers\.max_time"):
        await questions.answer_in_turn("ada", work("a"), sent)

    endless = QueryTurnScheduler(lambda: replace(SETTINGS, at_once=1, max_time=times.pop()))
    times = [0.05, 30.0]
    first = asyncio.create_task(endless.answer_in_turn("ada", work("b"), sent))
    await settle()
    with pytest.raises(Refusal, match="did not get its turn"):
        await endless.answer_in_turn("bob", work("c"), sent)
    times.append(30.0)
    work.end["b"].set()
    assert "b" == await first


async def test_what_is_worked_on_knows_its_limit() -> None:
    """
    The ledger can read the time limit of a query from any of its tasks and threads. Other work has no limit.
    """
    questions = QueryTurnScheduler(lambda: SETTINGS)

    async def work() -> int:
        limit = await asyncio.create_task(asyncio.to_thread(limit_of_running_query))
        assert limit is not None
        return limit.max_rows

    async def none(rows: int) -> int:
        assert limit_of_running_query() is None
        return rows

    assert SETTINGS.max_summed_rows == await questions.answer_in_turn("ada", work, none)


async def test_queries_continue_during_a_recount() -> None:
    """
    A recount has no time limit and uses no place, so queries of the same person continue. Each person may
    have one more recount in the queue.
    """
    questions, work = QueryTurnScheduler(lambda: replace(SETTINGS, at_once=1)), Work()
    asked = [("ada", "a1"), ("ada", "a2"), ("bob", "b")]
    tasks = [asyncio.create_task(questions.run_recount(who, work(name))) for who, name in asked]
    await settle()
    question = work("question")
    work.end["question"].set()
    assert "question" == await questions.answer_in_turn("ada", question, sent)
    for name in ("a1", "b", "a2"):
        work.end[name].set()
        await settle()
    assert ["a1", "a2", "b"] == await asyncio.gather(*tasks)
    assert ["a1", "question", "b", "a2"] == work.begun


async def test_a_recount_waits_within_its_time_and_works_beyond_it() -> None:
    """
    A second recount that waits too long gets 429 with Retry-After, while the first may take as long as it needs.
    """
    questions, work = QueryTurnScheduler(lambda: replace(SETTINGS, max_time=0.05)), Work()
    first = asyncio.create_task(questions.run_recount("ada", work("a")))
    await settle()
    with pytest.raises(Refusal, match="did not get its turn") as refused:
        await questions.run_recount("bob", work("b"))
    assert refused.value.status == 429
    assert bool(refused.value.retry_after_s)
    work.end["a"].set()
    assert "a" == await first

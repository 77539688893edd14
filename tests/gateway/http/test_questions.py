"""Turns of large questions: one at a time for each person, a few for all, none for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from gateway.http.questions import Questions
from gateway.service.configuration.sections import AnswerSettings
from gateway.service.errors import Refusal
from spool.errors import AskedTooMuch
from spool.ledger.queries import limit_of_question

pytestmark = pytest.mark.asyncio

SETTINGS = AnswerSettings(at_once=2, max_waiting=2, max_time=30)


class Work:
    """Questions that are worked on until they may end."""

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
    """Until every task waits for something."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_of_a_person_and_a_few_of_all() -> None:
    """The second of a person waits for the first, and whoever comes when all places are taken for one of them."""
    questions, work = Questions(lambda: SETTINGS), Work()
    asked = [("ada", "a1"), ("ada", "a2"), ("bob", "b"), ("eva", "e")]
    tasks = [asyncio.create_task(questions.answer(who, work(name), sent)) for who, name in asked]
    await settle()
    assert ["a1", "b"] == work.begun
    work.end["a1"].set()
    await settle()
    assert ["a1", "b", "e"] == work.begun  # eva waited longer for a place than the second of ada
    for name in ("b", "e", "a2"):
        work.end[name].set()
    assert ["a1", "a2", "b", "e"] == await asyncio.gather(*tasks)


async def test_a_moment_without_questions_is_waited_for() -> None:
    """It is told however short it is, and whoever's questions ended last; one that is refused is none."""
    questions, work = Questions(lambda: replace(SETTINGS, max_waiting=0)), Work()
    await questions.until_idle()
    first = asyncio.create_task(questions.answer("ada", work("a"), sent))
    other = asyncio.create_task(questions.answer("bob", work("b"), sent))
    idle = asyncio.create_task(questions.until_idle())
    await settle()
    with pytest.raises(Refusal):
        await questions.answer("ada", work("refused"), sent)
    work.end["a"].set()
    await first
    await settle()
    assert not idle.done()
    work.end["b"].set()
    next_one = asyncio.create_task(other_after(other, questions, work))
    await idle
    work.end["next"].set()
    assert "next" == await next_one


async def other_after(ended: asyncio.Task[str], questions: Questions, work: Work) -> str:
    await ended
    return await questions.answer("eva", work("next"), sent)


async def test_a_slow_reader_keeps_its_own_turn_alone() -> None:
    """While an answer is sent it is in memory: the person waits, and others do not."""
    questions, work = Questions(lambda: replace(SETTINGS, at_once=1)), Work()
    read = asyncio.Event()

    async def slowly(answer: str) -> str:
        await read.wait()
        return answer

    first = asyncio.create_task(questions.answer("ada", work("a1"), slowly))
    second = asyncio.create_task(questions.answer("ada", work("a2"), sent))
    other = asyncio.create_task(questions.answer("bob", work("b"), sent))
    work.end["a1"].set()
    work.end["b"].set()
    assert "b" == await other
    assert ["a1", "b"] == work.begun
    read.set()
    work.end["a2"].set()
    assert ["a1", "a2"] == list(await asyncio.gather(first, second))


async def test_one_more_that_waits_is_refused() -> None:
    """429 with Retry-After, and the others are answered."""
    questions, work = Questions(lambda: SETTINGS), Work()
    tasks = [asyncio.create_task(questions.answer("ada", work(str(number)), sent)) for number in range(3)]
    await settle()
    with pytest.raises(Refusal, match=r"answers\.max_waiting") as refused:
        await questions.answer("ada", work("3"), sent)
    assert refused.value.status == 429
    assert bool(refused.value.retry_after_s)
    for number in range(3):
        work.end[str(number)].set()
    assert ["0", "1", "2"] == await asyncio.gather(*tasks)


async def test_who_goes_away_gives_the_turn_back() -> None:
    """Given up while it waits, for the person's turn or for a place, and while it is worked on."""
    questions, work = Questions(lambda: replace(SETTINGS, at_once=1)), Work()
    asked = [("ada", "a1"), ("ada", "a2"), ("bob", "b"), ("eva", "e")]
    tasks = {name: asyncio.create_task(questions.answer(who, work(name), sent)) for who, name in asked}
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
    assert "again" == await questions.answer("ada", again, sent)


async def test_a_question_ends_in_time() -> None:
    """What takes longer is refused with what to ask instead; what waits longer is to repeat."""
    questions, work = Questions(lambda: replace(SETTINGS, max_time=0.05)), Work()
    with pytest.raises(AskedTooMuch, match=r"answers\.max_time"):
        await questions.answer("ada", work("a"), sent)

    endless = Questions(lambda: replace(SETTINGS, at_once=1, max_time=times.pop()))
    times = [0.05, 30.0]
    first = asyncio.create_task(endless.answer("ada", work("b"), sent))
    await settle()
    with pytest.raises(Refusal, match="turn of this question"):
        await endless.answer("bob", work("c"), sent)
    times.append(30.0)
    work.end["b"].set()
    assert "b" == await first


async def test_what_is_worked_on_knows_its_limit() -> None:
    """The ledger reads it, wherever it is asked from; nothing else has one."""
    questions = Questions(lambda: SETTINGS)

    async def work() -> int:
        limit = await asyncio.create_task(asyncio.to_thread(limit_of_question))
        assert limit is not None
        return limit.max_rows

    async def none(rows: int) -> int:
        assert limit_of_question() is None
        return rows

    assert SETTINGS.max_summed_rows == await questions.answer("ada", work, none)


async def test_one_recount_of_all_and_questions_beside_it() -> None:
    """A recount has no time limit and no place: its person's questions go on, and a person has one in the queue."""
    questions, work = Questions(lambda: replace(SETTINGS, at_once=1)), Work()
    asked = [("ada", "a1"), ("ada", "a2"), ("bob", "b")]
    tasks = [asyncio.create_task(questions.recount(who, work(name))) for who, name in asked]
    await settle()
    question = work("question")
    work.end["question"].set()
    assert "question" == await questions.answer("ada", question, sent)
    for name in ("a1", "b", "a2"):
        work.end[name].set()
        await settle()
    assert ["a1", "a2", "b"] == await asyncio.gather(*tasks)
    assert ["a1", "question", "b", "a2"] == work.begun


async def test_a_recount_waits_within_its_time_and_works_beyond_it() -> None:
    """429 with Retry-After for the second; the first takes as long as there is to count."""
    questions, work = Questions(lambda: replace(SETTINGS, max_time=0.05)), Work()
    first = asyncio.create_task(questions.recount("ada", work("a")))
    await settle()
    with pytest.raises(Refusal, match="turn of this question") as refused:
        await questions.recount("bob", work("b"))
    assert refused.value.status == 429
    assert bool(refused.value.retry_after_s)
    work.end["a"].set()
    assert "a" == await first

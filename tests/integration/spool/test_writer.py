"""
The only task that commits: its groups, its fairness between keys, and its end, which every waiting sender learns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from spool.errors import SpoolUnavailable
from spool.identity import RecordIdentity
from spool.log.commits import writer as writer_module
from spool.log.commits.writer import SHARE_RECORDS, GroupCommitWriter, GroupOvertaken
from spool.log.duplicates import DuplicateIndex
from spool.log.planning.planner import CommitPlanner
from spool.log.values import Receipt, Submission
from spool.record import Record
from spool.turns.fair_turns import FairTurnScheduler
from tests.integration.spool.conftest import Starter
from tests.loop_turns import until_all_wait
from tests.spool.contract.examples import add, assert_books_balance, call, everything, submission
from tests.waiting import awaited, limited

WAIT_S = 0.5  # in seconds; if the test stalls longer between two steps, another refusal than the expected one occurs


def end_of_commits() -> None:
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "group commit"]
    task.cancel()


async def test_all_submissions_to_a_dead_writer_get_the_error() -> None:
    """
    If the writer dies, all submissions get the error: those in the current group, waiting ones and later
    ones. Closing the writer does not hang.
    """
    began = asyncio.Event()

    async def commit(_: Sequence[Submission]) -> Sequence[Receipt]:
        began.set()
        return await asyncio.Future()

    async def between() -> bool:
        return False

    writer = GroupCommitWriter(commit, between)
    in_hand = asyncio.create_task(writer.append_submission(submission([call(1)])))
    await began.wait()
    behind = asyncio.create_task(writer.append_submission(submission([call(2)])))
    await asyncio.sleep(0)
    end_of_commits()
    for waiting in (in_hand, behind):
        with pytest.raises(SpoolUnavailable):
            await waiting
    with pytest.raises(SpoolUnavailable):
        await writer.append_submission(submission([call(3)]))
    assert not writer.is_alive
    await writer.close()


def receipts(group: Sequence[Submission]) -> Sequence[Receipt]:
    return [Receipt(id="", records=len(one.records), ignored=0, rejected=0) for one in group]


class Groups:
    """Commits at once and records the size of each group."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    async def commit(self, group: Sequence[Submission]) -> Sequence[Receipt]:
        self.sizes.append(len(group))
        return receipts(group)

    async def between(self) -> bool:
        return False


async def test_a_lone_sender_waits_for_nobody() -> None:
    groups = Groups()
    writer = GroupCommitWriter(groups.commit, groups.between, gather_s=3600)
    async with limited():
        for number in range(5):
            await writer.append_submission(submission([call(number)]))
        await writer.close()
    assert [1] * 5 == groups.sizes


async def test_submissions_within_the_gathering_time_form_one_group() -> None:
    """Submissions that arrive within the gathering time form one group. Closing ends the wait."""
    groups = Groups()
    writer = GroupCommitWriter(groups.commit, groups.between, gather_s=3600)

    def append(first: int, last: int) -> list[asyncio.Task[Receipt]]:
        numbers = range(first, last + 1)
        return [
            asyncio.create_task(writer.append_submission(submission([call(number)]))) for number in numbers
        ]

    async with limited():
        await asyncio.gather(*append(1, 2))
        behind = append(3, 4)
        await until_all_wait()
        behind += append(5, 7)
        await until_all_wait()
        assert [2] == groups.sizes
        await writer.close()
        await asyncio.gather(*behind)
    assert [2, 5] == groups.sizes


class HeldGroups:
    """Records the parties and record counts of each group. The first commit ends when the test lets it."""

    def __init__(self) -> None:
        self.groups: list[dict[str, int]] = []
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def commit(self, group: Sequence[Submission]) -> Sequence[Receipt]:
        counts: dict[str, int] = {}
        for one in group:
            source = one.records[0].source
            counts[source] = counts.get(source, 0) + len(one.records)
        self.groups.append(counts)
        self.began.set()
        await self.go_on.wait()
        return receipts(group)

    async def between(self) -> bool:
        return False

    async def let_go(self, writer: GroupCommitWriter, appended: Sequence[asyncio.Task[Receipt]]) -> None:
        """Release the first commit once all submissions wait. Then wait for all answers and close."""
        await until_all_wait()
        self.go_on.set()
        async with limited():
            await asyncio.gather(*appended)
            await writer.close()


def append_as(
    writer: GroupCommitWriter,
    scheduler: FairTurnScheduler,
    name: str,
    records: int,
    *,
    first: int = 0,
    waiting: int = 0,
) -> asyncio.Task[Receipt]:
    """Append a submission of a party, with calls and a number of waiting counters."""

    async def append() -> Receipt:
        with scheduler.new_request(name) as work:
            await work.set_party_and_wait_for_turn()
            calls = [call(first + number, source=name) for number in range(records)]
            return await writer.append_submission(replace(submission(calls), pending=waiting))

    return asyncio.create_task(append())


@pytest.mark.proves("One sender locks out all others")
async def test_one_party_does_not_fill_a_group_while_others_wait() -> None:
    """
    The party that used less comes first, with only a small part of the busy party's records. The rest follows
    in later groups.
    """
    turns, groups = FairTurnScheduler(), HeldGroups()
    writer = GroupCommitWriter(groups.commit, groups.between)
    turns.find_or_add_party("busy").charge_time(10.0)
    appended = [append_as(writer, turns, "busy", 1)]
    await awaited(groups.began.wait())
    appended += [append_as(writer, turns, "busy", 40, first=1000 * number) for number in range(1, 26)]
    await until_all_wait()
    appended += [append_as(writer, turns, "small", 1, first=number) for number in range(3)]
    await groups.let_go(writer, appended)
    assert [{"busy": 1}, {"small": 3}] == groups.groups[:2]
    assert all(group["busy"] <= SHARE_RECORDS for group in groups.groups[2:])
    assert 1001 == sum(group.get("busy", 0) for group in groups.groups)


async def test_many_parties_that_used_little_share_a_group() -> None:
    """Requests of 100 records under 40 keys share one commit in their order, like those of one key."""
    turns, groups = FairTurnScheduler(), HeldGroups()
    writer = GroupCommitWriter(groups.commit, groups.between)
    turns.find_or_add_party("first").charge_time(0.01)
    appended = [append_as(writer, turns, "first", 1)]
    await awaited(groups.began.wait())
    names = [f"key {number}" for number in range(40)]
    for number, name in enumerate(names):
        turns.find_or_add_party(name).charge_time((40 - number) / 1000)
        appended.append(append_as(writer, turns, name, 100, first=1000 * number))
    await groups.let_go(writer, appended)
    assert [{"first": 1}, dict.fromkeys(names, 100)] == groups.groups
    assert names == list(groups.groups[1])


@pytest.mark.parametrize("is_waiting", [False, True])
async def test_small_part_of_a_busy_party_is_measured_as_work(*, is_waiting: bool) -> None:
    """
    The small part of a busy party's records that goes together with a party that used less is measured as work:
    many submissions cost more than one, and waiting counters also count.
    """
    turns, groups = FairTurnScheduler(), HeldGroups()
    writer = GroupCommitWriter(groups.commit, groups.between)
    turns.find_or_add_party("busy").charge_time(10.0)
    appended = [append_as(writer, turns, "busy", 1)]
    await awaited(groups.began.wait())
    waiting = 31 if is_waiting else 0
    appended += [
        append_as(writer, turns, "busy", 1, first=number, waiting=waiting) for number in range(1, 64)
    ]
    await until_all_wait()
    appended.append(append_as(writer, turns, "small", 1))
    await groups.let_go(writer, appended)
    assert [{"busy": 1}, {"small": 1, "busy": 1 if is_waiting else 6}] == groups.groups[:2]


async def test_a_party_that_is_alone_fills_groups() -> None:
    turns, groups = FairTurnScheduler(), HeldGroups()
    writer = GroupCommitWriter(groups.commit, groups.between)
    appended = [append_as(writer, turns, "busy", 1)]
    await awaited(groups.began.wait())
    appended += [append_as(writer, turns, "busy", 200, first=1000 * number) for number in range(1, 6)]
    await groups.let_go(writer, appended)
    assert [{"busy": 1}, {"busy": 1000}] == groups.groups


@pytest.fixture
def endless_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make rests endless, so that a party that must rest commits nothing more in the test."""
    monkeypatch.setattr(writer_module, "REST", 1e9)
    monkeypatch.setattr(writer_module, "MOST_REST_S", 3600.0)


rests_for_ever = pytest.mark.usefixtures("endless_rests")


@rests_for_ever
async def test_others_have_their_turn_after_a_busy_group() -> None:
    """
    After a group of a party that used far more, others have their turn: the next group of the busy party has to
    rest. A party that used far less does not wait for it.
    """
    turns, groups = FairTurnScheduler(), HeldGroups()
    groups.go_on.set()
    writer = GroupCommitWriter(groups.commit, groups.between)
    turns.find_or_add_party("busy").charge_time(10.0)
    async with limited():
        await append_as(writer, turns, "small", 1)
        await append_as(writer, turns, "busy", 1)
        behind = append_as(writer, turns, "busy", 40, first=10)
        await until_all_wait()
        assert [{"small": 1}, {"busy": 1}] == groups.groups
        await append_as(writer, turns, "small", 1, first=1)
        await writer.close()
        await behind
    assert {"small": 1} == {name: count for name, count in groups.groups[2].items() if name == "small"}
    assert 41 == sum(group.get("busy", 0) for group in groups.groups)


@rests_for_ever
async def test_who_used_little_waits_for_nobody() -> None:
    """
    A party that used little waits for nobody. A newcomer has used nothing, and in comparison the light use of
    another party must not count as a flood.
    """
    turns, groups = FairTurnScheduler(), HeldGroups()
    groups.go_on.set()
    writer = GroupCommitWriter(groups.commit, groups.between)
    turns.find_or_add_party("small").charge_time(0.05)
    async with limited():
        await append_as(writer, turns, "newcomer", 1)
        for number in range(3):
            await append_as(writer, turns, "small", 1, first=number)
        await writer.close()
    assert 4 == len(groups.groups)


@rests_for_ever
async def test_busy_party_need_not_rest_for_a_second_small_group() -> None:
    """
    After a group of a small party, the busy party need not rest for another one, because a small party seldom has a
    second group ready.
    """
    turns, groups = FairTurnScheduler(), HeldGroups()
    groups.go_on.set()
    writer = GroupCommitWriter(groups.commit, groups.between)
    turns.find_or_add_party("busy").charge_time(10.0)
    async with limited():
        for number in range(3):
            await append_as(writer, turns, "small", 1, first=number)
            await append_as(writer, turns, "busy", 1, first=number)
        await writer.close()
    assert [{"small": 1}, {"busy": 1}] * 3 == groups.groups


@rests_for_ever
async def test_parties_that_used_alike_do_not_rest_for_each_other() -> None:
    """
    Parties that used about the same do not rest for each other. A party rests only for one that used far less.
    Otherwise it would wait for requests that may never come.
    """
    turns, groups = FairTurnScheduler(), HeldGroups()
    groups.go_on.set()
    writer = GroupCommitWriter(groups.commit, groups.between)
    for name, used_s in (("one", 10.0), ("other", 6.0)):
        turns.find_or_add_party(name).charge_time(used_s)
    async with limited():
        for number in range(4):
            await append_as(writer, turns, ("one", "other")[number % 2], 1, first=number)
        await writer.close()
    assert 4 == len(groups.groups)


class OvertakenGroups(HeldGroups):
    """Commits groups. Each group checks, when it may continue, whether it should give way to another party."""

    writer: GroupCommitWriter

    async def commit(self, group: Sequence[Submission]) -> Sequence[Receipt]:
        answers = await super().commit(group)
        if self.writer.is_overtaken:
            raise GroupOvertaken
        return answers


@pytest.mark.proves("one key floods")
async def test_a_running_group_of_a_busy_party_gives_way_once() -> None:
    """
    A running group of a busy party gives way once, to a party that used far less. The second time it is committed,
    whoever arrives meanwhile.
    """
    turns, groups = FairTurnScheduler(), OvertakenGroups()
    groups.writer = writer = GroupCommitWriter(groups.commit, groups.between)
    turns.find_or_add_party("busy").charge_time(10.0)
    appended = [append_as(writer, turns, "busy", 40)]
    await awaited(groups.began.wait())
    appended.append(append_as(writer, turns, "small", 1))
    await until_all_wait()
    groups.go_on.set()
    async with limited():
        groups.began.clear()
        await appended[1]
        groups.go_on.clear()
        await groups.began.wait()
        appended.append(append_as(writer, turns, "small", 1, first=1))
        await until_all_wait()
        groups.go_on.set()
        answers = await asyncio.gather(*appended)
        await writer.close()
    assert [{"busy": 40}, {"small": 1}, {"busy": 40}, {"small": 1}] == groups.groups
    assert [40, 1, 1] == [receipt.records for receipt in answers]


@pytest.mark.parametrize("used_s", [0.1, 6.0])
async def test_a_running_group_gives_way_to_far_less_alone(used_s: float) -> None:
    """A running group does not give way if its own party used little, or not much more than the new one."""
    turns, groups = FairTurnScheduler(), OvertakenGroups()
    groups.writer = writer = GroupCommitWriter(groups.commit, groups.between)
    turns.find_or_add_party("one").charge_time(0.15 if used_s < 1 else 10.0)
    turns.find_or_add_party("other").charge_time(used_s if used_s > 1 else 0.0)
    first = append_as(writer, turns, "one", 40)
    await awaited(groups.began.wait())
    behind = append_as(writer, turns, "other", 1)
    await until_all_wait()
    groups.go_on.set()
    async with limited():
        await asyncio.gather(first, behind)
        await writer.close()
    assert [{"one": 40}, {"other": 1}] == groups.groups


async def test_group_that_gave_way_stores_no_record_twice(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a group gave way, no record is stored twice: its records get the numbers after those of the party that passed
    it.
    """
    spool, turns = await start(), FairTurnScheduler()
    turns.find_or_add_party("busy").charge_time(10.0)
    began, goes_on, plan = threading.Event(), threading.Event(), CommitPlanner.plan_group

    def held(*args: Any) -> Any:
        planned = plan(*args)
        began.set()
        goes_on.wait(60)
        return planned

    async def append(name: str, *records: tuple[Record, RecordIdentity]) -> Receipt:
        with turns.new_request(name) as work:
            await work.set_party_and_wait_for_turn()
            return await add(spool.log, *records)

    monkeypatch.setattr(CommitPlanner, "plan_group", held)
    busy = asyncio.create_task(append("busy", *map(call, range(40)), unidentified(40)))
    await asyncio.to_thread(began.wait, 60)
    small = asyncio.create_task(append("small", call(99)))
    while not (await spool.log.stats()).waiting:  # noqa: ASYNC110 - a figure tells nobody
        await asyncio.sleep(0)
    goes_on.set()
    assert [41, 1] == [receipt.records for receipt in await asyncio.gather(busy, small)]
    expected = [call(99)[0], *(call(number)[0] for number in range(40)), unidentified(40)[0]]
    assert expected == await everything(spool.log)
    await assert_books_balance(spool.log)


async def test_a_queue_that_one_party_fills_has_room_for_another() -> None:
    """To make room, the newest submissions of the party with the most are refused."""
    turns, groups = FairTurnScheduler(), HeldGroups()
    writer = GroupCommitWriter(groups.commit, groups.between, max_waiting=3)
    first = append_as(writer, turns, "busy", 1)
    await awaited(groups.began.wait())
    busy = [append_as(writer, turns, "busy", 1, first=number) for number in range(1, 5)]
    await until_all_wait()
    small = append_as(writer, turns, "small", 1)
    await until_all_wait()
    groups.go_on.set()
    async with limited():
        answers = await asyncio.gather(first, *busy, small, return_exceptions=True)
        await writer.close()
    refused = [place for place, answer in enumerate(answers) if isinstance(answer, SpoolUnavailable)]
    assert [3, 4] == refused


async def test_those_who_are_gathered_are_committed_when_the_time_is_over() -> None:
    groups = Groups()
    writer = GroupCommitWriter(groups.commit, groups.between, gather_s=0.05)
    async with limited():
        await asyncio.gather(*(writer.append_submission(submission([call(number)])) for number in range(2)))
        await writer.append_submission(submission([call(3)]))
    assert [2, 1] == groups.sizes
    await writer.close()


class HangingDisk:
    """Commits wait until the test lets them finish. `kept` lists the committed submissions in order."""

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.began = asyncio.Event()
        self.kept: list[Submission] = []

    async def commit(self, group: Sequence[Submission]) -> Sequence[Receipt]:
        self.began.set()
        await self.answers.wait()
        self.kept += group
        return receipts(group)

    async def between(self) -> bool:
        return False


async def test_a_disk_that_does_not_answer_holds_up_the_group_in_hand_alone() -> None:
    """
    Submissions that already wait are refused at the time limit, later ones at once. Neither is stored when
    the disk responds again.
    """
    disk = HangingDisk()
    writer = GroupCommitWriter(disk.commit, disk.between, wait_s=WAIT_S)
    in_hand = asyncio.create_task(writer.append_submission(submission([call(1)])))
    await disk.began.wait()
    with pytest.raises(SpoolUnavailable, match=r"in time \(spool.commit_wait\)"):
        await writer.append_submission(submission([call(2)]))
    assert writer.running_s >= WAIT_S
    with pytest.raises(SpoolUnavailable, match=r"does not respond \(spool.commit_wait\)"):
        await writer.append_submission(submission([call(3)]))
    disk.answers.set()
    assert 1 == (await in_hand).records
    assert 1 == (await writer.append_submission(submission([call(4)]))).records
    await writer.close()
    assert [call(1)[0], call(4)[0]] == [one.records[0] for one in disk.kept]
    assert 0.0 == writer.running_s


async def test_group_in_hand_is_answered_at_the_time_limit() -> None:
    """
    With `answers_in_time`, the group in hand is also answered at the limit. It is stored when the database
    responds, so its sender's repeat is a duplicate.
    """
    database = HangingDisk()
    writer = GroupCommitWriter(
        database.commit, database.between, wait_s=WAIT_S, answers_in_time=True, storage_name="the database"
    )
    in_hand = asyncio.create_task(writer.append_submission(submission([call(1)])))
    await database.began.wait()
    with pytest.raises(
        SpoolUnavailable, match=r"the database did not respond in time \(spool.commit_wait\)$"
    ):
        await writer.append_submission(submission([call(2)]))
    with pytest.raises(SpoolUnavailable, match="The records may be stored nevertheless"):
        await in_hand
    database.answers.set()
    await writer.close()
    assert [call(1)[0]] == [one.records[0] for one in database.kept]


async def test_no_more_wait_than_are_allowed() -> None:
    """
    No more submissions wait than are allowed: the last allowed one is stored, and one more is refused at once.
    """
    disk = HangingDisk()
    writer = GroupCommitWriter(disk.commit, disk.between, max_waiting=2)
    senders = [asyncio.create_task(writer.append_submission(submission([call(0)])))]
    await disk.began.wait()
    senders += [
        asyncio.create_task(writer.append_submission(submission([call(number)]))) for number in (1, 2)
    ]
    await asyncio.sleep(0)
    assert 2 == writer.waiting_count
    with pytest.raises(SpoolUnavailable, match="2 submissions are already waiting"):
        await writer.append_submission(submission([call(3)]))
    disk.answers.set()
    await asyncio.gather(*senders)
    await writer.close()
    assert [call(number)[0] for number in range(3)] == [one.records[0] for one in disk.kept]


async def test_the_figures_show_what_keeps_the_writing_connection(start: Starter) -> None:
    """
    The metrics show a commit and an upkeep task that hang on the disk, while the reading connection still answers.
    """
    spool = await start()
    began, goes_on = threading.Event(), threading.Event()
    assert 0.0 == (await spool.log.stats()).commit_s

    def hang(_: object) -> None:
        began.set()
        goes_on.wait(60)

    hanging = asyncio.create_task(spool.database.run(hang))
    await asyncio.to_thread(began.wait, 30)
    sender = asyncio.create_task(add(spool.log, call(1)))
    assert (await spool.log.stats()).commit_s > 0
    goes_on.set()
    await asyncio.gather(hanging, sender)
    assert 0.0 == (await spool.log.stats()).commit_s


async def test_a_log_whose_writer_died_says_so(start: Starter) -> None:
    """
    If the log's writer died, the log says so: `alive` is false, so /livez fails. Stored records exist after a
    restart.
    """
    spool = await start()
    await add(spool.log, call(1))
    assert (await spool.log.stats()).alive
    end_of_commits()
    await asyncio.sleep(0)
    stats = await spool.log.stats()
    assert stats.alive is False
    assert stats.writable is False


def unidentified(number: int) -> tuple[Record, RecordIdentity]:
    """Return a call that no dedup key recognizes, so a second copy would count twice."""
    record, known_as = call(number)
    return record, RecordIdentity(known_as.id, certain=False)


@pytest.mark.parametrize(
    "fails",
    [CommitPlanner.apply_plan_and_return_next_numbers, DuplicateIndex.add_ids],
    ids=lambda method: method.__qualname__,
)
async def test_what_is_on_disk_is_never_committed_again(
    start: Starter,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fails: Callable[..., object],
) -> None:
    """
    If updating memory after a commit fails, its senders still get receipts. Nothing more is stored until a
    restart, which repairs the memory.
    """
    spool = await start()
    await add(spool.log, call(0))

    def fail(*_: object) -> None:
        raise MemoryError

    owner = CommitPlanner if fails is CommitPlanner.apply_plan_and_return_next_numbers else DuplicateIndex
    with monkeypatch.context() as broken:
        broken.setattr(owner, fails.__name__, fail)
        receipts = await asyncio.gather(
            *[add(spool.log, unidentified(number), call(9)) for number in (1, 2, 3)]
        )
    assert [2, 2, 2] == [receipt.records for receipt in receipts]
    with pytest.raises(SpoolUnavailable):
        await add(spool.log, call(4))
    assert not (await spool.log.stats()).alive
    lines = [vars(line) for line in caplog.records if line.name == "spool.log.commits.writer"]
    assert ["MemoryError"] == [line["error"] for line in lines]

    await spool.close()
    spool = await start()
    await add(spool.log, call(9), call(4))
    assert [call(number)[0] for number in (0, 1, 9, 2, 3, 4)] == await everything(spool.log)
    await assert_books_balance(spool.log)


async def test_a_receipt_that_cannot_be_made_undoes_the_commit(
    start: Starter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    If a receipt cannot be created, the commit is undone. The receipt is created before the commit ends, so a repeat
    finds nothing stored.
    """
    spool = await start()
    with monkeypatch.context() as broken:
        broken.setattr("spool.log.receipts.ReceiptIdCipher.encrypt_receipt_id", None)
        with pytest.raises(TypeError):
            await add(spool.log, unidentified(1))
    await add(spool.log, unidentified(1))
    assert [call(1)[0]] == await everything(spool.log)
    await assert_books_balance(spool.log)


class SlowWay:
    """Commits groups of at most `most` submissions. Larger groups fail with a timeout."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.sizes: list[int] = []

    async def commit(self, group: Sequence[Submission]) -> Sequence[Receipt]:
        self.sizes.append(len(group))
        if len(group) > self._most:
            raise SpoolUnavailable("not in time")
        return receipts(group)

    async def between(self) -> bool:
        return False


async def test_on_a_slow_way_groups_become_small_enough() -> None:
    """
    Senders that all repeat together succeed in the end, and few groups fail while the commits are slow.

    When commits are fast again, groups are as large as before.
    """
    way = SlowWay(30)
    writer = GroupCommitWriter(way.commit, way.between)

    async def send(number: int) -> None:
        while True:
            try:
                await writer.append_submission(submission([call(number)]))
            except SpoolUnavailable:
                await asyncio.sleep(0)
            else:
                return

    async def send_all(times: int) -> None:
        for _ in range(times):
            await asyncio.gather(*map(send, range(100)))

    async with limited():
        await send_all(1)
        way.sizes = []
        await send_all(20)
        assert sum(size > 30 for size in way.sizes) <= len(way.sizes) / 5
        way._most = 100
        await send_all(20)
    assert 100 == way.sizes[-1]
    await writer.close()

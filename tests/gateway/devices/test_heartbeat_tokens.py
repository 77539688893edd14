"""The words of heartbeats: lost answers, repeats and restored backups are no copies, and every copy is noticed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from gateway.devices.heartbeat_tokens import HeartbeatTokenCheck, HeartbeatTokens
from gateway.devices.reports import DeviceReport
from spool.devices.device import Device

SECRET = b"s" * 32


@dataclass
class Disk:
    """The state of an agent: the last word that it stored, and the number of its heartbeats."""

    word: str = ""
    seq: int = 0


class Gateway:
    def __init__(self) -> None:
        self.words = HeartbeatTokens(SECRET)
        self.row = Device(id="laptop-1", enrolled_at=1.0, enrolled_by="fleet", last_seen=1.0)

    def answer(self, disk: Disk) -> tuple[bool, str]:
        """Return whether the heartbeat shows a copy, and the next word."""
        report = DeviceReport(id=self.row.id, seq=disk.seq, word=disk.word)
        turn = self.words.check_token(self.row, report)
        self.row = replace(self.row, words=str(turn.numbers))
        return turn.is_copy, self.words.make_token(self.row.id, turn.numbers.issued) if turn.is_next else ""

    def beat(self, disk: Disk, *, lost: bool = False) -> bool:
        """Send one heartbeat. If the answer is `lost`, the agent keeps its word."""
        disk.seq += 1
        is_copy, word = self.answer(disk)
        if word and not lost:
            disk.word = word
        return is_copy


def test_lost_answers_and_repeats_are_no_copies() -> None:
    """
    Copies are not suspected if answers are lost at random, or if requests of earlier heartbeats arrive late, as at
    a second gateway.
    """
    rng = random.Random(7)
    gateway, disk = Gateway(), Disk()
    for _ in range(2000):
        late = replace(disk, seq=disk.seq + 1)
        assert not gateway.beat(disk, lost=rng.random() < 0.4)
        if rng.random() < 0.3:
            is_copy, _ = gateway.answer(late)  # the answer of the gateway is lost, so nobody reads it
            assert not is_copy


@pytest.mark.proves("The disk of a laptop is copied")
@pytest.mark.parametrize("seed", range(50))
def test_every_copy_is_noticed(seed: int) -> None:
    """
    Two machines with copies of one disk send in random order, with lost answers. Soon one of them returns an older
    word, so the copy is noticed.
    """
    rng = random.Random(seed)
    gateway, disk = Gateway(), Disk()
    for _ in range(rng.randrange(2, 20)):
        assert not gateway.beat(disk, lost=rng.random() < 0.2)
    gateway.beat(disk)
    gateway.beat(disk)
    copy = replace(disk)
    noticed = [gateway.beat(rng.choice((disk, copy)), lost=rng.random() < 0.2) for _ in range(60)]
    assert any(noticed)


def test_two_copies_in_step_are_noticed() -> None:
    """Two copies are noticed even if they send in turn with the same numbers of heartbeats."""
    gateway, disk = Gateway(), Disk()
    for _ in range(3):
        gateway.beat(disk)
    copy = replace(disk)
    assert any(gateway.beat(machine) for _ in range(3) for machine in (disk, copy))


def test_a_restored_snapshot_of_the_device_is_noticed() -> None:
    gateway, disk = Gateway(), Disk()
    first = replace(disk)
    for _ in range(3):
        gateway.beat(disk)
    snapshot = replace(disk)
    for _ in range(3):
        gateway.beat(disk)
    assert gateway.beat(snapshot)
    assert gateway.beat(first), "a snapshot from before the first word"


def test_a_restored_backup_of_the_gateway_is_no_copy() -> None:
    """
    After a backup of the gateway was restored, the device's words are newer than the gateway's row, which is no
    sign of a copy. A copy of the disk is noticed afterwards.
    """
    gateway, disk = Gateway(), Disk()
    for _ in range(3):
        gateway.beat(disk)
    backup, copy = gateway.row, replace(disk)
    for _ in range(5):
        gateway.beat(disk)
    gateway.row = backup
    assert not any(gateway.beat(disk) for _ in range(3))
    assert gateway.beat(copy)


def test_agents_without_words_are_exempt() -> None:
    gateway = Gateway()
    turn = gateway.words.check_token(gateway.row, DeviceReport(id="laptop-1"))
    assert HeartbeatTokenCheck(turn.numbers) == turn
    for _ in range(3):  # this device reports numbers, but stores no word
        assert not gateway.beat(Disk(seq=5))


@pytest.mark.parametrize("word", ["1", "1.", "x.y", "1.00", "٣.a", "9" * 40 + ".a", ".", "1.\ud800"])
def test_a_forged_word_is_an_old_word(word: str) -> None:
    assert not Gateway().beat(Disk(word=word)), "the device never returned a word"
    gateway, disk = Gateway(), Disk()
    gateway.beat(disk)
    gateway.beat(disk)
    assert gateway.beat(Disk(word=word, seq=disk.seq))

"""When the disk reserve is created again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from spool.sqlite.reserve import FILE, MOST_WAIT_S, SIZE, START_FILE, START_SIZE, DiskReserve
from tests.moved_clock import MovedClock

pytestmark = pytest.mark.usefixtures("usual_reserve")


def test_a_quota_that_the_disk_does_not_know_makes_no_reserve_flap(tmp_path: Path) -> None:
    """
    If a quota is full that the disk does not report, the reserve is deleted and created alternately. The
    pause in between grows, to a few changes a minute.
    """
    clock = MovedClock()
    reserve = DiskReserve(tmp_path, clock)
    turns = 0
    for _ in range(2400):  # every 0.1 s, a commit fails, and then the test commit succeeds
        turns += reserve.reallocate_if_possible() and (tmp_path / FILE).exists()
        reserve.release()
        clock.move(0.1)
    assert 2 < turns <= 12
    clock.move(MOST_WAIT_S)
    assert reserve.reallocate_if_possible()


def test_reserve_is_restored_at_once_when_space_is_free(tmp_path: Path) -> None:
    reserve = DiskReserve(tmp_path, MovedClock())
    assert reserve.reallocate_if_possible()
    reserve.release()
    assert not (tmp_path / FILE).exists()
    assert reserve.reallocate_if_possible()
    assert (tmp_path / FILE).stat().st_size == SIZE
    assert (tmp_path / START_FILE).stat().st_size == START_SIZE


def test_a_start_gives_up_no_more_than_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    If a start lacks space, the large reserve is deleted first, and the small one only if there is still
    no free space.
    """
    reserve = DiskReserve(tmp_path, MovedClock())
    reserve.reallocate_if_possible()
    free = 0

    def usage(_: object) -> object:
        gained = 0 if (tmp_path / FILE).exists() else SIZE
        return shutil._ntuple_diskusage(SIZE, 0, free + gained)

    monkeypatch.setattr("spool.disks.shutil.disk_usage", usage)
    reserve.give_up_when_full()
    assert not (tmp_path / FILE).exists()
    assert (tmp_path / START_FILE).exists()
    free = -SIZE
    reserve.give_up_when_full()
    assert not (tmp_path / START_FILE).exists()

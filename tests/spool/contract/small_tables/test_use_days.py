"""Days of devices and assistants: replaced, summed by team, deleted, and the same on both engines as in a model."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, timedelta

import pytest

from spool.devices.use_days import KEPT_DAYS, OWN_ROWS_DAYS, USE_DAYS, HeardSlots, UseDay, UseDays
from spool.sql import use_days
from spool.storage import Storage
from tests.rounds import examples, part

TODAY = date(2026, 11, 30)


def ago(days: int) -> str:
    return (TODAY - timedelta(days=days)).isoformat()


def use_day(day: str, device: str = "d1", **fields: object) -> UseDay:
    usual = {"assistant": "codex", "team": "search", "used": 9, "lost": 4, "lost_calls": 1}
    return UseDay(day=day, device=device, **(usual | fields))  # type: ignore[arg-type]


@pytest.fixture
def table(storage: Storage) -> UseDays:
    return storage.small.open_table(USE_DAYS)


async def losses(table: UseDays) -> Sequence[UseDay]:
    return await table.losses_between("0001-01-01", "9999-12-31")


@pytest.mark.one_engine
async def test_a_day_that_is_stated_again_replaces_the_earlier_statement(table: UseDays) -> None:
    await table.replace_days([use_day(ago(1)), use_day(ago(0), lost=8, lost_calls=2)])
    await table.replace_days([use_day(ago(1), team="ads", lost=1)])
    found = [use_day(ago(1), team="ads", lost=1), use_day(ago(0), lost=8, lost_calls=2)]
    assert found == await losses(table)
    assert found[:1] == await table.losses_between(ago(1), ago(1))
    await table.replace_days([use_day(ago(1), lost=0, lost_calls=0)])
    assert found[1:] == await losses(table)


async def test_heard_slots_leave_out_the_first_day(table: UseDays) -> None:
    """On the first day, an agent may have begun to count in the afternoon."""
    await table.replace_days([use_day(ago(days)) for days in (5, 3, 1)])
    await table.replace_days([use_day(ago(1), "d2"), use_day(ago(40), "d3"), use_day(ago(2), "d3")])
    heard = HeardSlots(device="d1", assistant="codex", team="search", since=ago(3), heard=10)
    assert [heard] == await table.heard_slots_since(ago(30))
    assert [replace(heard, since=ago(1), heard=5)] == await table.heard_slots_since(ago(4))


@pytest.mark.parametrize("rows", [0, 1, 2, 7, 100])
async def test_heard_slots_are_read_in_pieces(
    table: UseDays, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """Wherever a piece ends, each device is in one piece, with all its rows. Sums of teams are in none."""
    monkeypatch.setattr(use_days, "ROWS_OF_PIECE", rows)
    assert [] == await table.heard_slots_since(ago(30))
    dice = random.Random(rows)
    days = {f"d{n}": dice.randrange(1, 5) for n in range(12)}
    for device, count in days.items():
        await table.replace_days([use_day(ago(day), device, used=4 + day) for day in range(count)])
    await table.replace_days([use_day(ago(day), "gone") for day in range(5)])
    await table.sum_devices(["gone"])
    heard = {device: sum(range(count - 1)) for device, count in sorted(days.items()) if count > 1}
    assert list(heard.items()) == [
        (each.device, each.heard) for each in await table.heard_slots_since(ago(30))
    ]


async def test_old_days_and_deleted_devices_are_summed_by_team(table: UseDays) -> None:
    old, edge = ago(OWN_ROWS_DAYS + 1), ago(OWN_ROWS_DAYS)
    fine = {"lost": 0, "lost_calls": 0}
    await table.replace_days([use_day(day, device, **fine) for day in (old, edge) for device in ("d1", "d2")])
    await table.replace_days([use_day(old, "d3"), use_day(ago(1), "gone", team="")])
    for _ in range(2):  # a repeat changes nothing
        await table.sum_and_delete_old_days(ago(0), ["d1", "d2", "d3"])
        assert [use_day(ago(1), "", team=""), use_day(old, "d3")] == await losses(table)
    await table.sum_devices(["d3", "d4"])
    assert [use_day(ago(1), "", team=""), use_day(old, "", used=27)] == await losses(table)


@pytest.mark.parametrize(("days", "is_kept"), [(KEPT_DAYS, True), (KEPT_DAYS + 1, False)])
async def test_days_are_deleted_after_400_days(table: UseDays, days: int, *, is_kept: bool) -> None:
    await table.replace_days([use_day(ago(days)), use_day(ago(days), "gone")])
    await table.sum_and_delete_old_days(ago(0), ["d1"])
    assert is_kept == bool(await losses(table))


@pytest.mark.parametrize("seed", part(range(examples(30)), every=3))
async def test_random_orders_lose_no_slot(table: UseDays, seed: int) -> None:
    """However days are stated again, summed and deleted, the sums of a team are those of a model."""
    dice = random.Random(f"use days {seed}")
    model: dict[tuple[str, str], UseDay] = {}
    summed: Counter[tuple[str, str]] = Counter()

    def move(keys: Sequence[tuple[str, str]]) -> None:
        for key in keys:
            row = model.pop(key)
            summed[row.team, row.day] += row.lost_calls

    for _ in range(12):
        if dice.random() < 0.7:
            rows = {}
            for _ in range(dice.randrange(1, 5)):
                calls = dice.randrange(3)
                row = use_day(
                    ago(dice.choice((0, 1, 29, 31, 399, 401))),
                    dice.choice(("d1", "d2", "d3")),
                    team=dice.choice(("", "search")),
                    lost=calls * 2,
                    lost_calls=calls,
                )
                rows[row.day, row.device] = row
            await table.replace_days([*rows.values()])
            model |= rows
        elif dice.random() < 0.5:
            device = dice.choice(("d1", "d2", "d3"))
            await table.sum_devices([device])
            move([key for key in model if key[1] == device])
        else:
            await table.sum_and_delete_old_days(ago(0), ["d1", "d2"])
            model = {key: row for key, row in model.items() if key[0] >= ago(KEPT_DAYS)}
            summed = Counter({key: count for key, count in summed.items() if key[1] >= ago(KEPT_DAYS)})
            move([key for key, row in model.items() if key[1] == "d3" or (not row.lost and key[0] < ago(30))])
        found: Counter[str] = Counter()
        for each in await losses(table):
            found[each.team] += each.lost_calls
        expected: Counter[str] = Counter()
        for (team, _), calls in summed.items():
            expected[team] += calls
        for row in model.values():
            expected[row.team] += row.lost_calls
        assert found == +expected

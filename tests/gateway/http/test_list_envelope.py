"""The list envelope of the published interface, part 2.3. Each row of its tables has a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from threading import get_ident
from typing import Any

import pytest

from gateway.http.lists import BESIDE_ROWS, Filter, ListDefinition, MemoryRows, Sort, list_envelope
from spool.people import People
from spool.turns.fair_turns import ALONE_S, FairTurnScheduler

STATUSES = ("new", "in_progress", "on_hold", "addressed", "ignored")
Row = Mapping[str, Any]

INSIGHTS: ListDefinition[Row] = ListDefinition(
    root="insights",
    show=dict,
    identity=Sort(value=lambda row: row["id"]),
    sorts={
        "category": Sort(value=lambda row: row["category"]),
        "cost_impact": Sort(value=lambda row: row["cost_impact"]),
        "status": Sort(value=lambda row: STATUSES.index(row["status"])),
        "title": Sort(value=lambda row: row["title"]),
    },
    default_sort=("status", "asc"),
    filters={"status": Filter(values=lambda row: (row["status"],), valid_values=STATUSES)},
)


def rows(count: int) -> list[Row]:
    return [
        {"id": id, "category": "c", "cost_impact": id * 1.5, "status": STATUSES[id % 5], "title": f"t{id:04}"}
        for id in range(count)
    ]


PEOPLE = People.for_installation(b"p")
NOW = 1_800_000_000.0


async def ask(count: int, *query: tuple[str, str]) -> dict[str, Any]:
    return await list_envelope(
        INSIGHTS, MemoryRows(rows(count)), query, secret=b"k" * 32, people=PEOPLE, now=NOW
    )


async def second_of(count: int, limit: int) -> dict[str, Any]:
    first = await ask(count, ("limit", str(limit)))
    return await ask(count, ("cursor", first["pagination"]["cursor"]["next_cursor"]))


async def test_an_empty_list() -> None:
    """An empty list has counts of 0, null cursors, and the fields and values for filters and sorting."""
    assert {
        "insights": [],
        "pagination": {
            "page_count": 0,
            "item_count": 0,
            "total_count": 0,
            "cursor": {
                "next_cursor": None,
                "previous_cursor": None,
                "has_next": False,
                "has_previous": False,
            },
        },
        "filtering": {
            "available": [{"field": "status", "valid_values": list(STATUSES), "valid_types": ["string"]}],
            "current": {},
        },
        "sorting": {
            "available": ["category", "cost_impact", "status", "title"],
            "current": [{"sort_key": "status", "sort_order": "asc"}],
            "ordering": ["asc", "desc"],
        },
    } == await ask(0)


async def test_two_pages() -> None:
    """
    `item_count` counts the page, `total_count` all rows. A cursor is an opaque string, or null if there
    is no page.
    """
    first, second = await ask(8, ("limit", "7")), await second_of(8, 7)
    for page, items in ((first, 7), (second, 1)):
        assert len(page["insights"]) == page["pagination"]["item_count"] == items
        assert page["pagination"]["total_count"] == 8
    ahead, behind = first["pagination"]["cursor"], second["pagination"]["cursor"]
    assert isinstance(ahead.pop("next_cursor"), str)
    assert ahead == {"previous_cursor": None, "has_next": True, "has_previous": False}
    back = await ask(8, ("cursor", behind.pop("previous_cursor")))
    assert first["insights"] == back["insights"]
    assert behind == {"next_cursor": None, "has_next": False, "has_previous": True}


async def test_page_count() -> None:
    assert [0, 1, 1, 2, 15] == [
        (await ask(count, ("limit", "7")))["pagination"]["page_count"] for count in (0, 1, 7, 8, 100)
    ]


async def test_filtering_current() -> None:
    """`filtering.current` maps each field to the values that are applied."""
    assert {} == (await ask(10))["filtering"]["current"]
    answer = await ask(10, ("status", "new"), ("status", "on_hold"), ("status", "new"))
    assert {"status": ["new", "on_hold"]} == answer["filtering"]["current"]
    assert {"new", "on_hold"} == {row["status"] for row in answer["insights"]}


async def test_sorting_current() -> None:
    """Without a `sort_key` of the client, the list is sorted by status, ascending."""
    answer = await ask(10)
    assert [{"sort_key": "status", "sort_order": "asc"}] == answer["sorting"]["current"]
    assert ["new", "new", "in_progress"] == [row["status"] for row in answer["insights"]][:3]
    asked = await ask(10, ("sort_key", "title"), ("sort_order", "desc"))
    assert [{"sort_key": "title", "sort_order": "desc"}] == asked["sorting"]["current"]
    assert "t0009" == asked["insights"][0]["title"]


async def test_a_sort_key_alone_sorts_ascending() -> None:
    """A client may pass `sort_key` without `sort_order`, and `sort_order` without `sort_key`."""
    assert "t0000" == (await ask(10, ("sort_key", "title")))["insights"][0]["title"]
    answer = await ask(10, ("sort_order", "desc"))
    assert [{"sort_key": "status", "sort_order": "desc"}] == answer["sorting"]["current"]


async def test_the_limit_is_50_unless_said_and_1000_at_most() -> None:
    assert 50 == (await ask(1200))["pagination"]["item_count"]
    assert 1000 == (await ask(1200, ("limit", "1000")))["pagination"]["item_count"]


async def test_others_have_their_turn_while_rows_are_shown() -> None:
    """Other requests get their turn while a page is made, even if its rows are slow to show."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    def slow(row: Row) -> Row:
        until = time.perf_counter() + ALONE_S * 1.1
        while time.perf_counter() < until:
            pass
        return row

    counting = asyncio.create_task(count())
    with FairTurnScheduler().new_request("key") as work:
        await work.set_party_and_wait_for_turn()
        await work.run_and_charge_time_to_party(
            list_envelope(
                replace(INSIGHTS, show=slow),
                MemoryRows(rows(10)),
                (),
                secret=b"k" * 32,
                people=PEOPLE,
                now=NOW,
            )
        )
    counting.cancel()
    assert 10 <= turns


@pytest.mark.parametrize(("count", "is_beside"), [(BESIDE_ROWS, False), (BESIDE_ROWS + 1, True)])
async def test_many_rows_are_filtered_on_another_thread(count: int, is_beside: bool) -> None:
    """More than `BESIDE_ROWS` rows are filtered and sorted on another thread."""
    threads: set[int] = set()

    def title(row: Row) -> str:
        threads.add(get_ident())
        return str(row["title"])

    listed = replace(INSIGHTS, sorts={"title": Sort(value=title)}, default_sort=("title", "asc"))
    await list_envelope(listed, MemoryRows(rows(count)), (), secret=b"k" * 32, people=PEOPLE, now=NOW)
    assert is_beside is (get_ident() not in threads)

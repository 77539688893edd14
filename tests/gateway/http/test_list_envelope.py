"""Part 2.3 of the published interface, one test a row of its tables; each row's words are the docstring."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from threading import get_ident
from typing import Any

import pytest

from gateway.http.lists import BESIDE_ROWS, Filter, List, MemoryRows, Sort, envelope
from spool.people import People
from spool.turns.fair_turns import ALONE_S, FairTurns

STATUSES = ("new", "in_progress", "on_hold", "addressed", "ignored")
Row = Mapping[str, Any]

INSIGHTS: List[Row] = List(
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


PEOPLE = People.of_installation(b"p")


async def ask(count: int, *query: tuple[str, str]) -> dict[str, Any]:
    return await envelope(INSIGHTS, MemoryRows(rows(count)), query, secret=b"k" * 32, people=PEOPLE)


async def second_of(count: int, limit: int) -> dict[str, Any]:
    first = await ask(count, ("limit", str(limit)))
    return await ask(count, ("cursor", first["pagination"]["cursor"]["next_cursor"]))


@pytest.mark.asyncio
async def test_the_items_sit_under_the_root_key() -> None:
    """The items sit under a root key named for the resource; next to it pagination, filtering, sorting."""
    answer = await ask(3)
    assert {"insights", "pagination", "filtering", "sorting"} == set(answer)
    assert 3 == len(answer["insights"])


@pytest.mark.asyncio
async def test_page_count() -> None:
    """page_count: integer. Total number of pages."""
    assert [0, 1, 1, 2, 15] == [
        (await ask(count, ("limit", "7")))["pagination"]["page_count"] for count in (0, 1, 7, 8, 100)
    ]


@pytest.mark.asyncio
async def test_item_count() -> None:
    """item_count: integer. Number of items in this response."""
    assert (await ask(8, ("limit", "7")))["pagination"]["item_count"] == 7
    assert (await second_of(8, 7))["pagination"]["item_count"] == 1


@pytest.mark.asyncio
async def test_total_count() -> None:
    """total_count: integer. Number of items across all pages."""
    assert (await ask(8, ("limit", "7")))["pagination"]["total_count"] == 8
    assert (await second_of(8, 7))["pagination"]["total_count"] == 8


@pytest.mark.asyncio
async def test_next_cursor() -> None:
    """cursor.next_cursor: opaque string or null. null when there is none."""
    assert isinstance((await ask(8, ("limit", "7")))["pagination"]["cursor"]["next_cursor"], str)
    assert (await ask(7, ("limit", "7")))["pagination"]["cursor"]["next_cursor"] is None


@pytest.mark.asyncio
async def test_previous_cursor() -> None:
    """cursor.previous_cursor: opaque string or null. Value to fetch the previous page."""
    assert (await ask(8, ("limit", "7")))["pagination"]["cursor"]["previous_cursor"] is None
    second = await second_of(8, 7)
    back = await ask(8, ("cursor", second["pagination"]["cursor"]["previous_cursor"]))
    assert (await ask(8, ("limit", "7")))["insights"] == back["insights"]


@pytest.mark.asyncio
async def test_has_next() -> None:
    """cursor.has_next: boolean. true when next_cursor is present."""
    assert (await ask(8, ("limit", "7")))["pagination"]["cursor"]["has_next"] is True
    assert (await second_of(8, 7))["pagination"]["cursor"]["has_next"] is False


@pytest.mark.asyncio
async def test_has_previous() -> None:
    """cursor.has_previous: boolean. true when previous_cursor is present."""
    assert (await ask(8, ("limit", "7")))["pagination"]["cursor"]["has_previous"] is False
    assert (await second_of(8, 7))["pagination"]["cursor"]["has_previous"] is True


@pytest.mark.asyncio
async def test_an_empty_list() -> None:
    """An empty list: page_count, item_count, total_count 0, both cursors null, both has_* false, an empty array."""
    answer = await ask(0)
    assert [] == answer["insights"]
    assert {
        "page_count": 0,
        "item_count": 0,
        "total_count": 0,
        "cursor": {"next_cursor": None, "previous_cursor": None, "has_next": False, "has_previous": False},
    } == answer["pagination"]
    assert {"insights", "pagination", "filtering", "sorting"} == set(answer)


@pytest.mark.asyncio
async def test_filtering_available() -> None:
    """filtering.available: array of objects, one per filterable field: field, valid_values, valid_types."""
    expected = [{"field": "status", "valid_values": list(STATUSES), "valid_types": ["string"]}]
    assert expected == (await ask(0))["filtering"]["available"]


@pytest.mark.asyncio
async def test_filtering_current() -> None:
    """filtering.current: object. Maps a field name to the array of values currently applied."""
    assert {} == (await ask(10))["filtering"]["current"]
    answer = await ask(10, ("status", "new"), ("status", "on_hold"), ("status", "new"))
    assert {"status": ["new", "on_hold"]} == answer["filtering"]["current"]
    assert {"new", "on_hold"} == {row["status"] for row in answer["insights"]}


@pytest.mark.asyncio
async def test_sorting_available() -> None:
    """sorting.available: array of strings. Sortable property names."""
    assert ["category", "cost_impact", "status", "title"] == (await ask(0))["sorting"]["available"]


@pytest.mark.asyncio
async def test_sorting_current() -> None:
    """sorting.current: array of objects, each sort_key and sort_order; without client sorting, status ascending."""
    answer = await ask(10)
    assert [{"sort_key": "status", "sort_order": "asc"}] == answer["sorting"]["current"]
    assert ["new", "new", "in_progress"] == [row["status"] for row in answer["insights"]][:3]
    asked = await ask(10, ("sort_key", "title"), ("sort_order", "desc"))
    assert [{"sort_key": "title", "sort_order": "desc"}] == asked["sorting"]["current"]
    assert "t0009" == asked["insights"][0]["title"]


@pytest.mark.asyncio
async def test_a_sort_key_alone_sorts_ascending() -> None:
    """A client may pass sort_key without sort_order, and sort_order without sort_key."""
    assert "t0000" == (await ask(10, ("sort_key", "title")))["insights"][0]["title"]
    answer = await ask(10, ("sort_order", "desc"))
    assert [{"sort_key": "status", "sort_order": "desc"}] == answer["sorting"]["current"]


@pytest.mark.asyncio
async def test_sorting_ordering() -> None:
    """sorting.ordering: array of strings. Available sort orders, usually asc and desc."""
    assert ["asc", "desc"] == (await ask(0))["sorting"]["ordering"]


@pytest.mark.asyncio
async def test_the_limit_is_50_unless_said_and_1000_at_most() -> None:
    """The limit parameter sets the items per page; our default and maximum."""
    assert 50 == (await ask(1200))["pagination"]["item_count"]
    assert 1000 == (await ask(1200, ("limit", "1000")))["pagination"]["item_count"]


@pytest.mark.asyncio
async def test_others_have_their_turn_while_rows_are_shown() -> None:
    """Rows that take long to show do not hold up the event loop for the whole page."""
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
    with FairTurns().request("key") as work:
        await work.begin()
        await work.run(
            envelope(replace(INSIGHTS, show=slow), MemoryRows(rows(10)), (), secret=b"k" * 32, people=PEOPLE)
        )
    counting.cancel()
    assert 10 <= turns


@pytest.mark.asyncio
@pytest.mark.parametrize(("count", "is_beside"), [(BESIDE_ROWS, False), (BESIDE_ROWS + 1, True)])
async def test_many_rows_are_looked_through_beside_the_loop(count: int, is_beside: bool) -> None:
    """More than BESIDE_ROWS are filtered and sorted on another thread."""
    threads: set[int] = set()

    def title(row: Row) -> str:
        threads.add(get_ident())
        return str(row["title"])

    listed = replace(INSIGHTS, sorts={"title": Sort(value=title)}, default_sort=("title", "asc"))
    await envelope(listed, MemoryRows(rows(count)), (), secret=b"k" * 32, people=PEOPLE)
    assert is_beside is (get_ident() not in threads)

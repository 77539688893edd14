"""The lists of every resource: pages, sorts, filters, and wrong queries of every list."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from yarl import URL

from gateway.operations.requests import requests
from gateway.operations.requests.list_csv import column_names
from spool.registry.keys import NOT_IN_USE
from tests.integration.operations.every.declared import COVERED, NOTHING, OPERATIONS, Resource, World
from tests.rounds import IS_LONG

pytestmark = pytest.mark.asyncio(loop_scope="module")
EACH = pytest.mark.parametrize("resource", COVERED, ids=lambda each: each.name)
LISTS = [each for each in OPERATIONS if each.row.lists is not None]


async def page(world: World, resource: Resource, query: Sequence[tuple[str, str]]) -> Mapping[str, Any]:
    path = world.path(resource.list) + str(URL.build(query=query))
    answer = await world.send(resource.list, path)
    assert answer.status == 200, answer.said
    found: Mapping[str, Any] = answer.payload
    return found


async def walked(
    world: World, resource: Resource, key: str, order: str, limit: int
) -> list[Mapping[str, Any]]:
    """Read all pages forward, and check that the last leads back to the first."""
    root, rows, pages = resource.lists.root, list[Mapping[str, Any]](), list[Mapping[str, Any]]()
    query = [("limit", str(limit)), ("sort_key", key), ("sort_order", order)]
    while True:
        pages.append(await page(world, resource, query))
        rows += pages[-1][root]
        cursor = pages[-1]["pagination"]["cursor"]
        if not cursor["has_next"]:
            break
        query = [("cursor", cursor["next_cursor"])]
    for before in reversed(pages[:-1]):
        back = await page(world, resource, [("cursor", cursor["previous_cursor"])])
        assert back[root] == before[root]
        cursor = back["pagination"]["cursor"]
    assert not cursor["has_previous"]
    return rows


@EACH
async def test_pages_have_each_row_once_in_order(world: World, resource: Resource) -> None:
    """For each sort key and order, the pages of a list have all rows once. The other order is the reverse."""
    for _ in range(2):
        answer, _ = await world.create(resource)
        assert answer.status < 300, answer.said
    whole = await page(world, resource, ())
    key, order = resource.lists.default_sort
    assert whole["sorting"]["current"] == [{"sort_key": key, "sort_order": order}]
    everything = sorted(resource.word(each) for each in await world.rows(resource))
    assert len(everything) > 2
    for key in resource.lists.sorts:
        is_default = key == resource.lists.default_sort[0]
        limit = 1 if IS_LONG or is_default else resource.lists.max_limit
        up, down = [await walked(world, resource, key, order, limit) for order in ("asc", "desc")]
        words = [resource.word(each) for each in up]
        assert sorted(words) == everything, key
        assert words[::-1] == [resource.word(each) for each in down], key
        values = [each[key] for each in up if isinstance(each.get(key), str)]
        used = [each for each in values if each != NOT_IN_USE]
        assert used == sorted(used, key=str.casefold), key


@EACH
async def test_a_filter_finds_its_rows(world: World, resource: Resource) -> None:
    """
    A filter by each value that a row shows finds exactly the rows that show it. If a list offers values for the
    filter, this value is among them.
    """
    whole = await page(world, resource, ())
    rows = whole[resource.lists.root]
    for each in whole["filtering"]["available"]:
        name, offered = each["field"], each["valid_values"]
        shown = {row[name] for row in rows if isinstance(row.get(name), str) and row[name]}
        assert not offered or shown <= {*offered}, name
        for value in shown | {*offered}:
            part = await page(world, resource, [(name, value)])
            assert part["filtering"]["current"] == {name: [value]}
            words = {resource.word(row) for row in part[resource.lists.root]}
            if shown:
                assert words == {resource.word(row) for row in rows if row.get(name) == value}, (name, value)


async def test_the_csv_of_every_list_has_all_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The CSV of every list for people has the rows that its JSON counts, in the same order and with equal values, also
    if it is read in pages. Its columns are the published fields. No list for keys has one.
    """
    monkeypatch.setattr(requests, "CSV_PAGE_ROWS", 2)
    most = 0
    for operation in LISTS:
        root = operation.row.lists.root if operation.row.lists else ""
        path = world.path(operation) + "?" + "&".join(f"{name}=x" for name in operation.row.required)
        if not operation.is_for_people:
            answer = await world.send(operation, f"{path}&format=csv")
            assert answer.status in (400, 404), operation.name
            continue
        whole = await world.send(operation, path)
        if whole.status != 200:
            continue
        count = whole.payload["pagination"]["total_count"]
        refused = await world.send(operation, f"{path}&format=csv&limit=2")
        assert (400, True) == (refused.status, "without limit" in refused.said), operation.name
        sent = await world.send(operation, f"{path}&format=csv")
        assert sent.status == 200, (operation.name, sent.said)
        text = sent.payload
        lines = list(csv.DictReader(io.StringIO(text)))
        assert count == len(lines), operation.name
        assert text.splitlines()[0].split(",") == column_names(operation.row.item), operation.name
        for row, line in zip(whole.payload[root], lines, strict=False):
            assert row.keys() <= line.keys(), operation.name
            texts = {name: value for name, value in row.items() if isinstance(value, str) and value.isalnum()}
            assert texts.items() <= line.items(), operation.name
        most = max(most, count)
    assert most > 4


async def test_a_wrong_query_of_a_list_is_refused(world: World) -> None:
    """
    If a query of a list is wrong, the error message names the parameter, and the values that are allowed. Each list
    has a third of the wrong queries, and in proofs all of them.
    """
    for number, operation in enumerate(LISTS):
        listed = operation.row.lists
        assert listed is not None
        wrong = {
            "limit=0": "limit", f"limit={listed.max_limit + 1}": "limit", "limit=x": "limit", "limit=1&limit=1": "once",
            "sort_key=unheard": ", ".join(listed.sorts), "sort_order=up": "asc, desc", "cursor=forged": "cursor",
        }  # fmt: skip
        for query, said in [*wrong.items()] if IS_LONG else [*wrong.items()][number % 3 :: 3]:
            start = "&".join(f"{name}=x" for name in operation.row.required)
            answer = await world.send(operation, f"{world.path(operation)}?{query}&{start}".rstrip("&"))
            is_there = NOTHING not in world.path(operation)
            assert answer.status in ((400,) if is_there else (400, 404)), (operation.name, query, answer.said)
            assert said in answer.said or not is_there, (operation.name, query, answer.said)

"""Walks through lists in memory and in tables, while other tasks insert and delete rows."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.core.errors import Refusal
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Rows, Sort, StoredRows, list_envelope
from gateway.operations.devices.listed_devices import OrderedRows
from spool.listing import MOST_KNOWN, ListPage, ListQuery, SortField
from spool.people import People
from spool.sql.lists import read_page
from spool.sqlite.database import SqliteConnection, add_functions
from tests.rounds import examples, part, reduced

SECRET = b"s" * 32
PEOPLE = People.for_installation(b"p")
NOW = 1_800_000_000.0
COLUMNS = ("id", "name", "size", "color")
COLORS = ("blue", "green", "red")
KINDS = ["at hand", "ordered", "sql"]
ORDERS = [("name", "asc"), ("size", "desc"), ("id", "asc"), ("name", "desc")]
WAYS = [(kind, *order) for kind in KINDS for order in ORDERS]
Row = Mapping[str, Any]

THINGS: ListDefinition[Row] = ListDefinition(
    root="things",
    show=dict,
    identity=Sort(value=lambda row: row["id"], field=SortField("id")),
    sorts={
        name: Sort(value=itemgetter(name), field=SortField(name, is_text=name == "name"))
        for name in ("name", "size", "id")
    },
    default_sort=("name", "asc"),
    filters={
        "color": Filter(values=lambda row: (row["color"],), field="color", valid_values=COLORS),
        "id": Filter(values=lambda row: (str(row["id"]),), field="id", type="integer"),
        "name": Filter(values=lambda row: () if row["name"] is None else (row["name"],), field="name"),
    },
)


class Shop:
    """Changing rows, served by one kind of source."""

    def __init__(self, kind: str, rows: Sequence[Row]) -> None:
        self.kind = kind
        self.rows = {row["id"]: row for row in rows}
        self.ordered = OrderedRows(THINGS, "color")
        self.connection = sqlite3.connect(":memory:")
        self.connection.isolation_level = None
        add_functions(self.connection)
        self.connection.execute(
            "CREATE TABLE things (id INTEGER PRIMARY KEY, name TEXT, size REAL, color TEXT)"
        )
        for row in rows:
            self._insert(row)

    def _insert(self, row: Row) -> None:
        self.connection.execute("INSERT INTO things VALUES (:id, :name, :size, :color)", dict(row))
        self.ordered.put(row)

    def add(self, row: Row) -> None:
        self.rows[row["id"]] = row
        self._insert(row)

    def remove(self, id: int) -> None:
        del self.rows[id]
        self.ordered.remove(id)
        self.connection.execute("DELETE FROM things WHERE id = ?", (id,))

    def source(self) -> Rows[Row]:
        if self.kind == "at hand":
            return MemoryRows(list(self.rows.values()))
        if self.kind == "ordered":
            return self.ordered
        return StoredRows(self._answer)

    async def _answer(self, query: ListQuery) -> ListPage[Row]:
        return read_page(SqliteConnection(self.connection), "things", COLUMNS, query, _row)

    async def get(self, *query: tuple[str, str]) -> dict[str, Any]:
        return await list_envelope(THINGS, self.source(), query, secret=SECRET, people=PEOPLE, now=NOW)


def _row(values: Sequence[Any]) -> Row:
    return dict(zip(COLUMNS, values, strict=True))


def a_row(id: int, dice: random.Random) -> Row:
    """Return a random row. Few different values make ties and nulls frequent."""
    return {
        "id": id,
        "name": dice.choice((None, "a", "A", "B", "b", "ä", "Ä", "Ω", "ω", "a b", "")),
        "size": dice.choice((None, 0, 1, 1.5, -2, 10)),
        "color": dice.choice(COLORS),
    }


async def walk(shop: Shop, start: Sequence[tuple[str, str]], word: str, disturb: Any) -> list[Row]:
    seen = []
    query = start
    while True:
        page = await shop.get(*query)
        rows = page["things"]
        seen += rows if word == "next" else rows[::-1]
        cursor = page["pagination"]["cursor"]
        assert cursor[f"has_{word}"] == (cursor[f"{word}_cursor"] is not None)
        if not cursor[f"has_{word}"]:
            return seen
        query = [("cursor", cursor[f"{word}_cursor"])]
        disturb()


def ordered(rows: Sequence[Row], key: str, order: str) -> list[int]:
    """Sort rows by the promised order, independently of the module under test."""

    def place(row: Row) -> tuple[Any, ...]:
        value = row[key]
        words = (value.casefold(), value) if isinstance(value, str) else (value or 0,)
        return (value is not None, *words, row["id"])

    ranked = sorted(rows, key=place)
    return [row["id"] for row in (ranked if order == "asc" else ranked[::-1])]


@pytest.mark.parametrize("kind", KINDS)
@given(
    seed=st.integers(0, 10_000),
    count=st.integers(0, 120),
    limit=st.integers(1, 40),
    sort=st.sampled_from(["name", "size", "id"]),
    order=st.sampled_from(["asc", "desc"]),
    colors=st.lists(st.sampled_from(COLORS), max_size=2),
)
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_a_walk_sees_every_row_that_stays_exactly_once(
    kind: str, seed: int, count: int, limit: int, sort: str, order: str, colors: list[str]
) -> None:
    """
    The walk works in both directions with any limit, sort and filters, while rows are inserted and deleted.
    """
    await _walk_both_ways(kind, seed, count, limit, sort, order, colors)


# This part of the combinations has each kind and each order at least once.
@pytest.mark.parametrize(("kind", "sort", "order"), part(WAYS, every=5))
async def test_a_thousand_rows_by_sevens(kind: str, sort: str, order: str) -> None:
    """Walk many rows with limit 7 forwards and backwards, while another task inserts and deletes."""
    await _walk_both_ways(kind, 7, reduced(1000, by=4), 7, sort, order, [])


async def _walk_both_ways(
    kind: str, seed: int, count: int, limit: int, sort: str, order: str, colors: list[str]
) -> None:
    dice = random.Random(seed)
    shop = Shop(kind, [a_row(id * 10, dice) for id in range(count)])
    stayers = {id for id in shop.rows if dice.random() < 0.7}
    fresh = iter(range(1, 10**9, 10))

    def disturb() -> None:
        leavers = [id for id in shop.rows if id not in stayers]
        for id in dice.sample(leavers, min(2, len(leavers))):
            shop.remove(id)
        for _ in range(dice.randrange(3)):
            shop.add(a_row(next(fresh), dice))

    query = [
        ("limit", str(limit)),
        ("sort_key", sort),
        ("sort_order", order),
        *(("color", each) for each in colors),
    ]
    expected = [
        id
        for id in ordered(list(shop.rows.values()), sort, order)
        if id in stayers and (not colors or shop.rows[id]["color"] in colors)
    ]
    forward = await walk(shop, query, "next", disturb)
    assert expected == [row["id"] for row in forward if row["id"] in stayers]
    assert len(forward) == len({row["id"] for row in forward})

    page = await shop.get(*query)
    while page["pagination"]["cursor"]["has_next"]:
        page = await shop.get(("cursor", page["pagination"]["cursor"]["next_cursor"]))
    tail = [row["id"] for row in page["things"]][::-1]
    back = page["pagination"]["cursor"]["previous_cursor"]
    backward = tail + (
        [row["id"] for row in await walk(shop, [("cursor", back)], "previous", disturb)] if back else []
    )
    assert expected[::-1] == [id for id in backward if id in stayers]
    assert len(backward) == len(set(backward))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_page_whose_rows_were_all_deleted_leads_back(kind: str) -> None:
    """
    A page whose rows were all deleted is empty and has no next page. Its previous page ends with the last row
    before the deleted ones.
    """
    shop = Shop(kind, [{"id": id, "name": "n", "size": id, "color": "red"} for id in range(6)])
    first = await shop.get(("limit", "3"), ("sort_key", "id"))
    for id in (3, 4, 5):
        shop.remove(id)
    empty = await shop.get(("cursor", first["pagination"]["cursor"]["next_cursor"]))
    assert [] == empty["things"]
    assert not empty["pagination"]["cursor"]["has_next"]
    back = await shop.get(("cursor", empty["pagination"]["cursor"]["previous_cursor"]))
    assert [0, 1, 2] == [row["id"] for row in back["things"]]


@pytest.mark.parametrize("kind", KINDS)
async def test_total_and_pages_are_exact_under_the_filters(kind: str) -> None:
    """`page_count` is the filtered total divided by the limit, rounded up."""
    shop = Shop(kind, [{"id": id, "name": "n", "size": 1, "color": COLORS[id % 3]} for id in range(10)])
    page = await shop.get(("limit", "3"), ("color", "blue"), ("color", "red"))
    assert page["pagination"]["total_count"] == 7
    assert page["pagination"]["page_count"] == 3
    assert page["pagination"]["item_count"] == 3


async def test_cursor_continues_with_its_own_filters_sort_and_limit() -> None:
    """A request with only a cursor continues with the cursor's own filters, sort and limit, as documented."""
    shop = Shop("at hand", [{"id": id, "name": "n", "size": id, "color": COLORS[id % 3]} for id in range(20)])
    first = await shop.get(("limit", "2"), ("sort_key", "size"), ("sort_order", "desc"), ("color", "red"))
    second = await shop.get(("cursor", first["pagination"]["cursor"]["next_cursor"]))
    assert [17, 14] == [row["id"] for row in first["things"]]
    assert [11, 8] == [row["id"] for row in second["things"]]
    assert {"color": ["red"]} == second["filtering"]["current"]
    assert [{"sort_key": "size", "sort_order": "desc"}] == second["sorting"]["current"]


async def test_a_cursor_may_be_repeated_with_its_own_words_and_another_limit() -> None:
    """The client may repeat the cursor's own sort and filters. It may also change the limit between pages."""
    shop = Shop("at hand", [{"id": id, "name": "n", "size": id, "color": "red"} for id in range(9)])
    query = [("sort_key", "id"), ("color", "red"), ("color", "blue")]
    first = await shop.get(("limit", "2"), *query)
    cursor = first["pagination"]["cursor"]["next_cursor"]
    second = await shop.get(
        ("cursor", cursor), ("limit", "4"), ("color", "blue"), ("color", "red"), ("sort_key", "id")
    )
    assert [2, 3, 4, 5] == [row["id"] for row in second["things"]]


def tampered(cursor: str) -> str:
    middle = len(cursor) // 2
    return cursor[:middle] + ("A" if cursor[middle] != "A" else "B") + cursor[middle + 1 :]


async def a_cursor(shop: Shop, *query: tuple[str, str]) -> str:
    page = await shop.get(("limit", "1"), *query)
    return str(page["pagination"]["cursor"]["next_cursor"])


@pytest.mark.parametrize(
    "change", [tampered, lambda _: "", lambda _: "äöü", lambda _: "AAAA", lambda text: text[:-4]]
)
async def test_a_forged_cursor_is_refused(change: Any) -> None:
    """A cursor with a wrong signature gets 400, and the message says which cursors to send."""
    shop = Shop("at hand", [a_row(id, random.Random(1)) for id in range(5)])
    with pytest.raises(Refusal, match="next_cursor or previous_cursor") as caught:
        await shop.get(("cursor", change(await a_cursor(shop))))
    assert caught.value.status == 400
    assert caught.value.type == "invalid_cursor"


async def test_a_cursor_of_another_installation_or_list_is_refused() -> None:
    shop = Shop("at hand", [a_row(id, random.Random(1)) for id in range(5)])
    cursor = await a_cursor(shop)
    others: ListDefinition[Row] = ListDefinition(
        root="others", show=dict, identity=THINGS.identity, sorts=THINGS.sorts, default_sort=("name", "asc")
    )
    with pytest.raises(Refusal, match="did not create it"):
        await list_envelope(
            THINGS, shop.source(), [("cursor", cursor)], secret=b"t" * 32, people=PEOPLE, now=NOW
        )
    with pytest.raises(Refusal, match="another list"):
        await list_envelope(
            others, shop.source(), [("cursor", cursor)], secret=SECRET, people=PEOPLE, now=NOW
        )


@pytest.mark.parametrize(
    ("beside", "reason"),
    [
        (("sort_key", "size"), "another sort"),
        (("sort_order", "desc"), "another sort"),
        (("color", "green"), "other filters"),
    ],
)
async def test_a_cursor_under_another_sort_or_filter_is_stale(beside: tuple[str, str], reason: str) -> None:
    """
    A cursor is refused if the request has another sort or filter than its first page, because rows
    would be skipped.
    """
    shop = Shop("at hand", [{"id": id, "name": "n", "size": id, "color": "red"} for id in range(5)])
    cursor = await a_cursor(shop, ("color", "red"))
    with pytest.raises(Refusal, match=reason):
        await shop.get(("cursor", cursor), beside)


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ([("limit", "0")], "1 to 1000"),
        ([("limit", "1001")], "1 to 1000"),
        ([("limit", "-1")], "1 to 1000"),
        ([("limit", "ten")], "1 to 1000"),
        ([("limit", "")], "1 to 1000"),
        ([("limit", "٣")], "1 to 1000"),
        ([("limit", "2"), ("limit", "3")], "only once"),
        ([("color", "mauve")], "blue, green, red"),
        ([("color", "")], "blue, green, red"),
        ([("id", "large")], "whole number"),
        ([("sort_key", "weight")], "name, size, id"),
        ([("sort_order", "up")], "asc, desc"),
        ([("page", "2")], "cursor, limit, sort_key, sort_order, color, id"),
    ],
)
async def test_a_wrong_question_is_answered_with_the_allowed_values(
    query: list[tuple[str, str]], words: str
) -> None:
    """An invalid filter or sort gets 400, and the error names the allowed values."""
    with pytest.raises(Refusal, match=words) as caught:
        await Shop("at hand", []).get(*query)
    assert 400 == caught.value.status


@pytest.mark.parametrize("kind", KINDS)
async def test_typed_open_filter_accepts_any_value_of_its_type(kind: str) -> None:
    """A field without a fixed set of values accepts any value of its type, and lists only the type."""
    shop = Shop(kind, [{"id": id, "name": "n", "size": 0, "color": "red"} for id in range(5)])
    page = await shop.get(("id", "3"), ("id", "4"), ("id", "77"))
    assert [3, 4] == [row["id"] for row in page["things"]]
    assert {"field": "id", "valid_values": [], "valid_types": ["integer"]} in page["filtering"]["available"]


@pytest.mark.parametrize("kind", KINDS)
async def test_values_of_now(kind: str) -> None:
    """
    The filter lists the values of all rows, whatever the query is. If there are more than `MOST_KNOWN`
    values, it lists none.
    """
    shop = Shop(kind, [{"id": id, "name": "ab"[id % 2], "size": 1, "color": "red"} for id in range(5)])

    async def told(*query: tuple[str, str]) -> list[str]:
        [name] = [
            each for each in (await shop.get(*query))["filtering"]["available"] if each["field"] == "name"
        ]
        return list(name["valid_values"])

    assert ["a", "b"] == await told() == await told(("name", "b"), ("limit", "1"))
    assert 0 == (await shop.get(("name", "c")))["pagination"]["total_count"]
    for id in range(5, 5 + MOST_KNOWN - 2):
        shop.add({"id": id, "name": f"n{id:04}", "size": 1, "color": "red"})
    assert MOST_KNOWN == len(await told())
    shop.add({"id": 9999, "name": "one more", "size": 1, "color": "red"})
    assert [] == await told()


async def test_filter_on_people_accepts_every_form_of_a_name() -> None:
    """
    A filter on people accepts every form of a name. The answer and the cursor keep the form of the request.
    """
    by_id: Sort[Row] = Sort(value=lambda row: row["id"])
    by_color: Filter[Row] = Filter(values=lambda row: (str(row["color"]),), names_people=True)
    listed: ListDefinition[Row] = replace(
        THINGS, filters={"color": by_color}, identity=by_id, sorts={"id": by_id}, default_sort=("id", "asc")
    )
    hashed = PEOPLE.hash_address("ann@example.com")
    dice = random.Random(1)
    rows: list[Row] = [
        {**a_row(id, dice), "color": color}
        for id, color in enumerate((hashed, "ann@example.com", "bob", hashed))
    ]
    query = [("color", "Ann@example.com"), ("limit", "2")]
    first = await list_envelope(listed, MemoryRows(rows), query, secret=SECRET, people=PEOPLE, now=NOW)
    assert first["filtering"]["current"] == {"color": ["Ann@example.com"]}
    assert first["pagination"]["total_count"] == 3
    cursor = [("cursor", first["pagination"]["cursor"]["next_cursor"])]
    second = await list_envelope(listed, MemoryRows(rows), cursor, secret=SECRET, people=PEOPLE, now=NOW)
    assert [hashed] == [row["color"] for row in second[listed.root]]

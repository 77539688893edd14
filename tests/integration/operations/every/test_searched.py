"""A search finds each row of each list by each of its names, and returns the id that opens the row."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from yarl import URL

from gateway.core.paths import OPERATOR_API
from gateway.operations.installation.search import LISTS, MAX_TEXT, MOST
from tests.integration.operations.every.declared import AT, World
from tests.rounds import part

pytestmark = pytest.mark.asyncio(loop_scope="module")

# kind -> the field of a listed row with its id, and the fields with its names
FIELDS: Mapping[str, tuple[str, ...]] = {
    "machine": ("id", "id", "hostname", "serial", "user"),
    "key": ("name", "name", "description"),
    "price": ("id", "model"),
    "channel": ("name", "name"),
    "operator": ("email", "email"),
    "connection": ("id", "name", "id"),
    "insight": ("id", "title"),
    "setting": ("name", "name", "words"),
}
BY_NAME = ("id", "name")
ELSEWHERE = {"cluster", "route"}  # test_search.py, because no person creates these


@pytest.mark.parametrize("kind", part([*sorted(LISTS.keys() - ELSEWHERE)], every=2))
async def test_a_row_is_found_by_each_of_its_names(world: World, kind: str) -> None:
    operation = AT["GET", OPERATOR_API + LISTS[kind]]
    assert operation.row.lists is not None
    rows = (await world.send(operation, operation.row.path)).payload[operation.row.lists.root]
    assert rows
    id, *fields = FIELDS.get(kind, BY_NAME)
    search = AT["GET", f"{OPERATOR_API}/search"]
    for row in rows[:MOST]:
        names = [str(row[field]) for field in fields if row[field]]
        for name in names:
            query = URL.build(path=search.row.path, query={"q": name[:MAX_TEXT]})
            answer = await world.send(search, str(query))
            assert {"kind": kind, "id": row[id], "name": names[0]} in answer.payload["found"], name

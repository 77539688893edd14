"""
Filter values that lists offer: each one finds rows that have it, and together they find every row.

Values for limited people are tested with all other answers in test_limited_person.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from gateway.core.paths import OPERATOR_API
from gateway.http.lists import ListDefinition
from gateway.operations.requests.address import OperatorApiAddress
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool.listing import MOST_KNOWN
from tests.integration.operations.people.test_limited_person import ROLES, place, quick_beat
from tests.integration.operations.people.test_privacy import MAY
from tests.integration.operations.server import ADA, OperatorServer

__all__ = ["quick_beat"]  # a fixture for all tests in this file


def plain_lists() -> list[tuple[OperatorApiAddress, ListDefinition[Any]]]:
    """Return the lists that need no parameters."""
    rows = [row for row in OPERATOR_ADDRESSES if "GET" in row.methods and not row.path_parameters]
    return [(row, row.lists) for row in rows if row.lists is not None and not row.required]


async def page(server: OperatorServer, path: str, most: int, query: str = "") -> Any:
    """Return the answer, or None if there is nothing to list in this installation."""
    answer = await server.ask("GET", f"{path}?limit={most}{query}")
    assert answer.status in (200, 503), (path, query, answer.payload)
    return answer.payload if answer.status == 200 else None


def lacking(shown: Any, value: str) -> bool:
    """Return whether a row shows its field as a single text that differs from the value."""
    return isinstance(shown, str) and shown != value


@pytest.mark.proof
async def test_each_value_finds_its_rows(tmp_path: Path) -> None:
    """
    In every list, each offered filter value finds its rows. If a row has at most one value, the counts do not
    exceed the number of rows.
    """
    told = 0
    async with place(tmp_path, ROLES["is"]) as there:
        assert 201 == (await there.server.ask("POST", "/roles", {**MAY, "members": [ADA]})).status
        for row, listed in plain_lists():
            path = row.path.removeprefix(OPERATOR_API)
            whole = await page(there.server, path, listed.max_limit)
            if whole is None:
                continue
            available = {each["field"]: each["valid_values"] for each in whole["filtering"]["available"]}
            assert set(listed.filters) <= set(available), row.name
            for name, each in listed.filters.items():
                if not each.has_listed_values:
                    assert list(each.valid_values) == available[name], (row.name, name)
                    continue
                values = available[name]
                assert sorted(set(values)) == sorted(values), (row.name, name)
                assert len(values) <= MOST_KNOWN
                found = 0
                for value in values:
                    wanted = f"&{quote(name)}={quote(value, safe='')}"
                    part = await page(there.server, path, listed.max_limit, wanted)
                    count = part["pagination"]["total_count"]
                    wrong = [each for each in part[listed.root] if lacking(each.get(name), value)]
                    assert count > 0, (row.name, name, value)
                    assert wrong == [], (row.name, name, value)
                    found += count
                shown = [each.get(name) for each in whole[listed.root]]
                if values and all(isinstance(each, str) and each for each in shown):
                    assert found == whole["pagination"]["total_count"], (row.name, name)
                told += len(values)
    assert told > 50

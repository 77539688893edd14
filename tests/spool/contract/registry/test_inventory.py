"""The inventory of expected machines: one list that an import replaces as a whole, with an audit row."""

from __future__ import annotations

import json

import pytest

from spool.errors import Invalid, NotAllowed, RegistryDamaged
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.inventory import ID, KIND, Machine
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA = Actor("ada@example.com", "local")

pytestmark = pytest.mark.rule


def machines(count: int) -> list[Machine]:
    return [
        Machine(serial=f"S{n}", hostname=f"h{n}", user="ädä", team="a b", os="macOS", last_seen=1.5)
        for n in range(count)
    ]


@pytest.mark.every_engine
async def test_an_import_is_there_after_a_restart(open_registry: RegistryOpener) -> None:
    registry = await open_registry()
    assert registry.inventory.current is None
    await registry.inventory.replace_machines(machines(3), source="jamf", confirmed=False, actor=ADA)
    kept = registry.inventory.current
    await registry.close()
    registry = await open_registry()
    found = registry.inventory.current
    assert found is not None
    assert kept == found
    assert tuple(machines(3)) == found.machines
    assert ("jamf", ADA.name) == (found.source, found.imported_by)


async def test_a_large_removal_needs_a_confirmation(registry: Registry) -> None:
    """
    An import that would remove more than a third of the expected machines needs a confirmation. A rejected list and
    an empty one change nothing and leave no audit row.
    """
    table = registry.inventory
    await table.replace_machines(machines(9), source="csv", confirmed=False, actor=ADA)
    change = await table.replace_machines(machines(6), source="csv", confirmed=False, actor=ADA)
    assert (6, 0, 3) == (change.machines, change.added, change.removed)
    with pytest.raises(NotAllowed, match="lacks 3 of 6 machines"):
        await table.replace_machines(machines(3), source="csv", confirmed=False, actor=ADA)
    with pytest.raises(Invalid, match="no machines"):
        await table.replace_machines([], source="csv", confirmed=True, actor=ADA)
    assert table.current is not None and len(table.current.machines) == 6
    await table.replace_machines(machines(3), source="csv", confirmed=True, actor=ADA)
    rows = [row for row in await audit_rows(registry) if row.action == "fleet.inventory"]
    assert {3, 6, 9} == {(row.after or {})["machines"] for row in rows}


async def test_a_long_list_is_read_in_short_steps(registry: Registry) -> None:
    """No other thread runs while a JSON text is decoded, so no stored text has many machines."""
    table = registry.inventory
    await table.replace_machines(machines(1001), source="csv", confirmed=False, actor=ADA)
    body = await table._changes.read(lambda rows: rows.document(KIND, ID))
    assert body is not None
    counts = [len(json.loads(text)) for text in body["machines"]]
    assert (1001, 250) == (sum(counts), max(counts))
    await table.load()
    assert table.current is not None and tuple(machines(1001)) == table.current.machines


@pytest.mark.parametrize(
    "wrong", [{}, {"machines": None}, {"machines": [5]}, {"machines": ["[1]"]}, {"machines": ["["]}]
)
async def test_a_damaged_list_is_named(registry: Registry, wrong: dict[str, object]) -> None:
    table = registry.inventory
    await table._changes.change_rows(lambda rows: rows.put_document(KIND, ID, wrong), lambda _: None)
    with pytest.raises(RegistryDamaged, match="the stored inventory cannot be read"):
        await table.load()

"""The version of a row changes when a person edits the row, and never when the machine notes something in it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from gateway.operations.list import declared_tables
from spool.errors import NotAllowed
from spool.registry.document_table import DocumentTable, field_names
from spool.registry.documents import replace_fields
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryRows
from spool.registry.scopes import INGEST
from tests.spool.registry.kept_documents import KEPT

ADA = Actor("ada@example.com", "local")
# Fields outside of drafts that only creations and edits write. Any other one is a note of the machine.
WRITTEN_BY_EDITS = {
    "id",
    "author",
    "owner",
    "created",
    "last_updated",
    "last_updated_by",
    "rules_since",
    "sealed",
    "secret_since",
}
STORED = {**KEPT, "work_link": {**KEPT["work_link"], "session": "", "commit": "c0ffee"}}

pytestmark = pytest.mark.rule


def tables(registry: Registry) -> Iterator[DocumentTable[Any]]:
    """Yield every table whose rows have a version."""
    declared = [registry.declared_table(table) for table in declared_tables()]
    for table in (*declared, registry.views, registry.roles, registry.kept_channels):
        if isinstance(table, DocumentTable) and hasattr(table.kind.row, "version"):
            yield table


async def keep(registry: Registry, table: DocumentTable[Any], row: Any) -> None:
    def work(registry_rows: RegistryRows) -> None:
        table.kind.store_row(registry_rows, row)

    await registry._changes.change_rows(work)


def other(value: Any) -> Any:
    return value + {str: "x", float: 1.0, tuple: ("x",)}[type(value)]


async def test_an_edit_is_accepted_after_notes_of_the_machine(registry: Registry) -> None:
    """In each table, an edit with the version that was shown is accepted, whatever the machine noted since."""
    noted = set()
    for table in tables(registry):
        kind: Any = table.kind
        row = kind.build_row_from_body(STORED[kind.name])
        await keep(registry, table, row)
        notes = set(field_names(kind.row)) - set(field_names(table.draft)) - WRITTEN_BY_EDITS
        for name in notes:
            noted.add(f"{kind.name}.{name}")
            await keep(registry, table, replace_fields(row, **{name: other(getattr(row, name))}))
            edit = partial(replace_fields, created=row.created + 1)
            await table._edit_row(row.id, edit, version=row.version, actor=ADA)
            with pytest.raises(NotAllowed, match="changed after you read it"):
                await table._edit_row(row.id, edit, version=row.version, actor=ADA)
    assert {"scheduled_report.done", "scheduled_report.problem", "work_link.events"} == noted


async def test_each_field_of_a_draft_changes_the_version(registry: Registry) -> None:
    for table in tables(registry):
        kind: Any = table.kind
        row = kind.build_row_from_body(STORED[kind.name])
        for name in field_names(table.draft):
            if type(value := getattr(row, name)) in (str, float, tuple):
                assert row.version != replace_fields(row, **{name: other(value)}).version, (kind.name, name)


async def test_a_request_with_a_key_changes_no_version(registry: Registry) -> None:
    """A key's last use is noted, and an edit with the version that was shown is accepted."""
    key, _ = await registry.keys.create(name="one", scopes=[INGEST], actor=ADA)
    await registry.keys.store_access_times({key.id: 2_000_000_000.0})
    edited = await registry.keys.edit("one", description="new", version=key.version, actor=ADA)
    assert [2_000_000_000.0, "new"] == [edited.last_accessed, edited.description]

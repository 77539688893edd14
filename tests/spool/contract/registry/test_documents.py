"""Documents: JSON objects by kind and id, for small tables that are read as a whole."""

from __future__ import annotations

import pytest

from spool.registry.registry import Registry
from spool.registry.registry_rows import RegistryRows
from tests.spool.contract.conftest import RegistryOpener

pytestmark = pytest.mark.one_engine

BODY = {"name": "Grüße", "filter": {"team": ["a", None]}, "at": 1.5}


async def test_documents_of_a_kind_are_there_after_a_restart(open_registry: RegistryOpener) -> None:
    """Documents are sorted by id. Each kind has its own ids."""
    registry = await open_registry()

    def add(registry_rows: RegistryRows) -> None:
        for id in ("b", "a", "c"):
            registry_rows.put_document("shelf", id, {"id": id})
        registry_rows.put_document("shelf", "b", BODY)
        registry_rows.put_document("book", "a", {})
        registry_rows.delete_document("shelf", "c")
        registry_rows.delete_document("shelf", "nobody")

    await registry._changes.change_rows(add)
    await registry.close()
    again = await open_registry()
    kept = await again._changes.read(lambda rows: rows.documents("shelf"))
    assert [("a", {"id": "a"}), ("b", BODY)] == list(kept.items())
    assert {"a": {}} == await again._changes.read(lambda rows: rows.documents("book"))
    assert BODY == await again._changes.read(lambda rows: rows.document("shelf", "b"))
    assert await again._changes.read(lambda rows: rows.document("shelf", "c")) is None


async def test_a_change_that_fails_keeps_no_document(registry: Registry) -> None:
    def fail(registry_rows: RegistryRows) -> None:
        registry_rows.put_document("shelf", "a", BODY)
        raise ValueError

    with pytest.raises(ValueError):
        await registry._changes.change_rows(fail)
    assert {} == await registry._changes.read(lambda rows: rows.documents("shelf"))

"""Notes on the organization: one text with a limit, and an audit row per change."""

from __future__ import annotations

import pytest

from spool.errors import Invalid
from spool.registry.operators import Actor
from spool.registry.org_context import MAX_TEXT
from spool.registry.registry import Registry
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA = Actor("ada@example.com", "local")

pytestmark = pytest.mark.rule


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_notes_are_there_after_a_restart_until_they_are_removed(open_registry: RegistryOpener) -> None:
    """Notes survive a restart with their author and time. An empty text removes them."""
    registry = await open_registry()
    assert await registry.org_context.get() is None
    kept = await registry.org_context.set_text("  search owns the index\n", actor=ADA)
    await registry.close()
    registry = await open_registry()
    found = await registry.org_context.get()
    assert found is not None and kept == found
    assert found.text == "search owns the index"
    assert ADA.name == found.set_by
    assert await registry.org_context.set_text(" ", actor=ADA) is None
    assert await registry.org_context.get() is None


async def test_every_change_is_audited_once(registry: Registry) -> None:
    """The audit row of a change has both texts. The same text again is no change."""
    for text in ("one", "one", "two", "", ""):
        await registry.org_context.set_text(text, actor=ADA)
    rows = [row for row in await audit_rows(registry) if row.action == "org_context.set"]
    changes = sorted((str((row.before or {})["text"]), str((row.after or {})["text"])) for row in rows)
    assert [("", "one"), ("one", "two"), ("two", "")] == changes


async def test_notes_are_bounded(registry: Registry) -> None:
    """The error for a text over the limit states the limit, and nothing changes."""
    await registry.org_context.set_text("x" * MAX_TEXT, actor=ADA)
    with pytest.raises(Invalid, match=str(MAX_TEXT)):
        await registry.org_context.set_text("y" * (MAX_TEXT + 1), actor=ADA)
    kept = await registry.org_context.get()
    assert kept is not None and "x" * MAX_TEXT == kept.text

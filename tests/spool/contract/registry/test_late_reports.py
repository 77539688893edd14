"""Late reports by day, source and kind, added up over processes and restarts."""

from __future__ import annotations

from spool.registry.tables.late_reports import KIND
from tests.spool.contract.conftest import RegistryOpener


async def test_days_add_up_until_they_are_too_old(open_registry: RegistryOpener) -> None:
    """
    Counts of late reports of a day add up over processes. Days before `oldest` are left out of the sums and then
    deleted.
    """
    registry = await open_registry()
    for _ in range(2):
        await registry.late_reports.add({1: {("late", "kong"): 2}, 2: {("late", "kong"): 3}}, oldest=1)
    await registry.close()
    registry = await open_registry()
    await registry.late_reports.add({2: {("uncompared", "litellm"): 1}}, oldest=1)
    assert {("late", "kong"): 10, ("uncompared", "litellm"): 1} == await registry.late_reports.sums_since(1)
    assert {("late", "kong"): 6, ("uncompared", "litellm"): 1} == await registry.late_reports.sums_since(2)
    await registry.late_reports.add({3: {("late", "kong"): 1}}, oldest=3)
    assert ["3"] == list(await registry._changes.read(lambda rows: rows.documents(KIND)))

"""Readers of all rows in a registry's lists, oldest first."""

from __future__ import annotations

from collections.abc import Sequence

from spool.listing import ASCENDING, ListQuery, SortField
from spool.registry.audit import AuditRow
from spool.registry.insights import Insight
from spool.registry.registry import Registry


def _all(field: str) -> ListQuery:
    return ListQuery(sort=SortField(field), order=ASCENDING, identity="id", limit=100_000)


async def audit_rows(registry: Registry) -> Sequence[AuditRow]:
    return (await registry.audit_page(_all("id"))).rows


async def kept_insights(registry: Registry) -> Sequence[Insight]:
    return (await registry.insights.page(_all("created"))).rows

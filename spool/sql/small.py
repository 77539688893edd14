"""
The small tables that every engine keeps alike: what is added here is opened by all of them.

A table that processes hold in memory, or that an engine keeps otherwise, has a field of `Storage` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from spool.billing.drops import BillingDrops
from spool.billing.hours import BillingHours
from spool.deliveries.protocols import Landings
from spool.sql.billing_drops import SqlBillingDrops
from spool.sql.billing_hours import SqlBillingHours
from spool.sql.connection import SqlTransactions


@dataclass(frozen=True, kw_only=True)
class SmallTables:
    """Tables that are read and written through transactions of their own."""

    billing_drops: BillingDrops
    billing_hours: BillingHours
    landings: Callable[[], Landings]


def small_tables(over: Callable[[str], SqlTransactions]) -> SmallTables:
    """`over` gives transactions whose errors name what is kept."""

    def landings() -> Landings:
        from spool.sql.lake import SqlLandings

        return SqlLandings(over("lakes"))

    return SmallTables(
        billing_drops=SqlBillingDrops(over("billing drops")),
        billing_hours=SqlBillingHours(over("billing hours")),
        landings=landings,
    )

"""A transaction that somebody left open in the database of several gateways: small tables grow until it ends."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.insights.facts import Facts
from gateway.insights.findings import finding
from spool.registry.insights import LOW, Finding

NAME = "old_transaction"
AFTER_S = 600.0  # as the alert TollhouseOldTransaction


def find(facts: Facts) -> Sequence[Finding]:
    if facts.oldest_transaction_s is None or facts.oldest_transaction_s <= AFTER_S:
        return []
    return [
        finding(
            NAME,
            (),
            title="A transaction in the database does not end",
            seen=f"The oldest one has been open for {facts.oldest_transaction_s / 60:,.0f} minutes; those of Tollhouse "
            "end within seconds. PostgreSQL keeps every row that was replaced since: small tables grow and "
            "get slow.",
            advice="Look for the oldest xact_start in pg_stat_activity, or in pg_prepared_xacts, and end it. "
            "The runbook of the alert TollhouseOldTransaction has the statements.",
            category="reliability",
            effort=LOW,
        )
    ]

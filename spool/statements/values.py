"""What a provider billed or metered, as rows of its reports."""

from __future__ import annotations

from decimal import Decimal

import msgspec


class StatementRow(msgspec.Struct, frozen=True, kw_only=True):
    """
    One cell of a provider's report. What the report does not tell is None.

    `start` and `end` are the edges of its own bucket in epoch seconds, with its zone applied. `unit` is tokens, requests
    or usd; `kind` what was used or paid for: a kind of token, request, cost, tax, credit, and so on.
    """

    source: str  # openai_usage, openai_costs, anthropic_usage, ...
    provider: str  # as spool.providers names it
    account: str | None  # organization, project or workspace
    key: str | None  # the provider's id or name of a key
    model: str | None  # as billed
    start: int
    end: int
    unit: str
    kind: str
    amount: Decimal
    currency: str | None
    tier: str | None
    region: str | None
    batch: bool | None
    settled: bool  # False while the provider may still restate it

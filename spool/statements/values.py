"""What a provider billed or metered: rows of its reports, and what is known of a report that is kept."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import msgspec

# Units; money in another currency has its code in small letters. ACCRUED are dollars that a bill has more, or less,
# where fees are on what they cover and not on the day of the purchase: of rows that were kept without
# `amount_effective`.
TOKENS, USD, REQUESTS, ACCRUED = "tokens", "usd", "requests", "accrued_usd"
# Seats of assistants: as a kind their fees, as a unit their number, a seat of a whole month being one.
SEAT, SEATS = "seat", "seats"
# What a line of a bill is, where its kind alone does not tell. COVERED is paid by a commitment, UNUSED is
# what nobody used of one.
REFUND, CORRECTION, COVERED, UNUSED, PURCHASE = "refund", "correction", "covered", "unused", "purchase"
LINE_TYPES = (REFUND, CORRECTION, COVERED, UNUSED, PURCHASE)
DAY_S = 86400


class StatementRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One cell of a provider's report. What the report does not say is None.

    A token is in one row of its bucket: `input` are tokens that no cache had. `start` and `end` are the
    bucket's own edges in epoch seconds. `settled` is False while the provider may still restate the row.

    `amount_list`, `amount_contracted` and `amount_effective` are what it costs at list prices, at
    negotiated prices, and with fees on what they cover. `line_type` is one of LINE_TYPES. `line_id` is that
    of lines that are of no tokens: a cell of tokens is made of many lines. `corrects` to `corrects_until`
    is the time whose calls are given money back for, or charged anew.
    """

    source: str
    provider: str  # as spool.providers names it
    account: str | None  # organization, project, workspace, resource
    key: str | None
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
    settled: bool
    amount_list: Decimal | None = None
    amount_contracted: Decimal | None = None
    amount_effective: Decimal | None = None
    line_type: str | None = None
    invoice_id: str | None = None
    line_id: str | None = None
    commitment_id: str | None = None
    corrects: int | None = None
    corrects_until: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """
    A report of one source from `start` to `end`: what it leaves out there was not billed.

    `account` tells reports of one source apart that are of different customers. `read_at` is when the
    provider said it, `name` where it came from. Days that end after `settled_until` are open, also those
    without a row.
    """

    source: str
    account: str
    start: int
    end: int
    rows: tuple[StatementRow, ...]
    read_at: float
    settled_until: float
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementInfo:
    """Consecutive days (UTC) that a source reports of a provider, all read at once, all settled or all open."""

    source: str
    provider: str
    account: str
    start: int
    end: int
    settled: bool
    imported_at: float
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementMonth:
    """What is kept of one source and account in a month. `billed` are dollars; `settled` of `days` are settled."""

    id: str
    source: str
    account: str
    month: str
    providers: tuple[str, ...]
    days: int
    settled: int
    rows: int
    billed: Decimal
    name: str
    read_at: float
    imported_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """A day whose amounts a later report changed, in dollars and tokens."""

    day: int
    billed_before: Decimal
    billed: Decimal
    tokens_before: Decimal
    tokens: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementOutcome:
    """What a statement changed. `rows` stand for its span now."""

    rows: int
    days: int
    days_new: int
    days_changed: int
    revisions: tuple[Revision, ...] = ()

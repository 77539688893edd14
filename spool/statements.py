"""
Statements: what a provider billed or metered. Values, rules, and a protocol. Pure.

Rows with equal fields (a cell) are added up, days are replaced as a whole, and money is exact. A row belongs
to the UTC day in which it starts. A row from outside the statement's span, such as a correction of an earlier
month, is stored under the first day, with its own time in `corrects`.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

import msgspec

from spool.errors import Invalid, RegistryDamaged
from spool.registry.operators import Actor

# The units of rows. Other currencies than dollars have their code in lower case. ACCRUED: by how many dollars
# a bill changes if fees are assigned to their usage, not to the day of purchase; only in rows without
# `amount_effective`.
TOKENS, USD, REQUESTS, ACCRUED = "tokens", "usd", "requests", "accrued_usd"
# Kind of a row for seats: SEAT has the fee, unit SEATS the number, which is 1 for a whole month.
SEAT, SEATS = "seat", "seats"
# Types of lines that the kind does not show. COVERED is paid by a commitment, UNUSED is its unused part.
REFUND, CORRECTION, COVERED, UNUSED, PURCHASE = "refund", "correction", "covered", "unused", "purchase"
LINE_TYPES = (REFUND, CORRECTION, COVERED, UNUSED, PURCHASE)
DAY_S = 86400


class StatementRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    A cell of a bill, None for facts that it does not state.

    Each token is in one row, so `input` excludes cached tokens. `start` and `end`: epoch seconds. If not
    `settled`, the provider may still change the row.

    `amount_list`, `amount_contracted`, `amount_effective`: the amount at list prices, at negotiated prices,
    and with fees assigned to their usage. `line_id`: only for rows without tokens, because cells with tokens
    combine lines. `corrects`, `corrects_until`: the time that a credit or later charge is for. `context`:
    lower limit of the context window, in input tokens.
    """

    source: str
    provider: str  # a name from spool.providers
    account: str | None  # id of an organization, project, workspace or resource
    key: str | None
    model: str | None  # name of the model on the bill
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
    context: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """
    A bill for the time from `start` to `end`. It lists everything that was billed for that time.

    `account` distinguishes customers of a source. `read_at`: when the provider returned the bill. `name`: the
    file or address that it is from. Days after `settled_until` may still change, even without rows.
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
    """
    UTC days that follow each other and were read together, all settled or all open. `digests`: of each day's
    rows.
    """

    source: str
    provider: str
    account: str
    start: int
    end: int
    settled: bool
    imported_at: float
    rows: int
    digests: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementMonth:
    """A month of a source and account. `billed`: in dollars. `settled`: how many of `days` are settled."""

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
class ChangedStatementDay:
    """A day that a later report changed."""

    day: int
    billed_before: Decimal
    billed: Decimal
    tokens_before: Decimal
    tokens: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementOutcome:
    """The result of storing a statement. `rows` are the rows stored for its span."""

    rows: int
    days: int
    days_new: int
    days_changed: int
    revisions: tuple[ChangedStatementDay, ...] = ()


# -- rules ---------------------------------------------------------------------------------------------------


MAX_DAYS = 400
MAX_DIGITS = 60  # maximum digits of an amount
MAX_DECIMALS = 27  # decimals of an amount, as in the totals
MAX_TEXT = 300
MAX_DAY_ROWS = 50_000  # maximum cells per source, account and day

EXACT = Context(prec=200, traps=[Inexact])
_CELL = (
    "source", "provider", "account", "key", "model", "start", "end", "unit", "kind", "currency", "tier", "region",
    "batch", "settled", "line_type", "invoice_id", "line_id", "commitment_id", "corrects", "corrects_until",
    "context",
)  # fmt: skip
_TEXTS = (
    "provider",
    "account",
    "key",
    "model",
    "unit",
    "kind",
    "currency",
    "tier",
    "region",
    "line_type",
    "invoice_id",
    "line_id",
    "commitment_id",
)
_rows = msgspec.json.Decoder(list[StatementRow])


def sum_amounts(amounts: Iterable[Decimal]) -> Decimal:
    result = Decimal(0)
    for amount in amounts:
        result = EXACT.add(result, amount)
    return result


class RowAmounts(NamedTuple):
    """
    The amounts of a row: as billed, at list prices, at negotiated prices, and with prepaid fees spread over
    the usage that they cover.
    """

    amount: Decimal
    amount_list: Decimal | None = None
    amount_contracted: Decimal | None = None
    amount_effective: Decimal | None = None

    @classmethod
    def from_row(cls, row: StatementRow) -> RowAmounts:
        return cls(*(getattr(row, name) for name in cls._fields))

    def plus(self, other: RowAmounts) -> RowAmounts:
        """Return the sums. A sum is None if one of its amounts is."""
        return self.map_amounts(_add_two_amounts, other)

    def map_amounts(self, change: Callable[..., Decimal | None], *others: RowAmounts) -> RowAmounts:
        """
        Return the amounts changed by `change`, which gets an amount and the same amount of each of `others`.
        Each may be None.
        """
        return RowAmounts(*map(change, self, *others))  # type: ignore[arg-type]


def _add_two_amounts(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    return None if first is None or second is None else EXACT.add(first, second)


def sum_rows(rows: Iterable[StatementRow]) -> list[StatementRow]:
    """Return rows in a fixed order, with equal cells added up and without zero rows."""
    cells: dict[tuple[Any, ...], RowAmounts] = {}
    for row in rows:
        cell = tuple(getattr(row, name) for name in _CELL)
        row_amounts = RowAmounts.from_row(row)
        cells[cell] = cells[cell].plus(row_amounts) if cell in cells else row_amounts
    summed_rows = [_statement_row(cell, amounts) for cell, amounts in cells.items() if any(amounts)]
    return sorted(summed_rows, key=msgspec.json.encode)


def _statement_row(cell: tuple[Any, ...], amounts: RowAmounts) -> StatementRow:
    values: dict[str, Any] = dict(zip(_CELL, cell, strict=True))
    return StatementRow(**values, **amounts.map_amounts(_normalize_if_reported)._asdict())


def _normalize_if_reported(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else normalize_amount(amount)


def normalize_amount(amount: Decimal) -> Decimal:
    """Return an amount without exponent and trailing zeros, so that equal amounts have equal texts."""
    short = EXACT.normalize(amount)
    return Decimal(format(short, "f"))


def check_statement(statement: Statement) -> None:
    if statement.start >= statement.end:
        raise Invalid("a statement must start before it ends")
    if statement.end - statement.start > MAX_DAYS * DAY_S:
        raise Invalid(f"a statement covers at most {MAX_DAYS} days. Import a shorter time range")
    if not _is_valid_year(statement.start) or not _is_valid_year(statement.end):
        raise Invalid("a statement must be within the years 2000 to 2999")
    for row in statement.rows:
        if row.source != statement.source:
            raise Invalid(f"a row of {row.source} does not belong to a statement of {statement.source}")
        if any(amount is not None and _is_too_long(amount) for amount in RowAmounts.from_row(row)):
            raise Invalid(
                f"an amount must be a number of at most {MAX_DIGITS} digits with at most "
                f"{MAX_DECIMALS} decimals"
            )
        texts = [getattr(row, name) for name in _TEXTS]
        if any(text is not None and len(text) > MAX_TEXT for text in texts):
            raise Invalid(f"a text of a statement must have at most {MAX_TEXT} characters")
        if row.start >= row.end or not _is_valid_year(row.start) or not _is_valid_year(row.end):
            raise Invalid("a row of a statement must start before it ends, within the years 2000 to 2999")


def _is_too_long(amount: Decimal) -> bool:
    digits, exponent = amount.as_tuple()[1:]
    if not isinstance(exponent, int) or exponent < -MAX_DECIMALS:
        return True
    return len(digits) + max(0, exponent) > MAX_DIGITS


def _is_valid_year(seconds: int) -> bool:
    return 946684800 <= seconds <= 32503680000


def group_by_day(statement: Statement) -> dict[int, list[StatementRow]]:
    """Return the rows by day. Rows from outside the statement's span are under its first day."""
    rows_by_day: dict[int, list[StatementRow]] = {
        day: [] for day in day_starts(statement.start, statement.end)
    }
    first = next(iter(rows_by_day))
    for row in statement.rows:
        if not statement.start <= row.start < statement.end:
            edges = {"start": statement.start, "end": min(first + DAY_S, statement.end)}
            corrected_time = (
                {"corrects": row.start, "corrects_until": row.end} if row.corrects is None else {}
            )
            row = msgspec.structs.replace(row, **edges, **corrected_time)
        rows_by_day[day_start(row.start)].append(row)
    return rows_by_day


def rows_starting_outside(rows: Iterable[StatementRow], start: int, end: int) -> Iterator[StatementRow]:
    """Yield the rows that start outside a span. A statement of the span does not replace them."""
    return (row for row in rows if not start <= row.start < end)


def day_starts(start: int, end: int) -> Iterator[int]:
    return iter(range(day_start(start), end, DAY_S))


def day_start(seconds: int) -> int:
    return seconds // DAY_S * DAY_S


def day_text(day: int) -> str:
    return datetime.fromtimestamp(day, UTC).date().isoformat()


def parse_day(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def statement_id(source: str, account: str, month: str) -> str:
    encoded = msgspec.json.encode([source, account, month])
    return f"st_{sha256(encoded).hexdigest()[:20]}"


def billed_total(rows: Iterable[StatementRow]) -> Decimal:
    return sum_amounts(row.amount for row in rows if row.unit == USD)


def token_total(rows: Iterable[StatementRow]) -> Decimal:
    return sum_amounts(row.amount for row in rows if row.unit == TOKENS)


def pack_rows(rows: Sequence[StatementRow]) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(rows), 6)).decode()


def unpack_rows(body: Mapping[str, Any] | None) -> list[StatementRow]:
    if body is None:
        return []
    try:
        return _rows.decode(zlib.decompress(base64.b64decode(body["rows"])))
    except (KeyError, TypeError, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise RegistryDamaged(f"a stored day of a statement is unreadable: {error}") from error


def rows_digest(rows: Sequence[StatementRow]) -> str:
    return sha256(msgspec.json.encode(rows)).hexdigest()


# -- protocol of the storage of statements -------------------------------------------------------------------


class StatementStore(Protocol):
    """The stored bills. A statement replaces the rows of its source and account that start in its span."""

    async def import_statement(
        self, statement: Statement, *, actor: Actor, dry_run: bool = False
    ) -> StatementOutcome:
        """
        Store a statement. If an equal one is stored, nothing changes.

        Raises Invalid, or NotAllowed if it is too large.
        """
        ...

    async def statement_rows(
        self, *, provider: str | None, start: int, end: int
    ) -> Sequence[StatementRow]: ...

    async def statements(self) -> Sequence[StatementInfo]:
        """Return the stored statements, including days without rows."""
        ...

    async def months(self) -> Sequence[StatementMonth]: ...

    async def delete(self, id: str, *, actor: Actor) -> None:
        """Delete a statement's rows. Raises NotThere if no statement has this id."""
        ...

    async def read_pull_state(self, name: str) -> Mapping[str, Any] | None:
        """Return the stored state of a regular import, or None if it never ran."""
        ...

    async def store_pull_state(self, name: str, state: Mapping[str, Any]) -> None: ...

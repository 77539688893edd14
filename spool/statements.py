"""
Statements: amounts that a provider billed or metered, as in its reports. Values, rules, and a
storage protocol. Pure.

Rows of the same cell are added up, days are replaced as a whole, and money is exact. A row belongs to the UTC
day in which its time bucket starts. A row that starts outside its statement's span, such as a correction of
an earlier month, is billed with the statement. It is filed under the first day of the span, and its own time
is in `corrects`.
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

# Units. Money in another currency has its code in lower case. ACCRUED is the amount in dollars by which a
# bill changes if fees are assigned to the usage that they cover, instead of to the day of purchase. Only rows
# that were stored without `amount_effective` have it.
TOKENS, USD, REQUESTS, ACCRUED = "tokens", "usd", "requests", "accrued_usd"
# Seats of assistants. A row of the kind SEAT has the fee of seats. The unit SEATS counts seats: a seat for a
# whole month is 1.
SEAT, SEATS = "seat", "seats"
# Types of a line, if its kind does not show the type. A commitment pays a COVERED line. UNUSED is the unused
# part of a commitment.
REFUND, CORRECTION, COVERED, UNUSED, PURCHASE = "refund", "correction", "covered", "unused", "purchase"
LINE_TYPES = (REFUND, CORRECTION, COVERED, UNUSED, PURCHASE)
DAY_S = 86400


class StatementRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """
    One cell of a provider's report. A fact that the report does not state is None.

    A token is in exactly one row of its bucket, so `input` excludes cached tokens. `start` and `end` are the
    limits of the bucket in epoch seconds. `settled` is False while the provider may still change the row.

    `amount_list`, `amount_contracted` and `amount_effective` are the cost at list prices, at negotiated
    prices, and with fees assigned to the usage that they cover. `line_type` is one of LINE_TYPES. `line_id`
    is set only for lines without tokens, because a cell of tokens combines many lines. A credit or a later
    charge is for calls in the time from `corrects` to `corrects_until`. `context` is the lower limit, in
    tokens of input, of the context window that the row is about.
    """

    source: str
    provider: str  # provider, by its name in spool.providers
    account: str | None  # the billed organization, project, workspace or resource
    key: str | None
    model: str | None  # model, by its name on the bill
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
    A report of one source from `start` to `end`. Anything that it does not list was not billed in that time.

    `account` distinguishes reports of one source about different customers. `read_at` is the time when the
    provider returned the report, and `name` is its origin. Days that end after `settled_until` are open,
    including days without a row.
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
    Consecutive UTC days of one source and provider. All were read at the same time, and all are settled or
    all are open. `digests` has a digest of the rows of each day.
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
    """
    The stored statement of one source and account for a month. `billed` is in dollars. `settled` is the
    number of settled days among `days`.
    """

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
    """Changes that a statement made. `rows` is the number of rows that are now stored for its span."""

    rows: int
    days: int
    days_new: int
    days_changed: int
    revisions: tuple[Revision, ...] = ()


# -- rules ---------------------------------------------------------------------------------------------------


MAX_DAYS = 400  # maximum days per statement
MAX_DIGITS = 60  # maximum digits per amount
MAX_DECIMALS = 27  # maximum decimals per amount, as in the totals
MAX_TEXT = 300
MAX_DAY_ROWS = 50_000  # maximum number of different cells per source, account and day

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


def add_amounts(amounts: Iterable[Decimal]) -> Decimal:
    """Add amounts without rounding."""
    result = Decimal(0)
    for amount in amounts:
        result = EXACT.add(result, amount)
    return result


class RowAmounts(NamedTuple):
    """
    Amounts of a row: as billed, at list prices, at negotiated prices, and with fees assigned to the usage
    that they cover.
    """

    amount: Decimal
    amount_list: Decimal | None = None
    amount_contracted: Decimal | None = None
    amount_effective: Decimal | None = None

    @classmethod
    def from_row(cls, row: StatementRow) -> RowAmounts:
        return cls(*(getattr(row, name) for name in cls._fields))

    def plus(self, other: RowAmounts) -> RowAmounts:
        """Add two sets of amounts. An amount that is missing on one side is None in the result."""
        return self.map_amounts(_add_two_amounts, other)

    def map_amounts(self, change: Callable[..., Decimal | None], *others: RowAmounts) -> RowAmounts:
        """Apply a function to each amount that is not None."""
        return RowAmounts(*map(change, self, *others))  # type: ignore[arg-type]


def _add_two_amounts(first: Decimal | None, second: Decimal | None) -> Decimal | None:
    return None if first is None or second is None else EXACT.add(first, second)


def sum_rows(rows: Iterable[StatementRow]) -> list[StatementRow]:
    """Add up rows with the same cell, in a fixed order. Cells whose amounts are 0 are omitted."""
    cells: dict[tuple[Any, ...], RowAmounts] = {}
    for row in rows:
        cell = tuple(getattr(row, name) for name in _CELL)
        row_amounts = RowAmounts.from_row(row)
        cells[cell] = cells[cell].plus(row_amounts) if cell in cells else row_amounts
    summed_rows = [_statement_row(cell, amounts) for cell, amounts in cells.items() if any(amounts)]
    return sorted(summed_rows, key=msgspec.json.encode)


def _statement_row(cell: tuple[Any, ...], amounts: RowAmounts) -> StatementRow:
    values: dict[str, Any] = dict(zip(_CELL, cell, strict=True))
    return StatementRow(**values, **amounts.map_amounts(_plain_if_told)._asdict())


def _plain_if_told(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else normalize_amount(amount)


def normalize_amount(amount: Decimal) -> Decimal:
    """Return the same number without exponent or trailing zeros, so that equal amounts have equal texts."""
    short = EXACT.normalize(amount)
    return Decimal(format(short, "f"))


def check(statement: Statement) -> None:
    """Raise Invalid if the statement cannot be stored."""
    if statement.start >= statement.end:
        raise Invalid("a statement must start before it ends")
    if statement.end - statement.start > MAX_DAYS * DAY_S:
        raise Invalid(f"a statement covers at most {MAX_DAYS} days. Import a shorter time range")
    if not _is_in_years(statement.start) or not _is_in_years(statement.end):
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
        if row.start >= row.end or not _is_in_years(row.start) or not _is_in_years(row.end):
            raise Invalid("a row of a statement must start before it ends, within the years 2000 to 2999")


def _is_too_long(amount: Decimal) -> bool:
    digits, exponent = amount.as_tuple()[1:]
    if not isinstance(exponent, int) or exponent < -MAX_DECIMALS:
        return True
    return len(digits) + max(0, exponent) > MAX_DIGITS


def _is_in_years(seconds: int) -> bool:
    return 946684800 <= seconds <= 32503680000


def group_by_day(statement: Statement) -> dict[int, list[StatementRow]]:
    """
    Return every day of the span with its rows. A row that starts outside the span is filed under the first day.
    """
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


def rows_outside(rows: Iterable[StatementRow], start: int, end: int) -> Iterator[StatementRow]:
    """Yield the rows that start outside this span, which a statement of the span leaves unchanged."""
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
    """Return the id of a statement. Every installation computes the same id."""
    encoded = msgspec.json.encode([source, account, month])
    return f"st_{sha256(encoded).hexdigest()[:20]}"


def billed_total(rows: Iterable[StatementRow]) -> Decimal:
    return add_amounts(row.amount for row in rows if row.unit == USD)


def token_total(rows: Iterable[StatementRow]) -> Decimal:
    return add_amounts(row.amount for row in rows if row.unit == TOKENS)


def pack_rows(rows: Sequence[StatementRow]) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(rows), 6)).decode()


def unpack_rows(body: Mapping[str, Any] | None) -> list[StatementRow]:
    """Decode the rows of a day's document. Raises RegistryDamaged if it is invalid."""
    if body is None:
        return []
    try:
        return _rows.decode(zlib.decompress(base64.b64decode(body["rows"])))
    except (KeyError, TypeError, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise RegistryDamaged(f"a stored day of a statement is unreadable: {error}") from error


def rows_digest(rows: Sequence[StatementRow]) -> str:
    return sha256(msgspec.json.encode(rows)).hexdigest()


# -- protocol of the storage of statements -------------------------------------------------------------------


class Statements(Protocol):
    """
    Storage of statements. A statement replaces only the stored rows of its source and account that start
    in its span.
    """

    async def put(self, statement: Statement, *, actor: Actor, dry_run: bool = False) -> StatementOutcome:
        """
        Store a statement. If the same statement is stored again, nothing changes.

        Raises Invalid if a value breaks a rule, and NotAllowed if the statement is too large.
        """
        ...

    async def statement_rows(self, *, provider: str | None, start: int, end: int) -> Sequence[StatementRow]:
        """Return the rows whose buckets overlap the span."""
        ...

    async def statements(self) -> Sequence[StatementInfo]:
        """Return the covered days, including days without a row."""
        ...

    async def months(self) -> Sequence[StatementMonth]: ...

    async def delete(self, id: str, *, actor: Actor) -> None:
        """Delete the statement of a month. Raises NotThere if there is none with this id."""
        ...

    async def pull_state(self, name: str) -> Mapping[str, Any] | None:
        """Return the stored state of a pull, or None if it never ran."""
        ...

    async def keep_pull_state(self, name: str, state: Mapping[str, Any]) -> None: ...

"""
Statements: what a provider billed or metered. Values, rules, and a protocol. Pure.

Rows with equal fields (a cell) are added up, a day of a bill is replaced as a whole, and money is exact.

A row has two days. `day_of_row` is the day of its use. `BilledRow` has the day on which its bill has it: the same day,
moved into the period of the bill. So late usage or a refund is in the next bill, about an earlier month.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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

    Each token is in one row, so `input` excludes cached tokens. `start` and `end`: the time of use, in epoch
    seconds, also if a later bill has it. If not `settled`, the provider may still change the row.

    `amount_list`, `amount_contracted`, `amount_effective`: the amount at list prices, at negotiated prices,
    and with fees assigned to their usage. `line_id`: only for rows without tokens, because cells with tokens
    combine lines. `context`: lower limit of the context window, in input tokens. `bill`: the name of its bill
    (`bill_name`), if the report states it.
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
    context: int | None = None
    bill: str = ""


class BilledRow(NamedTuple):
    """A row, with the first and the last day on which its bill can have it."""

    row: StatementRow
    first: int
    last: int

    @property
    def billed_days(self) -> list[int]:
        """Return the day on the bill of each day of use."""
        return [min(max(day, self.first), self.last) for day in days_of_use(self.row)]


class CoveredDays(NamedTuple):
    """
    The days of a bill, from `start` up to `end`, of which a statement has every row. Without a name, the statement has
    all rows of these days, whatever their bills.
    """

    bill: str
    start: int
    end: int


class ImportedFile(NamedTuple):
    """A file of an import. `digest`: the SHA-256 of its unpacked content, or "" of a fetched page."""

    name: str
    digest: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """
    Bills for the time from `start` to `end`. It lists everything that was billed for `covers`.

    `account` distinguishes customers of a source. `read_at`: when the provider returned the bill. `name`: the
    file or address that it is from. Days after `settled_until` may still change, even without rows. `days_in_part`:
    days of which the statement has only some hours, so it replaces none of their rows.
    """

    source: str
    account: str
    start: int
    end: int
    rows: tuple[StatementRow, ...]
    read_at: float
    settled_until: float
    name: str
    covers: tuple[CoveredDays, ...] = ()
    files: tuple[ImportedFile, ...] = ()
    days_in_part: frozenset[int] = frozenset()

    @property
    def covered_days(self) -> Sequence[CoveredDays]:
        return self.covers or (CoveredDays("", self.start, self.end),)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementInfo:
    """
    UTC days that follow each other and were read together, all settled or all open. `digests`: of each day's
    rows. `used_from`, `used_until`: the time of use of the rows, and of their days on bills.
    """

    source: str
    provider: str
    account: str
    start: int
    end: int
    settled: bool
    imported_at: float
    rows: int
    used_from: int
    used_until: int
    digests: tuple[str, ...] = ()

    def has_use_within(self, start: int, end: int) -> bool:
        """Return whether the days, or the use of a row, are within the time from `start` up to `end`."""
        return min(self.start, self.used_from) < end and max(self.end, self.used_until) > start


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
    """
    The result of storing a statement. `rows` are the rows stored for its span. `id`: of the import, or "" if nothing
    was stored. `already`: of the import that has the same files, if nothing was stored for this reason.
    """

    rows: int
    days: int
    days_new: int
    days_changed: int
    revisions: tuple[ChangedStatementDay, ...] = ()
    id: str = ""
    already: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDayInfo:
    """
    A day of an import, and what counts of it. `billed` and `counted`: dollars of all rows, and of those that count.
    `overlap`: rows that do not count, because an older import has rows for their time.
    """

    day: int
    rows: int
    billed: Decimal
    counted: Decimal
    state: str
    replaced_by: str
    overlap: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementImportInfo:
    """An import of reports. Its state is one of IMPORT_STATES. `replaced_by`: ids of newer imports."""

    id: str
    number: int
    source: str
    account: str
    way: str
    actor: str
    files: tuple[ImportedFile, ...]
    covers: tuple[CoveredDays, ...]
    read_at: float
    imported_at: float
    rows: int
    billed: Decimal
    add_to: str
    undone_at: float | None
    undone_by: str
    state: str
    replaced_by: tuple[str, ...]
    days: tuple[ImportedDayInfo, ...]


# -- rules ---------------------------------------------------------------------------------------------------


MAX_DAYS = 400
MAX_DIGITS = 60  # maximum digits of an amount
MAX_DECIMALS = 27  # decimals of an amount, as in the totals
MAX_TEXT = 300
MAX_DAY_ROWS = 50_000  # maximum cells per source, account and day
MAX_BILLS = 24  # maximum bills in a statement
KEEP_REPLACED_S = 400.0 * DAY_S  # default time for which replaced and undone rows are kept
WAYS = FILE, UPLOAD, PULL, DEMO = "file", "upload", "pull", "demo"  # how an import arrived
IMPORT_STATES = COUNTS, IN_PART, REPLACED, UNDONE = "counts", "in_part", "replaced", "undone"
# A bucket of this length is a day of some time zone, perhaps one on which clocks change.
LEAST_DAY_S, MOST_DAY_S = 12 * 3600, 36 * 3600
# Noon of a local day is in UTC up to 13 hours before or 10 after noon of its date. Zones beyond are not told apart.
_AFTER_NOON_S = 5400

EXACT = Context(prec=200, traps=[Inexact])
_CELL = (
    "source", "provider", "account", "key", "model", "start", "end", "unit", "kind", "currency", "tier", "region",
    "batch", "settled", "line_type", "invoice_id", "line_id", "commitment_id", "context", "bill",
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
    "bill",
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
    if statement.start % DAY_S or statement.end % DAY_S:
        raise Invalid("a statement must cover whole days in UTC")
    if statement.end - statement.start > MAX_DAYS * DAY_S:
        raise Invalid(f"a statement covers at most {MAX_DAYS} days. Import a shorter time range")
    if len({days.bill for days in statement.covered_days}) > MAX_BILLS:
        raise Invalid(f"a statement has at most {MAX_BILLS} bills. Import fewer at once")
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
    """
    Return the rows by covered day: the day on which the bill has them. Rows that were used outside the period of their
    bill, or on no covered day, are under the first covered one, so that each newer report of the bill replaces them.
    """
    by_bill: dict[str, CoveredDays] = {}
    for days in statement.covered_days:
        by_bill.setdefault(days.bill, days)
    rows_by_day: dict[int, list[StatementRow]] = {
        day: []
        for day in sorted({day for days in by_bill.values() for day in day_starts(days.start, days.end)})
    }
    for row in statement.rows:
        covered = by_bill[row.bill if row.bill in by_bill else ""]
        used = day_of_row(row)
        day = used
        if row.bill:
            first, last = days_of_bill(row.bill)
            day = min(max(used, first), last)
        # a bill of another time zone may have hours of the day before or after its days
        is_within = covered.start <= day < covered.end and abs(day - used) <= DAY_S
        rows_by_day[day if is_within else day_start(covered.start)].append(row)
    return rows_by_day


def to_billed_row(row: StatementRow, stored_day: int) -> BilledRow:
    """Return a row with the days of its bill. A row without a bill keeps its days of use, if it is stored on one."""
    if row.bill:
        return BilledRow(row, *days_of_bill(row.bill))
    days = days_of_use(row)
    return BilledRow(row, days[0], days[-1]) if stored_day in days else BilledRow(row, stored_day, stored_day)


def days_of_use(row: StatementRow) -> range:
    """Return the UTC days of a row. Only a bucket of more than a day has several."""
    if row.end - row.start > MOST_DAY_S:
        return range(day_start(row.start), row.end, DAY_S)
    day = day_of_row(row)
    return range(day, day + DAY_S, DAY_S)


def day_of_row(row: StatementRow) -> int:
    """Return the UTC day of a row. The day of another time zone keeps its date."""
    return day_of_bucket(row.start, row.end)


def day_of_bucket(start: int, end: int) -> int:
    return day_start(
        (start + end) // 2 + _AFTER_NOON_S if LEAST_DAY_S <= end - start <= MOST_DAY_S else start
    )


def bill_name(start: int, end: int) -> str:
    """
    Return the name of the bill of a period: its month, such as `2026-09`, or else its first day and the day after its
    last one. Raises Invalid for a period that ends before it starts or has over MAX_DAYS days.
    """
    if not start < end <= start + MAX_DAYS * DAY_S:
        raise Invalid(f"the period of a bill must have 1 to {MAX_DAYS} days")
    first, after = day_text(start), day_text(end)
    month = datetime.fromtimestamp(start, UTC)
    following = (month.replace(day=1) + timedelta(days=32)).replace(day=1)
    return first[:7] if month.day == 1 and after == f"{following:%Y-%m-%d}" else f"{first}/{after}"


def days_of_bill(name: str) -> tuple[int, int]:
    """Return the first and the last day of the bill with this name."""
    first, _, after = name.partition("/")
    if after:
        return parse_day(first), parse_day(after) - DAY_S
    start = parse_day(f"{first}-01")
    following = (datetime.fromtimestamp(start, UTC) + timedelta(days=32)).replace(day=1)
    return start, int(following.timestamp()) - DAY_S


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
    """The imported bills. A row counts unless a newer import of its source and account covers its bill on its day."""

    async def import_statement(
        self,
        statement: Statement,
        *,
        actor: Actor,
        way: str = FILE,
        add_to: str = "",
        dry_run: bool = False,
        replace: bool = False,
        keep_replaced_s: float = KEEP_REPLACED_S,
    ) -> StatementOutcome:
        """
        Store a statement as an import. If it would change no day, nothing is stored. `add_to`: the id of an import
        of which this is another part, so it replaces nothing.

        Raises Invalid, NotAllowed if it is too large, and WouldRemove unless `replace` accepts the loss.
        """
        ...

    async def imports(self) -> Sequence[StatementImportInfo]:
        """Return all imports, oldest first, also those that were replaced or undone within the time to keep them."""
        ...

    async def undo(self, id: str, *, actor: Actor) -> StatementImportInfo:
        """
        Undo an import: what it replaced counts again. Raises NotThere, and NotAllowed if it was undone before or if
        a closed month rests on it.
        """
        ...

    async def statement_rows(self, *, provider: str | None, start: int, end: int) -> Sequence[StatementRow]:
        """Return the rows that were used within the time from `start` up to `end`, whatever their bills."""
        ...

    async def billed_rows(self, *, provider: str | None, start: int, end: int) -> Sequence[BilledRow]:
        """Return the rows that bills have on the days from `start` up to `end`, whenever they were used."""
        ...

    async def statements(self) -> Sequence[StatementInfo]:
        """Return the stored statements, including days without rows."""
        ...

    async def months(self) -> Sequence[StatementMonth]: ...

    async def read_pull_state(self, name: str) -> Mapping[str, Any] | None:
        """Return the stored state of a regular import, or None if it never ran."""
        ...

    async def store_pull_state(self, name: str, state: Mapping[str, Any]) -> None: ...

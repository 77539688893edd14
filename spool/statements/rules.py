"""
Rules of statements that are kept: equal cells are added up, days are replaced as a whole, money stays exact. Pure.

Rows stand with the UTC day in which their bucket starts. A row that starts outside of its statement's span
(a correction of an earlier month) is billed with it, and stands with the span's first day; `corrects` keeps
its own time.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Context, Decimal, Inexact
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from spool.errors import Invalid, RegistryDamaged
from spool.statements.values import DAY_S, TOKENS, USD, Statement, StatementRow

MAX_DAYS = 400  # of one statement
MAX_DIGITS = 60  # of an amount
MAX_DECIMALS = 27  # as many as the ledger's money has
MAX_TEXT = 300
MAX_DAY_ROWS = 50_000  # different cells of a source, account and day

EXACT = Context(prec=200, traps=[Inexact])
_CELL = (
    "source", "provider", "account", "key", "model", "start", "end", "unit", "kind", "currency", "tier", "region",
    "batch", "settled", "line_type", "invoice_id", "line_id", "commitment_id", "corrects", "corrects_until",
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


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Add amounts without rounding."""
    found = Decimal(0)
    for amount in amounts:
        found = EXACT.add(found, amount)
    return found


class RowAmounts(NamedTuple):
    """The amounts of a row: as billed, at list prices, at negotiated ones, and with fees on what they cover."""

    amount: Decimal
    amount_list: Decimal | None = None
    amount_contracted: Decimal | None = None
    amount_effective: Decimal | None = None

    @classmethod
    def of(cls, row: StatementRow) -> RowAmounts:
        return cls(*(getattr(row, name) for name in cls._fields))

    def plus(self, other: RowAmounts) -> RowAmounts:
        """Add each; what one side does not tell is not told of both."""
        return self.each(_added, other)

    def each(self, change: Callable[..., Decimal | None], *others: RowAmounts) -> RowAmounts:
        """Change what is told."""
        return RowAmounts(*map(change, self, *others))  # type: ignore[arg-type]


def _added(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return None if one is None or other is None else EXACT.add(one, other)


def summed(rows: Iterable[StatementRow]) -> list[StatementRow]:
    """Sum rows to one for each cell, in a fixed order; cells of 0 are left out."""
    cells: dict[tuple[Any, ...], RowAmounts] = {}
    for row in rows:
        cell = tuple(getattr(row, name) for name in _CELL)
        told = RowAmounts.of(row)
        cells[cell] = cells[cell].plus(told) if cell in cells else told
    found = [_row(cell, amounts) for cell, amounts in cells.items() if any(amounts)]
    return sorted(found, key=msgspec.json.encode)


def _row(cell: tuple[Any, ...], amounts: RowAmounts) -> StatementRow:
    values: dict[str, Any] = dict(zip(_CELL, cell, strict=True))
    return StatementRow(**values, **amounts.each(_plain_if_told)._asdict())


def _plain_if_told(amount: Decimal | None) -> Decimal | None:
    return None if amount is None else plain(amount)


def plain(amount: Decimal) -> Decimal:
    """The same number without an exponent and trailing zeros, so that equal amounts are equal texts."""
    short = EXACT.normalize(amount)
    return Decimal(format(short, "f"))


def check(statement: Statement) -> None:
    """Invalid if the statement cannot be kept."""
    if statement.start >= statement.end:
        raise Invalid("a statement starts before it ends")
    if statement.end - statement.start > MAX_DAYS * DAY_S:
        raise Invalid(f"a statement is of at most {MAX_DAYS} days; import a shorter span")
    if not _in_years(statement.start) or not _in_years(statement.end):
        raise Invalid("a statement is of the years 2000 to 2999")
    for row in statement.rows:
        if row.source != statement.source:
            raise Invalid(f"a row of {row.source} does not belong to a statement of {statement.source}")
        if any(each is not None and _is_too_long(each) for each in RowAmounts.of(row)):
            raise Invalid(
                f"an amount is a number of at most {MAX_DIGITS} digits, {MAX_DECIMALS} of them decimals"
            )
        texts = [getattr(row, name) for name in _TEXTS]
        if any(text is not None and len(text) > MAX_TEXT for text in texts):
            raise Invalid(f"a text of a statement has at most {MAX_TEXT} characters")
        if row.start >= row.end or not _in_years(row.start) or not _in_years(row.end):
            raise Invalid("a row of a statement starts before it ends, in the years 2000 to 2999")


def _is_too_long(amount: Decimal) -> bool:
    digits, exponent = amount.as_tuple()[1:]
    if not isinstance(exponent, int) or exponent < -MAX_DECIMALS:
        return True
    return len(digits) + max(0, exponent) > MAX_DIGITS


def _in_years(seconds: int) -> bool:
    return 946684800 <= seconds <= 32503680000


def by_day(statement: Statement) -> dict[int, list[StatementRow]]:
    """Every day of the span with its rows; a row that starts outside stands with the first day."""
    found: dict[int, list[StatementRow]] = {day: [] for day in days(statement.start, statement.end)}
    first = next(iter(found))
    for row in statement.rows:
        if not statement.start <= row.start < statement.end:
            edges = {"start": statement.start, "end": min(first + DAY_S, statement.end)}
            told = {"corrects": row.start, "corrects_until": row.end} if row.corrects is None else {}
            row = msgspec.structs.replace(row, **edges, **told)
        found[day_of(row.start)].append(row)
    return found


def outside(rows: Iterable[StatementRow], start: int, end: int) -> Iterator[StatementRow]:
    """Rows that a statement of this span leaves as they are."""
    return (row for row in rows if not start <= row.start < end)


def days(start: int, end: int) -> Iterator[int]:
    return iter(range(day_of(start), end, DAY_S))


def day_of(seconds: int) -> int:
    return seconds // DAY_S * DAY_S


def day_text(day: int) -> str:
    return datetime.fromtimestamp(day, UTC).date().isoformat()


def day_from(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


def statement_id(source: str, account: str, month: str) -> str:
    """The same in every installation."""
    named = msgspec.json.encode([source, account, month])
    return f"st_{sha256(named).hexdigest()[:20]}"


def billed(rows: Iterable[StatementRow]) -> Decimal:
    return total(row.amount for row in rows if row.unit == USD)


def tokens(rows: Iterable[StatementRow]) -> Decimal:
    return total(row.amount for row in rows if row.unit == TOKENS)


def packed(rows: Sequence[StatementRow]) -> str:
    return base64.b64encode(zlib.compress(msgspec.json.encode(rows), 6)).decode()


def unpacked(body: Mapping[str, Any] | None) -> list[StatementRow]:
    """The rows of a day's document; RegistryDamaged if it is none."""
    if body is None:
        return []
    try:
        return _rows.decode(zlib.decompress(base64.b64decode(body["rows"])))
    except (KeyError, TypeError, ValueError, zlib.error, msgspec.MsgspecError) as error:
        raise RegistryDamaged(f"a day of a statement cannot be read: {error}") from error


def digest(rows: Sequence[StatementRow]) -> str:
    return sha256(msgspec.json.encode(rows)).hexdigest()

"""
Files of rates: those of the European Central Bank, and one's own. Pure but for the file that is read.

The bank's are the daily XML, the history as CSV (`Date,USD,JPY,...`: units for one euro, `N/A` where there was no
quotation) and the archive that it comes in. One's own is CSV with the columns `date,currency,usd`: dollars for one.
"""

from __future__ import annotations

import csv
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from spool.bounded_reading import BoundedLines
from spool.currencies import code_of
from spool.errors import Invalid

ECB: Final = "ecb"
OWN: Final = "own"
_EURO = "EUR"
_OWN_COLUMNS = ("date", "currency", "usd")
_NO_QUOTATION = ("", "N/A")
_MOST_DIGITS = 40
MAX_QUOTATIONS: Final = 500_000  # of a file: a century of the bank's
_DAY = re.compile(r"""<Cube\s+time=["'](\d{4}-\d\d-\d\d)["']\s*>(.*?)</Cube>\s*(?=<|$)""", re.DOTALL)
_RATE = re.compile(r"""<Cube\s+currency=["'](\w{3})["']\s+rate=["']([^"']{1,40})["']\s*/>""")


class RatesUnreadable(ValueError):
    """A file of rates that cannot be taken; says where it is wrong."""


class Quotation(NamedTuple):
    """Dollars for one unit of a currency on a day (epoch seconds)."""

    day: int
    currency: str
    usd: Fraction
    source: str


def read(path: Path, most_bytes: int) -> list[Quotation]:
    """Read a file of any of the forms, all of it or nothing. RatesUnreadable with what is wrong."""
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise RatesUnreadable(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return parse(content, most_bytes)
    except RatesUnreadable as error:
        raise RatesUnreadable(f"{path}: {error}") from error


def parse(content: bytes, most_bytes: int) -> list[Quotation]:
    """Return the quotations of a file's bytes. RatesUnreadable with what is wrong."""
    if content[:2] == b"PK":
        content = _unpacked(content, most_bytes)
    if len(content) > most_bytes:
        raise RatesUnreadable(f"it is larger than currency.max_file_bytes ({most_bytes})")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RatesUnreadable("it is not UTF-8 text") from error
    is_xml = text.lstrip().startswith("<")
    found = list(islice(_of_xml(text) if is_xml else _of_csv(content), MAX_QUOTATIONS + 1))
    if len(found) > MAX_QUOTATIONS:
        raise RatesUnreadable(f"it has more than {MAX_QUOTATIONS:,} rates")
    if not found:
        raise RatesUnreadable("it has no rates")
    return found


def _unpacked(content: bytes, most_bytes: int) -> bytes:
    """The one file of an archive, no more of it than may be read."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
            if len(names) != 1:
                raise RatesUnreadable(f"the archive has {len(names)} files in place of one")
            with archive.open(names[0]) as file:
                return file.read(most_bytes + 1)
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError) as error:
        raise RatesUnreadable(f"the archive cannot be read: {error}") from error


def _of_xml(text: str) -> Iterator[Quotation]:
    for found in _DAY.finditer(text + "<"):
        quoted = ((each[1], each[2]) for each in _RATE.finditer(text, found.start(2), found.end(2)))
        yield from _of_euros(_day(found[1]), quoted)


def _of_csv(content: bytes) -> Iterator[Quotation]:
    lines = BoundedLines("the file", io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline=""))
    rows = _ended(csv.reader(lines), lines)
    head = [cell.strip() for cell in next(rows, [])]
    if [cell.lower() for cell in head if cell] == list(_OWN_COLUMNS):
        yield from _own(rows)
        return
    if not head or head[0] != "Date" or "USD" not in head:
        raise RatesUnreadable("it begins neither with Date and currencies, nor with date,currency,usd")
    try:
        for row in rows:
            if row:
                cells = [cell.strip() for cell in row[1:]]
                yield from _of_euros(_day(row[0].strip()), zip(head[1:], cells, strict=True))
    except (csv.Error, ValueError) as error:
        raise RatesUnreadable(f"line {lines.number}: {error}") from error


def _ended(rows: Iterable[list[str]], lines: BoundedLines) -> Iterator[list[str]]:
    """Yield rows, of which none is longer than a row may be."""
    try:
        for row in rows:
            lines.end_row()
            yield row
    except Invalid as error:
        raise RatesUnreadable(str(error)) from error


def _of_euros(day: int, quoted: Iterable[tuple[str, str]]) -> Iterator[Quotation]:
    """Yield what stands as units for one euro in dollars; without one for the dollar a day says nothing."""
    per_euro = {name: _number(text) for name, text in quoted if name and text not in _NO_QUOTATION}
    dollars = per_euro.get("USD")
    if dollars is None:
        return
    yield Quotation(day, _EURO, dollars, ECB)
    for name, rate in per_euro.items():
        if name != "USD" and code_of(name) is not None:
            yield Quotation(day, name, dollars / rate, ECB)


def _own(rows: Iterable[list[str]]) -> Iterator[Quotation]:
    for line, row in enumerate(rows, 2):
        if not row:
            continue
        try:
            day, currency, usd = (cell.strip() for cell in row)
            code = code_of(currency)
            if code is None or code == "USD":
                raise ValueError(f"{currency[:10]} is no currency beside USD")
            yield Quotation(_day(day), code, _number(usd), OWN)
        except ValueError as error:
            raise RatesUnreadable(f"line {line}: {error}") from error


def _day(text: str) -> int:
    day = date.fromisoformat(text)
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _number(text: str) -> Fraction:
    try:
        number = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text[:20]} is not a rate") from error
    if (
        not number.is_finite()
        or number <= 0
        or len(text) > _MOST_DIGITS
        or abs(number.adjusted()) > _MOST_DIGITS
    ):
        raise ValueError(f"{text[:20]} is not a rate")
    return Fraction(number)

"""
Exchange rates: read from files, valid by day, and frozen for closed months.

A configured rate takes precedence. Otherwise, the rate of a day is the newest quotation of that day and the
week before, because banks quote only on working days. Frozen rates of a closed month never change, even if
later files have other rates.

A file from the European Central Bank is the daily XML, the history as CSV (`Date,USD,JPY,...`: units per
euro, `N/A` without a quotation), or that CSV in a zip archive. Your own file is CSV with the columns
`date,currency,usd`: dollars per unit.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import re
import threading
import zipfile
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.configuration.sections import CurrencySettings
from spool.bounded_reading import BoundedLines
from spool.currencies import SCALE, read_currency_code
from spool.errors import Invalid
from spool.ledger.sums import DAY_S
from spool.record import CURRENCY

ECB: Final = "ecb"
OWN: Final = "own"
_EURO = "EUR"
_OWN_COLUMNS = ("date", "currency", "usd")
_NO_QUOTATION = ("", "N/A")
_MOST_DIGITS = 40
MAX_QUOTATIONS: Final = 500_000  # maximum quotations per file; the bank's quotations of a century are fewer
_DAY = re.compile(r"""<Cube\s+time=["'](\d{4}-\d\d-\d\d)["']\s*>(.*?)</Cube>\s*(?=<|$)""", re.DOTALL)
_RATE = re.compile(r"""<Cube\s+currency=["'](\w{3})["']\s+rate=["']([^"']{1,40})["']\s*/>""")
LOOK_BACK_DAYS: Final = 7
CONFIGURED: Final = "configured"
_log = logging.getLogger(__name__)
# day -> currency -> its value in dollars as a fraction, its source, and the day of the quotation
Days = dict[str, dict[str, list[str]]]


class RatesUnreadable(ValueError):
    """Raised if a file of exchange rates cannot be read. The message states where it is wrong."""


class Quotation(NamedTuple):
    """Dollars per unit of a currency on a day (epoch seconds)."""

    day: int
    currency: str
    usd: Fraction
    source: str


def read_rates_file(path: Path, most_bytes: int) -> list[Quotation]:
    """Read a rates file in any of the formats, completely or not at all. Raises RatesUnreadable."""
    try:
        with path.open("rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise RatesUnreadable(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        return parse_rates_file(content, most_bytes)
    except RatesUnreadable as error:
        raise RatesUnreadable(f"{path}: {error}") from error


def parse_rates_file(content: bytes, most_bytes: int) -> list[Quotation]:
    """Parse a file of exchange rates. Raises RatesUnreadable."""
    if content[:2] == b"PK":
        content = _unpack_archive(content, most_bytes)
    if len(content) > most_bytes:
        raise RatesUnreadable(f"it is larger than currency.max_file_bytes ({most_bytes})")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RatesUnreadable("it is not UTF-8 text") from error
    is_xml = text.lstrip().startswith("<")
    quotations = list(islice(_parse_xml(text) if is_xml else _parse_csv(content), MAX_QUOTATIONS + 1))
    if len(quotations) > MAX_QUOTATIONS:
        raise RatesUnreadable(f"it has more than {MAX_QUOTATIONS:,} rates")
    if not quotations:
        raise RatesUnreadable("it contains no rates")
    return quotations


def _unpack_archive(content: bytes, most_bytes: int) -> bytes:
    """
    Unpack the only file of an archive. The result has at most `most_bytes` and one byte, so that a file that
    is too large is noticed.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = archive.namelist()
            if len(names) != 1:
                raise RatesUnreadable(f"the archive must have one file, but has {len(names)}")
            with archive.open(names[0]) as file:
                return file.read(most_bytes + 1)
    except (zipfile.BadZipFile, OSError, RuntimeError, NotImplementedError, EOFError) as error:
        raise RatesUnreadable(f"the archive cannot be read: {error}") from error


def _parse_xml(text: str) -> Iterator[Quotation]:
    for match in _DAY.finditer(text + "<"):
        quoted = (
            (rate_match[1], rate_match[2])
            for rate_match in _RATE.finditer(text, match.start(2), match.end(2))
        )
        yield from _convert_from_euros(_parse_day(match[1]), quoted)


def _parse_csv(content: bytes) -> Iterator[Quotation]:
    lines = BoundedLines("the file", io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline=""))
    rows = _limit_rows(csv.reader(lines), lines)
    head = [cell.strip() for cell in next(rows, [])]
    if [cell.lower() for cell in head if cell] == list(_OWN_COLUMNS):
        yield from _parse_custom_rate_rows(rows)
        return
    if not head or head[0] != "Date" or "USD" not in head:
        raise RatesUnreadable(
            "its header must be Date and currency codes including USD, or date,currency,usd"
        )
    try:
        for row in rows:
            if row:
                cells = [cell.strip() for cell in row[1:]]
                yield from _convert_from_euros(_parse_day(row[0].strip()), zip(head[1:], cells, strict=True))
    except (csv.Error, ValueError) as error:
        raise RatesUnreadable(f"line {lines.number}: {error}") from error


def _limit_rows(rows: Iterable[list[str]], lines: BoundedLines) -> Iterator[list[str]]:
    """Yield rows of limited length. Raises RatesUnreadable for a longer row."""
    try:
        for row in rows:
            lines.start_counting_next_row()
            yield row
    except Invalid as error:
        raise RatesUnreadable(str(error)) from error


def _convert_from_euros(day: int, quoted: Iterable[tuple[str, str]]) -> Iterator[Quotation]:
    """Convert units per euro into dollars per unit. If the day has no rate of the dollar, yield nothing."""
    per_euro = {name: _parse_rate(text) for name, text in quoted if name and text not in _NO_QUOTATION}
    dollars = per_euro.get("USD")
    if dollars is None:
        return
    yield Quotation(day, _EURO, dollars, ECB)
    for name, rate in per_euro.items():
        if name != "USD" and read_currency_code(name) is not None:
            yield Quotation(day, name, dollars / rate, ECB)


def _parse_custom_rate_rows(rows: Iterable[list[str]]) -> Iterator[Quotation]:
    for line, row in enumerate(rows, 2):
        if not row:
            continue
        try:
            day, currency, usd = (cell.strip() for cell in row)
            code = read_currency_code(currency)
            if code is None or code == "USD":
                raise ValueError(f"{currency[:10]} is not the code of a currency other than USD")
            yield Quotation(_parse_day(day), code, _parse_rate(usd), OWN)
        except ValueError as error:
            raise RatesUnreadable(f"line {line}: {error}") from error


def _parse_day(text: str) -> int:
    day = date.fromisoformat(text)
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


def _parse_rate(text: str) -> Fraction:
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


class DayValue(NamedTuple):
    """Dollars per unit of a currency, with the source and the day of the rate."""

    usd: Fraction
    source: str  # origin of the rate: "configured", "own" or "ecb"
    quoted: int


FrozenRates = Mapping[int, Mapping[str, DayValue]]  # day -> currency -> rate of the day
_ONE = DayValue(Fraction(1), CONFIGURED, 0)


@dataclass(slots=True)
class RateTable:
    """
    All known rates. `own` are configured rates by the day from which they apply. `quotations` are rates of
    single days. Both are sorted.
    """

    own: Mapping[str, Sequence[tuple[int, Fraction]]] = field(default_factory=dict)
    quotations: Mapping[str, Sequence[Quotation]] = field(default_factory=dict)

    def value(self, currency: str, day: int) -> DayValue | None:
        """Return the value of a currency on a day (epoch seconds), or None if unknown."""
        if currency == CURRENCY:
            return _ONE
        rates = self.own.get(currency, ())
        at = bisect_right(rates, day, key=lambda pair: pair[0])
        if at:
            since, usd = rates[at - 1]
            return DayValue(usd, CONFIGURED, since)
        quoted = self.quotations.get(currency, ())
        at = bisect_right(quoted, day, key=lambda item: item.day)
        if at:
            last = quoted[at - 1]
            if day - last.day <= LOOK_BACK_DAYS * DAY_S:
                return DayValue(last.usd, last.source, last.day)
        return None

    def currencies(self) -> set[str]:
        return {*self.own, *self.quotations}


def build_rate_table(section: CurrencySettings, quotations: Iterable[Quotation]) -> RateTable:
    """
    Build the rates of a configuration and its file. A quotation from your own file replaces a quotation
    from the bank.
    """
    own_rates: dict[str, list[tuple[int, Fraction]]] = defaultdict(list)
    for rate_setting in section.rate:
        own_rates[rate_setting.currency].append(
            (_day_start(rate_setting.since), Fraction(rate_setting.usd or 0))
        )
    quoted: dict[str, dict[int, Quotation]] = defaultdict(dict)
    for quotation in sorted(quotations, key=lambda item: (item.source == OWN, item.day)):
        quoted[quotation.currency][quotation.day] = quotation
    return RateTable(
        own={currency: sorted(rates) for currency, rates in own_rates.items()},
        quotations={currency: [days[day] for day in sorted(days)] for currency, days in quoted.items()},
    )


def _day_start(day: str) -> int:
    """Return the start of a day in epoch seconds. For "", return a time before all days."""
    return (
        int(datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC).timestamp())
        if day
        else -(2**62)
    )


def parse_frozen_rates(months: Mapping[str, Mapping[str, Any]]) -> FrozenRates:
    return {
        _parse_day_start(day): {currency: _day_value(*fields) for currency, fields in currencies.items()}
        for month in months.values()
        for day, currencies in month["days"].items()
    }


def _day_value(usd: str, source: str, quoted_day: str) -> DayValue:
    return DayValue(Fraction(usd), source, _parse_day_start(quoted_day) if quoted_day else 0)


def _parse_day_start(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def scaled_exchange_rate(from_value: DayValue, to_value: DayValue) -> int:
    """Return the value of one unit of `from_value` in units of `to_value`, times SCALE, rounded half to even."""
    return round(from_value.usd / to_value.usd * SCALE)


class ExchangeRates:
    """
    The rates of a configuration. Implements `spool.currencies.Rates`.

    The file is read on first use and after each change. If it becomes unreadable, the rates from the last
    successful read stay valid.
    """

    def __init__(
        self, section: CurrencySettings, months: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
    ) -> None:
        """
        Initialize. `months` returns the documents of frozen rates by month. After each change it returns
        a new mapping.
        """
        self._section = section
        self._months = months
        self._frozen: tuple[Mapping[str, Mapping[str, Any]], FrozenRates] = ({}, {})
        self._table = build_rate_table(section, ())
        self._seen: tuple[int, int] | None = None
        self._lock = threading.Lock()  # lock, because database threads also call this object
        self.problem: str | None = None

    def __call__(self, from_currency: str, to_currency: str, day: int) -> int | None:
        source_value = self.value(from_currency, day)
        target_value = self.value(to_currency, day)
        return (
            None
            if source_value is None or target_value is None
            else scaled_exchange_rate(source_value, target_value)
        )

    def value(self, currency: str, day: int) -> DayValue | None:
        """Return the value of a currency on a day. A closed month uses its frozen rates."""
        frozen = self._frozen_days().get(day)
        if frozen is not None and currency != CURRENCY:
            return frozen.get(currency)
        return self.current_table().value(currency, day)

    def _frozen_days(self) -> FrozenRates:
        months = self._months()
        if months is not self._frozen[0]:
            self._frozen = (months, parse_frozen_rates(months) if months else {})
        return self._frozen[1]

    def current_table(self) -> RateTable:
        """Return the rates of the configuration and the current file."""
        path = self._section.rates_file
        if path is not None:
            with self._lock:
                self._reload_if_changed(path)
        return self._table

    def _reload_if_changed(self, path: Path) -> None:
        try:
            stat = path.stat()
            seen = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            seen = (0, 0)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._table = build_rate_table(self._section, read_rates_file(path, self._section.max_file_bytes))
            self.problem = None
        except RatesUnreadable as error:
            self.problem = str(error)
            _log.warning(
                "the exchange rates could not be read; the previous ones stay valid: %s",
                error,
                extra={"action": "rates_unreadable"},
            )


def collect_rates_by_day(table: RateTable, days: Iterable[int]) -> Days:
    """Return the rates of these days (epoch seconds) by date and currency, as text."""
    rates_by_day: Days = {}
    for day in days:
        known = {currency: table.value(currency, day) for currency in sorted(table.currencies())}
        rates_by_day[_format_day(day)] = {
            currency: [str(value.usd), value.source, _format_day(value.quoted)]
            for currency, value in known.items()
            if value is not None
        }
    return rates_by_day


def rates_digest(days: Days) -> str:
    """Return a digest that is equal on every gateway if the rates are equal."""
    return sha256(json.dumps(days, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _format_day(day: int) -> str:
    return datetime.fromtimestamp(day, UTC).strftime("%Y-%m-%d") if day > 0 else ""

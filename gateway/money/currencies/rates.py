"""
The rate of a day: one's own in force, else a quotation of that day, else the last one of at most a week before.

Banks quote on working days. What a closed month froze is its rate for ever, whatever files say afterwards.
"""

from __future__ import annotations

import logging
import threading
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NamedTuple

from gateway.money.currencies.rate_files import OWN, Quotation, RatesUnreadable, read
from gateway.service.configuration.sections import CurrencySettings
from spool.currencies import SCALE
from spool.ledger.sums import DAY_S
from spool.record import CURRENCY

LOOK_BACK_DAYS: Final = 7
CONFIGURED: Final = "configured"

_log = logging.getLogger(__name__)


class DayValue(NamedTuple):
    """Dollars for one unit of a currency, where they come from, and the day that they are of."""

    usd: Fraction
    source: str  # configured, own, ecb
    quoted: int


Frozen = Mapping[int, Mapping[str, DayValue]]  # by day, then by currency
_ONE = DayValue(Fraction(1), CONFIGURED, 0)


@dataclass(slots=True)
class RateTable:
    """What is known of currencies. `own` are rates since a day, `quotations` those of days; both sorted by day."""

    own: Mapping[str, Sequence[tuple[int, Fraction]]] = field(default_factory=dict)
    quotations: Mapping[str, Sequence[Quotation]] = field(default_factory=dict)

    def value(self, currency: str, day: int) -> DayValue | None:
        """Return the value of a currency on a day (epoch seconds); None if it is not known."""
        if currency == CURRENCY:
            return _ONE
        rates = self.own.get(currency, ())
        at = bisect_right(rates, day, key=lambda each: each[0])
        if at:
            since, usd = rates[at - 1]
            return DayValue(usd, CONFIGURED, since)
        quoted = self.quotations.get(currency, ())
        at = bisect_right(quoted, day, key=lambda each: each.day)
        if at:
            last = quoted[at - 1]
            if day - last.day <= LOOK_BACK_DAYS * DAY_S:
                return DayValue(last.usd, last.source, last.day)
        return None

    def currencies(self) -> set[str]:
        """Return all that it knows something of, without dollars."""
        return {*self.own, *self.quotations}


def table_of(section: CurrencySettings, quotations: Iterable[Quotation]) -> RateTable:
    """Make the table of a configuration and its file; of two quotations of a day one's own counts."""
    own: dict[str, list[tuple[int, Fraction]]] = defaultdict(list)
    for each in section.rate:
        own[each.currency].append((_since(each.since), Fraction(each.usd or 0)))
    quoted: dict[str, dict[int, Quotation]] = defaultdict(dict)
    for quotation in sorted(quotations, key=lambda each: (each.source == OWN, each.day)):
        quoted[quotation.currency][quotation.day] = quotation
    return RateTable(
        own={currency: sorted(rates) for currency, rates in own.items()},
        quotations={currency: [days[day] for day in sorted(days)] for currency, days in quoted.items()},
    )


def _since(day: str) -> int:
    """The begin of a day; of none, all time."""
    return (
        int(datetime.combine(date.fromisoformat(day), datetime.min.time(), UTC).timestamp())
        if day
        else -(2**62)
    )


def restored(months: Mapping[str, Mapping[str, Any]]) -> Frozen:
    """Read the rates of documents, by month."""
    return {
        _begin(day): {currency: _day_value(*kept) for currency, kept in currencies.items()}
        for month in months.values()
        for day, currencies in month["days"].items()
    }


def _day_value(usd: str, source: str, quoted: str) -> DayValue:
    return DayValue(Fraction(usd), source, _begin(quoted) if quoted else 0)


def _begin(day: str) -> int:
    return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp())


def rate_of(given: DayValue, asked: DayValue) -> int:
    """Return what one unit of the first is in the second, times SCALE, half-even."""
    return round(given.usd / asked.usd * SCALE)


class ExchangeRates:
    """
    The rates of a configuration (a `spool.currencies.Rates`). Its file is read when it is first asked for
    and whenever it changed; one that cannot be read any more leaves in force what was read before.
    """

    def __init__(
        self, section: CurrencySettings, months: Callable[[], Mapping[str, Mapping[str, Any]]] = dict
    ) -> None:
        """`months` are the documents of frozen rates, by month: another mapping after each change."""
        self._section = section
        self._months = months
        self._frozen: tuple[Mapping[str, Mapping[str, Any]], Frozen] = ({}, {})
        self._table = table_of(section, ())
        self._seen: tuple[int, int] | None = None
        self._lock = threading.Lock()  # it is asked in the threads of databases
        self.problem: str | None = None

    def __call__(self, given: str, asked: str, day: int) -> int | None:
        one = self.value(given, day)
        other = self.value(asked, day)
        return None if one is None or other is None else rate_of(one, other)

    def value(self, currency: str, day: int) -> DayValue | None:
        """Return the value of a currency on a day: of a closed month as it was frozen."""
        frozen = self._frozen_days().get(day)
        if frozen is not None and currency != CURRENCY:
            return frozen.get(currency)
        return self.table().value(currency, day)

    def _frozen_days(self) -> Frozen:
        months = self._months()
        if months is not self._frozen[0]:
            self._frozen = (months, restored(months) if months else {})
        return self._frozen[1]

    def table(self) -> RateTable:
        """Return what the configuration and the file as it is now say."""
        path = self._section.rates_file
        if path is not None:
            with self._lock:
                self._look(path)
        return self._table

    def _look(self, path: Path) -> None:
        try:
            stat = path.stat()
            seen = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            seen = (0, 0)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            self._table = table_of(self._section, read(path, self._section.max_file_bytes))
            self.problem = None
        except RatesUnreadable as error:
            self.problem = str(error)
            _log.warning("rates are not read: %s", error, extra={"action": "rates_unreadable"})

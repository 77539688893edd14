"""FOCUS rows of the bills of providers, by day. Only final bills are exported."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import groupby

from exporters.focus import rows
from gateway.money.focus.invoices import Invoices
from gateway.money.focus.reports import DAY, FocusReports, FocusSpan, Rows
from spool.errors import AskedTooMuch, NotKept

_INVOICED, _CLOSED = "invoiced", "closed"
_BESIDE = ("other",)  # values of the column `charge` for costs that are not for tokens
_RESTATED = "restated"

_Providers = Mapping[str, set[str]]  # providers by day


@dataclass(frozen=True, slots=True, kw_only=True)
class FocusRowsOfBills:
    """
    Bills of providers as FOCUS rows. `billed` maps each day to the providers with a bill, and `final` to
    those with a final bill.
    """

    reports: FocusReports
    span: FocusSpan
    billed: _Providers
    final: _Providers
    invoices: Invoices

    @classmethod
    async def prepare(cls, reports: FocusReports, span: FocusSpan) -> FocusRowsOfBills:
        daily = partial(reports.read_report_rows, span.since, span.until, ("provider", "charge"), per="daily")
        return cls(
            reports=reports,
            span=span,
            billed=_providers_by_day(await daily(cost_type=rows.BILLED)),
            final=_providers_by_day(await daily(cost_type=rows.INVOICED)),
            invoices=Invoices.visible_to(reports.reader),
        )

    @property
    def warnings(self) -> Sequence[str]:
        """
        Describe the days and providers that are left out. Consecutive days with the same providers share a
        sentence.
        """
        waiting: dict[str, str] = {}
        for day, providers in sorted(self.billed.items()):
            left_out = sorted(name for name in providers if not self._invoice_state(day, name))
            if left_out:
                waiting[day] = ", ".join(left_out)
        return [
            _left_out_warning(list(days), names) for names, days in groupby(waiting, key=waiting.__getitem__)
        ]

    async def csv_pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the header, and the rows of one day at a time."""
        yield rows.csv_header(self.span.version)
        for day in self.span.days:
            of_day = await self._read_day(day)
            yield await asyncio.to_thread(self._format_day, of_day)

    def _format_day(self, of_day: rows.ExportedDay) -> bytes:
        return rows.encode_csv_rows(
            rows.day_rows(of_day, account=self.span.account), version=self.span.version
        )

    async def _read_day(self, start: datetime) -> rows.ExportedDay:
        by = tuple(dict.fromkeys((*rows.BY, *self.span.tags)))
        day = start.date().isoformat()
        report = partial(self.reports.read_report_rows, start, start + DAY)
        billed = await report((*by, *rows.OWN), cost_type=rows.BILLED)
        effective = await report((*by, *rows.OWN), cost_type=rows.EFFECTIVE)
        has_more = any(row["charge"] in _BESIDE for row in billed)

        return rows.ExportedDay(
            start=start,
            by=by,
            billed=billed,
            effective=effective,
            counted=await report(by) if billed or effective else [],
            invoice_of=partial(self.invoices.only_invoice_number, month=day[:7]),
            state_of=partial(self._invoice_state, day),
            metered=await self._hourly_price_lines(start, by) if has_more else [],
        )

    def _invoice_state(self, day: str, provider: str) -> str:
        if (provider, day[:7]) in self.invoices.closed:
            return _INVOICED
        return _CLOSED if provider in self.final.get(day, ()) else ""

    async def _hourly_price_lines(self, start: datetime, dimensions: Sequence[str]) -> Rows:
        try:
            return await self.reports.read_report_rows(
                start, start + DAY, dimensions, per="hourly", has_lines=True
            )
        except (NotKept, AskedTooMuch):
            return []


def _providers_by_day(billed: Rows) -> _Providers:
    providers: dict[str, set[str]] = defaultdict(set)
    for row in billed:
        if row["charge"] != _RESTATED:
            providers[str(row["period"])[:10]].add(str(row["provider"] or ""))
    return providers


def _left_out_warning(days: Sequence[str], names: str) -> str:
    if len(days) == 1:
        return f"{days[0]} is not final and was left out for: {names}"
    return f"{len(days)} days from {days[0]} to {days[-1]} are not final and were left out for: {names}"

"""
Sends scheduled reports: each moment of a schedule once, over restarts and several gateways.

The notices of a moment are stored in one transaction with the note that it is done; from there channels send
them. A moment that passed while nothing ran is made up for once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from gateway.http.holders.money import MoneyServices
from gateway.money.calls.reports import words
from gateway.money.calls.reports.declared import ScheduledReport, ScheduledReportTable
from gateway.money.calls.reports.figures import figures_of
from gateway.money.calls.reports.readers import IsDefault, NotReadable, rights_of
from gateway.money.costs.reader import CostReader
from gateway.service.mounts import page_link
from spool.clock import Clock
from spool.errors import NotKept
from spool.ledger.queries import BILLED_TYPES
from spool.registry.notices import INFO, REPORT, Notice
from spool.registry.roles import Rights
from spool.registry.views import View

LOOK_S = 15.0

_log = logging.getLogger(__name__)

Told = Sequence[tuple[Notice, str]]  # each with the channel that takes it


@dataclass(frozen=True, kw_only=True)
class ReportSender:
    """`console` is the address of the console as people elsewhere reach it."""

    services: MoneyServices
    clock: Clock
    console: Callable[[], str]
    is_default: IsDefault

    async def run(self) -> None:
        """Send what is due for ever. A failure is logged and tried again."""
        while True:
            try:
                await self.send_due()
            except Exception:  # noqa: BLE001 - the supervised loop
                _log.exception("scheduled reports wait", extra={"action": "scheduled_reports_put_off"})
            await asyncio.sleep(LOOK_S)

    async def send_due(self) -> int:
        """Store the reports that are due, and return how many."""
        now = self.clock.now()
        sent = 0
        for report in self._table.all():
            due = report.due(now)
            if due > report.done:
                await self.services.ledger.catch_up(self.services.log)
                if not await self.services.ledger.is_complete():
                    return sent  # sums that are being counted anew would look like money that was never spent
                told, problem = await self.written(report, due, id=f"{report.id}-{int(due)}")
                sent += await self._table.keep_sent(report, due, told, problem)
        return sent

    async def written(self, report: ScheduledReport, due: float, *, id: str) -> tuple[Told, str]:
        """The notices of a report with their channels, and why some people get none."""
        table = self.services.require_registry().notices
        mails = [name for name in report.channels if report.people and name in table.mail_channels]
        others = [name for name in report.channels if name not in mails]
        told: list[tuple[Notice, str]] = []
        problems = []
        for person in (*([report.owner] if others else []), *(report.people if mails else ())):
            is_mail = person in report.people and bool(mails)
            try:
                rights = await rights_of(self.services.require_registry(), person, self.is_default)
                notice = await self.notice(report, rights, due, id=id)
            except NotReadable as error:
                problems.append(f"not sent: {error}")
                continue
            if others and person == report.owner:
                told += [(notice, name) for name in others]
            if is_mail:
                mail = replace(notice, id=f"{notice.id}-{report.people.index(person)}", to=person)
                told += [(mail, name) for name in mails]
        gone = [name for name in report.channels if name not in table.channels]
        problems += [f"there is no channel {name} any more" for name in gone]
        told = [(notice, name) for notice, name in told if name not in gone]
        return list({(notice.id, name): (notice, name) for notice, name in told}.values()), "; ".join(
            problems
        )

    async def notice(self, report: ScheduledReport, rights: Rights, due: float, *, id: str) -> Notice:
        """The report as somebody with these rights may see it. NotReadable if its view cannot be asked."""
        registry = self.services.require_registry()
        view = registry.views.find(report.view_id)
        if view is None:
            raise NotReadable("its view is not there any more: choose another one")
        reason = view.broken(self.services.ledger.dimensions())
        if reason:
            raise NotReadable(f"its view {view.name} is broken: {reason}")
        reader = CostReader(
            whole=self.services.ledger, require_registry=self.services.require_registry, rights=rights
        )
        try:
            figures = await figures_of(self.services, report, view, reader, due)
        except NotKept as error:
            raise NotReadable(str(error)) from error
        return Notice(
            id=f"report-{id}",
            kind=REPORT,
            title=words.title(figures),
            at=self.clock.now(),
            text=words.text(figures),
            fields=words.fields(figures),
            severity=INFO,
            link=page_link(self.console(), "/costs", _shown(report, view, due)),
            thread=f"report {report.id}",
        )

    @property
    def _table(self) -> ScheduledReportTable:
        return self.services.require_registry().table(ScheduledReportTable)


def _shown(report: ScheduledReport, view: View, due: float) -> Mapping[str, Sequence[str]]:
    since, until = report.span(due)
    last = until - timedelta(days=1)
    shown = {"view": [report.view_id], "from": [f"{since:%Y-%m-%d}"], "to": [f"{last:%Y-%m-%d}"]}
    return {**shown, "cost_type": [view.cost_type]} if view.cost_type in BILLED_TYPES else shown

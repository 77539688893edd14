"""The scheduled reports of a registry, each change with its audit row, and what was sent of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from spool.errors import NotAllowed
from spool.registry import scheduled_reports as reports
from spool.registry.notices import Notice
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.scheduled_reports import SCHEDULED_REPORTS, ScheduledReport, ScheduledReportDraft
from spool.registry.shared import makers
from spool.registry.shared.document_table import ManagedTable, NamedTable, Sees, check_name
from spool.registry.tables.notices import add_notices
from spool.registry.views import NO_VIEW, VIEWS


class ScheduledReportTable(ManagedTable[ScheduledReport], NamedTable[ScheduledReport]):
    """Create, change and delete them. One that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    kind, draft = SCHEDULED_REPORTS, ScheduledReportDraft
    limit, action = makers.SCHEDULED_REPORTS, "scheduled_report"

    def checked(self, draft: ScheduledReportDraft) -> ScheduledReportDraft:
        return reports.check_scheduled_report(draft)

    def made(self, actor: Actor, now: float) -> Mapping[str, Any]:
        """The first is sent at the next moment of its schedule."""
        return {"done": now}

    def changed(
        self, before: ScheduledReport, after: ScheduledReport, actor: Actor, now: float
    ) -> ScheduledReport:
        """A schedule that was changed begins at its next moment."""
        return replace(after, done=now, problem="")

    def check_place(
        self,
        rows: RegistryRows,
        stored: Mapping[str, ScheduledReport],
        row: ScheduledReport,
        sees: Sees[ScheduledReport],
    ) -> None:
        check_name(stored.values(), row, noun="scheduled report", sees=sees)
        if VIEWS.find(rows, row.view_id) is None:
            raise NotAllowed(NO_VIEW)

    async def keep_sent(
        self, report: ScheduledReport, due: float, told: Sequence[tuple[Notice, str]], problem: str
    ) -> bool:
        """
        Store the notices of a moment, each with its channel, and that it is done, in one transaction.

        False, and nothing is stored, if that was done before or the report is another one by now.
        """

        def work(rows: RegistryRows) -> ScheduledReport | None:
            kept = SCHEDULED_REPORTS.find(rows, report.id)
            if kept is None or kept.version != report.version or kept.done >= due:
                return None
            for notice, channel in told:
                add_notices(rows, [notice], [channel])
            after = replace(kept, done=due, problem=problem)
            SCHEDULED_REPORTS.put(rows, after)
            return after

        after = await self._changes.change(work)
        if after is not None:
            self._remember(after)
        return after is not None

    async def send(
        self, report: ScheduledReport, told: Sequence[tuple[Notice, str]], *, actor: Actor
    ) -> None:
        """Store the notices of a report that somebody wants now; its schedule stays as it is."""

        def work(rows: RegistryRows) -> None:
            for notice, channel in told:
                add_notices(rows, [notice], [channel])
            after = {"notices": [f"{channel}:{notice.id}" for notice, channel in told]}
            rows.add_audit(self._changes.now(), actor, "scheduled_report.send", report.id, after=after)

        await self._changes.change(work)

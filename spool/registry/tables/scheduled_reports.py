"""The scheduled reports of a registry, each change with its audit row, and what was sent of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from spool.errors import NotAllowed
from spool.registry import scheduled_reports as reports
from spool.registry.notices import Notice
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.scheduled_reports import SCHEDULED_REPORTS, ScheduledReport, ScheduledReportDraft
from spool.registry.shared import makers
from spool.registry.shared.document_table import NamedTable, Sees, check_name, everything, stated
from spool.registry.tables.notices import add_notices
from spool.registry.views import VIEWS

NO_VIEW = "view: there is no view with this id or name"


class ScheduledReportTable(NamedTable[ScheduledReport]):
    """Create, change and delete them. One that raises (Invalid, NotAllowed, NotThere) changes nothing."""

    kind, draft = SCHEDULED_REPORTS, ScheduledReportDraft
    limit, action = makers.SCHEDULED_REPORTS, "scheduled_report"

    async def create(
        self,
        draft: ScheduledReportDraft,
        *,
        owner: str,
        most: int,
        actor: Actor,
        sees: Sees[ScheduledReport] = everything,
    ) -> ScheduledReport:
        """NotAllowed when there are `most`. The first is sent at the next moment of its schedule."""
        now = self._changes.now()
        report = ScheduledReport(
            id=reports.new_scheduled_report_id(),
            owner=owner,
            created=now,
            last_updated=now,
            done=now,
            **stated(reports.check_scheduled_report(draft)),
        )
        return await self._add(report, check=partial(_check, sees=sees), most=most, actor=actor)

    async def change(
        self,
        id: str,
        changes: Mapping[str, Any],
        *,
        version: str | None = None,
        actor: Actor,
        sees: Sees[ScheduledReport] = everything,
    ) -> ScheduledReport:
        """A schedule that was changed begins at its next moment. NotAllowed if it is not of the `version` any more."""
        now = self._changes.now()

        def edit(before: ScheduledReport) -> ScheduledReport:
            drafted = reports.check_scheduled_report(self._redrafted(before, changes))
            after = replace(before, **stated(drafted))
            return after if after == before else replace(after, done=now, problem="")

        check = partial(_check, sees=sees)
        return await self._edit(id, edit, check=check, version=version, actor=actor)

    async def delete(self, id: str, *, actor: Actor) -> None:
        await self._remove(id, actor=actor)

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


def _check(
    rows: RegistryRows,
    kept: Mapping[str, ScheduledReport],
    report: ScheduledReport,
    *,
    sees: Sees[ScheduledReport],
) -> None:
    check_name(kept.values(), report, noun="scheduled report", sees=sees)
    if VIEWS.find(rows, report.view_id) is None:
        raise NotAllowed(NO_VIEW)

"""Scheduled reports as people manage them. People who see only some calls see and make their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET

from gateway.api.views import check_usable
from gateway.errors import Refusal
from gateway.http.lists import Filter, List, Sort
from gateway.http.managed import SHOW, Answer, Asker, ByPeople, ManagedResource
from gateway.http.visible import SLICED
from gateway.resources.declaration import answer, stated
from gateway.resources.scheduled_reports import (
    NewScheduledReport,
    OneScheduledReport,
    ScheduledReportChanges,
    ScheduledReportItem,
)
from spool.errors import Invalid
from spool.record import moment
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS
from spool.registry.registry import Registry
from spool.registry.scheduled_reports import EVERY, ScheduledReport
from spool.registry.shared.document_table import Sees
from spool.registry.tables.scheduled_reports import ScheduledReportTable


def _item(row: tuple[ScheduledReport, str | None, float]) -> Answer:
    report, view, now = row
    sent = report.done > report.created and report.done == report.due(report.done)
    return answer(
        ScheduledReportItem,
        report,
        view=report.view_id,
        view_name=view,
        next=moment(report.next_due(now)),
        last=moment(report.done) if sent else None,
        problem=report.problem or None,
    )


SCHEDULED_REPORTS: List[tuple[ScheduledReport, str | None, float]] = List(
    root="scheduled_reports",
    show=_item,
    identity=Sort(value=lambda row: row[0].id),
    sorts={
        "name": Sort(value=lambda row: row[0].name),
        "next": Sort(value=lambda row: row[0].next_due(row[2])),
    },
    default_sort=("name", "asc"),
    filters={
        "every": Filter(values=lambda row: (row[0].every,), valid_values=EVERY),
        "view": Filter(values=lambda row: (row[0].view_id,)),
    },
)


class ScheduledReportResource(ManagedResource[ScheduledReport]):
    noun = "scheduled_report"
    table = ScheduledReportTable
    lists = SCHEDULED_REPORTS
    new = NewScheduledReport
    changes = ScheduledReportChanges
    item = ScheduledReportItem
    one = OneScheduledReport
    people = ByPeople(
        path="/scheduled-reports",
        reads=VIEW_COSTS,
        changes=MODIFY_VIEWS_AND_BUDGETS,
        shows=SLICED,
        words={SHOW: "Show a scheduled report, by its id or its name"},
    )

    def rows_in(self, registry: Registry) -> ScheduledReportTable:
        return registry.scheduled_reports

    async def sees(self, asking: Asker[Any]) -> Sees[ScheduledReport]:
        is_whole, owner = (await asking.sees()).is_whole, _owner(asking)
        return lambda row: is_whole or (row.owner == owner and owner != "")

    async def shown(
        self, asking: Asker[Any], row: ScheduledReport
    ) -> tuple[ScheduledReport, str | None, float]:
        """The name of the view is None where the person who asks may not see it any more."""
        view = asking.registry.views.find(row.view_id)
        is_seen = view is not None and (await asking.sees()).view(view)
        return row, view.name if view is not None and is_seen else None, asking.shared.clock.now()

    async def fields(self, asking: Asker[Any], given: Any) -> dict[str, Any]:
        found = stated(given)
        if given.view is not UNSET:
            view = await asking.view_named(found.pop("view"))
            found["view_id"] = check_usable(asking.services.ledger.dimensions(), view).id
        return found

    async def check(
        self, asking: Asker[Any], fields: Mapping[str, Any], before: ScheduledReport | None
    ) -> None:
        """Invalid, or Refusal 403, for what this person cannot have sent."""
        channels, people = (
            fields.get(name, () if before is None else getattr(before, name))
            for name in ("channels", "people")
        )
        notices = asking.registry.notices
        notices.check_report_channels("channels", channels)
        if people and not notices.mail_channels.intersection(channels):
            raise Invalid("people are written to by a channel of type email: name one in channels")
        owner = _owner(asking)
        if not (await asking.sees()).is_whole and set(people) - {owner}:
            raise Refusal(
                403, "limited_data", "who may see some calls alone has reports sent to himself alone"
            )
        known = {each.email for each in await asking.registry.operators.all()}
        for person in people:
            if person.strip().casefold() not in known:
                raise Invalid(f"people: {person[:100]} has no account, so that nobody knows what it may see")

    def own(self, asking: Asker[Any], given: Any) -> Mapping[str, Any]:
        return {"owner": _owner(asking)}


def _owner(asking: Asker[Any]) -> str:
    """
    Return the person whose rights limit the report; "" for everything, at the server itself and for a console link.
    """
    return "" if asking.holder is None else asking.holder.person


SCHEDULED_REPORT = ScheduledReportResource()

"""Scheduled reports as people manage them. People who see only some calls see and make their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET

from gateway.api.managed import Answer, Asker, ManagedResource
from gateway.api.views import check_usable
from gateway.errors import Refusal
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.resources.declaration import answer, stated
from gateway.resources.scheduled_reports import (
    NewScheduledReport,
    OneScheduledReport,
    ScheduledReportChanges,
    ScheduledReportItem,
)
from spool.errors import Invalid, NotThere
from spool.record import moment
from spool.registry.scheduled_reports import EVERY, ScheduledReport, ScheduledReportDraft
from spool.registry.tables.scheduled_reports import NO_VIEW


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


async def report_of(asking: Asker, word: str) -> ScheduledReport:
    """Find a report by its id or its name. NotThere if there is none that the person sees."""
    return asking.registry.scheduled_reports.find_any(word, await _sees(asking))


async def _sees(asking: Asker) -> Callable[[ScheduledReport], bool]:
    is_whole, owner = (await asking.sees()).is_whole, _owner(asking)
    return lambda report: is_whole or (report.owner == owner and owner != "")


def _owner(asking: Asker) -> str:
    """
    Return the person whose rights limit the report; "" for everything, at the server itself and for a console link.
    """
    return "" if asking.holder is None else asking.holder.person


async def _rows(asking: Asker) -> MemoryRows[tuple[ScheduledReport, str | None, float]]:
    kept, sees = asking.registry.scheduled_reports.all(), await _sees(asking)
    return MemoryRows([await _row(asking, each) for each in kept if sees(each)])


async def _row(asking: Asker, report: ScheduledReport) -> tuple[ScheduledReport, str | None, float]:
    """The name of the view is None where the person who asks may not see it any more."""
    try:
        name = asking.registry.views.find_any(report.view_id, (await asking.sees()).view).name
    except NotThere:
        name = None
    return report, name, asking.shared.clock.now()


async def _create(asking: Asker, given: NewScheduledReport) -> Answer:
    draft = ScheduledReportDraft(**await _fields(asking, given))
    await _check(asking, draft.channels, draft.people)
    table = asking.registry.scheduled_reports
    most = asking.shared.most(table.limit)
    sees = await _sees(asking)
    made = await table.create(draft, owner=_owner(asking), most=most, actor=asking.actor, sees=sees)
    return await _one(asking, made)


async def _show(asking: Asker, word: str) -> Answer:
    return await _one(asking, await report_of(asking, word))


async def _change(asking: Asker, word: str, given: Any) -> Answer:
    before = await report_of(asking, word)
    fields = await _fields(asking, given)
    await _check(asking, fields.get("channels", before.channels), fields.get("people", before.people))
    table = asking.registry.scheduled_reports
    sees = await _sees(asking)
    changed = await table.change(before.id, fields, version=given.version, actor=asking.actor, sees=sees)
    return await _one(asking, changed)


async def _delete(asking: Asker, word: str) -> str:
    id = (await report_of(asking, word)).id
    await asking.registry.scheduled_reports.delete(id, actor=asking.actor)
    return id


async def _one(asking: Asker, report: ScheduledReport) -> Answer:
    return {"scheduled_report": _item(await _row(asking, report))}


async def _fields(asking: Asker, given: Any) -> dict[str, Any]:
    """Return the stated fields by the names of a draft."""
    found = stated(given)
    if given.view is not UNSET:
        try:
            view = asking.registry.views.find_any(found.pop("view"), (await asking.sees()).view)
        except NotThere:
            raise Invalid(NO_VIEW) from None
        found["view_id"] = check_usable(asking.services.ledger.dimensions(), view).id
    return found


async def _check(asking: Asker, channels: Sequence[str], people: Sequence[str]) -> None:
    """Invalid, or Refusal 403, for what this person cannot have sent."""
    notices = asking.registry.notices
    notices.check_report_channels("channels", channels)
    if people and not notices.mail_channels.intersection(channels):
        raise Invalid("people are written to by a channel of type email: name one in channels")
    owner = _owner(asking)
    if not (await asking.sees()).is_whole and set(people) - {owner}:
        raise Refusal(403, "limited_data", "who may see some calls alone has reports sent to himself alone")
    known = {each.email for each in await asking.registry.operators.all()}
    for person in people:
        if person.strip().casefold() not in known:
            raise Invalid(f"people: {person[:100]} has no account, so that nobody knows what it may see")


SCHEDULED_REPORT = ManagedResource(
    noun="scheduled_report",
    root="scheduled_report",
    lists=SCHEDULED_REPORTS,
    new=NewScheduledReport,
    changes=ScheduledReportChanges,
    item=ScheduledReportItem,
    one=OneScheduledReport,
    rows=_rows,
    create=_create,
    show=_show,
    change=_change,
    delete=_delete,
)

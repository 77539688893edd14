"""
Scheduled reports: the costs of a view by mail or chat, each week or month at a time of day.

A report contains only the calls that its owner may see at the time when it is sent. The owner "" may see
everything. People with limited data access see and create only their own reports.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeAlias
from zoneinfo import ZoneInfo

import msgspec
from msgspec import UNSET

from gateway.core.errors import Refusal
from gateway.core.fields import (
    build_answer,
    changes_struct,
    given_fields,
    item_struct,
    one_item_answer_struct,
)
from gateway.core.visibility import SLICED, check_view_usable
from gateway.http.lists import Filter, ListDefinition, Sort
from gateway.money.costs.measures import COMPARED_KINDS, REAL_COST
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.managed import (
    CREATE,
    LIST,
    SHOW,
    ByCommands,
    ByPeople,
    HasLedger,
    JsonAnswer,
    ManagedResource,
    OperationCaller,
)
from spool.errors import Invalid, NotAllowed
from spool.record import utc_iso
from spool.registry.document_table import ManagedTable, NamedTable, Sees, check_name_free
from spool.registry.documents import DocumentCollection, replace_fields, row_version
from spool.registry.field_notes import Option, example, example_id, words
from spool.registry.notices import PARKED, REMOVED, ChannelState, Notice, add_notices
from spool.registry.operators import Actor, check_email
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, VIEW_COSTS
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_one_of, check_text, check_time_zone
from spool.registry.views import NO_VIEW, STORED_VIEW, VIEWS, SavedView

WEEK, MONTH = "week", "month"
EVERY = (WEEK, MONTH)
MAX_NAME = 200
MAX_CHANNELS = 50
MAX_PEOPLE = 50
_TIME = re.compile(r"([01]\d|2[0-3]):[0-5]\d")

if TYPE_CHECKING:
    Every: TypeAlias = str
else:
    Every = Literal[EVERY]


class NewScheduledReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """
    The fields of a scheduled report to create. With `people`, each mail has only the calls that its recipient
    may see.
    """

    name: Annotated[
        str, words(f"Unique, ignoring case. 1 to {MAX_NAME} printable characters."), example("search-weekly")
    ]
    view: Annotated[
        str, words("The view whose costs are sent, by id or name."), example(example_id("view")), STORED_VIEW
    ]
    channels: Annotated[
        tuple[str, ...],
        words(f"The channels to send it to, 1 to {MAX_CHANNELS}."),
        example(["finops"]),
        Option("--channel", "NAME", help="Channel to send it to."),
    ]
    every: Annotated[
        Every, words("The schedule: weekly for the seven days before, or monthly for the month before.")
    ] = "week"
    day: Annotated[
        int, words("The day: 1 (Monday) to 7 if weekly, 1 to 28 if monthly."), Option(metavar="NUMBER")
    ] = 1
    at: Annotated[
        str,
        words('The time of day, such as "08:00".'),
        example("08:00", changed="09:00"),
        Option(metavar="HH:MM"),
    ] = "08:00"
    time_zone: Annotated[
        str,
        words("The time zone of `at` and of the days in the report."),
        example("Europe/Berlin"),
        Option("--tz", "ZONE"),
    ] = "UTC"
    people: Annotated[
        tuple[str, ...],
        words(
            f"At most {MAX_PEOPLE} accounts that receive it by mail, each limited to the calls they may see."
        ),
        Option(
            "--person", "EMAIL", help="An account that receives it by mail, limited to the calls it may see."
        ),
    ] = ()


class ScheduledReport(NewScheduledReport, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """
    A stored report. Times are epoch seconds. `done` is the newest scheduled time for which the report was
    sent or skipped.
    """

    every: str = WEEK  # schedule of the report, which may be one of a newer release
    id: str
    owner: str
    created: float
    last_updated: float
    done: float
    problem: str = ""
    noted: ClassVar = ("done", "problem")

    @property
    def version(self) -> str:
        return row_version(self)

    @property
    def view_id(self) -> str:
        return self.view

    @property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.time_zone)

    def last_due_at(self, now: float) -> float:
        local = datetime.fromtimestamp(now, self.zone)
        day = self._schedule_day(local.date())
        moment = self._report_time(day)
        return moment if moment <= now else self._report_time(self._schedule_day(day - timedelta(days=1)))

    def latest_scheduled_at(self, now: float) -> float:
        """
        Return the scheduled time on the newest day of the schedule. If that day is today, the time may still
        be in the future.
        """
        return self._report_time(self._schedule_day(datetime.fromtimestamp(now, self.zone).date()))

    def next_due_at(self, now: float) -> float:
        day = datetime.fromtimestamp(self.last_due_at(now), self.zone).date()
        later = day + timedelta(days=7 if self.every == WEEK else monthrange(day.year, day.month)[1])
        return self._report_time(later)

    def time_range(self, due_at: float) -> tuple[datetime, datetime]:
        """
        Return the time range of the report: the seven days, or the calendar month, before the day of `due_at`.
        """
        midnight = datetime.fromtimestamp(due_at, self.zone).replace(
            hour=0, minute=0, second=0, microsecond=0
        )
        if self.every == WEEK:
            return midnight - timedelta(days=7), midnight
        until = midnight.replace(day=1)
        return (until - timedelta(days=1)).replace(day=1), until

    def _schedule_day(self, latest: date) -> date:
        if self.every == WEEK:
            return latest - timedelta(days=(latest.isoweekday() - self.day) % 7)
        this = latest.replace(day=self.day)
        return this if this <= latest else (latest.replace(day=1) - timedelta(days=1)).replace(day=self.day)

    def _report_time(self, day: date) -> float:
        return datetime.combine(day, time.fromisoformat(self.at), self.zone).timestamp()


KIND = DocumentCollection("scheduled_report", ScheduledReport, "scheduled report")


def check_scheduled_report(draft: NewScheduledReport) -> NewScheduledReport:
    """Return the draft in its stored form. Raises Invalid. Does not check whether the channels exist."""
    check_one_of("every", draft.every, EVERY)
    last = 7 if draft.every == WEEK else 28
    if not 1 <= draft.day <= last:
        raise Invalid(
            f"day must be 1 to {last} for every {draft.every}{' (1 is Monday)' * (draft.every == WEEK)}"
        )
    if not _TIME.fullmatch(draft.at):
        raise Invalid('at must be a time of day such as "08:00"')
    check_time_zone("time_zone", draft.time_zone)
    if not 1 <= len(draft.channels) <= MAX_CHANNELS:
        raise Invalid(f"channels needs 1 to {MAX_CHANNELS} channels")
    if len(draft.people) > MAX_PEOPLE:
        raise Invalid(f"people accepts at most {MAX_PEOPLE} e-mail addresses")
    return replace_fields(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        channels=tuple(dict.fromkeys(check_text("channels", name, MAX_NAME) for name in draft.channels)),
        people=tuple(dict.fromkeys(map(check_email, draft.people))),
    )


def cost_type_problem(view: SavedView) -> str:
    if view.cost_type in COMPARED_KINDS:
        return ""
    return f"reports compare {REAL_COST} or billed costs, not {view.cost_type}; use a view with another cost_type"


# states of a scheduled report: it reaches everybody, no channel sends it, or the last one did not reach everybody
SENT, NO_CHANNEL, INCOMPLETE = "ok", "without_channel", "incomplete"
REPORT_STATES = (SENT, NO_CHANNEL, INCOMPLETE)


def existing_channels(report: ScheduledReport, channels: Iterable[ChannelState]) -> list[ChannelState]:
    return [channel for channel in channels if channel.name in report.channels and channel.state != REMOVED]


def report_state(report: ScheduledReport, channels: Iterable[ChannelState]) -> str:
    if all(channel.state == PARKED for channel in existing_channels(report, channels)):
        return NO_CHANNEL
    return INCOMPLETE if report.problem else SENT


ScheduledReportChanges = changes_struct(NewScheduledReport)
ScheduledReportItem = item_struct(
    NewScheduledReport,
    "A scheduled report in a response. Times are RFC 3339.",
    answer_only_fields={
        "view_name": Annotated[
            str | None, words("The name of the view; null if it was deleted or is hidden."), example("Search")
        ],
        "owner": Annotated[
            str,
            words("The person whose visible calls the report contains on channels. Empty means all calls."),
            example(""),
        ],
        "next": Annotated[str, words("Time of the next scheduled run."), example("2026-11-30T07:00:00.000Z")],
        "last": Annotated[
            str | None, words("Time of the last scheduled run since the last edit, or null."), example(None)
        ],
        "problem": Annotated[
            str | None,
            words("Recipients that the last report did not reach, and why. Null if it reached all of them."),
            example(None),
        ],
        "version": Annotated[
            str,
            words("The version of the report. Each edit changes it; send it back with your next edit."),
            example("5530b550bdf69e3faf931437", changed="da1fe08fae983cbe12980edb"),
        ],
    },
)
OneScheduledReport = one_item_answer_struct(NewScheduledReport, ScheduledReportItem)


class ScheduledReportTable(ManagedTable[ScheduledReport], NamedTable[ScheduledReport]):
    """The table of scheduled reports. A method that raises changes nothing."""

    kind, draft = KIND, NewScheduledReport
    limit, action = "scheduled_reports.max", "scheduled_report"

    def check_draft(self, draft: NewScheduledReport) -> NewScheduledReport:
        return check_scheduled_report(draft)

    def creation_fields(self, actor: Actor, now: float) -> Mapping[str, Any]:
        """Return the fields with which a new report waits for its next scheduled time."""
        return {"done": now}

    def with_reset_progress(
        self, before: ScheduledReport, after: ScheduledReport, actor: Actor, now: float
    ) -> ScheduledReport:
        """Return the changed report, which waits for the next time of its new schedule."""
        return replace_fields(after, done=now, problem="")

    def check_conflicts(
        self,
        registry_rows: RegistryRows,
        stored: Mapping[str, ScheduledReport],
        row: ScheduledReport,
        can_see_row: Sees[ScheduledReport],
    ) -> None:
        check_name_free(stored.values(), row, noun="scheduled report", can_see_row=can_see_row)
        if VIEWS.find(registry_rows, row.view_id) is None:
            raise NotAllowed(NO_VIEW)

    async def store_notices_once(
        self, report: ScheduledReport, due_at: float, addressed: Sequence[tuple[Notice, str]], problem: str
    ) -> bool:
        """
        Store the notices of a scheduled time and the mark that it is done, in one transaction.

        Return False and store nothing if the scheduled time was already done, or if the report was changed or
        deleted in the meantime.
        """

        def store_report_if_unsent(registry_rows: RegistryRows) -> ScheduledReport | None:
            stored_report = KIND.find(registry_rows, report.id)
            if (
                stored_report is None
                or stored_report.version != report.version
                or stored_report.done >= due_at
            ):
                return None
            for notice, channel in addressed:
                add_notices(registry_rows, [notice], [channel])
            after = replace_fields(stored_report, done=due_at, problem=problem)
            KIND.store_row(registry_rows, after)
            return after

        after = await self._changes.change_rows(store_report_if_unsent)
        if after is not None:
            self._remember_row(after)
        return after is not None

    async def store_problem(self, id: str, problem: str) -> None:
        """Store why a report could not be sent. It is still due."""

        def store_if_it_exists(registry_rows: RegistryRows) -> ScheduledReport | None:
            stored_report = KIND.find(registry_rows, id)
            if stored_report is None or stored_report.problem == problem:
                return None
            after = replace_fields(stored_report, problem=problem)
            KIND.store_row(registry_rows, after)
            return after

        after = await self._changes.change_rows(store_if_it_exists)
        if after is not None:
            self._remember_row(after)

    async def store_notices(
        self, report: ScheduledReport, addressed: Sequence[tuple[Notice, str]], *, actor: Actor
    ) -> None:
        """Store the notices of a report sent on request. The schedule does not change."""

        def store_report_and_audit(registry_rows: RegistryRows) -> None:
            for notice, channel in addressed:
                add_notices(registry_rows, [notice], [channel])
            after = {"notices": [f"{channel}:{notice.id}" for notice, channel in addressed]}
            registry_rows.add_audit(
                self._changes.now(), actor, "scheduled_report.send", report.id, after=after
            )

        await self._changes.change_rows(store_report_and_audit)


def _describe_report(row: tuple[ScheduledReport, str | None, float]) -> JsonAnswer:
    report, view, now = row
    sent = report.done > report.created and report.done == report.last_due_at(report.done)
    return build_answer(
        ScheduledReportItem,
        report,
        view_name=view,
        next=utc_iso(report.next_due_at(now)),
        last=utc_iso(report.done) if sent else None,
        problem=report.problem or None,
    )


SCHEDULED_REPORTS: ListDefinition[tuple[ScheduledReport, str | None, float]] = ListDefinition(
    root="scheduled_reports",
    show=_describe_report,
    identity=Sort(value=lambda row: row[0].id),
    sorts={
        "name": Sort(value=lambda row: row[0].name),
        "next": Sort(value=lambda row: row[0].next_due_at(row[2])),
    },
    default_sort=("name", "asc"),
    filters={
        "every": Filter(values=lambda row: (row[0].every,), valid_values=EVERY),
        "view": Filter(values=lambda row: (row[0].view_id,)),
    },
)


class ScheduledReportResource(ManagedResource[ScheduledReport, HasLedger]):
    noun = "scheduled_report"
    table = ScheduledReportTable
    lists = SCHEDULED_REPORTS
    new = NewScheduledReport
    changes = ScheduledReportChanges
    item = ScheduledReportItem
    one = OneScheduledReport
    files = ResourceFiles(name="scheduled-reports", refers={"view": "views", "channels": "channels"})
    searched = ("name",)
    people = ByPeople(
        path="/scheduled-reports",
        reads=VIEW_COSTS,
        changes=MODIFY_VIEWS_AND_BUDGETS,
        shows=SLICED,
        words={SHOW: "Show a scheduled report, by id or name"},
    )
    commands = ByCommands(
        help="Send costs by mail or chat, each week or month. A report has the costs of a view. Each recipient "
        "gets only the calls they may see.",
        columns=(
            "name",
            "view_name",
            "every",
            "day",
            "at",
            "time_zone",
            "channels",
            "people",
            "next",
            "problem",
        ),
        words={
            LIST: "List the scheduled reports.",
            CREATE: "Create a scheduled report. Default schedule: every Monday at 08:00.",
        },
        filters={
            "every": "Only reports with this schedule: week or month.",
            "view": "Only reports of this view, by id.",
        },
    )

    async def visibility_test(self, caller: OperationCaller[HasLedger]) -> Sees[ScheduledReport]:
        is_whole, owner = (await caller.sees()).is_whole, _report_owner(caller)
        return lambda row: is_whole or (row.owner == owner and owner != "")

    async def convert_row_for_lists(
        self, caller: OperationCaller[HasLedger], row: ScheduledReport
    ) -> tuple[ScheduledReport, str | None, float]:
        """
        Return the report with its view's name. If the view is hidden or deleted, return None instead of the
        name.
        """
        view = caller.registry.views.find(row.view_id)
        is_seen = view is not None and (await caller.sees()).can_see_view(view)
        return row, view.name if view is not None and is_seen else None, caller.shared.clock.now()

    async def draft_fields(self, caller: OperationCaller[HasLedger], new_values: Any) -> dict[str, Any]:
        stated_fields = given_fields(new_values)
        if new_values.view is not UNSET:
            view = await caller.find_view(new_values.view)
            stated_fields["view"] = check_view_usable(caller.services.ledger.dimensions(), view).id
            if problem := cost_type_problem(view):
                raise Invalid(f"view: {problem}")
        return stated_fields

    async def check_fields(
        self, caller: OperationCaller[HasLedger], fields: Mapping[str, Any], before: ScheduledReport | None
    ) -> None:
        """Raise Invalid or Refusal 403 if this person may not send the report."""
        channels, people = (
            fields.get(name, () if before is None else getattr(before, name))
            for name in ("channels", "people")
        )
        notices = caller.registry.notices
        notices.check_report_channels("channels", channels)
        if people and not notices.mail_channels.intersection(channels):
            raise Invalid(
                "people receive reports by e-mail, so channels must include a channel of type email"
            )
        owner = _report_owner(caller)
        if not (await caller.sees()).is_whole and set(people) - {owner}:
            raise Refusal(
                403, "limited_data", "you may see only some calls, so you can send reports only to yourself"
            )
        known = {account.email for account in await caller.registry.operators.all()}
        for person in people:
            if person.strip().casefold() not in known:
                raise Invalid(
                    f"people: {person[:100]} has no account, so it is unknown which calls they may see"
                )

    def fields_set_by_server(self, caller: OperationCaller[HasLedger], new_values: Any) -> Mapping[str, Any]:
        return {"owner": _report_owner(caller)}


def _report_owner(caller: OperationCaller[HasLedger]) -> str:
    """
    Return the person whose rights limit the report, or "" if nothing does (on the server, or by a console
    link).
    """
    return "" if caller.holder is None else caller.holder.person


SCHEDULED_REPORT = ScheduledReportResource()

"""A scheduled report: the costs of a view by mail or chat, each week or month."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gateway.resources.declaration import Option, changes_of, item_of, one_of, words
from spool.registry.scheduled_reports import MAX_CHANNELS, MAX_NAME, MAX_PEOPLE


class NewScheduledReport(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """With `people`, a channel of e-mail writes to each of them, cut to what each may see, and to nobody else."""

    name: Annotated[str, words(f"Unique, whatever the case: 1 to {MAX_NAME} printable characters.")]
    view: Annotated[str, words("The view whose costs are sent, by its id or its name.")]
    channels: Annotated[
        list[str],
        words(f"Where it goes: 1 to {MAX_CHANNELS} channels."),
        Option("--channel", "NAME", help="Where it goes."),
    ]
    every: Annotated[
        Literal["week", "month"],
        words("How often: of a week the seven days before, of a month the one before."),
    ] = "week"
    day: Annotated[int, words("Of a week 1 (Monday) to 7, of a month 1 to 28."), Option(metavar="NUMBER")] = 1
    at: Annotated[str, words('The time of day, such as "08:00".'), Option(metavar="HH:MM")] = "08:00"
    time_zone: Annotated[str, words("Whose days and clock it goes by."), Option("--tz", "ZONE")] = "UTC"
    people: Annotated[
        list[str],
        words(f"At most {MAX_PEOPLE} accounts that get it by mail, each with the calls that they may see."),
        Option("--person", "EMAIL", help="An account that gets it by mail, with the calls that it may see."),
    ] = []


ScheduledReportChanges = changes_of(
    NewScheduledReport,
)
ScheduledReportItem = item_of(
    NewScheduledReport,
    "A scheduled report as it is answered; times are RFC 3339.",
    answered={
        "view_name": Annotated[str | None, words("The name of the view; null while it is gone.")],
        "owner": Annotated[str, words("Whose calls channels get notices about; empty for everything.")],
        "next": Annotated[str, words("When it is sent next.")],
        "last": Annotated[str | None, words("When it was sent last by its schedule.")],
        "problem": Annotated[str | None, words("Who did not get the last one, and why.")],
        "version": Annotated[str, words("Another one after each change; given back with an edit.")],
    },
)
OneScheduledReport = one_of(NewScheduledReport, ScheduledReportItem)

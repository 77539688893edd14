"""`tollhouse events`: sends and lists usage events."""

from __future__ import annotations

import click

from gateway.cli.operator.commands import list_command
from gateway.cli.send.events import send_events

COLUMNS = ("number", "event_type", "subject", "amount", "start_time", "source", "event_id")
TYPE_COLUMNS = ("type", "count", "amount", "last_seen", "sent_as", "unmapped")


@click.group()
def events() -> None:
    """Send and list usage events."""


events.add_command(send_events)

list_command(
    events,
    "list",
    root="events",
    columns=COLUMNS,
    filters={
        "type": "",
        "subject": "",
        "source": "",
        "state": "Filter by state: open or closed.",
        "start_time": "Earliest time (RFC 3339, inclusive).",
        "end_time": "Latest time (RFC 3339, exclusive).",
    },
    help="List the newest usage events. The amount is the field that [upstream.events] names for the type.",
)

list_command(
    events,
    "types",
    root="event_types",
    columns=TYPE_COLUMNS,
    filters={"type": "", "sent": "yes: only types that are sent to your cost service. no: only the others."},
    help="List the types of usage events. Types without a stream in [upstream.events] are stored and not sent.",
)

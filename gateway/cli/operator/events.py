"""`tollhouse events`: usage events, one by one and by type."""

from __future__ import annotations

import click

from gateway.cli.operator.lists import list_command

COLUMNS = ("number", "event_type", "subject", "amount", "start_time", "source", "event_id")
TYPE_COLUMNS = ("type", "count", "amount", "last_seen", "sent_as", "unmapped")


@click.group()
def events() -> None:
    """List usage events and their types."""


list_command(
    events,
    "list",
    root="events",
    columns=COLUMNS,
    filters={
        "type": "",
        "subject": "",
        "source": "",
        "state": "open or closed.",
        "start_time": "From this time on: RFC 3339.",
        "end_time": "Before this time: RFC 3339.",
    },
    help="List the newest usage events. The amount is what the mapping of the type in upstream.events names.",
)

list_command(
    events,
    "types",
    root="event_types",
    columns=TYPE_COLUMNS,
    filters={"type": "", "sent": "yes or no: whether the type leaves for the upstream."},
    help="List types of usage events. Those without a mapping in upstream.events are kept and not sent.",
)

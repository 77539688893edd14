"""The command `tollhouse event-mappings`: which usage events your cost service receives, and with which amount."""

import click

from gateway.cli.operator.commands import list_command
from gateway.cli.operator.resources import add_resource_commands
from gateway.operations.records.event_mappings import NewEventMapping

COLUMNS = ("id", "event_type", "stream", "value", "element", "type", "author", "last_updated")


@click.group("event-mappings")
def event_mappings() -> None:
    """Manage mappings, which send types of usage events to your cost service."""


list_command(
    event_mappings,
    "list",
    root="event_mappings",
    columns=COLUMNS,
    filters={"event_type": "Only the mapping of this type.", "stream": "Only mappings to this stream."},
    help="List the mappings that operators set. [upstream.events] of the configuration may have more.",
)

add_resource_commands(
    event_mappings,
    NewEventMapping,
    noun="event_mapping",
    path="/event-mappings",
    help={
        "create": "Create a mapping for a type of usage events.",
        "show": "Show a mapping.",
        "edit": "Change a mapping. Given options replace the present values.",
        "delete": "Delete a mapping. The cost service then receives no more events of the type.",
    },
)

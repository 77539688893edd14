"""The command `tollhouse annotations`: notes about a day, shown in charts."""

import click

from gateway.cli.operator.commands import list_command
from gateway.cli.operator.resources import add_resource_commands
from gateway.operations.money.annotations import NewAnnotation

COLUMNS = ("id", "day", "text", "view_name", "author", "last_updated")


@click.group()
def annotations() -> None:
    """Note on charts what happened on a day. Examples: a release, an incident, a contract."""


list_command(
    annotations,
    "list",
    root="annotations",
    columns=COLUMNS,
    filters={
        "day": "Only this day, such as 2026-11-20.",
        "author": "Only annotations by this author.",
        "view": "Only annotations of this view, by id.",
    },
    help="List the annotations.",
)

add_resource_commands(
    annotations,
    NewAnnotation,
    noun="annotation",
    path="/annotations",
    help={
        "create": "Create an annotation for a day.",
        "show": "Show an annotation.",
        "edit": "Change an annotation. Given options replace the present values.",
        "delete": "Delete an annotation.",
    },
)

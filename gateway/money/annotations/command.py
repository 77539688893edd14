"""`tollhouse annotations`: words about a day, which charts show on that day."""

import click

from gateway.cli.operator.commands import list_command
from gateway.cli.operator.resources import resource_commands
from gateway.money.annotations.declared import NewAnnotation

COLUMNS = ("id", "day", "text", "view_name", "author", "last_updated")


@click.group()
def annotations() -> None:
    """Write on a day of the charts what happened: a release, an incident, a contract."""


list_command(
    annotations,
    "list",
    root="annotations",
    columns=COLUMNS,
    filters={"day": "Such as 2026-11-20.", "author": "Who made it.", "view": "The id of a view."},
    help="List the annotations.",
)

resource_commands(
    annotations,
    NewAnnotation,
    noun="annotation",
    path="/annotations",
    help={
        "create": "Write on a day of the charts what happened.",
        "show": "Show an annotation, by its id.",
        "edit": "Change an annotation. What is given replaces what was there.",
        "delete": "Delete an annotation.",
    },
)

"""`tollhouse devices`: the devices that report here."""

from __future__ import annotations

import click

from gateway.cli import fail
from gateway.cli.operator.commands import add_commands, command, confirmed, list_command
from gateway.cli.output import JsonObject

COLUMNS = ("id", "state", "hostname", "platform", "agent_version", "user", "labels", "enrolled", "last_seen")
UNENROLLED_COLUMNS = ("name", "key", "count", "first_seen", "last_seen")


@click.group()
def devices() -> None:
    """List, admit, approve, revoke, label and delete devices."""


list_command(
    devices,
    "list",
    root="devices",
    columns=COLUMNS,
    filters={
        "id": "",
        "state": "pending, enrolled, silent, mute or revoked.",
        "hostname": "",
        "platform": "",
        "agent_version": "",
        "user": "",
        "label": "NAME=VALUE",
    },
    help="List the devices. Silent: no report for three intervals; mute: heartbeats without the usual telemetry.",
)


list_command(
    devices,
    "unenrolled",
    root="unenrolled",
    columns=UNENROLLED_COLUMNS,
    filters={"key": "Names that this key brought."},
    help="List names that telemetry gave under keys that may not enrol.",
)


def _labels(labels: tuple[str, ...]) -> JsonObject:
    given: dict[str, str | None] = {}
    for each in labels:
        name, equals, text = each.partition("=")
        if not equals:
            fail("a label is written NAME=VALUE, such as team=search", 2)
        given[name] = text or None
    return {"labels": given}


add_commands(
    devices,
    command("show ID", "GET /devices/{id}", "Show one device."),
    command("admit ID", "POST /devices", "Enrol a device before it reports, whatever devices.policy says."),
    command(
        "delete ID",
        "DELETE /devices/{id}",
        "Delete a device and end its key; what it sent is kept, and it may enrol again.",
        confirmed("ID", "The exact id of the device, once more."),
        shows="device {id} deleted",
    ),
    command("approve ID", "POST /devices/{id}/approve", "Enrol a pending device, or a revoked one again."),
    command(
        "revoke ID",
        "POST /devices/{id}/revoke",
        "Refuse a device and its key from now on; what it sent is kept.",
    ),
    command(
        "reset ID",
        "POST /devices/{id}/reset",
        "Forget a device's fingerprint and end its key. Another machine can then take its place.",
    ),
    command(
        "label ID",
        "PATCH /devices/{id}",
        "Label a device; NAME= takes a label away.",
        click.argument("labels", nargs=-1, required=True, metavar="NAME=VALUE..."),
        sends=_labels,
    ),
)

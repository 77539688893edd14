"""`tollhouse devices`: devices that report here."""

from __future__ import annotations

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.commands import add_commands, confirm_option, list_command, request_command
from gateway.cli.operator.device_tokens import tokens
from gateway.cli.output import JsonObject

COLUMNS = ("id", "state", "hostname", "platform", "agent_version", "user", "labels", "enrolled", "last_seen")
UNENROLLED_COLUMNS = ("name", "key", "count", "first_seen", "last_seen")


_STATES = (
    "replaced, revoked, left, pending, copied, missing, losing, agent_stopped, unknown, at_risk, unseen, delayed, "
    "reporting, unused or collector"
)


@click.group()
def devices() -> None:
    """List, admit, approve, revoke and delete devices."""


list_command(
    devices,
    "list",
    root="devices",
    columns=COLUMNS,
    filters={
        "id": "",
        "state": f"Filter by state: {_STATES}; may repeat.",
        "link": "Filter by link: online, offline or unknown; may repeat.",
        "hostname": "",
        "platform": "",
        "agent_version": "",
        "user": "",
        "label": "Filter by label, written NAME=VALUE; may repeat.",
        "no_report_for": "Only devices without a report for at least this time, such as 12h or 3d.",
        "no_call_for": "Only devices without a call for this time, such as 12h or 3d.",
    },
    help="List the devices with their states. offline: no report for three intervals.",
)


list_command(
    devices,
    "unenrolled",
    root="unenrolled",
    columns=UNENROLLED_COLUMNS,
    filters={"key": "Filter by the key that sent the name."},
    help="List device names that telemetry reported with keys that may not enrol devices.",
)


def _parse_labels(labels: tuple[str, ...]) -> JsonObject:
    labels_by_name: dict[str, str | None] = {}
    for label in labels:
        name, equals, text = label.partition("=")
        if not equals:
            exit_with_message("write a label as NAME=VALUE, such as team=search", 2)
        labels_by_name[name] = text or None
    return {"labels": labels_by_name}


add_commands(
    devices,
    tokens,
    request_command("show ID", "GET /devices/{id}", "Show one device."),
    request_command(
        "admit ID",
        "POST /devices",
        "Enrol a device before it reports, even if devices.policy would refuse it.",
    ),
    request_command(
        "delete ID",
        "DELETE /devices/{id}",
        "Delete a device and its key. Its records stay, and it may enrol again.",
        confirm_option("ID", "The device's id again, to confirm."),
        show_response="device {id} deleted",
    ),
    request_command(
        "approve ID",
        "POST /devices/{id}/approve",
        "Enrol a device that is pending or revoked, or accept one that is copied.",
    ),
    request_command(
        "revoke ID", "POST /devices/{id}/revoke", "Refuse a device and its key from now on. Its records stay."
    ),
    request_command(
        "reset ID",
        "POST /devices/{id}/reset",
        "Reset a device, so that another machine can enrol under its id. Deletes the fingerprint and "
        "the key.",
    ),
    request_command(
        "edit ID",
        "PATCH /devices/{id}",
        "Change the labels of a device.",
        click.option(
            "--label",
            "labels",
            multiple=True,
            required=True,
            metavar="NAME=VALUE",
            help="Label such as team=search; NAME= removes a label. May repeat.",
        ),
        request_body=_parse_labels,
    ),
)

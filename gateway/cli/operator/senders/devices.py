"""`tollhouse devices`: the devices that report here."""

from __future__ import annotations

import click

from gateway.cli import fail
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
from gateway.cli.output import JsonObject, as_json, show_fields, show_json

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


@devices.command()
@click.argument("id")
@as_json
@with_client
def show(client: OperatorClient, id: str, as_json: bool) -> None:
    """Show one device."""
    _show(client.request("GET", f"/devices/{part(id)}"), as_json)


@devices.command()
@click.argument("id")
@as_json
@with_client
def admit(client: OperatorClient, id: str, as_json: bool) -> None:
    """Enrol a device before it reports, whatever devices.policy says."""
    _show(client.request("POST", "/devices", body={"id": id}), as_json)


@devices.command()
@click.argument("id")
@click.option("--confirm", required=True, metavar="ID", help="The exact id of the device, once more.")
@as_json
@with_client
def delete(client: OperatorClient, id: str, confirm: str, as_json: bool) -> None:
    """Delete a device and end its key; what it sent is kept, and it may enrol again."""
    payload = client.request("DELETE", f"/devices/{part(id)}", query=[("confirm", confirm)])
    show_json(payload) if as_json else click.echo(f"device {id} deleted")


@devices.command()
@click.argument("id")
@as_json
@with_client
def approve(client: OperatorClient, id: str, as_json: bool) -> None:
    """Enrol a pending device, or a revoked one again."""
    _show(client.request("POST", f"/devices/{part(id)}/approve"), as_json)


@devices.command()
@click.argument("id")
@as_json
@with_client
def revoke(client: OperatorClient, id: str, as_json: bool) -> None:
    """Refuse a device and its key from now on; what it sent is kept."""
    _show(client.request("POST", f"/devices/{part(id)}/revoke"), as_json)


@devices.command()
@click.argument("id")
@as_json
@with_client
def reset(client: OperatorClient, id: str, as_json: bool) -> None:
    """Forget a device's fingerprint and end its key. Another machine can then take its place."""
    _show(client.request("POST", f"/devices/{part(id)}/reset"), as_json)


@devices.command()
@click.argument("id")
@click.argument("labels", nargs=-1, required=True, metavar="NAME=VALUE...")
@as_json
@with_client
def label(client: OperatorClient, id: str, labels: tuple[str, ...], as_json: bool) -> None:
    """Label a device; NAME= takes a label away."""
    given: dict[str, str | None] = {}
    for each in labels:
        name, equals, text = each.partition("=")
        if not equals:
            fail("a label is written NAME=VALUE, such as team=search", 2)
        given[name] = text or None
    _show(client.request("PATCH", f"/devices/{part(id)}", body={"labels": given}), as_json)


def _show(payload: JsonObject, as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(payload["device"])

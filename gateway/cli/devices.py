"""`tollhouse devices`: who reports to this house."""

from __future__ import annotations

from typing import Any

import click

from gateway.cli import fail
from gateway.cli.operator import House, Page, as_json, on_a_house, paged, part, show_fields, show_json, show_page

COLUMNS = ("id", "state", "hostname", "platform", "agent_version", "user", "labels", "enrolled", "last_seen")
UNENROLLED_COLUMNS = ("name", "key", "count", "first_seen", "last_seen")


@click.group()
def devices() -> None:
    """List, approve, revoke and label devices."""


@devices.command("list")
@click.option("--id", multiple=True)
@click.option("--state", multiple=True, help="pending, enrolled, silent, mute or revoked.")
@click.option("--hostname", multiple=True)
@click.option("--platform", multiple=True)
@click.option("--agent-version", multiple=True)
@click.option("--user", multiple=True)
@click.option("--label", multiple=True, metavar="NAME=VALUE")
@paged
@on_a_house
def list_devices(house: House, page: Page, **asked: tuple[str, ...]) -> None:
    """List the devices. Silent: nothing heard for three intervals; mute: alive without its usual telemetry."""
    show_page(house, page, "devices", COLUMNS, asked)


@devices.command()
@click.option("--key", multiple=True, help="Names that this key brought.")
@paged
@on_a_house
def unenrolled(house: House, page: Page, **asked: tuple[str, ...]) -> None:
    """List names that telemetry gave under keys that may not enrol."""
    show_page(house, page, "unenrolled", UNENROLLED_COLUMNS, asked)


@devices.command()
@click.argument("id")
@as_json
@on_a_house
def show(house: House, id: str, as_json: bool) -> None:
    """Show one device."""
    _show(house.ask("GET", f"/devices/{part(id)}"), as_json)


@devices.command()
@click.argument("id")
@as_json
@on_a_house
def approve(house: House, id: str, as_json: bool) -> None:
    """Enrol a pending device, or a revoked one again."""
    _show(house.ask("POST", f"/devices/{part(id)}/approve"), as_json)


@devices.command()
@click.argument("id")
@as_json
@on_a_house
def revoke(house: House, id: str, as_json: bool) -> None:
    """Refuse a device and its key from now on; what it sent is kept."""
    _show(house.ask("POST", f"/devices/{part(id)}/revoke"), as_json)


@devices.command()
@click.argument("id")
@as_json
@on_a_house
def reset(house: House, id: str, as_json: bool) -> None:
    """Forget a device's fingerprint and end its key. Another machine can then take its place."""
    _show(house.ask("POST", f"/devices/{part(id)}/reset"), as_json)


@devices.command()
@click.argument("id")
@click.argument("labels", nargs=-1, required=True, metavar="NAME=VALUE...")
@as_json
@on_a_house
def label(house: House, id: str, labels: tuple[str, ...], as_json: bool) -> None:
    """Label a device; NAME= takes a label away."""
    given: dict[str, str | None] = {}
    for each in labels:
        name, equals, text = each.partition("=")
        if not equals:
            fail("a label is written NAME=VALUE, such as team=search", 2)
        given[name] = text or None
    _show(house.ask("PATCH", f"/devices/{part(id)}", body={"labels": given}), as_json)


def _show(payload: dict[str, Any], as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(payload["device"])

"""`tollhouse events send`: sends usage events to a gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import click

from gateway.cli.output import as_json
from gateway.cli.send.delivery import UploadTarget, add_target_options, deliver_uploads
from gateway.cli.send.request_bodies import UploadBody
from spool.registry.scopes import CREATE_EVENT

PATH = "/v1/events"
KEY_COMMAND = f"tollhouse keys create --name events --scope {CREATE_EVENT}"


@click.command("send")
@click.argument("named", nargs=-1, metavar="FILE...")
@click.option("--type", "event_type", metavar="TYPE", help="Send one event of this type instead of files.")
@click.option("--amount", metavar="NUMBER", help="Amount of the event. Without one it counts as 1.")
@click.option("--subject", help="Customer or object of the event.")
@click.option("--source", help="System that sends the event.")
@click.option(
    "--id", "event_id", help="Id of the event. The same source and id count once. Default: generated."
)
@click.option("--time", help="Time of the event (RFC 3339). Default: the time of arrival.")
@click.option(
    "--value", "data", multiple=True, metavar="NAME=VALUE", help="Further value of the event. Repeatable."
)
@add_target_options
@click.option("--again", is_flag=True, help="Also send what an earlier run has already sent.")
@as_json
def send_events(
    named: tuple[str, ...],
    event_type: str | None,
    url: str,
    key_file: Path | None,
    key_env: str,
    again: bool,
    as_json: bool,
    data: tuple[str, ...],
    **stated: str | None,
) -> None:
    """
    Send usage events to a gateway.

    FILE may be JSON, a JSON array, JSON lines, a directory, or - for standard input, each also gzipped. Or send one
    event: `tollhouse events send --type order --amount 3 --subject customer-7`.

    The key needs the scope events_v1:create_event.
    """
    if bool(named) == (event_type is not None):
        raise click.UsageError("give FILEs to send, or --type TYPE to send one event")
    if named and (data or any(stated.values())):
        raise click.UsageError("--amount, --subject, --source, --id, --time and --value belong to --type")
    target = UploadTarget(url, key_file, key_env, path=PATH, key_command=KEY_COMMAND)
    single = None
    if event_type is not None:
        single = (UploadBody(items=[_build_event(event_type, stated, data)]), "the event")
    deliver_uploads(target, named, single, None, resends_acknowledged=again, as_json=as_json)


def _build_event(event_type: str, stated: dict[str, str | None], data: tuple[str, ...]) -> bytes:
    values: dict[str, Any] = {}
    for pair in data:
        name, separator, value = pair.partition("=")
        if not (separator and name):
            raise click.UsageError(f"--value: {pair!r} is not NAME=VALUE")
        values[name] = value
    amount = stated["amount"]
    if amount is not None:
        values["amount"] = _parse_amount(amount)
    event = {
        "type": event_type,
        "id": stated["event_id"] or uuid4().hex,
        "source": stated["source"] or "tollhouse events send",
        "subject": stated["subject"],
        "time": stated["time"],
        "data": values or None,
    }
    return json.dumps({name: value for name, value in event.items() if value is not None}).encode()


def _parse_amount(text: str) -> int | float:
    try:
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    except ValueError:
        raise click.UsageError(f"--amount: {text!r} is not a number") from None

"""`tollhouse devices tokens`: tokens with which devices enrol."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.operator.commands import add_commands, list_command, request_command
from gateway.cli.output import JsonObject, as_json, show_json
from gateway.cli.parameters import Label, Seconds
from spool.printable import csv_lines
from spool.registry.enrolment_tokens import PER_HOUR

COLUMNS = ("name", "id", "state", "used", "uses", "per_hour", "serial", "labels", "created_by", "expires_at")
SERIALS_PER_REQUEST = 5000
_SERIAL_COLUMNS = ("serial", "serialnumber", "serialno")  # only letters and digits of a column's name count


@click.group()
def tokens() -> None:
    """Create, list and revoke tokens that can only enrol devices."""


@tokens.command("create")
@click.option("--name", required=True, help="At least 3 characters. Several tokens may have one name.")
@click.option(
    "--uses", type=click.IntRange(min=1), help="Number of devices that the token may enrol; default: 1."
)
@click.option(
    "--per-hour",
    type=click.IntRange(min=0),
    default=PER_HOUR,
    show_default=True,
    help="Number of devices that the token may enrol within an hour; 0: no limit.",
)
@click.option(
    "--expires", type=Seconds(), default="14d", show_default=True, help="Time until the token expires."
)
@click.option(
    "--label",
    "labels",
    multiple=True,
    type=Label(),
    metavar="NAME=VALUE",
    help="Label of the devices that the token enrols, such as team=search; may repeat.",
)
@click.option(
    "--for",
    "machines",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    help="CSV file with a column of serial numbers. Prints a CSV file with one token for each machine.",
)
@as_json
@with_client
def create_enrolment_tokens(
    client: OperatorClient,
    name: str,
    uses: int | None,
    per_hour: int,
    expires: float,
    labels: tuple[tuple[str, str], ...],
    machines: Path | None,
    as_json: bool,
) -> None:
    """Create a token, or one token for each machine of a list. The tokens are shown only once."""
    if machines is not None and uses is not None:
        exit_with_message("use either --uses or --for, not both: a token for a machine has a single use", 2)
    expires_at = (datetime.now(UTC) + timedelta(seconds=expires)).isoformat()
    body: JsonObject = {"name": name, "expires_at": expires_at, "labels": dict(labels), "per_hour": per_hour}
    made: list[JsonObject] = []
    if machines is None:
        made = client.request("POST", "/fleet/tokens", body={**body, "uses": uses or 1})["tokens"]
    else:
        for serials in _split_serials(_read_serials(machines)):
            made += client.request("POST", "/fleet/tokens", body={**body, "serials": serials})["tokens"]
    if as_json:
        show_json({"tokens": made})
    elif machines is None:
        click.echo(made[0]["secret"])
    else:
        lines = [["serial", "token"], *([token["serial"], token["secret"]] for token in made)]
        click.echo(csv_lines(lines), nl=False)


def _split_serials(serials: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(serials), SERIALS_PER_REQUEST):
        yield serials[first : first + SERIALS_PER_REQUEST]


def _read_serials(path: Path) -> Sequence[str]:
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        exit_with_message(f"{path} cannot be read: {error}", 2)
    first_line = text.partition("\n")[0]
    delimiter = max(",;\t", key=first_line.count)
    head, *rows = [
        row for row in csv.reader(text.splitlines(), delimiter=delimiter) if any(map(str.strip, row))
    ] or [[]]
    names = ["".join(filter(str.isalnum, cell)).casefold() for cell in head]
    column = next((index for index, name in enumerate(names) if name in _SERIAL_COLUMNS), None)
    if column is None:
        exit_with_message(f"{path} has no column named serial", 2)
    if any(len(row) <= column or not row[column].strip() for row in rows):
        exit_with_message(f"{path} has a row without a serial number", 2)
    serials = {row[column].strip().casefold(): row[column].strip() for row in rows}
    if not serials:
        exit_with_message(f"{path} has no serial numbers", 2)
    return list(serials.values())


list_command(
    tokens,
    "list",
    root="tokens",
    path="/fleet/tokens",
    columns=COLUMNS,
    filters={
        "id": "",
        "name": "",
        "state": "Filter by state: active, used_up, expired or revoked; may repeat.",
        "serial": "Filter by the serial number of the token's machine; may repeat.",
    },
    help="List the tokens. Their secrets are never shown again.",
)


def _show_revocation(payload: JsonObject) -> None:
    revoked = payload["revoked"]
    click.echo(f"{revoked['tokens']} tokens and {revoked['devices']} devices revoked")


add_commands(
    tokens,
    request_command(
        "revoke ID",
        "POST /fleet/tokens/{id}/revoke",
        "Revoke a token by its id, or all tokens with a name. Devices that it enrolled remain.",
        click.option("--devices", is_flag=True, help="Also revoke the devices that it enrolled."),
        show_response=_show_revocation,
    ),
)

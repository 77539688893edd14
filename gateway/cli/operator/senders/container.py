"""`tollhouse container`: container metrics of clusters, as they wait for the upstream."""

from __future__ import annotations

import click

from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
from gateway.cli.output import as_json, show_fields, show_json

COLUMNS = ("id", "kind", "reference", "state", "cluster", "size", "uploaded", "problem")
NUMBERS = ("bytes", "max_bytes", "files", "max_files", "balanced")


@click.group()
def container() -> None:
    """Show container metrics of clusters and what waits for the upstream; give a file up."""


@container.command()
@as_json
@with_client
def status(client: OperatorClient, as_json: bool) -> None:
    """Count what was named, uploaded and delivered, by kind and by cluster. Exits 1 if the books do not balance."""
    payload = client.request("GET", "/container-metrics")
    told = payload["container_metrics"]
    if as_json:
        show_json(payload)
    else:
        show_fields({name: told[name] for name in NUMBERS})
        for kind, terms in told["kinds"].items():
            click.echo(f"{kind}: " + (", ".join(f"{n} {term}" for term, n in terms.items() if n) or "none"))
        for one in told["clusters"]:
            place = f"{one['account']} {one['region']} {one['cluster']}"
            click.echo(f"{place}: {one['waiting']} wait, {one['bytes']} bytes, newest {one['newest']}")
        for sentence in told["imbalances"]:
            click.echo(sentence)
    if told["imbalances"]:
        raise SystemExit(1)


list_command(
    container,
    "files",
    root="container_files",
    columns=COLUMNS,
    filters={
        "kind": "file, remote-write or status.",
        "state": "announced, unused, uploaded, delivered, abandoned, damaged, expired or discarded.",
        "account": "",
        "region": "",
        "cluster": "",
    },
    help="List files, bodies of remote write and statuses. Those that are `uploaded` wait for the upstream.",
)


@container.command()
@click.argument("id")
@click.option("--confirm", required=True, metavar="REFERENCE", help="The reference of the file, once more.")
@as_json
@with_client
def discard(client: OperatorClient, id: str, confirm: str, as_json: bool) -> None:
    """Give up a file that waits for the upstream; its bytes are removed."""
    payload = client.request("POST", f"/container-files/{part(id)}/discard", body={"confirm": confirm})
    show_json(payload) if as_json else click.echo(f"{payload['container_file']['reference']} is discarded")

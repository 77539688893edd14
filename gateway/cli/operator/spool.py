"""`tollhouse spool`: the state of the spool, and what an operator settles by hand."""

from __future__ import annotations

from typing import Any, BinaryIO

import click
import orjson

from gateway.cli import fail
from gateway.cli.operator.accounts import accounts
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.lists import list_command
from gateway.cli.operator.recover import recover
from gateway.cli.output import JsonObject, as_json, show_fields, show_json, show_table
from gateway.cli.parameters import Moment
from gateway.cli.transfer.bundles import export_bundle, import_bundle
from spool.log.books import LEFT_OUT
from spool.printable import printable
from spool.record import USAGE_EVENTS

ROUTE_COLUMNS = ("route", "state", "since", "queued", "oldest_age_s", "unknown", "refused_24h", "reason")
DELIVERY_COLUMNS = ("id", "route", "first", "last", "state", "attempts", "not_before", "last_error")
NODE_COLUMNS = ("name", "version", "live", "this", "seen_s", "leases")
DEAD_COLUMNS = ("id", "route", "number", "status", "at", "error")
SHAPE_COLUMNS = ("count", "last_seen", "names")
REFUSAL_COLUMNS = ("route", "first", "last", "count", "at", "words")
CONFLICT_COLUMNS = ("first_source", "second_source", "count", "first", "second")
SHOWN_TYPES = 5
TOPIC_COLUMNS = ("topic", "received", "accepted", "duplicates", "ignored", "rejected", "pending")


@click.group()
def spool() -> None:
    """Show the spool, and settle what needs a person."""


spool.add_command(recover)
spool.add_command(export_bundle)
spool.add_command(import_bundle)


@spool.command()
@as_json
@with_client
def status(client: OperatorClient, as_json: bool) -> None:
    """Topics, routes with their state, and space."""
    payload = client.request("GET", "/status")
    if as_json:
        show_json(payload)
        return
    show_table([_summed(topic) for topic in payload["topics"]], TOPIC_COLUMNS)
    click.echo()
    show_table(payload["routes"], ROUTE_COLUMNS)
    ambiguous = sum(route["ambiguous"] for route in payload["routes"])
    if ambiguous:
        click.echo(
            f"\n{ambiguous} records were sent without a clear answer so far, and again under the same key"
        )
    unknown = sum(route["unknown"] for route in payload["routes"])
    if unknown:
        click.echo(f"\n{unknown} records may or may not have arrived: tollhouse streams list --unknown")
    refused = sum(route["refused_24h"] for route in payload["routes"])
    if refused:
        click.echo(f"\n{refused} records were rejected within 24 hours: tollhouse spool refused")
    if any(topic["topic"] == USAGE_EVENTS for topic in payload["topics"]):
        _show_unsent_events(client)
    space = payload["space"]
    click.echo(
        f"\n{space['bytes'] / 2**20:.1f} MiB of {space['max_bytes'] / 2**20:.0f} MiB in {space['entries']} "
        "entries, "
        f"{space['free_bytes'] / 2**20:.0f} MiB left"
        + ("" if space["writable"] else f"; NOT WRITABLE: {space['last_error']}")
    )
    click.echo(f"repeats are recognised for {_window(payload['duplicate_window_s'])}")
    click.echo(f"compiled module {payload['native']['words']}{_share(payload['native'])}")
    if payload["nodes"]:
        click.echo()
        show_table([{**node, "leases": " ".join(node["leases"])} for node in payload["nodes"]], NODE_COLUMNS)


def _share(native: JsonObject) -> str:
    """Describe how many spans the memory of the module knew; empty without one."""
    spans = native.get("spans")
    return f", it knew {native['known_spans'] / spans:.0%} of {spans:,} spans" if spans else ""


def _window(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} h"


@spool.command()
@click.argument("id")
@as_json
@with_client
def receipt(client: OperatorClient, id: str, as_json: bool) -> None:
    """Show what became of a submission, by its Tollhouse-Receipt's id."""
    payload = client.request("GET", f"/receipts/{part(id)}")
    show_json(payload) if as_json else show_fields(payload["receipt"])


@spool.group()
def dead() -> None:
    """Records that an upstream refused for good."""


list_command(
    dead,
    "list",
    root="dead",
    columns=DEAD_COLUMNS,
    filters={"route": "DESTINATION/TOPIC", "status": "The upstream's status."},
    help="List dead letters with the upstream's words.",
)


@dead.command("show")
@click.argument("id", type=int)
@as_json
@with_client
def show_dead(client: OperatorClient, id: int, as_json: bool) -> None:
    """Show one dead letter and its record."""
    payload = client.request("GET", f"/dead/{id}")
    if as_json:
        show_json(payload)
        return
    letter = payload["dead"]
    show_fields({name: value for name, value in letter.items() if name != "record"})
    show_json(letter["record"])


@dead.command("retry")
@click.argument("ids", type=int, nargs=-1)
@click.option("--route", help="All of this route.")
@click.option("--all", "every", is_flag=True, help="All there are.")
@as_json
@with_client
def retry_dead(
    client: OperatorClient, ids: tuple[int, ...], route: str | None, every: bool, as_json: bool
) -> None:
    """Send dead letters again."""
    payload = client.request("POST", "/dead/retry", body=_letters(ids, route, every))
    show_json(payload) if as_json else click.echo(f"{payload['retried']} will be sent again")


@dead.command("edit")
@click.argument("id", type=int)
@click.argument("file", type=click.File("rb"))
@as_json
@with_client
def edit_dead(client: OperatorClient, id: int, file: BinaryIO, as_json: bool) -> None:
    """
    Send a dead letter again with other values, from a JSON FILE or - for standard input.

    It is the `record` of `spool dead show ID --json`, changed, or its changed fields alone. The log and the
    ledger keep the record as it came.
    """
    try:
        record = orjson.loads(file.read())
    except orjson.JSONDecodeError as error:
        fail(f"{file.name} is not JSON: {error}", 2)
    payload = client.request("PATCH", f"/dead/{id}", body={"record": record})
    fields = ", ".join(payload["edited"]["fields"])
    show_json(payload) if as_json else click.echo(
        f"dead letter {id} will be sent again, with another {fields}"
    )


@dead.command("discard")
@click.argument("ids", type=int, nargs=-1)
@click.option("--route", help="All of this route.")
@click.option("--all", "every", is_flag=True, help="All there are.")
@as_json
@with_client
def discard_dead(
    client: OperatorClient, ids: tuple[int, ...], route: str | None, every: bool, as_json: bool
) -> None:
    """Give dead letters up; they are counted as discarded."""
    payload = client.request("POST", "/dead/discard", body=_letters(ids, route, every))
    show_json(payload) if as_json else click.echo(f"{payload['discarded']} discarded")


@spool.command()
@click.option("--route", required=True, help="DESTINATION/TOPIC")
@click.option(
    "--since", required=True, type=Moment(), help="A time (2026-01-31T12:00Z), or how long ago (2h)."
)
@click.option("--until", type=Moment(), help="Like --since; now when not given.")
@click.option("--dry-run", is_flag=True, help="Count, send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@as_json
@with_client
def replay(
    client: OperatorClient, route: str, since: str, until: str | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Send records again that a route has settled, under new keys."""
    body: dict[str, Any] = {"route": route, "since": since, "dry_run": True}
    if until:
        body["until"] = until
    payload = client.request("POST", "/replay", body=body)
    if not dry_run:
        records = payload["replay"]["records"]
        if records and route.startswith("upstream/") and not yes:
            _ask_first(records)
        payload = client.request(
            "POST", "/replay", body={**body, "until": payload["replay"]["until"], "dry_run": False}
        )
    if as_json:
        show_json(payload)
        return
    fate = "would be" if dry_run else "will be"
    click.echo(f"{payload['replay']['records']} records {fate} sent again to {route}")


@spool.group("route")
def routes() -> None:
    """The routes to upstream and destinations."""


list_command(
    routes,
    "list",
    root="routes",
    columns=ROUTE_COLUMNS,
    filters={"route": "DESTINATION/TOPIC", "state": "running, parked, refusing or orphaned"},
    help="List routes with their state and queue.",
)


@spool.command("accept-clock")
@as_json
@with_client
def accept_clock(client: OperatorClient, as_json: bool) -> None:
    """Say that the clock is right after it was moved: it is believed at once, and old records are removed by it."""
    payload = client.request("POST", "/clock/accept", body={})
    done = payload["clock"]
    if as_json:
        show_json(payload)
    elif done["was_held_s"]:
        click.echo(f"the clock is believed; time moved by {done['moved_s']:+.0f} s")
    else:
        click.echo("the clock is believed already")


@routes.command("drop")
@click.argument("name")
@as_json
@with_client
def drop_route(client: OperatorClient, name: str, as_json: bool) -> None:
    """Forget a route whose destination left the configuration. Its queue is counted as discarded."""
    payload = client.request("DELETE", _path_of(name))
    show_json(payload) if as_json else click.echo(f"{name} dropped, {payload['discarded']} records discarded")


@routes.command("try")
@click.argument("name")
@as_json
@with_client
def try_route(client: OperatorClient, name: str, as_json: bool) -> None:
    """Have a route send at once that is parked or waits: its key or its destination was mended."""
    payload = client.request("POST", f"{_path_of(name)}/try", body={})
    show_json(payload) if as_json else click.echo(f"{name} tries now: see `tollhouse spool route list`")


def _path_of(name: str) -> str:
    destination, slash, topic = name.rpartition("/")
    if not slash or not destination or not topic:
        fail("a route is named DESTINATION/TOPIC, such as archive/ai-telemetry", 2)
    return f"/routes/{part(destination)}/{part(topic)}"


list_command(
    spool,
    "deliveries",
    root="deliveries",
    columns=DELIVERY_COLUMNS,
    filters={"route": "DESTINATION/TOPIC", "state": "open or unknown"},
    help="List requests of routes that are not settled, with their attempts and the last error.",
)


list_command(
    spool,
    "ignored",
    root="ignored",
    columns=SHAPE_COLUMNS,
    filters={"name": "Shapes with this name among theirs."},
    help="List shapes that look like AI and that no dialect took.",
)


list_command(
    spool,
    "refused",
    root="partial_refusals",
    columns=REFUSAL_COLUMNS,
    filters={"route": "DESTINATION/TOPIC"},
    help="List what upstreams refused in answers that took the rest.",
)


list_command(
    spool,
    "conflicts",
    root="conflicts",
    columns=CONFLICT_COLUMNS,
    filters={"topic": "", "first_source": "", "second_source": ""},
    help="List reports of one call that disagreed on tokens or cost.",
)


@spool.command()
@as_json
@with_client
def verify(client: OperatorClient, as_json: bool) -> None:
    """
    Recount what was received from what is kept, and say what became of it. Exit 1 when it does not add up or a record
    counts twice; --json has every term.
    """
    payload = client.request("GET", "/verify")
    if as_json:
        show_json(payload)
    else:
        for line in accounts(payload["topics"], payload["routes"]):
            click.echo(printable(line))
        for topic, terms in payload["topics"].items():
            left_out = terms.get(LEFT_OUT)
            if left_out:
                click.echo(f"{topic}: {left_out} tags were left out, over a bound or under a name of content")
    if not payload["balanced"]:
        fail("; ".join(payload["imbalances"]))
    if not as_json:
        click.echo("All accounted for")


def _show_unsent_events(client: OperatorClient) -> None:
    query = [("sent", "no"), ("sort_key", "count"), ("sort_order", "desc")]
    unsent = client.request("GET", "/event-types", query=query)
    types = [row["type"] for row in unsent["event_types"]]
    if types:
        more = unsent["pagination"]["total_count"] - SHOWN_TYPES
        named = ", ".join(map(printable, types[:SHOWN_TYPES])) + (f" and {more} more" if more > 0 else "")
        click.echo(f"\nusage events that are kept and not sent upstream: {named} (tollhouse events types)")


def _summed(topic: JsonObject) -> JsonObject:
    """`ignored` and `rejected` over all their reasons."""
    summed = dict.fromkeys(TOPIC_COLUMNS, 0) | topic
    for term in ("ignored", "rejected"):
        summed[term] = sum(n for name, n in topic.items() if name.partition(".")[0] == term)
    return summed


def _letters(ids: tuple[int, ...], route: str | None, every: bool) -> JsonObject:
    if bool(ids) + (route is not None) + every != 1:
        fail("name dead letters by their ids, or --route, or --all", 2)
    return {"ids": ids} if ids else {"route": route} if route else {"all": True}


def _ask_first(records: int) -> None:
    warning = (
        f"{records} records will be sent to the upstream again, and the service may count them again. Go on?"
    )
    if not click.confirm(warning, err=True):
        fail("nothing was sent")

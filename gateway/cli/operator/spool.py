"""`tollhouse spool`: the state of the spool, and what an operator settles by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import orjson

from gateway.cli import config_option, data_option, fail
from gateway.cli.data_directory import installation
from gateway.cli.operator.client import OperatorClient, part, with_client
from gateway.cli.operator.commands import add_commands, command, list_command
from gateway.cli.output import JsonObject, as_json, show_fields, show_json, show_table
from gateway.cli.parameters import Moment
from gateway.service.configuration.sections import Config
from spool import engines
from spool.clock import SystemClock
from spool.errors import NotAllowed, SpoolError
from spool.log.books import (
    ACCEPTED,
    DAMAGED,
    DUPLICATES,
    EXPIRED,
    KEPT,
    LEFT_OUT,
    PENDING,
    RECEIVED,
    RETIRED,
    ROUTE_TERMS,
    SPLIT,
    topic_of,
)
from spool.printable import printable
from spool.record import USAGE_EVENTS

if TYPE_CHECKING:
    from spool.storage import Recovered

ROUTE_COLUMNS = ("route", "state", "since", "queued", "oldest_age_s", "unknown", "refused_24h", "reason")
DELIVERY_COLUMNS = ("id", "route", "first", "last", "state", "attempts", "not_before", "last_error")
NODE_COLUMNS = ("name", "version", "live", "this", "seen_s", "leases")
DEAD_COLUMNS = ("id", "route", "number", "status", "at", "error")
SHAPE_COLUMNS = ("count", "last_seen", "names")
REFUSAL_COLUMNS = ("route", "first", "last", "count", "at", "words")
CONFLICT_COLUMNS = ("first_source", "second_source", "count", "first", "second")
SHOWN_TYPES = 5
TOPIC_COLUMNS = ("topic", "received", "accepted", "duplicates", "ignored", "rejected", "pending")
_WORDS = {
    KEPT: "kept",
    RETIRED: "done and past retention",
    EXPIRED: "past retention",
    DUPLICATES: "repeats",
    PENDING: "waiting for their other half",
    "before_start": "older than the route",
    "refused_upstream": "refused upstream",
    "queued": "waiting",
    "dead": "dead letters",
    "unknown": "unconfirmed",
    "shadow": "shadows",
    "unmapped": "without a stream or path",
    "by_sync": "sent as states",
}
_KEEPING = (KEPT, RETIRED, EXPIRED)
_REASONS = ("ignored.", "rejected.")


@click.group()
def spool() -> None:
    """Show the spool, and settle what needs a person."""


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


@spool.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@config_option
@data_option
@click.option(
    "--new-registry",
    is_flag=True,
    help="Begin a new registry.sqlite if it is damaged or missing: keys and operators must then be created anew.",
)
def recover(file: Path | None, config: Path | None, data: Path | None, new_registry: bool) -> None:
    """
    Bring a damaged data directory into order while no server runs.

    Opening it salvages what is damaged. With FILE, a spool.sqlite that was moved aside or saved elsewhere, every
    record of it that the log does not have is brought into the log. It may be repeated: no record comes twice.
    """
    settings = installation(config, data)
    try:
        if file is not None:
            _show_recovered(asyncio.run(_recover(settings, file)))
        problem = asyncio.run(_open(settings, new_registry=new_registry))
    except NotAllowed as error:
        fail(str(error), 2)
    except (SpoolError, OSError) as error:
        fail(str(error))
    if problem:
        fail(problem)
    click.echo("the data directory can be opened")


def _show_recovered(found: Recovered) -> None:
    show_fields(asdict(found))
    if found.added:
        click.echo("the ledger may have counted some of them before: tollhouse ledger rebuild counts anew")


async def _recover(config: Config, file: Path) -> Recovered:
    from spool.storage import StorageOptions

    options = StorageOptions(directory=config.data_dir, settings=config.spool, clock=SystemClock())
    return await engines.recover(options, file)


async def _open(config: Config, *, new_registry: bool) -> str:
    """Open the storage; return the problem of the registry, or ""."""
    from gateway.service.assembly.storage import open_storage

    async with open_storage(config, clock=SystemClock(), new_registry=new_registry) as storage:
        return storage.registry_problem


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


def accounts(
    topics: Mapping[str, Mapping[str, int]], routes: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """A line for each topic and each route: a sum and its parts; parts of zero are left out."""
    for topic, terms in topics.items():
        came = terms.get(RECEIVED, 0) + terms.get(SPLIT, 0)
        split = f" (with {terms[SPLIT]:,} more that items held)" if terms.get(SPLIT) else ""
        reasons = {name: n for name, n in terms.items() if name.startswith(_REASONS)}
        parts = {name: terms.get(name, 0) for name in (*_KEEPING, DUPLICATES, PENDING)} | reasons
        damaged = f"; {terms[DAMAGED]:,} of what is kept cannot be read" if terms.get(DAMAGED) else ""
        yield f"{topic}: received {came:,}{split} = {_sum(parts.items())}{damaged}"
    for route, terms in routes.items():
        whole = topics.get(topic_of(route), {}).get(ACCEPTED, 0)
        yield f"{route}: accepted {whole:,} = {_sum((name, terms.get(name, 0)) for name in ROUTE_TERMS)}"


def _sum(parts: Iterable[tuple[str, int]]) -> str:
    return " + ".join(f"{_word(name)} {n:,}" for name, n in parts if n) or "0"


def _word(name: str) -> str:
    kind, _, reason = name.partition(".")
    return f"{kind} ({reason.replace('_', ' ')})" if reason else _WORDS.get(name, name.replace("_", " "))


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


def _ask_first(records: int) -> None:
    warning = (
        f"{records} records will be sent to the upstream again, and the service may count them again. Go on?"
    )
    if not click.confirm(warning, err=True):
        fail("nothing was sent")


def _letters(ids: tuple[int, ...], route: str | None, every: bool) -> JsonObject:
    if bool(ids) + (route is not None) + every != 1:
        fail("name dead letters by their ids, or --route, or --all", 2)
    return {"ids": ids} if ids else {"route": route} if route else {"all": True}


def _show_letter(payload: JsonObject) -> None:
    letter = payload["dead"]
    show_fields({name: value for name, value in letter.items() if name != "record"})
    show_json(letter["record"])


def _show_clock(payload: JsonObject) -> None:
    done = payload["clock"]
    if done["was_held_s"]:
        click.echo(f"the clock is believed; time moved by {done['moved_s']:+.0f} s")
    else:
        click.echo("the clock is believed already")


_ids = click.argument("ids", type=int, nargs=-1)
_of_route = click.option("--route", help="All of this route.")
_every = click.option("--all", "every", is_flag=True, help="All there are.")

add_commands(
    spool,
    command("receipt ID", "GET /receipts/{id}",
            "Show what became of a submission, by its Tollhouse-Receipt's id."),
    command("accept-clock", "POST /clock/accept",
            "Say that the clock is right after it was moved: it is believed at once, "
            "and old records are removed by it.", shows=_show_clock),
)  # fmt: skip

add_commands(
    dead,
    command("show", "GET /dead/{id}", "Show one dead letter and its record.", click.argument("id", type=int),
            shows=_show_letter),
    command("retry", "POST /dead/retry", "Send dead letters again.", _ids, _of_route, _every,
            sends=_letters, shows="{retried} will be sent again"),
    command("discard", "POST /dead/discard", "Give dead letters up; they are counted as discarded.",
            _ids, _of_route, _every, sends=_letters, shows="{discarded} discarded"),
)  # fmt: skip

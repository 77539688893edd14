"""`tollhouse spool`: the state of the queue on disk, and the repairs that need an operator."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import orjson

from gateway.cli import config_option, data_option, exit_because_of, exit_with_message
from gateway.cli.data_directory import load_config_with_data
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import add_commands, list_command, request_command
from gateway.cli.output import JsonObject, as_json, show_fields, show_json, show_table
from gateway.cli.parameters import Moment
from gateway.configuration.sections import Config
from spool import engines
from spool.clock import SystemClock
from spool.erasure import Renaming
from spool.errors import SpoolError
from spool.log.accounting import (
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
    route_topic,
)
from spool.printable import replace_unprintable
from spool.record import USAGE_EVENTS

if TYPE_CHECKING:
    from spool.storage import RecoveryResult

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
    KEPT: "stored",
    RETIRED: "deleted after delivery",
    EXPIRED: "deleted by retention",
    DUPLICATES: "duplicates",
    PENDING: "partial reports",
    "before_start": "before the route began",
    "refused_upstream": "rejected",
    "queued": "waiting",
    "dead": "set aside",
    "unknown": "sent, no answer",
    "shadow": "kept for reference",
    "unmapped": "without a mapping",
    "by_sync": "sent row by row",
}
_KEEPING = (KEPT, RETIRED, EXPIRED)
_REASONS = ("ignored.", "rejected.")


@click.group()
def spool() -> None:
    """Show and repair the queue on disk and its routes."""


@spool.command("status")
@as_json
@with_client
def show_spool_status(client: OperatorClient, as_json: bool) -> None:
    """Show topics, routes with their state, and disk space."""
    payload = client.request("GET", "/status")
    if as_json:
        show_json(payload)
        return
    show_table([_with_ignored_and_rejected_sums(topic) for topic in payload["topics"]], TOPIC_COLUMNS)
    click.echo()
    show_table(payload["routes"], ROUTE_COLUMNS)
    ambiguous = sum(route["ambiguous"] for route in payload["routes"])
    if ambiguous:
        click.echo(
            f"\n{ambiguous} records were sent again so far, under the same idempotency key, because the first "
            "answer was unclear"
        )
    unknown = sum(route["unknown"] for route in payload["routes"])
    if unknown:
        click.echo(
            f"\n{unknown} records were sent and not answered; list them with `tollhouse streams list "
            "--unknown`"
        )
    refused = sum(route["refused_24h"] for route in payload["routes"])
    if refused:
        click.echo(
            f"\n{refused} records were rejected in the last 24 hours; list them with `tollhouse spool "
            "refused`"
        )
    if any(topic["topic"] == USAGE_EVENTS for topic in payload["topics"]):
        _show_unsent_events(client)
    space = payload["space"]
    click.echo(
        f"\n{space['bytes'] / 2**20:.1f} MiB of {space['max_bytes'] / 2**20:.0f} MiB in {space['entries']} "
        "entries, "
        f"{space['free_bytes'] / 2**20:.0f} MiB left"
        + ("" if space["writable"] else f"; NOT WRITABLE: {space['last_error']}")
    )
    click.echo(f"duplicates are recognized for {_format_window(payload['duplicate_window_s'])}")
    click.echo(f"compiled module {payload['native']['words']}")
    if payload["nodes"]:
        click.echo()
        show_table([{**node, "leases": " ".join(node["leases"])} for node in payload["nodes"]], NODE_COLUMNS)


def _format_window(seconds: float) -> str:
    hours = seconds / 3600
    return f"{hours / 24:.0f} days" if hours >= 48 else f"{hours:.1f} h"


@spool.group()
def dead() -> None:
    """List, change, resend and discard records that a destination rejected for good."""


list_command(
    dead,
    "list",
    root="dead",
    columns=DEAD_COLUMNS,
    filters={
        "route": "Filter by route, written DESTINATION/TOPIC; may repeat.",
        "status": "Filter by the destination's HTTP status.",
    },
    help="List rejected records with the destination's error message.",
)


@dead.command("edit")
@click.argument("id", type=int)
@click.argument("file", type=click.File("rb"))
@as_json
@with_client
def edit_rejected_record(client: OperatorClient, id: int, file: BinaryIO, as_json: bool) -> None:
    """
    Change a rejected record and send it again.

    FILE (- for standard input) is JSON: the `record` from `spool dead show ID --json` with your changes, or
    only the changed fields. The log and the totals keep the original record.
    """
    try:
        record = orjson.loads(file.read())
    except orjson.JSONDecodeError as error:
        exit_with_message(f"{file.name} is not JSON: {error}", 2)
    payload = client.request("PATCH", f"/dead/{id}", body={"record": record})
    fields = ", ".join(payload["edited"]["fields"])
    show_json(payload) if as_json else click.echo(
        f"rejected record {id} will be sent again, with another {fields}"
    )


@spool.command("recover")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False), required=False)
@config_option
@data_option
@click.option(
    "--new-registry",
    is_flag=True,
    help=(
        "Create a new registry.sqlite if it is damaged or missing. Keys and operators must then be "
        "created again."
    ),
)
def recover_data_directory(
    file: Path | None, config: Path | None, data: Path | None, new_registry: bool
) -> None:
    """
    Repair a damaged data directory. Stop its server first.

    Salvages damaged files. With FILE, a spool.sqlite that was moved aside or saved elsewhere, also imports
    every record that the log does not have. You may repeat the command; no record is imported twice.
    """
    settings = load_config_with_data(config, data)
    try:
        problem, renaming = asyncio.run(
            _salvage_storage_and_check_registry(settings, new_registry=new_registry)
        )
        if file is not None:
            _show_recovery(asyncio.run(_recover_database_file(settings, file, renaming)))
    except (SpoolError, OSError) as error:
        exit_because_of(error)
    if problem:
        exit_with_message(problem)
    click.echo("the data directory is usable")


def _show_recovery(recovered: RecoveryResult) -> None:
    show_fields(asdict(recovered))
    if recovered.added:
        click.echo(
            "the totals may already include some of these records; count again with `tollhouse ledger "
            "rebuild`"
        )


async def _recover_database_file(config: Config, file: Path, renaming: Renaming | None) -> RecoveryResult:
    from spool.storage import StorageOptions

    options = StorageOptions(directory=config.data_dir, settings=config.spool, clock=SystemClock())
    return await engines.import_damaged_file(options, file, renaming=renaming)


async def _salvage_storage_and_check_registry(
    config: Config, *, new_registry: bool
) -> tuple[str, Renaming | None]:
    """
    Open and close the storage once, which salvages it. Return the problem of the registry, or "", and the
    renaming of people who were erased.
    """
    from gateway.service.assembly.storage import open_storage

    async with open_storage(config, clock=SystemClock(), new_registry=new_registry) as storage:
        renaming = None if storage.registry is None else storage.registry.people.pseudonym
        return storage.registry_problem, renaming


@spool.command("replay")
@click.option("--route", required=True, help="Route to resend, written DESTINATION/TOPIC.")
@click.option(
    "--since",
    required=True,
    type=Moment(),
    help="Start of the period to resend: a time (2026-01-31T12:00Z) or an age (2h).",
)
@click.option("--until", type=Moment(), help="End of the period, written as for --since; default: now.")
@click.option("--dry-run", is_flag=True, help="Count the records, and send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@as_json
@with_client
def replay_delivered_records(
    client: OperatorClient, route: str, since: str, until: str | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Send records again that a route has already delivered, under new idempotency keys."""
    body: dict[str, Any] = {"route": route, "since": since, "dry_run": True}
    if until:
        body["until"] = until
    payload = client.request("POST", "/replay", body=body)
    if not dry_run:
        records = payload["replay"]["records"]
        if records and route.startswith("upstream/") and not yes:
            _confirm_resend_or_exit(records)
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
    """List, retry and delete routes to your cost service and to destinations."""


list_command(
    routes,
    "list",
    root="routes",
    columns=ROUTE_COLUMNS,
    filters={
        "route": "Filter by route, written DESTINATION/TOPIC; may repeat.",
        "state": "Filter by state: running, parked (shown as paused), refusing (rejected) or orphaned (without a "
        "destination).",
    },
    help="List the routes with their state and queue.",
)


@routes.command("delete")
@click.argument("name")
@as_json
@with_client
def delete_route(client: OperatorClient, name: str, as_json: bool) -> None:
    """Delete a route whose destination is no longer configured. Its waiting records are discarded."""
    payload = client.request("DELETE", _delivery_route_path(name))
    show_json(payload) if as_json else click.echo(f"{name} deleted, {payload['discarded']} records discarded")


@routes.command("try")
@click.argument("name")
@as_json
@with_client
def try_route(client: OperatorClient, name: str, as_json: bool) -> None:
    """Let a paused or waiting route send at once, after you repaired its key or destination."""
    payload = client.request("POST", f"{_delivery_route_path(name)}/try", body={})
    show_json(payload) if as_json else click.echo(
        f"{name} tries now; see the result with `tollhouse spool route list`"
    )


def _delivery_route_path(name: str) -> str:
    destination, slash, topic = name.rpartition("/")
    if not slash or not destination or not topic:
        exit_with_message("write a route as DESTINATION/TOPIC, such as archive/ai-telemetry", 2)
    return f"/routes/{quote_segment(destination)}/{quote_segment(topic)}"


list_command(
    spool,
    "deliveries",
    root="deliveries",
    columns=DELIVERY_COLUMNS,
    filters={
        "route": "Filter by route, written DESTINATION/TOPIC; may repeat.",
        "state": "Filter by state: open, or unknown (sent, no answer).",
    },
    help="List the deliveries that are not acknowledged, with their attempts and last errors.",
)


list_command(
    spool,
    "ignored",
    root="ignored",
    columns=SHAPE_COLUMNS,
    filters={"name": "Filter by an attribute name in the shape."},
    help="List kinds of telemetry that look like AI calls and that no rule reads.",
)


list_command(
    spool,
    "refused",
    root="partial_refusals",
    columns=REFUSAL_COLUMNS,
    filters={"route": "Filter by route, written DESTINATION/TOPIC; may repeat."},
    help="List requests with some rejected records. The destination accepted their other records.",
)


list_command(
    spool,
    "conflicts",
    root="conflicts",
    columns=CONFLICT_COLUMNS,
    filters={"topic": "", "first_source": "", "second_source": ""},
    help="List reports of one call that disagreed on tokens or cost.",
)


@spool.command("verify")
@as_json
@with_client
def verify_accounting(client: OperatorClient, as_json: bool) -> None:
    """
    Recount all records and print what became of them. Compare all totals with the records.

    Exit code 1 if the numbers do not balance, a record counts twice, a total differs, or the totals are being counted
    again. --json prints every term.
    """
    payload = client.request("GET", "/verify")
    if as_json:
        show_json(payload)
    else:
        for line in format_accounting(payload["topics"], payload["routes"]):
            click.echo(replace_unprintable(line))
        for topic, terms in payload["topics"].items():
            left_out = terms.get(LEFT_OUT)
            if left_out:
                click.echo(
                    f"{topic}: {left_out} tags were left out, because they exceeded a limit or had a name "
                    "used for content"
                )
    if not payload["balanced"]:
        exit_with_message("; ".join(payload["imbalances"]))
    if not as_json:
        click.echo("All accounted for")


def format_accounting(
    topics: Mapping[str, Mapping[str, int]], routes: Mapping[str, Mapping[str, int]]
) -> Iterator[str]:
    """Yield a line for each topic and route: a sum and its nonzero parts."""
    for topic, terms in topics.items():
        came = terms.get(RECEIVED, 0) + terms.get(SPLIT, 0)
        split = f" (including {terms[SPLIT]:,} from items with several records)" if terms.get(SPLIT) else ""
        reasons = {name: n for name, n in terms.items() if name.startswith(_REASONS)}
        parts = {name: terms.get(name, 0) for name in (*_KEEPING, DUPLICATES, PENDING)} | reasons
        damaged = f"; {terms[DAMAGED]:,} stored records cannot be read" if terms.get(DAMAGED) else ""
        yield f"{topic}: received {came:,}{split} = {_format_record_counts(parts.items())}{damaged}"
    for route, terms in routes.items():
        whole = topics.get(route_topic(route), {}).get(ACCEPTED, 0)
        sum_text = _format_record_counts((name, terms.get(name, 0)) for name in ROUTE_TERMS)
        yield f"{route}: accepted {whole:,} = {sum_text}"


def _format_record_counts(parts: Iterable[tuple[str, int]]) -> str:
    return " + ".join(f"{_format_accounting_count_name(name)} {n:,}" for name, n in parts if n) or "0"


def _format_accounting_count_name(name: str) -> str:
    kind, _, reason = name.partition(".")
    return f"{kind} ({reason.replace('_', ' ')})" if reason else _WORDS.get(name, name.replace("_", " "))


def _show_unsent_events(client: OperatorClient) -> None:
    query = [("sent", "no"), ("sort_key", "count"), ("sort_order", "desc")]
    unsent = client.request("GET", "/event-types", query=query)
    types = [row["type"] for row in unsent["event_types"]]
    if types:
        hidden_count = unsent["pagination"]["total_count"] - SHOWN_TYPES
        type_names = ", ".join(map(replace_unprintable, types[:SHOWN_TYPES])) + (
            f" and {hidden_count} more" if hidden_count > 0 else ""
        )
        click.echo(
            f"\nusage events that are stored and not sent to your cost service: {type_names} (tollhouse events types)"
        )


def _with_ignored_and_rejected_sums(topic: JsonObject) -> JsonObject:
    summed = dict.fromkeys(TOPIC_COLUMNS, 0) | topic
    for term in ("ignored", "rejected"):
        summed[term] = sum(n for name, n in topic.items() if name.partition(".")[0] == term)
    return summed


def _confirm_resend_or_exit(records: int) -> None:
    warning = (
        f"{records} records will be sent to your cost service again, which may count them twice. Continue?"
    )
    if not click.confirm(warning, err=True):
        exit_with_message("nothing was sent")


def _dead_letter_selection_body(ids: tuple[int, ...], route: str | None, every: bool) -> JsonObject:
    if bool(ids) + (route is not None) + every != 1:
        exit_with_message("name rejected records by id, or use --route or --all", 2)
    return {"ids": ids} if ids else {"route": route} if route else {"all": True}


def _show_dead_letter(payload: JsonObject) -> None:
    letter = payload["dead"]
    show_fields({name: value for name, value in letter.items() if name != "record"})
    show_json(letter["record"])


def _show_result_of_trusting_clock(payload: JsonObject) -> None:
    result = payload["clock"]
    if result["was_held_s"]:
        click.echo(f"the clock is trusted; time moved by {result['moved_s']:+.0f} s")
    else:
        click.echo("the clock is already trusted")


_ids = click.argument("ids", type=int, nargs=-1)
_of_route = click.option("--route", help="All rejected records of this route.")
_every = click.option("--all", "every", is_flag=True, help="All rejected records.")

add_commands(
    spool,
    request_command("receipt ID", "GET /receipts/{id}",
            "Show what became of a request, by the id in its Tollhouse-Receipt header."),
    request_command("accept-clock", "POST /clock/accept",
            "Confirm that the server clock is right after it jumped. It is then trusted at once, and "
            "retention deletes records by it.", show_response=_show_result_of_trusting_clock),
)  # fmt: skip

add_commands(
    dead,
    request_command("show", "GET /dead/{id}", "Show one rejected record and its error.", click.argument("id", type=int),
            show_response=_show_dead_letter),
    request_command("retry", "POST /dead/retry", "Send rejected records again.", _ids, _of_route, _every,
            request_body=_dead_letter_selection_body, show_response="{retried} will be sent again"),
    request_command("discard", "POST /dead/discard", "Discard rejected records. They count as discarded.",
            _ids, _of_route, _every, request_body=_dead_letter_selection_body, show_response="{discarded} discarded"),
)  # fmt: skip

"""`tollhouse lake`: verifies, repairs and fills the files that destinations write to your own store."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli import config_option, exit_with_message, load_config_or_exit
from gateway.cli.data_directory import load_config_with_data
from gateway.cli.lake import recounts
from gateway.cli.lake.recounts import RouteAccounting, run_or_fail
from gateway.cli.output import JsonObject, show_fields, show_json
from gateway.cli.parameters import Percent

if TYPE_CHECKING:
    from exporters.lake.stores import LakeStore
    from exporters.lake.verification import DateRange, LakeDifference
    from exporters.settings import DestinationSettings
    from gateway.cli.operator.client import OperatorClient
    from gateway.configuration.sections import Config


READERS = ("duckdb", "clickhouse")
_SHOWN = 100  # maximum differences that are printed without --json
_POLL_INTERVAL_S = 0.5
STREAMS = ("kafka", "clickhouse")  # destination types that write no files
DAY = click.DateTime(["%Y-%m-%d"])
destination_option = click.option(
    "--destination", "name", help="Name of the destination; needed if several destinations are data lakes."
)
topic_option = click.option(
    "--topic", help="Topic, if the destination has several; default: ai-telemetry, or else its first topic."
)


@click.group()
def lake() -> None:
    """
    Verify, repair and import data lake files.

    Data lake files are the files that destinations write to your own store.
    """


@lake.command("verify")
@config_option
@destination_option
@topic_option
@click.option("--from", "since", type=DAY, metavar="DAY", help="First date of the files to verify (UTC).")
@click.option(
    "--to", "until", type=DAY, metavar="DAY", help="Last date of the files to verify (UTC, inclusive)."
)
@click.option("--footers", "level", flag_value="footers", help="Also read the end (footer) of every file.")
@click.option(
    "--data", "level", flag_value="data", help="Also read every file completely, and recompute every sum."
)
@click.option(
    "--sample",
    "share",
    type=Percent(),
    help="With --data: percentage of files to read completely, chosen at random.",
)
@click.option(
    "--without-books",
    "alone",
    is_flag=True,
    help=(
        "Do not compare with the accounting of this installation. Use it for a copy of the store, or for "
        "a prefix that began later than the route."
    ),
)
@click.option(
    "--expired-before",
    "expired",
    type=DAY,
    metavar="DAY",
    help="Date before which the store's lifecycle rule deleted files.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify_lake(
    config: Path | None,
    name: str | None,
    topic: str | None,
    since: datetime | None,
    until: datetime | None,
    level: str | None,
    share: float | None,
    alone: bool,
    expired: datetime | None,
    as_json: bool,
) -> None:
    """
    Compare a data lake with its manifests and with the gateway's accounting.

    Finds files that are missing, that have another size or content, or that no manifest names, and record
    numbers that are missing or appear twice. For destinations of type kafka and clickhouse, compares the
    topic or the table with the accounting. The accounting is compared only if the data directory is available
    and neither --from nor --to is given. Missing files before --expired-before are reported as
    expired_by_rule and are not failures.

    With --data, also compares the rows of each delivery with the log, as far as the log still has them. If no
    record waits for the lake, it compares the sums of each day with the totals as well. With --sample 5%,
    reads the ends of all files and one file in twenty completely; each run chooses other files. Exit code 1
    if there are differences.
    """
    from exporters.lake.past.log_recount import EXPLAINED
    from exporters.lake.verification import ALL_DATES, EXPIRED, DateRange

    if share is not None and level != "data":
        exit_with_message("--sample needs --data", 2)
    settings = _find_lake_or_exit(config, name, of_any_type=True)
    route = _find_route_or_exit(settings, topic)
    dates = DateRange(_date_text(since), _date_text(until))
    client = None if alone or dates != ALL_DATES else _operator_client_or_none(config)
    books = None if client is None else RouteAccounting.fetch_for_route(client, route)
    fields, differences = _verify_lake(
        settings, route, level or "listing", dates, _date_text(expired), books, share
    )
    if as_json:
        show_json({**fields, "differences": [difference._asdict() for difference in differences]})
    else:
        show_fields({**fields, "differences": len(differences)})
        for difference in differences[:_SHOWN]:
            click.echo(f"{difference.kind}: {difference.name}: {difference.words}")
    if any(difference.kind not in {EXPIRED, *EXPLAINED} for difference in differences):
        exit_with_message(f"{settings.name} differs; see docs/lake/verify.md, section Verify")


def _verify_lake(
    settings: DestinationSettings,
    route: str,
    verification_level: str,
    dates: DateRange,
    expired_before_date: str,
    route_accounting: RouteAccounting | None,
    sampled_share: float | None,
) -> tuple[JsonObject, Sequence[LakeDifference]]:
    from exporters.lake.tables import LakeSumsByDay
    from exporters.lake.verification import ALL_DATES, with_expired_files_marked

    if settings.type == "clickhouse":
        used_options = {
            "--footers": verification_level == "footers",
            "--expired-before": expired_before_date,
            "--sample": sampled_share,
        }
        recounts.refuse_unsupported_options(settings.type, used_options)
        return recounts.verify_table(settings, dates, route_accounting)
    if settings.type == "kafka":
        used_options = {
            "--footers": verification_level == "footers",
            "--expired-before": expired_before_date,
            "--sample": sampled_share,
            "--from, --to": dates != ALL_DATES,
        }
        recounts.refuse_unsupported_options(settings.type, used_options)
        return recounts.verify_kafka_topic(
            settings, route, route_accounting, reads_all=verification_level == "data"
        )
    days = (
        LakeSumsByDay()
        if _can_compare_with_ledger(settings, route, verification_level, sampled_share)
        and route_accounting is not None
        else None
    )
    verified = run_or_fail(
        recounts.verify_files(settings, route, verification_level, dates, sampled_share, days)
    )
    result = with_expired_files_marked(verified, expired_before_date)
    ledger = {}
    if route_accounting is not None:
        result = recounts.with_accounting_difference(result, route_accounting)
    if route_accounting is not None and verification_level == "data" and sampled_share is None:
        result, message = recounts.compare_lake_with_log(result, route_accounting)
        ledger["log"] = message
    if route_accounting is not None and days is not None:
        result, message = recounts.compare_with_ledger(result, route_accounting, days)
        ledger["ledger"] = message
    return {**asdict(result), **ledger}, result.differences


def _can_compare_with_ledger(
    settings: DestinationSettings, route: str, level: str, share: float | None
) -> bool:
    from exporters.lake.destination import has_focus_format
    from spool.record import AI_TELEMETRY

    is_whole = level == "data" and share is None
    return is_whole and route.endswith(f"/{AI_TELEMETRY}") and not has_focus_format(settings)


@lake.command("repair")
@config_option
@destination_option
@click.option(
    "--dry-run", is_flag=True, help="List the files that would be written again, and write nothing."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def repair_lake(config: Path | None, name: str | None, dry_run: bool, as_json: bool) -> None:
    """
    Write missing files of a data lake again, from records in the log.

    Files keep their names. Existing files are never overwritten, so move a damaged file away first. If a
    file's new bytes differ from the original ones, a second manifest describes it. Exit code 1 if the log no
    longer has the records of a file.
    """
    # the records are read through the operator API
    client = _operator_client(config, load_config_with_data(config))
    settings = _find_lake_or_exit(config, name)
    body = {"destination": settings.name, "dry_run": dry_run}
    payload = client.request("POST", "/lake-repairs", body=body)
    result = payload["repair"]
    if as_json:
        show_json(payload)
    else:
        for key in result["put"]:
            click.echo(f"{'would be written' if dry_run else 'written'}: {key}")
        for key, reason in result["lost"].items():
            click.echo(f"lost: {key}: {reason}")
        click.echo(f"{len(result['put'])} files written again, {len(result['lost'])} lost", err=True)
    if result["lost"]:
        exit_with_message("the log no longer has the records of some files")


@lake.command("adopt")
@config_option
@destination_option
@topic_option
@click.option("--leave", is_flag=True, help="Do not import records that exist only in the lake.")
@click.option("--dry-run", is_flag=True, help="Show the planned changes, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def reconcile_with_lake(
    config: Path | None, name: str | None, topic: str | None, leave: bool, dry_run: bool, as_json: bool
) -> None:
    """
    After `tollhouse restore`: reconcile this installation with its data lake.

    Stop all servers first. Deliveries of records that the lake already has are marked as delivered. Records
    newer than the backup exist only in the lake. They are imported into the log, each id once, and sent to
    all other routes. The lake does not receive them again.
    """
    from gateway.cli.lake.filling import adopt_lake

    settings = load_config_with_data(config)
    destination = _require_lake_with_records(_find_lake_or_exit(config, name))
    topic = _find_topic_or_exit(destination, topic)
    result = run_or_fail(
        adopt_lake(settings, destination, topic, leaves_records_only_in_lake=leave, dry_run=dry_run)
    )
    if as_json:
        show_json({"adopted": asdict(result)})
    else:
        click.echo(
            f"{result.settled} records marked as delivered, {result.brought} imported, {result.known} "
            f"already known, {result.left} left only in the lake"
        )


@lake.command("import")
@click.argument(
    "sources", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@config_option
@destination_option
@topic_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_earlier_records(
    sources: tuple[Path, ...], config: Path | None, name: str | None, topic: str | None, as_json: bool
) -> None:
    """
    Import earlier records into a data lake, from record files or from another lake.

    A record file has one record per line, as destinations of type ndjson write it. Files of a lake end in
    .parquet or .ndjson.zst. Records whose id the lake already has for the same date are skipped, so importing
    a file twice changes nothing. The log and the totals are not changed.
    """
    from gateway.cli.lake.filling import import_file_into_lake

    settings = _require_lake_with_records(_find_lake_or_exit(config, name))
    topic = _find_topic_or_exit(settings, topic)
    results = [run_or_fail(import_file_into_lake(settings, topic, source)) for source in sources]
    if as_json:
        show_json({"imported": results})
    else:
        for imported_source in results:
            click.echo(
                "{source}: {rows} rows, {known} already known, {left_out} left out".format(**imported_source)
            )


@lake.command("land")
@config_option
@destination_option
@topic_option
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    metavar="SECONDS",
    help="Maximum time to wait for the files and their manifest; 0 only requests them.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def deliver_waiting_records(
    config: Path | None, name: str | None, topic: str | None, wait_s: float, as_json: bool
) -> None:
    """
    Write all waiting records to the data lake now, for example at the end of a month.

    Needs a running server. Records that were committed before the command are included as soon as
    `spool.hold` has passed for each. Exit code 1 if they have not landed in time.
    """
    client = _operator_client(config, load_config_with_data(config))
    route = _find_route_or_exit(_find_lake_or_exit(config, name), topic)
    client.require_server()
    attempt = client.request("POST", f"/routes/{route}/try", body={})
    state = _wait_until_delivered(client, route, attempt["next"], wait_s)
    if as_json:
        show_json({"landed": state is None, "route": state})
    elif state is None:
        click.echo(f"{route}: all records committed before this command have landed")
    if state is not None and wait_s:
        exit_with_message(f"{route} has not landed all records yet: {state['reason'] or state['state']}")


def _wait_until_delivered(
    client: OperatorClient, route: str, target_progress: int, wait_s: float
) -> JsonObject | None:
    until = time.monotonic() + wait_s
    while True:
        [state] = client.request("GET", "/routes", query=[("route", route)])["routes"]
        if not state["queued"] or state["progress"] >= target_progress:
            return None
        if time.monotonic() >= until:
            return dict(state)
        time.sleep(_POLL_INTERVAL_S)


@lake.command("manifest")
@config_option
@destination_option
@topic_option
@click.option("--month", help="Only deliveries with records of a month, such as 2026-10.")
def print_manifests(config: Path | None, name: str | None, topic: str | None, month: str | None) -> None:
    """Print the manifests of a data lake as one JSON list."""
    settings = _find_lake_or_exit(config, name)
    show_json(run_or_fail(_read_manifest_files(settings, _find_route_or_exit(settings, topic), month or "")))


@lake.command("sql")
@config_option
@destination_option
@click.option(
    "--for",
    "reader",
    type=click.Choice(READERS),
    help="Program that will run the SQL.  [default: duckdb; clickhouse for a destination of that type]",
)
def print_table_statements(config: Path | None, name: str | None, reader: str | None) -> None:
    """
    Print SQL that creates views over the files of a data lake.

    For a destination of type clickhouse, print SQL that creates the table that the destination fills.
    """
    settings = _find_lake_or_exit(config, name, of_any_type=True)
    try:
        click.echo(_table_statements(settings, reader), nl=False)
    except ValueError as error:
        exit_with_message(str(error), 2)


def _table_statements(settings: DestinationSettings, reader: str | None) -> str:
    if settings.type in STREAMS:
        from exporters.clickhouse.table import table_creation_sql

        if settings.type != "clickhouse" or reader not in (None, settings.type):
            raise ValueError(f"{reader or 'no SQL program'} cannot read destinations of type {settings.type}")
        return table_creation_sql(settings.table)
    from exporters.lake.views.statements import view_statements

    return view_statements(reader or READERS[0], settings)


def _operator_client_or_none(config: Path | None) -> OperatorClient | None:
    from spool.settings import LOCK_FILE, SQLITE

    settings = load_config_or_exit(config)
    try:
        is_there = settings.storage.engine != SQLITE or (settings.data_dir / LOCK_FILE).exists()
    except OSError as error:
        exit_with_message(
            f"cannot read the accounting ({error}); use --without-books to verify only the store"
        )
    if not is_there:
        click.echo(f"not compared with the accounting: {settings.data_dir} has no Tollhouse data", err=True)
        return None
    return _operator_client(config, settings)


def _operator_client(config: Path | None, settings: Config) -> OperatorClient:
    from gateway.cli.operator.client import OperatorClient
    from gateway.configuration.local_operator import local_address

    return OperatorClient(settings, local_address(settings), has_file=config is not None)


def _require_lake_with_records(settings: DestinationSettings) -> DestinationSettings:
    from exporters.lake.destination import has_focus_format

    if has_focus_format(settings):
        exit_with_message(
            f"{settings.name} has charges in the format {settings.format} instead of records", 2
        )
    return settings


async def _read_manifest_files(settings: DestinationSettings, route: str, month: str) -> list[Any]:
    import msgspec

    from exporters.lake.tables import table_for_route
    from exporters.lake.verification import ReadManifest, read_manifests

    table = table_for_route(route).name
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as scratch:
        return [
            msgspec.to_builtins(manifest.body)
            async for manifest in read_manifests(
                _open_lake_store(settings), settings.name, Path(scratch), table=table
            )
            if isinstance(manifest, ReadManifest)
            and (not month or any(file.date.startswith(month) for file in manifest.body.files))
        ]


def _find_lake_or_exit(
    config: Path | None, name: str | None, *, of_any_type: bool = False
) -> DestinationSettings:
    """
    Return the named destination, or the only data lake. With `of_any_type`, kafka and clickhouse are allowed.
    """
    from exporters.lake.destination import WITH_FILES

    destinations = load_config_or_exit(config).destinations
    lakes = [destination for destination in destinations if destination.type in WITH_FILES]
    if of_any_type and (name is not None or not lakes):
        lakes += [destination for destination in destinations if destination.type in STREAMS]
    matches = [settings for settings in lakes if name in (None, settings.name)]
    if len(matches) != 1:
        names = ", ".join(settings.name for settings in lakes) or "none (see docs/lake/index.md)"
        exit_with_message(f"name one data lake with --destination; the configuration has {names}", 2)
    return matches[0]


def _find_topic_or_exit(settings: DestinationSettings, topic: str | None) -> str:
    from spool.record import AI_TELEMETRY

    usual = AI_TELEMETRY if AI_TELEMETRY in settings.topics else settings.topics[0]
    if topic is not None and topic not in settings.topics:
        exit_with_message(f"{settings.name} has no topic {topic!r}; it has {', '.join(settings.topics)}", 2)
    return topic or usual


def _find_route_or_exit(settings: DestinationSettings, topic: str | None) -> str:
    return f"{settings.name}/{_find_topic_or_exit(settings, topic)}"


def _open_lake_store(settings: DestinationSettings) -> LakeStore:
    from exporters.destinations.catalogue import destination_secret
    from exporters.lake.destination import open_store

    return open_store(settings, destination_secret(settings))


def _date_text(day: datetime | None) -> str:
    return "" if day is None else day.date().isoformat()

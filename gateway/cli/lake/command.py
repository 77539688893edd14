"""`tollhouse lake`: looks at what destinations have written into your own store, and has it mended or brought in."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli import config_option, configured, fail
from gateway.cli.data_directory import installation
from gateway.cli.lake import recounts
from gateway.cli.lake.recounts import RouteBooks, result_of
from gateway.cli.output import JsonObject, show_fields, show_json
from gateway.cli.parameters import Percent

if TYPE_CHECKING:
    from exporters.lake.stores import Store
    from exporters.lake.verification import Dates, LakeDifference
    from exporters.settings import DestinationSettings
    from gateway.cli.operator.client import OperatorClient
    from gateway.service.configuration.sections import Config


READERS = ("duckdb", "clickhouse", "athena", "bigquery", "snowflake", "spark")
_SHOWN = 100  # differences, without --json
_LOOK_S = 0.5
STREAMS = ("kafka", "clickhouse")  # types of destinations without files
DAY = click.DateTime(["%Y-%m-%d"])
destination_option = click.option(
    "--destination", "name", help="The destination, if the configuration has several that are a lake."
)
topic_option = click.option(
    "--topic", help="The topic, if the destination has several; without it AI telemetry, or the first."
)


@click.group()
def lake() -> None:
    """Look at what destinations that are a lake have written, with or without a server."""


@lake.command()
@config_option
@destination_option
@topic_option
@click.option(
    "--from", "since", type=DAY, metavar="DAY", help="First date of the files that are looked at (UTC)."
)
@click.option("--to", "until", type=DAY, metavar="DAY", help="Last date, which is part of it.")
@click.option("--footers", "level", flag_value="footers", help="Also read the end of every file.")
@click.option("--data", "level", flag_value="data", help="Also read every byte, and add every sum again.")
@click.option(
    "--sample", "share", type=Percent(), help="With --data: read only so many of the files whole, by chance."
)
@click.option(
    "--without-books",
    "alone",
    is_flag=True,
    help="Do not ask this Tollhouse: for a copy of the store, or a prefix that began later than the route.",
)
@click.option(
    "--expired-before", "expired", type=DAY, metavar="DAY", help="A rule of the store took earlier files."
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def verify(
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
    Compare the files of a lake with its manifests, and those with the books of the route; exit code 1 if they
    differ. Of type kafka and clickhouse the topic or the table is compared with the books.

    A file may be missing, have another size or content, or be one that no manifest names; numbers may be missing
    or be there twice. The books are asked where the data directory is, for all dates together: not with --from
    or --to. Missing files of dates before --expired-before are named expired_by_rule, and are no failure.

    With --data the sums of each day are compared with the ledger, too, if nothing waits for the lake, and the rows of
    each delivery with those that the log gives now, while it has them. With --sample 5%
    the ends of all files are read, and one file of twenty whole, other ones each time.
    """
    from exporters.lake.past.log_recount import EXPLAINED
    from exporters.lake.verification import ALL_DATES, EXPIRED, Dates

    if share is not None and level != "data":
        fail("--sample is of --data", 2)
    settings = _chosen_lake(config, name, of_any_type=True)
    route = _chosen_route(settings, topic)
    dates = Dates(_date_text(since), _date_text(until))
    client = None if alone or dates != ALL_DATES else _client(config)
    books = None if client is None else RouteBooks.of(client, route)
    fields, differences = _verified(
        settings, route, level or "listing", dates, _date_text(expired), books, share
    )
    if as_json:
        show_json({**fields, "differences": [each._asdict() for each in differences]})
    else:
        show_fields({**fields, "differences": len(differences)})
        for each in differences[:_SHOWN]:
            click.echo(f"{each.kind}: {each.name}: {each.words}")
    if any(each.kind not in {EXPIRED, *EXPLAINED} for each in differences):
        fail(f"{settings.name} differs: see docs/lake.md, Verify")


def _verified(
    settings: DestinationSettings,
    route: str,
    level: str,
    dates: Dates,
    expired: str,
    books: RouteBooks | None,
    share: float | None,
) -> tuple[JsonObject, Sequence[LakeDifference]]:
    """Return what was found, and how it differs."""
    from exporters.lake.tables import LakeDays
    from exporters.lake.verification import ALL_DATES, expired_before

    if settings.type == "clickhouse":
        given = {"--footers": level == "footers", "--expired-before": expired, "--sample": share}
        recounts.refuse_options(settings.type, given)
        return recounts.verified_table(settings, dates, books)
    if settings.type == "kafka":
        given = {
            "--footers": level == "footers",
            "--expired-before": expired,
            "--sample": share,
            "--from, --to": dates != ALL_DATES,
        }
        recounts.refuse_options(settings.type, given)
        return recounts.verified_topic(settings, route, books, reads_all=level == "data")
    days = LakeDays() if _has_ledger(settings, route, level, share) and books is not None else None
    verified = result_of(recounts.verify_files(settings, route, level, dates, share, days))
    found = expired_before(verified, expired)
    ledger = {}
    if books is not None:
        found = recounts.with_books(found, books)
    if books is not None and level == "data" and share is None:
        found, words = recounts.with_log(found, books)
        ledger["log"] = words
    if books is not None and days is not None:
        found, words = recounts.with_ledger(found, books, days)
        ledger["ledger"] = words
    return {**asdict(found), **ledger}, found.differences


def _has_ledger(settings: DestinationSettings, route: str, level: str, share: float | None) -> bool:
    """True if every row is read, and the ledger has its sums."""
    from exporters.lake.destination import is_focus
    from spool.record import AI_TELEMETRY

    is_whole = level == "data" and share is None
    return is_whole and route.endswith(f"/{AI_TELEMETRY}") and not is_focus(settings)


@lake.command()
@config_option
@destination_option
@click.option("--dry-run", is_flag=True, help="Say what would be put again, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def repair(config: Path | None, name: str | None, dry_run: bool, as_json: bool) -> None:
    """
    Put files that are missing again, under their names, from what the log still has; exit code 1 if it has the
    records of one no more.

    Nothing is overwritten: take a damaged file away first. The same bytes need no other manifest; other bytes get
    one beside the first.
    """
    client = _operator(config, installation(config))  # which has the records
    settings = _chosen_lake(config, name)
    body = {"destination": settings.name, "dry_run": dry_run}
    payload = client.request("POST", "/lake-repairs", body=body)
    done = payload["repair"]
    if as_json:
        show_json(payload)
    else:
        for key in done["put"]:
            click.echo(f"{'would be put' if dry_run else 'put'}: {key}")
        for key, words in done["lost"].items():
            click.echo(f"lost: {key}: {words}")
        click.echo(f"{len(done['put'])} files put again, {len(done['lost'])} lost", err=True)
    if done["lost"]:
        fail("the log has the records of some files no more")


@lake.command()
@config_option
@destination_option
@topic_option
@click.option("--leave", is_flag=True, help="Leave records that this copy never had in the lake alone.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and change nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def adopt(
    config: Path | None, name: str | None, topic: str | None, leave: bool, dry_run: bool, as_json: bool
) -> None:
    """
    After `tollhouse restore`: settle what the lake has already, and bring back what this copy never had.

    No server may use the data meanwhile. Numbers up to the last one of the copy are settled as delivered. Records
    behind it go into the log again, each id once, and to every other route; the lake does not get them a second time.
    """
    from gateway.cli.lake.filling import adopted

    settings = installation(config)
    destination = _of_records(_chosen_lake(config, name))
    topic = _chosen_topic(destination, topic)
    done = result_of(adopted(settings, destination, topic, leave=leave, dry_run=dry_run))
    if as_json:
        show_json({"adopted": asdict(done)})
    else:
        click.echo(
            f"{done.settled} numbers settled, {done.brought} records brought, {done.known} known already, "
            f"{done.left} left in the lake alone"
        )


@lake.command("import")
@click.argument(
    "sources", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@config_option
@destination_option
@topic_option
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def import_(
    sources: tuple[Path, ...], config: Path | None, name: str | None, topic: str | None, as_json: bool
) -> None:
    """
    Bring records from before into a lake, from record files and from files of another lake.

    A record file has a record a line, as destinations of type ndjson write it; the names of files of a lake end in
    .parquet or .ndjson.zst. A record whose id the lake has already under its date is left out, and a file that is
    brought again changes nothing. The log and the ledger are not changed.
    """
    from gateway.cli.lake.filling import imported

    settings = _of_records(_chosen_lake(config, name))
    topic = _chosen_topic(settings, topic)
    done = [result_of(imported(settings, topic, source)) for source in sources]
    if as_json:
        show_json({"imported": done})
    else:
        for each in done:
            click.echo("{source}: {rows} rows, {known} known already, {left_out} left out".format(**each))


@lake.command()
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
    help="How long the command waits for the files and their manifest; 0 asks alone.",
)
@click.option("--json", "as_json", is_flag=True, help="Print it as JSON.")
def land(config: Path | None, name: str | None, topic: str | None, wait_s: float, as_json: bool) -> None:
    """
    Have a running server bring in now what waits for a file, such as at the end of a month; exit code 1 if it
    has not landed in time.

    All that was committed before lands, each record when `spool.hold` has passed for it.
    """
    client = _operator(config, installation(config))
    route = _chosen_route(_chosen_lake(config, name), topic)
    client.require_server()
    tried = client.request("POST", f"/routes/{route}/try", body={})
    state = _landed(client, route, tried["next"], wait_s)
    if as_json:
        show_json({"landed": state is None, "route": state})
    elif state is None:
        click.echo(f"{route}: everything that was committed before has landed")
    if state is not None and wait_s:
        fail(f"{route} has not landed everything yet: {state['reason'] or state['state']}")


def _landed(client: OperatorClient, route: str, below: int, wait_s: float) -> JsonObject | None:
    """Wait until no record below a number waits; the state of the route if that is not so."""
    until = time.monotonic() + wait_s
    while True:
        [state] = client.request("GET", "/routes", query=[("route", route)])["routes"]
        if not state["queued"] or state["progress"] >= below:
            return None
        if time.monotonic() >= until:
            return dict(state)
        time.sleep(_LOOK_S)


@lake.command("manifest")
@config_option
@destination_option
@topic_option
@click.option("--month", help="Only deliveries that have records of a month, such as 2026-10.")
def manifest_(config: Path | None, name: str | None, topic: str | None, month: str | None) -> None:
    """Print the manifests of a lake as one JSON list."""
    settings = _chosen_lake(config, name)
    show_json(result_of(_manifests(settings, _chosen_route(settings, topic), month or "")))


@lake.command()
@config_option
@destination_option
@click.option(
    "--for",
    "reader",
    type=click.Choice(READERS),
    help="What reads them.  [default: duckdb, or clickhouse of a table]",
)
def sql(config: Path | None, name: str | None, reader: str | None) -> None:
    """
    Print the statements with which a reader of SQL sees the files of a lake: a table of them, and views.

    Of a destination of type clickhouse: the table that it fills, and its views.
    """
    settings = _chosen_lake(config, name, of_any_type=True)
    try:
        click.echo(_statements(settings, reader), nl=False)
    except ValueError as error:
        fail(str(error), 2)


def _statements(settings: DestinationSettings, reader: str | None) -> str:
    """ValueError where the reader does not read what the destination writes."""
    if settings.type in STREAMS:
        from exporters.clickhouse.table import statements

        if settings.type != "clickhouse" or reader not in (None, settings.type):
            raise ValueError(f"{reader or 'no reader of SQL'} reads no destination of type {settings.type}")
        return statements(settings.table)
    from exporters.lake.views.statements import views_for

    return views_for(reader or READERS[0], settings)


def _client(config: Path | None) -> OperatorClient | None:
    """The operator API of this installation; None where it has no data."""
    from spool.settings import LOCK_FILE, SQLITE

    settings = configured(config)
    try:
        is_there = settings.storage.engine != SQLITE or (settings.data_dir / LOCK_FILE).exists()
    except OSError as error:
        fail(f"the books cannot be asked ({error}); --without-books looks at the store alone")
    if not is_there:
        click.echo(f"the books are not compared: {settings.data_dir} has no data of Tollhouse", err=True)
        return None
    return _operator(config, settings)


def _operator(config: Path | None, settings: Config) -> OperatorClient:
    from gateway.cli.operator.client import OperatorClient
    from gateway.service.configuration.local_operator import local_address

    return OperatorClient(settings, local_address(settings), has_file=config is not None)


def _of_records(settings: DestinationSettings) -> DestinationSettings:
    from exporters.lake.destination import is_focus

    if is_focus(settings):
        fail(f"{settings.name} has charges in the format {settings.format}, and no records", 2)
    return settings


async def _manifests(settings: DestinationSettings, route: str, month: str) -> list[Any]:
    import msgspec

    from exporters.lake.tables import table_of
    from exporters.lake.verification import ReadManifest, read_manifests

    table = table_of(route).name
    with tempfile.TemporaryDirectory(prefix="tollhouse-") as scratch:
        return [
            msgspec.to_builtins(found.body)
            async for found in read_manifests(
                _opened_store(settings), settings.name, Path(scratch), table=table
            )
            if isinstance(found, ReadManifest)
            and (not month or any(file.date.startswith(month) for file in found.body.files))
        ]


def _chosen_lake(config: Path | None, name: str | None, *, of_any_type: bool = False) -> DestinationSettings:
    """The destination that is named, or the only one that is a lake of files; with `of_any_type` a stream, too."""
    from exporters.lake.destination import WITH_FILES

    destinations = configured(config).destinations
    lakes = [each for each in destinations if each.type in WITH_FILES]
    if of_any_type and (name is not None or not lakes):
        lakes += [each for each in destinations if each.type in STREAMS]
    wanted = [each for each in lakes if name in (None, each.name)]
    if len(wanted) != 1:
        names = ", ".join(each.name for each in lakes) or "none: see docs/lake.md"
        fail(f"name one destination that is a lake with --destination; the configuration has {names}", 2)
    return wanted[0]


def _chosen_topic(settings: DestinationSettings, topic: str | None) -> str:
    """A topic of a destination; without one AI telemetry, or its first."""
    from spool.record import AI_TELEMETRY

    usual = AI_TELEMETRY if AI_TELEMETRY in settings.topics else settings.topics[0]
    if topic is not None and topic not in settings.topics:
        fail(f"{settings.name} has no topic {topic!r}; it has {', '.join(settings.topics)}", 2)
    return topic or usual


def _chosen_route(settings: DestinationSettings, topic: str | None) -> str:
    return f"{settings.name}/{_chosen_topic(settings, topic)}"


def _opened_store(settings: DestinationSettings) -> Store:
    from exporters.destinations.catalogue import secret_of
    from exporters.lake.destination import store_of

    return store_of(settings, secret_of(settings))


def _date_text(day: datetime | None) -> str:
    return "" if day is None else day.date().isoformat()

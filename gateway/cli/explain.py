"""`tollhouse explain`: shows which records a payload would produce, without a server."""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import click
import orjson

from gateway.cli import CONFIG_VARIABLE, data_option, find_configuration_file, load_config_or_exit
from gateway.cli.data_directory import load_config_with_data
from gateway.cli.operator.client import OperatorClient, quote_segment
from gateway.cli.output import show_json
from gateway.cli.parameters import Choice
from gateway.cli.send.request_bodies import MAX_DOCUMENT, open_ungzipped
from gateway.configuration.local_operator import local_address
from gateway.configuration.sections import Config
from gateway.core.errors import BadPayload, Refusal
from gateway.intake.attribution import RecordAttributor
from gateway.intake.intake import PayloadIntake
from gateway.intake.prices import PriceBook
from gateway.intake.reasons import explanations_by_field, price_line_fields
from gateway.intake.shadows import ReportedCallers
from gateway.intake.waiting_counters import WaitingCounters
from gateway.normalise import any_format
from gateway.normalise.formats.engine.declaration import NormalisedBody
from gateway.normalise.formats.langfuse.merger import complete_without_later_reports
from gateway.normalise.formats.list import FORMAT_NAMES, recognise_format_or_refuse
from gateway.normalise.outcome import (
    DUPLICATE,
    GUARD,
    MERGED,
    NO_ITEMS,
    NOT_AI,
    TEST_SPAN,
    UNRECOGNISED_AI,
    DroppedDuplicate,
    ReadOptions,
    ReadOutcome,
)
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.clock import SystemClock
from spool.engines import open_log_in_memory
from spool.identity import describe_dedup_rule
from spool.log.accounting import LEFT_OUT
from spool.log.counters import BASE_LINE, FORGOTTEN, LATE, NOT_FINITE, UNCHANGED
from spool.printable import printable_json
from spool.record import NS, AiRecord, Inference, Record, record_to_json
from spool.settings import SpoolSettings

# maximum items in a file; this is more than the limit of a request, because a file may be larger
MOST_ITEMS = 2_000_000
_WHY_IGNORED = {
    NOT_AI: "recognized, but not an AI call",
    UNRECOGNISED_AI: "mentions a model or tokens, but no rule reads it",
    GUARD: "is a guardrail without a model, and not a call",
    NO_ITEMS: "has none of the members that its address reads",
    TEST_SPAN: "tests the export, and is not a call",
    MERGED: "reports a call or counter that another item also reports: see dropped",
    DUPLICATE: "repeats an earlier record: see dropped",
    BASE_LINE: "first point of a counter without a start time; later points are compared with it",
    FORGOTTEN: "may continue a counter that was forgotten to save memory; later points are compared with it",
    LATE: "a cumulative point that is not newer than the previous one",
    UNCHANGED: "a counter that did not change",
    NOT_FINITE: "a counter that is not a number",
}


@click.command()
@click.argument("files", nargs=-1, metavar="FILE...")
@click.option("--record", metavar="ID", help="Id of a stored record to explain, instead of FILE.")
@click.option("--since", metavar="DAY", help="With --record: day to search from; default: one day ago.")
@data_option
@click.option(
    "--as",
    "format",
    type=Choice(FORMAT_NAMES),
    help="Format of the payload; default: detected from the content.",
)
@click.option("--why", is_flag=True, help="Also show the rule and the attribute behind every number.")
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    envvar=CONFIG_VARIABLE,
    show_envvar=True,
    callback=find_configuration_file,
    help=(
        "Configuration file with the prices, attribution and privacy to apply; default: "
        "./tollhouse.toml, or /etc/tollhouse/tollhouse.toml if that is missing."
    ),
)
def explain(
    files: tuple[str, ...],
    record: str | None,
    since: str | None,
    data: Path | None,
    format: str | None,
    why: bool,
    config: Path | None,
) -> None:
    """
    Show the records that a payload would produce.

    With FILE, prints as JSON the records, the ignored and rejected items, and the number of tags left out. No
    server is needed. Use - for standard input; files may be gzipped. For several files, prints one JSON
    object per line with the name in "file". With --why, also prints the rule behind every number, the lines
    that the estimated cost sums, and the reason for each item without a record.

    With --record, prints the stored record, the reasons for its numbers, and the fields that are not stored. For a
    call of a session, "waste" has the part of its cost that was paid again, with the formula of each class.
    """
    if (record is None) == (not files):
        raise click.UsageError("give FILE, or --record ID")
    if since is not None and record is None:
        raise click.UsageError("--since needs --record")
    if record is not None:
        _explain_record(record, since, data, config)
        return
    settings = load_config_or_exit(config)
    failed = False
    for file in files:
        try:
            result = asyncio.run(explain_payload(_read_payload_file(file), format, settings, why=why))
        except Refusal as error:
            failed = True
            click.echo(f"tollhouse: {file}: {error.message}", err=True)
            continue
        if len(files) > 1:
            click.echo(printable_json({"file": file, **result}))
        else:
            click.echo(printable_json(result, option=orjson.OPT_INDENT_2))
    if failed:
        sys.exit(1)


def _explain_record(id: str, since: str | None, data: Path | None, config: Path | None) -> None:
    from gateway.money.waste.lane import ENDS_AFTER

    settings = load_config_with_data(config, data)
    client = OperatorClient(settings, local_address(settings), has_file=config is not None)
    answer = client.request(
        "GET", f"/records/{quote_segment(id)}", query=[] if since is None else [("since", since)]
    )
    stored = answer["record"]
    if stored["kind"] == Inference.kind and stored["session"] and stored["start_time"]:
        start = datetime.fromisoformat(stored["start_time"])
        lane = timedelta(seconds=ENDS_AFTER // NS)
        around = [("from", start - lane), ("to", start + lane)]
        status, judged = client.request_with_status(
            "GET",
            f"/work/session/{quote_segment(stored['session'])}/waste",
            query=[(name, f"{at:%Y-%m-%dT%H:%M:%SZ}") for name, at in around],
        )
        calls = judged["calls"] if status == 200 else []  # a search that is cut may not reach the session
        answer["waste"] = next((call for call in calls if call["id"] == stored["id"]), None)
    show_json(answer)


async def explain_payload(
    body: bytes, format: str | None, config: Config, *, why: bool = False
) -> dict[str, Any]:
    """
    Return the records that a payload would produce, from an empty log in memory in which no record waits for
    reports.

    Counters wait for all calls of the file, so the order within the file does not matter.
    """
    format_name = format or recognise_format_or_refuse(body, how_to_name_format="name it with --as")
    options = ReadOptions(
        keep_attributes=frozenset(config.privacy.keep_attributes),
        keep_tags=config.kept_tags,
        counted=config.explicitly_counted_sources,
        max_items=MOST_ITEMS,
        explain=why,
    )
    outcome = complete_without_later_reports(
        _run_to_end(any_format.normalise_body(format_name, body, options=options))
    )
    clock = SystemClock()
    book = PriceBook.load(config.prices, config.data_dir)
    log = await open_log_in_memory(SpoolSettings(hold=0), clock)
    try:
        shadows = ReportedCallers(clock)
        counters = WaitingCounters(
            log, shadows, clock, wait_s=inf, max_items=sys.maxsize, max_bytes=sys.maxsize
        )
        intake = PayloadIntake(
            log, attributor=RecordAttributor(config), prices=book, shadows=shadows, counters=counters
        )
        await intake.store_outcome(outcome, AuthenticatedKey(name="explain", scopes=frozenset(), labels={}))
        await counters.record_due_and_reverse_repeated_counters(releases_all=True)
        below = log.lowest_open_number(outcome.topic)
        entries = await log.read(outcome.topic, 1, below - 1)
        books = (await log.books()).topics.get(outcome.topic, {})
    finally:
        await log.close()
    records = [record for entry in entries for record in entry.records if record is not None]
    result: dict[str, Any] = {
        "format": format_name,
        "records": [record_to_json(record) for record in records],
        "ignored": _ignored_counts_by_reason(books),
        "rejected": [reject._asdict() for reject in outcome.rejects],
    }
    if why:
        _add_reasons(result, records, outcome, book)
    left_out = books.get(LEFT_OUT, 0)
    if left_out:
        result["left_out"] = left_out
    if outcome.meter_too_large:
        result["meter_too_large"] = outcome.meter_too_large
    return result


def _add_reasons(
    result: dict[str, Any], records: Sequence[Record], outcome: ReadOutcome, price_book: PriceBook
) -> None:
    reasons_by_id: dict[bytes, dict[str, Any]] = {}
    for record, why in zip(outcome.records, outcome.why or [], strict=False):
        # If a later report repeats the call, it adds nothing to the record, so keep the reasons of
        # the first report.
        reasons_by_id.setdefault(record.id, why)
    for row, stored_record in zip(result["records"], records, strict=True):
        row["why"] = {
            **explanations_by_field(stored_record, price_book),
            **reasons_by_id.get(stored_record.id, {}),
        }
        lines = price_line_fields(stored_record, price_book)
        if lines:
            row["price_lines"] = lines
    for row in result["ignored"]:
        row["why"] = _WHY_IGNORED.get(row["reason"], "counted under this reason")
    result["dropped"] = [
        dropped_item._asdict()
        for dropped_item in (*outcome.dropped, *_repeats_within_payload(records, outcome))
    ]


def _repeats_within_payload(records: Sequence[Record], outcome: ReadOutcome) -> Iterator[DroppedDuplicate]:
    remaining = Counter(record.id for record in records)
    known: dict[bytes, AiRecord] = {}
    for record, identity in zip(outcome.records, outcome.identities, strict=True):
        if remaining[record.id]:
            remaining[record.id] -= 1
            for name in (identity.id, *identity.keys_to_remember):
                known.setdefault(name, record)
            continue
        names = (
            identity.id,
            *identity.lookups,
            *identity.also,
            *identity.joins,
            *[linked for _, linked in identity.links],
        )
        first = next((known[name] for name in names if name in known), None)
        if first is None:
            continue
        rule = "both are the same point of one metric series"
        if isinstance(first, Inference):
            rule = "both have another id in common, or are the client and server side of one call in a trace"
            if first.id == record.id:
                rule = f"that record is {describe_dedup_rule(first)}"
        yield DroppedDuplicate(
            _describe_record(record), f"dropped: repeats record {first.id.hex()}, because {rule}"
        )


def _describe_record(record: AiRecord) -> str:
    if isinstance(record, Inference):
        return (
            f"report of {record.source} with the id {record.request_id or record.span_id or record.id.hex()}"
        )
    return f"data point of {record.name}"


def _run_to_end(normaliser: Generator[None, None, NormalisedBody]) -> NormalisedBody:
    while True:
        try:
            next(normaliser)
        except StopIteration as stop:
            normalised: NormalisedBody = stop.value
            return normalised


def _ignored_counts_by_reason(accounting_counts: Any) -> list[dict[str, Any]]:
    counts = {
        name.removeprefix("ignored."): n
        for name, n in accounting_counts.items()
        if name.startswith("ignored.")
    }
    counts[DUPLICATE] = counts.get(DUPLICATE, 0) + accounting_counts.get("duplicates", 0)
    return [{"reason": reason, "count": n} for reason, n in sorted(counts.items()) if n]


def _read_payload_file(file: str) -> bytes:
    """Read a file. Raises BadPayload if that fails, so that the command can continue with the other files."""
    try:
        with (
            nullcontext(sys.stdin.buffer) if file == "-" else Path(file).open("rb") as raw,
            open_ungzipped(raw) as content,
        ):
            body = content.read(MAX_DOCUMENT + 1)
        if len(body) > MAX_DOCUMENT:
            raise BadPayload("has more than 64 MiB; pass a part of it")
        return body
    except (OSError, EOFError, zlib.error) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BadPayload(f"cannot be read: {reason}") from error

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from exporters.clickhouse.table import MOST_RECORDS, WINDOW, table_alteration_statements
from exporters.destinations.declaration import DestinationType
from exporters.lake.columns import COLUMNS
from exporters.lake.destination import build_periodic_check, route_name, with_landing_times
from exporters.problems import problems_of_url
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.record import AI_TELEMETRY

if TYPE_CHECKING:
    from exporters.exporter import WholeDeliveryExporter
    from exporters.lake.exporter import LakeContext
    from exporters.lake.watch import CountedNumbers, LakeCheckResult
    from exporters.probe import Probe

LINGER_S: Final = 5.0
USUAL_RECORDS: Final = 20_000
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_SHOWN: Final = 3  # maximum differences that one message of `check` lists


def build_exporter(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, context: LakeContext
) -> WholeDeliveryExporter:
    from exporters.clickhouse.exporter import ClickHouseExporter
    from exporters.clickhouse.server import ClickHouseServer

    exporter = ClickHouseExporter(
        ClickHouseServer(settings, secret, clock=clock),
        context.landings,
        max_records=settings.batch_records or USUAL_RECORDS,
        leave_out=settings.leave_out,
    )
    return with_landing_times(exporter, settings, clock, context)


def build_destination_check(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, context: LakeContext
) -> Callable[[], Coroutine[Any, Any, None]] | None:
    """Return the periodic check of the ClickHouse table, or None if checks are off."""

    async def count_rows(below_number: int) -> CountedNumbers:
        from exporters.clickhouse.recount import recount_table
        from exporters.clickhouse.server import ClickHouseServer
        from exporters.lake.watch import CountedNumbers

        server = ClickHouseServer(settings, secret, clock=clock)
        try:
            counted = await recount_table(server, settings.table, below_number=below_number)
        finally:
            await server.close()
        return CountedNumbers(counted.differences, counted.settled, counted.absent, rows=counted.rows)

    async def check_table() -> LakeCheckResult:
        from exporters.lake.watch import compare_record_numbers_with_accounting

        return await compare_record_numbers_with_accounting(context, route_name(settings), count_rows)

    return build_periodic_check(settings, clock, context, check_table)


async def probe_destination(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock
) -> Probe:
    from exporters.clickhouse.server import ClickHouseServer
    from exporters.errors import SendError
    from exporters.probe import OK, REFUSED, Probe, error_probe

    server = ClickHouseServer(settings, secret, clock=clock)
    try:
        columns, definition = await server.fetch_column_types(), await server.fetch_engine()
        if columns:
            await server.fetch_row_keys({"00000000"}, 1, 1)
    except SendError as error:
        return error_probe(error)
    finally:
        await server.close()
    if not columns:
        message = f"the table {settings.table} does not exist: create it (docs/lake/clickhouse.md)"
        return Probe(status=REFUSED, words=message)
    mends = [*table_alteration_statements(settings.table, columns)]
    if mends:
        return Probe(status=REFUSED, words="; ".join(mends[:_SHOWN]))
    engine = definition.partition("(")[0].split(" ")[0].strip()
    if not engine.endswith("ReplacingMergeTree"):
        message = f"the table's engine is {engine}, which retains duplicate rows: use ReplacingMergeTree"
        return Probe(status=REFUSED, words=message)
    if engine == "ReplacingMergeTree" and "non_replicated_deduplication_window" not in definition:
        message = (
            f"ALTER TABLE {settings.table} MODIFY SETTING non_replicated_deduplication_window = {WINDOW}"
        )
        return Probe(status=REFUSED, words=f"the table does not remember insert tokens: {message}")
    return Probe(status=OK, words=f"the table {settings.table} exists, with the engine {engine}")


def settings_problems(shown_name: str, settings: DestinationSettings) -> Iterator[str]:
    url_problems = [*problems_of_url(f"{shown_name}.url", settings.url)]
    yield from url_problems
    if settings.url and not url_problems:
        parts = urlsplit(settings.url)
        if parts.query or parts.fragment or "/" in parts.path.strip("/"):
            yield f"{shown_name}.url: type 'clickhouse' needs an address like https://HOST:PORT/DATABASE"
        if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
            yield (
                f"{shown_name}.url: use https://, because http:// sends all records unencrypted and is "
                "accepted only for loopback addresses"
            )
    if (settings.tls_cert_file is None) != (settings.tls_key_file is None):
        yield f"{shown_name}: set both tls_cert_file and tls_key_file, or neither"
    elif settings.tls_cert_file is not None and not settings.url.startswith("https://"):
        yield f"{shown_name}.tls_cert_file needs an https:// url"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,127}", settings.table):
        yield f"{shown_name}.table must consist of letters, digits and '_', and must not begin with a digit"
    if (settings.batch_records or 0) > MOST_RECORDS:
        yield (
            f"{shown_name}.batch_records: at most {MOST_RECORDS:,} for type 'clickhouse', because a request is "
            "held in memory"
        )
    if not settings.required:
        yield f"{shown_name}.required: a table needs every record, so remove `required = false`"
    if settings.leave_out:
        from exporters.lake.tables import left_out_problems

        yield from left_out_problems(shown_name, settings.leave_out, tuple(COLUMNS))


TYPE = DestinationType(
    name="clickhouse",
    needs="url",
    build_lake=build_exporter,
    beside=build_destination_check,
    probe=probe_destination,
    problems=settings_problems,
    topics=(AI_TELEMETRY,),
    secret_lines=2,
    linger_s=LINGER_S,
)

"""
Types of configuration values that every package shares, and the sections [spool], [storage] and [container].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

KIB, MIB, GIB = 1024, 1024**2, 1024**3
DAY_S = 86400.0
MAX_DEAD_LETTERS = 10_000
MOST_HOUR = 1_000_000  # maximum of each hourly price of a node, in dollars
MAX_SENDERS = "spool.max_senders"
MAX_SERIES = "spool.max_series"
# name of the limit on waiting counters that are already counted, but may still be reversed
COUNTED_ITEMS = "spool.pending_items, counted"

Size = Annotated[int, "size"]  # bytes, written as 64MiB, 10GiB or a plain number
Duration = Annotated[float, "duration"]  # seconds, written as 10s, 500ms, 5m, 1h, 7d or a plain number

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The description of a configuration key for the reference, and the rules for its values."""

    words: str
    edge: str = ""  # effect when the limit that the key sets is reached
    choices: tuple[str, ...] = ()
    least: float | None = None


def setting(
    default: Value,
    words: str,
    *,
    edge: str = "",
    choices: tuple[str, ...] = (),
    least: float | None = None,
    secret: bool = False,
) -> Value:
    """
    Return the dataclass field of a configuration key, with its `Setting`. If it is `secret`, the value is
    left out of the repr.
    """
    metadata = {"setting": Setting(words=words, edge=edge, choices=choices, least=least)}
    options: dict[str, Any] = {"metadata": metadata, "repr": not secret}
    if isinstance(default, dict):
        return cast("Value", field(default_factory=default.copy, **options))
    return field(default=default, **options)


LOCK_FILE = "lock"  # file in a data directory; a process that uses the directory holds a lock on the file
SQLITE, POSTGRES = "sqlite", "postgres"
REPLICATED, PLATFORM, LOCAL = "replicated", "platform", "local"
NO_POOLER, TRANSACTION = "none", "transaction"
# keys of [spool] that must be equal on all nodes of one storage
SHARED = ("hold", "duplicate_window", "duplicate_ids", "retention")


DATABASE_AUTHORITIES = "sslrootcert"  # parameter of a database address with the file of trusted authorities


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """The storage engine: files in `data_dir`, or a PostgreSQL database that several gateways share."""

    engine: str = setting(
        SQLITE, "storage engine: files in `data_dir`, or a PostgreSQL database", choices=(SQLITE, POSTGRES)
    )
    dsn_file: Path | None = setting(
        None,
        "file with the address of the PostgreSQL database in libpq's format, such as `host=a,b dbname=tollhouse`",
    )
    dsn_env: str = setting("", "environment variable with that address, instead of `dsn_file`")
    schema: str = setting("tollhouse", "schema in that database, used by only one installation")
    secret_file: Path | None = setting(
        None,
        ("file with the installation's secret, the same on every node; `tollhouse storage init` creates it"),
    )
    durability: str = setting(
        REPLICATED,
        "where records are flushed before a 2xx: also on a synchronous standby (without one, "
        "nothing is stored), on a platform that replicates by itself, or on the disk of one machine",
        choices=(REPLICATED, PLATFORM, LOCAL),
    )
    pooler: str = setting(
        NO_POOLER,
        "use `transaction` if a pgbouncer runs between Tollhouse and PostgreSQL",
        choices=(NO_POOLER, TRANSACTION),
    )
    commit_timeout: Duration = setting(
        10.0, "maximum time that a commit waits for the standby", edge="senders get 503", least=1
    )
    node_name: str = setting("", "name under which this node is shown; empty for the machine's name")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
    """Limits of the queue on disk and of waiting items, and retention times."""

    max_bytes: Size = setting(
        10 * GIB,
        "maximum disk space of the queue; with PostgreSQL it is required and must not exceed 60 % of "
        "the database's disk",
        edge=(
            "undelivered records fill the queue: senders get 503 with `Retry-After`, estimated from the "
            "speed of delivery"
        ),
        least=16 * MIB,
    )
    retention: Duration = setting(
        7 * DAY_S, "how long records stay available for replay after they were delivered and counted"
    )
    hold: Duration = setting(
        10.0,
        "waiting time: how long a record stays open for further reports of its call; must be shorter "
        "than `spool.retention`",
    )
    late_window: Duration = setting(
        3600.0,
        "how long after a record was closed a later report can still correct it, at most one day; "
        "delivered records are retained at least for this time plus `spool.hold`, even if "
        "`spool.retention` is shorter",
        edge=(
            "a report that arrives later, or whose record was deleted for lack of space, counts as a "
            "repeat that was not compared: `tollhouse_records_uncompared_total`"
        ),
        least=0,
    )
    duplicate_window: Duration = setting(
        7 * DAY_S, "how long the ids of calls are remembered to recognize repeated reports"
    )
    duplicate_ids: int = setting(
        10_000_000,
        "maximum number of ids of calls to remember",
        edge=(
            "the oldest ids are forgotten; `tollhouse_duplicate_window_seconds` shows how far back the "
            "remaining ids reach"
        ),
        least=1,
    )
    pending_window: Duration = setting(600.0, "how long a partial report waits for the rest of its call")
    pending_items: int = setting(
        20_000,
        "maximum number of waiting partial reports; the same maximum applies to waiting counters",
        edge="the oldest reports of the Tollhouse key with the most waiting reports are recorded as they are",
        least=1,
    )
    pending_bytes: Size = setting(
        16 * MIB,
        "maximum bytes of waiting partial reports; the same maximum applies to waiting counters",
        edge="the oldest reports of the Tollhouse key with the most waiting reports are recorded as they are",
    )
    pending_spans: int = setting(
        200_000,
        "maximum number of spans of the last day that may link a model call to its agent's run",
        edge="the oldest spans of the Tollhouse key with the most spans are forgotten; their calls may get no run",
        least=1,
    )
    max_senders: int = setting(
        400_000,
        "maximum number of sessions, users, traces and services that sent calls in the last hour; "
        "they are remembered to recognize counters that repeat these calls",
        edge=(
            "the oldest senders of the Tollhouse key with the most senders are forgotten, so later counters are "
            "counted in addition to the calls that they repeat"
        ),
        least=1,
    )
    max_series: int = setting(
        1_000_000,
        "maximum number of series of cumulative counters to remember; a series without reports for "
        "30 days is forgotten",
        edge=(
            "the series without reports for the longest time are forgotten; if one is reported again, "
            "its first point does not count"
        ),
        least=1,
    )
    counter_wait: Duration = setting(90.0, "how long a counter waits for the calls that it may repeat")
    commit_gather: Duration = setting(
        0.005,
        "minimum time from the start of a commit with several requests to the next commit, so that "
        "more requests share a flush; a lone sender never waits for it",
        least=0,
    )
    commit_wait: Duration = setting(
        10.0,
        "how long a request waits for a disk or a database that does not respond",
        edge=(
            "requests that wait behind a hanging commit get 503 and are not stored; see [disk and "
            "clock](operations/disk-and-clock.md). With PostgreSQL, the requests in that commit also get 503. They "
            "may be stored nevertheless, and a repeated request counts once"
        ),
        least=1,
    )
    waiting_submissions: int = setting(
        10_000,
        "maximum number of requests that wait for a commit",
        edge="a further request gets 503 with `Retry-After`",
        least=1,
    )
    clock_step: Duration = setting(
        300.0, "largest change of the wall clock that is accepted at once", least=1
    )
    clock_hold: Duration = setting(
        3600.0, "how long a larger change of the wall clock must last before it is accepted"
    )
    max_dead_letters: int = setting(
        MAX_DEAD_LETTERS,
        "maximum number of rejected records (dead letters) per route",
        edge="the route is paused until they are retried or discarded, so none is lost",
        least=1,
    )
    max_streams: int = setting(
        1000,
        "maximum number of unit-cost streams",
        edge="a new stream is refused with 429; no key can create more streams than it leaves for other keys",
        least=2,
    )
    max_stream_bytes: Size = setting(
        GIB,
        "maximum bytes of the totals of unit-cost streams, in addition to `spool.max_bytes`",
        edge="new records are refused with 429; the streams of one key get at most half of what other keys leave free",
        least=MIB,
    )
    stream_retention: Duration = setting(
        400 * DAY_S, "how long totals of unit-cost streams are retained; not shorter than `spool.retention`"
    )

    @property
    def retention_s(self) -> float:
        """Return the seconds for which delivered records are retained, if there is space."""
        return max(self.retention, self.hold + self.late_window)

    def problems(self, _: str) -> Iterator[str]:
        if self.late_window > DAY_S:
            yield "spool.late_window must be at most 1d"
        if self.hold >= self.retention:
            yield "spool.hold must be shorter than spool.retention, or records expire before they are sent"
        if self.stream_retention < self.retention:
            yield "spool.stream_retention must not be shorter than spool.retention"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerPrice:
    """
    Hourly prices for nodes of your clusters, in dollars. The first entry that matches a node applies. Without
    any entry, metrics are not read: [usage as cost](clusters/container-metrics.md#usage-as-cost).
    """

    cluster: str = setting("*", "pattern for cluster names; `*` matches any text")
    node: str = setting("*", "pattern for node names; `*` matches any text")
    cpu_hour: Decimal = setting(Decimal(0), "price of a CPU core per hour")
    memory_hour: Decimal = setting(Decimal(0), "price of a GiB of memory per hour")
    gpu_hour: Decimal = setting(Decimal(0), "price of a graphics processor per hour")

    def problems(self, setting_path: str) -> Iterator[str]:
        hours = (self.cpu_hour, self.memory_hour, self.gpu_hour)
        if not any(hours) or not all(hour.is_finite() and 0 <= hour <= MOST_HOUR for hour in hours):
            yield f"{setting_path} needs cpu_hour, memory_hour or gpu_hour, in dollars from 0 to {MOST_HOUR}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """
    Container metrics: files and remote-write bodies from cluster agents, stored on disk until your cost
    service has them.
    """

    max_file_bytes: Size = setting(
        64 * MIB, "maximum bytes of one file or body", edge="a larger one is refused with 413", least=KIB
    )
    max_cluster_bytes: Size = setting(
        2 * GIB,
        "maximum bytes of the files of one cluster, per key that sends for it",
        edge="the oldest delivered files are deleted; if all files wait, senders get 503 with `Retry-After`",
        least=KIB,
    )
    max_bytes: Size = setting(
        8 * GIB,
        "maximum bytes of the files of all clusters, in addition to `spool.max_bytes`",
        edge=(
            "the oldest delivered files of the key with the most stored bytes are deleted; if all files wait, senders "
            "get 503 with `Retry-After`. The waiting files of one key get at most half of what other keys leave free"
        ),
        least=KIB,
    )
    max_files: int = setting(
        100_000,
        "maximum number of files that are remembered by their reference",
        edge=(
            "the oldest finished files are forgotten; if all files wait, senders get 503. The waiting files of "
            "one key get at most half of what other keys leave free"
        ),
        least=2,
    )
    retention: Duration = setting(7 * DAY_S, "how long delivered files are retained for a replay")
    upload_url: str = setting(
        "", "address at which agents reach this server; empty for the address that they used"
    )
    max_series: int = setting(
        200_000,
        "maximum number of series, and of pods, of one cluster that are added up at once",
        edge="further series are left out of the costs, and the log states their number",
        least=1,
    )
    price: tuple[ContainerPrice, ...] = setting(
        (), "prices of nodes; with at least one, container usage is a cost"
    )

"""The types of configuration values that every package shares, and the [spool] section."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

KIB, MIB, GIB = 1024, 1024**2, 1024**3
DAY_S = 86400.0
MAX_DEAD_LETTERS = 10_000
MOST_HOUR = 1_000_000  # dollars, for what one node has
MAX_SENDERS = "spool.max_senders"
MAX_SERIES = "spool.max_series"
COUNTED_ITEMS = "spool.pending_items, counted"  # counters that may be taken back

Size = Annotated[int, "size"]  # bytes, written as 64MiB, 4MiB, 10GiB or a plain number
Duration = Annotated[float, "duration"]  # seconds, written as 10s, 500ms, 5m, 1h, 7d or a plain number

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the configuration reference says of a key, and what its values must keep to."""

    words: str
    edge: str = ""  # what happens at the limit that the key sets
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
    """The field of a configuration key, with its `Setting`; a secret one is not part of the section's repr."""
    metadata = {"setting": Setting(words=words, edge=edge, choices=choices, least=least)}
    options: dict[str, Any] = {"metadata": metadata, "repr": not secret}
    if isinstance(default, dict):
        return cast("Value", field(default_factory=default.copy, **options))
    return field(default=default, **options)


LOCK_FILE = "lock"  # in a data directory; a process that works on it holds a lock on this file
SQLITE, POSTGRES = "sqlite", "postgres"
REPLICATED, PLATFORM, LOCAL = "replicated", "platform", "local"
NO_POOLER, TRANSACTION = "none", "transaction"
SHARED = (
    "hold",
    "duplicate_window",
    "duplicate_ids",
    "retention",
)  # of [spool]: the same on all nodes of one storage


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageSettings:
    """Which engine keeps everything: files in `data_dir`, or a PostgreSQL that several gateways share."""

    engine: str = setting(SQLITE, "files in `data_dir`, or PostgreSQL", choices=(SQLITE, POSTGRES))
    dsn_file: Path | None = setting(
        None, "a file with the address of the PostgreSQL in libpq's form, such as `host=a,b dbname=tollhouse`"
    )
    dsn_env: str = setting("", "or the environment variable that holds it")
    schema: str = setting("tollhouse", "the schema in that database; one installation has it for itself")
    secret_file: Path | None = setting(
        None, "the installation's secret, the same file on every node; `tollhouse storage init` makes it"
    )
    durability: str = setting(
        REPLICATED,
        "what stands behind a 2xx: a synchronous standby (nothing is kept without one), a platform that "
        "replicates by "
        "itself, or the disk of one machine",
        choices=(REPLICATED, PLATFORM, LOCAL),
    )
    pooler: str = setting(
        NO_POOLER,
        "`transaction`: between Tollhouse and PostgreSQL is a pgbouncer",
        choices=(NO_POOLER, TRANSACTION),
    )
    commit_timeout: Duration = setting(10.0, "how long a commit waits for the standby", edge="503", least=1)
    node_name: str = setting("", "how this node is shown; empty: the name of the machine")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSettings:
    """What is kept, for how long, and what waits."""

    max_bytes: Size = setting(
        10 * GIB,
        "disk space of the spool; with PostgreSQL it must be set, to at most 60 % of the disk of the "
        "database",
        edge="undelivered records fill the spool: 503 with `Retry-After` from the rate at which it drains",
        least=16 * MIB,
    )
    retention: Duration = setting(
        7 * DAY_S, "how long records stay for replay after they were delivered and counted"
    )
    hold: Duration = setting(
        10.0,
        "how long a record is open for a second report of its call; must be shorter than `spool.retention`",
    )
    late_window: Duration = setting(
        3600.0,
        "how long after a record closed a later report of its call still corrects it; delivered records stay at least "
        "this long and `spool.hold`, whatever `spool.retention` says; at most a day",
        edge="a report that comes later, or finds the record removed for want of room, is a repeat that was not "
        "compared: `tollhouse_records_uncompared_total`",
        least=0,
    )
    duplicate_window: Duration = setting(
        7 * DAY_S, "how long the ids of calls are known, to recognise repeats"
    )
    duplicate_ids: int = setting(
        10_000_000,
        "how many ids of calls are known",
        edge="the oldest go; `tollhouse_duplicate_window_seconds` says how far back the others reach",
        least=1,
    )
    pending_window: Duration = setting(600.0, "how long a partial report waits for the rest of its call")
    pending_items: int = setting(
        20_000,
        "partial reports that wait, and as many counters",
        edge="the oldest of the key with the most are put on record as they are",
        least=1,
    )
    pending_bytes: Size = setting(
        16 * MIB,
        "bytes of partial reports that wait, and as many of counters",
        edge="the oldest of the key with the most are put on record as they are",
    )
    max_senders: int = setting(
        400_000,
        "sessions, users, traces and services of calls of the last hour that are known, so that counters beside them "
        "are recognised as repeats",
        edge="the oldest of the key with the most are forgotten: counters that come later count beside their calls",
        least=1,
    )
    max_series: int = setting(
        1_000_000,
        "cumulative counters that are known, each by its series; one that is silent for thirty days is forgotten",
        edge="those that were silent longest are forgotten; if one is reported again, its first point does not count",
        least=1,
    )
    counter_wait: Duration = setting(90.0, "how long a counter waits for the calls that it may repeat")
    commit_gather: Duration = setting(
        0.005,
        "the least time between two commits of which the first held several requests: more of them share a "
        "flush; "
        "a sender that is alone never waits for it",
        least=0,
    )
    commit_wait: Duration = setting(
        10.0,
        "how long a request waits for a disk or a database that does not answer",
        edge="what waits behind a commit that hangs: 503, and not kept; see [disk and clock](disk-and-clock.md). With "
        "PostgreSQL what is in that commit, too: it may be kept, and a repeat counts once",
        least=1,
    )
    waiting_submissions: int = setting(
        10_000, "requests that wait for a commit", edge="one more: 503 with `Retry-After`", least=1
    )
    clock_step: Duration = setting(
        300.0, "a move of the wall clock by more than this is not believed at once", least=1
    )
    clock_hold: Duration = setting(3600.0, "how long a moved wall clock must stand before it is believed")
    max_dead_letters: int = setting(
        MAX_DEAD_LETTERS,
        "dead letters of one route",
        edge="the route parks until they are retried or discarded, and none is lost",
        least=1,
    )
    max_streams: int = setting(
        1000,
        "unit-cost streams",
        edge="a new one gets 429; no key creates more than it leaves for others",
        least=2,
    )
    max_stream_bytes: Size = setting(
        GIB,
        "totals of unit-cost streams, in addition to `spool.max_bytes`",
        edge="new records get 429; no key's streams get more than they leave free",
        least=MIB,
    )
    stream_retention: Duration = setting(
        400 * DAY_S, "how long totals of unit-cost streams are kept; not shorter than `spool.retention`"
    )

    @property
    def retention_s(self) -> float:
        """Seconds for which delivered records stay while there is room."""
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
    What an hour on nodes of your clusters costs, in dollars. Of several that fit the first holds; without any,
    metrics are not read: [usage as cost](container-metrics.md#usage-as-cost).
    """

    cluster: str = setting("*", "names of clusters; `*` stands for anything")
    node: str = setting("*", "names of nodes")
    cpu_hour: Decimal = setting(Decimal(0), "for a core")
    memory_hour: Decimal = setting(Decimal(0), "for a GiB of memory")
    gpu_hour: Decimal = setting(Decimal(0), "for a graphics processor")

    def problems(self, at: str) -> Iterator[str]:
        hours = (self.cpu_hour, self.memory_hour, self.gpu_hour)
        if not any(hours) or not all(each.is_finite() and 0 <= each <= MOST_HOUR for each in hours):
            yield f"{at} needs cpu_hour, memory_hour or gpu_hour, in dollars from 0 to {MOST_HOUR}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """Container metrics: files and bodies of clusters' agents, kept on disk until the upstream has them."""

    max_file_bytes: Size = setting(64 * MIB, "bytes of one file or body", edge="a larger one: 413", least=KIB)
    max_cluster_bytes: Size = setting(
        2 * GIB,
        "bytes of the files of one cluster, of each key that sends for it",
        edge="delivered files go, the oldest first; if all wait: 503 with `Retry-After`",
        least=KIB,
    )
    max_bytes: Size = setting(
        8 * GIB,
        "bytes of the files of all clusters, in addition to `spool.max_bytes`",
        edge="delivered files go, the oldest of the key with the most first; if all wait: 503 with `Retry-After`. No "
        "key has more that wait than it leaves free",
        least=KIB,
    )
    max_files: int = setting(
        100_000,
        "files that are known by their reference",
        edge="the oldest that are done are forgotten; if all wait: 503. No key has more that wait than it leaves free",
        least=2,
    )
    retention: Duration = setting(7 * DAY_S, "how long files stay for a replay after they were delivered")
    upload_url: str = setting(
        "", "the address at which agents reach this server; empty: the one that they asked"
    )
    max_series: int = setting(
        200_000,
        "series of one cluster that are added up at once, and its pods",
        edge="further ones are in no costs, and the log says how many",
        least=1,
    )
    price: tuple[ContainerPrice, ...] = setting(
        (), "what nodes cost; with one, usage of containers is a cost"
    )

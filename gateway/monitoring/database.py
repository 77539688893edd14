"""A database that gateways share, as `/metrics` shows it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from spool.storage import DatabaseHealth, Standby


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFigure:
    """One metric: each of `values` under the value of its one label, "" without a label."""

    name: str
    help: str
    values: Sequence[tuple[str, float]]
    label: str = ""
    is_counter: bool = False


def figures(health: DatabaseHealth) -> Iterator[DatabaseFigure]:
    """
    Yield the figures of the database. Values that its role may not see have none, nor do standbys if
    none is needed.
    """
    if health.standbys is not None:
        yield from _standbys(health.standbys, needs_standby=health.needs_standby)
    yield _figure("postgres_standby_waits", "Commits that wait for a standby", health.standby_waits)
    yield _figure(
        "postgres_standby_wait_seconds", "How long the longest of them waits", health.standby_wait_s
    )
    yield _figure(
        "postgres_head_waits", "Gateways that wait until another one has committed", health.head_waits
    )
    yield _figure("postgres_head_wait_seconds", "How long the longest of them waits", health.head_wait_s)
    oldest_s = health.oldest_transaction_s
    if oldest_s is not None:
        yield _figure(
            "postgres_oldest_transaction_seconds", "Age of the oldest transaction in the database", oldest_s
        )
    yield _figure("postgres_connections", "Connections of all that use the server", health.connections)
    yield _figure("postgres_max_connections", "How many it takes", health.max_connections)
    yield DatabaseFigure(
        name="postgres_connect_failures",
        help="Attempts of this gateway to connect that failed",
        values=[("", health.failed_connections)],
        is_counter=True,
    )
    yield _figure("nodes", "Gateways that share the storage", health.nodes)
    yield DatabaseFigure(
        name="leases",
        help="Routes and tasks of one gateway at a time: held, or free while nobody runs them",
        values=[("held", health.leases_held), ("free", health.leases_free)],
        label="state",
    )
    yield _figure(
        "postgres_reporters",
        "Senders of calls that the database remembers, for counters beside them",
        health.reporters,
    )


def _standbys(standbys: Sequence[Standby], *, needs_standby: bool) -> Iterator[DatabaseFigure]:
    if needs_standby:
        synchronous = sum(one.is_synchronous for one in standbys)
        yield _figure(
            "postgres_synchronous_standbys", "Standbys that are there and confirm commits", synchronous
        )
    yield DatabaseFigure(
        name="postgres_standby_lag_bytes",
        help="What it has not flushed",
        values=[(one.name, one.lag_bytes) for one in standbys],
        label="standby",
    )
    yield DatabaseFigure(
        name="postgres_standby_lag_seconds",
        help="How far it is behind",
        values=[(one.name, one.lag_s) for one in standbys],
        label="standby",
    )


def _figure(name: str, help: str, value: float) -> DatabaseFigure:
    return DatabaseFigure(name=name, help=help, values=[("", value)])

"""
Records of every kind that earlier versions kept, on SQLite and PostgreSQL: they are there after the upgrade, and are
known when they come again.
"""

from __future__ import annotations

import asyncio
import lzma
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from gateway.app import App
from gateway.configuration.sections import Config
from spool.engines import POSTGRES, SQLITE
from spool.ledger.queries import CostRow
from spool.storage import Storage
from tests.faults.damage import config
from tests.faults.kinds.every_kind import kinds, spent, write
from tests.faults.scenarios import Trial
from tests.faults.test_upgrade import LAST_USED, key_in_use, unpack
from tests.spool.postgres_cluster import Schema

EARLIER = Path(__file__).parents[1] / "earlier"
# Versions of spool.sqlite, and of the schema of PostgreSQL that was current at the same time as one of them.
ON_SQLITE = [(SQLITE, version, version) for version in (11, 12, 13, 14)]
KEPT = [*ON_SQLITE, (POSTGRES, 11, 3), (POSTGRES, 12, 4), (POSTGRES, 14, 7)]
MADE_AT = datetime(2026, 11, 23, 21, tzinfo=UTC).timestamp() - time.monotonic()
CORRECTIONS, CURRENCIES = 12, 13  # the first versions that kept them
pytestmark = pytest.mark.fault("F22")


def restore(schema: Schema, version: int) -> None:
    """What pg_dump made of a schema of that version."""
    dump = lzma.decompress((EARLIER / f"postgres-v{version}.sql.xz").read_bytes()).decode()
    statements = dump.replace("earlier.", f"{schema.name}.").replace(
        "SCHEMA earlier;", f"SCHEMA {schema.name};"
    )
    with psycopg.connect(schema.dsn, autocommit=True) as connection:
        connection.execute(statements.encode())


def kept(version: int) -> dict[str, int]:
    """24 calls by HTTP, and what `every_kind.write` told as far as the version knew it."""
    more = {"correction": 1} if version >= CORRECTIONS else {}
    calls = 24 + (4 if version >= CURRENCIES else 3)
    others = dict.fromkeys(("usage_metric", "usage_event", "unit_cost", "billing_drop"), 1)
    return {"inference": calls, **others, **more}


def sums(version: int) -> tuple[str, int, int, dict[str, str]]:
    """
    Dollars, calls, input tokens and other money. 24 calls have 101 to 124 tokens, at 2.50 a million, and 20 out at
    10.00: 0.00675 + 0.0048. One was reported with 0.25 and 100 tokens; the counter has 7. The correction is 0.5 and
    100 tokens for a call without usage. The call in euros has 100.
    """
    is_corrected, has_euros = version >= CORRECTIONS, version >= CURRENCIES
    cost = "0.76155" if is_corrected else "0.26155"
    tokens = 2700 + 100 + 7 + 100 * is_corrected + 100 * has_euros
    return cost, 24 + 2 + has_euros, tokens, {"EUR": "2"} if has_euros else {}


def shown(row: CostRow) -> tuple[str, int, int, dict[str, str]]:
    return row.cost, row.calls, row.input_tokens, dict(row.charges)


def configured(engine: str, schema: Schema, directory: Path, stored: int) -> Config:
    """Where a gateway finds what the version of that engine left."""
    directory.mkdir()
    if engine == SQLITE:
        return config(unpack(EARLIER / f"v{stored}.tar.xz", directory), archive=False)
    restore(schema, stored)
    return replace(config(directory / "data", archive=False), storage=schema.settings(directory))


async def found(storage: Storage) -> tuple[dict[str, int], tuple[str, int, int, dict[str, str]], list[str]]:
    """What is kept, the sums, and what is wrong with the books."""
    log, ledger = storage.log, storage.ledger
    return dict(await kinds(log)), shown(await spent(ledger, log)), list((await log.verify()).imbalances)


class LaterClock:
    """
    Goes on an hour after the youngest directory and dump were made: what has no time of its own is known again for a
    day, whenever this test runs.
    """

    def now(self) -> float:
        return MADE_AT + time.monotonic()

    def monotonic(self) -> float:
        return time.monotonic()


async def opened(upgraded: Config, version: int) -> None:
    app = App(upgraded, version="0", clock=LaterClock())
    await app.start()
    try:
        storage = app.services.storage
        assert (kept(version), sums(version), []) == await found(storage)
        await write(storage.log)
        assert (kept(CURRENCIES), sums(CURRENCIES), []) == await found(storage)
    finally:
        await app.stop()


@pytest.mark.parametrize(("engine", "version", "stored"), KEPT)
def test_records_of_every_kind_are_upgraded(
    engine: str, version: int, stored: int, unmade_schema: Schema, trial: Trial, tmp_path: Path
) -> None:
    """
    Calls, meters, money of other currencies, corrections, counters, events, unit cost and drops are there with their
    sums. The same reports add what the earlier version could not keep, and nothing else.
    """
    for place in range(len(list(trial.rounds(short=1, full=1)))):
        upgraded = configured(engine, unmade_schema, tmp_path / f"at-{place}", stored)
        asyncio.run(opened(upgraded, version))
        trial.count(acknowledged=sum(kept(version).values()))


def test_the_key_of_a_file_stays_in_use_on_postgresql(
    unmade_schema: Schema, trial: Trial, tmp_path: Path
) -> None:
    """As on SQLite: no request is refused by the upgrade, and what was noted of its last use is kept."""
    for place in range(len(list(trial.rounds(short=1, full=1)))):
        upgraded = configured(POSTGRES, unmade_schema, tmp_path / f"at-{place}", 3)
        with psycopg.connect(unmade_schema.dsn, autocommit=True) as connection:
            noted = f"INSERT INTO {unmade_schema.name}.registry_facts (name, value) VALUES (%s, %s)"
            connection.execute(noted.encode(), ("legacy_last_accessed", repr(LAST_USED)))
        assert (LAST_USED, [200, 200, 200, 401]) == asyncio.run(key_in_use(upgraded))
        assert [401] * 3 == asyncio.run(key_in_use(upgraded))[1][:3]
        trial.count(acknowledged=3)

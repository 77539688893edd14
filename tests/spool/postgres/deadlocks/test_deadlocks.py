"""Several gateways do everything at once on one database, without deadlocks, and the accounting agrees."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from spool.clock import SystemClock
from spool.container_files.container_rows import ContainerFileMoved
from spool.engines import POSTGRES, open_storage
from spool.errors import SpoolError
from spool.ledger.queries import CostQuery
from spool.postgres.log.log import PostgresLog
from spool.postgres.migrations import migrate_schema
from spool.record import AI_TELEMETRY
from spool.settings import SpoolSettings
from spool.storage import StorageOptions
from tests.rounds import IS_LONG
from tests.spool.contract.examples import assert_books_balance
from tests.spool.postgres.deadlocks.verbs import ROUTES, VERBS, Gateway
from tests.spool.postgres_cluster import Schema, Server

GATEWAYS, TASKS = 3, 4  # number of gateways, and of tasks on each
LONG_S = 60.0
# These errors are expected, because another task may have changed the row meanwhile. The database itself may
# only report a wait for a lock.
EXPECTED = (SpoolError, ContainerFileMoved)
# This trigger delays some row writes, so that transactions overlap while they hold a few rows.
HESITATE = """
    CREATE FUNCTION {schema}.hesitate() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
      IF random() < 0.05 THEN PERFORM pg_sleep(0.002); END IF;
      IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
      RETURN NEW;
    END $$;
    DO $$
    DECLARE made record;
    BEGIN
      FOR made IN SELECT c.oid::regclass AS name FROM pg_class c WHERE c.relnamespace = '{schema}'::regnamespace
                     AND c.relkind IN ('r', 'p') AND NOT c.relispartition
      LOOP
        EXECUTE format('CREATE TRIGGER hesitate BEFORE INSERT OR UPDATE OR DELETE ON %s'
                       ' FOR EACH ROW EXECUTE FUNCTION {schema}.hesitate()', made.name);
      END LOOP;
    END $$"""
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
ALL = CostQuery(
    since=datetime(2000, 1, 1, tzinfo=UTC),
    until=datetime(2100, 1, 1, tzinfo=UTC),
    granularity="total",
    group_by=["user"],
)


async def test_no_verbs_wait_for_each_other(
    unmade_schema: Schema, cluster: Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Every acknowledged call counts once, and the server ended no transaction as a deadlock."""
    seed = int(os.environ.get("TOLLHOUSE_DEADLOCKS_SEED") or (random.randrange(10**6) if IS_LONG else 1))
    print(f"TOLLHOUSE_DEADLOCKS_SEED={seed}")
    before = cluster.execute(DEADLOCKS)
    database = unmade_schema.database()
    await migrate_schema(database)
    await database.close()
    cluster.execute(HESITATE.replace("{schema}", unmade_schema.name))
    async with AsyncExitStack() as stack:
        gateways = []
        for n in range(GATEWAYS):
            options = StorageOptions(
                directory=tmp_path / str(n),
                settings=SpoolSettings(hold=0, retention=2.0, max_bytes=200_000),
                clock=SystemClock(),
                storage=unmade_schema.settings(tmp_path),
            )
            storage = await open_storage(options, engine=POSTGRES)
            stack.push_async_callback(storage.close)
            gateways.append(Gateway(storage, random.Random(f"{seed} {n}")))
        await gateways[0].storage.deliveries.set_routes(ROUTES)
        done, refused = Counter[str](), Counter[str]()
        ends_at = time.monotonic() + LONG_S if IS_LONG else None

        async def work(gateway: Gateway, steps: int) -> None:
            while steps > 0 if ends_at is None else time.monotonic() < ends_at:
                steps -= 1
                verb = gateway.chance.choice(VERBS)
                try:
                    await verb(gateway)
                except EXPECTED as error:
                    refused[f"{verb.__name__}: {type(error).__name__}: {error}"[:100]] += 1
                else:
                    done[verb.__name__] += 1

        await asyncio.gather(*(work(gateway, 15) for gateway in gateways for _ in range(TASKS)))
        print(dict(done), dict(refused))
        found = [vars(record) for record in caplog.records if getattr(record, "action", "") == "deadlock"]
        assert [] == [record["where"] for record in found]
        acknowledged = set().union(*(gateway.acknowledged for gateway in gateways))
        for gateway in gateways:
            log = gateway.storage.log
            assert isinstance(log, PostgresLog)
            await log.read_foreign_commits()
            await log.close_due_records()  # this commit confirms the newest commit before it
            assert log.next_number(AI_TELEMETRY) == log.lowest_open_number(AI_TELEMETRY)
            await gateway.storage.ledger.catch_up(log)
            await assert_books_balance(log)
            counted = {row.group[0]: row.calls for row in await gateway.storage.ledger.costs(ALL)}
            assert acknowledged and {f"u{n}": 1 for n in acknowledged}.items() <= counted.items()
            assert {1} == {calls for user, calls in counted.items() if user}
            assert () == (await gateway.storage.container_files.recount_accounting()).imbalances
    assert before == cluster.execute(DEADLOCKS)

"""Two gateways on one database, used at random, return the same as one log in memory."""

from __future__ import annotations

import asyncio
import random

from hypothesis import HealthCheck, settings
from hypothesis.stateful import rule, run_state_machine_as_test

import spool.sqlite.in_memory
from spool.postgres.leases import PostgresLeases
from spool.postgres.migrations import migrate_schema
from spool.postgres.storage import PostgresSpool, open_spool
from spool.settings import LOCAL
from tests.moved_clock import MovedClock
from tests.rounds import reduced
from tests.spool.contract.examples import NOON
from tests.spool.contract.test_machine import SETTINGS, Engines
from tests.spool.postgres_cluster import Schema, Schemas

SECRET = b"s" * 32


class Nodes(Engines):
    """The state machine of the contract, on one of two nodes at each step."""

    schemas: Schemas  # the schemas of the test session

    def __init__(self) -> None:
        super(Engines, self).__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = MovedClock(NOON)
        self.schema: Schema = self.schemas.take()
        self.chance = random.Random(0)
        self.nodes = [self.run(self._open(name)) for name in ("one", "other")]
        self.memory = self.run(spool.sqlite.in_memory.open_spool(settings=SETTINGS, clock=self.clock))

    async def _open(self, name: str) -> PostgresSpool:
        database = self.schema.database(clock=self.clock)
        await migrate_schema(database)
        leases = PostgresLeases(database, self.clock, name=name, version="0")
        return await open_spool(
            database, settings=SETTINGS, clock=self.clock, secret=SECRET, leases=leases, durability=LOCAL
        )

    async def _close(self, node: PostgresSpool) -> None:
        await node.close()
        await node.deliveries._leases.close()
        await node.database.close()

    @property
    def disk(self) -> PostgresSpool:  # type: ignore[override]
        """
        Return the node for this step, after it has followed the other one, as each does ten times a second.
        """
        node = self.chance.choice(self.nodes)
        self.run(node.log.read_foreign_commits())
        return node

    @rule()
    def the_process_is_killed(self) -> None:
        """Close one node, and open another in its place."""
        place = self.chance.randrange(2)
        self.run(self._close(self.nodes[place]))
        self.nodes[place] = self.run(self._open(f"later {place}"))

    def teardown(self) -> None:
        for node in self.nodes:
            self.run(self._close(node))
        self.run(self.memory.close())
        self.loop.close()
        self.schemas.give_back(self.schema)


def test_two_gateways_do_what_one_does(schemas: Schemas) -> None:
    """
    Two gateways do the same as one log in memory. The steps are reports, deliveries, decisions, replays and
    retention on either gateway.
    """
    Nodes.schemas = schemas
    run_state_machine_as_test(
        Nodes,
        settings=settings(
            max_examples=reduced(4, by=2),
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

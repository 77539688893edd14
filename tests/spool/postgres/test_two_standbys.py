"""Two synchronous standbys (`ANY 2 (a, b)`, `2 (a, b)`): a 2xx means that both have the records."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest

from spool.errors import SpoolUnavailable
from spool.settings import LOCAL, REPLICATED
from tests.spool.contract.examples import add, assert_books_balance, call, everything
from tests.spool.postgres.test_log_replication import PATIENT, open_node, send, terms_of
from tests.spool.postgres_cluster import PATIENCE, STANDBY, Pair, folder, run
from tests.waiting import until

SECOND = "second"
WAITED_FOR = "SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')"


class TwoStandbys(Pair):
    """A pair with a second standby. Every commit waits for both."""

    def start(self) -> None:
        super().start()
        self.second = self.standby_named(SECOND)
        self.copy_to(self.second)
        self.second.start()

    @property
    def dsn(self) -> str:
        ports = f"{self.primary.port},{self.standby.port},{self.second.port}"
        return (
            f"host=127.0.0.1,127.0.0.1,127.0.0.1 port={ports} user=tollhouse dbname=postgres sslmode=disable"
        )

    def stop(self) -> None:
        if self.second.is_running:
            self.second.stop()
        super().stop()


@pytest.fixture
def standbys() -> Iterator[TwoStandbys]:
    with folder() as path:
        made = TwoStandbys(path)
        made.start()
        try:
            yield made
        finally:
            made.stop()


@pytest.mark.proves("two standbys")
async def test_each_of_two_standbys_could_take_over(standbys: TwoStandbys) -> None:
    """
    While one standby is away, nothing is acknowledged. After the primary is killed under load, each standby
    has every acknowledged record once.
    """
    both = (standbys.standby, standbys.second)
    async with AsyncExitStack() as stack:
        await wait_for_both(standbys, f"ANY 2 ({STANDBY}, {SECOND})")
        patient = await open_node(stack, standbys, durability=REPLICATED, **PATIENT)
        assert "replicated" == (await add(patient, call(0))).durability
        one, other = [await open_node(stack, standbys, durability=REPLICATED) for _ in range(2)]
        for number, server in enumerate(both, start=1):
            server.stop()
            for node in (one, other):
                with pytest.raises(SpoolUnavailable):
                    await add(node, call(number))
            server.start()
            assert 1 == sum(term == 1 for term in await terms_of(one, number))
        await wait_for_both(standbys, f"2 ({STANDBY}, {SECOND})")
        kept: dict[int, list[int]] = {1: [], 2: []}
        sending = [
            asyncio.create_task(send(node, begin, kept[begin])) for begin, node in ((1, one), (2, other))
        ]
        while min(map(len, kept.values())) < 20:  # noqa: ASYNC110 - each of them counts
            await asyncio.sleep(0.01)
        await asyncio.to_thread(standbys.primary.stop)
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        acknowledged = {call(number)[1].id for number in (0, 1, 2, *kept[1], *kept[2])}
        for server in both:
            await asyncio.to_thread(run, "pg_ctl", "-D", str(server.folder), *PATIENCE, "promote")
            alone = await open_node(stack, server, durability=LOCAL, **PATIENT)
            ids = [record.id for record in await everything(alone) if record is not None]
            assert acknowledged - set(ids) == set()
            assert len(ids) == len(set(ids))
            await assert_books_balance(alone)


async def wait_for_both(standbys: TwoStandbys, names: str) -> None:
    """Make commits wait for both standbys, and wait until both are connected."""
    await asyncio.to_thread(standbys.primary.change, synchronous_standby_names=names)

    async def are_connected() -> bool:
        return [(2,)] == await asyncio.to_thread(standbys.primary.execute, WAITED_FOR)

    await until(are_connected, "both standbys are connected")

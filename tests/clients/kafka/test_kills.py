"""
A gateway is killed repeatedly at random steps of its deliveries, next to a broker that is killed as well.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path
from random import Random
from signal import SIGKILL

import pytest

from tests.clients import environments
from tests.clients.kafka import broker as brokers
from tests.clients.kafka import victim
from tests.clients.kafka.broker import Broker
from tests.clients.kafka.test_kafka import found, verified
from tests.exporters.clickhouse.test_kills import ended
from tests.free_ports import free_port
from tests.integration.lake.lakes import opened
from tests.processes.copied import start_process
from tests.rounds import IS_LONG

pytestmark = pytest.mark.clients
SEEDS = range(20 if IS_LONG else 2)
MOST_STEPS = 24  # maximum number of steps before a kill; all deliveries together take 80 steps


async def lives(broker: Broker, data: Path, rng: Random, cwd: Path) -> tuple[int, int]:
    """
    Start the gateway until one ends by itself; return how many were killed, and how often the broker was.
    """
    killed = broker_killed = 0
    while True:
        steps = str(rng.randint(1, MOST_STEPS))
        words = ("-m", "tests.clients.kafka.victim", str(data), broker.address, steps)
        process = start_process([sys.executable, *words], cwd=cwd, is_read=True)
        ending = asyncio.create_task(asyncio.to_thread(ended, process))
        if killed == 1:  # the broker is killed only once, while this gateway runs or after it was killed
            broker.kill()
            broker.start()
            await broker.until_ready()
            broker_killed += 1
        said, errors, status = await ending
        if said == "done\n":
            return killed, broker_killed
        assert said == "", errors
        assert -SIGKILL == status, errors
        killed += 1


@pytest.mark.parametrize("seed", SEEDS)
async def test_kills_at_random_steps_lose_no_message_and_repeat_none(seed: int, tmp_path: Path) -> None:
    """
    After the kills, the topic equals the accounting: a consumer of committed messages sees each number once, and
    `lake verify` finds nothing.
    """
    directory = tmp_path / "broker"
    directory.mkdir()
    with brokers.running(Broker(environments.java("kafka"), directory, free_port())) as broker:
        await broker.until_ready(*brokers.topics())
        data = tmp_path / "data"
        killed, broker_killed = await lives(broker, data, Random(seed), tmp_path)
        assert Counter(range(1, victim.RECORDS + 1)) == await found(broker)
        async with opened(data) as house:
            assert {"delivered": victim.RECORDS} == await house.terms()
        assert [] == await verified(broker, tmp_path, "--data")
    assert killed > 0
    print(f"seed {seed}: {killed} kills, {broker_killed} of the broker")

"""Records in a topic of a real broker: a consumer of committed messages sees each once."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest
from aiokafka.admin import NewTopic
from click.testing import CliRunner

from exporters.destinations.catalogue import TYPES, destination_secret
from exporters.lake import watch
from exporters.probe import OK, REFUSED
from exporters.settings import DestinationSettings
from gateway.cli.lake.command import lake as command
from spool.clock import SystemClock
from spool.deliveries.values import PARKED
from tests.clients import environments
from tests.clients.kafka import broker as brokers
from tests.clients.kafka import victim
from tests.clients.kafka.broker import PROGRESS, TOPIC, Broker
from tests.exporters.spools import calls
from tests.free_ports import free_port
from tests.integration.lake.lakes import House, opened
from tests.integration.lake.test_watch_of_streams import seen
from tests.waiting import until

pytestmark = pytest.mark.clients


@pytest.fixture(scope="module")
def java() -> list[str]:
    return environments.java("kafka")


@pytest.fixture
def broker(java: list[str], tmp_path: Path) -> Iterator[Broker]:
    directory = tmp_path / "broker"
    directory.mkdir()
    with brokers.running(Broker(java, directory, free_port())) as running:
        yield running


async def found(broker: Broker) -> Counter[int]:
    """Count the messages per record number."""
    return Counter(int(dict(message.headers)["tollhouse-number"]) for message in await broker.committed())


async def until_some_are_there(house: House) -> None:
    async def delivered() -> int:
        return (await house.terms()).get("delivered", 0)

    await until(delivered)


async def test_kills_at_any_place_lose_nothing_and_repeat_nothing(broker: Broker, tmp_path: Path) -> None:
    """The gateway is killed at each step of a delivery. In the end the topic has each record once."""
    await broker.until_ready(*brokers.topics())
    for place in victim.PLACES:
        words = ("-m", "tests.clients.kafka.victim", str(tmp_path / "data"), broker.address, place)
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, *words], capture_output=True, text=True, timeout=120
        )
        assert ("done\n" if place == "end" else "") == done.stdout, done.stderr
    assert Counter(range(1, victim.RECORDS + 1)) == await found(broker)
    (message, *_) = await broker.committed()
    record = orjson.loads(message.value)
    assert record["id"].encode() == message.key
    assert record["cost"] == "0.1"


async def test_without_transactions_nothing_is_missing(broker: Broker, tmp_path: Path) -> None:
    """
    Records in flight at a kill are sent again under the same number. No transaction marker is in the topic.
    """
    await broker.until_ready(*brokers.topics())
    settings = DestinationSettings(
        name="lake", type="kafka", url=broker.address, tls=False, transactions=False
    )
    said = await TYPES["kafka"].probe(settings, destination_secret(settings), SystemClock())
    assert said.status == OK, said
    assert "without transactions, so at least once" in (said.words or ""), said
    for place in ("mark", "settle", "end"):
        words = ("-m", "tests.clients.kafka.victim", str(tmp_path / "data"), broker.address, place, "plain")
        done = await asyncio.to_thread(
            subprocess.run, [sys.executable, *words], capture_output=True, text=True, timeout=120
        )
        assert ("done\n" if place == "end" else "") == done.stdout, done.stderr
    numbers = await found(broker)
    assert set(range(1, victim.RECORDS + 1)) == set(numbers)
    assert await broker.ends() == numbers.total()


async def test_killed_and_restarted_broker_has_each_record_once(broker: Broker, tmp_path: Path) -> None:
    """
    If the broker is killed, the gateway looks up what was in flight and resends the rest. Meanwhile it accepts
    further calls.
    """
    await broker.until_ready(*brokers.topics())
    async with opened(tmp_path / "data") as house:
        await house.add(calls(1, 200))
        async with house.forwarding(type="kafka", url=broker.address, tls=False):
            await until_some_are_there(house)
            broker.kill()
            await house.add(calls(201, 300))
            broker.start()
            await broker.until_ready()
            await house.until(queued=0)
        assert {"delivered": 300} == await house.terms()
    assert Counter(range(1, 301)) == await found(broker)


async def test_topics_that_are_missing_park_the_route_and_are_named(broker: Broker, tmp_path: Path) -> None:
    """
    If topics are missing, the route parks and `check` names them. When the topics exist, `check` reports that
    transactions are allowed.
    """
    await broker.until_ready()
    settings = DestinationSettings(name="lake", type="kafka", url=broker.address, tls=False)
    probe = TYPES["kafka"].probe
    said = await probe(settings, destination_secret(settings), SystemClock())
    assert said.status == REFUSED
    assert "no topic tollhouse.ai-telemetry" in (said.words or "")
    async with opened(tmp_path / "data") as house:
        await house.add(calls(1, 5))
        async with house.forwarding(type="kafka", url=broker.address, tls=False):
            state = await house.until(state=PARKED)
    assert state.reason is not None and "create it" in state.reason
    await broker.until_ready(*brokers.topics())
    said = await probe(settings, destination_secret(settings), SystemClock())
    assert said.status == OK, said
    assert "3 partitions, 1 replicas, min.insync.replicas 1" in (said.words or ""), said


@pytest.mark.parametrize(
    ("of_data", "of_progress", "words"),
    [
        ("compact", "compact", "tollhouse.ai-telemetry: cleanup.policy is compact"),
        ("delete", "delete", "tollhouse.progress: cleanup.policy is delete"),
        ("delete", "compact,delete", "tollhouse.progress: cleanup.policy is compact,delete"),
    ],
)
async def test_check_names_a_policy_that_would_forget(
    broker: Broker, of_data: str, of_progress: str, words: str
) -> None:
    """
    `check` refuses a cleanup policy that deletes old messages of the progress topic: after a week without progress,
    a route would resend existing records.
    """
    policies = {TOPIC: of_data, PROGRESS: of_progress}
    topics = [NewTopic(name, 1, 1, topic_configs={"cleanup.policy": each}) for name, each in policies.items()]
    await broker.until_ready(*topics)
    settings = DestinationSettings(name="lake", type="kafka", url=broker.address, tls=False)
    said = await TYPES["kafka"].probe(settings, destination_secret(settings), SystemClock())
    assert said.status == REFUSED, said
    assert words in (said.words or ""), said


async def verified(broker: Broker, directory: Path, *more: str) -> list[str]:
    """Run `tollhouse lake verify`; return the kinds of the differences."""
    file = directory / "tollhouse.toml"
    destination = f'name = "lake"\ntype = "kafka"\nurl = "{broker.address}"\ntls = false\n'
    file.write_text(f'data_dir = "{directory}/data"\n[[destinations]]\n{destination}')
    words = ["verify", "--config", str(file), "--json", *more]
    result = await asyncio.to_thread(CliRunner().invoke, command, words)
    kinds = [each["kind"] for each in json.loads(result.stdout)["differences"]]
    assert (1 if kinds else 0) == result.exit_code, result.output
    return kinds


async def test_verify_reads_the_progress_and_every_message(broker: Broker, tmp_path: Path) -> None:
    """
    Foreign messages, duplicate numbers and a lost delivery are reported. Messages deleted by retention are not.
    """
    await broker.until_ready(*brokers.topics())
    async with opened(tmp_path / "data") as house:
        await house.add(calls(1, 35))
        async with house.forwarding(type="kafka", url=broker.address, tls=False):
            await house.until(queued=0)
    assert [] == await verified(broker, tmp_path)
    assert [] == await verified(broker, tmp_path, "--data")
    first, *_ = await broker.committed()
    await broker.send(TOPIC, first.partition, b"ff", b"{}", [])
    assert [] == await verified(broker, tmp_path)
    assert ["foreign"] == await verified(broker, tmp_path, "--data")
    await broker.send(TOPIC, first.partition, first.key, first.value, first.headers)
    assert ["overlap", "foreign"] == await verified(broker, tmp_path, "--data")
    older, *_ = await broker.committed(PROGRESS, 1)
    await broker.send(PROGRESS, 0, older.key, older.value, [])
    assert ["missing"] == await verified(broker, tmp_path)
    assert [] == await verified(broker, tmp_path, "--without-books")


async def test_a_server_looks_at_the_progress_by_itself(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A running route watches its progress. If the progress was set back, this counts as a difference until it is
    right again.
    """
    monkeypatch.setattr(watch, "FIRST_S", 0.0)
    await broker.until_ready(*brokers.topics())
    async with opened(tmp_path / "data") as house:
        await house.add(calls(1, 35))
        async with house.forwarding(type="kafka", url=broker.address, tls=False, verify=0.5):
            await house.until(queued=0)
            await seen(house, {})
            first, *_, newest = await broker.committed(PROGRESS, 1)
            await broker.send(PROGRESS, 0, first.key, first.value, [])
            await seen(house, {"missing": 1}, "the route has sent the numbers up to 35")
            await broker.send(PROGRESS, 0, newest.key, newest.value, [])
            await seen(house, {})


async def test_what_retention_took_is_no_difference(broker: Broker, tmp_path: Path) -> None:
    """
    Retention deletes old messages. `verify` checks record numbers from the first that every partition still has.
    """
    await broker.until_ready(*brokers.topics())
    async with opened(tmp_path / "data") as house:
        await house.add(calls(1, 200))
        async with house.forwarding(type="kafka", url=broker.address, tls=False):
            await house.until(queued=0)
    await broker.forget(TOPIC, 0, before=20)
    assert len(await broker.committed()) < 200
    assert [] == await verified(broker, tmp_path, "--data")

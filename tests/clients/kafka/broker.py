"""A real Kafka broker on loopback, and the messages that a consumer of committed messages sees."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete

from tests.free_ports import free_port
from tests.waiting import limited

TOPIC, PROGRESS = "tollhouse.ai-telemetry", "tollhouse.progress"
PARTITIONS = 3
PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
auto.create.topics.enable=false
"""


@dataclass
class Broker:
    """A Kafka broker process. `java` is the command that runs its classes."""

    java: Sequence[str]
    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    more: str = ""  # broker properties that override the defaults of the same names
    users: Sequence[str] = ()  # users in the syntax of Kafka's StorageTool
    controller: int = field(default_factory=free_port)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def make(self) -> None:
        text = PROPERTIES.format(port=self.port, controller=self.controller, directory=self.directory)
        (self.directory / "properties").write_text(text + self.more)
        words = ["kafka.tools.StorageTool", "format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", "properties"]
        words += [word for user in self.users for word in ("--add-scram", user)]
        subprocess.run([*self.java, *words], cwd=self.directory, check=True, capture_output=True)

    def start(self) -> None:
        command = [*self.java[:1], "-Xmx256m", *self.java[1:], "kafka.Kafka", "properties"]
        with (self.directory / "log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.directory, stdout=log, stderr=log)

    def kill(self) -> None:
        if self.process is not None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    async def until_ready(self, *topics: NewTopic) -> None:
        """Wait until the broker responds, and create topics."""
        async with limited():
            while True:
                admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
                try:
                    await admin.start()
                    await admin.list_topics()
                    if topics:
                        await admin.create_topics(list(topics))
                    return
                except Exception:
                    assert self.process is not None and self.process.poll() is None, self.log()
                    await asyncio.sleep(0.2)
                finally:
                    await admin.close()

    async def send(
        self, topic: str, partition: int, key: bytes, value: bytes, headers: Sequence[tuple[str, bytes]]
    ) -> None:
        """Send a message like any client with the right to write."""
        producer = AIOKafkaProducer(bootstrap_servers=self.address)
        await producer.start()
        try:
            await producer.send_and_wait(topic, value, key=key, partition=partition, headers=list(headers))
        finally:
            await producer.stop()

    async def forget(self, topic: str, partition: int, *, before: int) -> None:
        """Delete the first messages of a partition, like its retention."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.address)
        await admin.start()
        try:
            records = {TopicPartition(topic, partition): RecordsToDelete(before_offset=before)}
            await admin.delete_records(records)
        finally:
            await admin.close()

    async def committed(self, topic: str = TOPIC, partitions: int = PARTITIONS) -> list[Any]:
        """Return every message of a topic that a consumer of committed messages sees."""
        reader = AIOKafkaConsumer(
            bootstrap_servers=self.address, isolation_level="read_committed", enable_auto_commit=False
        )
        await reader.start()
        try:
            places = [TopicPartition(topic, number) for number in range(partitions)]
            reader.assign(places)
            ends = await reader.end_offsets(places)
            for place, begin in (await reader.beginning_offsets(places)).items():
                reader.seek(place, begin)
            found: list[Any] = []
            while [place for place in places if await reader.position(place) < ends[place]]:
                for messages in (await reader.getmany(*places, timeout_ms=200)).values():
                    found += messages
            return found
        finally:
            await reader.stop()

    async def ends(self) -> int:
        """Return the number of used offsets of the topic, including transaction markers."""
        reader = AIOKafkaConsumer(bootstrap_servers=self.address)
        await reader.start()
        try:
            found = await reader.end_offsets([TopicPartition(TOPIC, number) for number in range(PARTITIONS)])
            return sum(found.values())
        finally:
            await reader.stop()

    def log(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-3000:]


def topics() -> tuple[NewTopic, NewTopic]:
    compact = {"cleanup.policy": "compact"}
    return NewTopic(TOPIC, PARTITIONS, 1), NewTopic(PROGRESS, 1, 1, topic_configs=compact)


@contextmanager
def running(broker: Broker) -> Iterator[Broker]:
    broker.make()
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()

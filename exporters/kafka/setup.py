"""How the brokers keep a topic, and what of that would repeat records or never end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from exporters.kafka.connection import options_of, start, translated
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings

_POLICY, _LEAST = "cleanup.policy", "min.insync.replicas"
_NOT_ALLOWED: Final = 29


@dataclass(frozen=True, kw_only=True)
class TopicSetup:
    """`policy` and `least_in_sync` are empty where the user may not ask for them (DescribeConfigs)."""

    partitions: int
    replicas: int
    policy: str
    least_in_sync: str

    def __str__(self) -> str:
        least = f", {_LEAST} {self.least_in_sync}" if self.least_in_sync else ""
        return f"{self.partitions} partitions, {self.replicas} replicas{least}"


async def setups_of(
    settings: DestinationSettings, secret: SecretSource | None, topics: Sequence[str]
) -> Mapping[str, TopicSetup]:
    """Ask for topics that are there, by their names."""
    with translated(settings, secret):
        options = options_of(settings, secret)
        admin = AIOKafkaAdminClient(**options)
        try:
            await start(admin, options)
            shown = {each["topic"]: each["partitions"] for each in await admin.describe_topics(list(topics))}
            kept = {topic: await _settings(admin, topic) for topic in topics}
        finally:
            await admin.close()
    return {
        topic: TopicSetup(
            partitions=len(partitions),
            replicas=min((len(each["replicas"]) for each in partitions), default=0),
            policy=kept[topic].get(_POLICY, ""),
            least_in_sync=kept[topic].get(_LEAST, ""),
        )
        for topic, partitions in shown.items()
    }


async def _settings(admin: AIOKafkaAdminClient, topic: str) -> Mapping[str, str]:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs={_POLICY: None, _LEAST: None})
    (answer,) = await admin.describe_configs([resource])
    ((error, words, _, _, entries),) = answer.resources
    if error == _NOT_ALLOWED:
        return {}
    if error:
        raise TimeoutError(f"the settings of {topic}: {words}")
    return {name: value for name, value, *_ in entries}


def problems_of(topic: str, setup: TopicSetup, *, is_progress: bool) -> Iterator[str]:
    """Name what would forget how far a route has come, or keep messages for ever."""
    policy = {each.strip() for each in setup.policy.split(",") if each.strip()}
    if is_progress and "delete" in policy:
        yield f"{topic}: {_POLICY} is {setup.policy}, which forgets how far routes have come: set compact"
    if not is_progress and policy == {"compact"}:
        yield f"{topic}: {_POLICY} is compact, which never ends: set delete"

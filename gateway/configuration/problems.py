"""
All reasons why a configuration cannot run, one sentence each, with the settings' names.

A section checks its own values (`problems` of its class). This module has the rules that involve several
sections.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from exporters.destinations import catalogue
from exporters.notifications import catalogue as notifications
from exporters.problems import problems_of_choice, problems_of_url
from exporters.service import paths
from gateway.configuration import assistants
from gateway.configuration.sections import WORKS_COUNCIL, Config
from gateway.configuration.values import has_literal_text
from spool import engines
from spool.ledger.dimensions import DIMENSIONS as LEDGER_DIMENSIONS
from spool.settings import POSTGRES


def config_problems(config: Config) -> Iterator[str]:
    """Yield every reason why this configuration cannot run, in the order of the sections."""
    for field in fields(config):
        yield from _nested_problems(field.name, getattr(config, field.name))
        if field.name in _MORE:
            yield from _MORE[field.name](config)


def _nested_problems(setting_path: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _nested_problems(f"{setting_path}.{name}", item)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            yield from _nested_problems(f"{setting_path}[{index}]", item)
    elif is_dataclass(value):
        if hasattr(value, "problems"):
            yield from value.problems(setting_path)
        for field in fields(value):
            yield from _nested_problems(f"{setting_path}.{field.name}", getattr(value, field.name))


def missing_settings(config: Config, given: Mapping[str, Any]) -> Iterator[str]:
    """
    Yield the problems of settings that this storage requires. `given` is the tree of the settings that are set.
    """
    spool = given.get("spool", {})
    if config.storage.engine == POSTGRES and isinstance(spool, Mapping) and "max_bytes" not in spool:
        yield (
            'spool.max_bytes is required with storage.engine = "postgres". Set at most 60 % of the '
            'database\'s disk, such as "60GiB" of 100 GiB, because PostgreSQL stops when its disk is '
            "full"
        )


def _agent_problems(config: Config) -> Iterator[str]:
    if config.agent.gateway and config.upstream.base_url:
        yield "use either agent.gateway or upstream.base_url, not both: an agent's upstream is its gateway"


def _repeated_values(section: str, setting: str, items: Iterable[object]) -> Iterator[str]:
    known: set[str] = set()
    for index, item in enumerate(items):
        value = getattr(item, setting)
        if value in known:
            yield f"{section}[{index}].{setting} {value!r} is used twice"
        known.add(value)


def _publish_problems(config: Config) -> Iterator[str]:
    yield from _repeated_values("publish", "stream", config.publish)
    dimensions = (*LEDGER_DIMENSIONS, *(f"tag:{name}" for name in config.ledger.tags))
    for index, rule in enumerate(config.publish):
        shown = f"publish[{index}]"
        yield from problems_of_choice(f"{shown}.by", rule.by, dimensions)
        for name, dimension in rule.dimensions.items():
            yield from problems_of_choice(f"{shown}.dimensions.{name}", dimension, dimensions)


# section -> its checks that need other modules or another section's values
_MORE: Mapping[str, Callable[[Config], Iterable[str]]] = {
    "storage": lambda config: engines.storage_problems(config.storage),
    "upstream": lambda config: paths.upstream_problems(config.upstream),
    "destinations": lambda config: catalogue.destination_problems(
        config.destinations, of_several_nodes=config.storage.engine == POSTGRES
    ),
    "enforcers": lambda config: _repeated_values("enforcers", "name", config.enforcers),
    "notify": lambda config: notifications.all_channel_problems(config.notify),
    "container": lambda config: problems_of_url("container.upload_url", config.container.upload_url),
    "agent": _agent_problems,
    "mcp": lambda config: assistants.assistant_problems(config.mcp, config.oidc),
    "streams": lambda config: _repeated_values("streams", "name", config.streams),
    "publish": _publish_problems,
}


def config_warnings(config: Config) -> Iterator[str]:
    """Yield risky settings for `tollhouse check`. The server runs with them."""
    server = config.server
    if server.operator_plaintext and not server.trusted_proxies:
        yield (
            "server.trusted_proxies is empty, so all people behind the proxy share one limit on "
            "sign-in attempts; list the addresses of the proxy"
        )
    if not all(map(has_literal_text, server.chain_keys)):
        yield (
            'server.chain_keys has "*", so anybody with a key that may send can set the key, user '
            "and team of records, as another Tollhouse does; list the keys of your gateways instead, "
            "or leave it empty"
        )
    if config.privacy.works_council and (weaker := list(_settings_weaker_than_works_council(config))):
        yield (
            f"{', '.join(weaker)}: set to show more of people than privacy.works_council does by default; remove the "
            "line, or agree on it with the works council"
        )


def _settings_weaker_than_works_council(config: Config) -> Iterator[str]:
    if config.privacy.emails == "keep":
        yield "privacy.emails"
    if config.privacy.min_group < WORKS_COUNCIL["privacy.min_group"]:
        yield "privacy.min_group"
    if config.work.people:
        yield "work.people"
    if config.work.branch != WORKS_COUNCIL["work.branch"]:
        yield "work.branch"

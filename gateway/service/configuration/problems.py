"""
Every reason why a configuration cannot run, in the user's own key names: one sentence a problem.

A section checks its own values (`problems` of its class); the rules between sections stand here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from exporters.destinations import catalogue
from exporters.notifications import catalogue as notifications
from exporters.problems import one_of, url
from exporters.service import paths
from gateway.service.configuration import assistants
from gateway.service.configuration.sections import Config, names_some
from spool import engines
from spool.ledger.queries import DIMENSIONS as LEDGER_DIMENSIONS
from spool.settings import POSTGRES


def problems(config: Config) -> Iterator[str]:
    """Every reason this configuration cannot run, in the user's own key names and in the order of the sections."""
    for field in fields(config):
        yield from _own_problems(field.name, getattr(config, field.name))
        if field.name in _MORE:
            yield from _MORE[field.name](config)


def _own_problems(at: str, value: Any) -> Iterator[str]:
    """Yield what a section says of its own values, and what the sections within it say of theirs."""
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _own_problems(f"{at}.{name}", each)
    elif isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from _own_problems(f"{at}[{place}]", each)
    elif is_dataclass(value):
        if hasattr(value, "problems"):
            yield from value.problems(at)
        for field in fields(value):
            yield from _own_problems(f"{at}.{field.name}", getattr(value, field.name))


def missing(config: Config, given: Mapping[str, Any]) -> Iterator[str]:
    """
    Yield the problems of settings that have no default with this storage; `given` is the tree of the settings
    that are set.
    """
    spool = given.get("spool", {})
    if config.storage.engine == POSTGRES and isinstance(spool, Mapping) and "max_bytes" not in spool:
        yield (
            'spool.max_bytes is required with storage.engine = "postgres": at most 60 % of the disk of the '
            "database, "
            'such as "60GiB" of 100; PostgreSQL stops when its disk is full'
        )


def _agent_problems(config: Config) -> Iterator[str]:
    if config.agent.gateway and config.upstream.base_url:
        yield "agent.gateway and upstream.base_url exclude each other: an agent's upstream is its gateway"


def _stream_problems(config: Config) -> Iterator[str]:
    names: set[str] = set()
    for place, stream in enumerate(config.streams):
        if stream.name in names:
            yield f"streams[{place}].name {stream.name!r} is used twice"
        names.add(stream.name)


def _publish_problems(config: Config) -> Iterator[str]:
    published: set[str] = set()
    dimensions = (*LEDGER_DIMENSIONS, *(f"tag:{name}" for name in config.ledger.tags))
    for place, rule in enumerate(config.publish):
        shown = f"publish[{place}]"
        if rule.stream in published:
            yield f"{shown}.stream {rule.stream!r} is used twice"
        published.add(rule.stream)
        yield from one_of(f"{shown}.by", rule.by, dimensions)
        for name, dimension in rule.dimensions.items():
            yield from one_of(f"{shown}.dimensions.{name}", dimension, dimensions)


def _destination_problems(config: Config) -> Iterator[str]:
    of_several_nodes = config.storage.engine == POSTGRES
    return catalogue.problems(config.destinations, of_several_nodes=of_several_nodes)


# By section: what other modules know of it, and rules that look at another section, too.
_MORE: Mapping[str, Callable[[Config], Iterable[str]]] = {
    "storage": lambda config: engines.problems(config.storage),
    "upstream": lambda config: paths.problems(config.upstream),
    "destinations": _destination_problems,
    "notify": lambda config: notifications.problems(config.notify),
    "container": lambda config: url("container.upload_url", config.container.upload_url),
    "agent": _agent_problems,
    "mcp": lambda config: assistants.problems(config.mcp, config.oidc),
    "streams": _stream_problems,
    "publish": _publish_problems,
}


def warnings(config: Config) -> Iterator[str]:
    """Yield what is allowed and probably should not be, for `tollhouse check`: the server runs with it."""
    server = config.server
    if server.operator_plaintext and not server.trusted_proxies:
        yield (
            "server.trusted_proxies is empty: attempts to sign in of all people behind the proxy share one limit; "
            "name the proxy's addresses"
        )
    if not all(map(names_some, server.chain_keys)):
        yield (
            'server.chain_keys has "*": whoever has a key that may send can name the key, the user and the team '
            "of its records, as another Tollhouse does; name the keys of your gateways, or leave it empty"
        )

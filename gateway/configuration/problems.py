"""Every reason why a configuration cannot run, in the user's own key names: one sentence a problem."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date
from ipaddress import ip_network
from typing import Any

from exporters.destinations import catalogue
from exporters.notifications import catalogue as notifications
from exporters.problems import MAX_STREAM_KEYS, one_of, stream_name, url
from exporters.service import upstream_settings
from gateway.configuration import assistants
from gateway.configuration.addresses import is_loopback, is_safe_address, split_address
from gateway.configuration.sections import (
    OF_GOOGLE,
    PULLED_SOURCES,
    SEAT_SOURCES,
    Assignment,
    Config,
    Match,
    OidcSettings,
    ServerSettings,
    names_some,
)
from gateway.normalise.reading.content import may_hold_content
from spool import engines
from spool.devices.device import is_device_id
from spool.ledger.queries import DIMENSIONS as LEDGER_DIMENSIONS
from spool.meters import METERS
from spool.registry.operators import ROLES, SESSION_LIFE_S, is_email
from spool.settings import DAY_S, POSTGRES

LEAST_WORKER_MEMORY = 6  # times the largest body: that, its records, and what decoding takes meanwhile
MOST_WORKERS = 64
LISTENING = ("server.listen", "server.grpc_listen", "server.operator_listen", "server.metrics_listen")
MAX_LEDGER_TAGS = 8
MOST_PULL_DAYS = 31
MOST_HOUR = 1_000_000  # dollars, for what one node has


def problems(config: Config) -> Iterator[str]:
    """Every reason this configuration cannot run, in the user's own key names."""
    yield from _server_problems(config.server)
    yield from engines.problems(config.storage)
    if config.spool.late_window > DAY_S:
        yield "spool.late_window must be at most 1d"
    if config.spool.hold >= config.spool.retention:
        yield "spool.hold must be shorter than spool.retention, or records expire before they are sent"
    if config.spool.stream_retention < config.spool.retention:
        yield "spool.stream_retention must not be shorter than spool.retention"
    yield from upstream_settings.problems(config.upstream)
    of_several_nodes = config.storage.engine == POSTGRES
    yield from catalogue.problems(config.destinations, of_several_nodes=of_several_nodes)
    yield from notifications.problems(config.notify)
    yield from _stream_problems(config)
    yield from _agent_problems(config)
    yield from url("container.upload_url", config.container.upload_url)
    yield from _oidc_problems(config.oidc)
    yield from assistants.problems(config.mcp, config.oidc)
    for user, email in config.operators.local.items():
        if not is_email(email):
            yield f"operators.local.{user} must be an e-mail address, such as ops@example.com"
    for name in config.privacy.keep_attributes:
        if may_hold_content(name):
            yield f"privacy.keep_attributes: {name} is message content and can never be kept"
    if len(config.ledger.tags) > MAX_LEDGER_TAGS or not all(config.ledger.tags):
        yield f"ledger.tags must be at most {MAX_LEDGER_TAGS} names of tags"
    for place, rule in enumerate(config.attribution):
        if rule.match == Match():
            yield f"attribution[{place}].match needs api_key, user, device, model or tag"
        if rule.set == Assignment():
            yield f"attribution[{place}].set needs team, user or tags"
    for name, source in config.sources.items():
        if source.signing_secret_file and name != "helicone":
            yield f"sources.{name}.signing_secret_file: only helicone signs what it sends; remove it"
    for place, override in enumerate(config.prices.override):
        if not override.model:
            yield f"prices.override[{place}].model is required"
        if override.input is None and override.output is None and not override.meters:
            yield f"prices.override[{place}] needs input or output, in dollars per million tokens, or meters"
        for name in override.meters:
            if name not in METERS:
                yield f"prices.override[{place}].meters.{name} is not a meter; docs/meters.md lists them"
        if override.since and not _is_day(override.since):
            yield f'prices.override[{place}].since must be a day such as "2026-11-20"'
    for place, rate in enumerate(config.currency.rate):
        if rate.usd is None or not rate.usd.is_finite() or rate.usd <= 0:
            yield f"currency.rate[{place}].usd is required: dollars for one, more than 0"
        if not is_foreign(rate.currency):
            yield f'currency.rate[{place}].currency must be the code of a currency other than USD, such as "EUR"'
        if rate.since and not _is_day(rate.since):
            yield f'currency.rate[{place}].since must be a day such as "2026-11-20"'
    for place, node in enumerate(config.container.price):
        hours = (node.cpu_hour, node.memory_hour, node.gpu_hour)
        if not any(hours) or not all(each.is_finite() and 0 <= each <= MOST_HOUR for each in hours):
            yield (
                f"container.price[{place}] needs cpu_hour, memory_hour or gpu_hour, in dollars from 0 to {MOST_HOUR}"
            )
    for name in ("tolerance_money", "tolerance_tokens"):
        if not 0 <= getattr(config.reconciliation, name) <= 100:
            yield f"reconciliation.{name} must be a percentage from 0 to 100"
    pulls: set[str] = set()
    reports: dict[tuple[str, str, str], str] = {}
    for place, pull in enumerate(config.reconciliation.pull):
        shown = f"reconciliation.pull[{place}]"
        if not pull.name or pull.name in pulls:
            yield f"{shown}.name is required, and each is used once"
        pulls.add(pull.name)
        before = reports.setdefault((pull.source, pull.account, pull.plan), shown)
        if before != shown and pull.source:
            yield f"{shown}.account must differ from that of {before}: each would replace the days of the other"
        yield from one_of(f"{shown}.source", pull.source, (*PULLED_SOURCES, *SEAT_SOURCES))
        if (pull.source in SEAT_SOURCES) != bool(pull.plan):
            yield f"{shown}.plan is required of a list of seats, and of no other source"
        if pull.key_file is None:
            yield f"{shown}.key_file is required: the file with an admin key of the provider"
        yield from url(f"{shown}.base_url", pull.base_url)
        if any(mark in pull.base_url for mark in "?#"):
            yield f"{shown}.base_url must be an address alone, without a query or a fragment: the key is a file"
        if pull.source == "litellm_spend_logs" and not pull.base_url:
            yield f"{shown}.base_url is required: the address of your LiteLLM"
        if pull.source.startswith("github_copilot") and not pull.account:
            yield f"{shown}.account is required: the name of your organization at GitHub"
        if pull.source in OF_GOOGLE and not pull.account:
            yield f"{shown}.account is required: the resource at Google that has the licenses"
        if pull.days > MOST_PULL_DAYS:
            yield f"{shown}.days must be at most {MOST_PULL_DAYS}"
    for name in config.billing.owner_tags:
        if name not in _ROW_OWNERS:
            yield f"billing.owner_tags.{name[:40]} is none of {', '.join(_ROW_OWNERS)}"
    for place, owner in enumerate(config.reconciliation.owner):
        if not (owner.provider and owner.billed):
            yield f"reconciliation.owner[{place}] needs provider and billed, as the report names them"
        if not (owner.api_key or owner.team or owner.source):
            yield f"reconciliation.owner[{place}] needs api_key, team or source"


_ROW_OWNERS = ("team", "user", "device", "api_key")


def is_foreign(code: str) -> bool:
    """True for the code of a currency that amounts are converted from."""
    from spool.currencies.codes import DECIMALS  # only where a currency is configured

    return code in DECIMALS and code != "USD"


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


def _server_problems(server: ServerSettings) -> Iterator[str]:
    for name in LISTENING:
        address = getattr(server, name.partition(".")[2])
        if (address or name == "server.listen") and not _is_address(address):
            yield f'{name} must be HOST:PORT, such as "127.0.0.1:4318"'
    if _is_public(server.operator_listen) and not (server.tls_cert_file or server.operator_plaintext):
        yield (
            "server.operator_listen is public: passwords, sessions and /metrics would travel in the clear; "
            "set "
            "server.tls_cert_file and server.tls_key_file, or server.operator_plaintext = true if a proxy "
            "encrypts"
        )
    for place, name in enumerate(server.trusted_proxies):
        if not _is_network(name):
            yield (
                f"server.trusted_proxies[{place}] must be an address or a network, such as "
                '"10.0.0.5" or "10.0.0.0/28", and not every address'
            )
    if bool(server.tls_cert_file) != bool(server.tls_key_file):
        yield "server.tls_cert_file and server.tls_key_file go together"
    if server.tls_client_ca_file and not server.tls_cert_file:
        yield "server.tls_client_ca_file needs server.tls_cert_file and server.tls_key_file"
    if server.max_inflight_bytes < server.max_body_bytes:
        yield "server.max_inflight_bytes must not be less than server.max_body_bytes"
    if server.workers and server.worker_memory < LEAST_WORKER_MEMORY * server.max_body_bytes:
        yield f"server.worker_memory must be at least {LEAST_WORKER_MEMORY} times server.max_body_bytes"
    if server.workers > MOST_WORKERS:
        yield f"server.workers must be at most {MOST_WORKERS}"
    if server.small_body_reserve < 2 * server.small_body_bytes:
        yield "server.small_body_reserve must be at least twice server.small_body_bytes"


MAX_SKEW_S = 300.0


def _oidc_problems(oidc: OidcSettings) -> Iterator[str]:
    if not oidc.issuer:
        if oidc != OidcSettings():
            yield "oidc.issuer is required when other settings of [oidc] are given"
        return
    for name, address in (("issuer", oidc.issuer), ("console", oidc.console)):
        if not is_safe_address(address):
            yield f"oidc.{name} must be an address with https, or with http on this machine alone"
    if not oidc.console.endswith("/console/"):
        yield 'oidc.console ends with "/console/", such as "https://tollhouse.example.com/console/"'
    if not oidc.client_id:
        yield "oidc.client_id is required with oidc.issuer"
    if "openid" not in oidc.scopes:
        yield "oidc.scopes must have openid"
    if oidc.clock_skew > MAX_SKEW_S:
        yield "oidc.clock_skew must be at most 5m; set the clock of this machine instead"
    if oidc.session > SESSION_LIFE_S:
        yield "oidc.session must be at most 12h"
    for group, role in oidc.roles.items():
        yield from one_of(f"oidc.roles.{group}", role, ROLES)
    yield from url("oidc.proxy", oidc.proxy)


def _is_public(address: str) -> bool:
    return _is_address(address) and not is_loopback(split_address(address)[0])


def _agent_problems(config: Config) -> Iterator[str]:
    agent = config.agent
    yield from url("agent.gateway", agent.gateway)
    if agent.gateway and config.upstream.base_url:
        yield "agent.gateway and upstream.base_url exclude each other: an agent's upstream is its gateway"
    if agent.enrolment_key_file and agent.enrolment_key_env:
        yield "agent needs enrolment_key_file or enrolment_key_env, and not both"
    if agent.device_id and not is_device_id(agent.device_id):
        yield "agent.device_id: 1 to 128 letters, digits and any of . _ : @ -"


def _stream_problems(config: Config) -> Iterator[str]:
    names: set[str] = set()
    for place, stream in enumerate(config.streams):
        yield from stream_name(f"streams[{place}].name", stream.name)
        if stream.name in names:
            yield f"streams[{place}].name {stream.name!r} is used twice"
        names.add(stream.name)
    published: set[str] = set()
    dimensions = (*LEDGER_DIMENSIONS, *(f"tag:{name}" for name in config.ledger.tags))
    for place, rule in enumerate(config.publish):
        shown = f"publish[{place}]"
        yield from stream_name(f"{shown}.stream", rule.stream)
        if rule.stream in published:
            yield f"{shown}.stream {rule.stream!r} is used twice"
        published.add(rule.stream)
        yield from one_of(f"{shown}.by", rule.by, dimensions)
        for name, dimension in rule.dimensions.items():
            yield from one_of(f"{shown}.dimensions.{name}", dimension, dimensions)
        if len(rule.dimensions) > MAX_STREAM_KEYS:
            yield f"{shown}.dimensions must be at most {MAX_STREAM_KEYS}"


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_network(text: str) -> bool:
    try:
        return ip_network(text, strict=False).prefixlen > 0
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) < 65536


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

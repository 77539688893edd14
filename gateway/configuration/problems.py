"""Every reason why a configuration cannot run, in the user's own key names: one sentence a problem."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from datetime import date
from urllib.parse import urlsplit

from exporters.settings import DestinationSettings, UpstreamSettings
from gateway.configuration.sections import Assignment, Config, Match, ServerSettings
from gateway.normalise.reading.tags import is_content
from spool.devices import is_device_id
from spool.ledger.queries import DIMENSIONS as LEDGER_DIMENSIONS
from spool.record import AI_TELEMETRY, TOPICS
from spool.registry.scopes import SCOPES, USE_CASES
from spool.settings import KIB, MIB

MAX_LEDGER_TAGS = 8
MAX_STREAM_KEYS = 5
PUBLISHED_MEASURES = ("cost", "calls", "tokens", "input_tokens", "output_tokens")


def problems(config: Config) -> Iterator[str]:
    """Every reason this configuration cannot run, in the user's own key names."""
    yield from _server_problems(config.server)
    if config.spool.hold >= config.spool.retention:
        yield "spool.hold must be shorter than spool.retention, or records expire before they are sent"
    if config.spool.max_bytes < 16 * MIB:
        yield "spool.max_bytes must be at least 16MiB"
    if config.spool.duplicate_ids < 1:
        yield "spool.duplicate_ids must be at least 1"
    if config.spool.pending_items < 1:
        yield "spool.pending_items must be at least 1"
    yield from _upstream_problems(config.upstream)
    yield from _destination_problems(config.destinations)
    yield from _stream_problems(config)
    yield from _one_of("devices.policy", config.devices.policy, ("auto", "approve", "closed"))
    if config.devices.heartbeat_interval < 1:
        yield "devices.heartbeat_interval must be at least 1s"
    yield from _agent_problems(config)
    yield from _one_of("privacy.emails", config.privacy.emails, ("hash", "keep", "drop"))
    yield from _one_of("log.level", config.log.level, ("debug", "info", "warning", "error"))
    for name in config.privacy.keep_attributes:
        if is_content(name):
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
        if override.input is None and override.output is None:
            yield f"prices.override[{place}] needs input or output, in dollars per million tokens"
        if override.since and not _is_day(override.since):
            yield f'prices.override[{place}].since must be a day such as "2026-11-20"'


def _server_problems(server: ServerSettings) -> Iterator[str]:
    for name in ("listen", "grpc_listen", "operator_listen"):
        address = getattr(server, name)
        if (address or name == "listen") and not _is_address(address):
            yield f'server.{name} must be HOST:PORT, such as "127.0.0.1:4318"'
    if bool(server.tls_cert_file) != bool(server.tls_key_file):
        yield "server.tls_cert_file and server.tls_key_file go together"
    if server.tls_client_ca_file and not server.tls_cert_file:
        yield "server.tls_client_ca_file needs server.tls_cert_file and server.tls_key_file"
    if server.max_body_bytes < 64 * KIB:
        yield "server.max_body_bytes must be at least 64KiB"
    if server.max_inflight_bytes < server.max_body_bytes:
        yield "server.max_inflight_bytes must not be less than server.max_body_bytes"


def _upstream_problems(upstream: UpstreamSettings) -> Iterator[str]:
    if upstream.keys and not upstream.base_url:
        yield "upstream.base_url is required when upstream.keys are given"
    for name in ("base_url", "ai_telemetry_url", "proxy"):
        if getattr(upstream, name) and not _is_url(getattr(upstream, name)):
            yield f"upstream.{name} must begin with http:// or https://"
    yield from _one_of("upstream.kind", upstream.kind, ("service", "tollhouse"))
    for type, event in upstream.events.items():
        shown = f"upstream.events.{type}"
        yield from _stream_name(f"{shown}.stream", event.stream)
        yield from _one_of(f"{shown}.type", event.type, ("allocation", "metric"))
        yield from _one_of(f"{shown}.granularity", event.granularity, ("HOURLY", "DAILY", "MONTHLY"))
        if len(event.dimensions) > MAX_STREAM_KEYS:
            yield f"{shown}.dimensions must be at most {MAX_STREAM_KEYS}"
    yield from _one_of("upstream.compression", upstream.compression, ("gzip", "none"))
    if upstream.batch_records < 1:
        yield "upstream.batch_records must be at least 1"
    if upstream.in_flight < 1:
        yield "upstream.in_flight must be at least 1"
    if upstream.timeout <= 0:
        yield "upstream.timeout must be above 0s"
    names: set[str] = set()
    for place, key in enumerate(upstream.keys):
        shown = f"upstream.keys[{place}]"
        if not key.name:
            yield f"{shown}.name is required"
        elif key.name in names:
            yield f"{shown}.name {key.name!r} is used twice"
        names.add(key.name)
        if bool(key.secret_file) == bool(key.secret_env):
            yield f"{shown} needs secret_file or secret_env, and not both"
        if bool(key.use_cases) == bool(key.scopes):
            yield f"{shown} needs use_cases or scopes, never both"
        for scope in key.scopes:
            yield from _one_of(f"{shown}.scopes", scope, tuple(sorted(SCOPES)))
        for use_case in key.use_cases:
            yield from _one_of(f"{shown}.use_cases", use_case, tuple(USE_CASES))


def _agent_problems(config: Config) -> Iterator[str]:
    agent = config.agent
    if agent.gateway and not _is_url(agent.gateway):
        yield "agent.gateway must begin with http:// or https://"
    if agent.gateway and config.upstream.base_url:
        yield "agent.gateway and upstream.base_url exclude each other: an agent's upstream is its gateway"
    if agent.enrolment_key_file and agent.enrolment_key_env:
        yield "agent needs enrolment_key_file or enrolment_key_env, and not both"
    if agent.device_id and not is_device_id(agent.device_id):
        yield "agent.device_id: 1 to 128 letters, digits and any of . _ : @ -"


def _stream_problems(config: Config) -> Iterator[str]:
    names: set[str] = set()
    for place, stream in enumerate(config.streams):
        yield from _stream_name(f"streams[{place}].name", stream.name)
        if stream.name in names:
            yield f"streams[{place}].name {stream.name!r} is used twice"
        names.add(stream.name)
    published: set[str] = set()
    dimensions = (*LEDGER_DIMENSIONS, *(f"tag:{name}" for name in config.ledger.tags))
    for place, rule in enumerate(config.publish):
        shown = f"publish[{place}]"
        yield from _stream_name(f"{shown}.stream", rule.stream)
        if rule.stream in published:
            yield f"{shown}.stream {rule.stream!r} is used twice"
        published.add(rule.stream)
        yield from _one_of(f"{shown}.measure", rule.measure, PUBLISHED_MEASURES)
        yield from _one_of(f"{shown}.by", rule.by, dimensions)
        yield from _one_of(f"{shown}.granularity", rule.granularity, ("HOURLY", "DAILY"))
        if rule.per:
            yield from _one_of(f"{shown}.per", rule.per, PUBLISHED_MEASURES)
        for name, dimension in rule.dimensions.items():
            yield from _one_of(f"{shown}.dimensions.{name}", dimension, dimensions)
        if len(rule.dimensions) > MAX_STREAM_KEYS:
            yield f"{shown}.dimensions must be at most {MAX_STREAM_KEYS}"


def _stream_name(shown: str, name: str) -> Iterator[str]:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,256}", name):
        yield f"{shown} is required: letters, digits, '_', '.' and '-', at most 256"


def _destination_problems(destinations: tuple[DestinationSettings, ...]) -> Iterator[str]:
    names: set[str] = set()
    for place, destination in enumerate(destinations):
        shown = f"destinations[{place}]"
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", destination.name):
            yield f"{shown}.name is required: letters, digits, '.', '_' and '-', at most 64"
        elif destination.name == "upstream" or destination.name in names:
            yield f"{shown}.name {destination.name!r} is already used"
        names.add(destination.name)
        yield from _one_of(f"{shown}.type", destination.type, tuple(DESTINATION_NEEDS))
        need = DESTINATION_NEEDS.get(destination.type)
        if need and not getattr(destination, need):
            yield f"{shown}.{need} is required for type {destination.type!r}"
        if destination.url and not _is_url(destination.url):
            yield f"{shown}.url must begin with http:// or https://"
        yield from _one_of(f"{shown}.start", destination.start, ("oldest", "now"))
        yield from _topic_problems(shown, destination)
        for name, value in destination.headers.items():
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) or not value.isprintable():
                yield f"{shown}.headers: {name!r} is not a header, or its value is not one line"


def _topic_problems(shown: str, destination: DestinationSettings) -> Iterator[str]:
    if len(set(destination.topics)) != len(destination.topics) or not destination.topics:
        yield f"{shown}.topics must name at least one topic, and each once"
    for topic in destination.topics:
        yield from _one_of(f"{shown}.topics", topic, TOPICS)
        if topic in TOPICS and topic != AI_TELEMETRY and destination.type in AI_TELEMETRY_ALONE:
            yield f"{shown}.topics: type {destination.type!r} cannot take {topic!r}"


DESTINATION_NEEDS = {"ndjson": "path", "focus": "path", "otlp": "url", "webhook": "url"}
AI_TELEMETRY_ALONE = ("otlp", "focus")


def _one_of(name: str, value: str, allowed: tuple[str, ...]) -> Iterator[str]:
    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else "one of " + ", ".join(map(repr, allowed[:12]))
        yield f"{name}: {value!r} is not known; {hint}"


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:  # brackets that do not close
        return False
    return text.startswith(("http://", "https://")) and bool(parts.hostname)


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) < 65536

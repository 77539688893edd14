"""The destination types, and the checks and routes of [[destinations]]."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from exporters.declared import LazyDeclarations
from exporters.problems import problems_of_choice, problems_of_headers, problems_of_url
from exporters.secret_source import SecretSource
from exporters.service.paths import UPSTREAM
from exporters.settings import DestinationSettings, UpstreamSettings
from spool.clock import Clock
from spool.record import TOPICS

if TYPE_CHECKING:
    from exporters.destinations.declaration import DestinationType
    from exporters.destinations.upstream import UpstreamContext
    from exporters.exporter import Exporter, RouteConfig, WholeDeliveryExporter
    from exporters.lake.exporter import LakeContext
    from spool.ledger.repricing import LinesOf

TYPES: LazyDeclarations[DestinationType] = LazyDeclarations(
    {
        "ndjson": "exporters.destinations.ndjson",
        "focus": "exporters.destinations.focus",
        "otlp": "exporters.destinations.otlp",
        "webhook": "exporters.destinations.webhook",
        "file": "exporters.lake.destination:FOLDER",
        "s3": "exporters.lake.destination:S3",
        "gcs": "exporters.lake.destination:GCS",
        "azure": "exporters.lake.destination:AZURE",
        "kafka": "exporters.kafka.destination",
        "clickhouse": "exporters.clickhouse.destination",
    }
)


def destination_problems(
    destinations: Sequence[DestinationSettings], *, of_several_nodes: bool = False
) -> Iterator[str]:
    """
    Yield the problems of the configured destinations. With several nodes, a destination of files must be on
    shared storage.
    """
    names = {UPSTREAM}
    for index, destination in enumerate(destinations):
        shown = f"destinations[{index}]"
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", destination.name):
            yield f"{shown}.name is required: letters, digits, '.', '_' and '-', at most 64"
        elif destination.name in names:
            yield f"{shown}.name {destination.name!r} is already used"
        names.add(destination.name)
        yield from problems_of_choice(f"{shown}.type", destination.type, tuple(TYPES))
        type = TYPES.get(destination.type)
        if type and not getattr(destination, type.needs):
            yield f"{shown}.{type.needs} is required for type {destination.type!r}"
        if type is None or type.problems is None:
            yield from problems_of_url(f"{shown}.url", destination.url)
        else:
            yield from type.problems(shown, destination)
        if type and destination.lines and type.build_with_price_lines is None:
            yield (
                f"{shown}.lines is only for type 'focus': other types, and the files of a data lake, have "
                "no price lines"
            )
        yield from _topic_problems(shown, destination)
        yield from problems_of_headers(f"{shown}.headers", destination.headers)
        if type and type.needs == "path":
            yield from _shared_file_problems(shown, destination, type, of_several_nodes)


def _shared_file_problems(
    shown_name: str, destination: DestinationSettings, type: DestinationType, of_several_nodes: bool
) -> Iterator[str]:
    if of_several_nodes and not destination.shared:
        yield (
            f"{shown_name}: each node would write its own file; put path on a file system that all nodes "
            "mount and set shared = true, or use type otlp or webhook"
        )
    if destination.shared and len(destination.topics) > 1 and type.build_lake is None:
        yield (
            f"{shown_name}.topics: a shared file accepts only one topic, because two nodes may send two topics "
            "at once; use one file per topic"
        )


def _topic_problems(shown_name: str, destination: DestinationSettings) -> Iterator[str]:
    if len(set(destination.topics)) != len(destination.topics) or not destination.topics:
        yield f"{shown_name}.topics must name at least one topic, and each topic only once"
    type = TYPES.get(destination.type)
    for topic in destination.topics:
        yield from problems_of_choice(f"{shown_name}.topics", topic, TOPICS)
        if type and topic in TOPICS and topic not in type.topics:
            yield f"{shown_name}.topics: type {destination.type!r} does not accept the topic {topic!r}"


def build_routes(
    upstream: UpstreamSettings,
    destinations: Sequence[DestinationSettings],
    *,
    clock: Clock,
    context: UpstreamContext | None = None,
    lake: LakeContext | None = None,
    price_lines: LinesOf | None = None,
) -> list[RouteConfig]:
    """
    Return the routes to the upstream and the destinations. Raises ValueError for a type or topic that a
    destination does not accept.

    Without `context`, the upstream only receives AI telemetry. Without `lake`, there is no data lake.
    """
    routes: list[RouteConfig] = []
    if upstream.base_url or upstream.ai_telemetry_url:
        from exporters.destinations.upstream import upstream_routes

        routes += upstream_routes(upstream, clock=clock, context=context)
    for destination in destinations:
        routes += [_build_route(destination, topic, clock, lake, price_lines) for topic in destination.topics]
    return routes


def destination_secret(destination: DestinationSettings, name: str | None = None) -> SecretSource | None:
    """Return where to read the secret of a destination, which messages call `name`."""
    if destination.secret_file is None:
        return None
    type = TYPES.get(destination.type)
    return SecretSource(
        name or f"destination {destination.name}",
        file=destination.secret_file,
        most_lines=type.secret_lines if type else 1,
    )


def _credential_files(
    destination: DestinationSettings, secret: SecretSource | None
) -> Iterator[SecretSource]:
    """Yield the files of keys and certificates. If one changes, a paused route tries again at once."""
    if secret is not None:
        yield secret
    for file in (destination.identity_token_file, destination.tls_cert_file, destination.tls_key_file):
        if file is not None:
            yield SecretSource(f"destination {destination.name}", file=file)


def _build_route(
    destination: DestinationSettings,
    topic: str,
    clock: Clock,
    lake: LakeContext | None,
    price_lines: LinesOf | None,
) -> RouteConfig:
    from exporters.exporter import RouteConfig
    from spool.deliveries.values import RouteSpec

    type = TYPES.get(destination.type)
    if type is None or topic not in type.topics or not getattr(destination, type.needs):
        shown = f"destination {destination.name}: type {destination.type!r}"
        raise ValueError(f"{shown} does not accept the topic {topic}")
    secret = destination_secret(destination)
    name = f"{destination.name}/{topic}"
    of_topic = replace(destination, topics=(topic,))
    spec = RouteSpec(name=name, topic=topic, required=destination.required, start=destination.start)
    exporter: Exporter | WholeDeliveryExporter
    if destination.lines:
        if type.build_with_price_lines is None or price_lines is None:
            raise ValueError(f"destination {destination.name}: `lines` needs prices, and type 'focus'")
        exporter = type.build_with_price_lines(destination, secret, clock, price_lines)
    elif type.build is not None:
        exporter = type.build(destination, secret, clock)
    elif type.build_lake is not None and lake is not None:
        exporter = type.build_lake(of_topic, secret, clock, lake)
    else:
        raise ValueError(f"destination {destination.name}: a data lake needs a storage")
    return RouteConfig(
        spec=spec,
        compared_settings=destination,
        exporter=exporter,
        stamps=lambda: [source.change_stamp() for source in _credential_files(destination, secret)],
        linger_s=type.linger_s if destination.linger is None else destination.linger,
        lands=type.build is None,
        beside=type.beside(of_topic, secret, clock, lake) if type.beside and lake else None,
        reads_packed=type.reads_packed,
    )

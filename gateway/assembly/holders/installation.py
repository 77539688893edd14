"""Makes what handlers of the installation work with, and what all handlers share."""

from __future__ import annotations

from collections.abc import Callable

from gateway.assembly.limits import role_limits
from gateway.assembly.parts import Assembler
from gateway.configuration.in_effect import in_effect
from gateway.http.holders.installation import InstallationServices, Urls


def installation_services(
    parts: Assembler, *, version: str, urls: Callable[[], Urls]
) -> InstallationServices:
    storage = parts.storage
    return InstallationServices(
        registry=storage.registry,
        registry_problem=storage.registry_problem,
        clock=parts.clock,
        secret=storage.secret,
        version=version,
        urls=urls,
        leases=storage.leases,
        database=storage.health,
        inflight=parts.inflight,
        copy=storage.copy,
        connections=parts.operator_connections,
        event_streams=parts.event_streams,
        settings=lambda: tuple(in_effect(parts.config)),
        most=lambda limit: parts.config.most(limit),
        answers=lambda: parts.config.answers,
        role_limits=lambda: role_limits(parts.config.roles),
        privacy=lambda: parts.config.privacy,
        channels=parts.channel_states,
        seal_channel=parts.seal_channel,
    )

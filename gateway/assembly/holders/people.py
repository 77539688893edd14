"""Makes what handlers of people and their sign-in work with."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from gateway.assembly.parts import Assembler
from gateway.configuration.addresses import split_address
from gateway.configuration.sections import Config, OidcSettings
from gateway.http.holders.people import PeopleServices
from gateway.http.listening.listener import operator_listen
from spool.people import People


def people_services(parts: Assembler) -> PeopleServices:
    config = parts.config
    storage = parts.storage
    host, _ = split_address(operator_listen(config.server) or config.server.listen)
    return PeopleServices(
        registry=storage.registry,
        registry_problem=storage.registry_problem,
        clock=parts.clock,
        hashed=People.of_installation(storage.secret).hashed,
        hosts=frozenset({host, *console_hosts(config.oidc)}),
        oidc=parts.sign_ins,
        is_behind_tls=is_behind_tls(config),
        assistants=parts.assistant_sign_ins,
    )


def is_behind_tls(config: Config) -> bool:
    """True if the configuration says that browsers speak https to a proxy in front of the console."""
    return config.server.operator_plaintext or config.oidc.console.startswith("https:")


def console_hosts(settings: OidcSettings) -> Sequence[str]:
    """The name under which people come back from the provider."""
    host = urlsplit(settings.console).hostname if settings.issuer else None
    return (host,) if host else ()

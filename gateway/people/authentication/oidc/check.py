"""What `tollhouse check` and `tollhouse doctor` report of the provider of [oidc]."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.people.authentication.oidc.problems import ProviderDown
from gateway.people.authentication.oidc.provider import IdentityProvider
from gateway.service.configuration.sections import ConfigError, OidcSettings
from spool.clock import Clock


async def provider_problem(settings: OidcSettings, *, clock: Clock) -> str:
    """Why nobody can sign in with the provider now; empty if its addresses and keys were found."""
    try:
        provider = IdentityProvider(settings, "", clock)
    except ConfigError as error:
        return "; ".join(error.problems)
    try:
        await provider.probe()
    except ProviderDown as error:
        return str(error)
    finally:
        await provider.close()
    return ""


async def missing_for_clients(settings: OidcSettings, *, clock: Clock) -> Sequence[str]:
    """
    List what assistants will miss at the provider, a sentence each; nothing if it does not answer,
    which `provider_problem` says.
    """
    try:
        provider = IdentityProvider(settings, "", clock)
    except ConfigError:
        return ()
    try:
        return tuple(_missing(await provider.discovery()))
    except ProviderDown:
        return ()
    finally:
        await provider.close()


def _missing(document: Mapping[str, Any]) -> Iterator[str]:
    methods = document.get("code_challenge_methods_supported")
    if not isinstance(methods, list) or "S256" not in methods:
        yield "code_challenge_methods_supported has no S256: clients that keep to the protocol refuse to sign in"
    by_document = document.get("client_id_metadata_document_supported") is True
    if not by_document and "registration_endpoint" not in document:
        yield "no way for clients to register: give each its client id by hand"
    if document.get("authorization_response_iss_parameter_supported") is not True:
        yield "answers do not name their issuer (RFC 9207): a client of several providers may mix them up"

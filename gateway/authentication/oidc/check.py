"""What `tollhouse check` and `tollhouse doctor` report of the provider of [oidc]."""

from __future__ import annotations

from gateway.authentication.oidc.problems import ProviderDown
from gateway.authentication.oidc.provider import IdentityProvider
from gateway.configuration.sections import ConfigError, OidcSettings
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

"""
A person who uses an assistant and is identified by a token of the organization's OpenID provider. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gateway.configuration.assistants import FOR_PEOPLE
from gateway.configuration.sections import McpOAuthSettings
from gateway.core.errors import Refusal
from spool.registry.roles import RoleHolder

WELL_KNOWN = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonUsingAssistant:
    """
    A person with an assistant. `client` is the id of the person's program. `may_write`: the token also allows
    writing. `claims` are the token's claims; the token itself is not stored.
    """

    holder: RoleHolder
    client: str
    may_write: bool
    claims: Mapping[str, Any] = field(repr=False)

    @property
    def email(self) -> str:
        return self.holder.person

    @property
    def principal(self) -> str:
        """
        Return the name under which use is counted. The person has one share for the console and all tokens.
        """
        return f"person {self.email}"


def metadata_address(oauth: McpOAuthSettings) -> str:
    """Return the metadata's address: the well-known part first, then the resource's path."""
    parts = urlsplit(oauth.resource)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"


def is_path_for_tokens(oauth: McpOAuthSettings, path: str) -> bool:
    """
    Return whether a path accepts tokens. A proxy may add a prefix to the path of the configured resource.
    """
    if not oauth.resource:
        return False
    return oauth.resource.endswith(FOR_PEOPLE) == path.endswith(FOR_PEOPLE)


def challenge_header(
    oauth: McpOAuthSettings, *, scopes: str = "", error: str = "", error_description: str = ""
) -> str:
    """Return the header of a 401, from which clients learn where to get a token and with which scopes."""
    parameters = {
        "error": error,
        "error_description": error_description,
        "resource_metadata": metadata_address(oauth),
        "scope": scopes or oauth.read_scope,
    }
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in parameters.items() if value)


def step_up_challenge(oauth: McpOAuthSettings) -> str:
    """
    Return the challenge for a token that only allows reading. It names both scopes, because clients replace
    the old scopes.
    """
    return challenge_header(
        oauth, error="insufficient_scope", scopes=f"{oauth.read_scope} {oauth.write_scope}"
    )


def no_credential_refusal(oauth: McpOAuthSettings) -> Refusal:
    message = (
        "sign in with your organization's provider, or send an API key as the whole Authorization header"
    )
    return Refusal(401, "missing_token", message, challenge=challenge_header(oauth))


def bad_token_refusal(oauth: McpOAuthSettings, reason: str) -> Refusal:
    """
    Return the refusal of an invalid token. It states the failed check (`reason`), and nothing of the token.
    """
    sent = challenge_header(oauth, error="invalid_token", error_description=f"the token is refused: {reason}")
    return Refusal(401, "invalid_token", f"the token is refused: {reason}", challenge=sent)


def no_scope_refusal(oauth: McpOAuthSettings) -> Refusal:
    message = f"the token lacks the scope {oauth.read_scope} (mcp.oauth.read_scope)"
    sent = challenge_header(oauth, error="insufficient_scope")
    return Refusal(403, "insufficient_scope", message, challenge=sent)

"""A person who asks by way of an assistant, as the token of the organization's provider names one. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gateway.service.configuration.assistants import FOR_PEOPLE
from gateway.service.configuration.sections import McpOAuthSettings
from gateway.service.errors import Refusal
from spool.registry.roles import Holder

WELL_KNOWN = "/.well-known/oauth-protected-resource"


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantPerson:
    """
    `client` is the id of the program that the person uses; `may_write`: the token is good for more than
    reading. `claims` are those of the token, which is not kept itself.
    """

    holder: Holder
    client: str
    may_write: bool
    claims: Mapping[str, Any] = field(repr=False)

    @property
    def email(self) -> str:
        return self.holder.person

    @property
    def principal(self) -> str:
        """The same as in the console: one person has one share, however many tokens and clients."""
        return f"person {self.email}"


def metadata_address(oauth: McpOAuthSettings) -> str:
    """Return the address of the metadata: the path of the resource stands behind the well-known part."""
    parts = urlsplit(oauth.resource)
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{parts.path}"


def takes_tokens(oauth: McpOAuthSettings, path: str) -> bool:
    """True if tokens are taken at a path of ours: behind a proxy the resource may have a longer one."""
    if not oauth.resource:
        return False
    return oauth.resource.endswith(FOR_PEOPLE) == path.endswith(FOR_PEOPLE)


def challenge(oauth: McpOAuthSettings, *, scopes: str = "", error: str = "", words: str = "") -> str:
    """The value of WWW-Authenticate: where a client learns how to get a token, and with which scopes."""
    given = {
        "error": error,
        "error_description": words,
        "resource_metadata": metadata_address(oauth),
        "scope": scopes or oauth.read_scope,
    }
    return "Bearer " + ", ".join(f'{name}="{value}"' for name, value in given.items() if value)


def step_up(oauth: McpOAuthSettings) -> str:
    """The challenge for a token that is good for reading alone: it names what was granted, too."""
    return challenge(oauth, error="insufficient_scope", scopes=f"{oauth.read_scope} {oauth.write_scope}")


def no_credential(oauth: McpOAuthSettings) -> Refusal:
    """401 that begins a sign-in."""
    message = (
        "sign in with your organization's provider, or send an API key alone in the Authorization header"
    )
    return Refusal(401, "missing_token", message, challenge=challenge(oauth))


def bad_token(oauth: McpOAuthSettings, words: str) -> Refusal:
    """401 that says which check a token did not pass, and nothing of the token."""
    sent = challenge(oauth, error="invalid_token", words=f"the token is refused: {words}")
    return Refusal(401, "invalid_token", f"the token is refused: {words}", challenge=sent)


def no_scope(oauth: McpOAuthSettings) -> Refusal:
    message = f"the token lacks the scope {oauth.read_scope} (mcp.oauth.read_scope)"
    sent = challenge(oauth, error="insufficient_scope")
    return Refusal(403, "insufficient_scope", message, challenge=sent)

"""Which credential a request of an assistant carries: a key, or a person's token of the organization's provider."""

from __future__ import annotations

from aiohttp import web

from gateway.authentication.access import Bearer
from gateway.authentication.assistant_people import bad_token, no_credential, takes_tokens
from gateway.configuration.sections import McpOAuthSettings
from gateway.errors import Refusal
from gateway.http.key_carriage import API_KEY_HEADER, authorization
from gateway.http.services import Services
from spool.registry.scopes import AI_HUB

_KEYS = ("th_", "thd_")  # how the secrets of this installation begin
_BEARER = "bearer "


async def admit_person(request: web.Request, services: Services) -> Bearer | None:
    """
    The bearer of a person's token; None where a key is asked for or given, whose rules are those of every
    address. Refusal 401 with a challenge, without any credential or for a token that proves nothing.
    """
    operators = services.operators
    oauth = operators.assistants.mcp().oauth
    if not takes_tokens(oauth, request.path):
        return None
    given = authorization(request)
    if request.headers.get(API_KEY_HEADER):
        return None
    if not given or not given.strip():
        raise no_credential(oauth)
    token = _token(given, oauth, takes_keys=services.receivers.access.takes_prefix)
    if token is None:
        return None
    people = operators.people.assistants
    if people is None:
        message = "who signs in here is not known now: repeat later, or use an API key"
        raise Refusal(503, "people_unavailable", message, retry_after_s=30)
    person = await people.admit(token, address=request.remote or "")
    return Bearer(person.principal, frozenset({AI_HUB}), person=person)


def _token(given: str, oauth: McpOAuthSettings, *, takes_keys: bool) -> str | None:
    """The token of Bearer; None for a key. Refusal 401 for what is neither."""
    if given[: len(_BEARER)].lower() != _BEARER:
        return None
    text = given[len(_BEARER) :].strip()
    if text.startswith(_KEYS):
        return None
    if text.count(".") == 2:
        return text
    if takes_keys:
        return None
    raise bad_token(oauth, "it is not a signed token in the compact form")

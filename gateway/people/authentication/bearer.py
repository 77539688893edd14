"""The key of a request, as handlers and the intake see it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from gateway.core.errors import Refusal
from spool.erasure import GATEWAY_BELOW
from spool.record import DEVICE_KEYS
from spool.registry.scopes import CREATE_EVENT, INGEST

if TYPE_CHECKING:
    from spool.log.partial_reports import ExpectedVersion

# scopes with which a request stores nothing after its key has ended
KEPT_UNDER = frozenset({INGEST, CREATE_EVENT})
LISTED_DEVICE_KEYS = "keys of listed devices"

Labels = Mapping[str, str]
NO_LABELS: Labels = MappingProxyType({})

# forms of wrong keys; the descriptions never quote the key
_WHOLE = "send only the key as the value of the Authorization header"
_NAMED = re.compile(
    r"(authorization|x-api-key|api-key|apikey|token|key|bearer)\s*[=:\s]|.*%20", re.IGNORECASE
)
_PLACEHOLDER = re.compile(
    r"[<${%\[].*|.*(\.\.\.|\u2026|xxx).*|((your|my|the|tollhouse|api|key|token|secret)[_ -]*)+", re.IGNORECASE
)


class PersonWithToken(Protocol):
    """
    A person whom a token of the organization's provider identifies. `client` is the id of the person's program.
    """

    @property
    def email(self) -> str: ...

    @property
    def client(self) -> str: ...

    @property
    def principal(self) -> str:
        """Return the name under which use is counted."""


@dataclass(frozen=True, slots=True)
class AuthenticatedKey:
    """
    The key of a request: its name (never its secret), its scopes, and the labels for its records.

    Every right is off unless the creator of the bearer grants it.

    - `device` is the device that owns this key, and `named` is the device that the request names as its origin.
    - `may_chain`: the sender may be another Tollhouse, whose records are accepted as they are.
    - `is_local`: a program on the agent's own machine sends. Its costs are forwarded, because the gateway decides
      about them. `local_user` is the id of the machine's user who sends, or None if it is unknown.
    - `is_gateway`: the configuration names this key as the key of a Tollhouse, which may revoke and reset the devices
      that report to it.
    - `expects` applies if several gateways share the storage: records are stored only if the key is still valid at
      the commit.
    - `number` is the key's number in the list, or None.
    - `person` is the person, if the request has a token of the provider.
    - `token` is the id of the enrolment token, if the request has one. `may_chain` is then False.
    """

    name: str
    scopes: frozenset[str]
    labels: Mapping[str, str] = field(default_factory=dict)
    device: str | None = None
    named: str | None = None
    may_chain: bool = False
    is_local: bool = False
    local_user: int | None = None
    is_gateway: bool = False
    expects: tuple[ExpectedVersion, ...] = ()
    number: int | None = None
    person: PersonWithToken | None = None
    token: str | None = None

    @property
    def fair_turn_party_name(self) -> str:
        """
        Return the name under which limits count the use. A person has one share for the console and
        assistants together.
        """
        return f"key {self.name}" if self.person is None else self.person.principal

    @property
    def lower_installation(self) -> str | None:
        """Return the name of the agent or gateway below that has this key, or None if another sender has it."""
        if self.device is not None and not self.is_local:
            return self.name
        return f"{GATEWAY_BELOW}{self.name}" if self.is_gateway else None

    @property
    def sender(self) -> str | None:
        """
        Return the sender's name. Device keys share one name, because records name the device. Those that
        `server.chain_keys` lists have another one.
        """
        if self.device is None:
            return self.name or None
        return LISTED_DEVICE_KEYS if self.may_chain else DEVICE_KEYS


def key_ended_refusal() -> Refusal:
    """Return a refusal, because another gateway ended the key just after the request was admitted."""
    return Refusal(401, "unknown_key", "this API key is unknown or was deleted")


def describe_wrong_form(key: str) -> str:
    """Return what is wrong with the form of an unknown key and what to do, or "" if the form is right."""
    if key[:6].lower() == "basic ":
        return f"this address reads no Basic credentials: {_WHOLE}"
    if key[0] in "\"'`" or key[-1] in "\"'`":
        return f"the key is in quotes: {_WHOLE}, without quotes"
    if _PLACEHOLDER.fullmatch(key):
        return "this is a placeholder of an example: put a key into its place, which `tollhouse keys create` prints"
    if _NAMED.match(key):
        return f"the value has more than the key: {_WHOLE}"
    if any(character.isspace() for character in key):
        return f"the key has spaces or line ends: {_WHOLE}"
    if not key.startswith(("th_", "thd_", "the_")):
        return (
            "a key that `tollhouse keys create` prints begins with th_; keys of AI providers and of other products "
            "are not accepted"
        )
    return ""

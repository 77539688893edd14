"""What handlers of people, of their sign-in and of their assistants work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.http.holders.installation import WithRegistry
from gateway.people.authentication.tool_calls import ToolCalls
from gateway.service.attempts import Buckets
from gateway.service.configuration.sections import McpSettings

if TYPE_CHECKING:
    from gateway.people.authentication.oidc.assistants import AssistantSignIns
    from gateway.people.authentication.oidc.sign_ins import ProviderSignIns
    from spool.clock import Clock
    from spool.registry.assistant_tools import ToolCallTable


SIGN_IN_BURST = 10  # wrong passwords at once from one address, then one every 30 seconds
SIGN_IN_PER_S = 1 / 30
# From an address that many people may share: more than an account has, so that one of them does not stop the
# others.
SHARED_BURST, SHARED_PER_S = 300, 1.0
# For one account, from everywhere: wide enough that a few addresses cannot lock its owner out.
ACCOUNT_BURST, ACCOUNT_PER_S = 100, 1 / 3


@dataclass(kw_only=True)
class PeopleServices(WithRegistry):
    """
    The HTTP side and the socket share the counted attempts.

    `hashed` makes of an e-mail address what records keep in its place.

    `hosts` are the names (without port) under which the console may be reached beside loopback and bare
    addresses. `oidc` is None if no OpenID provider is configured. `is_behind_tls`: the configuration says
    that browsers speak https to what is in front of the operator side. `assistants` takes people's tokens for
    the tools of assistants, where there is a provider.
    """

    hosts: frozenset[str] = frozenset()
    hashed: Callable[[str], str] = str
    oidc: ProviderSignIns | None = None
    is_behind_tls: bool = False
    assistants: AssistantSignIns | None = None
    sign_ins: Buckets = field(init=False, repr=False)
    shared_sign_ins: Buckets = field(init=False, repr=False)
    account_sign_ins: Buckets = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.sign_ins = Buckets(self.clock, burst=SIGN_IN_BURST, per_s=SIGN_IN_PER_S)
        self.shared_sign_ins = Buckets(self.clock, burst=SHARED_BURST, per_s=SHARED_PER_S)
        self.account_sign_ins = Buckets(self.clock, burst=ACCOUNT_BURST, per_s=ACCOUNT_PER_S)
        self.hosts = frozenset(host.lower() for host in self.hosts)


@dataclass(kw_only=True)
class AssistantServices:
    """`tool_calls` counts what each key asks."""

    clock: Clock
    mcp: Callable[[], McpSettings] = McpSettings
    counted: ToolCallTable | None = None  # None while the registry is damaged
    tool_calls: ToolCalls = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.tool_calls = ToolCalls(self.clock, self.mcp, self.counted)

"""What handlers of the installation work with: its configuration and storage, and what all handlers share."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from gateway.http.event_streams import EventStreams
from gateway.http.inflight_bytes import InflightBytes
from gateway.http.listening.connections import Connections, operator_connections
from gateway.http.turns import Questions
from gateway.service.configuration.sections import AnswerSettings, Config, PrivacySettings, ServerSettings
from gateway.service.errors import Refusal
from gateway.service.first_use import Once
from spool.installation import derived
from spool.leases import Leases, SoleNode
from spool.people import People
from spool.registry.roles import RoleLimits
from spool.storage import DatabaseHealth, no_database

if TYPE_CHECKING:
    from gateway.http.holders.demo_month import DemoMonth
    from gateway.service.configuration.in_effect import SettingInEffect
    from spool.clock import Clock
    from spool.registry.notices import ChannelState
    from spool.registry.operators import Actor
    from spool.registry.registry import Registry
    from spool.registry.tables.kept_channels import ChannelDraft, KeptChannel, Seal


@dataclass(kw_only=True)
class WithRegistry:
    """
    `registry` is None when its file is damaged, and `registry_problem` says so: the spool can still be looked at.
    """

    registry: Registry | None
    clock: Clock
    registry_problem: str = ""

    def require_registry(self) -> Registry:
        """The registry. Refusal 503 with the reason why there is none."""
        if self.registry is None:
            raise Refusal(503, "registry_damaged", self.registry_problem or "the registry cannot be read")
        return self.registry


_EVERY_ADDRESS = (None, "0.0.0.0", "::")  # of a server that listens everywhere


@dataclass(frozen=True, kw_only=True)
class Urls:
    """
    Where the console is, and where telemetry goes; None: to the address at which the console was reached.

    `public` is where people elsewhere find the console, empty if the configuration does not say.
    """

    console: str
    telemetry: str | None = None
    public: str = ""

    @property
    def shared(self) -> str:
        """The console's address in what is read elsewhere; empty if no name of it is known."""
        if self.public:
            return self.public
        host = urlsplit(self.console).hostname
        return "" if host in _EVERY_ADDRESS else self.console


def _default_urls() -> Urls:
    return Urls(console="http://127.0.0.1:4318/console/")


@dataclass(frozen=True, kw_only=True)
class Reloaded:
    """
    What a reload took over, the settings that were changed and need a restart, by name, and what cannot send with
    what is in force now.
    """

    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]
    problems: tuple[str, ...] = ()


async def _reload_nothing(actor: Actor) -> Reloaded:
    raise Refusal(503, "not_running", "no server runs here: it reads its configuration when it starts")


def _no_seal(draft: ChannelDraft, secret: str | None, before: KeptChannel | None) -> str:
    raise Refusal(503, "no_channels", "channels are not made here")


async def _no_channels() -> Sequence[ChannelState]:
    return ()


@dataclass(kw_only=True)
class InstallationServices(WithRegistry):
    """
    `secret` is the installation's. `urls` is asked when they are shown, because port 0 is known only then.
    `leases` knows the gateways that share the storage, and `database` has the figures of what they share.
    `inflight` are the bytes in flight, which a large answer counts in, too. `copy` is the storage's: it fills a
    directory with copies for a backup. `reload` takes over the configuration in the name of somebody;
    ConfigError when it is refused. `settings` are those in effect, and `most` has the value of one that
    bounds something, by its name. `channels` are those that send notifications,
    and `seal_channel` checks one that people make and seals its secret. `demo` is None where no server runs, and
    where several share a storage.
    """

    secret: bytes
    version: str
    urls: Callable[[], Urls] = _default_urls
    leases: Leases = field(default_factory=SoleNode)
    database: Callable[[], Awaitable[DatabaseHealth | None]] = no_database
    inflight: InflightBytes = field(default_factory=lambda: InflightBytes(sys.maxsize))
    copy: Callable[[Path], Awaitable[None]] | None = None
    connections: Connections = field(default_factory=lambda: operator_connections(ServerSettings()))
    event_streams: EventStreams = field(
        default_factory=lambda: EventStreams(ServerSettings().max_event_streams)
    )
    reload: Callable[[Actor], Awaitable[Reloaded]] = _reload_nothing
    settings: Callable[[], Sequence[SettingInEffect]] = tuple
    most: Callable[[str], int] = Config().most
    answers: Callable[[], AnswerSettings] = AnswerSettings
    role_limits: Callable[[], RoleLimits] = RoleLimits
    privacy: Callable[[], PrivacySettings] = PrivacySettings
    channels: Callable[[], Awaitable[Sequence[ChannelState]]] = _no_channels
    seal_channel: Seal = _no_seal
    demo: Once[DemoMonth[Any]] | None = None
    questions: Questions = field(init=False, repr=False)
    cursor_secret: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.questions = Questions(self.answers)
        self.cursor_secret = derived(self.secret, "list cursors")

    @property
    def people(self) -> People:
        """Who is meant by a name, as `privacy.emails` says now."""
        return People.of_installation(self.secret, self.privacy().emails)

    @property
    def demo_state(self) -> str | None:
        """The word for whether a demo month is loaded; None where there can be none."""
        return None if self.demo is None else self.demo().state

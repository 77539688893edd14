"""
Notification channels from the console, all in memory: values, rules and table.

Higher packages check the types of channels. A channel's secret is stored encrypted and never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from spool.errors import AlreadyThere, Invalid
from spool.record import moment
from spool.registry.changes import Changes
from spool.registry.document_table import DocumentTable, draft_fields
from spool.registry.documents import DocumentKind, row_version
from spool.registry.notices import NoticeTable
from spool.registry.operators import Actor
from spool.registry.texts import check_text, optional_text

MAX_NAME = 64
MAX_ADDRESS = 2048
MAX_TO = 50
MAX_SECRET = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelDraft:
    """
    The fields of a channel that a person sets, which are those of [[notify]].

    `secret_since`: when the secret was set. The audit list shows nothing else of the secret.
    """

    name: str
    type: str
    url: str = ""
    server: str = ""
    tls: str = "starttls"
    username: str = ""
    sender: str = ""
    to: tuple[str, ...] = ()
    insights: str = "warning"
    categories: tuple[str, ...] = ()
    quiet_hours: str = ""
    digest: str = ""
    time_zone: str = "UTC"
    secret_since: str = ""

    @property
    def address(self) -> tuple[str, ...]:
        """Return where the secret is sent. A person who changes this must enter the secret again."""
        return self.url, self.server, self.tls, self.username


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptChannel(ChannelDraft):
    """Times are epoch seconds."""

    sealed: str
    created: float
    last_updated: float

    @property
    def id(self) -> str:
        return self.name

    @property
    def version(self) -> str:
        return row_version(self)


CHANNELS = DocumentKind("channel", KeptChannel, "channel")


def check_channel(draft: ChannelDraft) -> ChannelDraft:
    """
    Return the checked draft. Raises Invalid with the field and the broken rule. The caller checks the type.
    """
    if len(draft.to) > MAX_TO:
        raise Invalid(f"to must have at most {MAX_TO} e-mail addresses")
    texts = {
        field: optional_text(field, getattr(draft, field), MAX_ADDRESS)
        for field in ("url", "server", "username", "sender", "quiet_hours", "digest", "time_zone")
    }
    return replace(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        to=tuple(check_text("to", address, MAX_ADDRESS) for address in draft.to),
        categories=tuple(
            check_text("categories", category, MAX_NAME) for category in draft.categories[:MAX_TO]
        ),
        **texts,
    )


# function that encrypts; raises Invalid for an unusable draft or secret
Seal = Callable[[ChannelDraft, str | None, KeptChannel | None], str]


class KeptChannelTable(DocumentTable[KeptChannel]):
    """The channels. `changed` is called after changes in memory."""

    kind = CHANNELS
    draft = ChannelDraft
    limit = "channels.max"
    action = "channel"

    def __init__(self, changes: Changes, notices: NoticeTable) -> None:
        super().__init__(changes)
        self._notices = notices
        self.changed: Callable[[], None] = lambda: None

    async def create(
        self, draft: ChannelDraft, secret: str | None, seal: Seal, *, most: int, actor: Actor
    ) -> KeptChannel:
        """
        Create a channel. Raises NotAllowed at `most` channels, and AlreadyThere for a name created here or
        configured.
        """
        now = self._changes.now()
        drafted = replace(check_channel(draft), secret_since=moment(now) if secret else "")
        if drafted.name in self._notices.channels:
            raise AlreadyThere(f"a channel named {drafted.name!r} already exists")
        sealed = seal(drafted, secret, None)
        row = KeptChannel(sealed=sealed, created=now, last_updated=now, **draft_fields(drafted))
        return await self._add(row, most=most, actor=actor)

    async def change(
        self,
        name: str,
        changes: Mapping[str, Any],
        secret: str | None,
        seal: Seal,
        *,
        version: str | None = None,
        actor: Actor,
    ) -> KeptChannel:
        """
        Change a channel. Omitted fields and an omitted secret stay. Raises Invalid if the address changes
        without a secret.
        """
        now = self._changes.now()

        def edit(before: KeptChannel) -> KeptChannel:
            drafted = check_channel(self._changed_draft(before, changes))
            sealed = seal(drafted, secret, before)
            if sealed != before.sealed:
                drafted = replace(drafted, secret_since=moment(now))
            return replace(before, **draft_fields(drafted), sealed=sealed)

        return await self._edit(name, edit, version=version, actor=actor)

    async def delete(self, name: str, *, actor: Actor) -> None:
        await self._remove(name, actor=actor)

    def _set_rows(self, rows: dict[str, KeptChannel]) -> None:
        super()._set_rows(rows)
        self.changed()

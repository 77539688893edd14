"""
Notification channels created in the console, all in memory: values, rules and table.

Higher packages check the types of channels. A channel's secret is stored encrypted and never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import msgspec

from spool.errors import AlreadyThere, Invalid, NotAllowed
from spool.record import utc_iso
from spool.registry.changes import RegistryChangeWriter
from spool.registry.document_table import DocumentTable, draft_fields
from spool.registry.documents import DocumentCollection, replace_fields, row_version
from spool.registry.field_notes import example, words
from spool.registry.notices import NoticeTable
from spool.registry.operators import Actor
from spool.registry.texts import check_optional_text, check_text

MAX_NAME = 64
MAX_ADDRESS = 2048
MAX_TO = 50
MAX_SECRET = 4096


Tls = Literal["starttls", "implicit", "none"]
Insights = Literal["none", "info", "warning", "critical"]


class ChannelFields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a channel that a person sets: those of [[notify]] without the secret."""

    name: Annotated[str, words("The name of the channel."), example("search-team")]
    type: Annotated[str, words("The type of the channel."), example("webhook")]
    url: Annotated[
        str, words("The address to which the channel sends."), example("https://hooks.example.com/tollhouse")
    ] = ""
    server: Annotated[str, words("The mail server as HOST:PORT.")] = ""
    tls: Annotated[Tls, words("The encryption of the connection to the mail server.")] = "starttls"
    username: Annotated[str, words("The user name on the mail server.")] = ""
    sender: Annotated[str, words("The sender address of mails.")] = ""
    to: Annotated[tuple[str, ...], words(f"E-mail addresses of the recipients, at most {MAX_TO}.")] = ()
    insights: Annotated[
        Insights, words("The minimum severity of insights that are sent."), example("warning")
    ] = "warning"
    categories: Annotated[
        tuple[str, ...], words("The categories of insights that are sent; empty for all.")
    ] = ()
    quiet_hours: Annotated[
        str,
        words("The hours in which only critical notifications are sent."),
        example("", changed="22:00-07:00"),
    ] = ""
    digest: Annotated[
        str, words("The time of day at which notifications of severity `info` are sent together.")
    ] = ""
    time_zone: Annotated[
        str,
        words("The time zone of the quiet hours and the digest."),
        example("UTC", changed="Europe/Berlin"),
    ] = "UTC"

    @property
    def address(self) -> tuple[str, ...]:
        """
        Return the fields that decide where the secret is sent. A person who changes one must enter the secret
        again.
        """
        return self.url, self.server, self.tls, self.username


class StoredChannel(ChannelFields, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """
    A stored channel. Times are epoch seconds. `secret_since`: when the secret was set, which is all that the
    audit list shows about it.
    """

    secret_since: str = ""
    sealed: str
    created: float
    last_updated: float

    @property
    def id(self) -> str:
        return self.name

    @property
    def version(self) -> str:
        return row_version(self)


CHANNELS = DocumentCollection("channel", StoredChannel, "channel")


def check_channel(channel_fields: ChannelFields) -> ChannelFields:
    """
    Return the checked fields. The caller checks the type. Raises Invalid with the field and the broken rule.
    """
    if len(channel_fields.to) > MAX_TO:
        raise Invalid(f"to must have at most {MAX_TO} e-mail addresses")
    texts = {
        field: check_optional_text(field, getattr(channel_fields, field), MAX_ADDRESS)
        for field in ("url", "server", "username", "sender", "quiet_hours", "digest", "time_zone")
    }
    return replace_fields(
        channel_fields,
        name=check_text("name", channel_fields.name, MAX_NAME),
        to=tuple(check_text("to", address, MAX_ADDRESS) for address in channel_fields.to),
        categories=tuple(
            check_text("categories", category, MAX_NAME) for category in channel_fields.categories[:MAX_TO]
        ),
        **texts,
    )


# function that encrypts; raises Invalid for an unusable draft or secret
Seal = Callable[[ChannelFields, str | None, StoredChannel | None], str]


def _refuse_to_encrypt(
    channel_fields: ChannelFields, secret: str | None, old_channel: StoredChannel | None
) -> str:
    raise NotAllowed("channels cannot be created here")


class KeptChannelTable(DocumentTable[StoredChannel]):
    """
    The channels created in the console. `seal` checks a new channel and encrypts its secret. `changed` is
    called with the table after changes in memory.
    """

    kind = CHANNELS
    draft = ChannelFields
    limit = "channels.max"
    action = "channel"

    def __init__(self, change_writer: RegistryChangeWriter, notices: NoticeTable) -> None:
        super().__init__(change_writer)
        self.notices = notices
        self.seal: Seal = _refuse_to_encrypt
        self.changed: Callable[[KeptChannelTable], None] = lambda _: None

    def be_draft_of(self, table: KeptChannelTable, *, keeps_secrets: bool = False) -> None:
        """
        Encrypt and announce changes as `table` does. With `keeps_secrets`, a new channel without a secret gets that
        of the channel of `table` with its name.
        """

        def seal_with_secret_of_table(
            channel_fields: ChannelFields, secret: str | None, old_channel: StoredChannel | None
        ) -> str:
            return table.seal(channel_fields, secret, old_channel or table.find(channel_fields.name))

        self.seal = seal_with_secret_of_table if keeps_secrets else table.seal
        self.changed = table.changed
        self.changed(self)

    async def create(
        self, draft: ChannelFields, secret: str | None, *, max_rows: int, actor: Actor
    ) -> StoredChannel:
        """
        Create a channel. Raises NotAllowed if there are `max_rows` channels, and AlreadyThere if a channel has
        the name, in the console or the configuration.
        """
        now = self._changes.now()
        drafted = check_channel(draft)
        if drafted.name in self.notices.channels:
            raise AlreadyThere(f"a channel named {drafted.name!r} already exists")
        sealed = self.seal(drafted, secret, None)
        row = StoredChannel(
            sealed=sealed,
            secret_since=utc_iso(now) if secret else "",
            created=now,
            last_updated=now,
            **draft_fields(drafted, ChannelFields),
        )
        return await self._add_row(row, max_rows=max_rows, actor=actor)

    async def change(
        self,
        name: str,
        changes: Mapping[str, Any],
        secret: str | None,
        *,
        version: str | None = None,
        actor: Actor,
    ) -> StoredChannel:
        """
        Change a channel. Omitted fields and an omitted secret stay. Raises Invalid if the address changes
        without a secret.
        """
        now = self._changes.now()

        def edit_channel(old_channel: StoredChannel) -> StoredChannel:
            drafted = check_channel(self._changed_draft(old_channel, changes))
            sealed = self.seal(drafted, secret, old_channel)
            since = old_channel.secret_since if sealed == old_channel.sealed else utc_iso(now)
            return replace_fields(old_channel, **draft_fields(drafted), sealed=sealed, secret_since=since)

        return await self._edit_row(name, edit_channel, version=version, actor=actor)

    def _audited_fields(self, row: StoredChannel, names: Iterable[str] | None = None) -> dict[str, Any]:
        members = {**super()._audited_fields(row), "secret_since": row.secret_since}
        return members if names is None else {name: members[name] for name in names}

    async def delete(self, name: str, *, actor: Actor) -> None:
        await self._remove_row(name, actor=actor)

    def _set_rows(self, rows: dict[str, StoredChannel]) -> None:
        super()._set_rows(rows)
        self.changed(self)

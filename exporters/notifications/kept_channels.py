"""
Channels that people made in the console, as settings: their secrets are sealed for the registry and opened here.

Sealed with AES-256 under a secret of the installation: whoever has the rows of the registry alone reads none.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from exporters.errors import SendError
from exporters.notifications.catalogue import build, problems
from exporters.notifications.channel import KeptSettings
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.errors import Invalid
from spool.installation import derived
from spool.registry.tables.kept_channels import MAX_SECRET, ChannelDraft, KeptChannel

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12


@dataclass(frozen=True, kw_only=True)
class ChannelSeal:
    """`secret` is the installation's."""

    secret: bytes
    clock: Clock

    def __call__(self, draft: ChannelDraft, secret: str | None, before: KeptChannel | None) -> str:
        """The sealed secret of a channel, "" without one. Invalid for what could not be sent with."""
        if secret and (len(secret) > MAX_SECRET or not secret.isprintable() or " " in secret):
            raise Invalid(f"secret is one line of at most {MAX_SECRET} characters without blanks")
        if before is not None and not secret:
            if before.sealed and draft.address != before.address:
                raise Invalid("secret: state it again, because the address is another one")
            secret = self.opened(before)
        self._check(draft, secret or "")
        if before is not None and secret == self.opened(before):
            return before.sealed
        return self._sealed(draft.name, secret) if secret else ""

    def opened(self, channel: KeptChannel) -> str:
        if not channel.sealed:
            return ""
        data = b64decode(channel.sealed)
        return self._cipher().decrypt(data[:_NONCE], data[_NONCE:], channel.name.encode()).decode()

    def settings(self, channel: KeptChannel) -> KeptSettings:
        return _settings(channel, self.opened(channel))

    def _check(self, draft: ChannelDraft, secret: str) -> None:
        settings = _settings(draft, secret)
        found = next(problems([settings], shown="channel"), None)
        if found is not None:
            raise Invalid(found.removeprefix("channel.").removeprefix("channel "))
        try:
            build(settings, self.clock).check_secret()
        except SendError as error:
            raise Invalid(f"secret: {error}") from error

    def _sealed(self, name: str, secret: str) -> str:
        nonce = secrets.token_bytes(_NONCE)
        return b64encode(nonce + self._cipher().encrypt(nonce, secret.encode(), name.encode())).decode()

    def _cipher(self) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import (
            AESGCM,  # no start needs it without such a channel
        )

        return AESGCM(derived(self.secret, "channels"))


def _settings(draft: ChannelDraft, secret: str) -> KeptSettings:
    shared = {each.name for each in fields(NotifySettings)} & {each.name for each in fields(ChannelDraft)}
    return KeptSettings(secret=secret, **{name: getattr(draft, name) for name in shared})

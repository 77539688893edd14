"""
The channels that people created in the console, as settings.

Their secrets are encrypted with AES-256 under a secret of the installation, so the registry's rows do not
reveal them.
"""

from __future__ import annotations

import secrets
from base64 import b64decode, b64encode
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from exporters.errors import SendError
from exporters.notifications.catalogue import all_channel_problems, build_channel
from exporters.notifications.channel import StoredChannelSettings
from exporters.settings import NotifySettings
from spool.clock import Clock
from spool.errors import Invalid
from spool.installation import derive_secret
from spool.registry.tables.kept_channels import MAX_SECRET, ChannelFields, StoredChannel

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE = 12


@dataclass(frozen=True, kw_only=True)
class ChannelSecretCipher:
    secret: bytes
    clock: Clock

    def __call__(
        self, channel_fields: ChannelFields, secret: str | None, old_channel: StoredChannel | None
    ) -> str:
        """Encrypt a channel's secret. Raises Invalid if the channel could not send with it."""
        if secret and (len(secret) > MAX_SECRET or not secret.isprintable() or " " in secret):
            raise Invalid(f"secret must be one line of at most {MAX_SECRET} characters, without spaces")
        if old_channel is not None and not secret:
            if old_channel.sealed and channel_fields.address != old_channel.address:
                raise Invalid("secret: enter it again, because the address changed")
            secret = self.decrypt_secret(old_channel)
        self._check_draft(channel_fields, secret or "")
        if old_channel is not None and secret == self.decrypt_secret(old_channel):
            return old_channel.sealed
        return self._encrypt_secret(channel_fields.name, secret) if secret else ""

    def decrypt_secret(self, channel: StoredChannel) -> str:
        if not channel.sealed:
            return ""
        data = b64decode(channel.sealed)
        return self._new_cipher().decrypt(data[:_NONCE], data[_NONCE:], channel.name.encode()).decode()

    def decrypt_settings(self, channel: StoredChannel) -> StoredChannelSettings:
        return _build_settings(channel, self.decrypt_secret(channel))

    def _check_draft(self, channel_fields: ChannelFields, secret: str) -> None:
        settings = _build_settings(channel_fields, secret)
        problem = next(all_channel_problems([settings], shown_name="channel"), None)
        if problem is not None:
            raise Invalid(problem.removeprefix("channel.").removeprefix("channel "))
        try:
            build_channel(settings, self.clock).check_secret()
        except SendError as error:
            raise Invalid(f"secret: {error}") from error

    def _encrypt_secret(self, name: str, secret: str) -> str:
        nonce = secrets.token_bytes(_NONCE)
        return b64encode(nonce + self._new_cipher().encrypt(nonce, secret.encode(), name.encode())).decode()

    def _new_cipher(self) -> AESGCM:
        # imported late, because it is needed only if such a channel exists
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(derive_secret(self.secret, "channels"))


def _build_settings(channel_fields: ChannelFields, secret: str) -> StoredChannelSettings:
    shared = {attribute.name for attribute in fields(NotifySettings)} & {*ChannelFields.__struct_fields__}
    return StoredChannelSettings(secret=secret, **{name: getattr(channel_fields, name) for name in shared})

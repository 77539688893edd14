"""What the channels have in common that send each message with one HTTP request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from exporters.errors import Rejected, SendError
from exporters.http.allowed_addresses import address_check_for
from exporters.http.client import ClientSettings, HttpClient
from exporters.notifications.channel import (
    TIMEOUT_S,
    FixedSecret,
    NotificationMessage,
    SecretAddress,
    StoredChannelSettings,
    check_message_accepted,
    misconfigured_if_gone,
)
from exporters.probe import Probe, error_probe, probe_connection
from exporters.secret_source import SecretSource
from exporters.settings import NotifySettings
from spool.clock import Clock

Secret = TypeVar("Secret", bound=SecretSource | FixedSecret | SecretAddress | None)


class HttpChannel(ABC, Generic[Secret]):
    """A channel with its secret and its HTTP client. A type states how it builds and checks a request."""

    def __init__(self, settings: NotifySettings, clock: Clock, secret: Secret) -> None:
        self._settings = settings
        self._clock = clock
        self._secret = secret
        # if an account created the channel, each connection's address is checked
        check = (
            address_check_for(settings.url or settings.secret)
            if isinstance(settings, StoredChannelSettings)
            else None
        )
        client_settings = ClientSettings(
            proxy=settings.proxy,
            ca_file=settings.ca_file,
            timeout_s=TIMEOUT_S,
            compression="none",
            check=check,
        )
        self._client = HttpClient(client_settings, clock=clock)

    async def send(self, message: NotificationMessage) -> str:
        try:
            await self._request(message)
        except Rejected as error:
            raise misconfigured_if_gone(error) from error
        return ""

    @abstractmethod
    async def _request(self, message: NotificationMessage) -> None:
        """Send the request. Raises an error of exporters.errors if the message was not accepted."""

    @abstractmethod
    def _checked_url(self) -> str:
        """Return the address. Raises Misconfigured if the secret cannot be read or used."""

    def check_secret(self) -> None:
        self._checked_url()

    def secret_file_state(self) -> object:
        return None if self._secret is None else self._secret.change_stamp()

    async def probe(self) -> Probe:
        try:
            url = self._checked_url()
        except SendError as error:
            return error_probe(error)
        return await probe_connection(self._client, url)

    async def close(self) -> None:
        await self._client.close()


class AddressChannel(HttpChannel[SecretAddress]):
    """A channel whose secret is its address. A type states the body of a message."""

    def __init__(self, settings: NotifySettings, clock: Clock) -> None:
        super().__init__(settings, clock, SecretAddress(settings))

    def _checked_url(self) -> str:
        return self._secret.value()

    @abstractmethod
    def _body(self, message: NotificationMessage) -> bytes: ...

    async def _request(self, message: NotificationMessage) -> None:
        address = self._checked_url()
        answer = await self._client.send(
            address, self._body(message), content_type="application/json", secrets=[address]
        )
        check_message_accepted(answer)

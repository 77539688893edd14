"""
A data lake in an object store, and the only user of obstore (extra `lake`).

All options are set here, so environment variables only give credentials and cannot send files elsewhere.
obstore's retries are off, because a repeated put after a lost response would look like another writer's file.
Requests that fail quickly are repeated here, so that one failure does not restart a delivery of many files.
Before a put is repeated, its object is looked up.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Final, TypeVar

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.http.client import ClientSettings
from exporters.lake.external_account import ExternalAccount
from exporters.lake.stores import StoredObject
from exporters.redaction import redact_secrets, secret_lines
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings

T = TypeVar("T")
_TIMEOUT: Final = timedelta(seconds=120)
_CONNECT: Final = timedelta(seconds=10)
_NO_RETRIES: Final = {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}
_STATUS: Final = re.compile(r"status(?: code)?:? ?\"?(\d{3})", re.IGNORECASE)
_REGION: Final = "us-east-1"
_PAUSES: Final = (0.1, 0.5, 2.0)  # seconds before each retry
_SOON: Final = 5.0  # seconds; a request that fails after this time is not retried

Build = Callable[[DestinationSettings, "SecretSource | None", str, str], Any]


class ObjectStore:
    """An object store. If a secret file changes, a new client is made."""

    def __init__(self, settings: DestinationSettings, secret: SecretSource | None) -> None:
        self._settings = settings
        self._secret = secret
        self._store: Any = None
        self._client_stamp: object = None

    async def create_object(self, name: str, content: Path | bytes) -> bool:
        body = content if isinstance(content, bytes) else await asyncio.to_thread(content.read_bytes)
        return await _retry_quick_failures(lambda: self._create_object(name, body))

    async def _create_object(self, name: str, body: bytes) -> bool:
        # the check of the size also works for stores that ignore conditions, and for lost responses
        return await self._object_size(name) is None and await self._put_new_object(name, body)

    async def _put_new_object(self, name: str, body: bytes) -> bool:
        try:
            await self._request_once(
                lambda store: obstore.put_async(store, name, body, mode="create", use_multipart=False)
            )
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
            return False
        except FileNotFoundError as error:
            raise self._missing_bucket_error() from error
        return True

    async def probe_overwrite_refusal(self, name: str, content: bytes) -> bool:
        try:
            return not await _retry_quick_failures(lambda: self._put_new_object(name, content))
        except Misconfigured:  # as with Google, a key may be allowed to create but not to overwrite
            return True

    async def object_size(self, name: str) -> int | None:
        return await _retry_quick_failures(lambda: self._object_size(name))

    async def _object_size(self, name: str) -> int | None:
        try:
            metadata = await self._request_once(lambda store: obstore.head_async(store, name))
        except FileNotFoundError:
            return None
        return int(metadata["size"])

    async def read_end(self, name: str, size: int, count: int) -> bytes:
        start = max(0, size - count)
        data = await self._request_with_retries(
            lambda store: obstore.get_range_async(store, name, start=start, end=size)
        )
        return bytes(data)

    async def fetch(self, name: str, path: Path) -> None:
        async def copy_object(store: Any) -> None:
            result = await obstore.get_async(store, name)
            with path.open("wb") as file:
                async for piece in result.stream():
                    file.write(piece)

        await self._request_with_retries(copy_object)

    async def list_objects(self, prefix: str, *, after: str = "") -> AsyncIterator[StoredObject]:
        async def list_all_objects(store: Any) -> list[StoredObject]:
            stream = obstore.list(store, prefix=prefix.rstrip("/"), offset=after or None)
            return [
                StoredObject(str(item["path"]), int(item["size"])) async for part in stream for item in part
            ]

        try:
            objects = await self._request_with_retries(list_all_objects)
        except FileNotFoundError as error:
            raise self._missing_bucket_error() from error
        for stored_object in sorted(objects):
            # some stores ignore the offset
            if stored_object.name > after:
                yield stored_object

    def _missing_bucket_error(self) -> Misconfigured:
        return Misconfigured(f"the bucket or container of {self._settings.url} does not exist", status=404)

    async def _request_with_retries(self, send: Callable[[Any], Awaitable[T]]) -> T:
        return await _retry_quick_failures(lambda: self._request_once(send))

    async def _request_once(self, send: Callable[[Any], Awaitable[T]]) -> T:
        """
        Send a request once. Raises exporters.errors, FileNotFoundError, or the library's error for an
        existing object.
        """
        store = self._current_client()
        try:
            return await send(store)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileNotFoundError):
            raise
        except exceptions.BaseError as error:
            raise self._translate_error(error) from error

    def _current_client(self) -> Any:
        stamp = None if self._secret is None else self._secret.change_stamp()
        if self._store is None or stamp != self._client_stamp:
            try:
                self._store = _build_client(self._settings, self._secret)
            except exceptions.BaseError as error:
                raise Misconfigured(self._error_message(error), answered=False) from error
            self._client_stamp = stamp
        return self._store

    def _translate_error(self, error: Exception) -> SendError:
        """
        Return Misconfigured if the key, the address or the store must be fixed, and Retryable for other
        errors.
        """
        credential_error: SendError | None = getattr(self._store.credential_provider, "error", None)
        if credential_error is not None:
            return credential_error
        message = self._error_message(error)
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            return Misconfigured(message)
        match = _STATUS.search(str(error))
        status = int(match[1]) if match else None
        is_final = status is not None and (300 <= status < 500 or status == 501)
        if is_final and status not in (408, 409, 425, 429):
            return Misconfigured(message)
        # Without a status, the request may have succeeded. A retry then finds the object.
        return Retryable(message, answered=status is not None)

    def _error_message(self, error: BaseException) -> str:
        provider = getattr(self._store, "credential_provider", None)
        token = getattr(provider, "token", "")
        text = redact_secrets(str(error).split("Debug source:")[0], [*secret_lines(self._secret), token])
        return text or type(error).__name__


async def _retry_quick_failures(request: Callable[[], Awaitable[T]]) -> T:
    for pause in _PAUSES:
        began = monotonic()
        try:
            return await request()
        except Retryable:
            if monotonic() - began > _SOON:
                raise
        await asyncio.sleep(pause)
    return await request()


def _build_client(settings: DestinationSettings, secret: SecretSource | None) -> Any:
    scheme, _, rest = settings.url.partition("://")
    bucket, _, prefix = rest.strip("/").partition("/")
    return _BUILDS[scheme](settings, secret, bucket, prefix)


def _client_options(settings: DestinationSettings) -> dict[str, Any]:
    client: dict[str, Any] = {
        "timeout": _TIMEOUT,
        "connect_timeout": _CONNECT,
        "allow_http": settings.endpoint.startswith("http://"),
    }
    if settings.proxy:
        client["proxy_url"] = settings.proxy
    if settings.ca_file is not None:
        try:
            client["root_certificate"] = settings.ca_file.read_bytes()
        except OSError as error:
            raise Misconfigured(f"{settings.ca_file}: {error.strerror}", answered=False) from error
    return {"client_options": client, "retry_config": _NO_RETRIES}


def _build_s3_client(
    settings: DestinationSettings, secret: SecretSource | None, bucket: str, prefix: str
) -> Any:
    region = settings.region or _REGION
    endpoint = settings.endpoint or f"https://s3.{region}.amazonaws.com"
    config: dict[str, Any] = {
        "region": region,
        "endpoint": endpoint,
        "aws_endpoint_url_s3": endpoint,
        "virtual_hosted_style_request": False,
        "checksum_algorithm": "SHA256",
        "skip_signature": False,
        "conditional_put": "etag",
    }
    if secret is not None:
        key_id, key, token = [*secret.value().split("\n"), "", "", ""][:3]
        config |= {"access_key_id": key_id, "secret_access_key": key}
        if token:
            config["token"] = token
    if settings.role:
        config |= {"role_arn": settings.role, "role_session_name": "tollhouse"}
    if settings.identity_token_file is not None:
        config["web_identity_token_file"] = str(settings.identity_token_file)
    kind, _, key_name = settings.encryption.rpartition("aws:kms:")
    if kind or settings.encryption.startswith("aws:kms:"):
        config |= {"server_side_encryption": "aws:kms", "sse_kms_key_id": key_name}
    elif settings.encryption:
        config["server_side_encryption"] = settings.encryption
    return S3Store(bucket, prefix=prefix or None, config=config, **_client_options(settings))


def _build_gcs_client(
    settings: DestinationSettings, secret: SecretSource | None, bucket: str, prefix: str
) -> Any:
    config: dict[str, Any] = {"skip_signature": False}
    if settings.secret_file is not None:
        config["service_account_path"] = str(settings.secret_file)
    if settings.endpoint:
        config["base_url"] = settings.endpoint
    options = _client_options(settings)
    if settings.secret_file is None and settings.identity_token_file is not None:
        client = ClientSettings(proxy=settings.proxy, ca_file=settings.ca_file, compression="none")
        options["credential_provider"] = ExternalAccount(settings.identity_token_file, client)
    return GCSStore(bucket, prefix=prefix or None, config=config, **options)


def _build_azure_client(
    settings: DestinationSettings, secret: SecretSource | None, bucket: str, prefix: str
) -> Any:
    endpoint = settings.endpoint or f"https://{settings.account}.blob.core.windows.net"
    config: dict[str, Any] = {"account_name": settings.account, "endpoint": endpoint, "skip_signature": False}
    if secret is not None:
        value = secret.value()
        is_signature = "sig=" in value
        config["sas_key" if is_signature else "account_key"] = value.lstrip("?") if is_signature else value
    if settings.identity_token_file is not None:
        config["federated_token_file"] = str(settings.identity_token_file)
    return AzureStore(bucket, prefix=prefix or None, config=config, **_client_options(settings))


_BUILDS: Final[dict[str, Build]] = {
    "s3": _build_s3_client,
    "gs": _build_gcs_client,
    "az": _build_azure_client,
}

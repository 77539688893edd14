"""
An identity outside Google: the platform's token is exchanged for one that the store accepts.

The file is Google's for workload identity federation (`external_account`). The store library only reads files
of service accounts and users.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.http.client import ClientSettings, HttpClient
from spool.clock import Clock, SystemClock

T = TypeVar("T")
_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS: Final = "urn:ietf:params:oauth:token-type:access_token"
_STORE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
_ACCOUNTS: Final = "https://www.googleapis.com/auth/iam"  # scope of a token to act as a service account
_LIFETIME_S: Final = 3600
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class TokenFormat(msgspec.Struct, frozen=True):
    type: str = "text"
    subject_token_field_name: str = ""


class CredentialPlace(msgspec.Struct, frozen=True):
    file: str = ""
    format: TokenFormat = TokenFormat()


class AccountFile(msgspec.Struct, frozen=True):
    """The used fields of a Google external account file."""

    type: str
    audience: str
    subject_token_type: str
    token_url: str
    credential_source: CredentialPlace
    service_account_impersonation_url: str = ""


class TokenAnswer(msgspec.Struct, frozen=True):
    access_token: str
    expires_in: float = _LIFETIME_S


class AccountAnswer(msgspec.Struct, frozen=True, rename="camel"):
    access_token: str
    expire_time: datetime


class ExternalAccount:
    """
    An exchange of an external account's token for the cloud's access token. `error`: the last failure, which
    the calling library hides.
    """

    def __init__(self, file: Path, settings: ClientSettings, clock: Clock | None = None) -> None:
        self._file = file
        self._settings = settings
        self._clock = clock or SystemClock()
        self.error: SendError | None = None
        self.token = ""  # newest access token

    async def __call__(self) -> dict[str, Any]:
        try:
            token = await self._fetch_token()
        except Retryable as error:
            self.error = error
            raise
        except SendError as error:  # the operator must fix the file or the permissions
            self.error = Misconfigured(str(error), answered=False)
            raise
        self.error = None
        self.token = str(token["token"])
        return token

    async def _fetch_token(self) -> dict[str, Any]:
        account = self._read_account()
        is_other = bool(account.service_account_impersonation_url)
        async with HttpClient(self._settings, clock=self._clock) as client:
            own = await self._exchange_token(client, account, _ACCOUNTS if is_other else _STORE)
            if not is_other:
                ends = datetime.fromtimestamp(self._clock.now(), UTC) + timedelta(seconds=own.expires_in)
                return {"token": own.access_token, "expires_at": ends}
            return await _fetch_service_account_token(client, account, own.access_token)

    def _read_account(self) -> AccountFile:
        try:
            account = msgspec.json.decode(self._read_file(self._file), type=AccountFile)
        except msgspec.DecodeError as error:
            raise self._file_error(f"it is not an external account file: {error}") from error
        if account.type != "external_account":
            raise self._file_error(f"its type is {account.type!r} instead of 'external_account'")
        if not account.credential_source.file:
            raise self._file_error("its credential_source names no file")
        for url in (account.token_url, account.service_account_impersonation_url):
            if url and not _is_encrypted_or_loopback(url):
                raise self._file_error(f"{url} does not begin with https://")
        return account

    async def _exchange_token(self, client: HttpClient, account: AccountFile, scope: str) -> TokenAnswer:
        subject = self._read_subject_token(account.credential_source)
        parameters = {
            "grant_type": _EXCHANGE,
            "audience": account.audience,
            "scope": scope,
            "requested_token_type": _ACCESS,
            "subject_token": subject,
            "subject_token_type": account.subject_token_type,
        }
        body = urlencode(parameters).encode()
        answer = await client.send(
            account.token_url, body, content_type="application/x-www-form-urlencoded", secrets=[subject]
        )
        return _decode_answer(answer.body, TokenAnswer)

    def _read_subject_token(self, source: CredentialPlace) -> str:
        text = self._read_file(Path(source.file))
        if source.format.type != "json":
            return text.strip()
        try:
            token = msgspec.json.decode(text, type=dict[str, Any])[source.format.subject_token_field_name]
        except (msgspec.DecodeError, KeyError) as error:
            raise self._file_error(
                f"{source.file} does not contain {source.format.subject_token_field_name!r}"
            ) from error
        return str(token)

    def _read_file(self, path: Path) -> str:
        try:
            return path.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise Misconfigured(f"cannot read {path}: {reason}", answered=False) from error

    def _file_error(self, problem: str) -> Misconfigured:
        return Misconfigured(f"{self._file}: {problem}", answered=False)


async def _fetch_service_account_token(
    client: HttpClient, account: AccountFile, token: str
) -> dict[str, Any]:
    request = {"scope": [_STORE], "lifetime": f"{_LIFETIME_S}s"}
    answer = await client.send(
        account.service_account_impersonation_url,
        msgspec.json.encode(request),
        content_type="application/json",
        authorization=f"Bearer {token}",
        secrets=[token],
    )
    token_answer = _decode_answer(answer.body, AccountAnswer)
    return {"token": token_answer.access_token, "expires_at": token_answer.expire_time}


def _decode_answer(body: bytes, type: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.DecodeError as error:
        raise Retryable(f"the response contains no token: {error}", answered=True) from error


def _is_encrypted_or_loopback(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)

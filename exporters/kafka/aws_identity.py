"""
The keys of the AWS identity of a machine, a container or a pod, as the services around it give them, and the token that
is signed with keys: for `aws-msk-iam`, with or without a file of keys.
"""

from __future__ import annotations

import hmac
import os
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

import msgspec

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.http.client import Client, ClientSettings
from exporters.settings import DestinationSettings
from spool.clock import Clock, SystemClock

T = TypeVar("T")
_TIMEOUT_S: Final = 10.0
_BEFORE_S: Final = 300.0  # new keys are asked for so long before the old ones end
_MACHINE: Final = "http://169.254.169.254"
_CONTAINER: Final = "http://169.254.170.2"
_ROLES: Final = "/latest/meta-data/iam/security-credentials/"
_SESSION: Final = "x-aws-ec2-metadata-token"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
ENDS_S: Final = 900  # the longest that is taken
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "kafka-cluster"


class AwsKeys(NamedTuple):
    key_id: str
    secret: str
    session: str = ""
    ends: float = 0.0  # 0: they stay


class _GivenKeys(msgspec.Struct, frozen=True, rename="pascal"):
    """What services answer."""

    access_key_id: str
    secret_access_key: str
    token: str
    expiration: datetime


class AwsIdentity:
    """Asks in the order of AWS's own tools: variables, a role by a token, the container or the pod, the machine."""

    def __init__(
        self,
        settings: DestinationSettings,
        *,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._clock = clock or SystemClock()
        self._region = settings.region
        self._role = settings.role or self._environ.get("AWS_ROLE_ARN", "")
        file = self._environ.get("AWS_WEB_IDENTITY_TOKEN_FILE", "")
        self._token_file = settings.identity_token_file or (Path(file) if file else None)
        self._kept: AwsKeys | None = None

    async def keys(self) -> AwsKeys:
        """Misconfigured where nobody gives any, Retryable where who gives them does not answer."""
        kept = self._kept
        if kept is None or (kept.ends and kept.ends - _BEFORE_S < self._clock.now()):
            settings = ClientSettings(compression="none", timeout_s=_TIMEOUT_S)
            async with Client(settings, clock=self._clock) as client:
                kept = await self._asked(client)
            self._kept = kept
        return kept

    async def _asked(self, client: Client) -> AwsKeys:
        variable = self._environ.get
        try:
            if variable("AWS_ACCESS_KEY_ID"):
                session = variable("AWS_SESSION_TOKEN", "")
                return AwsKeys(
                    variable("AWS_ACCESS_KEY_ID", ""), variable("AWS_SECRET_ACCESS_KEY", ""), session
                )
            if self._role and self._token_file is not None:
                return await self._of_role(client, self._token_file)
            address = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
            path = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
            if address or path:
                return await self._of_container(client, address or f"{_CONTAINER}{path}")
            return await self._of_machine(client)
        except Retryable:
            raise
        except SendError as error:
            words = f"secret_file is empty, and AWS gives this machine no keys: {error}"
            raise Misconfigured(words, answered=False) from error

    async def _of_role(self, client: Client, file: Path) -> AwsKeys:
        """The token of a pod, exchanged for a session of its role."""
        token = _text(file)
        asked = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": self._role,
            "RoleSessionName": "tollhouse",
            "WebIdentityToken": token,
        }
        url = self._environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{self._region}.amazonaws.com"
        if not _is_safe(url):
            raise Misconfigured(f"{url} does not begin with https://", answered=False)
        kind = "application/x-www-form-urlencoded"
        answer = await client.send(url, urlencode(asked).encode(), content_type=kind, secrets=[token])
        try:
            found = {
                one.tag.rpartition("}")[2]: one.text or ""
                for one in ElementTree.fromstring(answer.body).iter()
            }
            ends = datetime.fromisoformat(found["Expiration"]).timestamp()
            return AwsKeys(found["AccessKeyId"], found["SecretAccessKey"], found["SessionToken"], ends)
        except (ElementTree.ParseError, KeyError, ValueError) as error:
            raise Retryable("the answer of AWS has no keys", answered=True) from error

    async def _of_container(self, client: Client, url: str) -> AwsKeys:
        token = self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
        file = self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")
        if file:
            token = _text(Path(file))
        return await _given(client, url, {"Authorization": token} if token else {})

    async def _of_machine(self, client: Client) -> AwsKeys:
        place = self._environ.get("AWS_METADATA_ENDPOINT", _MACHINE).rstrip("/")
        asked = {f"{_SESSION}-ttl-seconds": "600"}
        url = f"{place}/latest/api/token"
        session = await client.send(url, b"", method="PUT", content_type="text/plain", headers=asked)
        headers = {_SESSION: session.body.decode()}
        roles = await client.send(
            f"{place}{_ROLES}", b"", method="GET", content_type="text/plain", headers=headers
        )
        role = roles.body.decode().split("\n")[0].strip()
        return await _given(client, f"{place}{_ROLES}{role}", headers)


async def _given(client: Client, url: str, headers: Mapping[str, str]) -> AwsKeys:
    answer = await client.send(url, b"", method="GET", content_type="text/plain", headers=headers)
    try:
        found = msgspec.json.decode(answer.body, type=_GivenKeys)
    except msgspec.DecodeError as error:
        raise Retryable("the answer of AWS has no keys", answered=True) from error
    return AwsKeys(found.access_key_id, found.secret_access_key, found.token, found.expiration.timestamp())


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        words = error.strerror if isinstance(error, OSError) else "it is not text"
        raise Misconfigured(f"{file} cannot be read: {words}", answered=False) from error


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK


def aws_token(key_id: str, secret: str, session: str, *, region: str, now: float) -> str:
    """
    Return the token that a cluster of Amazon MSK takes: an address of its service, signed with the keys (Signature
    Version 4 in the query), in base64. `session` is that of temporary keys, else empty.
    """
    at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    host, scope = f"kafka.{region}.amazonaws.com", f"{at[:8]}/{region}/{_SERVICE}/aws4_request"
    asked = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{key_id}/{scope}",
        "X-Amz-Date": at,
        "X-Amz-Expires": str(ENDS_S),
        "X-Amz-SignedHeaders": "host",
    }
    if session:
        asked["X-Amz-Security-Token"] = session
    query = urlencode(sorted(asked.items()), quote_via=quote, safe="")
    request = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{sha256().hexdigest()}"
    text = f"{_ALGORITHM}\n{at}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    signature = reduce(_signed, [*scope.split("/"), text], f"AWS4{secret}".encode()).hex()
    address = f"https://{host}/?{query}&X-Amz-Signature={signature}&User-Agent=tollhouse"
    return urlsafe_b64encode(address.encode()).rstrip(b"=").decode()


def _signed(key: bytes, words: str) -> bytes:
    return hmac.digest(key, words.encode(), "sha256")

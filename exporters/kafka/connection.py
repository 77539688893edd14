"""
Connections of the Kafka library: addresses, TLS, identity, reading, and its errors.

For `aws-msk-iam`, tokens are signed with keys from a file, or from a service of the machine, container or
pod.
"""

from __future__ import annotations

import hmac
import logging
import os
import ssl
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from functools import reduce
from hashlib import sha256
from inspect import signature
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, urlencode, urlsplit
from xml.etree import ElementTree

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import collect_hosts, create_conn

from exporters.errors import Misconfigured, Retryable, SendError
from exporters.http.client import ClientSettings, HttpClient
from exporters.kafka.messages import AWS, TopicProgress, decode_progress
from exporters.redaction import redact_secrets, secret_lines
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock, SystemClock

REQUEST_S: Final = 30.0
# the route logs these errors
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
_OF_A_CONNECTION: Final = frozenset(signature(create_conn).parameters)
# errors for which waiting does not help
_FAULTS: Final = (
    kafka.TopicAuthorizationFailedError,
    kafka.ClusterAuthorizationFailedError,
    kafka.GroupAuthorizationFailedError,
    kafka.TransactionalIdAuthorizationFailed,
    kafka.AuthenticationFailedError,
    kafka.AuthenticationMethodNotSupported,
    kafka.UnsupportedSaslMechanismError,
    kafka.SaslAuthenticationFailed,
    kafka.UnknownTopicOrPartitionError,
    kafka.InvalidTopicError,
    kafka.UnsupportedVersionError,
    kafka.UnsupportedForMessageFormatError,
    kafka.MessageSizeTooLargeError,
    kafka.RecordListTooLargeError,
    kafka.InvalidReplicationFactorError,
    ssl.SSLCertVerificationError,
)
_POLL_S: Final = 0.5
_MAX_WAIT_S: Final = 90.0  # longer than any abandoned transaction

T = TypeVar("T")
_TIMEOUT_S: Final = 10.0
_RENEWAL_LEAD_S: Final = 300.0  # seconds before the expiry of keys at which they are renewed
_MACHINE: Final = "http://169.254.169.254"
_CONTAINER: Final = "http://169.254.170.2"
_ROLES: Final = "/latest/meta-data/iam/security-credentials/"
_SESSION: Final = "x-aws-ec2-metadata-token"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
TOKEN_LIFETIME_S: Final = 900
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_SERVICE: Final = "kafka-cluster"


def client_options(settings: DestinationSettings, secret: SecretSource | None) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": settings.url,
        "request_timeout_ms": int(REQUEST_S * 1000),
        "client_id": f"tollhouse-{settings.name}",
    }
    options["security_protocol"] = ("SASL_" if settings.sasl else "") + (
        "SSL" if settings.tls else "PLAINTEXT"
    )
    if settings.tls:
        options["ssl_context"] = _build_tls_context(settings)
    if settings.sasl == "oauthbearer":
        options |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _FileToken(settings)}
    elif settings.sasl == AWS:
        if secret is not None:
            # read now, so that its errors come before a connection
            _secret_lines(secret, max_lines=3)
        options |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _AwsToken(settings, secret)}
    elif settings.sasl:
        user, password = _secret_lines(secret, max_lines=2)
        options |= {
            "sasl_mechanism": settings.sasl.upper(),
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
    return options


def _secret_lines(secret: SecretSource | None, *, max_lines: int) -> list[str]:
    """
    Return the lines of a secret file. Raises Misconfigured if it has fewer than two or more than `max_lines`.
    """
    lines = (secret.value() if secret else "").split("\n")
    if not 2 <= len(lines) <= max_lines:
        content = (
            "a user and a password"
            if max_lines == 2
            else "the key id, the secret key, and optionally the session token"
        )
        raise Misconfigured(f"secret_file must contain {content}, each on its own line", answered=False)
    return lines


async def check_broker_connections(options: Mapping[str, Any]) -> None:
    """Connect to the brokers, and raise their error, which the library otherwise only logs."""
    errors = list[Exception]()
    # the other options, such as `transactional_id`, are for producers only
    identity = {name: value for name, value in options.items() if name in _OF_A_CONNECTION}
    for host, port, _ in collect_hosts(options["bootstrap_servers"]):
        try:
            connection = await create_conn(host, port, **identity)
            await connection.close()
        except (kafka.KafkaError, OSError, TimeoutError) as error:
            errors.append(error)
    faults = [error for error in errors if _needs_operator(error)]
    if errors:
        raise [*faults, *errors][0]


def _needs_operator(error: Exception) -> bool:
    """
    Return whether the operator must fix an error. This includes a TLS alert, which reports a refused client
    certificate.
    """
    cause = error.__cause__
    is_alert = isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or "")
    return is_alert or isinstance(error, _FAULTS)


async def start_client(client: Any, options: Mapping[str, Any]) -> None:
    """Start a client of the library. Raises the error of a broker, if there is one."""
    try:
        await client.start()
    except kafka.KafkaConnectionError:
        await check_broker_connections(options)
        raise
    except AssertionError as error:
        # brokers answer a rejected token with an empty list, which the library does not expect
        if options.get("sasl_mechanism") != "OAUTHBEARER":
            raise
        raise kafka.AuthenticationFailedError("the brokers rejected the token") from error


class _FileToken(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """A token in a file that another program renews."""

    def __init__(self, settings: DestinationSettings) -> None:
        self._source = SecretSource(f"destination {settings.name}", file=settings.identity_token_file)

    async def token(self) -> str:
        return self._source.value()


class _AwsToken(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """
    The tokens of one connection to AWS. Without a file of keys, they are signed with the machine's identity.
    """

    def __init__(self, settings: DestinationSettings, secret: SecretSource | None) -> None:
        self._region = settings.region
        self._secret = secret
        self._identity = AwsKeyProvider(settings)

    async def token(self) -> str:
        if self._secret is None:
            key_id, secret, session, _ = await self._identity.current_keys()
        else:
            key_id, secret, *further_lines = _secret_lines(self._secret, max_lines=3)
            session = "".join(further_lines)
        return signed_msk_token(key_id, secret, session, region=self._region, now=SystemClock().now())


def _build_tls_context(settings: DestinationSettings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    with _translate_file_errors(settings.ca_file):
        if settings.ca_file is not None:
            context.load_verify_locations(settings.ca_file)
    with _translate_file_errors(settings.tls_cert_file, settings.tls_key_file):
        if settings.tls_cert_file is not None:
            # with an empty password, OpenSSL does not ask for one on the terminal
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, password="")
    return context


@contextmanager
def _translate_file_errors(*files: Path | None) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # includes ssl.SSLError, which is an OSError
        names = " and ".join(str(file) for file in files if file is not None)
        reason = (isinstance(error, OSError) and error.strerror) or str(error)
        raise Misconfigured(f"{names} cannot be used: {reason}", answered=False) from error


@contextmanager
def translate_errors(settings: DestinationSettings, secret: SecretSource | None) -> Iterator[None]:
    """
    In the block, raise Misconfigured for errors that the operator must fix, and Retryable for others, without
    secrets.
    """
    try:
        yield
    except msgspec.DecodeError as error:
        text = "the progress topic contains a message that is not progress: another program writes there"
        raise Misconfigured(text, answered=False) from error
    except (kafka.KafkaError, OSError, TimeoutError) as error:
        kind = Misconfigured if _needs_operator(error) else Retryable
        raise kind(_error_message(error, _secrets_to_hide(settings, secret)), answered=False) from error


def _secrets_to_hide(settings: DestinationSettings, secret: SecretSource | None) -> list[str]:
    token = SecretSource(f"destination {settings.name}", file=settings.identity_token_file)
    return [*secret_lines(secret)[1:], *(secret_lines(token) if settings.identity_token_file else ())]


def _error_message(error: BaseException, secrets: Iterable[str]) -> str:
    """Return the message of an error. Such messages name topics and addresses, but no records."""
    name = type(error).__name__
    text = str(error)
    message = text if name in text else f"{name.removesuffix('Error')}: {text}"
    cause = f" ({error.__cause__})" if isinstance(error.__cause__, ssl.SSLError) else ""
    return redact_secrets(f"{message}{cause}", secrets)


@asynccontextmanager
async def open_reader(options: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Open a reader without a consumer group, so that reading leaves no traces."""
    reader = AIOKafkaConsumer(**options, isolation_level="read_committed", enable_auto_commit=False)
    try:
        await start_client(reader, options)
        yield reader
    finally:
        await reader.stop()


async def fetch_partitions(reader: Any, topic: str) -> list[int]:
    # fetch, because the reader's own metadata covers only the topics that it reads
    cluster = await reader._client.fetch_all_metadata()
    return sorted(cluster.partitions_for_topic(topic) or ())


async def seek_to_beginning(reader: Any, topic: str, partitions: Sequence[int]) -> set[int]:
    """Go to the first message of each partition. Return the partitions with deleted first messages."""
    places = [TopicPartition(topic, partition) for partition in partitions]
    reader.assign(places)
    begins = await reader.beginning_offsets(places)
    for partition, offset in begins.items():
        reader.seek(partition, offset)
    return {partition.partition for partition, offset in begins.items() if offset}


async def read_to_end(reader: Any) -> AsyncIterator[Any]:
    """Yield messages up to the present end. Raises TimeoutError after _MAX_WAIT_S without a message."""
    ends = await reader.end_offsets(reader.assignment())
    waited = 0.0
    while [partition for partition, end in ends.items() if await reader.position(partition) < end]:
        read = await reader.getmany(timeout_ms=int(_POLL_S * 1000))
        waited = 0.0 if read else waited + _POLL_S
        if waited > _MAX_WAIT_S:
            raise TimeoutError(f"no message arrived for {_MAX_WAIT_S:.0f} s")
        for batch in read.values():
            for message in batch:
                yield message


async def read_progresses(
    reader: Any, topic: str, is_wanted: Callable[[bytes], bool]
) -> Mapping[bytes, TopicProgress]:
    await seek_to_beginning(reader, topic, [0])
    return {
        message.key: decode_progress(message.value)
        async for message in read_to_end(reader)
        if is_wanted(message.key or b"")
    }


class AwsKeys(NamedTuple):
    key_id: str
    secret: str
    session: str = ""
    expires_at: float = 0.0  # expiry in epoch seconds, 0 without


class _ServiceKeys(msgspec.Struct, frozen=True, rename="pascal"):
    access_key_id: str
    secret_access_key: str
    token: str
    expiration: datetime


class AwsKeyProvider:
    """
    The identity that AWS's own tools would find: environment variables, a role with a token, the container or
    pod, or the machine.
    """

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
        self._cached_keys: AwsKeys | None = None

    async def current_keys(self) -> AwsKeys:
        """Return the keys. Raises Misconfigured without keys, Retryable without a response."""
        cached = self._cached_keys
        if cached is None or (cached.expires_at and cached.expires_at - _RENEWAL_LEAD_S < self._clock.now()):
            settings = ClientSettings(compression="none", timeout_s=_TIMEOUT_S)
            async with HttpClient(settings, clock=self._clock) as client:
                cached = await self._fetch_keys(client)
            self._cached_keys = cached
        return cached

    async def _fetch_keys(self, client: HttpClient) -> AwsKeys:
        variable = self._environ.get
        try:
            if variable("AWS_ACCESS_KEY_ID"):
                session = variable("AWS_SESSION_TOKEN", "")
                return AwsKeys(
                    variable("AWS_ACCESS_KEY_ID", ""), variable("AWS_SECRET_ACCESS_KEY", ""), session
                )
            if self._role and self._token_file is not None:
                return await self._fetch_role_keys(client, self._token_file)
            address = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
            path = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
            if address or path:
                return await self._fetch_container_keys(client, address or f"{_CONTAINER}{path}")
            return await self._fetch_machine_keys(client)
        except Retryable:
            raise
        except SendError as error:
            message = f"secret_file is empty, and AWS provides no keys to this machine: {error}"
            raise Misconfigured(message, answered=False) from error

    async def _fetch_role_keys(self, client: HttpClient, file: Path) -> AwsKeys:
        token = _read_text(file)
        parameters = {
            "Action": "AssumeRoleWithWebIdentity",
            "Version": "2011-06-15",
            "RoleArn": self._role,
            "RoleSessionName": "tollhouse",
            "WebIdentityToken": token,
        }
        url = self._environ.get("AWS_ENDPOINT_URL_STS") or f"https://sts.{self._region}.amazonaws.com"
        if not _is_encrypted_or_loopback(url):
            raise Misconfigured(f"{url} does not begin with https://", answered=False)
        kind = "application/x-www-form-urlencoded"
        answer = await client.send(url, urlencode(parameters).encode(), content_type=kind, secrets=[token])
        try:
            values = {
                element.tag.rpartition("}")[2]: element.text or ""
                for element in ElementTree.fromstring(answer.body).iter()
            }
            ends = datetime.fromisoformat(values["Expiration"]).timestamp()
            return AwsKeys(values["AccessKeyId"], values["SecretAccessKey"], values["SessionToken"], ends)
        except (ElementTree.ParseError, KeyError, ValueError) as error:
            raise Retryable("the response of AWS contains no keys", answered=True) from error

    async def _fetch_container_keys(self, client: HttpClient, url: str) -> AwsKeys:
        token = self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
        file = self._environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "")
        if file:
            token = _read_text(Path(file))
        return await _fetch_aws_keys_from_url(client, url, {"Authorization": token} if token else {})

    async def _fetch_machine_keys(self, client: HttpClient) -> AwsKeys:
        base = self._environ.get("AWS_METADATA_ENDPOINT", _MACHINE).rstrip("/")
        session_headers = {f"{_SESSION}-ttl-seconds": "600"}
        url = f"{base}/latest/api/token"
        session = await client.send(
            url, b"", method="PUT", content_type="text/plain", headers=session_headers
        )
        headers = {_SESSION: session.body.decode()}
        roles = await client.send(
            f"{base}{_ROLES}", b"", method="GET", content_type="text/plain", headers=headers
        )
        role = roles.body.decode().split("\n")[0].strip()
        return await _fetch_aws_keys_from_url(client, f"{base}{_ROLES}{role}", headers)


async def _fetch_aws_keys_from_url(client: HttpClient, url: str, headers: Mapping[str, str]) -> AwsKeys:
    answer = await client.send(url, b"", method="GET", content_type="text/plain", headers=headers)
    try:
        keys = msgspec.json.decode(answer.body, type=_ServiceKeys)
    except msgspec.DecodeError as error:
        raise Retryable("the response of AWS contains no keys", answered=True) from error
    return AwsKeys(keys.access_key_id, keys.secret_access_key, keys.token, keys.expiration.timestamp())


def _read_text(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise Misconfigured(f"cannot read {file}: {reason}", answered=False) from error


def _is_encrypted_or_loopback(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or parts.hostname in _LOOPBACK


def signed_msk_token(key_id: str, secret: str, session_token: str, *, region: str, now: float) -> str:
    """
    Return a token for Amazon MSK: a base64 address, signed with Signature Version 4 in the query.

    `session_token`: session token of temporary keys, or "".
    """
    at = datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    host, scope = f"kafka.{region}.amazonaws.com", f"{at[:8]}/{region}/{_SERVICE}/aws4_request"
    parameters = {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{key_id}/{scope}",
        "X-Amz-Date": at,
        "X-Amz-Expires": str(TOKEN_LIFETIME_S),
        "X-Amz-SignedHeaders": "host",
    }
    if session_token:
        parameters["X-Amz-Security-Token"] = session_token
    query = urlencode(sorted(parameters.items()), quote_via=quote, safe="")
    request = f"GET\n/\n{query}\nhost:{host}\n\nhost\n{sha256().hexdigest()}"
    text = f"{_ALGORITHM}\n{at}\n{scope}\n{sha256(request.encode()).hexdigest()}"
    signature = reduce(_hmac_sha256, [*scope.split("/"), text], f"AWS4{secret}".encode()).hex()
    address = f"https://{host}/?{query}&X-Amz-Signature={signature}&User-Agent=tollhouse"
    return urlsafe_b64encode(address.encode()).rstrip(b"=").decode()


def _hmac_sha256(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")

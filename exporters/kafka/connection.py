"""
How a client of the library connects (the addresses, TLS and the identity) and reads; and its errors as
`exporters.errors`.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from inspect import signature
from pathlib import Path
from typing import Any, Final

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as kafka
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import collect_hosts, create_conn

from exporters.errors import Misconfigured, Retryable
from exporters.kafka.aws_identity import AwsIdentity, aws_token
from exporters.kafka.messages import AWS, TopicProgress, read_progress
from exporters.redaction import lines_of, redact
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import SystemClock

REQUEST_S: Final = 30.0
# What it tells is raised as well, and told by the route.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
_OF_A_CONNECTION: Final = frozenset(signature(create_conn).parameters)
# The operator has to change something: waiting alone mends none of these.
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
_READ_S: Final = 0.5
_MOST_S: Final = 90.0  # a transaction that nobody goes on with ends before


def options_of(settings: DestinationSettings, secret: SecretSource | None) -> dict[str, Any]:
    """Return what every client of the library is made with: addresses and identity, as they are now."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.url,
        "request_timeout_ms": int(REQUEST_S * 1000),
        "client_id": f"tollhouse-{settings.name}",
    }
    options["security_protocol"] = ("SASL_" if settings.sasl else "") + (
        "SSL" if settings.tls else "PLAINTEXT"
    )
    if settings.tls:
        options["ssl_context"] = _context(settings)
    if settings.sasl == "oauthbearer":
        options |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _Token(settings)}
    elif settings.sasl == AWS:
        if secret is not None:
            _lines(secret, most=3)  # told before anybody connects
        options |= {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _AwsToken(settings, secret)}
    elif settings.sasl:
        user, password = _lines(secret, most=2)
        options |= {
            "sasl_mechanism": settings.sasl.upper(),
            "sasl_plain_username": user,
            "sasl_plain_password": password,
        }
    return options


def _lines(secret: SecretSource | None, *, most: int) -> list[str]:
    """The lines of a secret file; Misconfigured if there are fewer than two, or too many."""
    lines = (secret.value() if secret else "").split("\n")
    if not 2 <= len(lines) <= most:
        words = (
            "a user and a password" if most == 2 else "the id and the secret of a key, and its session token"
        )
        raise Misconfigured(f"secret_file must hold {words}, a line each", answered=False)
    return lines


async def find_fault(options: Mapping[str, Any]) -> None:
    """
    Raise what the brokers say to somebody who connects: the library only writes it to a log.

    Nothing is raised if they all let us in by now.
    """
    errors = list[Exception]()
    # A producer's own options, such as `transactional_id`, are none of a connection.
    identity = {name: value for name, value in options.items() if name in _OF_A_CONNECTION}
    for host, port, _ in collect_hosts(options["bootstrap_servers"]):
        try:
            connection = await create_conn(host, port, **identity)
            await connection.close()
        except (kafka.KafkaError, OSError, TimeoutError) as error:
            errors.append(error)
    faults = [each for each in errors if _is_fault(each)]
    if errors:
        raise [*faults, *errors][0]


def _is_fault(error: Exception) -> bool:
    """True for what only the operator mends; a broker tells of a client certificate by an alert of TLS."""
    cause = error.__cause__
    is_alert = isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or "")
    return is_alert or isinstance(error, _FAULTS)


async def start(library: Any, options: Mapping[str, Any]) -> None:
    """Start a producer or a consumer; its errors are what the brokers say."""
    try:
        await library.start()
    except kafka.KafkaConnectionError:
        await find_fault(options)
        raise
    except AssertionError as error:
        # Brokers answer a token that they do not take with a list of no brokers, which the library does not expect.
        if options.get("sasl_mechanism") != "OAUTHBEARER":
            raise
        raise kafka.AuthenticationFailedError("the brokers do not take the token") from error


class _Token(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """The token of a file, as it is now: whoever made the file renews it."""

    def __init__(self, settings: DestinationSettings) -> None:
        self._source = SecretSource(f"destination {settings.name}", file=settings.identity_token_file)

    async def token(self) -> str:
        return self._source.value()


class _AwsToken(AbstractTokenProvider):  # type: ignore[misc]  # the library has no types
    """A token signed now, with the keys as they are now: one for each connection. Without a file, the machine's own."""

    def __init__(self, settings: DestinationSettings, secret: SecretSource | None) -> None:
        self._region = settings.region
        self._secret = secret
        self._identity = AwsIdentity(settings)

    async def token(self) -> str:
        if self._secret is None:
            key_id, secret, session, _ = await self._identity.keys()
        else:
            key_id, secret, *more = _lines(self._secret, most=3)
            session = "".join(more)
        return aws_token(key_id, secret, session, region=self._region, now=SystemClock().now())


def _context(settings: DestinationSettings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    with _readable(settings.ca_file):
        if settings.ca_file is not None:
            context.load_verify_locations(settings.ca_file)
    with _readable(settings.tls_cert_file, settings.tls_key_file):
        if settings.tls_cert_file is not None:
            # With a password nobody is asked for one on the terminal.
            context.load_cert_chain(settings.tls_cert_file, settings.tls_key_file, password="")
    return context


@contextmanager
def _readable(*files: Path | None) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        names = " and ".join(str(file) for file in files if file is not None)
        words = (isinstance(error, OSError) and error.strerror) or str(error)
        raise Misconfigured(f"{names} cannot be used: {words}", answered=False) from error


@contextmanager
def translated(settings: DestinationSettings, secret: SecretSource | None) -> Iterator[None]:
    """
    Raise what the library raises as Misconfigured where the operator has to change something, else Retryable; the words
    of brokers without what was signed in with.
    """
    try:
        yield
    except msgspec.DecodeError as error:
        text = "the topic of progress has a message that is none: something else writes there"
        raise Misconfigured(text, answered=False) from error
    except (kafka.KafkaError, OSError, TimeoutError) as error:
        kind = Misconfigured if _is_fault(error) else Retryable
        raise kind(_words(error, _secrets_of(settings, secret)), answered=False) from error


def _secrets_of(settings: DestinationSettings, secret: SecretSource | None) -> list[str]:
    """Return the passwords, keys and tokens, without the user that comes first."""
    token = SecretSource(f"destination {settings.name}", file=settings.identity_token_file)
    return [*lines_of(secret)[1:], *(lines_of(token) if settings.identity_token_file else ())]


def _words(error: BaseException, secrets: Iterable[str]) -> str:
    """The kind of an error, its text and its cause, which name topics and addresses, no record."""
    name = type(error).__name__
    text = str(error)
    said = text if name in text else f"{name.removesuffix('Error')}: {text}"
    cause = f" ({error.__cause__})" if isinstance(error.__cause__, ssl.SSLError) else ""
    return redact(f"{said}{cause}", secrets)


@asynccontextmanager
async def reader_of(options: Mapping[str, Any]) -> AsyncIterator[Any]:
    """Yield a consumer that is in no group and leaves nothing behind."""
    reader = AIOKafkaConsumer(**options, isolation_level="read_committed", enable_auto_commit=False)
    try:
        await start(reader, options)
        yield reader
    finally:
        await reader.stop()


async def partitions_of(reader: Any, topic: str) -> list[int]:
    """Return the partitions of a topic; none if it is not there."""
    cluster = (
        await reader._client.fetch_all_metadata()
    )  # the reader itself knows of topics that it reads alone
    return sorted(cluster.partitions_for_topic(topic) or ())


async def begin(reader: Any, topic: str, partitions: Sequence[int]) -> set[int]:
    """Go to the beginning of partitions; return those whose first messages are not kept any more."""
    places = [TopicPartition(topic, each) for each in partitions]
    reader.assign(places)
    begins = await reader.beginning_offsets(places)
    for place, offset in begins.items():
        reader.seek(place, offset)
    return {place.partition for place, offset in begins.items() if offset}


async def messages(reader: Any) -> AsyncIterator[Any]:
    """Yield what there is by now, those of a partition in their order. TimeoutError if a transaction has no end."""
    ends = await reader.end_offsets(reader.assignment())
    waited = 0.0
    while [place for place, end in ends.items() if await reader.position(place) < end]:
        read = await reader.getmany(timeout_ms=int(_READ_S * 1000))
        waited = 0.0 if read else waited + _READ_S
        if waited > _MOST_S:
            raise TimeoutError(f"no message came for {_MOST_S:.0f} s")
        for found in read.values():
            for message in found:
                yield message


async def read_progresses(
    reader: Any, topic: str, is_wanted: Callable[[bytes], bool]
) -> Mapping[bytes, TopicProgress]:
    """Return the newest progress under each key that is wanted."""
    await begin(reader, topic, [0])
    return {
        message.key: read_progress(message.value)
        async for message in messages(reader)
        if is_wanted(message.key or b"")
    }

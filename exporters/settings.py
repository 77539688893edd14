"""The sections that say what is sent where: [upstream], [[destinations]] and [[notify]]."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spool.settings import MIB, Duration, Size, setting


@dataclass(frozen=True, kw_only=True)
class UpstreamKey:
    """A secret by file or environment, with either `use_cases` or `scopes`."""

    name: str = setting("", "how messages call the key; each name once")
    secret_file: Path | None = setting(None, "the file that holds the secret; a change of it is noticed")
    secret_env: str = setting("", "or the environment variable that does")
    use_cases: tuple[str, ...] = setting((), 'what the key was made for, such as "Send AI Telemetry"')
    scopes: tuple[str, ...] = setting((), "or the scopes that it has")


@dataclass(frozen=True, kw_only=True)
class EventStream:
    """
    Usage events of one type become `sum` operations of a unit-cost stream.

    `element`, `value` and `dimensions` name a place in an event: `subject`, `source`, `type`, or a name
    in its data.
    """

    stream: str = setting("", "the name of the stream")
    type: str = setting("allocation", "what the stream holds", choices=("allocation", "metric"))
    granularity: str = setting(
        "DAILY", "the time that one sum covers", choices=("HOURLY", "DAILY", "MONTHLY")
    )
    element: str = setting("subject", "the place of what is summed for")
    value: str = setting("", "the place of the amount; empty counts events")
    dimensions: Mapping[str, str] = setting({}, "name of the dimension = its place; at most 5")


@dataclass(frozen=True, kw_only=True)
class UpstreamSettings:
    """The cost service, or another Tollhouse. An empty `base_url` means that there is none: records are kept here."""

    base_url: str = setting("", "its address")
    ai_telemetry_url: str = setting("", "where OTLP goes; empty means `base_url`")
    connection_id: str = setting("", "of the connection that takes billing drops; empty sends none")
    billing_segment: str = setting("external", "the segment of the paths of billing drops")
    proxy: str = setting("", "an HTTP proxy on the way")
    ca_file: Path | None = setting(None, "certificates to trust, in place of the system's")
    timeout: Duration = setting(30.0, "of one request")
    batch_records: int = setting(
        1000, "records of one delivery", edge="the next records are another delivery", least=1
    )
    batch_bytes: Size = setting(4 * MIB, "bytes of one request", edge="a larger delivery is split")
    linger: Duration = setting(
        0.25,
        "how long a record waits for others to leave with it; `0s` sends each as soon as it is closed",
        least=0,
    )
    compression: str = setting("gzip", "of requests", choices=("gzip", "none"))
    idempotency_header: str = setting("Idempotency-Key", "the header that marks a repeated delivery")
    in_flight: int = setting(4, "requests on their way at once", least=1)
    keys: tuple[UpstreamKey, ...] = setting((), "the secrets, each used for no more than it is for")
    paths: Mapping[str, str] = setting({}, "name of a stream = its path, where it differs from the usual one")
    kind: str = setting(
        "service",
        "tollhouse: operations keep their ids, and events travel as events",
        choices=("service", "tollhouse"),
    )
    events: Mapping[str, EventStream] = setting({}, "usage events that become unit cost, by their type")


@dataclass(frozen=True, kw_only=True)
class DestinationSettings:
    """A receiver besides the upstream, with its own progress. A slow or refusing one delays no other."""

    name: str = setting(
        "", "part of the names of its routes, `NAME/TOPIC`; letters, digits, `.`, `_` and `-`"
    )
    type: str = setting("", "the kind of receiver")
    path: Path | None = setting(None, "the file, of the types ndjson and focus; the folder, of the type file")
    url: str = setting(
        "",
        "the address, of the types otlp and webhook; `s3://BUCKET/PREFIX`, `gs://...` or `az://...` of a lake;"
        " `HOST:PORT,HOST:PORT` of kafka; `https://HOST:PORT/DATABASE` of clickhouse",
    )
    headers: Mapping[str, str] = setting({}, "sent with every request", secret=True)
    secret_file: Path | None = setting(
        None,
        "otlp: the key that is sent; webhook: the secret that signs; s3: key id, secret and session token, a line"
        " each; gcs: the JSON of a service account; azure: the account key or a SAS token; kafka and"
        " clickhouse: user and password, a line each",
    )
    topics: tuple[str, ...] = setting(("ai-telemetry",), "what is sent there")
    linger: Duration | None = setting(
        None,
        "how long a record waits for others to leave with it, as `upstream.linger`; 250ms where it is not set, 15m for"
        " a lake, whose files are made then, 5s for clickhouse",
        least=0,
    )
    required: bool = setting(
        True, "records are kept until it has them; false: no longer than `spool.retention`"
    )
    start: str = setting("oldest", "where a new destination begins in the log", choices=("oldest", "now"))
    shared: bool = setting(
        False, "ndjson, focus and file: all nodes mount `path`, which several gateways on one PostgreSQL need"
    )
    format: str = setting(
        "parquet",
        "of the files of a lake; ndjson is compressed with zstd; focus (CSV, compressed too) and focus-parquet have"
        " charges by the hour",
        choices=("parquet", "ndjson", "focus", "focus-parquet"),
    )
    lines: str = setting(
        "",
        "focus: `meters` writes a row for each price line of an estimate, such as input audio; empty: one row for all"
        " of them (docs/meters.md)",
        choices=("", "meters"),
    )
    batch_records: int | None = setting(
        None,
        "records that leave together before `linger` is over: of a lake 250,000 where it is not set, and at most"
        " 1,000,000; of kafka 1,000, and at most 10,000; of clickhouse 20,000, and at most 100,000",
        edge="the next records are another file, transaction or request",
        least=1,
    )
    endpoint: str = setting(
        "", "of a lake: the address of a store like S3, or a private one; empty: the provider's"
    )
    region: str = setting(
        "", "s3: the region of the bucket; empty: us-east-1; kafka: that of the cluster, for `aws-msk-iam`"
    )
    account: str = setting("", "azure: the storage account")
    role: str = setting("", "s3, and kafka with `aws-msk-iam`: the role to assume with `identity_token_file`")
    identity_token_file: Path | None = setting(
        None,
        "s3, azure: the token of a pod, for an identity without a secret; gcs: the file of an external account; kafka:"
        " that of `oauthbearer`, or of a pod, with `role`",
    )
    proxy: str = setting("", "of a lake and clickhouse: an HTTP proxy on the way")
    ca_file: Path | None = setting(
        None, "of a lake and kafka: certificates to trust, beside the system's; of clickhouse: in their place"
    )
    encryption: str = setting(
        "", "s3: how the store encrypts, `AES256` or `aws:kms:KEY`; empty: as the bucket says"
    )
    leave_out: tuple[str, ...] = setting(
        (),
        "of a lake and clickhouse: columns that stay empty, such as `user`, and tags that are not there, such as"
        " `tags.customer`",
    )
    verify: Duration = setting(
        86400.0,
        "of a lake, kafka and clickhouse: how often its list of files, its progress or the sums of its rows are "
        "compared with the books; `0s` never",
        least=0,
    )
    table: str = setting("ai_telemetry", "clickhouse: the table that rows are added to")
    topic: str = setting(
        "tollhouse.{topic}",
        "kafka: where records go; progress goes to the topic `progress` of the same pattern",
    )
    transactions: bool = setting(
        True,
        "kafka: false is for brokers without transactions: a record may be there twice, under the same key",
    )
    tls: bool = setting(True, "kafka: encrypt; false is taken on loopback alone")
    tls_cert_file: Path | None = setting(
        None, "kafka and clickhouse: the client certificate and its chain, with `tls_key_file`: mutual TLS"
    )
    tls_key_file: Path | None = setting(None, "kafka and clickhouse: its private key, without a password")
    sasl: str = setting(
        "",
        "kafka: how it signs in; empty: it does not",
        choices=("", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "aws-msk-iam"),
    )


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    """A channel for people or programs that are told of budgets and insights: [notifications](notifications.md)."""

    name: str = setting("", "how budgets and views name it; letters, digits, `.`, `_` and `-`")
    type: str = setting("", "the kind of receiver")
    url: str = setting("", "the address, of the types webhook, slack, teams, alertmanager and pagerduty")
    url_file: Path | None = setting(
        None, "slack and teams: or the file that holds it, because the address is a secret"
    )
    secret_file: Path | None = setting(
        None,
        "webhook: the secret that signs; alertmanager: the bearer token; email: the password; pagerduty: the"
        " integration key",
    )
    headers: Mapping[str, str] = setting(
        {}, "sent with every request, of webhook and alertmanager", secret=True
    )
    proxy: str = setting("", "an HTTP proxy on the way")
    ca_file: Path | None = setting(None, "certificates to trust, in place of the system's")
    server: str = setting("", "email: the mail server, HOST:PORT")
    tls: str = setting(
        "starttls", "email: how the connection is encrypted", choices=("starttls", "implicit", "none")
    )
    username: str = setting("", "email: who signs in; empty signs nobody in")
    sender: str = setting("", "email: the address that mails come from")
    to: tuple[str, ...] = setting((), "email: the addresses that mails go to, at most 50")
    insights: str = setting(
        "warning",
        "the least severity of the insights that are sent to it",
        choices=("none", "info", "warning", "critical"),
    )
    categories: tuple[str, ...] = setting((), "the categories of those insights, such as spend; empty: all")
    group_wait: Duration = setting(
        30.0,
        "slack, teams and email: how long a notice waits for others that leave as one message with it",
        least=0,
    )
    quiet_hours: str = setting(
        "", 'when only critical notices leave, such as "22:00-07:00"; the others wait for the end'
    )
    digest: str = setting(
        "", 'the time of day at which notices of severity info leave together, such as "08:00"'
    )
    time_zone: str = setting("UTC", "of both times, such as Europe/Berlin")

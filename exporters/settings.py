"""The sections [upstream], [[destinations]] and [[notify]], which define what is sent where."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spool.settings import MIB, Duration, Size, setting


@dataclass(frozen=True, kw_only=True)
class UpstreamKey:
    """A secret from a file or an environment variable, with either `use_cases` or `scopes`."""

    name: str = setting("", "unique name of the key, shown in messages")
    secret_file: Path | None = setting(None, "file that holds the secret; it is read again when it changes")
    secret_env: str = setting("", "environment variable that holds the secret, instead of `secret_file`")
    use_cases: tuple[str, ...] = setting(
        (), 'use cases for which the cost service made the key, such as "Send AI Telemetry"'
    )
    scopes: tuple[str, ...] = setting((), "scopes of the key, instead of `use_cases`")


@dataclass(frozen=True, kw_only=True)
class EventStream:
    """
    A unit-cost stream that receives the usage events of one type as `sum` operations.

    `element`, `value` and `dimensions` name a field of the event: `subject`, `source`, `type`, or a name
    in its data.
    """

    stream: str = setting("", "name of the unit-cost stream")
    type: str = setting("allocation", "what the stream contains", choices=("allocation", "metric"))
    granularity: str = setting("DAILY", "period of one sum", choices=("HOURLY", "DAILY", "MONTHLY"))
    element: str = setting(
        "subject", "field of the event that names the element of the stream to which the amount belongs"
    )
    value: str = setting(
        "",
        "field of the event with the amount, or 1 to count events; if empty, `amount` or `value` of an event, or 1 "
        "if the event has neither",
    )
    dimensions: Mapping[str, str] = setting({}, "dimensions of the stream as NAME = FIELD, at most 5")


@dataclass(frozen=True, kw_only=True)
class UpstreamSettings:
    """
    Your cost service, or another Tollhouse. If `base_url` is empty, nothing is forwarded to it.
    """

    base_url: str = setting("", "address of the service")
    ai_telemetry_url: str = setting("", "address for OTLP, if it differs from `base_url`")
    connection_id: str = setting(
        "", "id of the billing connection that receives hourly billing files; if empty, none are sent"
    )
    billing_segment: str = setting("external", "path segment in the addresses of billing files")
    proxy: str = setting("", "address of an HTTP proxy")
    ca_file: Path | None = setting(None, "file with CA certificates to trust, instead of the system's")
    timeout: Duration = setting(30.0, "maximum time per request")
    batch_records: int = setting(
        1000,
        "maximum number of records per delivery",
        edge="further records are sent in the next delivery",
        least=1,
    )
    batch_bytes: Size = setting(
        4 * MIB, "maximum bytes per request, before compression", edge="a larger delivery is split"
    )
    linger: Duration = setting(
        0.25,
        "how long a record waits for more records; with `0s` each is sent as soon as it is closed",
        least=0,
    )
    compression: str = setting("gzip", "compression of requests", choices=("gzip", "none"))
    idempotency_header: str = setting(
        "Idempotency-Key", "name of the header by which the service recognizes a repeated delivery"
    )
    in_flight: int = setting(4, "maximum number of requests at once, for AI telemetry", least=1)
    keys: tuple[UpstreamKey, ...] = setting(
        (), "keys for the service; each delivery uses the key with the fewest scopes that allows it"
    )
    paths: Mapping[str, str] = setting(
        {}, "paths that differ from the usual ones, as STREAM = PATH; an empty path sends nothing"
    )
    kind: str = setting(
        "service",
        "what receives the records; to a `tollhouse`, unit-cost operations keep their ids and usage events "
        "are sent as events",
        choices=("service", "tollhouse"),
    )
    events: Mapping[str, EventStream] = setting(
        {}, "usage events that are sent as unit cost, by type of event"
    )


@dataclass(frozen=True, kw_only=True)
class DestinationSettings:
    """
    Another receiver of records, with its own progress. A slow or rejecting receiver does not delay other receivers.
    """

    name: str = setting(
        "", "unique name; its routes are called `NAME/TOPIC`; letters, digits, `.`, `_` and `-`, at most 64"
    )
    type: str = setting("", "type of the receiver")
    path: Path | None = setting(None, "ndjson and focus: the file; file: the folder of the data lake")
    url: str = setting(
        "",
        "address: `https://...` for otlp and webhook; `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or "
        "`az://CONTAINER/PREFIX` for a data lake; `HOST:PORT,HOST:PORT` for kafka; "
        "`https://HOST:PORT/DATABASE` for clickhouse",
    )
    headers: Mapping[str, str] = setting({}, "headers of every request", secret=True)
    secret_file: Path | None = setting(
        None,
        "file with the secret. otlp: key to send. webhook: secret for signatures. s3: key id, secret and "
        "session token, one per line. gcs: JSON of a service account. azure: account key or SAS token. "
        "kafka and clickhouse: user and password, one per line",
    )
    topics: tuple[str, ...] = setting(("ai-telemetry",), "topics to send")
    linger: Duration | None = setting(
        None,
        "how long a record waits for more records: 250ms by default, 15m for a data lake (each file holds the "
        "records of one wait), 5s for clickhouse",
        least=0,
    )
    required: bool = setting(
        True, "retain records until this destination accepted them; if false, at most for `spool.retention`"
    )
    start: str = setting(
        "oldest",
        "first record for a new destination: the oldest stored, or the next",
        choices=("oldest", "now"),
    )
    shared: bool = setting(
        False,
        "ndjson, focus and file: confirms that all gateways mount `path`; required if several gateways "
        "share one PostgreSQL database",
    )
    format: str = setting(
        "parquet",
        "format of the files of a data lake. ndjson is compressed with zstd. focus (compressed CSV) and "
        "focus-parquet contain hourly charges instead of records",
        choices=("parquet", "ndjson", "focus", "focus-parquet"),
    )
    lines: str = setting(
        "",
        "focus: `meters` writes one row per price line of an estimate, such as input audio; if empty, one row "
        "for all price lines (docs/money/meters.md)",
        choices=("", "meters"),
    )
    batch_records: int | None = setting(
        None,
        "maximum number of records per file, transaction or request. Data lake: 250,000 by default, at most "
        "1,000,000. kafka: 1,000 by default, at most 10,000. clickhouse: 20,000 by default, at most 100,000",
        edge="a full file, transaction or request is sent before `linger` ends",
        least=1,
    )
    endpoint: str = setting(
        "",
        "data lake: address of an S3-compatible store or a private endpoint; if empty, the cloud provider's",
    )
    region: str = setting(
        "", "s3: region of the bucket, us-east-1 if empty. kafka with `aws-msk-iam`: region of the cluster"
    )
    account: str = setting("", "azure: name of the storage account")
    role: str = setting(
        "", "s3, and kafka with `aws-msk-iam`: role to assume with the token in `identity_token_file`"
    )
    identity_token_file: Path | None = setting(
        None,
        "file for an identity without a secret. s3 and azure: the pod's token. gcs: external account. "
        "kafka: the token for `oauthbearer`, or the pod's token with `role`",
    )
    proxy: str = setting("", "data lake and clickhouse: address of an HTTP proxy")
    ca_file: Path | None = setting(
        None,
        "file with CA certificates to trust: in addition to the system's for a data lake and kafka, instead of "
        "the system's for clickhouse",
    )
    encryption: str = setting(
        "", "s3: how the store encrypts files, `AES256` or `aws:kms:KEY`; if empty, by the bucket's default"
    )
    leave_out: tuple[str, ...] = setting(
        (),
        "data lake and clickhouse: columns to leave empty, such as `user`, and tags to omit, such as "
        "`tags.customer`",
    )
    verify: Duration = setting(
        86400.0,
        "data lake, kafka and clickhouse: how often the destination's files, progress or row counts are "
        "compared with the accounting; `0s` turns this off",
        least=0,
    )
    table: str = setting("ai_telemetry", "clickhouse: table to insert into")
    topic: str = setting(
        "tollhouse.{topic}",
        "kafka: pattern of the topic names, also for the topic `progress`, which stores the progress of routes",
    )
    transactions: bool = setting(
        True,
        "kafka: use transactions; if false, for brokers without them, a record may be stored twice under the "
        "same message key",
    )
    tls: bool = setting(True, "kafka: encrypt connections; false is accepted only for loopback addresses")
    tls_cert_file: Path | None = setting(
        None, "kafka and clickhouse: client certificate with its chain, for mutual TLS; needs `tls_key_file`"
    )
    tls_key_file: Path | None = setting(
        None, "kafka and clickhouse: private key of the client certificate, without a password"
    )
    sasl: str = setting(
        "",
        "kafka: sign-in method; if empty, Tollhouse does not sign in",
        choices=("", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "aws-msk-iam"),
    )


@dataclass(frozen=True, kw_only=True)
class NotifySettings:
    """A channel that receives notifications of budgets and insights: [notifications](money/notifications.md)."""

    name: str = setting("", "unique name, used by budgets and views; letters, digits, `.`, `_` and `-`")
    type: str = setting("", "type of the receiver")
    url: str = setting("", "webhook, slack, teams, alertmanager and pagerduty: address of the receiver")
    url_file: Path | None = setting(
        None, "slack and teams: file with the address, instead of `url`, because the address is a secret"
    )
    secret_file: Path | None = setting(
        None,
        "file with the secret. webhook: secret for signatures. alertmanager: bearer token. email: password. "
        "pagerduty: integration key",
    )
    headers: Mapping[str, str] = setting(
        {}, "webhook and alertmanager: headers of every request", secret=True
    )
    proxy: str = setting("", "address of an HTTP proxy")
    ca_file: Path | None = setting(None, "file with CA certificates to trust, instead of the system's")
    server: str = setting("", "email: mail server as HOST:PORT")
    tls: str = setting(
        "starttls", "email: encryption of the connection", choices=("starttls", "implicit", "none")
    )
    username: str = setting("", "email: user name on the mail server; if empty, Tollhouse does not sign in")
    sender: str = setting("", "email: sender address")
    to: tuple[str, ...] = setting((), "email: recipient addresses, at most 50")
    insights: str = setting(
        "warning",
        "minimum severity of insights that are sent",
        choices=("none", "info", "warning", "critical"),
    )
    categories: tuple[str, ...] = setting(
        (), "categories of insights that are sent, such as spend; if empty, all categories"
    )
    group_wait: Duration = setting(
        30.0, "slack, teams and email: how long a notification waits for others to share one message", least=0
    )
    quiet_hours: str = setting(
        "", 'hours in which only critical notifications are sent, such as "22:00-07:00"; the others wait'
    )
    digest: str = setting(
        "", 'time of day at which notifications of severity info are sent together, such as "08:00"'
    )
    time_zone: str = setting("UTC", "time zone of `quiet_hours` and `digest`, such as Europe/Berlin")

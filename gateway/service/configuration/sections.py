"""
Typed configuration: one frozen dataclass per section, every key with its default.

What one section says of its own values is its method `problems`; `problems.py` has the rules between sections.
Read once at start by gateway.service.configuration.reader; every other module receives its own section as a value.
Sizes and durations are bytes and seconds here. The sections that belong to the packages below are defined
there and taken here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from ipaddress import ip_network
from pathlib import Path
from typing import Any, get_type_hints

from exporters.problems import MAX_STREAM_KEYS, one_of, stream_name, url
from exporters.settings import DestinationSettings, NotifySettings, UpstreamSettings
from gateway.normalise.reading.content import may_hold_content
from gateway.service.configuration.values import is_loopback, is_safe_address, split_address
from spool.devices.device import is_device_id
from spool.meters import METERS
from spool.registry.operators import ROLES, SESSION_LIFE_S, is_email
from spool.settings import (
    DAY_S,
    GIB,
    KIB,
    MIB,
    ContainerSettings,
    Duration,
    Size,
    SpoolSettings,
    StorageSettings,
    setting,
)

PULLED_SOURCES = (
    "openai_usage",
    "openai_usage_embeddings",
    "openai_costs",
    "anthropic_usage",
    "anthropic_costs",
    "anthropic_analytics_usage",
    "anthropic_analytics_costs",
    "openrouter_activity",
    "github_copilot",
    "cursor_usage_events",
    "litellm_spend_logs",
)
# Lists of who has a seat of a plan.
OF_GOOGLE = ("code_assist_licenses", "gemini_licenses")
SEAT_SOURCES = ("github_copilot_seats", "cursor_members", "claude_members", *OF_GOOGLE)
LEAST_WORKER_MEMORY = 6  # times the largest body: that, its records, and what decoding takes meanwhile
MOST_WORKERS = 64
LISTENING = ("server.listen", "server.grpc_listen", "server.operator_listen", "server.metrics_listen")
MAX_LEDGER_TAGS = 8
MOST_PULL_DAYS = 31
MAX_SKEW_S = 300.0
ROW_OWNERS = ("team", "user", "device", "api_key")
PUBLISHED_MEASURES = ("cost", "calls", "tokens", "input_tokens", "output_tokens")


class ConfigError(Exception):
    """The configuration cannot run; `problems` holds every reason, in the user's own key names."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """What listens where, who may speak to it, and how much one sender may use: [limits](limits.md)."""

    listen: str = setting("127.0.0.1:4318", "where HTTP listens; port 0 picks one and prints it")
    grpc_listen: str = setting("127.0.0.1:4317", "where OTLP over gRPC listens; empty switches it off")
    reuse_port: bool = setting(
        False,
        "another process of this user may listen on `grpc_listen`, too: `tollhouse serve --take-over` needs "
        "it",
    )
    operator_listen: str = setting(
        "",
        "where `/metrics` and the operator API listen; empty: on `listen` if that is loopback, else "
        "127.0.0.1:4319",
    )
    metrics_listen: str = setting(
        "",
        "where `/metrics` and health alone listen, for whoever scrapes from elsewhere; empty: nowhere else",
    )
    metrics_names: int = setting(
        0,
        "providers, models and teams, so many of each, with series of cost and tokens of their own on `/metrics`; "
        "0: no such series: [cost and tokens](monitoring.md#cost-and-tokens); read at start",
        edge="all others together are `(other)`",
        least=0,
    )
    operator_plaintext: bool = setting(
        False,
        "a public `operator_listen` may do without TLS: a proxy encrypts, so browsers get `Secure` cookies",
    )
    trusted_proxies: tuple[str, ...] = setting(
        (),
        "addresses and networks of proxies in front, such as `10.0.0.5` or `10.0.0.0/28`: what these say in "
        "`X-Forwarded-For` and `X-Forwarded-Proto` counts, from nobody else",
    )
    accept_bearer: bool = setting(False, "keys may be sent as `Bearer KEY`, too")
    api_key_file: Path | None = setting(None, "one key that the deployment gives, for AI telemetry")
    max_body_bytes: Size = setting(
        64 * MIB, "bytes of a body after decompression", edge="a larger one: 413", least=64 * KIB
    )
    max_inflight_bytes: Size = setting(
        64 * MIB,
        "memory for requests being read, in bytes; not less than `max_body_bytes`",
        edge="503 with `Retry-After`; shared by key: [limits](limits.md#how-the-bytes-in-flight-are-shared)",
    )
    small_body_bytes: Size = setting(
        MIB,
        "bytes of a small body",
        edge="a larger one must come at `min_upload_rate`, and has no room in the reserve",
    )
    small_body_reserve: Size = setting(
        8 * MIB,
        "room for small bodies, apart from the others; at least twice `small_body_bytes`",
        edge="503 with `Retry-After`; no key gets more of it than it leaves free",
    )
    min_upload_rate: Size = setting(
        16 * KIB,
        "bytes a second of a body over `small_body_bytes`, on the average of ten seconds; 0: any",
        edge="a slower one: 503 with `Retry-After`",
    )
    max_connections: int = setting(
        10_000,
        "open connections of senders",
        edge="the longest idle one of the key or address with the most is closed for a new one; if none idles, 503",
        least=2,
    )
    max_items: int = setting(
        250_000,
        "items of one body (spans, points, log records, lines, events, and the resources around them)",
        edge="413",
        least=1000,
    )
    max_grpc_messages: int = setting(
        4,
        "messages that are received over gRPC at once, no key more than it leaves free",
        edge="the others wait 10 s, then 503 with `Retry-After`",
        least=2,
    )
    workers: int = setting(
        0,
        "processes that decode bodies and encode deliveries for the server; 0: it does so itself: "
        "[all cores](sizing.md#all-cores)",
        edge="with more than 64 the server does not start",
        least=0,
    )
    worker_memory: Size = setting(
        512 * MIB,
        "memory for the data of one worker; at least six times `max_body_bytes`",
        edge="it is replaced; a body of which three end is refused with 400",
        least=128 * MIB,
    )
    worker_timeout: Duration = setting(
        30.0,
        "how long a worker with work may say nothing",
        edge="it is replaced, and its work is done again",
        least=1,
    )
    native: bool = setting(
        True,
        "use the compiled module `tollhouse-native` where it is installed: "
        "[what it gives](sizing.md#the-compiled-module); read at start",
    )
    max_event_streams: int = setting(
        50,
        "open pages of the console and other readers of event streams",
        edge="the oldest of the person with the most ends for a new one; if nobody has two, 503 with `Retry-After`",
        least=1,
    )
    max_person_event_streams: int = setting(
        8, "of these, those of one person", edge="the person's oldest ends for a new one", least=1
    )
    max_operator_connections: int = setting(
        500,
        "open connections to `operator_listen`, where that is a listener of its own, and to `metrics_listen`",
        edge="the longest idle one of the address with the most is closed for a new one; if none idles, 503",
        least=2,
    )
    max_listed_records: int = setting(
        100_000,
        "records that the console and the operator API look through for those of some days or months",
        edge="the list says up to when it looked (`looked_through`); ask for fewer days",
        least=1,
    )
    chain_keys: tuple[str, ...] = setting(
        (),
        "names of keys whose senders may be gateways, with records as they are; `*` stands for any ending. "
        'Keys that are named by more than "*" may revoke and reset devices as well. A device\'s own key is named '
        "`device ID`. `tollhouse agent` needs no name here: its records are reports of its device, and the gateway "
        "prices them",
    )
    max_key_requests_per_s: int = setting(
        0, "requests of one key a second; 0: any", edge="429 with `Retry-After`"
    )
    max_key_bytes_per_s: Size = setting(
        0,
        "bytes of bodies of one key a second, refused ones too; 0: any",
        edge="429 with `Retry-After`, before the next body is read",
    )
    cors_origins: tuple[str, ...] = setting((), "origins whose pages may send telemetry from a browser")
    tls_cert_file: Path | None = setting(None, "the certificate and its chain, with `tls_key_file`: TLS")
    tls_key_file: Path | None = setting(None, "its private key")
    tls_client_ca_file: Path | None = setting(None, "certificates of senders must be signed by one of these")

    def problems(self, _: str) -> Iterator[str]:
        for name in LISTENING:
            address = getattr(self, name.partition(".")[2])
            if (address or name == "server.listen") and not _is_address(address):
                yield f'{name} must be HOST:PORT, such as "127.0.0.1:4318"'
        if _is_public(self.operator_listen) and not (self.tls_cert_file or self.operator_plaintext):
            yield (
                "server.operator_listen is public: passwords, sessions and /metrics would travel in the clear; "
                "set "
                "server.tls_cert_file and server.tls_key_file, or server.operator_plaintext = true if a proxy "
                "encrypts"
            )
        for place, name in enumerate(self.trusted_proxies):
            if not _is_network(name):
                yield (
                    f"server.trusted_proxies[{place}] must be an address or a network, such as "
                    '"10.0.0.5" or "10.0.0.0/28", and not every address'
                )
        if bool(self.tls_cert_file) != bool(self.tls_key_file):
            yield "server.tls_cert_file and server.tls_key_file go together"
        if self.tls_client_ca_file and not self.tls_cert_file:
            yield "server.tls_client_ca_file needs server.tls_cert_file and server.tls_key_file"
        if self.max_inflight_bytes < self.max_body_bytes:
            yield "server.max_inflight_bytes must not be less than server.max_body_bytes"
        if self.workers and self.worker_memory < LEAST_WORKER_MEMORY * self.max_body_bytes:
            yield f"server.worker_memory must be at least {LEAST_WORKER_MEMORY} times server.max_body_bytes"
        if self.workers > MOST_WORKERS:
            yield f"server.workers must be at most {MOST_WORKERS}"
        if self.small_body_reserve < 2 * self.small_body_bytes:
            yield "server.small_body_reserve must be at least twice server.small_body_bytes"


@dataclass(frozen=True, kw_only=True)
class UnitCostStream:
    """How one unit-cost stream is sent."""

    name: str = setting("", "of the stream")
    single_writer: bool = setting(
        False, "no other gateway writes the stream, so its totals may replace those of the service"
    )

    def problems(self, at: str) -> Iterator[str]:
        yield from stream_name(f"{at}.name", self.name)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Sums of the ledger as a unit-cost stream."""

    stream: str = setting("", "the name of the stream")
    measure: str = setting("cost", "what is summed", choices=PUBLISHED_MEASURES)
    per: str = setting("", "divided by this measure; empty: not divided", choices=("", *PUBLISHED_MEASURES))
    by: str = setting(
        "team", "the dimension for whose values there are sums, such as team, model or `tag:NAME`"
    )
    granularity: str = setting("DAILY", "the time that one sum covers", choices=("HOURLY", "DAILY"))
    dimensions: Mapping[str, str] = setting({}, "name in the stream = dimension of the ledger; at most 5")

    def problems(self, at: str) -> Iterator[str]:
        yield from stream_name(f"{at}.stream", self.stream)
        if len(self.dimensions) > MAX_STREAM_KEYS:
            yield f"{at}.dimensions must be at most {MAX_STREAM_KEYS}"


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """Devices that run `tollhouse agent`."""

    policy: str = setting(
        "auto",
        "what an enrolment needs: nothing, an operator's approval, or none is accepted",
        choices=("auto", "approve", "closed"),
    )
    heartbeat_interval: Duration = setting(60.0, "how often agents report that they live", least=1)
    host_id: bool = setting(False, "the resource attribute `host.id` may name a device")
    max: int = setting(
        20_000,
        "devices that are known; no key enrols more than it leaves free",
        edge="enrolment of one more: 429; its telemetry is taken",
    )
    max_body_bytes: Size = setting(
        64 * KIB, "bytes of an enrolment or a heartbeat", edge="a larger one: 413", least=KIB
    )
    forget_after: Duration = setting(
        90 * 86_400.0, "a device that was not heard for so long is deleted, revoked ones too; 0s: none"
    )


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Clusters whose agents send container metrics, or that run `tollhouse agent`."""

    max: int = setting(1000, "clusters that are known", edge="a report of one more: 503", least=1)
    report_interval: Duration = setting(
        600.0,
        "how often the agent of a cluster reports; one without a report for three of them is silent",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """Read by `tollhouse agent` alone. A device without a key needs `enrolment_key_file` or `enrolment_key_env`."""

    gateway: str = setting("", "the address of the gateway")
    enrolment_key_file: Path | None = setting(None, "the file with a key that may enrol devices")
    enrolment_key_env: str = setting("", "or the environment variable with it")
    device_id: str = setting("", "empty: made up once and kept")
    user: str = setting("", "of the device; fills what reports leave empty")
    labels: Mapping[str, str] = setting({}, "of the device, such as team; fill what reports leave empty")

    def problems(self, _: str) -> Iterator[str]:
        yield from url("agent.gateway", self.gateway)
        if self.enrolment_key_file and self.enrolment_key_env:
            yield "agent needs enrolment_key_file or enrolment_key_env, and not both"
        if self.device_id and not is_device_id(self.device_id):
            yield "agent.device_id: 1 to 128 letters, digits and any of . _ : @ -"


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """Message content is never kept, whatever stands here."""

    keep_attributes: tuple[str, ...] = setting(
        (),
        "further attributes to keep as tags, and names of free tags whose text may be long or that may be "
        "content, "
        "such as `note`; content cannot be listed",
    )
    emails: str = setting(
        "hash",
        "what records carry in place of an e-mail address: [names of people](people-names.md)",
        choices=("hash", "keep", "drop"),
    )
    max_names: int = setting(
        50_000,
        "names behind hashed people that are kept: [names of people](people-names.md)",
        edge="one more: 409; forget some",
        least=1,
    )

    def problems(self, _: str) -> Iterator[str]:
        for name in self.keep_attributes:
            if may_hold_content(name):
                yield f"privacy.keep_attributes: {name} is message content and can never be kept"


@dataclass(frozen=True, kw_only=True)
class PriceOverride:
    """
    Prices in dollars per million tokens, of a `model`; what is left open is that of the list prices. `meters` are
    prices of units that are no text tokens: docs/meters.md says for how many of each.

    Of several that fit, the one with the latest `since` holds, then the last one.
    """

    model: str = setting("", "the model; a trailing `*` stands for any ending")
    provider: str = setting("", "of this provider alone")
    since: str = setting("", 'from this day on, such as "2026-11-20"')
    input: Decimal | None = setting(None, "input tokens")
    output: Decimal | None = setting(None, "output tokens")
    cache_read: Decimal | None = setting(None, "tokens read from a cache")
    cache_write: Decimal | None = setting(None, "tokens written to a cache")
    cache_write_1h: Decimal | None = setting(None, "tokens written to a cache for an hour")
    meters: Mapping[str, Decimal] = setting(
        {}, 'what is not text, by its meter, such as `web_searches = "8"` for a thousand searches'
    )

    def problems(self, at: str) -> Iterator[str]:
        if not self.model:
            yield f"{at}.model is required"
        if self.input is None and self.output is None and not self.meters:
            yield f"{at} needs input or output, in dollars per million tokens, or meters"
        for name in self.meters:
            if name not in METERS:
                yield f"{at}.meters.{name} is not a meter; docs/meters.md lists them"
        if self.since and not _is_day(self.since):
            yield f'{at}.since must be a day such as "2026-11-20"'


@dataclass(frozen=True, kw_only=True)
class PriceSettings:
    """Estimates of calls whose source reports no cost: [how numbers are made](how-numbers-are-made.md)."""

    file: Path | None = setting(None, "a file of list prices, in place of those in the package")
    override: tuple[PriceOverride, ...] = setting((), "negotiated prices")


@dataclass(frozen=True, kw_only=True)
class CurrencyRate:
    """Dollars for one unit of a currency, before any quotation. Of several the one with the latest `since` holds."""

    currency: str = setting("", 'the code of the currency, such as "EUR"')
    usd: Decimal | None = setting(None, "dollars for one of it")
    since: str = setting("", 'from this day on (UTC), such as "2026-01-01"; empty: always')

    def problems(self, at: str) -> Iterator[str]:
        if self.usd is None or not self.usd.is_finite() or self.usd <= 0:
            yield f"{at}.usd is required: dollars for one, more than 0"
        if not _is_foreign(self.currency):
            yield f'{at}.currency must be the code of a currency other than USD, such as "EUR"'
        if self.since and not _is_day(self.since):
            yield f'{at}.since must be a day such as "2026-11-20"'


@dataclass(frozen=True, kw_only=True)
class CurrencySettings:
    """How amounts in other currencies than dollars are converted: [currencies](currencies.md)."""

    rates_file: Path | None = setting(
        None,
        "rates by day: a file of the European Central Bank (XML, CSV or the archive of it), or CSV with "
        "`date,currency,usd`. It is read again when it changes",
    )
    max_file_bytes: Size = setting(
        16 * MIB,
        "bytes of that file, unpacked",
        edge="a larger one is not read, what was read before stays in force, and `tollhouse doctor` says so",
        least=KIB,
    )
    rate: tuple[CurrencyRate, ...] = setting((), "rates of one's own")


@dataclass(frozen=True, kw_only=True)
class Match:
    """Every given field must fit; a trailing `*` stands for any ending."""

    api_key: str = setting("", "the key as the source names it")
    user: str = setting("", "the user")
    device: str = setting("", "the device")
    model: str = setting("", "the model")
    tag: Mapping[str, str] = setting({}, "name of a tag = its value")


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """Fills what is null."""

    team: str = setting("", "the team")
    user: str = setting("", "the user")
    tags: Mapping[str, str] = setting({}, "name of a tag = its value")


@dataclass(frozen=True, kw_only=True)
class AttributionRule:
    """Assigns calls to their owners. Rules are applied in their order."""

    match: Match = setting(Match(), "which calls")
    set: Assignment = setting(Assignment(), "what is filled where it is null")

    def problems(self, at: str) -> Iterator[str]:
        if self.match == Match():
            yield f"{at}.match needs api_key, user, device, model or tag"
        if self.set == Assignment():
            yield f"{at}.set needs team, user or tags"


@dataclass(frozen=True, kw_only=True)
class BillingSettings:
    """
    Billing connections, and the rows of the drops that they took: [billing connections](billing-connections.md).
    """

    max_connections: int = setting(1000, "billing connections", edge="one more: 409; delete one", least=1)
    max_month_rows: int = setting(
        1_000_000,
        "rows of one month of a connection",
        edge="a drop that would add more: 409, and not kept",
        least=1,
    )
    max_month_bytes: Size = setting(
        70 * MIB,
        "bytes of rows of one month of a connection",
        edge="a drop that would add more: 409, and not kept",
        least=1,
    )
    max_bytes: Size = setting(
        4 * GIB,
        "disk space of the rows of all months, compressed, in addition to `spool.max_bytes`",
        edge="a drop gets 429 with `Retry-After`, and is not kept",
        least=1,
    )
    max_tags: int = setting(
        200,
        "different tags (`resource/tag:NAME`) of the rows of one drop, and tags in `/v2/billing/resource_tags`",
        edge="a drop with one more: 400, and not kept; send fewer. The list says how many more there are",
        least=1,
    )
    retention: Duration = setting(400 * DAY_S, "how long a month is kept", least=31 * DAY_S)
    owner_tags: Mapping[str, str] = setting(
        {},
        "team, user, device or api_key = the tag of a billing row that names it in [billed costs](billed-costs.md); "
        "empty: `team`, by the tag `team`",
    )

    def problems(self, at: str) -> Iterator[str]:
        for name in self.owner_tags:
            if name not in ROW_OWNERS:
                yield f"{at}.owner_tags.{name[:40]} is none of {', '.join(ROW_OWNERS)}"


@dataclass(frozen=True, kw_only=True)
class BilledSettings:
    """How layers of a whole bill are placed, and who sees them: [billed costs](billed-costs.md)."""

    credits: str = setting(
        "unallocated",
        "whose credits and grants are: of nobody, or on the usage of their billing period, in the discounted types",
        choices=("unallocated", "proportional"),
    )
    tax: str = setting(
        "proportional",
        "whose tax is: on the usage of its billing period, in the discounted types, or of nobody",
        choices=("proportional", "unallocated"),
    )
    limited: str = setting(
        "usage",
        "what who sees a part of the calls has of billed money: usage with discounts and covered usage, or all layers "
        "that are divided over the calls as well, from which the whole bill can be guessed",
        choices=("usage", "layers"),
    )


@dataclass(frozen=True, kw_only=True)
class LedgerSettings:
    """What costs can be grouped by."""

    tags: tuple[str, ...] = setting(
        ("service",),
        "tags that costs can be grouped by, at most 8; a change holds for what is counted from then on",
    )

    def problems(self, at: str) -> Iterator[str]:
        if len(self.tags) > MAX_LEDGER_TAGS or not all(self.tags):
            yield f"{at}.tags must be at most {MAX_LEDGER_TAGS} names of tags"


@dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """How much one question about costs may take, and how many are worked on at once: [limits](limits.md#answers)."""

    max_rows: int = setting(
        10_000,
        "rows of an answer in JSON that is not a page, and elements of a comparison of definitions",
        edge="the largest stay, and one row has the rest: sums stay exact, and the answer says `truncated`",
        least=100,
    )
    max_summed_rows: int = setting(
        50_000,
        "rows that a question adds up to: each period times each combination of what it groups by",
        edge="422 with what to ask instead",
        least=1000,
    )
    max_time: Duration = setting(
        60.0,
        "how long a question is worked on, and how long it waits for its turn",
        edge="422 with what to ask instead; one that waits: 429 with `Retry-After`",
        least=1,
    )
    at_once: int = setting(
        2, "questions that are worked on at once, of one person or key one", edge="the others wait", least=1
    )
    max_waiting: int = setting(
        16, "questions of one person or key that wait", edge="one more: 429 with `Retry-After`", least=1
    )


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """Saved filters over the ledger: [views](views.md)."""

    max: int = setting(200, "views", edge="one more: 409; delete one", least=1)


@dataclass(frozen=True, kw_only=True)
class RoleSettings:
    """What people may do and see: [roles](roles.md)."""

    max: int = setting(
        200, "roles in addition to the built-in ones", edge="one more: 409; delete one", least=1
    )
    max_members: int = setting(1000, "members and groups of one role", edge="400; make another role", least=1)
    max_filters: int = setting(
        20, "filters of one role", edge="400; publish a dimension of your own", least=1
    )
    max_values: int = setting(1000, "values of all filters of one role", edge="400; use `except`", least=1)


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """What the calls of a view may cost, and alerts before that: [budgets](budgets.md)."""

    max: int = setting(500, "budgets", edge="one more: 409; delete one", least=1)
    max_owners: int = setting(
        10_000,
        "owners of a budget `per` team, user or the like that are evaluated",
        edge="those that spent least are left out, and the budget says how many",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class ChannelLimits:
    """Channels of notifications that people make in the console: [notifications](notifications.md)."""

    max: int = setting(50, "channels that are made in the console", edge="one more: 409; delete one", least=1)


@dataclass(frozen=True, kw_only=True)
class ScheduledReportSettings:
    """Reports of views by mail or chat, each week or month: [scheduled reports](scheduled-reports.md)."""

    max: int = setting(200, "scheduled reports", edge="one more: 409; delete one", least=1)


@dataclass(frozen=True, kw_only=True)
class AnnotationSettings:
    """Words about a day, which charts show on that day: [annotations](annotations.md)."""

    max: int = setting(1000, "annotations", edge="one more: 409; delete one", least=1)


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """Plans of assistants: seats, and what they include: [plans](plans.md)."""

    max: int = setting(100, "plans of assistants", edge="one more: 409; delete one", least=1)


@dataclass(frozen=True, kw_only=True)
class AllocationSettings:
    """Dimensions of the organization's own, by definitions of rules: [allocation](allocation.md)."""

    max_definition_bytes: Size = setting(
        128 * KIB, "bytes of a definition", edge="a larger one: 422", least=KIB
    )
    max_dimensions: int = setting(
        100, "dimensions of all definitions together", edge="one more: 422", least=1
    )
    max_rules: int = setting(2000, "rules of a definition", edge="one more: 422", least=1)
    max_versions: int = setting(
        100,
        "versions kept of the definition of each namespace",
        edge="one more: the oldest is forgotten",
        least=1,
    )
    max_namespaces: int = setting(100, "namespaces", edge="one more: 409", least=1)
    max_jobs: int = setting(
        100,
        "publish jobs kept",
        edge="one more: of those that are over the oldest of whoever has the most is forgotten; all wait: 409. No key "
        "and no person has more that wait than there is room for besides",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class KeyOwner:
    """Whose calls a provider's key or account has: those with each of `api_key`, `team` and `source` that is set."""

    provider: str = setting("", "as the report names it, such as openai")
    billed: str = setting("", "the key, project, workspace or account as the statement has it")
    api_key: str = setting("", "calls of this key")
    team: str = setting("", "calls of this team")
    source: str = setting("", "calls of this source")

    def problems(self, at: str) -> Iterator[str]:
        if not (self.provider and self.billed):
            yield f"{at} needs provider and billed, as the report names them"
        if not (self.api_key or self.team or self.source):
            yield f"{at} needs api_key, team or source"


@dataclass(frozen=True, kw_only=True)
class StatementPullSettings:
    """A report that is pulled: [statements](statements.md#pulls)."""

    name: str = setting("", "how commands name it")
    source: str = setting("", "the kind of report", choices=("", *PULLED_SOURCES, *SEAT_SOURCES))
    key_file: Path | None = setting(None, "the file with an admin key of the provider")
    base_url: str = setting("", "another address than the provider's own; that of LiteLLM, which has none")
    account: str = setting(
        "", "distinguishes two organizations of one provider; of GitHub, the organization's name"
    )
    days: int = setting(31, "how many days are asked for each time, 1 to 31", least=1)
    every: Duration = setting(21_600.0, "how often, at most once an hour", least=3600)
    plan: str = setting("", "of a list of seats: the [plan](plans.md) whose seats it has, by its name")
    tier: str = setting("", "of a list of seats: only those of this tier, such as business")
    names_file: Path | None = setting(
        None, "of a list of seats: a CSV file of its names and of what telemetry calls these people"
    )

    def problems(self, at: str) -> Iterator[str]:
        yield from one_of(f"{at}.source", self.source, (*PULLED_SOURCES, *SEAT_SOURCES))
        if (self.source in SEAT_SOURCES) != bool(self.plan):
            yield f"{at}.plan is required of a list of seats, and of no other source"
        if self.key_file is None:
            yield f"{at}.key_file is required: the file with an admin key of the provider"
        yield from url(f"{at}.base_url", self.base_url)
        if any(mark in self.base_url for mark in "?#"):
            yield f"{at}.base_url must be an address alone, without a query or a fragment: the key is a file"
        if self.source == "litellm_spend_logs" and not self.base_url:
            yield f"{at}.base_url is required: the address of your LiteLLM"
        if self.source.startswith("github_copilot") and not self.account:
            yield f"{at}.account is required: the name of your organization at GitHub"
        if self.source in OF_GOOGLE and not self.account:
            yield f"{at}.account is required: the resource at Google that has the licenses"
        if self.days > MOST_PULL_DAYS:
            yield f"{at}.days must be at most {MOST_PULL_DAYS}"


@dataclass(frozen=True, kw_only=True)
class ReconciliationSettings:
    """Bills of providers, compared with what was counted: [reconciliation](reconciliation.md)."""

    tolerance_money: Decimal = setting(
        Decimal("0.5"),
        "percent of the billed money by which a settled day may differ, at least a cent besides what the bill "
        "rounds",
    )
    tolerance_tokens: Decimal = setting(
        Decimal(1), "percent of the billed tokens by which a settled day may differ"
    )
    settle: Duration = setting(
        0.0,
        "the least time until figures of a provider are final; each source has its own: "
        "[statements](statements.md)",
    )
    max_file_bytes: Size = setting(
        256 * MIB,
        "bytes of an imported report, inflated",
        edge="a larger one is refused: import a shorter span",
        least=KIB,
    )
    max_rows: int = setting(
        200_000,
        "different cells of an imported report",
        edge="one more: refused; import a shorter span",
        least=1,
    )
    pull_timeout: Duration = setting(
        60.0, "the longest time for one answer of a provider", edge="the pull asks again, then fails", least=1
    )
    max_page_bytes: Size = setting(
        32 * MIB, "bytes of a page that is pulled", edge="a larger one: the pull fails", least=KIB
    )
    max_pages: int = setting(
        10_000,
        "pages of a pull, or of each day where days are asked one by one",
        edge="one more: the pull fails",
        least=1,
    )
    pull: tuple[StatementPullSettings, ...] = setting((), "reports that are pulled")
    owner: tuple[KeyOwner, ...] = setting((), "keys and accounts of providers that have other names here")

    def problems(self, at: str) -> Iterator[str]:
        for name in ("tolerance_money", "tolerance_tokens"):
            if not 0 <= getattr(self, name) <= 100:
                yield f"{at}.{name} must be a percentage from 0 to 100"
        names: set[str] = set()
        reports: dict[tuple[str, str, str], str] = {}
        for place, pull in enumerate(self.pull):
            shown = f"{at}.pull[{place}]"
            if not pull.name or pull.name in names:
                yield f"{shown}.name is required, and each is used once"
            names.add(pull.name)
            before = reports.setdefault((pull.source, pull.account, pull.plan), shown)
            if before != shown and pull.source:
                yield f"{shown}.account must differ from that of {before}: each would replace the days of the other"


@dataclass(frozen=True, kw_only=True)
class McpOAuthSettings:
    """People sign their assistants in with the provider of [oidc]: [people](mcp.md#people)."""

    resource: str = setting(
        "",
        'the address of assistants to the letter as people type it, such as "https://tollhouse.example.com/mcp"; '
        "empty: keys alone. One that ends with /mcp/people leaves /mcp to keys",
    )
    audiences: tuple[str, ...] = setting(
        (), "what tokens name as their audience (`aud`), one of these; empty: `resource`"
    )
    read_scope: str = setting("tollhouse.read", "the scope of tokens that may ask")
    write_scope: str = setting("tollhouse.write", "the scope of tokens that may use tools that write, too")
    clients: tuple[str, ...] = setting(
        (), "ids of the clients (`client_id`, `azp`) whose tokens are taken; empty: of every client"
    )
    max_life: Duration = setting(
        24 * 3600.0,
        "how long a token is good, from when it was issued to its end; at most 7d",
        edge="401 for a token with a longer life",
        least=60,
    )


@dataclass(frozen=True, kw_only=True)
class McpSettings:
    """Assistants that ask over the Model Context Protocol: [assistants](mcp.md)."""

    calls_per_minute: int = setting(
        60,
        "calls of tools by one key or person a minute, and a tenth of its other messages; 0: any",
        edge="429 with `Retry-After`",
    )
    daily_calls: int = setting(
        2000,
        "calls of tools by one key or person on a day of UTC; 0: any",
        edge="429 with `Retry-After`: the next day",
    )
    writes: bool = setting(
        False,
        "whether assistants may write, too: log an insight, and set the notes on the organization that the "
        "first tool "
        "gives back; each is in the audit list under the name of the key",
    )
    tools: Mapping[str, bool] = setting(
        {},
        "name of a tool = whether assistants have it; what people decide (the console, `tollhouse mcp tools`) goes "
        "before",
    )
    hosts: tuple[str, ...] = setting(
        (),
        "names of this server, without port, besides loopback and bare addresses: requests to a loopback "
        "listener under "
        "another name, and pages of other origins, get 403",
    )
    oauth: McpOAuthSettings = setting(McpOAuthSettings(), "")


@dataclass(frozen=True, kw_only=True)
class OidcSettings:
    """People sign in to the console with an OpenID provider, besides local accounts: [sign-in](sign-in.md)."""

    issuer: str = setting(
        "", "the provider, exactly as its discovery document names it; empty: local accounts alone"
    )
    client_id: str = setting("", "of Tollhouse at the provider")
    client_secret_file: Path | None = setting(
        None, "the file with the secret of the client; read again when it changes; none for a public client"
    )
    console: str = setting(
        "",
        'the address of the console in browsers, such as "https://tollhouse.example.com/console/"; the '
        "redirect "
        "address at the provider is this and `api/oidc-callback`; links in notices and in answers to "
        "assistants begin "
        "with it",
    )
    name: str = setting("OpenID", "of the provider, on the button of the sign-in page")
    scopes: tuple[str, ...] = setting(
        ("openid", "email", "profile"), "what is asked for; `openid` must be among them"
    )
    named_by: str = setting(
        "email",
        "what names an operator: the verified e-mail address, or the person's id at the provider",
        choices=("email", "sub"),
    )
    assume_verified_email: bool = setting(
        False, "e-mail addresses are taken as verified if the provider does not say whether they are"
    )
    link_accounts: bool = setting(
        False, "a person with the e-mail address of a local account signs in to that account, with its role"
    )
    groups_claim: str = setting(
        "groups", "the claim of the ID token with the person's groups; a dot leads into an object"
    )
    allowed_groups: tuple[str, ...] = setting((), "only members of one of these sign in; empty: everybody")
    allowed_domains: tuple[str, ...] = setting(
        (), "only e-mail addresses of these domains sign in; empty: all"
    )
    roles: Mapping[str, str] = setting(
        {},
        "name of a group = none, viewer, operator or admin; the highest counts, at each sign-in. Else "
        "`default_role`",
    )
    default_role: str = setting(
        "viewer",
        "the role of who is in no group of `roles` and is named by no role document; without `roles` that of "
        "a new "
        "operator, for admins to change",
        choices=ROLES,
    )
    clock_skew: Duration = setting(
        60.0, "by how much the clocks of the provider and of this machine may differ"
    )
    session: Duration = setting(
        12 * 3600.0, "how long a sign-in lasts; at most 12h, and 1h without use", least=60
    )
    recheck: Duration = setting(
        900.0,
        "how often the provider is asked whether a person may go on, if it gives refresh tokens",
        least=60,
    )
    timeout: Duration = setting(
        10.0, "how long an answer of the provider may take", edge="the sign-in fails", least=1
    )
    ca_file: Path | None = setting(None, "certificates that sign the provider's; empty: those of the system")
    proxy: str = setting("", "an HTTP proxy on the way to the provider", secret=True)

    def problems(self, _: str) -> Iterator[str]:
        if not self.issuer:
            if self != OidcSettings():
                yield "oidc.issuer is required when other settings of [oidc] are given"
            return
        for name, address in (("issuer", self.issuer), ("console", self.console)):
            if not is_safe_address(address):
                yield f"oidc.{name} must be an address with https, or with http on this machine alone"
        if not self.console.endswith("/console/"):
            yield 'oidc.console ends with "/console/", such as "https://tollhouse.example.com/console/"'
        if not self.client_id:
            yield "oidc.client_id is required with oidc.issuer"
        if "openid" not in self.scopes:
            yield "oidc.scopes must have openid"
        if self.clock_skew > MAX_SKEW_S:
            yield "oidc.clock_skew must be at most 5m; set the clock of this machine instead"
        if self.session > SESSION_LIFE_S:
            yield "oidc.session must be at most 12h"
        for group, role in self.roles.items():
            yield from one_of(f"oidc.roles.{group}", role, ROLES)
        yield from url("oidc.proxy", self.proxy)


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """People who work with commands on this machine: lists of changes name them by their e-mail addresses."""

    local: Mapping[str, str] = setting(
        {},
        'user of the system = e-mail address: `root = "ops@example.com"`. Else `TOLLHOUSE_AS`, and without '
        "both USER@HOSTNAME",
    )

    def problems(self, at: str) -> Iterator[str]:
        for user, email in self.local.items():
            if not is_email(email):
                yield f"{at}.local.{user} must be an e-mail address, such as ops@example.com"


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """One source of records by its name, such as `claude_code` or `litellm`."""

    count: bool = setting(
        True,
        "false: its records are kept and shown, but neither summed nor sent. true, written down: counters of "
        "Cursor and of inference servers count, too, which else repeat calls",
    )
    signing_secret_file: Path | None = setting(
        None, "of helicone alone: webhooks that are not signed with this secret are refused"
    )

    def problems(self, at: str) -> Iterator[str]:
        if self.signing_secret_file and at != "sources.helicone":
            yield f"{at}.signing_secret_file: only helicone signs what it sends; remove it"


@dataclass(frozen=True, kw_only=True)
class LoggingSettings:
    """JSON lines on stderr."""

    level: str = setting("info", "the least that is written", choices=("debug", "info", "warning", "error"))
    lines_per_minute: int = setting(
        60,
        "log lines of one kind about one address",
        edge="the next one that is written counts those left out (`left_out`)",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class Config:
    """The whole file."""

    data_dir: Path = setting(
        Path("tollhouse-data"), "where everything is kept; with PostgreSQL the socket of the commands alone"
    )
    server: ServerSettings = setting(ServerSettings(), "")
    storage: StorageSettings = setting(StorageSettings(), "")
    spool: SpoolSettings = setting(SpoolSettings(), "")
    upstream: UpstreamSettings = setting(UpstreamSettings(), "")
    destinations: tuple[DestinationSettings, ...] = setting((), "")
    notify: tuple[NotifySettings, ...] = setting((), "")
    devices: DeviceSettings = setting(DeviceSettings(), "")
    container: ContainerSettings = setting(ContainerSettings(), "")
    clusters: ClusterSettings = setting(ClusterSettings(), "")
    agent: AgentSettings = setting(AgentSettings(), "")
    privacy: PrivacySettings = setting(PrivacySettings(), "")
    prices: PriceSettings = setting(PriceSettings(), "")
    currency: CurrencySettings = setting(CurrencySettings(), "")
    attribution: tuple[AttributionRule, ...] = setting((), "")
    sources: Mapping[str, SourceSettings] = setting({}, "")
    ledger: LedgerSettings = setting(LedgerSettings(), "")
    answers: AnswerSettings = setting(AnswerSettings(), "")
    views: ViewSettings = setting(ViewSettings(), "")
    roles: RoleSettings = setting(RoleSettings(), "")
    budgets: BudgetSettings = setting(BudgetSettings(), "")
    channels: ChannelLimits = setting(ChannelLimits(), "")
    scheduled_reports: ScheduledReportSettings = setting(ScheduledReportSettings(), "")
    annotations: AnnotationSettings = setting(AnnotationSettings(), "")
    plans: PlanSettings = setting(PlanSettings(), "")
    allocation: AllocationSettings = setting(AllocationSettings(), "")
    reconciliation: ReconciliationSettings = setting(ReconciliationSettings(), "")
    mcp: McpSettings = setting(McpSettings(), "")
    oidc: OidcSettings = setting(OidcSettings(), "")
    operators: OperatorSettings = setting(OperatorSettings(), "")
    billing: BillingSettings = setting(BillingSettings(), "")
    billed: BilledSettings = setting(BilledSettings(), "")
    streams: tuple[UnitCostStream, ...] = setting((), "")
    publish: tuple[Publication, ...] = setting((), "")
    log: LoggingSettings = setting(LoggingSettings(), "")

    def most(self, limit: str) -> int:
        """The value of a setting that bounds something, by its name: `views.max`."""
        section, _, name = limit.partition(".")
        return int(getattr(getattr(self, section), name))

    @property
    def counted_sources(self) -> frozenset[str]:
        """
        Names with `[sources.NAME] count = true` written down; a source without an entry is not among them.

        Some counters repeat calls unless the operator knows better.
        """
        return frozenset(name for name, source in self.sources.items() if source.count)

    @property
    def kept_tags(self) -> frozenset[str]:
        """
        Names in privacy.keep_attributes, in ledger.tags, and in what rules of attribution match.

        The values of these tags may be long: an operator knows what they hold.
        """
        matched = frozenset(name for rule in self.attribution for name in rule.match.tag)
        return matched.union(self.privacy.keep_attributes, self.ledger.tags)


def settings_of(config: Config) -> Iterator[tuple[str, Field[Any], Any, Any]]:
    """Every setting: its name in the file, field, type and value; a list or a table that the user fills is one."""
    kinds = types_of(Config)
    for section in fields(config):
        value = getattr(config, section.name)
        if not is_dataclass(value):
            yield section.name, section, kinds[section.name], value
            continue
        kind: type = type(value)
        inner = types_of(kind)
        for field in fields(value):
            yield f"{section.name}.{field.name}", field, inner[field.name], getattr(value, field.name)


@cache
def types_of(section: type) -> Mapping[str, Any]:
    """The type of each setting of a section, read once: all of them take 8 ms."""
    return get_type_hints(section, include_extras=True)


def names_some(pattern: str) -> bool:
    """True if a pattern matches some names, and not all."""
    return bool(pattern.strip("*?"))


def _is_foreign(code: str) -> bool:
    """True for the code of a currency that amounts are converted from."""
    from spool.currencies import DECIMALS  # only where a currency is configured

    return code in DECIMALS and code != "USD"


def _is_public(address: str) -> bool:
    return _is_address(address) and not is_loopback(split_address(address)[0])


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _is_network(text: str) -> bool:
    try:
        return ip_network(text, strict=False).prefixlen > 0
    except ValueError:
        return False


def _is_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) < 65536

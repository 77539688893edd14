"""
The configuration: one frozen dataclass per section, with a default for every key.

A section's method `problems` checks its own values; `problems.py` has the rules between sections.
gateway.configuration.reader reads the configuration at the start, and every other module gets its own section.
Sizes and durations are in bytes and seconds. Packages below this one define their own sections, which are imported
here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, fields, is_dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from exporters.problems import MAX_STREAM_KEYS, problems_of_choice, problems_of_stream_name, problems_of_url
from exporters.settings import DestinationSettings, NotifySettings, UpstreamSettings
from gateway.configuration.attribution import AttributionRule, SourceSettings
from gateway.configuration.prices import PriceSettings
from gateway.configuration.server import AnswerSettings, ServerSettings
from gateway.configuration.values import is_iso_day, is_safe_address
from gateway.normalise.reading.content import may_be_name_of_content
from spool.devices.device import is_device_id
from spool.ledger.dimensions import TAG
from spool.ledger.work import WorkLimits
from spool.registry.operators import ROLES, SESSION_LIFE_S, is_email
from spool.registry.viewings import KEPT_S, MOST_A_DAY
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

ENFORCER_TYPES = ("litellm", "openrouter", "anthropic", "openai")
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
# Report sources that list who has a seat of a plan.
OF_GOOGLE = ("code_assist_licenses", "gemini_licenses")
SEAT_SOURCES = ("github_copilot_seats", "cursor_members", "claude_members", *OF_GOOGLE)
MAX_LEDGER_TAGS = 8
MOST_PULL_DAYS = 31
MAX_SKEW_S = 300.0
ROW_OWNERS = ("team", "user", "device", "api_key")
PUBLISHED_MEASURES = ("cost", "calls", "tokens", "input_tokens", "output_tokens")


@dataclass(frozen=True, kw_only=True)
class UnitCostStream:
    """Delivery of one unit-cost stream."""

    name: str = setting("", "name of the stream")
    single_writer: bool = setting(
        False,
        "whether only this gateway writes the stream, so that its totals may replace those of your cost service",
    )

    def problems(self, setting_path: str) -> Iterator[str]:
        yield from problems_of_stream_name(f"{setting_path}.name", self.name)


@dataclass(frozen=True, kw_only=True)
class UnitCostPublication:
    """Totals that are published as a unit-cost stream."""

    stream: str = setting("", "name of the stream")
    measure: str = setting("cost", "measure that is summed", choices=PUBLISHED_MEASURES)
    per: str = setting(
        "",
        "measure by which the sum is divided; if empty, it is not divided",
        choices=("", *PUBLISHED_MEASURES),
    )
    by: str = setting(
        "team", "dimension by whose values the sums are split, such as team, model or `tag:NAME`"
    )
    granularity: str = setting("DAILY", "period of one sum", choices=("HOURLY", "DAILY"))
    dimensions: Mapping[str, str] = setting({}, "name in the stream = dimension in the totals; at most 5")

    def problems(self, setting_path: str) -> Iterator[str]:
        yield from problems_of_stream_name(f"{setting_path}.stream", self.stream)
        if len(self.dimensions) > MAX_STREAM_KEYS:
            yield f"{setting_path}.dimensions must have at most {MAX_STREAM_KEYS} entries"


@dataclass(frozen=True, kw_only=True)
class DeviceSettings:
    """Devices that run `tollhouse agent`."""

    policy: str = setting(
        "auto",
        "how devices enrol: automatically, only machines of the "
        "[inventory](fleet/enrolment.md#which-machines-may-enrol), "
        "after an operator's approval, or not at all",
        choices=("auto", "expected", "approve", "closed"),
    )
    require_token: bool = setting(
        False, "whether a new device needs an enrolment token: [tokens](fleet/enrolment.md#enrolment-tokens)"
    )
    heartbeat_interval: Duration = setting(
        60.0,
        "time between two heartbeats of an agent; from 2,000 devices on, at least a minute for each 2,000 devices",
        least=1,
    )
    host_id: bool = setting(False, "whether the resource attribute `host.id` may name a device")
    max: int = setting(
        20_000,
        "maximum number of known devices; a key enrols at most half of what other keys leave free",
        edge="429 for a further enrolment; the device's telemetry is still accepted",
    )
    max_body_bytes: Size = setting(
        64 * KIB, "maximum size of an enrolment or a heartbeat", edge="413 for a larger one", least=KIB
    )
    max_inventory_bytes: Size = setting(
        32 * MIB,
        "maximum size of an [inventory list](fleet/coverage.md#inventory-and-coverage), with about 800 bytes a machine",
        edge="413 for a larger list; remove columns that the import does not read, or raise the limit",
        least=KIB,
    )
    coverage_days: int = setting(
        14,
        "days without a report, a call or a check-in at the MDM after which a machine is away",
        edge="the machine is only counted as away, and not in the coverage",
        least=1,
    )
    forget_after: Duration = setting(
        90 * 86_400.0,
        "time without a report after which a device is deleted, also if it is revoked; 0s means never",
    )
    verdicts: str = setting(
        "off",
        "what the answer to a heartbeat states to a device about budgets of this device and its person: nothing, "
        "states, or also amounts: "
        "[verdicts on a laptop](money/laptop-verdicts.md#budgets-of-the-device-and-its-person)",
        choices=("off", "state", "amounts"),
    )


@dataclass(frozen=True, kw_only=True)
class ClusterSettings:
    """Clusters whose agents send container metrics, or that run `tollhouse agent`."""

    max: int = setting(
        1000, "maximum number of known clusters", edge="503 for a report of a further cluster", least=1
    )
    report_interval: Duration = setting(
        600.0,
        "time between two reports of a cluster's agent; a cluster without a report for three "
        "intervals is offline (`silent`)",
        least=1,
    )


AGENT_REPORTS = ("user", "use", "serial", "endpoint")


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """
    Settings that only `tollhouse agent` reads. A device without a key needs
    `enrolment_token_file`, `enrolment_key_file` or `enrolment_key_env`.
    """

    gateway: str = setting("", "address of the gateway")
    enrolment_token_file: Path | None = setting(
        None,
        "file with an enrolment token, readable only by its owner; the agent deletes it after the first accepted "
        "heartbeat",
    )
    enrolment_key_file: Path | None = setting(None, "file with a key that may enrol devices")
    enrolment_key_env: str = setting("", "environment variable with that key, instead of a file")
    device_id: str = setting("", "id of the device; if empty, the agent creates one and stores it")
    user: str = setting(
        "",
        "user of the device, for reports that name no user; the package's probe names the person at the screen first",
    )
    labels: Mapping[str, str] = setting(
        {}, "labels of the device, such as team, for reports that do not set them"
    )
    report: tuple[str, ...] = setting(
        ("user", "use"),
        "what heartbeats state about the machine: user, use (the hour of an assistant's last use), serial (its serial "
        "number), endpoint (the host of a foreign endpoint)",
    )

    def problems(self, _: str) -> Iterator[str]:
        yield from problems_of_url("agent.gateway", self.gateway)
        if sum(map(bool, (self.enrolment_token_file, self.enrolment_key_file, self.enrolment_key_env))) > 1:
            yield (
                "set only one of agent.enrolment_token_file, agent.enrolment_key_file and agent.enrolment_key_env"
            )
        if strange := [word for word in self.report if word not in AGENT_REPORTS]:
            yield f"agent.report may have {', '.join(AGENT_REPORTS)}, and not {strange[0]}"
        if self.device_id and not is_device_id(self.device_id):
            yield "agent.device_id must have 1 to 128 letters, digits or any of . _ : @ -"


# Setting -> its default with `privacy.works_council`.
WORKS_COUNCIL: Mapping[str, Any] = {"privacy.min_group": 5, "work.people": False, "work.branch": "drop"}


@dataclass(frozen=True, kw_only=True)
class PrivacySettings:
    """Privacy. Message content is never stored, whatever these settings say."""

    keep_attributes: tuple[str, ...] = setting(
        (),
        "further attributes to store as tags, and names of free tags whose text may be long or look "
        "like content, such as `note`; attributes with message content are not allowed",
    )
    emails: str = setting(
        "hash",
        "form of e-mail addresses in records: [names of people](people/index.md)",
        choices=("hash", "keep", "drop"),
    )
    max_names: int = setting(
        50_000,
        "maximum number of stored names of people: [names of people](people/index.md)",
        edge="409 for a further name; delete some names. Senders together add at most a quarter",
        least=1,
    )
    max_hash_keys: int = setting(
        8,
        "maximum number of hash keys of a gateway below: its own, and those of "
        "[agents and gateways behind it](people/index.md#behind-agents-and-gateways)",
        edge="an operator decides about a further key: `tollhouse people conflicts`",
        least=1,
    )
    max_name_conflicts: int = setting(
        1000,
        "maximum number of [conflicts of names](people/index.md#conflicts) that wait for an operator",
        edge="a further conflict is left out until the sender reports it again",
        least=1,
    )
    min_group: int = setting(
        0,
        "hide figures of groups with fewer people from everybody who may not see names: "
        "[groups of people](people/groups.md); 0 hides nothing",
    )
    group_order: tuple[str, ...] = setting(
        (),
        "dimensions by which groups are split first, such as `model`; the others follow as usual: team, provider, "
        "model, source",
    )
    works_council: bool = setting(
        False,
        "whether the defaults of other settings are those that works councils ask for: "
        f"{', '.join(f'`{name} = {json.dumps(value)}`' for name, value in WORKS_COUNCIL.items())}",
    )
    viewings: Duration = setting(
        KEPT_S,
        "time for which Tollhouse stores [who looked](people/privacy-requests.md#who-looked); 0 stores nothing",
    )
    max_viewed: int = setting(
        MOST_A_DAY,
        "maximum number of people with rows of their own for one viewer and day",
        edge="further people are stored as `(several people)`",
        least=1,
    )

    def problems(self, _: str) -> Iterator[str]:
        for name in self.keep_attributes:
            if may_be_name_of_content(name):
                yield f"privacy.keep_attributes: {name} is message content and can never be stored"
        if self.group_order:
            from spool.ledger.dimensions import SPLIT_BY

            for name in dict.fromkeys(self.group_order):
                yield from problems_of_choice("privacy.group_order", name, SPLIT_BY)
                if self.group_order.count(name) > 1:
                    yield f"privacy.group_order has {name!r} more than once; remove the repeated word"


@dataclass(frozen=True, kw_only=True)
class CurrencyRate:
    """
    A fixed exchange rate, which takes precedence over all quotations. If several entries match, the one with
    the latest `since` applies.
    """

    currency: str = setting("", 'code of the currency, such as "EUR"')
    usd: Decimal | None = setting(None, "dollars per unit of the currency")
    since: str = setting(
        "", 'first UTC day on which the rate applies, such as "2026-01-01"; if empty, it always applies'
    )

    def problems(self, setting_path: str) -> Iterator[str]:
        if self.usd is None or not self.usd.is_finite() or self.usd <= 0:
            yield f"{setting_path}.usd is required: the number of dollars per unit, more than 0"
        if not _needs_conversion(self.currency):
            yield f'{setting_path}.currency must be the code of a currency other than USD, such as "EUR"'
        if self.since and not is_iso_day(self.since):
            yield f'{setting_path}.since must be a day such as "2026-11-20"'


@dataclass(frozen=True, kw_only=True)
class CurrencySettings:
    """Conversion of amounts in other currencies to dollars: [currencies](money/currencies.md)."""

    rates_file: Path | None = setting(
        None,
        "file with daily rates: from the European Central Bank (XML, CSV or its archive), or CSV "
        "with `date,currency,usd`. A changed file is read again",
    )
    max_file_bytes: Size = setting(
        16 * MIB,
        "maximum size of that file after decompression",
        edge="a larger file is not read, the earlier rates stay in effect, and `tollhouse doctor` reports it",
        least=KIB,
    )
    rate: tuple[CurrencyRate, ...] = setting((), "fixed rates that you define")


@dataclass(frozen=True, kw_only=True)
class BillingSettings:
    """
    Billing connections, and the rows of their hourly files: [billing connections](bills/billing-connections.md).
    """

    max_connections: int = setting(
        1000, "billing connections", edge="409 for a further connection; delete one", least=1
    )
    max_month_rows: int = setting(
        1_000_000,
        "maximum number of rows of a connection per month",
        edge="409 for a file that exceeds it, and nothing of the file is stored",
        least=1,
    )
    max_month_bytes: Size = setting(
        70 * MIB,
        "maximum size of a connection's rows per month",
        edge="409 for a file that exceeds it, and nothing of the file is stored",
        least=1,
    )
    max_bytes: Size = setting(
        4 * GIB,
        "maximum disk space for the rows of all months, compressed, in addition to `spool.max_bytes`",
        edge="429 with `Retry-After`, and nothing of the file is stored",
        least=1,
    )
    max_tags: int = setting(
        200,
        "maximum number of different tags (`resource/tag:NAME`) in the rows of a file, and of tags "
        "in `/v2/billing/resource_tags`",
        edge=(
            "400 for a file with more tags, and nothing of it is stored; the list of tags reports how "
            "many it leaves out"
        ),
        least=1,
    )
    retention: Duration = setting(400 * DAY_S, "time for which a month is stored", least=31 * DAY_S)
    owner_tags: Mapping[str, str] = setting(
        {},
        "team, user, device or api_key = tag of a billing row that names it in [billed "
        "costs](bills/billed-costs.md); if empty, the tag `team` names the team",
    )

    def problems(self, setting_path: str) -> Iterator[str]:
        for name in self.owner_tags:
            if name not in ROW_OWNERS:
                yield f"{setting_path}.owner_tags.{name[:40]} is not one of {', '.join(ROW_OWNERS)}"


@dataclass(frozen=True, kw_only=True)
class BilledSettings:
    """
    How parts of a provider bill are assigned to calls, and who sees them: [billed costs](bills/billed-costs.md).
    """

    credits: str = setting(
        "unallocated",
        "how credits and grants are assigned: to nobody, or spread over the usage of their billing "
        "period in the discounted cost types",
        choices=("unallocated", "proportional"),
    )
    tax: str = setting(
        "proportional",
        "how tax is assigned: spread over the usage of its billing period in the discounted cost types, or to nobody",
        choices=("proportional", "unallocated"),
    )
    limited: str = setting(
        "usage",
        "billed costs for people who see only part of the calls: usage with discounts and covered "
        "usage, or all layers that are spread over calls, from which they could guess the whole bill",
        choices=("usage", "layers"),
    )


@dataclass(frozen=True, kw_only=True)
class LedgerSettings:
    """Dimensions by which costs can be grouped."""

    tags: tuple[str, ...] = setting(
        ("service",),
        "tags by which costs can be grouped, at most 8; a change applies to calls counted from then on",
    )

    def problems(self, setting_path: str) -> Iterator[str]:
        if len(self.tags) > MAX_LEDGER_TAGS or not all(self.tags):
            yield f"{setting_path}.tags must have at most {MAX_LEDGER_TAGS} names"


@dataclass(frozen=True, kw_only=True)
class WorkSettings:
    """Units of work whose costs are listed: [costs](money/work-costs.md)."""

    ids_per_month: int = setting(
        100_000,
        "maximum number of listed units of each kind in a month",
        edge="the cheapest units without calls in the last two days are added up as `(other)`; totals stay exact",
        least=100,
    )
    links: int = setting(
        10_000,
        "maximum number of links to pull requests and tickets",
        edge="a further link is rejected; delete old ones with `tollhouse work unlink`",
        least=1,
    )
    branch: str = setting(
        "keep",
        "form of the names of branches in records, because they may name people; a change applies to later records",
        choices=("keep", "hash", "drop"),
    )
    people: bool = setting(
        True,
        "whether costs by session and agent run may be grouped and filtered by user or device; a role may still show a "
        "person only their own calls",
    )
    retention: Duration = setting(
        90.0 * DAY_S,
        "time after its last call for which a session or an agent run is listed",
        edge="it is added to `(other)`, with its later calls",
        least=DAY_S,
    )
    retention_units: Duration = setting(
        396.0 * DAY_S,
        "time after its last call for which a repository, branch, commit, pull request or ticket is listed",
        edge="it is added to `(other)`, with its later calls",
        least=DAY_S,
    )

    @property
    def limits(self) -> WorkLimits:
        return WorkLimits(
            ids_per_month=self.ids_per_month,
            retention_s=self.retention,
            retention_units_s=self.retention_units,
            people=self.people,
        )


@dataclass(frozen=True, kw_only=True)
class ViewSettings:
    """Saved filters over costs: [views](money/views.md)."""

    max: int = setting(200, "views", edge="409 for a further view; delete one", least=1)


@dataclass(frozen=True, kw_only=True)
class RoleSettings:
    """Limits on roles: [roles](people/roles.md)."""

    max: int = setting(
        200,
        "maximum number of roles in addition to the built-in ones",
        edge="409 for a further role; delete one",
        least=1,
    )
    max_members: int = setting(
        1000, "maximum number of members and groups of one role", edge="400; create another role", least=1
    )
    max_filters: int = setting(
        20, "maximum number of filters of one role", edge="400; publish a dimension of your own", least=1
    )
    max_values: int = setting(
        1000, "maximum number of values in all filters of one role", edge="400; use `except`", least=1
    )


@dataclass(frozen=True, kw_only=True)
class BudgetSettings:
    """Limits on [budgets](money/budgets.md)."""

    max: int = setting(500, "budgets", edge="409 for a further budget; delete one", least=1)
    max_owners: int = setting(
        10_000,
        "maximum number of owners that a budget `per` team, user or another dimension evaluates",
        edge="the owners who spent least are left out, and the budget reports their number",
        least=1,
    )
    verdict_amounts: bool = setting(
        True, "if false, the [verdicts](money/verdicts.md) have states without amounts"
    )
    verdict_events: bool = setting(
        False, "whether channels of type webhook get the event `budget.verdict` when a verdict changes"
    )


@dataclass(frozen=True, kw_only=True)
class ChannelLimits:
    """Notification channels that people create in the console: [notifications](money/notifications.md)."""

    max: int = setting(
        50,
        "maximum number of channels created in the console",
        edge="409 for a further channel; delete one",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class ScheduledReportSettings:
    """
    Reports of views that are sent weekly or monthly by mail or chat: [scheduled reports](money/scheduled-reports.md).
    """

    max: int = setting(200, "scheduled reports", edge="409 for a further report; delete one", least=1)


@dataclass(frozen=True, kw_only=True)
class AnnotationSettings:
    """Short texts about a day, shown in charts: [annotations](money/annotations.md)."""

    max: int = setting(1000, "annotations", edge="409 for a further annotation; delete one", least=1)


@dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """Plans of assistants, with their seats and included usage: [plans](bills/plans.md)."""

    max: int = setting(100, "maximum number of plans", edge="409 for a further plan; delete one", least=1)


@dataclass(frozen=True, kw_only=True)
class ContractSettings:
    """Contracts with providers, with their discounts, prices of tiers and capacity: [contracts](bills/contracts.md)."""

    max: int = setting(
        100, "maximum number of contracts", edge="409 for a further contract; delete one", least=1
    )
    max_served_records: int = setting(
        500_000,
        "maximum number of log records that a query for contract costs reads for counters of model servers",
        edge="`tokens` is `unknown`; the next query reads further records",
        least=1,
    )
    max_served_bytes: Size = setting(
        16 * MIB,
        "maximum memory for the tokens that model servers counted, by hour and model",
        edge="the oldest hours are dropped: `tokens` is `too_many` in their months, and only reported calls count",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class FileSetLimits:
    """Limits on a set of files that `tollhouse apply` sends: [settings as files](operations/settings-as-files.md)."""

    max_bytes: Size = setting(
        8 * MIB,
        "maximum size of a request with the files and secrets of a set",
        edge="413 for a larger set; divide it into two sets with different names",
        least=KIB,
    )
    max_objects: int = setting(
        20_000,
        "maximum number of objects in a set, and of files; a file may have 25 times as many keys and values, and a "
        "request may have 4 times as many names and contents of files and secrets",
        edge="422 for a larger set, and 413 for a larger request; divide it into two sets with different names",
        least=1000,
    )
    max_problems: int = setting(
        100,
        "maximum number of problems in the answer",
        edge="the answer states how many more there are",
        least=1,
    )
    max_difference_bytes: Size = setting(
        90 * KIB,
        "maximum size of the differences and conflicts in the answer",
        edge="the answer states how many more there are",
        least=KIB,
    )


@dataclass(frozen=True, kw_only=True)
class AllocationSettings:
    """Dimensions that the organization defines by rules: [allocation](money/allocation.md)."""

    max_definition_bytes: Size = setting(
        128 * KIB, "maximum size of a definition", edge="422 for a larger definition", least=KIB
    )
    max_dimensions: int = setting(
        100,
        "maximum number of dimensions in all definitions together",
        edge="422 for a further dimension",
        least=1,
    )
    max_rules: int = setting(
        2000, "maximum number of rules in a definition", edge="422 for a further rule", least=1
    )
    max_versions: int = setting(
        100,
        "number of stored versions of each namespace's definition",
        edge="a further version deletes the oldest one",
        least=1,
    )
    max_namespaces: int = setting(100, "namespaces", edge="409 for a further namespace", least=1)
    max_jobs: int = setting(
        100,
        "maximum number of stored publish jobs; the waiting jobs of a key or a person are at most "
        "half of what others leave free",
        edge="a further job deletes the oldest finished one of the owner with the most; 409 if all are waiting",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class KeyOwner:
    """
    The calls that belong to a provider's key or account: calls that match each of `api_key`, `team` and
    `source` that is set.
    """

    provider: str = setting("", "provider as the report names it, such as openai")
    billed: str = setting("", "key, project, workspace or account as the provider bill names it")
    api_key: str = setting("", "key of the calls")
    team: str = setting("", "team of the calls")
    source: str = setting("", "source of the calls")

    def problems(self, setting_path: str) -> Iterator[str]:
        if not (self.provider and self.billed):
            yield f"{setting_path} needs provider and billed, as the report names them"
        if not (self.api_key or self.team or self.source):
            yield f"{setting_path} needs api_key, team or source"


@dataclass(frozen=True, kw_only=True)
class StatementPullSettings:
    """A report that Tollhouse fetches: [provider bills](bills/statements.md#pulls)."""

    name: str = setting("", "name of the report in commands")
    source: str = setting("", "kind of report", choices=("", *PULLED_SOURCES, *SEAT_SOURCES))
    key_file: Path | None = setting(None, "file with an admin key of the provider")
    base_url: str = setting(
        "", "address, if it is not the provider's own; required for LiteLLM, which has no fixed one"
    )
    account: str = setting(
        "",
        "account, to distinguish several organizations at one provider; for GitHub, the organization's name",
    )
    days: int = setting(31, "number of days to fetch each time, 1 to 31", least=1)
    every: Duration = setting(21_600.0, "time between two fetches, at least one hour", least=3600)
    plan: str = setting(
        "", "name of the [plan](bills/plans.md) whose seats the report lists; only for lists of seats"
    )
    tier: str = setting("", "tier of the seats to use, such as business; only for lists of seats")
    names_file: Path | None = setting(
        None,
        "CSV file that maps names in the report to the users that telemetry reports; only for lists of seats",
    )

    def problems(self, setting_path: str) -> Iterator[str]:
        yield from problems_of_choice(f"{setting_path}.source", self.source, (*PULLED_SOURCES, *SEAT_SOURCES))
        if (self.source in SEAT_SOURCES) != bool(self.plan):
            yield f"{setting_path}.plan is required for a list of seats, and not allowed for any other source"
        yield from _api_problems(setting_path, self, is_litellm=self.source == "litellm_spend_logs")
        if self.source.startswith("github_copilot") and not self.account:
            yield f"{setting_path}.account is required: the name of your organization at GitHub"
        if self.source in OF_GOOGLE and not self.account:
            yield f"{setting_path}.account is required: the resource at Google that has the licenses"
        if self.days > MOST_PULL_DAYS:
            yield f"{setting_path}.days must be at most {MOST_PULL_DAYS}"


@dataclass(frozen=True, kw_only=True)
class EnforcerSettings:
    """Limits that others enforce, which Tollhouse reads and compares: [enforcers](bills/enforcers.md)."""

    name: str = setting("", "name of the enforcer in commands and insights")
    type: str = setting("", "type of enforcer", choices=("", *ENFORCER_TYPES))
    base_url: str = setting(
        "", "address, if it is not the provider's own; required for LiteLLM, which has no fixed one"
    )
    key_file: Path | None = setting(None, "file with a key that may read the limits")
    every: Duration = setting(900.0, "time between two readings, at least five minutes", least=300)

    def problems(self, setting_path: str) -> Iterator[str]:
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", self.name):
            yield f"{setting_path}.name is required: letters, digits, '.', '_' and '-', at most 64"
        yield from problems_of_choice(f"{setting_path}.type", self.type, ENFORCER_TYPES)
        yield from _api_problems(setting_path, self, is_litellm=self.type == "litellm")


def _api_problems(
    setting_path: str, api: StatementPullSettings | EnforcerSettings, *, is_litellm: bool
) -> Iterator[str]:
    """Yield the problems of the key and the address of an API that Tollhouse reads."""
    if api.key_file is None:
        yield f"{setting_path}.key_file is required: the file with a key that may read this API"
    yield from problems_of_url(f"{setting_path}.base_url", api.base_url)
    if any(mark in api.base_url for mark in "?#"):
        yield (
            f"{setting_path}.base_url must be an address without a query or a fragment; put the key into "
            f"{setting_path}.key_file"
        )
    if is_litellm and not api.base_url:
        yield f"{setting_path}.base_url is required: the address of your LiteLLM"


@dataclass(frozen=True, kw_only=True)
class ReconciliationSettings:
    """Comparison of provider bills with counted costs: [reconciliation](bills/reconciliation.md)."""

    tolerance_money: Decimal = setting(
        Decimal("0.5"),
        "allowed difference of a final day, in percent of the billed money; at least one cent more "
        "than the bill's rounding is always allowed",
    )
    tolerance_tokens: Decimal = setting(
        Decimal(1), "allowed difference of a final day, in percent of the billed tokens"
    )
    settle: Duration = setting(
        0.0,
        "minimum time until a provider's figures count as final; each source also has its own: "
        "[provider bills](bills/statements.md)",
    )
    max_file_bytes: Size = setting(
        256 * MIB,
        "maximum size of an imported report after decompression",
        edge="a larger report is refused; import a shorter period",
        least=KIB,
    )
    max_upload_bytes: Size = setting(
        64 * MIB,
        "maximum size of the files of an upload in the console, before decompression",
        edge="the upload is refused; import the files on the server's machine with `tollhouse reconcile import`",
        least=KIB,
    )
    max_rows: int = setting(
        200_000,
        "maximum number of different combinations of day, key, model and so on in an imported report",
        edge="a report with more combinations is refused; import a shorter period",
        least=1,
    )
    keep_replaced: Duration = setting(
        400 * DAY_S,
        "time for which rows are kept after a newer import replaced them, or after their import was undone",
        edge="older ones are deleted with the next import, so undoing that import no longer brings them back",
    )
    pull_timeout: Duration = setting(
        60.0,
        "maximum time for a response of a provider",
        edge="the request is repeated, then the fetch fails",
        least=1,
    )
    max_page_bytes: Size = setting(
        32 * MIB, "maximum size of a fetched page", edge="the fetch fails on a larger page", least=KIB
    )
    max_pages: int = setting(
        10_000,
        "maximum number of pages per fetch, or per day if days are fetched one by one",
        edge="the fetch fails",
        least=1,
    )
    pull: tuple[StatementPullSettings, ...] = setting((), "reports that Tollhouse fetches")
    owner: tuple[KeyOwner, ...] = setting(
        (), "keys and accounts of providers that have other names in Tollhouse"
    )

    def problems(self, setting_path: str) -> Iterator[str]:
        for name in ("tolerance_money", "tolerance_tokens"):
            if not 0 <= getattr(self, name) <= 100:
                yield f"{setting_path}.{name} must be a percentage from 0 to 100"
        names: set[str] = set()
        reports: dict[tuple[str, str, str], str] = {}
        for index, pull in enumerate(self.pull):
            shown = f"{setting_path}.pull[{index}]"
            if not pull.name or pull.name in names:
                yield f"{shown}.name is required and must be unique"
            names.add(pull.name)
            before = reports.setdefault((pull.source, pull.account, pull.plan), shown)
            if before != shown and pull.source:
                yield (
                    f"{shown}.account must differ from that of {before}, because each report would "
                    "otherwise replace the days of the other"
                )


@dataclass(frozen=True, kw_only=True)
class McpOAuthSettings:
    """Sign-in of people's assistants with the provider of [oidc]: [people](mcp/sign-in.md#people)."""

    resource: str = setting(
        "",
        "address of the MCP endpoint exactly as people type it, such as "
        '"https://tollhouse.example.com/mcp"; if empty, assistants need keys. An address that ends '
        "with /mcp/people leaves /mcp to keys",
    )
    audiences: tuple[str, ...] = setting(
        (), "accepted values of the claim `aud`; a token must have at least one of them; if empty, `resource`"
    )
    read_scope: str = setting("tollhouse.read", "scope of tokens that may read")
    write_scope: str = setting("tollhouse.write", "scope of tokens that may also use tools that write")
    clients: tuple[str, ...] = setting(
        (), "ids of the clients (`client_id`, `azp`) whose tokens are accepted; if empty, of every client"
    )
    max_life: Duration = setting(
        24 * 3600.0,
        "maximum lifetime of a token, from its issue to its end; at most 7d",
        edge="401 for a token with a longer lifetime",
        least=60,
    )


@dataclass(frozen=True, kw_only=True)
class McpSettings:
    """Assistants that use the Model Context Protocol: [assistants](mcp/index.md)."""

    calls_per_minute: int = setting(
        60,
        "maximum tool calls of one key or person per minute, where each other message counts as a "
        "tenth of a call; 0 means no limit",
        edge="429 with `Retry-After`",
    )
    daily_calls: int = setting(
        2000,
        "maximum tool calls of one key or person per UTC day; 0 means no limit",
        edge="429 with `Retry-After`, which names the next day",
    )
    writes: bool = setting(
        False,
        "whether assistants may also write: log an insight, and set the organization notes that the "
        "first tool returns. The audit list has each change under the name of the key",
    )
    tools: Mapping[str, bool] = setting(
        {},
        "name of a tool = whether assistants have it; decisions in the console or with `tollhouse "
        "mcp tools` take precedence",
    )
    hosts: tuple[str, ...] = setting(
        (),
        "host names of this server, without port. On a loopback listener, requests for other names and from pages of "
        "other origins get 403; loopback names and bare addresses are always allowed",
    )
    oauth: McpOAuthSettings = setting(McpOAuthSettings(), "")


@dataclass(frozen=True, kw_only=True)
class OidcSettings:
    """
    Sign-in of people to the console with an OpenID provider, in addition to local accounts:
    [sign-in](people/sign-in.md).
    """

    issuer: str = setting(
        "",
        ("the provider, exactly as its discovery document names it; if empty, there are only local accounts"),
    )
    client_id: str = setting("", "client id of Tollhouse at the provider")
    client_secret_file: Path | None = setting(
        None, "file with the client's secret, read again when it changes; leave empty for a public client"
    )
    console: str = setting(
        "",
        'address of the console in browsers, such as "https://tollhouse.example.com/console/". The '
        "redirect address at the provider is this address and `api/oidc-callback`. Links in "
        "notifications and in responses to assistants begin with it",
    )
    name: str = setting("OpenID", "name of the provider on the button of the sign-in page")
    scopes: tuple[str, ...] = setting(
        ("openid", "email", "profile"), "scopes that Tollhouse requests; they must include `openid`"
    )
    named_by: str = setting(
        "email",
        "identifier of an operator: the verified e-mail address, or the person's id at the provider",
        choices=("email", "sub"),
    )
    assume_verified_email: bool = setting(
        False, "whether e-mail addresses count as verified if the provider does not state it"
    )
    link_accounts: bool = setting(
        False,
        "whether a person with the e-mail address of a local account signs in to that account, with its role",
    )
    groups_claim: str = setting(
        "groups", "claim of the ID token that lists the person's groups; a dot selects a member of an object"
    )
    allowed_groups: tuple[str, ...] = setting((), "groups whose members may sign in; if empty, everybody may")
    allowed_domains: tuple[str, ...] = setting(
        (), "domains of e-mail addresses that may sign in; if empty, all domains"
    )
    roles: Mapping[str, str] = setting(
        {},
        "name of a group = none, viewer, operator or admin; the highest applies, at each sign-in. "
        "People in none of these groups get `default_role`",
    )
    default_role: str = setting(
        "viewer",
        "role of people who are in no group of `roles` and are named by no role; without `roles`, "
        "the role of a new operator, which admins can change",
        choices=ROLES,
    )
    clock_skew: Duration = setting(
        60.0, "allowed difference between the clocks of the provider and of this machine; at most 5m"
    )
    session: Duration = setting(
        12 * 3600.0, "duration of a session; at most 12h, and it ends after 1h without use", least=60
    )
    recheck: Duration = setting(
        900.0,
        "time between two checks with the provider whether a person may stay signed in, if it issues refresh tokens",
        least=60,
    )
    timeout: Duration = setting(
        10.0, "maximum time for a response of the provider", edge="the sign-in fails", least=1
    )
    ca_file: Path | None = setting(
        None,
        "file with certificate authorities for the provider's certificate; if empty, those of the system",
    )
    proxy: str = setting("", "HTTP proxy for requests to the provider", secret=True)

    def problems(self, _: str) -> Iterator[str]:
        if not self.issuer:
            if self != OidcSettings():
                yield "oidc.issuer is required, because other settings of [oidc] are set"
            return
        for name, address in (("issuer", self.issuer), ("console", self.console)):
            if not is_safe_address(address):
                yield f"oidc.{name} must be an https address; http is allowed only on this machine"
        if not self.console.endswith("/console/"):
            yield 'oidc.console must end with "/console/", such as "https://tollhouse.example.com/console/"'
        if not self.client_id:
            yield "oidc.client_id is required with oidc.issuer"
        if "openid" not in self.scopes:
            yield "oidc.scopes must include openid"
        if self.clock_skew > MAX_SKEW_S:
            yield "oidc.clock_skew must be at most 5m; set the clock of this machine instead"
        if self.session > SESSION_LIFE_S:
            yield "oidc.session must be at most 12h"
        for group, role in self.roles.items():
            yield from problems_of_choice(f"oidc.roles.{group}", role, ROLES)
        yield from problems_of_url("oidc.proxy", self.proxy)


@dataclass(frozen=True, kw_only=True)
class OperatorSettings:
    """People who use commands on this machine. The audit list names them by e-mail address."""

    local: Mapping[str, str] = setting(
        {},
        'system user = e-mail address, such as `root = "ops@example.com"`. Other users get '
        "`TOLLHOUSE_AS`, or USER@HOSTNAME if it is not set",
    )

    def problems(self, setting_path: str) -> Iterator[str]:
        for user, email in self.local.items():
            if not is_email(email):
                yield f"{setting_path}.local.{user} must be an e-mail address, such as ops@example.com"


@dataclass(frozen=True, kw_only=True)
class LoggingSettings:
    """Log lines as JSON on stderr."""

    level: str = setting(
        "info", "lowest level that is written", choices=("debug", "info", "warning", "error")
    )
    lines_per_minute: int = setting(
        60,
        "maximum log lines per minute of one kind about one address",
        edge="the next line that is written has the number of suppressed lines (`left_out`)",
        least=1,
    )


@dataclass(frozen=True, kw_only=True)
class Config:
    """Settings outside of the sections."""

    data_dir: Path = setting(
        Path("tollhouse-data"), "directory of all data; with PostgreSQL, only of the socket for commands"
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
    work: WorkSettings = setting(WorkSettings(), "")
    answers: AnswerSettings = setting(AnswerSettings(), "")
    views: ViewSettings = setting(ViewSettings(), "")
    roles: RoleSettings = setting(RoleSettings(), "")
    budgets: BudgetSettings = setting(BudgetSettings(), "")
    channels: ChannelLimits = setting(ChannelLimits(), "")
    scheduled_reports: ScheduledReportSettings = setting(ScheduledReportSettings(), "")
    annotations: AnnotationSettings = setting(AnnotationSettings(), "")
    plans: PlanSettings = setting(PlanSettings(), "")
    contracts: ContractSettings = setting(ContractSettings(), "")
    allocation: AllocationSettings = setting(AllocationSettings(), "")
    files: FileSetLimits = setting(FileSetLimits(), "")
    reconciliation: ReconciliationSettings = setting(ReconciliationSettings(), "")
    enforcers: tuple[EnforcerSettings, ...] = setting((), "")
    mcp: McpSettings = setting(McpSettings(), "")
    oidc: OidcSettings = setting(OidcSettings(), "")
    operators: OperatorSettings = setting(OperatorSettings(), "")
    billing: BillingSettings = setting(BillingSettings(), "")
    billed: BilledSettings = setting(BilledSettings(), "")
    streams: tuple[UnitCostStream, ...] = setting((), "")
    publish: tuple[UnitCostPublication, ...] = setting((), "")
    log: LoggingSettings = setting(LoggingSettings(), "")

    def limit_value(self, limit: str) -> int:
        section, _, name = limit.partition(".")
        return int(getattr(getattr(self, section), name))

    @property
    def explicitly_counted_sources(self) -> frozenset[str]:
        """
        Return the sources with an explicit `count = true` in `[sources.NAME]`. A source without an entry
        is not included.

        Some counters repeat calls, so the operator must enable them explicitly.
        """
        return frozenset(name for name, source in self.sources.items() if source.count)

    @property
    def kept_tags(self) -> frozenset[str]:
        """
        Return the tag names in privacy.keep_attributes, in ledger.tags, in lanes of sources, and in conditions of
        attribution rules.

        Values of these tags may be long, because an operator chose the tags.
        """
        matched = frozenset(name for rule in self.attribution for name in rule.match.tag)
        of_lanes = (
            name.removeprefix(TAG)
            for source in self.sources.values()
            for name in source.lane
            if name.startswith(TAG)
        )
        return matched.union(self.privacy.keep_attributes, self.ledger.tags, of_lanes)


def all_settings(config: Config) -> Iterator[tuple[str, Field[Any], Any, Any]]:
    """
    Yield every setting as its name in the file, field, type and value. A list or a table that the user fills
    is one setting.
    """
    kinds = setting_types(Config)
    for section in fields(config):
        value = getattr(config, section.name)
        if not is_dataclass(value):
            yield section.name, section, kinds[section.name], value
            continue
        kind: type = type(value)
        inner = setting_types(kind)
        for field in fields(value):
            yield f"{section.name}.{field.name}", field, inner[field.name], getattr(value, field.name)


@cache
def setting_types(section: type) -> Mapping[str, Any]:
    """Return the types of a section's settings. Cached, because resolving all of them takes 8 ms."""
    return get_type_hints(section, include_extras=True)


def _needs_conversion(code: str) -> bool:
    from spool.currencies import DECIMALS  # imported late, because most configurations name no currency

    return code in DECIMALS and code != "USD"

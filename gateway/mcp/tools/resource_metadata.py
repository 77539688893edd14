"""
The tool get_resource_metadata: devices, clusters, connections, keys and billed accounts, as rows of one kind.

Rows have names, states, tags and recent costs. They contain no secret or digest of a key, and no address
of a device.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from ipaddress import ip_address
from typing import Annotated, Any, Literal

import msgspec

from gateway.devices.machine_state import MachineState
from gateway.mcp.tool import (
    McpTool,
    ToolAnswer,
    ToolCallContext,
    ToolInput,
    ToolOutput,
    answer_within_limit,
    make_cursor,
    verify_cursor,
)
from gateway.mcp.writing import (
    MAX_TABLE_ROWS,
    clean_and_shorten,
    console_page_link,
    did_you_mean,
    format_cell,
    format_dollars,
    markdown_table,
    remove_hidden_characters,
)
from gateway.money.costs.measures import CURRENCY_UNIT
from gateway.operations.holders.operators import SenderServices
from spool import money
from spool.devices.device import Device
from spool.errors import Invalid
from spool.ledger.dimensions import TAG, TOTAL
from spool.ledger.queries import CostQuery, CostRow, next_full_hour
from spool.people import People
from spool.record import utc_iso
from spool.registry.permission_sets import VIEW_OPERATION
from spool.turns.threads import sort_in_short_steps

DAYS = 30
ASSISTANTS_TAG = "coding_assistants"  # tag of a device that has the states of its coding assistants
# kind of resource -> cost dimension that has the ids of these resources as values
COSTED_BY: Mapping[str, str] = {"device": "device", "key": "sender"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRow:
    """
    A device, cluster, connection, key or account. Times are epoch seconds. `calls` and `cost` (in money
    units) are of the last 30 days; None if unknown.
    """

    kind: str
    id: str
    name: str
    source: str
    state: str = ""
    provider: str = ""
    account: str = ""
    region: str = ""
    user: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    first_seen: float | None = None
    last_seen: float | None = None
    calls: int | None = None
    cost: int | None = None

    def field_or_tag(self, name: str) -> str:
        match name:
            case "state" | "provider" | "account":
                return str(getattr(self, name))
            case "user" | "region":
                return str(getattr(self, name)) or self.tags.get(name, "")
        return self.tags.get(name.removeprefix("tag:"), "")


async def _device_rows(services: SenderServices) -> Sequence[ResourceRow]:
    lifecycle = services.devices
    if lifecycle is None:
        return ()

    return [_device_row(device, lifecycle.machine_state(device)) for device in lifecycle.table.all()]


def _device_row(device: Device, state: MachineState) -> ResourceRow:
    """Return the row of a device. Its tags are its labels, and what is known of its coding assistants."""
    tags = device.all_labels
    if assistants := state.assistants.each:
        words = (f"{each.name} {each.state}{each.cause and f' ({each.cause})'}" for each in assistants)
        tags = {**tags, ASSISTANTS_TAG: ", ".join(words)}
    return ResourceRow(
        kind="device",
        id=device.id,
        name=_hostname_unless_address(device.hostname) or device.id,
        source="devices",
        state=state.word,
        user=device.user,
        tags=tags,
        first_seen=device.enrolled_at,
        last_seen=device.last_seen or None,
    )


async def _cluster_rows(services: SenderServices) -> Sequence[ResourceRow]:
    clusters = services.clusters
    if clusters is None:
        return ()
    return [
        ResourceRow(
            kind="cluster",
            id=cluster.id,
            name=cluster.display_name or cluster.name,
            source="clusters",
            state=cluster.state if cluster.enabled else "disabled",
            account=cluster.account,
            region=cluster.region,
            tags=cluster.labels,
            first_seen=cluster.first_seen,
            last_seen=clusters.last_data_at(cluster),
        )
        for cluster in clusters.table.all()
    ]


async def _connection_rows(services: SenderServices) -> Sequence[ResourceRow]:
    return [
        ResourceRow(
            kind="connection",
            id=connection.id,
            name=connection.name,
            source="connections",
            state="enabled" if connection.is_enabled else "disabled",
            provider=connection.cloud_provider,
            account="" if connection.s3_bucket is None else connection.s3_bucket.cloud_account_id,
            first_seen=connection.created,
        )
        for connection in services.require_registry().connections.all()
    ]


async def _key_rows(services: SenderServices) -> Sequence[ResourceRow]:
    access = services.access
    now = services.clock.now()
    return [
        ResourceRow(
            kind="key",
            id=key.name,
            name=key.name,
            source="keys",
            state=key.state(now).lower(),
            tags=key.labels,
            last_seen=key.last_accessed,
        )
        for key in access.keys()  # noqa: SIM118 - no mapping
    ]


async def _account_rows(services: SenderServices) -> Sequence[ResourceRow]:
    rows_by_id: dict[str, ResourceRow] = {}
    for statement in await services.require_registry().statements.statements():
        id = f"{statement.source}/{statement.provider}/{statement.account}"
        known = rows_by_id.get(id)
        rows_by_id[id] = ResourceRow(
            kind="account",
            id=id,
            name=statement.account or statement.source,
            source=statement.source,
            provider=statement.provider,
            account=statement.account,
            state="settled" if statement.settled else "open",
            first_seen=min(statement.start, known.first_seen or statement.start)
            if known
            else statement.start,
            last_seen=max(statement.end, known.last_seen or statement.end) if known else statement.end,
        )
    return list(rows_by_id.values())


KINDS: Mapping[str, Callable[[SenderServices], Awaitable[Sequence[ResourceRow]]]] = {
    "device": _device_rows,
    "cluster": _cluster_rows,
    "connection": _connection_rows,
    "key": _key_rows,
    "account": _account_rows,
}


async def fetch_calls_and_costs_by_row_id(
    call_context: ToolCallContext[Any], resource_kind: str
) -> Mapping[str, tuple[int, int]]:
    """Return calls and cost of the last 30 days by row id; empty for a kind without costs."""
    dimension = COSTED_BY.get(resource_kind)
    if dimension is None:
        return {}
    until = next_full_hour(call_context.shared.clock.now())
    query = CostQuery(
        since=until - timedelta(days=DAYS), until=until, granularity=TOTAL, group_by=[dimension]
    )
    return await asyncio.to_thread(_calls_and_cost_by_name, await call_context.visible_ledger.costs(query))


def _calls_and_cost_by_name(rows: Sequence[CostRow]) -> Mapping[str, tuple[int, int]]:
    return {row.group[0] or "": (row.calls, money.text_to_units(row.cost)) for row in rows}


def _hostname_unless_address(name: str) -> str:
    try:
        ip_address(name)
    except ValueError:
        return name
    return ""


NAME = "get_resource_metadata"
MOST = 100
MOST_TAGS = 8  # maximum tags per row of a list; a resource requested by id has all its tags
MOST_FACETS = 10
_MOST_NAME = 200
_FIELDS = ("state", "provider", "service", "region", "account", "team", "user")
_PAGES = {"device": "/devices", "connection": "/billing", "key": "/keys", "account": "/reconciliation"}
_FACETS = ("service", "region", "team")
Sorted = Literal["cost", "name", "last_seen"]
Kind = Literal["device", "cluster", "connection", "key", "account"]


class ResourceQuestion(ToolInput):
    kind: Annotated[Kind | None, msgspec.Meta(description="Kind to list; default: counts of every kind")] = (
        None
    )
    match: Annotated[
        str | None, msgspec.Meta(description="Only ids and names that contain this text, in any case")
    ] = None
    filters: Annotated[
        dict[str, list[str]],
        msgspec.Meta(
            description=(
                f"Values by {', '.join(_FIELDS)} or tag:NAME; ! before a name excludes, an empty text "
                "means no value"
            )
        ),
    ] = msgspec.field(default_factory=dict)
    id: Annotated[str | None, msgspec.Meta(description="Id of one row, to see all its tags")] = None
    sort: Annotated[
        Sorted, msgspec.Meta(description="Order: largest cost first, by name, or newest first")
    ] = "cost"
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST, description="Maximum number of rows")] = 25
    cursor: Annotated[
        str | None, msgspec.Meta(description="next_cursor of an earlier call with the same arguments")
    ] = None


class ResourceOwner(ToolOutput):
    team: str | None
    user: str | None


class ResourceLine(ToolOutput):
    """
    A resource of one kind, such as a key or a device.

    `cost_30d` is exact decimal text in dollars, null for kinds that calls do not name. A row in a list shows
    its first tags by name; `tag_count` is their number.
    """

    kind: str
    id: str
    name: str
    state: str
    provider: str | None
    service: str | None
    account: str | None
    region: str | None
    owner: ResourceOwner
    tags: dict[str, str]
    tag_count: int
    first_seen: str | None
    last_seen: str | None
    calls_30d: int | None
    cost_30d: str | None
    cost_type: str
    source: str


class Facet(ToolOutput):
    """The number of matching rows with a value; null is no value."""

    value: str | None
    rows: int


class ResourceMetadata(ToolOutput):
    """
    The result of the tool.

    `total` counts all matching rows, including other pages. `untagged` counts those without a configured tag.
    Without a kind, the result has only `counts`.
    """

    counts: dict[str, int]
    rows: list[ResourceLine]
    total: int
    facets: dict[str, list[Facet]]
    untagged: dict[str, int]
    as_of: str
    truncated: bool
    next_cursor: str | None


async def answer_resource_metadata(
    arguments: ResourceQuestion, call_context: ToolCallContext[SenderServices]
) -> ToolAnswer:
    now = utc_iso(call_context.shared.clock.now())
    if arguments.kind is None:
        if arguments.match or arguments.filters or arguments.id:
            raise Invalid(f"match, filters and id need a kind: one of {', '.join(KINDS)}")
        counts = {kind: len(await rows(call_context.services)) for kind, rows in KINDS.items()}
        content = ResourceMetadata(
            counts=counts,
            rows=[],
            total=sum(counts.values()),
            facets={},
            untagged={},
            as_of=now,
            truncated=False,
            next_cursor=None,
        )
        return ToolAnswer(
            text=_format_counts(content), content=content, link=console_page_link(call_context, "/devices")
        )
    known = await KINDS[arguments.kind](call_context.services)
    costs = await fetch_calls_and_costs_by_row_id(call_context, arguments.kind)
    first = verify_cursor(call_context, NAME, arguments, arguments.cursor)
    tags = [name for name in call_context.visible_ledger.builtin_and_tag_dimensions() if name.startswith(TAG)]
    link = console_page_link(call_context, _PAGES[arguments.kind]) if arguments.kind in _PAGES else ""
    people = call_context.shared.people
    shown = _MetadataPage(arguments=arguments, first=first, now=now, link=link, tags=tags, people=people)
    return await asyncio.to_thread(
        shown.build_page_answer, known, costs, lambda seen: make_cursor(call_context, NAME, arguments, seen)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _MetadataPage:
    arguments: ResourceQuestion
    first: int
    now: str
    link: str
    tags: Sequence[str]  # tag names by which costs can be grouped
    people: People

    def build_page_answer(
        self,
        known_rows: Sequence[ResourceRow],
        costs: Mapping[str, tuple[int, int]],
        cursor_after: Callable[[int], str],
    ) -> ToolAnswer:
        rows = [
            _with_calls_and_cost(row, costs)
            for row in _matching_rows(self.arguments, known_rows, self.people)
        ]
        rows = sort_in_short_steps(rows, key=_SORTS[self.arguments.sort])
        page_rows = rows[self.first : self.first + self.arguments.limit]
        return answer_within_limit(
            lambda count: self._build_answer(rows, page_rows[:count], cursor_after), len(page_rows)
        )

    def _build_answer(
        self,
        matching_rows: Sequence[ResourceRow],
        page_rows: Sequence[ResourceRow],
        cursor_after: Callable[[int], str],
    ) -> ToolAnswer:
        end = self.first + len(page_rows)
        is_one = self.arguments.id is not None
        content = ResourceMetadata(
            counts={self.arguments.kind or "": len(matching_rows)},
            rows=[_resource_line(row, most_tags=len(row.tags) if is_one else MOST_TAGS) for row in page_rows],
            total=len(matching_rows),
            facets={name: _most_frequent_values(name, matching_rows) for name in _FACETS},
            untagged={
                clean_and_shorten(name.removeprefix(TAG), _MOST_NAME): sum(
                    not row.field_or_tag(name) for row in matching_rows
                )
                for name in self.tags
            },
            as_of=self.now,
            truncated=end < len(matching_rows),
            next_cursor=cursor_after(end) if end < len(matching_rows) else None,
        )
        return ToolAnswer(text=_format_resources(content, self.arguments), content=content, link=self.link)


def _matching_rows(
    arguments: ResourceQuestion, known_rows: Sequence[ResourceRow], people: People
) -> list[ResourceRow]:
    """Return the matching rows. Raises Invalid for an unknown filter, or a value that no row has."""
    if arguments.id is not None:
        matches = [row for row in known_rows if row.id == arguments.id]
        if not matches:
            hint = did_you_mean(arguments.id, [row.id for row in known_rows])
            raise Invalid(f"there is no {arguments.kind} {remove_hidden_characters(arguments.id)}{hint}")
        return matches
    passing = list(known_rows)
    for name, values in arguments.filters.items():
        plain = name.removeprefix("!")
        if plain not in _FIELDS and not (plain.startswith(TAG) and plain != TAG):
            names = ", ".join(_FIELDS)
            raise Invalid(
                f"there is no filter {remove_hidden_characters(name)}{did_you_mean(plain, _FIELDS)}: {names}, tag:NAME"
            )
        known_values = {row.field_or_tag(plain) for row in known_rows}
        people.reject_dropped_names(values)
        for value in values:
            if value and known_values.isdisjoint(people.all_recorded_names(value)):
                raise Invalid(
                    f"no {arguments.kind} has the {remove_hidden_characters(plain)} "
                    f"{remove_hidden_characters(value)}{did_you_mean(value, known_values)}"
                )
        wanted_values = people.expand_filter({plain: values})[plain]
        passing = [
            row for row in passing if (row.field_or_tag(plain) in wanted_values) != name.startswith("!")
        ]
    match_text = (arguments.match or "").casefold()
    passing = [row for row in passing if match_text in f"{row.id}\n{row.name}".casefold()]
    if match_text and not passing:
        near = did_you_mean(match_text, [word for row in known_rows for word in (row.id, row.name)])
        raise Invalid(f"no {arguments.kind} contains {remove_hidden_characters(arguments.match or '')}{near}")
    return passing


def _with_calls_and_cost(row: ResourceRow, costs: Mapping[str, tuple[int, int]]) -> ResourceRow:
    if row.kind not in COSTED_BY:
        return row
    calls, cost = costs.get(row.id, (0, 0))
    return replace(row, calls=calls, cost=cost)


_SORTS: Mapping[str, Callable[[ResourceRow], tuple[object, ...]]] = {
    "cost": lambda row: (-(row.cost or 0), row.name.casefold(), row.id),
    "name": lambda row: (row.name.casefold(), row.id),
    "last_seen": lambda row: (-(row.last_seen or 0), row.name.casefold(), row.id),
}


def _resource_line(row: ResourceRow, *, most_tags: int) -> ResourceLine:
    tags = sorted(row.tags.items())
    return ResourceLine(
        kind=row.kind,
        id=clean_and_shorten(row.id, _MOST_NAME),
        name=clean_and_shorten(row.name, _MOST_NAME),
        state=clean_and_shorten(row.state, _MOST_NAME),
        provider=_shortened_or_none(row.provider),
        service=_shortened_or_none(row.field_or_tag("service")),
        account=_shortened_or_none(row.account),
        region=_shortened_or_none(row.field_or_tag("region")),
        owner=ResourceOwner(
            team=_shortened_or_none(row.field_or_tag("team")),
            user=_shortened_or_none(row.field_or_tag("user")),
        ),
        tags={
            clean_and_shorten(name, _MOST_NAME): clean_and_shorten(value, _MOST_NAME)
            for name, value in tags[:most_tags]
        },
        tag_count=len(tags),
        first_seen=utc_iso(row.first_seen),
        last_seen=utc_iso(row.last_seen),
        calls_30d=row.calls,
        cost_30d=None if row.cost is None else money.units_to_text(row.cost),
        cost_type="real_cost",
        source=row.source,
    )


def _shortened_or_none(value: str) -> str | None:
    return clean_and_shorten(value, _MOST_NAME) or None


def _most_frequent_values(name: str, found: Sequence[ResourceRow]) -> list[Facet]:
    counts = Counter(row.field_or_tag(name) for row in found)
    most_frequent = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:MOST_FACETS]
    return [Facet(value=_shortened_or_none(value), rows=rows) for value, rows in most_frequent]


def _format_counts(content: ResourceMetadata) -> str:
    rows = [[kind, f"{count:,}"] for kind, count in content.counts.items()]
    return (
        f"{content.total:,} resources. As of {content.as_of}.\n\n{markdown_table(['kind', 'number'], rows)}"
    )


def _resource_table_cells(line: ResourceLine) -> list[str]:
    owner = line.owner
    names = [line.id, line.name, line.state, owner.team or "-", owner.user or "-"]
    return [*map(format_cell, names), line.last_seen or "-", format_dollars(line.cost_30d)]


def _format_resources(content: ResourceMetadata, arguments: ResourceQuestion) -> str:
    parts = [
        f"{content.total:,} rows of kind {arguments.kind}; costs are of the last {DAYS} days. As of "
        f"{content.as_of}."
    ]
    if arguments.kind not in COSTED_BY:
        parts.append(f"Calls do not name a {arguments.kind}, so its costs are unknown.")
    rows = [_resource_table_cells(line) for line in content.rows[:MAX_TABLE_ROWS]]
    if rows:
        parts.append(
            markdown_table(
                ["id", "name", "state", "team", "user", "last seen", f"cost ({CURRENCY_UNIT})"], rows
            )
        )
    if len(content.rows) > MAX_TABLE_ROWS:
        parts.append(f"{len(content.rows) - MAX_TABLE_ROWS} more rows are in the structured content.")
    if content.truncated:
        parts.append("For the next rows, repeat the call with cursor = next_cursor, or narrow the query.")
    return "\n\n".join(parts)


TOOL = McpTool(
    name=NAME,
    title="Resource metadata",
    description=(
        "Devices, clusters, billing connections, keys and billed accounts: state, owner, region, "
        "tags, when each was last seen, and the cost of its calls in the last 30 days. Default: the "
        "number of each kind."
    ),
    takes=ResourceQuestion,
    gives=ResourceMetadata,
    run=answer_resource_metadata,
    needs=VIEW_OPERATION,
)

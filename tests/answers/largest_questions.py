"""The largest possible request of every operation, for key holders, operators and assistants."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from gateway.bills.plans.declared import MAX_SEATS
from gateway.http.address import ApiAddress
from gateway.http.event_streams import EVENT_STREAM
from gateway.mcp.tools.list import TOOLS
from gateway.service.addresses.table import FOR_SENDERS, OPERATOR_ADDRESSES

ALL = ("user", "team", "model", "provider")
EXPANSIONS = "expand=current&expand=history&expand=burnup&expand=forecast"
# Format of the twenty dimensions: element names are as long as permitted and differ for every combination.
LONG = "{0} {1}" * 36
DEFINITION = "Dimensions:" + "".join(
    f"\n  D{number}: {{Rules: [{{Type: GroupBy, Sources: [user, team], Format: '{LONG}'}}]}}"
    for number in range(20)
)
VIEW = {"name": "everything", "filter": {}, "principal_dimension": "user"}
BUDGET = {"name": "each user", "default_amount": "1", "alerts": {"50": "Y"}, "per": "user"}
PLAN = {"fee": "20", "included": "30", "overage_price": "1.1"}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A request by a key with `scope`, or by an operator if it is empty."""

    name: str
    method: str
    path: str
    body: Any
    scope: str | None


def plans_of(view: str, users: int) -> Iterator[Mapping[str, Any]]:
    """
    Make plans in which every user of `tests.answers.many_sums` has a seat, with the maximum number of seats each.
    """
    for first in range(0, users, MAX_SEATS):
        numbers = range(first, min(users, first + MAX_SEATS))
        seats = [{"user": f"user-{number:05}", "since": "2020-01-01"} for number in numbers]
        yield {**PLAN, "name": f"plan of {first}", "view": view, "seats": seats}


def questions(first_day: str, last_day: str, ids: Mapping[str, str]) -> Iterator[Question]:
    """List every read and every request with a body. `ids` has the created `view` and `budget`."""
    queries, bodies = _queries(first_day, last_day), _bodies(first_day, last_day)
    for row in (*FOR_SENDERS, *OPERATOR_ADDRESSES):
        streams = any(EVENT_STREAM in content for content in row.gives.values())
        handler = getattr(row.handler, "__name__", row.name)
        if streams or ("GET" not in row.methods and handler not in bodies):
            continue
        kind = row.path.removeprefix("/console/api").removeprefix("/v2").split("/")[1]
        values = {name: ids.get(kind, "1") for name in row.path_parameters}
        path = row.documented_path.format(**{name: quote(value, safe="") for name, value in values.items()})
        method = "GET" if "GET" in row.methods else row.methods[0]
        for body in bodies.get(handler, [None]):
            for query in queries.get(handler, _usual(row)):
                address = f"{path}?{query}" if query else path
                yield Question(name=row.name, method=method, path=address, body=body, scope=row.scope)


def _usual(served_address: ApiAddress) -> Sequence[str]:
    return [f"limit={served_address.lists.max_limit}"] if served_address.lists else [""]


def _queries(first_day: str, last_day: str) -> Mapping[str, Sequence[str]]:
    span = [("from", first_day), ("to", last_day)]
    groups = [("by", name) for name in ALL]
    days = urlencode(
        [("start_date", first_day), ("end_date", last_day), *(("group_by", name) for name in ALL)]
    )
    return {
        "search": ["q=user"],
        "report": [urlencode([*span, *groups, *more]) for more in (
            [("per", "hourly")],
            [("per", "daily"), ("compare", "previous")],
            [("compare", "previous")],
            [("per", "daily"), ("format", "csv")],
            [("format", "csv")],
            [("per", "hourly"), ("top", "1000")],
            [("per", "hourly"), ("top", "10"), ("compare", "previous")],
            [("per", "daily"), ("cost_type", "metered_cost")],
            [("per", "daily"), ("cost_type", "metered_cost"), ("top", "1000")],
            [("per", "daily"), ("cost_type", "paid_cost"), ("by", "charge"), ("by", "plan")],
        )],
        "focus": [urlencode([*span, *more]) for more in ([], [("lines", "meters")], [("billed", "true")])],
        "what_if": [urlencode([*span, *groups, ("model", "gpt-4.1-mini")])],
        "preview_closing": [urlencode([("provider", "openai"), ("month", last_day[:7])]), ""],
        "comparison": [urlencode([*span, *groups, ("top", "1000")])],
        "reconciliation": ["by=key", "by=model", "by=key&format=csv"],
        "read_costs": [f"{days}&granularity=hourly&limit=10000", f"{days}&granularity=daily&limit=10000",
                       f"{days}&granularity=monthly&limit=10000&measures=calls&sort_key=cost&sort_order=desc"],
        "list_budgets": ["expand=current&expand=forecast&limit=1000"],
        "read_budgets": ["expand=current&expand=forecast&limit=1000"],
        "show_budget": [EXPANSIONS],
        "read_budget": [EXPANSIONS],
        "list_records": [f"date={last_day[:7]}&limit=200"],
        "preview": [urlencode(span)],
    }  # fmt: skip


def _bodies(first_day: str, last_day: str) -> Mapping[str, Sequence[Any]]:
    definition = {"definition": DEFINITION}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for name, arguments in _calls_of_tools({"start": first_day, "end": last_day})
    ]
    return {
        "diff_definition": [definition],
        "validate_definition": [definition],
        "preview_role": [{"role": {"name": "all", "data_access": "full"}}],
        "check": [{}],
        "ask_mcp": messages,
        "relay_mcp": [{"line": json.dumps(message)} for message in messages[:1]],
    }


def _calls_of_tools(days: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    groups = {"date_range": days, "group_by": list(ALL[:3]), "limit": 100}
    arguments: Mapping[str, Sequence[Any]] = {
        "get_cost_data": [{**groups, "granularity": "hourly"}, {**groups, "granularity": "daily"}, groups,
                          {**groups, "filters": {"&user": ["user"]}}],
        "compare_costs": [{**groups, "group_by": ["user", "team"]}],
        "get_dimension_values": [{"dimension": "user", "date_range": days, "limit": 100}],
        "get_reconciliation": [{"by": "key", "limit": 50}],
    }  # fmt: skip
    for name, tool in TOOLS.items():
        if not tool.writes:
            yield from ((name, each) for each in arguments.get(name, [{}]))

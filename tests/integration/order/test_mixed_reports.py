"""
Mixed reports of one call from up to four sources, in every order, with restarts. The record has the values on
which all agree. Where they differ, it has a value that one of them states.

Each exception below is a row in docs/promises/ordering.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.gateway.normalise.otlp.payloads import traces
from tests.integration.order.running import (
    ORDERS,
    SEED,
    Request,
    Row,
    Told,
    cut,
    told_in_memory,
    told_on_disk,
)
from tests.integration.reports import (
    MadeCall,
    Report,
    callback,
    cloud_event,
    generation,
    log_event,
    proxy_span,
    row,
    sdk_span,
    webhook,
)

EVERY_ORDER = 4  # up to this number of reports, the test tries all orders
SOME_ORDERS = 4  # number of orders that the test tries for more reports
ON_DISK = 2  # number of orders that also run with storage on disk

Reporter = Callable[..., Report]
REPORTERS: tuple[Reporter, ...] = (
    callback,
    row,
    proxy_span,
    sdk_span,
    generation,
    webhook,
    log_event,
    cloud_event,
)


def as_request(reports: Sequence[Report]) -> Request:
    """Build a request from reports of one format and scope."""
    format, scope, items = reports[0].format, reports[0].scope, [report.item for report in reports]
    body: Any = items
    if format == "otlp/traces":
        body = traces(
            *items, scope=scope, resource={"service.name": "litellm" if scope == "litellm" else "shop"}
        )
    elif format == "otlp/logs":
        body = {"resourceLogs": [{"scopeLogs": [{"scope": {"name": scope}, "logRecords": items}]}]}
    elif format == "langfuse":
        body = {"batch": items}
    return Request(format, json.dumps(body).encode())


def as_requests(reports: Sequence[Report], cuts: Sequence[bool]) -> list[Request]:
    """Build requests. Neighbours of one format and scope share a request unless `cuts` separates them."""
    kinds = [(report.format, report.scope) for report in reports]
    begins = [cut or place == 0 or kinds[place] != kinds[place - 1] for place, cut in enumerate(cuts)]
    return [as_request(group) for group in cut(reports, begins)]


@dataclass(frozen=True)
class Telling:
    """Reports of some calls, in several orders."""

    reports: list[Report]
    orders: Sequence[Sequence[Report]]
    cuts: list[bool]
    restarts: set[int]  # numbers of the requests after which the gateway restarts
    off: int  # number of calls with a report that counts differently


@st.composite
def tellings(draw: st.DrawFn) -> Telling:
    """Draw reports in all orders if there are at most four, else in some orders."""
    reports: list[Report] = []
    off = 0
    for number in range(1, draw(st.integers(1, 3)) + 1):
        call = MadeCall(number, f"chatcmpl-{number:024x}", f"{number:08x}-aaaa-4bbb-8ccc-{number:012x}")
        reporters = draw(st.lists(st.sampled_from(REPORTERS), min_size=2, max_size=4, unique=True))
        odd = draw(st.sampled_from([None, None, *range(len(reporters))]))
        off += odd is not None
        reports += [reporter(call, off=int(place == odd)) for place, reporter in enumerate(reporters)]
    if len(reports) <= EVERY_ORDER:
        orders = [list(order) for order in permutations(reports)]
    else:
        orders = draw(st.lists(st.permutations(reports), min_size=SOME_ORDERS, max_size=SOME_ORDERS))
    many = st.lists(st.booleans(), min_size=len(reports), max_size=len(reports))
    restarts = st.sets(st.integers(0, len(reports) - 1), min_size=1, max_size=2)
    return Telling(reports, orders, draw(many), draw(restarts), off)


def stated(reports: Sequence[Report]) -> dict[str, list[Row]]:
    """Return by call id the records that each report would make by itself."""
    alone: dict[str, list[Row]] = {}
    for report in reports:
        ((found,), _) = told_in_memory([as_request([report])])
        alone.setdefault(found["id"], []).append(found)
    return alone


def may_be_left_out(name: str, said: Sequence[Row]) -> bool:
    """
    Return whether a value may be missing: a part of totals that differ, or an end before another clock's start.
    """
    if name == "reasoning_tokens":
        return len({record["output_tokens"] for record in said}) > 1
    ends = [record["end_time"].rstrip("Z") for record in said if record["end_time"]]
    starts = [record["start_time"].rstrip("Z") for record in said if record["start_time"]]
    return name == "end_time" and bool(ends) and bool(starts) and min(ends) < max(starts)


def flat(record: Row) -> Row:
    """Return the record with its tags as separate fields, because tags are filled one by one."""
    return {**record, "tags": None, **{f"tag {name}": value for name, value in record["tags"].items()}}


@seed(SEED)
@settings(max_examples=ORDERS * 3, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(tellings())
def test_reports_of_a_call_by_many_sources_in_any_order(telling: Telling) -> None:
    """All orders run in memory. Some also run with restarts, after which open records must still be open."""
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    alone = stated(telling.reports)
    first = told_in_memory(as_requests(telling.reports, [True] * len(telling.reports)))
    assert (telling.off > 0) == (first[1] > 0)
    for place, order in enumerate(telling.orders):
        requests = as_requests(order, telling.cuts)
        other = told_in_memory(requests)
        agree(first, other, alone)
        if place < ON_DISK:
            restarts = [number in telling.restarts for number in range(len(requests))]
            assert other == told_on_disk(requests, restarts)


def agree(first: Told, other: Told, alone: dict[str, list[Row]]) -> None:
    """
    Check that both results have each value on which all reports agree, and else a value that one of them states.
    """
    assert alone.keys() == {one["id"] for one in first[0]} == {one["id"] for one in other[0]}
    assert len(alone) == len(first[0]) == len(other[0])
    assert (first[1] > 0) == (other[1] > 0)
    for one, two in zip(by_id(first[0]), by_id(other[0]), strict=True):
        said = [flat(record) for record in alone[one["id"]]]
        for name in {name for record in said for name in record}:
            values = {record.get(name) for record in said} - {None}
            found = {flat(one).get(name), flat(two).get(name)}
            if may_be_left_out(name, said):
                assert found <= values | {None}
            else:
                assert found <= (values or {None})
                assert len(found) == 1 or len(values) > 1


def by_id(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda one: str(one["id"]))

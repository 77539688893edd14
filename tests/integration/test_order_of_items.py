"""
Items in any order, in one request or many, with restarts between them: the same records, sums and conflicts.

The items are those of every shared case, and reports of one call by up to four sources. docs/ordering.md names what
depends on order by design; each exception below is one of its rows. Counters have tests of their own.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

import spool.memory
import spool.sqlite
from gateway.authentication.access import Bearer
from gateway.configuration.sections import Config
from gateway.intake.attribution import Attribution
from gateway.intake.intake import Intake
from gateway.intake.merge_window import MergeWindow
from gateway.intake.prices import PriceBook
from gateway.intake.shadows import Shadows
from gateway.normalise import any_format
from gateway.normalise.formats.langfuse.merger import Merger
from gateway.normalise.options import Options
from spool.record import AI_TELEMETRY, as_json
from spool.settings import SpoolSettings
from tests.gateway.normalise.formats.payloads import run
from tests.gateway.normalise.otlp.payloads import traces
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
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import NOON, assert_books_balance, everything

CASES = Path(__file__).parents[1] / "cases"
HOLD_S = 10
WINDOW_S = 600
SETTINGS = SpoolSettings(hold=HOLD_S)
SENDER = Bearer("sender", frozenset())
prices = cache(PriceBook.load)

SEED = int(os.environ.get("TOLLHOUSE_ORDER_SEED", "0")) or random.SystemRandom().randrange(1, 2**31)
ORDERS = int(os.environ.get("TOLLHOUSE_ORDERS", "3"))  # of each case, and a fifth of those of mixed reports

Row = dict[str, Any]
Told = tuple[list[Row], int]  # the records without their order, and how many conflicts there were


# -- a gateway that is told requests -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Request:
    format: str
    body: bytes


class Gateway:
    """The way from a body to the log, which is on disk or in memory."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._clock = MovedClock(NOON)
        self._spool: Any = None

    async def start(self) -> None:
        if self._directory is None:
            self._spool = await spool.memory.open_spool(settings=SETTINGS, clock=self._clock)
        else:
            self._spool = await spool.sqlite.open_spool(self._directory, settings=SETTINGS, clock=self._clock)
        shadows = Shadows(self._clock)
        await shadows.remember(self._spool.log)
        intake = Intake(self._spool.log, attribution=Attribution(Config()), prices=prices(), shadows=shadows)
        merger = Merger(window_s=WINDOW_S, hold_s=HOLD_S, max_reports=1000, max_bytes=2**24)
        self._window = MergeWindow(self._spool.partial_reports, intake, self._clock, merger)
        await self._window.start()

    async def restart(self) -> None:
        """A stop in good order, where there is something to start from again."""
        if self._directory is not None:
            await self._spool.close()
            await self.start()

    async def take(self, request: Request) -> None:
        normalised, _ = run(any_format.normalise(request.format, request.body, options=Options()))
        outcome, reports = normalised
        await self._window.take(outcome, SENDER, reports)

    async def end(self) -> Told:
        """Everything was told: what is still open or waiting is closed."""
        self._clock.move(WINDOW_S + 1)
        await self._window.release()
        self._clock.move(HOLD_S + 1)
        await assert_books_balance(self._spool.log)
        rows = [as_json(record) for record in await everything(self._spool.log) if record is not None]
        conflicts = (await self._spool.log.books()).topics.get(AI_TELEMETRY, {}).get("conflict", 0)
        await self._spool.close()
        return sorted(rows, key=lambda found: json.dumps(found, sort_keys=True)), conflicts


async def _told(requests: Sequence[Request], restarts: Sequence[bool], directory: Path | None) -> Told:
    gateway = Gateway(directory)
    await gateway.start()
    for place, request in enumerate(requests):
        await gateway.take(request)
        if restarts and restarts[place % len(restarts)]:
            await gateway.restart()
    return await gateway.end()


def told_in_memory(requests: Sequence[Request]) -> Told:
    return asyncio.run(_told(requests, (), None))


def told_on_disk(requests: Sequence[Request], restarts: Sequence[bool]) -> Told:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_told(requests, restarts, Path(directory)))


def cut(items: Sequence[Any], cuts: Sequence[bool]) -> Iterator[list[Any]]:
    """The items in groups; True begins another one."""
    group: list[Any] = []
    for item, begins in zip(items, cuts, strict=True):
        if begins and group:
            yield group
            group = []
        group.append(item)
    yield group


# -- the shared cases --------------------------------------------------------------------------------------------------

MEMBERS = {"resourceSpans": ("scopeSpans", "spans"), "resourceLogs": ("scopeLogs", "logRecords")}
# Several items of one call that are one record only within a request.
TOGETHER = ("gemini_cli/api_response_logs",)
# After a restart Langfuse's trace no longer finds its open generations: what it says of the owner comes too late.
LATE = {"langfuse": ("user", "team", "session", "tags")}


@dataclass(frozen=True)
class Case:
    """A payload, taken apart. A piece is what has to come in one request."""

    name: str
    format: str
    pieces: tuple[tuple[Any, ...], ...]

    def request(self, pieces: Sequence[Sequence[Any]]) -> Request:
        items = [item for piece in pieces for item in piece]
        if self.format in ("otlp/traces", "otlp/logs"):
            root = next(iter(items[0]))
            return Request(self.format, json.dumps({root: [item[root][0] for item in items]}).encode())
        if self.format == "langfuse":
            return Request(self.format, json.dumps({"batch": items}).encode())
        return Request(self.format, json.dumps(items if len(items) > 1 else items[0]).encode())


def read_case(path: Path) -> Case | None:
    """None for counters, and for what holds no two items."""
    name, text = f"{path.parent.name}/{path.stem}", path.read_text()
    values = (
        [json.loads(line) for line in text.splitlines() if line] if path.suffix == ".ndjson" else [json.loads(text)]
    )
    root = next((name for name in ("resourceMetrics", *MEMBERS) if name in values[0]), "")
    if root == "resourceMetrics":
        return None
    if root:
        format, pieces = "otlp/traces" if root == "resourceSpans" else "otlp/logs", _otlp_pieces(root, values[0][root])
    else:
        format, pieces = path.parent.name, tuple((item,) for item in _items(path.parent.name, values))
    if name in TOGETHER:
        pieces = (tuple(item for piece in pieces for item in piece),)
    return Case(name, format, pieces) if sum(map(len, pieces)) > 1 else None


def _items(format: str, values: list[Any]) -> list[Any]:
    if format == "langfuse":
        batch: list[Any] = values[0]["batch"]
        return batch
    return values[0] if isinstance(values[0], list) else values


def _otlp_pieces(root: str, entries: Sequence[Row]) -> tuple[tuple[Any, ...], ...]:
    """Each item in an envelope of its own; spans by trace, because twins and owners are found within a request."""
    middle, member = MEMBERS[root]
    by_trace: dict[str, list[Any]] = {}
    for entry in entries:
        for scope in entry[middle]:
            for item in scope[member]:
                key = item.get("traceId", "") if root == "resourceSpans" else str(len(by_trace))
                by_trace.setdefault(key, []).append({root: [{**entry, middle: [{**scope, member: [item]}]}]})
    return tuple(tuple(items) for items in by_trace.values())


PATHS = [path for path in sorted(CASES.glob("*/*/*.*json")) if not path.name.endswith(".expected.json")]
FOUND = {found.name: found for path in PATHS if (found := read_case(path)) is not None}


def without(told: Told, *names: str) -> Told:
    rows = [{name: row[name] for name in row if name not in names} for row in told[0]]
    return sorted(rows, key=lambda found: json.dumps(found, sort_keys=True)), told[1]


@pytest.mark.parametrize("name", FOUND)
def test_the_items_of_a_case_in_any_order(name: str) -> None:
    """On disk and in memory; where nothing identifies a call, its id is a random one."""
    case, choice = FOUND[name], random.Random(f"{SEED} {name}")
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    expected = without(told_in_memory([case.request(case.pieces)]), "id")
    for _ in range(ORDERS):
        pieces = [choice.sample(piece, len(piece)) for piece in choice.sample(case.pieces, len(case.pieces))]
        groups = cut(pieces, [choice.random() < 0.5 for _ in pieces])
        requests = [case.request(group) for group in groups]
        restarts = [choice.random() < 0.3 for _ in requests]
        assert expected == without(told_in_memory(requests), "id")
        late = LATE.get(case.format, ()) if any(restarts) else ()
        assert without(expected, *late) == without(told_on_disk(requests, restarts), "id", *late)


# -- mixed reports of one call -----------------------------------------------------------------------------------------

Reporter = Callable[..., Report]
REPORTERS: tuple[Reporter, ...] = (callback, row, proxy_span, sdk_span, generation, webhook, log_event, cloud_event)


def as_request(reports: Sequence[Report]) -> Request:
    """A payload of one format and scope."""
    format, scope, items = reports[0].format, reports[0].scope, [report.item for report in reports]
    body: Any = items
    if format == "otlp/traces":
        body = traces(*items, scope=scope, resource={"service.name": "litellm" if scope == "litellm" else "shop"})
    elif format == "otlp/logs":
        body = {"resourceLogs": [{"scopeLogs": [{"scope": {"name": scope}, "logRecords": items}]}]}
    elif format == "langfuse":
        body = {"batch": items}
    return Request(format, json.dumps(body).encode())


def as_requests(reports: Sequence[Report], cuts: Sequence[bool]) -> list[Request]:
    """Neighbours of one format and scope share a request unless they are cut."""
    kinds = [(report.format, report.scope) for report in reports]
    begins = [cut or place == 0 or kinds[place] != kinds[place - 1] for place, cut in enumerate(cuts)]
    return [as_request(group) for group in cut(reports, begins)]


@dataclass(frozen=True)
class Telling:
    """Reports of some calls in two orders."""

    reports: list[Report]
    other: list[Report]
    cuts: list[bool]
    restarts: set[int]  # after which requests
    off: int  # of how many calls one report counts differently


@st.composite
def tellings(draw: st.DrawFn) -> Telling:
    reports: list[Report] = []
    off = 0
    for number in range(1, draw(st.integers(1, 3)) + 1):
        call = MadeCall(number, f"chatcmpl-{number:024x}", f"{number:08x}-aaaa-4bbb-8ccc-{number:012x}")
        reporters = draw(st.lists(st.sampled_from(REPORTERS), min_size=2, max_size=4, unique=True))
        odd = draw(st.sampled_from([None, None, *range(len(reporters))]))
        off += odd is not None
        reports += [reporter(call, off=int(place == odd)) for place, reporter in enumerate(reporters)]
    many = st.lists(st.booleans(), min_size=len(reports), max_size=len(reports))
    restarts = st.sets(st.integers(0, len(reports) - 1), min_size=1, max_size=2)
    return Telling(reports, draw(st.permutations(reports)), draw(many), draw(restarts), off)


def stated(reports: Sequence[Report]) -> dict[str, list[Row]]:
    """By id of a call, the records that its reports would be alone."""
    alone: dict[str, list[Row]] = {}
    for report in reports:
        ((found,), _) = told_in_memory([as_request([report])])
        alone.setdefault(found["id"], []).append(found)
    return alone


def may_be_left_out(name: str, said: Sequence[Row]) -> bool:
    """A part of a total that two count differently, and an end that is before another clock's start."""
    if name == "reasoning_tokens":
        return len({record["output_tokens"] for record in said}) > 1
    ends = [record["end_time"].rstrip("Z") for record in said if record["end_time"]]
    starts = [record["start_time"].rstrip("Z") for record in said if record["start_time"]]
    return name == "end_time" and bool(ends) and bool(starts) and min(ends) < max(starts)


def flat(record: Row) -> Row:
    """Tags beside the fields: they are filled name by name."""
    return {**record, "tags": None, **{f"tag {name}": value for name, value in record["tags"].items()}}


@seed(SEED)
@settings(max_examples=ORDERS * 5, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(tellings())
def test_reports_of_a_call_by_many_sources_in_any_order(telling: Telling) -> None:
    """What they agree on is in the record; what they state differently is what one of them states."""
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    alone = stated(telling.reports)
    first, conflicts = told_in_memory(as_requests(telling.reports, [True] * len(telling.reports)))
    requests = as_requests(telling.other, telling.cuts)
    other, other_conflicts = told_in_memory(requests)
    assert (other, other_conflicts) == told_on_disk(requests, [])
    assert alone.keys() == {one["id"] for one in first} == {one["id"] for one in other}
    assert len(alone) == len(first) == len(other)
    assert (telling.off > 0) == (conflicts > 0) == (other_conflicts > 0)
    for one, two in zip(by_id(first), by_id(other), strict=True):
        said = [flat(record) for record in alone[one["id"]]]
        for name in {name for record in said for name in record}:
            values = {record.get(name) for record in said} - {None}
            found = {flat(one).get(name), flat(two).get(name)}
            if may_be_left_out(name, said):
                assert found <= values | {None}
            else:
                assert found <= (values or {None})
                assert len(found) == 1 or len(values) > 1

    # What is open stays open over a restart.
    restarts = [place in telling.restarts for place in range(len(requests))]
    assert (other, other_conflicts) == told_on_disk(requests, restarts)


def by_id(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda one: str(one["id"]))

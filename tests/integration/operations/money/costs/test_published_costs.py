"""Costs over HTTP and with the operator commands."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from click.testing import CliRunner

from gateway.bills.plans.declared import NewPlan, PlanTable, Seat
from gateway.cli import main
from gateway.intake.billing_connections import BillingConnections
from gateway.money.allocation.language import parse_definition
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.costs import published as costs
from spool.clock import SystemClock
from spool.identity import RecordIdentity
from spool.ledger.billed import CONNECTION, EVERY, BilledDay
from spool.record import NS, Inference
from spool.registry.operators import Actor
from spool.registry.views import NewView
from spool.settings import SpoolSettings
from spool.sqlite.ledger import SqliteLedger
from spool.sqlite.spool import open_spool
from tests.integration.conftest import Serve, Serving
from tests.integration.payloads import json_span, json_traces
from tests.integration.statements.test_billed_report import billed_sum
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

START_S = 1_790_000_000  # 2026-09-21T14:13:20Z
DAY = "2026-09-21T00:00:00Z"
ROOT = Actor("root@example.com", "local")
READ = ("billing:read_costs", "billing:read_dimensions", "billing:read_resource_tags")
SEPTEMBER = (("start_date", "2026-09-01"), ("end_date", "2026-09-30"))


def at(hours: int) -> dict[str, Any]:
    start = (START_S + hours * 3600) * NS
    return {"startTimeUnixNano": str(start), "endTimeUnixNano": str(start + NS)}


class Reader:
    """A client with a reading key, at a gateway that has counted all its records."""

    def __init__(self, serving: Serving, key: str) -> None:
        self._serving = serving
        self._key = key

    async def get(self, path: str, *query: tuple[str, str], status: int = 200) -> Any:
        answer = await self._serving.send(
            f"{path}?{urlencode(query)}", b"", None, method="GET", key=self._key
        )
        assert status == answer.status, answer.body
        return json.loads(answer.body)

    async def costs(self, *query: tuple[str, str], status: int = 200) -> Any:
        return await self.get("/v2/billing/costs", *query, status=status)

    @property
    def money(self) -> MoneyServices:
        return self._serving.app.services.operators.money

    def publish(self, text: str) -> None:
        """Publish a definition and wait until it is in force."""
        services = self._serving.app.services.operators
        services.money.published.put_in_force(
            parse_definition(text.encode(), services.money.ledger.builtin_and_tag_dimensions()), version="1"
        )


async def serving_at(serve: Serve, at: float = START_S + 2 * 86_400) -> Serving:
    """
    Start a gateway whose clock shows that time. A few months later, the hourly totals have become daily totals.
    """
    return await serve(clock=MovedClock(at))


async def reader(serve: Serve, *spans: dict[str, Any], scopes: Sequence[str] = READ) -> Reader:
    serving = await serving_at(serve)
    if spans:
        answer = await serving.send("/v1/traces", json_traces(*spans))
        assert answer.status == 200
    await serving.app.services.storage.ledger.catch_up(serving.app.services.storage.log)
    return Reader(serving, await serving.make_key("reader", scopes=scopes))


async def test_a_meter_by_model(serve: Serve) -> None:
    """A meter's quantity is exact, in its own unit, and counts as usage, not as money."""
    searching, listening = json_span("gpt-4o", **at(0)), json_span("whisper-1", **at(1))
    for told, name, value in (
        (searching, "web_searches", {"intValue": "3"}),
        (listening, "audio_seconds", {"stringValue": "12.5"}),
    ):
        told["attributes"].append({"key": f"tollhouse.meter.{name}", "value": value})
    read = await reader(serve, searching, listening)
    usage = (*SEPTEMBER, ("group_by", "model"), ("cost_type", "usage_amount"))
    payload = await read.costs(*usage, ("meter", "audio_seconds"))
    assert {"gpt-4o": "0", "whisper-1": "12.5"} == {
        row["model"]: row["usage_amount"] for row in payload["costs"]
    }
    assert {"usage_amount": "seconds"} == payload["units"]
    payload = await read.costs(*usage, ("meter", "web_searches"))
    assert {"gpt-4o": "3", "whisper-1": "0"} == {
        row["model"]: row["usage_amount"] for row in payload["costs"]
    }
    await read.costs(*SEPTEMBER, ("meter", "web_searches"), status=400)
    await read.costs(*usage, ("meter", "guesses"), status=400)


async def test_usage_by_meter(serve: Serve) -> None:
    """
    One answer lists images, seconds, characters, pages, searches and audio, each in its own unit and only if
    it is not 0. Calls that a cache answered are on no bill and in no row.
    """
    told = {
        "dall-e-3": {"output_images": "2", "output_images_1024x1024_hd": "2"},
        "whisper-1": {"audio_seconds": "12.5"},
        "tts-1": {"input_characters": "900"},
        "mistral-ocr": {"input_document_pages": "7"},
        "gpt-4o": {"web_searches": "3", "input_audio_tokens": "20"},
    }
    spans = []
    for place, (model, meters) in enumerate(told.items()):
        span = json_span(model, **at(place))
        for name, value in meters.items():
            span["attributes"].append({"key": f"tollhouse.meter.{name}", "value": {"stringValue": value}})
        spans.append(span)
    read = await reader(serve, *spans)
    usage = (*SEPTEMBER, ("cost_type", "usage_amount"), ("granularity", "monthly"), ("group_by", "meter"))
    payload = await read.costs(*usage)
    assert [
        ("audio_seconds", "12.5", "seconds"), ("input_audio_tokens", "20", "tokens"),
        ("input_characters", "900", "characters"), ("input_document_pages", "7", "pages"),
        ("input_tokens", "600", "tokens"), ("output_images", "2", "images"),
        ("output_images_1024x1024_hd", "2", "images"), ("output_tokens", "150", "tokens"),
        ("web_searches", "3", "searches"),
    ] == sorted((row["meter"], row["usage_amount"], row["unit"]) for row in payload["costs"])  # fmt: skip
    assert "units" not in payload and "meter" in {each["field"] for each in payload["filtering"]["available"]}
    by_model = await read.costs(*usage, ("group_by", "model"))
    found = {(row["model"], row["meter"]): row["usage_amount"] for row in by_model["costs"]}
    for model, meters in told.items():
        assert {**meters, "input_tokens": "120", "output_tokens": "30"} == {
            name: quantity for (of, name), quantity in found.items() if of == model
        }
    # A query for a single meter returns the same rows.
    for name in {meter for _, meter in found} - {"input_tokens", "output_tokens"}:
        alone = await read.costs(
            *SEPTEMBER, ("cost_type", "usage_amount"), ("meter", name), ("group_by", "model")
        )
        assert sum(Decimal(row["usage_amount"]) for row in alone["costs"]) == sum(
            Decimal(quantity) for (_, meter), quantity in found.items() if meter == name
        )
    [one] = (await read.costs(*usage, ("meter", "web_searches")))["costs"]
    assert one["meter"] == "web_searches"
    assert one["usage_amount"] == "3"
    pages: list[Any] = []
    query: Sequence[tuple[str, str]] = (*usage, ("group_by", "model"), ("limit", "4"))
    while query:
        payload = await read.costs(*query)
        pages += payload["costs"]
        cursor = payload["pagination"]["cursor"]
        query = (("cursor", cursor["next_cursor"]),) if cursor["has_next"] else ()
    assert pages == by_model["costs"]
    await read.costs(*SEPTEMBER, ("group_by", "meter"), status=400)
    await read.costs(*SEPTEMBER, ("group_by", "meter"), ("cost_type", "billed_cost"), status=400)
    await read.costs(*usage, ("measures", "calls"), status=400)


async def test_costs_by_day_and_model(serve: Serve) -> None:
    """
    Each day and model has a row: 120 input and 30 output tokens at that day's price, exact, in the envelope.
    """
    read = await reader(
        serve, json_span("gpt-4o", **at(0)), json_span("gpt-4o", **at(1)), json_span("o3", **at(24))
    )
    payload = await read.costs(*SEPTEMBER, ("group_by", "model"), ("group_by", "cost_source"))
    assert [
        {"usage_date": DAY, "cost": "0.0012", "model": "gpt-4o", "cost_source": "estimated"},
        {"usage_date": "2026-09-22T00:00:00Z", "cost": "0.00048", "model": "o3", "cost_source": "estimated"},
    ] == payload["costs"]
    assert {"costs", "pagination", "filtering", "sorting"} == set(payload)
    assert {"page_count": 1, "item_count": 2, "total_count": 2} == {
        name: value for name, value in payload["pagination"].items() if name != "cursor"
    }
    assert ["usage_date", "cost", "usage_amount"] == payload["sorting"]["available"]
    model = {"field": "model", "valid_values": ["gpt-4o", "o3"], "valid_types": ["string"]}
    assert model in payload["filtering"]["available"]


async def test_costs_that_lack_records_say_so(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Every page of costs says so if its range includes hours whose records were already deleted. Later hours are
    complete.
    """
    serving = await serving_at(serve)
    assert (
        200
        == (
            await serving.send("/v1/traces", json_traces(*[json_span("gpt-4o", **at(n)) for n in (0, 30)]))
        ).status
    )
    ledger = serving.app.services.storage.ledger
    await ledger.catch_up(serving.app.services.storage.log)

    async def whole_since() -> int:
        return START_S

    monkeypatch.setattr(ledger, "start_of_complete_hours", whole_since)
    read = Reader(serving, await serving.make_key("reader", scopes=READ))
    first = await read.costs(*SEPTEMBER, ("limit", "1"))
    second = await read.costs(("cursor", first["pagination"]["cursor"]["next_cursor"]))
    assert ["2026-09-21T14:13:20.000Z"] * 2 == [page["whole_since"] for page in (first, second)]
    assert "whole_since" not in await read.costs(("start_date", "2026-09-22"))


@pytest.mark.proof
async def test_costs_by_unit_of_work(serve: Serve) -> None:
    """
    Costs by pull request have a row for each and for calls without one, and filters apply. A combination without an
    answer is a 422 that says what to ask.
    """
    spans = [json_span("gpt-4o", **at(hours)) for hours in range(3)]
    for span, number in zip(spans, (42, 42, 43), strict=True):
        span["attributes"].append({"key": "vcs.change.id", "value": {"stringValue": f"acme/shop#{number}"}})
    read = await reader(serve, *spans, json_span("gpt-4o", **at(4)))
    daily = await read.costs(*SEPTEMBER, ("group_by", "pull_request"), ("measures", "calls"))
    counts = {row["pull_request"]: row["calls"] for row in daily["costs"]}
    assert {"acme/shop#42": 2, "acme/shop#43": 1, None: 1} == counts
    of_one = (*SEPTEMBER, ("pull_request", "acme/shop#42"), ("granularity", "monthly"))
    [row] = (await read.costs(*of_one, ("group_by", "model")))["costs"]
    assert Decimal(row["cost"]) * 2 == sum(Decimal(each["cost"]) for each in daily["costs"])
    [row] = (await read.costs(*SEPTEMBER, ("filters", '{"!pull_request": ["acme/shop#42", null]}')))["costs"]
    assert Decimal(row["cost"]) * 4 == sum(Decimal(each["cost"]) for each in daily["costs"])
    unit = ("group_by", "pull_request")
    for query, words in (
        ((*SEPTEMBER, unit, ("group_by", "session")), "Group by one of them"),
        ((("start_date", "2026-01-01"), ("end_date", "2026-09-30"), unit), "at most 92 days"),
        ((*SEPTEMBER, unit, ("cost_type", "billed_cost")), "use a counted cost_type"),
        ((*SEPTEMBER, unit, ("cost_type", "usage_amount"), ("meter", "web_searches")), "leave the meter"),
        ((*SEPTEMBER, unit, ("cost_type", "usage_amount"), ("group_by", "meter")), "leave the meter"),
    ):
        answer = await read.costs(*query, status=422)
        assert words in answer["error"]["message"], query
    assert (await read.costs(*SEPTEMBER, unit, ("cost_type", "usage_amount")))["costs"]


async def test_nothing_yet(serve: Serve) -> None:
    """An empty ledger answers an empty list in a full envelope."""
    payload = await (await reader(serve)).costs(*SEPTEMBER)
    assert payload["costs"] == []
    assert payload["pagination"]["page_count"] == 0
    assert payload["pagination"]["total_count"] == 0


FILTERS: Sequence[tuple[list[tuple[str, str]], str]] = [
    ([("model", "gpt-4o")], "0.0006"),
    ([("model", "gpt-4o"), ("model", "o3")], "0.00108"),
    ([("filters", '{"model": ["o3"]}')], "0.00048"),
    ([("filters", '{"!model": "o3"}')], "0.0006"),
    ([("filters", '{"team": null}'), ("cost_type", "estimated_cost")], "0.00108"),
    ([("cost_type", "reported_cost")], "0"),
]


async def test_filters(serve: Serve) -> None:
    """
    Dimensions filter by their own parameter or in the JSON of `filters`, where `!` excludes and null means unknown.
    """
    read = await reader(serve, json_span("gpt-4o", **at(0)), json_span("o3", **at(1)))
    for query, expected in FILTERS:
        assert [expected] == [row["cost"] for row in (await read.costs(*SEPTEMBER, *query))["costs"]], (
            query,
            expected,
        )


async def test_pages(serve: Serve) -> None:
    """A cursor carries the whole query and works in both directions. Amounts sort as numbers."""
    spans = [
        json_span(f"gpt-4o{suffix}", **at(hour)) for hour, suffix in enumerate(["", "-mini", "", "-mini", ""])
    ]
    read = await reader(serve, *spans)
    first = await read.costs(
        *SEPTEMBER, ("granularity", "hourly"), ("group_by", "model"), ("limit", "2"), ("sort_key", "cost"),
        ("sort_order", "desc"),
    )  # fmt: skip
    second = await read.costs(("cursor", first["pagination"]["cursor"]["next_cursor"]))
    third = await read.costs(("cursor", second["pagination"]["cursor"]["next_cursor"]))
    pages = [[row["cost"] for row in page["costs"]] for page in (first, second, third)]
    assert [["0.0006", "0.0006"], ["0.0006", "0.000036"], ["0.000036"]] == pages
    back = await read.costs(("cursor", third["pagination"]["cursor"]["previous_cursor"]))
    assert second["costs"] == back["costs"]
    assert ["2026-09-01"] == third["filtering"]["current"]["start_date"]


WRONG_QUESTIONS: Sequence[tuple[list[tuple[str, str]], str]] = [
    ([], "start_date is required"),
    ([("start_date", "yesterday")], "start_date must be a day"),
    ([("start_date", "0001-01-01")], "between the years"),
    ([("start_date", "2026-09-01"), ("start_date", "2026-09-02")], "only once"),
    ([("start_date", "2026-09-02"), ("end_date", "2026-09-01")], "earlier than the end"),
    ([*SEPTEMBER, ("granularity", "fortnightly")], "granularity must be one of hourly"),
    ([("start_date", "2020-01-01"), ("end_date", "2026-01-01"), ("granularity", "hourly")], "periods"),
    ([*SEPTEMBER, ("group_by", "colour")], "group_by must be one of"),
    ([*SEPTEMBER, ("cost_type", "imaginary_cost")], "cost_type must be one of"),
    ([*SEPTEMBER, ("filters", "{")], "filters must be a JSON object"),
    ([*SEPTEMBER, ("filters", '{"colour": "red"}')], "filters accepts only"),
    ([*SEPTEMBER, ("filters", '{"team": [1]}')], "team must be a text"),
    ([*SEPTEMBER, ("limit", "10001")], "limit must be a whole number from 1 to 10000"),
    ([*SEPTEMBER, ("cursor", "made-up")], "cursor cannot be used"),
    ([*SEPTEMBER, ("colour", "red")], "unknown parameter"),
    ([*SEPTEMBER, ("end_date", "2026-09-03")], "end_date may be given only once"),
]


async def test_wrong_questions(serve: Serve) -> None:
    """An invalid query answers 400 and names the valid choices."""
    read = await reader(serve)
    for query, words in WRONG_QUESTIONS:
        error = (await read.costs(*query, status=400))["error"]
        assert words in error["message"], (query, words)
        assert error["type"] in ("invalid_parameter", "invalid_cursor"), (query, words)


async def test_dimensions_and_tags(serve: Serve) -> None:
    """
    The lists of dimensions and of tags name what costs can be grouped by. Tags are listed with their values.
    """
    span = json_span("gpt-4o", **at(0))
    body = json.loads(json_traces(span))
    body["resourceSpans"][0]["resource"] = {
        "attributes": [{"key": "service.name", "value": {"stringValue": "shop"}}]
    }
    serving = await serving_at(serve)
    await serving.send("/v1/traces", json.dumps(body).encode())
    await serving.app.services.storage.ledger.catch_up(serving.app.services.storage.log)
    read = Reader(serving, await serving.make_key("reader", scopes=READ))
    names = {item["id"]: item["name"] for item in (await read.get("/v2/billing/dimensions"))["dimensions"]}
    tags = (await read.get("/v2/billing/resource_tags"))["resource_tags"]
    assert {"model": "Model", "api_key": "API key", "tag:service": "service"}.items() <= names.items()
    tag = {"id": "tag:service", "name": "service", "values": ["shop"], "more_values": 0, "sources": ["calls"]}
    assert [tag] == tags
    costs = await read.costs(*SEPTEMBER, ("group_by", "tag:service"))
    assert [("shop", "0.0006")] == [(row["tag:service"], row["cost"]) for row in costs["costs"]]
    plain = billed_sum("", "usage", EVERY, 3)
    row = plain._replace(dimensions=plain.dimensions._replace(tags='{"service": "atlas"}'))
    day = BilledDay(
        day=START_S // 86_400 * 86_400, provider="MongoDB", state="closed", mark="1", source="billing_drops",
        read_at=START_S, made_at=START_S,
    )  # fmt: skip
    await serving.app.services.storage.ledger.store_billed_days([(day, [row])])
    both = {**tag, "values": ["atlas", "shop"], "sources": ["calls", "billing"]}
    assert [both] == (await read.get("/v2/billing/resource_tags"))["resource_tags"]
    billed = (*SEPTEMBER, ("cost_type", "billed_cost"), ("tag:service", "atlas"))
    assert ["3"] == [each["cost"] for each in (await read.costs(*billed))["costs"]]


async def test_tags_of_rows_alone(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags that only billing rows carry are listed, and costs can be queried by them."""
    serving = await serving_at(serve)
    read = Reader(serving, await serving.make_key("reader", scopes=READ))
    ask = (*SEPTEMBER, ("cost_type", "billed_cost"), ("group_by", "tag:centre"))
    assert "group_by" in (await read.get("/v2/billing/costs", *ask, status=400))["error"]["message"]
    plain = billed_sum("", "usage", EVERY, 3)
    rows = [
        plain._replace(dimensions=plain.dimensions._replace(tags=json.dumps(tags)))
        for tags in (
            {"centre": "k-1", "row:service": "Atlas"},
            {"centre": "k-2", "a": "b"},
            {"centre": "k-3"},
        )
    ]
    ledger = serving.app.services.storage.ledger
    day = BilledDay(
        day=START_S // 86_400 * 86_400, provider=f"MongoDB{CONNECTION}c-1:2026-09", state="closed", mark="1",
        source="billing_drops", read_at=START_S, made_at=START_S,
    )  # fmt: skip
    await ledger.store_billed_days([(day, rows)])
    listed = {each["id"]: each for each in (await read.get("/v2/billing/resource_tags"))["resource_tags"]}
    assert ["tag:a", "tag:centre", "tag:service"] == sorted(listed)
    assert listed["tag:centre"]["values"] == ["k-1", "k-2", "k-3"]
    assert listed["tag:centre"]["more_values"] == 0
    assert listed["tag:centre"]["sources"] == ["billing"]
    found = (await read.costs(*ask))["costs"]
    assert {"k-1": "3", "k-2": "3", "k-3": "3"} == {each["tag:centre"]: each["cost"] for each in found}
    for only in (("tag:centre", "k-2"), ("filters", '{"!tag:centre": ["k-1", "k-3"]}')):
        [row] = (await read.costs(*ask, only))["costs"]
        assert row["tag:centre"] == "k-2"
        assert row["cost"] == "3"
    assert [] == (await read.costs(*SEPTEMBER, ("tag:centre", "k-2")))["costs"]
    monkeypatch.setattr(costs, "MAX_VALUES", 2)
    monkeypatch.setattr(BillingConnections, "max_tags", 2)
    cut = await read.get("/v2/billing/resource_tags")
    assert cut["more_tags"] == 1
    assert [each["id"] for each in cut["resource_tags"]] == ["tag:a", "tag:service"]
    await read.costs(*SEPTEMBER, ("tag:a", "b"))
    told = await read.get("/v2/billing/costs", *SEPTEMBER, ("tag:centre", "k-2"), status=400)
    assert "unknown parameter" in told["error"]["message"]
    monkeypatch.setattr(BillingConnections, "max_tags", 3)
    [many] = [
        each
        for each in (await read.get("/v2/billing/resource_tags"))["resource_tags"]
        if each["id"] == "tag:centre"
    ]
    assert many["values"] == ["k-1", "k-2"]
    assert many["more_values"] == 1


async def test_dimension_queried_in_two_ways_is_refused(serve: Serve) -> None:
    """A query that names a dimension in `filters` and as a parameter is refused, so neither wins silently."""
    read = await reader(serve)
    both = ("filters", '{"model": "gpt-4o"}'), ("model", "o3")
    told = await read.get("/v2/billing/costs", *SEPTEMBER, *both, status=400)
    assert (
        "model is given both in filters and by its own name; use only one of them" == told["error"]["message"]
    )


async def test_no_dimension_is_hidden(serve: Serve) -> None:
    """
    `include_hidden` is accepted for compatibility and changes nothing. Any other value is refused by name.
    """
    read = await reader(serve)
    every = await read.get("/v2/billing/dimensions")
    for word in ("true", "false"):
        asked = await read.get("/v2/billing/dimensions", ("include_hidden", word))
        assert every["dimensions"] == asked["dimensions"]
        assert {"include_hidden": [word]} == asked["filtering"]["current"]
    told = await read.get("/v2/billing/dimensions", ("include_hidden", "perhaps"), status=400)
    assert "include_hidden must be one of true, false" == told["error"]["message"]


def filled(directory: Path, *calls: tuple[Inference, RecordIdentity]) -> None:
    """Create a data directory with these calls as closed records, and no server on it."""

    async def fill() -> None:
        spool = await open_spool(directory, settings=SpoolSettings(hold=0), clock=MovedClock())
        await add(spool.log, *calls)
        await spool.close()

    asyncio.run(fill())


def run(directory: Path, *words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, [*words, "--data", str(directory)])
    assert code == result.exit_code, result.output
    return result.output


SPENT: tuple[dict[str, Any], ...] = (
    {"request_model": "gpt-4o", "team": "search", "cost": "1.5", "cost_source": "reported"},
    {"request_model": "gpt-4o", "team": None, "estimated_cost": "0.25", "cost_source": "estimated"},
    {
        "request_model": "=cmd",
        "team": "search",
        "cost_source": "none",
        "status": "error",
        "error_type": "429",
    },
)


def spending() -> list[tuple[Inference, RecordIdentity]]:
    return [
        call(
            number, start_time=START_S * NS, provider="openai", input_tokens=1000, output_tokens=100, **fields
        )
        for number, fields in enumerate(SPENT)
    ]


def test_report(tmp_path: Path) -> None:
    """
    Without a server, the report prints a table with its total for people, and JSON and CSV for programs.
    """
    filled(tmp_path / "store", *spending())
    month = ("--from", "2026-09-01", "--to", "2026-09-30")
    lines = run(tmp_path / "store", "report", *month).splitlines()
    assert ["MODEL", "CALLS", "ERRORS", "INPUT", "TOKENS", "OUTPUT", "TOKENS", "COST"] == lines[0].split()[:8]
    assert ["gpt-4o", "2", "0", "2,000", "200", "$1.75"] == lines[1].split()[:6]
    assert ["total", "3", "1", "3,000", "300", "$1.75"] == lines[3].split()[:6]
    told = json.loads(
        run(tmp_path / "store", "report", *month, "--by", "model,team", "--where", "team=search", "--json")
    )
    assert [("=cmd", "search", "0"), ("gpt-4o", "search", "1.5")] == [
        (row["model"], row["team"], row["cost"]) for row in told["rows"]
    ]
    rows = list(csv.DictReader(io.StringIO(run(tmp_path / "store", "report", *month, "--csv"))))
    assert [("'=cmd", "0"), ("gpt-4o", "1.75")] == [(row["model_family"], row["cost"]) for row in rows]


def test_report_has_one_row_for_a_model(tmp_path: Path) -> None:
    """Prefixes and dates in model names are joined. `--by model` has one row for each variant."""
    names = ("gpt-4o", "openai/gpt-4o-2024-08-06")
    said: dict[str, Any] = {"start_time": START_S * NS, "cost": "2", "cost_source": "reported"}
    filled(tmp_path / "store", *(call(at, request_model=name, **said) for at, name in enumerate(names)))
    asked = ("report", "--from", "2026-09-01", "--to", "2026-09-30")
    [head, row] = run(tmp_path / "store", *asked).splitlines()
    assert head.split()[:2] == ["MODEL", "CALLS"]
    assert row.split()[:2] == ["gpt-4o", "2"]
    [head, *rows] = run(tmp_path / "store", *asked, "--by", "model").splitlines()
    assert head.split()[0] == "MODEL"
    assert {*names, "total"} == {line.split()[0] for line in rows}
    [head, *_] = run(tmp_path / "store", *asked, "--by", "model_family,model").splitlines()
    assert head.startswith("MODEL, ALL VARIANTS  MODEL ")


@pytest.mark.proof
def test_focus_rows_with_further_tags(tmp_path: Path) -> None:
    """A dimension without a FOCUS column becomes a tag of the rows. An unknown dimension is a usage error."""
    filled(tmp_path / "store", *spending())
    span = ("export", "focus", "--from", DAY[:10], "--to", DAY[:10])
    refused = CliRunner().invoke(main, [*span, "--tag", "ticket", "--data", str(tmp_path / "store")])
    assert (2, True) == (refused.exit_code, "no units of work such as ticket" in refused.output)
    rows = list(csv.DictReader(io.StringIO(run(tmp_path / "store", *span, "--tag", "request_model"))))
    assert {"gpt-4o", "=cmd"} == {json.loads(row["Tags"].removeprefix("'"))["request_model"] for row in rows}
    assert Decimal("1.75") == sum(Decimal(row["BilledCost"]) for row in rows)
    newer = list(csv.DictReader(io.StringIO(run(tmp_path / "store", *span, "--focus-version", "1.4"))))
    assert [row["BilledCost"] for row in rows] == [row["BilledCost"] for row in newer]
    assert {"ServiceProviderName", "HostProviderName"} == set(newer[0]) - set(rows[0])
    assert {"ProviderName", "PublisherName"} == set(rows[0]) - set(newer[0])
    done = CliRunner().invoke(
        main, [*span, "--tag", "User:Defined:Nobody", "--data", str(tmp_path / "store")]
    )
    assert done.exit_code == 2
    assert "Use one of: " in done.output


def test_report_of_sums_that_lack_records(tmp_path: Path) -> None:
    """
    A report says so if its range includes hours whose records were already deleted. A report on later
    hours does not.
    """
    filled(tmp_path / "store", *spending())

    async def lose() -> None:
        store = await SqliteLedger.open(tmp_path / "store", SystemClock())
        await store.change(lambda rows: rows.set_state(whole=START_S))
        await store.close()

    asyncio.run(lose())
    words = "totals from before 2026-09-21T14:13:20.000Z may be incomplete"
    for form in (
        ["report", "--from", DAY[:10], "--csv"],
        ["export", "focus", "--from", DAY[:10], "--to", DAY[:10]],
    ):
        assert words in run(tmp_path / "store", *form)
    assert words in run(tmp_path / "store", "report", "--from", "2026-09-21")
    assert words not in run(tmp_path / "store", "report", "--from", "2026-09-22")
    told = json.loads(run(tmp_path / "store", "report", "--from", "2026-09-21", "--json"))
    assert "2026-09-21T14:13:20.000Z" == told["report"]["whole_since"]


def test_report_of_latency(tmp_path: Path) -> None:
    """
    A percentile is estimated between two histogram edges. It is missing beyond the last edge and without times.
    """
    took = {"fast": (0.2, 0.2, 0.5, 3), "slow": (400,), "untimed": (None,)}
    calls = [
        call(number, start_time=START_S * NS, request_model=model, end_time=_end(duration))
        for number, (model, duration) in enumerate(
            (model, each) for model, all in took.items() for each in all
        )
    ]
    filled(tmp_path / "store", *calls)
    month = ("--from", "2026-09-01", "--to", "2026-09-30")
    told = json.loads(run(tmp_path / "store", "report", *month, "--json"))
    names = ("timed", "latency_p50_ms", "latency_p95_ms", "latency_p99_ms")
    assert {
        "fast": [4, 186, 3536, 3536],
        "slow": [1, None, None, None],
        "untimed": [0, None, None, None],
    } == {row["model_family"]: [row[name] for name in names] for row in told["rows"]}
    assert dict(zip(names, (5, 341, None, None), strict=True)) == told["latency"]
    lines = run(tmp_path / "store", "report", *month, "--latency").splitlines()
    cells = {line.split()[0]: line.split()[-4:] for line in lines[1:]}
    assert ["LATENCY", "P99", "MS"] == lines[0].split()[-3:]
    assert {
        "fast": ["4", "186", "3,536", "3,536"],
        "slow": ["1", *[">300,000"] * 3],
        "untimed": ["0", "-", "-", "-"],
        "total": ["5", "341", ">300,000", ">300,000"],
    } == cells


def test_report_of_what_no_provider_bills(tmp_path: Path) -> None:
    """
    Tokens of cached calls are in the sums and also listed separately, as are cache writes that are kept
    for an hour.
    """
    said: dict[str, Any] = {"start_time": START_S * NS, "request_model": "claude-sonnet-4-5"}
    filled(
        tmp_path / "store",
        call(1, **said, cache_write_tokens=70, cache_write_1h_tokens=40),
        call(2, **said, cache_write_tokens=20),
        call(3, **said, status="cached"),
    )
    month = ("--from", "2026-09-01", "--to", "2026-09-30")
    [row] = csv.DictReader(io.StringIO(run(tmp_path / "store", "report", *month, "--csv")))
    assert {
        "input_tokens": "300", "output_tokens": "30", "cached_input_tokens": "100", "cached_output_tokens": "10",
        "cache_write_tokens": "90", "cache_write_1h_tokens": "40",
    }.items() <= row.items()  # fmt: skip
    told = json.loads(run(tmp_path / "store", "report", *month, "--json"))["rows"][0]
    assert (100, 10, 40) == tuple(
        told[name] for name in ("cached_input_tokens", "cached_output_tokens", "cache_write_1h_tokens")
    )


def _end(duration_s: float | None) -> int | None:
    return None if duration_s is None else START_S * NS + int(duration_s * NS)


COLUMNS: Sequence[tuple[str, ...]] = [(), ("--by", "team,model", "--per", "daily")]


def test_a_report_without_rows_has_the_same_columns(tmp_path: Path) -> None:
    """Programs that read the CSV find every column, even in a month without calls."""
    filled(tmp_path / "store", *spending())
    for words in COLUMNS:
        busy = run(
            tmp_path / "store", "report", "--from", "2026-09-01", "--to", "2026-09-30", "--csv", *words
        )
        calm = run(
            tmp_path / "store", "report", "--from", "2026-08-01", "--to", "2026-08-30", "--csv", *words
        )
        assert [busy.splitlines()[0]] == calm.splitlines(), words


def test_report_by_days_of_a_zone(tmp_path: Path) -> None:
    """With a time zone, the report's days begin at midnight in that zone."""
    late = call(9, start_time=(START_S + 3600) * NS, request_model="gpt-4o", cost="2", cost_source="reported")
    filled(tmp_path / "store", *spending()[:1], late)
    words = (
        "report",
        "--from",
        "2026-09-21",
        "--to",
        "2026-09-22",
        "--per",
        "daily",
        "--tz",
        "Asia/Tokyo",
        "--json",
    )
    rows = json.loads(run(tmp_path / "store", *words))["rows"]
    assert [("2026-09-21T00:00:00+09:00", "1.5"), ("2026-09-22T00:00:00+09:00", "2")] == [
        (row["period"], row["cost"]) for row in rows
    ]


async def test_costs_of_a_day_on_which_the_clock_changed_by_half_an_hour(serve: Serve) -> None:
    """
    Costs from midnight to midnight on Lord Howe Island are exact, or the refusal names the hour that the
    border would divide.
    """
    day = [("start_date", "2026-04-05T00:00:00+11:00"), ("end_date", "2026-04-06T00:00:00+10:30"),
           ("granularity", "monthly")]  # fmt: skip

    def span(hour: int) -> dict[str, Any]:
        start = int(datetime(2026, 4, 5, hour, 10, tzinfo=UTC).timestamp()) * NS
        return json_span("gpt-4o", startTimeUnixNano=str(start), endTimeUnixNano=str(start + NS))

    serving = await serving_at(serve, datetime(2026, 4, 6, tzinfo=UTC).timestamp())
    key = await serving.make_key("reader", scopes=READ)
    for hours, status in (((0, 5, 12, 14), 200), ((13,), 400)):
        assert 200 == (await serving.send("/v1/traces", json_traces(*map(span, hours)))).status
        await serving.app.services.storage.ledger.catch_up(serving.app.services.storage.log)
        payload = await Reader(serving, key).costs(*day, status=status)
        if status == 200:
            assert ["0.0018"] == [row["cost"] for row in payload["costs"]]  # three calls at 0.0006 each
        else:
            assert "Your period splits a stored sum at 2026-04-05T13:30:00Z" in payload["error"]["message"]


WRONG_USE: Sequence[tuple[tuple[str, ...], str]] = [
    (("--by", "colour"), "Use one of: model"),
    (("--where", "colour=red"), "unknown dimension 'colour'. Use one of: model"),
    (("--by", "tag:agent", "--unit", "run"), 'or add "agent" to [ledger] tags'),
    (("--where", "tag:agent=coder"), 'or add "agent" to [ledger] tags'),
    (("--by", "team", "--unit", "tag:agent"), 'or add "agent" to [ledger] tags'),
    (("--where", "team"), "--where team is not a filter: write NAME=VALUE"),
    (("--tz", "Mars/Olympus"), "tz must be the name of a time zone"),
    (("--from", "2026-09-02", "--to", "2026-09-01"), "earlier than the end"),
    (("--from", "soon"), "from must be a day"),
]


def test_report_used_wrongly(tmp_path: Path) -> None:
    """An invalid word is reported and ends with exit code 2."""
    for words, message in WRONG_USE:
        assert message in run(tmp_path, "report", *words, code=2), (words, message)


def test_ledger_commands(tmp_path: Path) -> None:
    """
    `status` states how far the totals reach, `rebuild` counts the same sums, and `reprice` prices calls that
    had no price.
    """
    unpriced = call(
        7,
        start_time=START_S * NS,
        provider="openai",
        request_model="gpt-4o",
        input_tokens=1000,
        output_tokens=100,
    )
    filled(tmp_path / "store", *spending(), unpriced)
    before = run(tmp_path / "store", "report", "--from", "2026-09-01", "--json")
    assert json.loads(run(tmp_path / "store", "ledger", "status", "--json"))["ledger"]["reach"] == 5
    assert "counted 1 hours again, beginning with record 1" in run(tmp_path / "store", "ledger", "rebuild")
    assert (
        json.loads(before)["rows"]
        == json.loads(run(tmp_path / "store", "report", "--from", "2026-09-01", "--json"))["rows"]
    )
    told = json.loads(run(tmp_path / "store", "ledger", "reprice", "--from", "2026-09-01", "--json"))[
        "reprice"
    ]
    assert told["before"] == "0.25"
    assert told["after"] == "0.0105"
    rows = json.loads(run(tmp_path / "store", "report", "--from", "2026-09-01", "--json"))["rows"]
    assert {"gpt-4o": "1.507", "=cmd": "0"} == {row["model_family"]: row["cost"] for row in rows}


def test_an_unknown_cost_does_not_look_like_zero(tmp_path: Path) -> None:
    """A group of calls without a price shows no amount, also if the table has only costs."""
    unpriced = call(7, start_time=START_S * NS, request_model="own", input_tokens=1000, output_tokens=100)
    filled(tmp_path / "store", unpriced)
    question = ("report", "--from", "2026-09-01", "--by", "model")
    for words in ((), ("--show", "cost"), ("--show", "calls", "--show", "cost_per_call", "--show", "cost")):
        table = run(tmp_path / "store", *question, *words)
        assert "no price" in table, words
        assert ("UNPRICED" in table) == (words == ()), words
        assert "$0.00" not in table, words


async def test_costs_by_published_dimensions(serve: Serve) -> None:
    """
    Published dimensions are listed with their names, group and filter like built-in ones, and do not change
    the total. They are not tags.
    """
    read = await reader(
        serve, json_span("gpt-4o", **at(0)), json_span("o3", **at(1)), json_span("o3", **at(24))
    )
    owner = "User:Defined:Owner"
    total = (await read.costs(*SEPTEMBER, ("granularity", "monthly")))["costs"][0]["cost"]
    await read.costs(*SEPTEMBER, ("group_by", owner), status=400)
    read.publish("Dimensions: {Owner: {Name: Who pays, Rules: [{Type: Group, Name: Old, Conditions: [{Source: model, "
                 "BeginsWith: gpt}]}]}}")  # fmt: skip
    rows = (await read.costs(*SEPTEMBER, ("granularity", "monthly"), ("group_by", owner)))["costs"]
    assert [None, "Old"] == sorted((row[owner] for row in rows), key=str)
    assert Decimal(total) == sum(Decimal(row["cost"]) for row in rows)
    old = next(row["cost"] for row in rows if row[owner] == "Old")
    for question in (
        (owner, "Old"),
        ("filters", json.dumps({owner: "Old"})),
        ("filters", json.dumps({f"!{owner}": None})),
    ):
        [row] = (await read.costs(*SEPTEMBER, ("granularity", "monthly"), question))["costs"]
        assert old == row["cost"]
    listed = (await read.get("/v2/billing/dimensions"))["dimensions"]
    assert {"id": owner, "name": "Who pays"} in listed
    assert owner not in [
        each["id"] for each in (await read.get("/v2/billing/resource_tags"))["resource_tags"]
    ]


# -- paid costs ----------------------------------------------------------------------------------------------


async def test_paid_costs_exist_with_plans_only(serve: Serve) -> None:
    """
    Without a plan, responses about paid costs are as before. With a plan, its fees are rows of the charge seat_fee.
    """
    client = await reader(serve, json_span(span="00000000000000b1", **at(0)))
    before = await client.costs(*SEPTEMBER)
    assert "paid_cost" not in json.dumps(before)
    await client.costs(*SEPTEMBER, ("cost_type", "paid_cost"), status=400)
    registry = client.money.require_registry()
    view = await registry.views.create(
        NewView(name="All", filter={}, principal_dimension="user"),
        max_rows=9,
        known_dimensions=client.money.ledger.dimensions(),
        actor=ROOT,
    )
    seats = (Seat(user="ann@example.com", since="2026-09-21", team="search"),)
    plan = NewPlan(name="Claude", view=view.id, fee="30", seats=seats)
    await registry.declared_table(PlanTable).create(plan, max_rows=9, actor=ROOT)
    assert before["costs"] == (await client.costs(*SEPTEMBER))["costs"]
    paid = (*SEPTEMBER, ("cost_type", "paid_cost"), ("granularity", "monthly"))
    month = "2026-09-01T00:00:00Z"
    both = (await client.costs(*paid, ("group_by", "charge"), ("group_by", "plan")))["costs"]
    assert both == [
        {"usage_date": month, "cost": "3", "charge": "seat_fee", "plan": "Claude"},
        {"usage_date": month, "cost": "0.0006", "charge": "usage", "plan": None},
    ]
    assert [both[0]] == (
        await client.costs(*paid, ("group_by", "charge"), ("group_by", "plan"), ("team", "search"))
    )["costs"]
    of_plan = json.dumps({"plan": "Claude"})
    [row] = (await client.costs(*paid, ("filters", of_plan)))["costs"]
    assert "3" == row["cost"]
    wrong = await client.costs(*SEPTEMBER, ("plan", "Claude"), status=400)
    assert "only costs of the cost_type paid_cost have the dimension plan" in json.dumps(wrong)
    await client.costs(*SEPTEMBER, ("group_by", "plan"), status=400)
    await client.costs(*SEPTEMBER, ("filters", of_plan), status=400)

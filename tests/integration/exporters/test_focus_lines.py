"""FOCUS rows for each line of an estimate add up to the single row, to the last digit."""

from __future__ import annotations

import asyncio
import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace as changed
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from exporters.destinations.catalogue import build_routes, destination_problems
from exporters.destinations.focus import build_exporter, build_exporter_with_prices
from exporters.focus import charges as focus
from exporters.focus.charges import focus_unit
from exporters.settings import DestinationSettings, UpstreamSettings
from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.configuration.sections import Config
from gateway.intake.price_lines import price_lines_of_sum
from gateway.intake.prices import PriceBook
from gateway.intake.unit_prices import UNITS
from spool.clock import SystemClock
from spool.deliveries.values import Delivery
from spool.ledger.repricing import REQUESTS, LinesOf
from spool.log.values import LogEntry
from spool.meters import METERS
from spool.record import NS, Correction, Inference, Record
from spool.settings import SpoolSettings
from tests.exporters.spools import call, counter
from tests.integration.conftest import ACTOR, Serve
from tests.integration.payloads import json_span, json_traces
from tests.rounds import examples
from tests.waiting import limited

CASES = Path(__file__).parents[2] / "cases" / "otlp" / "otel_genai"
AT = int(datetime(2026, 10, 20, 23, 20, tzinfo=UTC).timestamp())
PER_CALL = PriceOverride(
    model="own", input=Decimal("1.5"), output=Decimal(2), meters={"web_searches": Decimal("9.99")}
)
BOOK = PriceBook.load(PriceSettings(override=(PER_CALL,)))
OF_BOOK: LinesOf = partial(price_lines_of_sum, BOOK)
COSTS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost")
TOTALS = (
    "x_CacheReadTokens", "x_CacheWriteTokens", "x_CacheWriteOneHourTokens", "x_Calls", "x_InputTokens",
    "x_OutputTokens",
)  # fmt: skip
OF_EACH = (
    "ChargePeriodStart",
    "SubAccountId",
    "ResourceId",
    "Tags",
    "x_CostSource",
    "BillingCurrency",
    "x_Corrects",
)
REALTIME = {"input_audio_tokens": 1000, "cache_audio_read_tokens": 640, "output_audio_tokens": 260}


def priced(n: int, model: str, **fields: Any) -> Inference:
    said: dict[str, Any] = {"provider": "openai", "start_time": AT * NS, **fields}
    record = call(n, request_model=model, **said)
    BOOK.price_record(record)
    return record


def realtime(n: int, **fields: Any) -> Inference:
    counts = {"input_tokens": 1200, "output_tokens": 300, "cache_read_tokens": 700}
    return priced(n, "gpt-realtime", **{**counts, "meters": REALTIME, **fields})


def rows(
    records: Sequence[Record], lines_of: LinesOf | None = OF_BOOK, *, version: str = focus.VERSION
) -> list[dict[str, str]]:
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=AT + 60, records=list(records))
    charges = asyncio.run(focus.sum_charges([entry], lines_of))
    columns = focus.VERSIONS[version]
    text = focus.csv_header(columns) + focus.charge_lines(charges, columns=columns)
    return list(csv.DictReader(io.StringIO(text.decode())))


Sums = dict[tuple[str, ...], tuple[Decimal, ...]]


def summed(found: Sequence[dict[str, str]]) -> Sums:
    """Sum costs and totals of FOCUS rows by the values that a single row has."""
    together: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    for row in found:
        together[tuple(row[name] for name in OF_EACH)].append(row)
    return {
        of: tuple(sum((Decimal(row[name]) for row in some), Decimal(0)) for name in (*COSTS, *TOTALS))
        for of, some in together.items()
    }


@pytest.mark.parametrize("version", focus.VERSIONS)
def test_the_published_example_has_six_rows(version: str) -> None:
    """
    The published example has six rows, with amounts that were calculated by hand. Only the first row has the call's
    totals.
    """
    found = rows([realtime(1)], version=version)
    assert [
        ("input_tokens", "140", "0.00056"),
        ("cache_read_tokens", "60", "0.000024"),
        ("input_audio_tokens", "360", "0.01152"),
        ("cache_audio_read_tokens", "640", "0.000256"),
        ("output_tokens", "40", "0.00064"),
        ("output_audio_tokens", "260", "0.01664"),
    ] == [(row["SkuMeter"], row["ConsumedQuantity"], row["BilledCost"]) for row in found]
    assert Decimal("0.02964") == sum(Decimal(row["BilledCost"]) for row in found)
    for row in found:
        assert row["ConsumedUnit"] == "Tokens"
        assert row["PricingUnit"] == "Tokens"
        assert row["ConsumedQuantity"] == row["PricingQuantity"]
        assert f"AI usage of gpt-realtime: {row['SkuMeter']}" == row["ChargeDescription"]
        assert 1 == len({row[name] for name in COSTS})
    assert [("1", "1200", "300", "700")] + [("0", "0", "0", "0")] * 5 == [
        (row["x_Calls"], row["x_InputTokens"], row["x_OutputTokens"], row["x_CacheReadTokens"])
        for row in found
    ]
    [single] = rows([realtime(1)], None, version=version)
    assert single["BilledCost"] == "0.02964"
    assert single["ConsumedQuantity"] == "1500"
    assert single["SkuMeter"] == "Tokens"
    assert single.keys() == found[0].keys()


def test_units_are_words_of_focus() -> None:
    """Things that are charged by the piece have the unit Requests. Seconds keep their decimals."""
    found = rows(
        [
            priced(1, "whisper-1", input_tokens=None, meters={"input_audio_seconds": "12.5"}),
            priced(2, "own", input_tokens=10, output_tokens=0, meters={"web_searches": 3}),
        ]
    )
    assert [
        ("input_tokens", "10", "Tokens", "0.000015"),
        ("web_searches", "3", "Requests", "0.02997"),
        ("input_audio_seconds", "12.5", "Seconds", "0.00125"),
    ] == [(row["SkuMeter"], row["PricingQuantity"], row["PricingUnit"], row["BilledCost"]) for row in found]
    units = {focus_unit(name) for name in (*METERS, *UNITS, REQUESTS)}
    assert {"Tokens", "Seconds", "Images", "Pixels", "Characters", "Pages", "Results", "Requests"} == units


def test_costs_without_lines_are_one_row() -> None:
    """
    Reported costs, cached calls, counters, corrections and estimates of another price list have no lines.
    """
    before = realtime(6)
    change = Correction(
        id=b"c" * 16, source="final", corrects=before.id, reason="final_cost", known_at=AT * NS,
        start_time=AT * NS, before=before, after=replace(before, estimated_cost="1"),
    )  # fmt: skip
    records: list[Record] = [
        realtime(1, cost="0.5", user="reported"),
        realtime(2, status="cached", user="cached"),
        counter(3, start_time=AT * NS),
        replace(realtime(4, user="other book"), estimated_cost="0.03"),
        priced(5, "gpt-realtime", input_tokens=7, output_tokens=1, user="unknown"),
        change,
    ]
    found = rows(records)
    assert found == rows(records, None)
    assert 6 == len(found)


def test_calls_with_and_without_lines_have_separate_rows() -> None:
    """
    A sum that another price list estimated has a single row, while others in the same hour keep their lines.
    """
    records = [realtime(1), replace(realtime(2, sender_key="b"), estimated_cost="0.03")]
    found = rows(records)
    assert len(found) == 7
    assert len(rows(records, None)) == 1
    assert summed(found) == summed(rows(records, None))


MODELS = ("gpt-realtime", "gpt-4o-mini", "whisper-1", "own", "nobody-knows-it", "gpt-5.6")
A_CALL = st.fixed_dictionaries(
    {
        "model": st.sampled_from(MODELS),
        "counts": st.lists(st.integers(0, 300_000), min_size=5, max_size=5),
        "cost": st.sampled_from([None, None, None, "0.123456789"]),
        "status": st.sampled_from(["ok", "ok", "error", "cached"]),
        "hour": st.integers(0, 1),
        "user": st.sampled_from([None, "ann"]),
        "tags": st.sampled_from([{}, {"processing": "batch"}, {"service_tier": "priority"}]),
    }
)


def random_call(n: int, drawn: dict[str, Any]) -> Inference:
    model = drawn["model"]
    heard, read, text, said, made = drawn["counts"]
    fields: dict[str, Any] = {
        "cost": drawn["cost"], "status": drawn["status"], "user": drawn["user"],
        "start_time": (AT - 3600 * drawn["hour"]) * NS,
        "tags": dict(drawn["tags"]),
    }  # fmt: skip
    if model == "whisper-1":
        seconds = f"{heard}.{read:06}"
        return priced(n, model, input_tokens=None, meters={"input_audio_seconds": seconds}, **fields)
    fields |= {"input_tokens": heard + read + text, "output_tokens": said + made, "cache_read_tokens": read}
    if model == "gpt-realtime":
        fields["meters"] = {
            "input_audio_tokens": heard + read,
            "cache_audio_read_tokens": read,
            "output_audio_tokens": said,
        }
    if model == "own":
        fields["meters"] = {"web_searches": said % 7}
    return priced(n, model, **fields)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(A_CALL, min_size=1, max_size=12), st.sampled_from(tuple(focus.VERSIONS)))
def test_rows_add_up_to_the_single_row(drawn: list[dict[str, Any]], version: str) -> None:
    """The calls are random and have meters. Each cost and total is equal in every FOCUS version."""
    records = [random_call(n, each) for n, each in enumerate(drawn, 1)]
    singles = rows(records, None, version=version)
    assert summed(singles) == summed(rows(records, version=version))


def test_only_a_focus_file_has_lines() -> None:
    """
    The setting `lines` is refused for every destination that is not a FOCUS file, such as data lake files.
    Lines without prices are an error.
    """
    path = Path("focus.csv")
    good = DestinationSettings(name="a", type="focus", path=path, lines="meters")
    assert [] == list(destination_problems([good]))
    for fields in ({"type": "ndjson"}, {"type": "file", "format": "focus"}):
        bad = DestinationSettings(name="a", path=path, lines="meters", **fields)  # type: ignore[arg-type]
        assert ["destinations[0].lines is only for type 'focus'"] == [
            problem.partition(":")[0] for problem in destination_problems([bad])
        ]
    with pytest.raises(ValueError, match="`lines` needs prices"):
        build_routes(UpstreamSettings(), [good], clock=SystemClock())


async def test_a_destination_has_a_row_for_each_line(serve: Serve, tmp_path: Path) -> None:
    """
    A destination with lines has a row for each line of a realtime call, at the server's prices. A destination
    without lines has one row.
    """
    kinds = {"meters": "meters", "single": ""}
    destinations = tuple(
        DestinationSettings(name=name, type="focus", path=tmp_path / f"{name}.csv", lines=lines)
        for name, lines in kinds.items()
    )
    config = Config(spool=SpoolSettings(hold=0.05, counter_wait=0), destinations=destinations)
    serving = await serve(config=config)
    body = (CASES / "realtime_inference.json").read_bytes()
    assert 200 == (await serving.send("/v1/traces", body)).status

    def written(name: str) -> list[dict[str, str]]:
        path = tmp_path / f"{name}.csv"
        text = path.read_text().rpartition("\n")[0] if path.exists() else ""
        return list(csv.DictReader(text.splitlines()))

    async with limited():
        while not (len(written("meters")) >= 6 and written("single")):  # noqa: ASYNC110 - files tell nobody
            await asyncio.sleep(0.05)
    found = written("meters")
    assert ["0.02964"] == [row["BilledCost"] for row in written("single")]
    assert Decimal("0.02964") == sum(Decimal(row["BilledCost"]) for row in found)
    assert ["140", "60", "360", "640", "40", "260"] == [row["ConsumedQuantity"] for row in found]
    assert ["1-1"] * 6 == [row["x_Records"] for row in found]


@pytest.mark.parametrize("by_lines_first", [True, False])
async def test_a_repeat_at_other_prices_is_there_once(tmp_path: Path, by_lines_first: bool) -> None:
    """If a repeat has other lines than the unacknowledged attempt, the rows of that attempt are blanked."""
    settings = DestinationSettings(name="bill", type="focus", path=tmp_path / "focus.csv", lines="meters")
    clock = SystemClock()
    exporters = [
        build_exporter_with_prices(settings, None, clock, OF_BOOK),
        build_exporter(settings, None, clock),
    ]
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=AT + 60, records=[realtime(1)])
    delivery = Delivery(id=1, route="bill", first=1, last=1, attempts=0, idempotency_key="k")
    other = Delivery(id=2, route="bill", first=11, last=11, attempts=0, idempotency_key="l")
    mark = None
    for exporter in exporters if by_lines_first else exporters[::-1]:
        again = replace(delivery, mark=mark)
        mark = await exporter.prepare_delivery_mark(again) or mark
        await exporter.send(replace(again, mark=mark), [entry])
        await exporter.send(other, [entry])
        await exporter.close()
    assert settings.path is not None
    found = list(csv.DictReader(settings.path.read_text().splitlines()))
    counts = [sum(row["x_Records"] == numbers for row in found) for numbers in ("1-1", "11-11")]
    assert [1 if by_lines_first else 6, 7] == counts


async def test_a_reload_changes_the_lines_of_later_records_alone(serve: Serve, tmp_path: Path) -> None:
    """If a reload changes the lines or the prices, rows and estimates of records from before it stay unchanged."""
    path = tmp_path / "focus.csv"
    bill = DestinationSettings(name="bill", type="focus", path=path, lines="meters")
    config = Config(
        spool=SpoolSettings(hold=0.05, counter_wait=0),
        prices=PriceSettings(override=(PER_CALL,)),
        destinations=(bill,),
    )
    dearer = PriceSettings(override=(changed(PER_CALL, input=Decimal(3)),))
    later: Iterator[dict[str, Any]] = iter(
        [{"prices": dearer}, {"prices": dearer, "destinations": (changed(bill, lines=""),)}]
    )
    serving = await serve(config=config, reread=lambda settings: changed(settings, **next(later)))
    expected: list[tuple[str, str]] = []

    async def sent(*rows: tuple[str, str]) -> None:
        before = path.read_bytes() if path.exists() else b""
        body = json_traces(json_span("own", tokens=1000))
        assert 200 == (await serving.send("/v1/traces", body)).status
        expected.extend(rows)
        async with limited():
            while (text := path.read_text() if path.exists() else "").count("\n") <= len(expected):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        assert path.read_bytes().startswith(before)
        found = [(row["SkuMeter"], row["BilledCost"]) for row in csv.DictReader(text.splitlines())]
        assert expected == found

    await sent(("input_tokens", "0.0015"), ("output_tokens", "0.00006"))
    assert "prices.override" in (await serving.app.reload(ACTOR)).changed
    await sent(("input_tokens", "0.003"), ("output_tokens", "0.00006"))
    assert ["destinations"] == list((await serving.app.reload(ACTOR)).changed)
    await sent(("Tokens", "0.00306"))
    records = [record for record in await serving.records() if isinstance(record, Inference)]
    assert ["0.00156", "0.00306", "0.00306"] == [record.estimated_cost for record in records]

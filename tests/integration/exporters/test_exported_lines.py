"""`tollhouse export focus --lines meters` creates the same rows from the totals as a destination does."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import random
from functools import partial
from pathlib import Path
from typing import Any

from exporters.focus import charges as focus
from gateway.intake.price_lines import price_lines_of_sum
from gateway.intake.prices import PriceBook
from spool.log.values import LogEntry
from spool.record import NS, Inference
from tests.integration.exporters.test_focus_lines import REALTIME, summed
from tests.integration.operations.money.costs.test_published_costs import START_S, filled, run
from tests.spool.contract.examples import call

DAY = "2026-09-21"
SPAN = ("export", "focus", "--from", DAY, "--to", "2026-09-22")
BOOK = PriceBook.load()
REALTIME_COUNTS = {"input_tokens": 1200, "output_tokens": 300, "cache_read_tokens": 700}
MODELS: tuple[dict[str, Any], ...] = (
    {"request_model": "gpt-realtime", "meters": REALTIME, **REALTIME_COUNTS},
    {
        "request_model": "gpt-realtime",
        "input_tokens": 5,
        "output_tokens": 1,
    },  # this model's price lines are unknown
    {"request_model": "whisper-1", "input_tokens": None, "meters": {"input_audio_seconds": "12.5"}},
    {"request_model": "claude-opus-5", "meters": {"web_searches": 3}},
    {"request_model": "gpt-5.6", "input_tokens": 300_000, "cache_read_tokens": 200},
    {"request_model": "gpt-4o-mini"},
    {"request_model": "nobody-knows-it"},
)
OTHERWISE: tuple[dict[str, Any], ...] = (
    {}, {}, {},
    {"tags": {"processing": "batch"}},
    {"tags": {"service_tier": "priority"}},
    {"status": "cached"},
    {"cost": "0.123456789"},
    {"charges": {"EUR": "0.5"}},
)  # fmt: skip


def made(number: int, chance: random.Random) -> Any:
    fields = {**chance.choice(MODELS), **chance.choice(OTHERWISE)}
    start = (START_S - 3600 * chance.randrange(3)) * NS
    provider = "anthropic" if "claude" in fields["request_model"] else "openai"
    record, known_as = call(
        number, provider=provider, start_time=start, user=chance.choice((None, "ann")), **fields
    )
    BOOK.price_record(record)
    if (
        chance.random() < 0.1 and record.estimated_cost
    ):  # some records have a price from an earlier price list
        record.estimated_cost = "0.03"
    return record, known_as


def of_destination(records: list[Inference]) -> list[dict[str, str]]:
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=START_S, records=list(records))
    charges = asyncio.run(focus.sum_charges([entry], partial(price_lines_of_sum, BOOK)))
    return read((focus.csv_header() + focus.charge_lines(charges)).decode())


def read(text: str) -> list[dict[str, str]]:
    return sorted(csv.DictReader(io.StringIO(text)), key=json.dumps)


def test_an_export_has_the_rows_of_a_destination(tmp_path: Path) -> None:
    """For calls of each kind, lines and quantities are the same, and add up to the single rows."""
    chance = random.Random(36)
    calls = [made(number, chance) for number in range(120)]
    expected = of_destination([record for record, _ in calls])
    filled(tmp_path, *calls)
    found = read(run(tmp_path, *SPAN, "--lines", "meters"))
    without_invoice = [{name: row[name] for name in row if name != "InvoiceId"} for row in found]
    assert expected == without_invoice
    assert {""} == {row["InvoiceId"] for row in found}
    assert {"input_audio_tokens", "input_audio_seconds", "web_searches"} <= {row["SkuMeter"] for row in found}
    singles = read(run(tmp_path, *SPAN))
    assert len(singles) < len(found)
    assert summed(singles) == summed(found)

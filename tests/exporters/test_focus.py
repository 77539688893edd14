"""FOCUS 1.2 rows, checked against the specification's rules for columns."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from exporters.batch import TURN
from exporters.destinations import focus as destination
from exporters.focus import charges as focus
from exporters.focus.rows import charges_from_rows
from exporters.record_file import FileExporter
from spool.deliveries.values import Delivery
from spool.log.planning.corrections import correction_subtracting_duplicate
from spool.log.values import LogEntry
from spool.record import NS, Correction, Inference, Record
from tests.csv_reading import HOSTILE, assert_harmless
from tests.exporters.spools import call, counter

AT = int(datetime(2026, 10, 31, 23, 20, tzinfo=UTC).timestamp())

MANDATORY = {
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd",
    "ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity",
    "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName",
}  # fmt: skip
MAY_BE_NULL = {"BillingAccountName", "ChargeClass", "ChargeDescription", "PricingQuantity", "PricingUnit"}
NEVER_NULL = MANDATORY - MAY_BE_NULL | {"ChargeFrequency", "ServiceSubcategory"}
ALLOWED = {
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"", "Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "PricingCategory": {"", "Standard", "Dynamic", "Committed", "Other"},
    "ServiceCategory": {"AI and Machine Learning"},
    "ServiceSubcategory": {"Generative AI"},
}
NUMBERS = ("BilledCost", "ContractedCost", "EffectiveCost", "ListCost", "PricingQuantity", "ConsumedQuantity")
TIMES = ("BillingPeriodStart", "BillingPeriodEnd", "ChargePeriodStart", "ChargePeriodEnd")


def paid(n: int, **changes: Any) -> Record:
    said: dict[str, Any] = {"cost": "0.25", "cost_source": "reported", "start_time": AT * NS, "provider": "openai",
                            "output_tokens": 5, **changes}  # fmt: skip
    return call(n, **said)


RECORDS: list[Record] = [
    paid(1),
    paid(2, provider=None, request_model=None, team="search", user='a "quoted", name'),
    paid(3, cost=None, cost_source="none"),
    paid(4, status="cached", estimated_cost="0.5", cost=None, cost_source="estimated"),
    paid(5, input_tokens=None, output_tokens=None),
    paid(6, cost="-1.5", request_model="refunded"),
    paid(7, cost="0.1", estimated_cost="0.2", request_model="two\nlines"),
    paid(8, shadow=True),
    counter(9, start_time=AT * NS),
    counter(10, start_time=AT * NS, unit="USD", value="0.75"),
]


def rows(records: list[Record] = RECORDS, *, later_s: int = 60) -> list[dict[str, str]]:
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=AT + later_s, records=records)
    text = focus.csv_header() + focus.charge_lines(asyncio.run(focus.sum_charges([entry])))
    return list(csv.DictReader(io.StringIO(text.decode())))


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["ChargeDescription"] + row["BilledCost"])
def test_each_row_follows_the_columns_rules(row: dict[str, str]) -> None:
    """
    Mandatory columns exist, required values are not null, and values are allowed ones, numbers or UTC times.
    """
    assert set() == MANDATORY - set(row)
    assert [] == [name for name in NEVER_NULL if not row[name]]
    assert [] == [name for name, allowed in ALLOWED.items() if row[name] not in allowed]
    assert [] == [name for name in NUMBERS if row[name] and not re.fullmatch(r"-?\d+(\.\d+)?", row[name])]
    assert [] == [name for name in TIMES if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row[name])]
    assert "USD" == row["BillingCurrency"]
    assert all(re.fullmatch(r"(x_)?[A-Z][A-Za-z]+", name) for name in row)
    assert isinstance(json.loads(row["Tags"] or "{}"), dict)


NAMES_OF_BEFORE, NAMES_OF_NOW = {"ProviderName", "PublisherName"}, {"ServiceProviderName", "HostProviderName"}


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("1.2", NAMES_OF_BEFORE),
        ("1.3", NAMES_OF_BEFORE | NAMES_OF_NOW),
        ("1.4", NAMES_OF_NOW),
        ("1.5", NAMES_OF_NOW),
    ],
)
def test_a_version_has_its_names_of_providers(version: str, names: set[str]) -> None:
    """
    The provider column is never null. If nothing names the seller, the host is the seller. Other columns are
    those of 1.2, in order.
    """
    columns = focus.VERSIONS[version]
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=AT + 60, records=RECORDS)
    charges = asyncio.run(focus.sum_charges([entry]))
    text = (focus.csv_header(columns) + focus.charge_lines(charges, columns=columns)).decode()
    made = list(csv.DictReader(io.StringIO(text)))
    assert set() == (MANDATORY - NAMES_OF_BEFORE | names) - set(made[0])
    assert names == set(made[0]) & (NAMES_OF_BEFORE | NAMES_OF_NOW)
    for row, before in zip(made, rows(), strict=True):
        assert {before["ProviderName"]} == {row[name] for name in names}
        assert [(name, value) for name, value in before.items() if name not in NAMES_OF_BEFORE] == [
            (name, value) for name, value in row.items() if name not in names
        ]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row["ChargeDescription"] + row["BilledCost"])
def test_usage_and_credits(row: dict[str, str]) -> None:
    """Usage is priced and never negative. A refund is a credit without usage. Quantities have units."""
    if row["ChargeCategory"] == "Usage":
        assert Decimal(row["PricingQuantity"]) >= 0
        assert "Standard" == row["PricingCategory"]
        assert not row["ConsumedQuantity"] or Decimal(row["ConsumedQuantity"]) > 0
    else:
        assert Decimal(row["BilledCost"]) < 0
        assert row["ConsumedQuantity"] == ""
        assert row["PricingQuantity"] == ""
    for quantity, unit in (("PricingQuantity", "PricingUnit"), ("ConsumedQuantity", "ConsumedUnit")):
        assert (row[quantity] == "") == (row[unit] == "")


NEXT_MONTH_S = 3600  # the next hour is in November


@pytest.mark.parametrize(
    ("later_s", "of_class", "billed_in"), [(60, "", "2026-10"), (NEXT_MONTH_S, "Correction", "2026-11")]
)
def test_reversed_counter_is_negative_usage(later_s: int, of_class: str, billed_in: str) -> None:
    """
    Negative tokens and money of a counter are negative usage, not a credit. They are a FOCUS correction only
    if the month of the usage has ended.
    """
    back: list[Record] = [
        counter(9, start_time=AT * NS, value=-10, token_type="input"),
        counter(10, start_time=AT * NS, unit="USD", value="-0.75"),
    ]
    tokens, money = sorted(rows(back, later_s=later_s), key=lambda row: row["BilledCost"], reverse=True)
    for row in (tokens, money):
        assert row["ChargeCategory"] == "Usage"
        assert row["ChargeClass"] == of_class
        assert row["ChargeFrequency"] == "Usage-Based"
        assert row["x_Corrects"] == ""
        assert billed_in == row["BillingPeriodStart"][:7]
        assert "2026-10-31T23:00:00Z" == row["ChargePeriodStart"]
    assert tokens["ConsumedQuantity"] == "-10"
    assert tokens["PricingQuantity"] == "-10"
    assert tokens["PricingUnit"] == "Tokens"
    assert tokens["BilledCost"] == "0"
    assert "-0.75" == money["BilledCost"] == money["ListCost"] == money["EffectiveCost"]
    assert "Credit" in {row["ChargeCategory"] for row in rows()}


def corrected(n: int, before: Record, **changes: Any) -> Correction:
    assert isinstance(before, Inference)
    return Correction(
        id=bytes([n]) * 16, source="final", corrects=before.id, reason="final_cost", known_at=AT * NS,
        start_time=AT * NS, before=before, after=replace(before, **changes),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("later_s", "of_class", "billed_in"), [(60, "", "2026-10"), (NEXT_MONTH_S, "Correction", "2026-11")]
)
def test_correction_is_a_separate_row_next_to_the_call(later_s: int, of_class: str, billed_in: str) -> None:
    """
    Each difference is a separate row next to the call, whether it is lower, higher, or of another team or
    currency. Class and billing period of the row depend on when the change became known. A late call of an
    ended month is not a correction.
    """
    calls = [paid(1), paid(2), paid(3)]
    cheaper = corrected(11, calls[0], cost="0.1")
    dearer = corrected(12, calls[1], cost="0.5", output_tokens=9)
    moved = corrected(13, calls[2], team="search")
    made = rows([*calls, cheaper, dearer, moved], later_s=later_s)
    of = {n: [row for row in made if row["x_Corrects"] == calls[n].id.hex()] for n in range(3)}
    [plain] = [row for row in made if not row["x_Corrects"]]
    assert plain["BilledCost"] == "0.75"
    assert plain["x_Calls"] == "3"
    assert plain["ChargeClass"] == ""
    assert plain["BillingPeriodStart"][:7] == "2026-10"
    assert [["-0.15"], ["0.25"], ["-0.25", "0.25"]] == [
        sorted(row["BilledCost"] for row in of[n]) for n in range(3)
    ]
    assert [("", "-1"), ("search", "1")] == sorted((row["SubAccountId"], row["x_Calls"]) for row in of[2])
    assert "4" == of[1][0]["x_OutputTokens"]
    for row in [*of[0], *of[1], *of[2]]:
        assert row["ChargeCategory"] == "Usage"
        assert row["ChargeClass"] == of_class
        assert row["BillingPeriodStart"][:7] == billed_in
    assert Decimal("0.1") + Decimal("0.5") + Decimal("0.25") == sum(
        Decimal(row["BilledCost"]) for row in made
    )


@pytest.mark.parametrize(
    "counts", [{"input_tokens": 7}, {"input_tokens": None, "output_tokens": None, "cost": None}]
)
def test_reversed_call_is_negative_usage(counts: dict[str, Any]) -> None:
    """A call without tokens takes back a request. Together with its call, every sum of the file is 0."""
    failed = paid(1, status="error", **counts)
    assert isinstance(failed, Inference)
    gone = correction_subtracting_duplicate(failed, 0, b"f" * 16, failed, now_ns=AT * NS)
    made = rows([failed, gone])
    assert ["", failed.id.hex()] == sorted(row["x_Corrects"] for row in made)
    assert {"Usage"} == {row["ChargeCategory"] for row in made}
    assert ["-1", "1"] == sorted(row["x_Calls"] for row in made)
    for name in ("BilledCost", "ConsumedQuantity", "x_InputTokens", "x_OutputTokens"):
        assert 0 == sum(Decimal(row[name]) for row in made), name


def test_a_correction_that_moves_nothing_is_no_row() -> None:
    """A correction has no row if the totals already contain its values."""
    assert [] == rows([corrected(11, paid(1), trace_id="another")])


def test_currencies_have_rows_of_their_own() -> None:
    """
    Amounts in several currencies are never summed. The row of one currency has the usage, and quantities
    stay the same.
    """
    charged: list[Record] = [
        paid(11, cost=None, charges={"EUR": "2"}, request_model="euros"),
        paid(12, cost=None, charges={"EUR": "1"}, request_model="both"),
        paid(13, request_model="both"),
        counter(14, start_time=AT * NS, unit="JPY", value="7"),
    ]
    found = [
        (row["ResourceId"], row["BillingCurrency"], row["PricingCurrency"], row["BilledCost"], row["x_Calls"])
        for row in rows(charged)
    ]
    assert [
        ("m", "JPY", "JPY", "7", "0"),
        ("both", "EUR", "EUR", "1", "0"),
        ("both", "USD", "USD", "0.25", "2"),
        ("euros", "EUR", "EUR", "2", "1"),
    ] == found
    asked = {
        "period": "2026-10-31T23:00:00+00:00", "cost": "3.5", "estimated": "0", "charges": {"EUR": "2"},
        "converted": "2.5", "calls": 2, "input_tokens": 10, "output_tokens": 0, "cache_read_tokens": 0,
        "cache_write_tokens": 0, "cache_write_1h_tokens": 0,
    }  # fmt: skip
    assert [("USD", "1", 10), ("EUR", "2", 0)] == [
        (charge.currency, charge.cost, charge.input_tokens) for charge in charges_from_rows([asked])
    ]


def test_periods_hold_each_other() -> None:
    """
    A charge covers one hour within its billing month. The end of a period is exclusive, also at the turn
    of a month.
    """
    for row in rows():
        start, end = (datetime.fromisoformat(row[name]) for name in ("ChargePeriodStart", "ChargePeriodEnd"))
        assert timedelta(hours=1) == end - start
        assert row["BillingPeriodStart"] == "2026-10-01T00:00:00Z"
        assert row["BillingPeriodEnd"] == "2026-11-01T00:00:00Z"
        assert end <= datetime.fromisoformat(row["BillingPeriodEnd"])


def test_the_sum_is_the_spend() -> None:
    """
    Cached calls cost nothing, shadows have no rows, and counters of money count. Nothing else is added or lost.
    """
    found = rows()
    assert Decimal("0.25") * 3 - Decimal("1.5") + Decimal("0.1") + Decimal("0.75") == sum(
        Decimal(row["BilledCost"]) for row in found
    )
    assert "0.2" in {row["ListCost"] for row in found}


def test_regions_are_rows_of_their_own() -> None:
    """
    Each region has its own rows, as on a provider's bill. Both region columns are null if no source
    states the region.
    """
    found = rows(
        [paid(1, region="us-east-1"), paid(2, region="us-east-1"), paid(3, region="global"), paid(4)]
    )
    assert {("us-east-1", "us-east-1", "2"), ("global", "global", "1"), ("", "", "1")} == {
        (row["RegionId"], row["RegionName"], row["x_Calls"]) for row in found
    }


def test_writes_for_an_hour_have_a_column() -> None:
    """A provider's bill has a separate line for writes with a lifetime of one hour."""
    [row] = rows([paid(1, cache_write_tokens=3, cache_write_1h_tokens=2), paid(2, cache_write_tokens=4)])
    assert row["x_CacheWriteTokens"] == "7"
    assert row["x_CacheWriteOneHourTokens"] == "2"


async def test_a_file_with_other_columns_is_moved_aside(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """
    If the file has other columns, because an earlier version wrote it, it is moved aside and new lines go to
    a new file.
    """
    path = tmp_path / "focus.csv"
    (tmp_path / "focus.csv.1").write_text("taken")
    path.write_bytes(b"BillingAccountId,BilledCost\ntollhouse,1\n")
    exporter = FileExporter(path, write=destination.encode_delivery, head=focus.csv_header())
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=AT + 60, records=[paid(1)])
    delivery = Delivery(id=1, route="f/ai-telemetry", first=1, last=1, attempts=0, idempotency_key="k")
    await exporter.prepare_delivery_mark(delivery)
    await exporter.send(delivery, [entry])
    await exporter.close()
    assert b"BillingAccountId,BilledCost\ntollhouse,1\n" == (tmp_path / "focus.csv.2").read_bytes()
    assert ["file_moved_aside"] == [getattr(record, "action", None) for record in caplog.records]
    assert [focus.csv_header().decode().strip()] == path.read_text().splitlines()[:1]
    assert 2 == len(path.read_text().splitlines())


async def test_a_file_has_one_header_and_no_line_twice(tmp_path: Path) -> None:
    """Only the file's first line is the header. A repeated delivery replaces the lines that it wrote."""
    path = tmp_path / "focus.csv"
    exporter = FileExporter(path, write=destination.encode_delivery, head=focus.csv_header())
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=AT + 60, records=[paid(1)])
    delivery = Delivery(id=1, route="f/ai-telemetry", first=1, last=1, attempts=0, idempotency_key="k")
    for _ in range(2):
        mark = await exporter.prepare_delivery_mark(delivery)
        delivery = Delivery(id=1, route=delivery.route, first=1, last=1, attempts=1, idempotency_key="k",
                            mark=mark or delivery.mark)  # fmt: skip
        assert 1 == (await exporter.send(delivery, [entry])).delivered
    later = Delivery(id=2, route=delivery.route, first=1, last=1, attempts=0, idempotency_key="l")
    await exporter.prepare_delivery_mark(later)
    await exporter.send(later, [entry])
    await exporter.close()
    lines = path.read_text().splitlines()
    assert len(lines) == 3
    assert lines.count(focus.csv_header().decode().strip()) == 1


@pytest.mark.proves("formulas in CSV")
@pytest.mark.proves("A value runs as a formula in a spreadsheet")
@pytest.mark.parametrize("name", HOSTILE)
def test_no_line_is_a_formula(name: str) -> None:
    """A spreadsheet must show a sender's names of models, users and teams, and never run them as formulas."""
    names = dict.fromkeys(("request_model", "team", "user", "api_key", "device", "region"), name)
    record = paid(1, response_model=None, cost="-1.5", **names)
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=AT + 60, records=[record])
    charges = asyncio.run(focus.sum_charges([entry]))
    text = (focus.csv_header() + focus.charge_lines(charges, account=name)).decode()
    assert_harmless(text, rows=1)
    [row] = csv.DictReader(io.StringIO(text, newline=""))
    assert {"-1.5"} == {cell for cell in row.values() if cell.startswith("-")}


def test_a_whole_delivery_is_not_one_turn_of_the_event_loop() -> None:
    """
    Encoding a whole delivery lets waiting senders run in between. The result is the same as without pauses.
    """
    records = [paid(n, user=f"user-{n}") for n in range(1, 200)]
    entry = LogEntry(topic="ai-telemetry", first=1, committed_at=AT + 60, records=records)
    delivery = Delivery(id=1, route="f/ai-telemetry", first=1, last=199, attempts=0, idempotency_key="k")
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> list[bytes]:
        others = asyncio.create_task(take_turns())
        lines, _ = await destination.encode_delivery(delivery, [entry])
        others.cancel()
        return lines

    lines = asyncio.run(run())
    assert 3 * (len(records) // TURN) <= turns
    [header, *rows] = csv.reader(io.StringIO((focus.csv_header() + b"".join(lines)).decode(), newline=""))
    assert 199 == len(rows) == sum(int(row[header.index("x_Calls")]) for row in rows)

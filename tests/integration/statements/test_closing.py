"""Invoices and closed months over the operator API and with commands."""

from __future__ import annotations

import asyncio
import csv
from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from spool.currencies import SCALE
from spool.registry.operators import Actor
from spool.statements import DAY_S, Statement, StatementRow, parse_day
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

DAY = parse_day("2026-08-12")
NOW = parse_day("2026-09-21") + 3600.0
OCTOBER = {"provider": "openai", "month": "2026-08"}
# The source reported $9 for the only call, of 100 tokens. Its list price is $0.00025, and the bill has $2 for it.
ACCURACY = {
    "counted": "9",
    "error": "1.99975",
    "token_coverage": "100.00",
    "money_coverage": "100.00",
    "sentence": "August 2026, openai: $1.50 billed, $9.00 ± $2.00 counted",
    "failed_calls": 0,
    "aborted_calls": 0,
    "unpriced_calls": 0,
}


def line(kind: str, amount: str) -> StatementRow:
    return StatementRow(
        source="openai_costs", provider="openai", account=None, key=None, start=DAY, end=DAY + DAY_S,
        model="gpt-4o" if kind == "input" else None, unit="usd", kind=kind, amount=Decimal(amount), currency="USD",
        tier=None, region=None, batch=None, settled=True,
    )  # fmt: skip


async def bill(server: OperatorServer, *rows: StatementRow, add_to: str = "") -> None:
    start, end = parse_day("2026-08-01"), parse_day("2026-09-01")
    statement = Statement(
        source="openai_costs", account="", rows=rows, read_at=DAY, name="bill", settled_until=end,
        start=start, end=end,
    )  # fmt: skip
    ada = Actor("ada@example.com", "command")
    await server.registry.statements.import_statement(statement, actor=ada, replace=True, add_to=add_to)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, clock=MovedClock(NOW)) as server:
        one = call(
            1, at=DAY + 5, team="search", cost="9", cost_source="reported", request_model="gpt-4o", provider="openai",
            response_model="gpt-4o", input_tokens=100, output_tokens=0,
        )  # fmt: skip
        await add(server.services.spool.log, one)
        await bill(server, line("input", "2"), line("discount", "-0.5"))
        yield server


async def asked(server: OperatorServer, method: str, path: str, body: Any = None, status: int = 200) -> Any:
    answer = await server.ask(method, path, body)
    assert status == answer.status, answer.payload
    return answer.payload


async def test_a_month_is_closed_with_its_invoice(server: OperatorServer) -> None:
    """
    Closing is refused with what is missing. After closing, the month's total stays, and a change becomes an
    entry of today.
    """
    refused = await asked(server, "POST", "/closed-months", OCTOBER, status=400)
    assert "has no invoice" in refused["error"]["message"]
    invoice = {**OCTOBER, "number": "A/1", "total": "1.60", "tax": "0.09"}
    added = (await asked(server, "POST", "/billed-invoices", invoice))["billed_invoice"]
    await asked(server, "POST", "/billed-invoices", invoice, status=409)
    found = (await asked(server, "GET", "/month-closing?provider=openai&month=2026-08"))["month_closing"]
    assert ("1.5", "1.6", "0.09", "0", "0.01") == tuple(
        found[name] for name in ("billed", "invoiced", "tax", "rounding", "difference")
    )
    assert {"usage": "2", "discount": "-0.5"} == found["by_charge"]
    assert {name: found[name] for name in ACCURACY} == ACCURACY
    refused = await asked(server, "POST", "/closed-months", OCTOBER, status=409)
    assert "$0.01 is unexplained" in refused["error"]["message"]
    await asked(server, "DELETE", f"/billed-invoices/{added['id']}")
    mended = {**invoice, "total": "1.595", "tax": "0.09"}
    await asked(server, "POST", "/billed-invoices", mended)
    closed = await asked(server, "POST", "/closed-months", OCTOBER)
    assert ("0.005", "0", False) == tuple(
        closed["closed_month"][name] for name in ("rounding", "difference", "accepted")
    )
    for closing in closed.values():
        assert {name: closing[name] for name in ACCURACY} == ACCURACY
    for path in ("/closed-months", "/billed-invoices"):
        body = OCTOBER if path == "/closed-months" else {**invoice, "number": "2"}
        assert "is closed" in (await asked(server, "POST", path, body, status=409))["error"]["message"]

    await bill(server, line("input", "2.5"), line("discount", "-0.5"))
    services = server.services.money
    assert services.biller is not None
    assert 1 == await services.biller().recalculate_changed_months()
    report = "/report?cost_type=billed_cost&by=charge"
    august = await asked(server, "GET", f"{report}&from=2026-08-01&to=2026-08-31")
    assert august["total"]["cost"] == "1.595"
    assert august["billed"]["days"]["invoiced"] == 31
    today = await asked(server, "GET", f"{report}&by=corrects&from=2026-09-01")
    assert [("restated", "2026-08-12", "0.5")] == [
        (row["charge"], row["corrects"], row["cost"]) for row in today["rows"] if row["cost"] != "0"
    ]
    found = (await asked(server, "GET", "/month-closing?provider=openai&month=2026-08"))["month_closing"]
    assert {"2026-08-12": "0.5"} == found["restated"]

    await asked(server, "DELETE", "/closed-months/openai/2026-08")
    assert [] == (await asked(server, "GET", "/closed-months"))["closed_months"]
    assert "2" == (await asked(server, "GET", f"{report}&from=2026-08-01&to=2026-08-31"))["total"]["cost"]
    assert "0" == (await asked(server, "GET", f"{report}&from=2026-09-01"))["total"]["cost"]
    audited = [row["action"] for row in (await asked(server, "GET", "/audit"))["audit"]]
    assert {"closed_month.close", "closed_month.reopen", "billed_invoice.add"} <= set(audited)


def euros(day: int, amount: str) -> StatementRow:
    start = DAY + day * DAY_S
    return msgspec.structs.replace(
        line("input", amount), start=start, end=start + DAY_S, currency="EUR", unit="eur"
    )


def rates(own: str, other: str, day: int) -> int | None:
    """Return a rate that changes each day. Swiss francs have none."""
    assert other == "USD"
    return SCALE + (day // DAY_S % 7) * 13_579_246_801 if own in ("EUR", "GBP") else None


async def test_an_invoice_in_the_currency_of_its_bill(server: OperatorServer) -> None:
    """
    An invoice that equals the bill in its own currency has no difference in dollars, although the rate changed
    each day. Its cents may be rounded by half a cent per line.
    """
    server.services.money.ledger.rates = rates
    await bill(server, euros(0, "10.003"), euros(1, "20.1"), euros(2, "30.25"), euros(4, "-1.5"))
    days = [(0, "10.003"), (1, "20.1"), (2, "30.25"), (4, "-1.5")]
    billed = (
        sum(Fraction(rates("EUR", "USD", DAY + day * DAY_S) or 0) * Fraction(each) for day, each in days)
        / SCALE
    )

    async def closing(number: str, total: str, **more: Any) -> Any:
        invoice = {**OCTOBER, "number": number, "total": total, "currency": "EUR", **more}
        added = (await asked(server, "POST", "/billed-invoices", invoice))["billed_invoice"]
        assert (invoice["currency"], total) == (added["currency"], added["total"])
        found = (await asked(server, "GET", "/month-closing?provider=openai&month=2026-08"))["month_closing"]
        await asked(server, "DELETE", f"/billed-invoices/{added['id']}")
        return {
            name: Fraction(found[name]) for name in ("billed", "invoiced", "tax", "rounding", "difference")
        }

    exact = await closing("1", "58.853")
    assert {"billed": billed, "invoiced": billed, "tax": 0, "rounding": 0, "difference": 0} == exact
    cents = await closing("2", "58.85")
    assert cents["difference"] == 0 and cents["rounding"] == cents["invoiced"] - billed != 0
    taxed = await closing("3", "70.031", tax="11.178")
    assert abs(taxed["difference"] + taxed["rounding"]) <= Fraction(2, 10**27)
    assert abs(taxed["tax"] - billed * Fraction("11.178") / Fraction("58.853")) <= Fraction(1, 10**27)
    more = await closing("4", "59.853")
    assert abs(more["difference"] - billed / Fraction("58.853")) <= Fraction(1, 10**27)
    pounds = await closing("5", "50", currency="GBP")  # no bill is in pounds, so the last day's rate applies
    assert pounds["invoiced"] == 50 * Fraction(rates("GBP", "USD", parse_day("2026-08-31")) or 0, SCALE)
    franc = {**OCTOBER, "number": "6", "total": "5", "currency": "CHF"}
    await asked(server, "POST", "/billed-invoices", franc)
    for method, path in (("GET", "/month-closing?provider=openai&month=2026-08"), ("POST", "/closed-months")):
        refused = await asked(server, method, path, OCTOBER if method == "POST" else None, status=400)
        assert "is in CHF, and no exchange rate to USD is known" in refused["error"]["message"]


NOT_CLOSED: Sequence[tuple[str, str]] = [
    ("2026-09", "is not over"),
    ("2026-07", "has no invoice"),
    ("August", "such as 2026-10"),
]


async def test_what_is_not_closed_says_why(server: OperatorServer) -> None:
    """An unfinished month, a month without an invoice and an invalid month are refused."""
    for month, words in NOT_CLOSED:
        refused = await asked(server, "POST", "/closed-months", {**OCTOBER, "month": month}, status=400)
        assert words in refused["error"]["message"], (month, words)


def exported(data: Path) -> None:
    """
    Check the exported rows of the closed month. They add up to the invoice, with the discount on its usage
    and the rest as its own row.
    """
    path = data / "rows.csv"
    span = ("--from", "2026-08-12", "--to", "2026-08-31", "--focus-version", "1.4", "--output", str(path))
    found = CliRunner().invoke(main, ["export", "focus", "--billed", *span, "--data", str(data)])
    assert 0 == found.exit_code, found.output
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines()))
    named = (
        "x_Charge",
        "SubAccountId",
        "BilledCost",
        "EffectiveCost",
        "ConsumedQuantity",
        "InvoiceId",
        "x_State",
    )
    assert [
        ("usage", "search", "1.5", "1.5", "100", "7", "invoiced"),
        ("difference", "", "0.02", "0.02", "", "7", "invoiced"),
    ] == [tuple(row[name] for name in named) for row in rows]
    assert [("9", "7")] == counted_rows(data)


def counted_rows(data: Path) -> list[tuple[str, str]]:
    """Return the cost and the invoice of each counted row. The column always exists."""
    span = ("--from", "2026-08-12", "--to", "2026-08-31")
    found = CliRunner().invoke(main, ["export", "focus", *span, "--data", str(data)])
    assert 0 == found.exit_code, found.output
    return [(row["BilledCost"], row["InvoiceId"]) for row in csv.DictReader(found.output.splitlines())]


async def test_commands_add_close_list_and_reopen(server: OperatorServer, tmp_path: Path) -> None:
    """`tollhouse billed` prints its findings before it closes or refuses."""

    def run(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(main, ["billed", *words, "--data", str(tmp_path)])
        assert code == found.exit_code, found.output
        return found.output

    month = ("--provider", "OpenAI", "--month", "2026-08")

    def all_of_it() -> None:
        run("invoices", "create", *month, "--number", "7", "--total", "1.52", "--lines", "2")
        listed = run("invoices", "list")
        assert "1.52" in listed and "USD" in listed
        run("invoices", "create", *month, "--number", "8", "--total", "1", "--currency", "EUR")
        assert "EUR" in run("invoices", "list")
        assert "no exchange rate" in run("preview", *month, code=2)
        [euro] = [row.split()[0] for row in run("invoices", "list").splitlines() if "EUR" in row]
        run("invoices", "delete", euro)
        refused = run("close", *month, code=2)
        assert "difference $0.02" in refused
        assert "is unexplained" in refused
        assert "closed 2026-08 of OpenAI" in run("close", *month, "--accept")
        assert "2026-08" in run("list")
        assert "billed $1.52" in run("preview", *month)
        exported(tmp_path)
        run("reopen", *month)
        assert [("9", "")] == counted_rows(tmp_path)
        assert "2026-08" not in run("list")

    await asyncio.to_thread(all_of_it)

"""Bills with rows about an earlier month, next to closed months, contracts, undo and FOCUS files."""

from __future__ import annotations

import asyncio
import csv
import io
import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gateway.cli import main
from spool.registry.operators import Actor
from spool.statements import DAY_S, CoveredDays, Statement, StatementRow, bill_name, parse_day
from tests.integration.operations.server import OperatorServer
from tests.integration.statements.test_closing import OCTOBER, asked, line
from tests.integration.statements.test_closing import server as server
from tests.rounds import part, reduced
from tests.spool.contract.examples import add, call

AUGUST, SEPTEMBER = (
    (parse_day("2026-08-01"), parse_day("2026-09-01")),
    (parse_day("2026-09-01"), parse_day("2026-10-01")),
)
INVOICED = Decimal(7)
CONTRACT: dict[str, Any] = {
    "name": "OpenAI", "provider": "openai", "since": "2026-08-01",
    "terms": [{"kind": "minimum", "amount": "150", "per": "month"}],
}  # fmt: skip


async def bill(server: OperatorServer, month: tuple[int, int], *rows: StatementRow) -> str:
    """Import the whole bill of a month. Return the id of the import, or "" if nothing changed."""
    name = bill_name(*month)
    statement = Statement(
        source="focus", account="", name=f"{name}.csv", read_at=month[1], settled_until=month[1],
        start=month[0], end=month[1], covers=(CoveredDays(name, *month),),
        rows=tuple(msgspec.structs.replace(row, source="focus", bill=name) for row in rows),
    )  # fmt: skip
    ada = Actor("ada@example.com", "command")
    outcome = await server.registry.statements.import_statement(statement, actor=ada, replace=True)
    return outcome.id


def of_september(amount: Decimal) -> StatementRow:
    day = parse_day("2026-09-02")
    return msgspec.structs.replace(line("input", str(amount)), start=day, end=day + DAY_S)


def late_row(amount: Decimal, line_type: str | None) -> StatementRow:
    """Return a row of September's bill about the call of August."""
    return msgspec.structs.replace(line("input", str(amount)), line_type=line_type)


async def billed_rows(server: OperatorServer, first: str, last: str) -> list[dict[str, Any]]:
    report = f"/report?cost_type=billed_cost&by=charge&from={first}&to={last}"
    rows: list[dict[str, Any]] = (await asked(server, "GET", report))["rows"]
    return [row for row in rows if row["cost"] != "0"]


def added(rows: list[dict[str, Any]], *, restated: bool = False) -> Decimal:
    return sum(
        (Decimal(row["cost"]) for row in rows if (row["charge"] == "restated") == restated), Decimal(0)
    )


async def focus_rows(server: OperatorServer, first: str, last: str) -> list[dict[str, str]]:
    answer = await server.ask("GET", f"/focus?from={first}&to={last}&billed=true")
    assert answer.status == 200, answer.payload
    return [*csv.DictReader(io.StringIO(answer.payload))]


async def reconciled_august(server: OperatorServer) -> Mapping[str, Any] | None:
    answer = await asked(server, "GET", "/reconciliation?month=2026-08&provider=openai")
    return next((each for each in answer["providers"] if each["provider"] == "openai"), None)


async def test_a_late_row_is_in_the_month_of_its_use_and_of_its_bill(
    server: OperatorServer, tmp_path: Path
) -> None:
    """Reconciliation asks by use, with the share of each bill. Billed costs ask by bill."""
    await asked(server, "POST", "/statement-imports/imp_1/undo", {})
    await bill(server, AUGUST, line("input", "129.62"))
    await bill(server, SEPTEMBER, of_september(Decimal("13.69")), late_row(Decimal("-1.5"), "refund"))
    found = await reconciled_august(server)
    assert found is not None and "128.12" == found["total"]["billed"]
    assert [{"bill": "2026-08", "billed": "129.62"}, {"bill": "2026-09", "billed": "-1.5"}] == found["bills"]
    words = ["reconcile", "report", "--data", str(tmp_path), "--month", "2026-08"]
    shown = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert "billed: $129.6200 on the bill of 2026-08, -$1.5000 on the bill of 2026-09" in shown.output
    biller = server.services.money.biller
    assert biller is not None
    await biller().recalculate_changed_months()
    assert Decimal("129.62") == added(await billed_rows(server, "2026-08-01", "2026-08-31"))
    september = await billed_rows(server, "2026-09-01", "2026-09-30")
    assert {"usage": "13.69", "refund": "-1.5"} == {row["charge"]: row["cost"] for row in september}


async def test_the_last_day_of_a_bill_waits_for_the_next_bill(server: OperatorServer) -> None:
    """Until the next bill of the source is imported, calls that the last day lacks may be on it."""
    await asked(server, "POST", "/statement-imports/imp_1/undo", {})
    used = {"response_model": "gpt-4o", "request_model": "gpt-4o", "provider": "openai", "input_tokens": 1000}
    await add(server.services.spool.log, call(2, at=AUGUST[1] - 3600, output_tokens=0, **used))
    tokens = [
        msgspec.structs.replace(row, start=day, end=day + DAY_S)
        for day in (parse_day("2026-08-12"), parse_day("2026-08-20"))
        for row in (line("input", "2"), msgspec.structs.replace(line("input", "100"), unit="tokens"))
    ]
    await bill(server, AUGUST, *tokens)
    for is_imported in (False, True):
        found = await reconciled_august(server)
        assert found is not None
        named = {name for hint in found["hints"] for name in (hint["cause"], *hint["beside"])}
        assert is_imported == ("next_bill" not in named)
        await bill(server, SEPTEMBER, of_september(Decimal(3)))


@pytest.mark.parametrize("seed", part(range(16), every=16))
async def test_orders_of_two_bills_closing_undo_and_contracts(seed: int, server: OperatorServer) -> None:
    """
    Bills of two months, closing, undo and a contract in random orders: each bill has its sum by hand, and a closed
    month its invoice. August by use has the late rows of September's bill.
    """
    chance, biller = random.Random(seed), server.services.money.biller
    assert biller is not None
    await asked(server, "POST", "/statement-imports/imp_1/undo", {})
    await asked(server, "POST", "/billed-invoices", {**OCTOBER, "number": "1", "total": str(INVOICED)})
    # imports that were not undone: their own amount, and that of their late row
    august: dict[str, Decimal] = {}
    september: dict[str, tuple[Decimal, Decimal]] = {}
    closed_at: Decimal | None = None
    contract = ""
    for step in range(reduced(14, by=3)):
        change = chance.choice(("august", "september", "september", "close", "reopen", "undo", "contract"))
        amount = Decimal(chance.randint(1, 400)) / 100 + step * 4
        if change == "august":
            august[await bill(server, AUGUST, line("input", str(amount)))] = amount
        elif change == "september":
            late = Decimal(chance.choice((-150, -20, 35))) / 100
            rows = of_september(amount), late_row(late, chance.choice(("refund", "correction", None)))
            september[await bill(server, SEPTEMBER, *rows)] = amount, late
        elif change == "close" and august and closed_at is None:
            await asked(server, "POST", "/closed-months", {**OCTOBER, "accept": True})
            closed_at = [*august.values()][-1]
        elif change == "reopen" and closed_at is not None:
            await asked(server, "DELETE", "/closed-months/openai/2026-08")
            closed_at = None
        elif change == "undo" and september:
            # also while August is closed: its bill rests on no import of September
            undone = chance.choice([*september])
            await asked(server, "POST", f"/statement-imports/{undone}/undo", {})
            del september[undone]
        elif change == "contract" and contract:
            await asked(server, "DELETE", f"/contracts/{contract}")
            contract = ""
        elif change == "contract":
            contract = (await asked(server, "POST", "/contracts", CONTRACT, 201))["contract"]["id"]
        await biller().recalculate_changed_months()
        own, late = [*september.values()][-1] if september else (Decimal(0), Decimal(0))
        of_august = [*august.values()][-1] if august else Decimal(0)
        expected = of_august if closed_at is None else INVOICED
        assert expected == added(await billed_rows(server, "2026-08-01", "2026-08-31"))
        of_month = await focus_rows(server, "2026-08-01", "2026-08-31")
        assert expected == sum((Decimal(row["BilledCost"]) for row in of_month), Decimal(0))
        later = await billed_rows(server, "2026-09-01", "2026-09-30")
        assert own + late == added(later)
        restated = 0 if closed_at is None else of_august - closed_at
        assert restated == added(later, restated=True)
        # a change of a closed month is for its day of use, and on the bill of the month in which it is known
        changes = [
            row
            for row in await focus_rows(server, "2026-09-01", "2026-09-30")
            if row["x_State"] == "restated"
        ]
        assert restated == sum((Decimal(row["BilledCost"]) for row in changes), Decimal(0))
        assert {("Correction", "2026-09-01", "2026-08-12")} >= {
            (row["ChargeClass"], row["BillingPeriodStart"][:10], row["ChargePeriodStart"][:10])
            for row in changes
        }
        found = await reconciled_august(server)
        if not august:
            assert found is None
            continue
        assert found is not None and of_august + late == Decimal(found["total"]["billed"])
        shares = {"2026-08": of_august} | ({"2026-09": late} if september else {})
        assert shares == {share["bill"]: Decimal(share["billed"]) for share in found["bills"]}

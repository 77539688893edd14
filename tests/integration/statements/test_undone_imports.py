"""Imports that are undone next to closed months, and the commands that list and undo imports."""

from __future__ import annotations

import asyncio
import random
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from tests.integration.operations.server import OperatorServer
from tests.integration.statements.test_closing import OCTOBER, asked, bill, line
from tests.integration.statements.test_closing import server as server
from tests.rounds import part

AUGUST = "/report?cost_type=billed_cost&by=charge&from=2026-08-01&to=2026-08-31"
LATER = "/report?cost_type=billed_cost&by=charge&from=2026-09-01"
INVOICED = "7"


@pytest.mark.parametrize("seed", part(range(12), every=12))
async def test_orders_of_imports_closing_and_undo(seed: int, server: OperatorServer) -> None:
    """
    Import, late part, close, reopen and undo in random orders: an open month has the amount by hand. A closed month
    keeps its invoice, restates each change, and refuses the undo of an import that it rests on.
    """
    chance, biller = random.Random(seed), server.services.money.biller
    assert biller is not None
    await asked(server, "POST", "/billed-invoices", {**OCTOBER, "number": "1", "total": INVOICED})
    # each import: its amount, and the import that it adds to
    amounts: dict[str, tuple[Decimal, str]] = {"imp_1": (Decimal("1.5"), "")}
    live, closed_at = ["imp_1"], None

    def newest_whole() -> str:
        return next((id for id in reversed(live) if not amounts[id][1]), "")

    def by_hand() -> Decimal:
        """Return the newest whole import and its parts. Parts of an older import are replaced with it."""
        whole, total = newest_whole(), Decimal(0)
        for id in live:
            amount, base = amounts[id]
            order = int((base or id)[4:])
            if not whole or order >= int(whole[4:]):
                total += amount
        return total

    for step in range(12):
        change = chance.choice(("bill", "late", "close", "undo", "undo", "reopen"))
        amount = Decimal(chance.randint(1, 400)) / 100 + step * 4
        id = f"imp_{len(amounts) + 1}"
        if change == "bill":
            await bill(server, line("input", str(amount)))
            amounts[id] = amount, ""
            live.append(id)
        elif change == "late" and (base := newest_whole()):
            await bill(server, line("cache_read", str(amount)), add_to=base)
            amounts[id] = amount, base
            live.append(id)
        elif change == "close" and closed_at is None and newest_whole():
            await asked(server, "POST", "/closed-months", {**OCTOBER, "accept": True})
            closed_at = by_hand()
        elif change == "reopen" and closed_at is not None:
            await asked(server, "DELETE", "/closed-months/openai/2026-08")
            closed_at = None
        elif change == "undo" and live:
            undone, before = chance.choice(live), by_hand()
            live.remove(undone)
            if closed_at is not None and before != by_hand():
                refused = await asked(server, "POST", f"/statement-imports/{undone}/undo", {}, status=409)
                assert f"the closed month 2026-08 of openai rests on {undone}" in refused["error"]["message"]
                live = sorted([*live, undone], key=lambda id: int(id[4:]))
            else:
                await asked(server, "POST", f"/statement-imports/{undone}/undo", {})
        await biller().recalculate_changed_months()
        august = (await asked(server, "GET", AUGUST))["total"]["cost"]
        if closed_at is not None:
            assert INVOICED == august
            rows = (await asked(server, "GET", LATER))["rows"]
            restated = sum((Decimal(row["cost"]) for row in rows if row["charge"] == "restated"), Decimal(0))
            assert by_hand() - closed_at == restated
        elif live:
            assert by_hand() == Decimal(august)


async def test_commands_list_show_and_undo(server: OperatorServer, tmp_path: Path) -> None:
    """`reconcile imports` names what counts. After `undo`, the figures from before count again."""

    def run(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(main, ["reconcile", *words, "--data", str(tmp_path)])
        assert code == found.exit_code, found.output
        return found.output

    await bill(server, line("input", "3"))

    def all_of_it() -> None:
        newest, oldest = run("imports").splitlines()[1:]
        assert newest.startswith("imp_2") and "counts" in newest and "2026-08-01 to 2026-08-31" in newest
        assert oldest.startswith("imp_1") and oldest.endswith("replaced by imp_2")
        assert ["imp_2"] == [row.split()[0] for row in run("imports", "--state", "counts").splitlines()[1:]]
        shown = run("imports", "show", "imp_1")
        assert "2026-08-12" in shown and 31 + 1 == shown.count("replaced by imp_2")
        assert "imp_2 is undone" in run("undo", "imp_2")
        assert "imp_2 is already undone" in run("undo", "imp_2", code=2)
        assert "undone" in run("imports").splitlines()[1]
        assert "1.5" in run("statements", "list")

    await asyncio.to_thread(all_of_it)

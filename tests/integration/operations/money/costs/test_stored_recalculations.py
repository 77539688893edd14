"""A recalculation that a restarted gateway applies to later reports, with the prices that it had."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from gateway.configuration.prices import PriceOverride
from gateway.configuration.reader import load_config
from gateway.intake.prices import PriceBook
from gateway.service.assembly.storage import open_storage
from spool.ledger.dimensions import TOTAL
from spool.ledger.queries import CostQuery
from spool.log.planning.corrections import correction_with_runs_and_values
from spool.record import NS
from tests.spool.ledger_log import BEGIN, FakeClock, FakeLog, call


async def test_a_restarted_gateway_reads_the_prices_of_a_recalculation(tmp_path: Path) -> None:
    file, clock, log = tmp_path / "tollhouse.toml", FakeClock(), FakeLog()
    file.write_text(f'data_dir = "{tmp_path / "data"}"\n')
    config = load_config(file, env={})
    ever = datetime.fromtimestamp(BEGIN - 86_400, UTC)
    book = PriceBook.load().with_override(
        PriceOverride(model="own", input=Decimal(20_000), output=Decimal(0))
    )
    unpriced = call(request_model="own", estimated_cost=None, cost_source="none")
    log.add([unpriced])
    async with open_storage(config, clock=clock) as storage:
        await storage.ledger.catch_up(log)
        assert "2" == (await storage.ledger.reprice(log, book, since=ever)).after
    log.add([correction_with_runs_and_values(unpriced, 0, {"run": "r"}, now_ns=BEGIN * NS)])
    async with open_storage(config, clock=clock) as storage:
        await storage.ledger.catch_up(log)
        by_run = CostQuery(
            since=ever,
            until=datetime.fromtimestamp(BEGIN + 86_400, UTC),
            granularity=TOTAL,
            group_by=("run",),
        )
        rows = [row for row in await storage.ledger.costs(by_run) if row.calls or row.cost != "0"]
        assert [(1, "2")] == [(row.calls, row.cost) for row in rows]
        assert rows[0].group != (None,)

"""Data lakes and reports without a contract have the same bytes, whether or not there was one before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.bills.contracts.declared import price_terms
from gateway.intake.prices import PriceBook
from spool import identity
from spool.engines import POSTGRES, SQLITE
from spool.installation import FILE, store_secret
from tests.gateway.bills.reconciliation.simulator import AZURE, OPENAI, book, month, record
from tests.integration.lake.lakes import House
from tests.integration.operations.bills.contracts.test_capacity_month import NOW
from tests.integration.operations.bills.plans.test_paid_costs import made_budget
from tests.integration.operations.bills.plans.test_plans import made
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import part
from tests.spool.contract.examples import add

CALLS = month(a_day=3, providers=(AZURE, OPENAI))
# a term of each kind that changes prices of calls or sums of them
TERMS: list[dict[str, Any]] = [
    {"kind": "discount", "percent": "10"},
    {"kind": "capacity", "models": ["gpt-4o*"], "unit": "ptu", "number": "2", "price": "1.25", "per": "hour"},
    {"kind": "allowance", "tokens": "900", "per": "day"},
    {"kind": "minimum", "amount": "900", "per": "month"},
    {"kind": "credit", "amount": "300", "per": "month"},
    {"kind": "fee", "amount": "62", "per": "month", "percent": "10"},
]
CONTRACT: dict[str, Any] = {"name": "Azure", "provider": AZURE, "since": "2026-03-01", "terms": TERMS}
NEVER, DELETED_BEFORE, DELETED_AFTER, STORED = "never", "deleted before", "deleted after", "stored"
QUERIES = [
    "/focus?from=2026-03-01&to=2026-03-31",
    "/focus?from=2026-03-01&to=2026-03-31&plans=true",
    "/report?from=2026-03-01&to=2026-03-31&by=team,model&cost_type=real_cost",
    "/report?from=2026-03-01&to=2026-03-31&by=team,charge&cost_type=paid_cost",
    "/contract-costs?month=2026-03",
]


async def outcome_of(
    directory: Path, request: pytest.FixtureRequest, engine: str, contract: str
) -> dict[str, Any]:
    """Return the bytes of each file of the lakes, and the responses of the server."""
    directory.mkdir()
    store_secret(directory / FILE, b"s" * 32)
    stored = request.getfixturevalue("new_schema")().settings(directory) if engine == POSTGRES else None
    clock = MovedClock(NOW.timestamp())
    async with operator_server(directory, engine=engine, clock=clock, stored=stored) as server:
        await made(server, "/views", name="all", filter={}, principal_dimension="model")
        [view] = server.registry.views.all()
        if contract in (DELETED_BEFORE, STORED):
            await made(server, "/contracts", **CONTRACT)
        if contract == DELETED_BEFORE:
            await delete_contract(server)
        prices = PriceBook(book().card, (), price_terms(server.registry))
        records = [record(call) for call in CALLS]
        for number, each in enumerate(records):
            each.team = f"team-{number % 3}"
            prices.price_record(each)
        known = [
            identity.call_identity(each, response_id=f"chatcmpl-{n:032d}") for n, each in enumerate(records)
        ]
        await add(server.services.spool.log, *zip(records, known, strict=True))
        if contract == DELETED_AFTER:
            await made(server, "/contracts", **CONTRACT)
            for path in QUERIES:
                await server.ask("GET", path)
            await delete_contract(server)
        house, outcome = House(server.storage, clock, directory), dict[str, Any]()
        for format in ("parquet", "ndjson", "focus", "focus-parquet"):
            lake = directory / format
            async with house.forwarding(name=format, path=lake, format=format, batch_records=1000):
                await house.until_all_is_sent()
            files = [path for path in lake.rglob("*") if path.is_file()]
            assert files
            outcome |= {f"{format}/{path.relative_to(lake)}": path.read_bytes() for path in files}
        for path in QUERIES:
            answer = await server.ask("GET", path)
            assert 200 == answer.status, answer.payload
            outcome[path] = answer.payload
        budget = await made_budget(server, name="all", view={"id": view.id}, default_amount="100", per="team")
        shown = await server.ask("GET", f"/budgets/{budget}?expand=current&expand=history")
        outcome["budget"] = [shown.payload["budget"][name] for name in ("current", "history")]
    return outcome


async def delete_contract(server: OperatorServer) -> None:
    answer = await server.ask("DELETE", "/contracts/Azure")
    assert answer.status in (200, 204), answer.payload


@pytest.mark.proof
@pytest.mark.parametrize("engine", part([SQLITE, POSTGRES], every=2))
async def test_without_a_contract_every_byte_is_the_same(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stored contract changes files and responses, so the comparison can fail."""
    # names of files contain the edition, so it must be the same in both installations
    monkeypatch.setattr("spool.sql.lake.new_log_edition_id", lambda: "0badcafe")
    never, before, after, stored = [
        await outcome_of(tmp_path / name, request, engine, name)
        for name in (NEVER, DELETED_BEFORE, DELETED_AFTER, STORED)
    ]
    for other in (before, after):
        assert never.keys() == other.keys()
        assert [] == [name for name in never if never[name] != other[name]]
    changed = {name.partition("/")[0] or name for name in never if never[name] != stored.get(name)}
    assert {"parquet", "ndjson", "focus", "focus-parquet", "budget"} <= changed

"""
A role that names cost types shows no other costs: every operator address and every tool, prompt and resource
of assistants is tried.

Counted and billed costs have different figures, so each is recognized in any answer.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from gateway.core.paths import OPERATOR_API
from gateway.http.event_streams import EVENT_STREAM
from gateway.money.insights.findings import build_finding
from gateway.operations.requests.address import OPERATION, SLICED, WHOLE, OperatorApiAddress
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool import money
from spool.ledger.billed import EVERY, BilledDay, BilledSum
from spool.ledger.dimensions import BILLED
from spool.ledger.sums import Dimensions
from spool.registry.documents import replace_fields
from spool.registry.insights import LOW
from spool.registry.permission_sets import PERMISSION_SETS
from spool.registry.roles import COUNTED_TYPES, FULL, LIMITED, NewRole, RoleFilter, RoleLimits
from spool.statements import Statement, StatementRow
from tests.integration.operations.people.test_limited_assistant import everything
from tests.integration.operations.people.test_limited_person import (
    EVA,
    OWN,
    QUERIES,
    ROOT,
    Place,
    World,
    fill,
    quick_beat,
    schedule,
    without_cookies,
)
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import operator_server
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG
from tests.spool.contract.examples import add, call

__all__ = ["quick_beat"]  # a fixture for all tests in this file

DAY_S = 86400
COUNTED, ESTIMATED, BILL = "4321.60718", "5432.60718", "7777.41923"
# The amounts as they are and rounded. Two include the 3 dollars of the call that `fill` adds.
MADE_OF_CALLS = ("60718", "4321.6", "4,321.6", "4324.6", "4,324.6", "5432.6", "5,432.6")
MADE_OF_BILLS = ("41923", "7777.4", "7,777.4")
EVERYWHERE = NewRole(name="Part", data_access=FULL, permission_sets=tuple(PERMISSION_SETS), members=(EVA,))


def billed_sum(team: str, charge: str, basis: str, amount: str) -> BilledSum:
    values: dict[str, Any] = dict.fromkeys(Dimensions._fields, "") | {
        "size": 0,
        "team": team,
        "provider": "openai",
    }
    dimensions = Dimensions(**{**values, "kind": "call" if team else BILLED})
    return BilledSum(dimensions, charge, basis, EVERY, money.text_to_units(amount))


async def keep_bill(there: Place) -> None:
    """Store a bill, its billed day, and an insight that compares the bill with counted costs."""
    server = there.server
    day = int(server.clock.now()) // DAY_S * DAY_S - DAY_S
    ledger, registry = server.services.money.ledger, server.registry
    made = BilledDay(day=day, provider="openai", state="closed", mark="1", source="openai_costs", read_at=day,
                     made_at=day)  # fmt: skip
    sums = [billed_sum(OWN, "usage", "exact", BILL), billed_sum("", "tax", "unallocated", "1")]
    await ledger.store_billed_days([(made, sums)])
    row = StatementRow(
        source="openai_costs", provider="openai", account=None, key=None, model="o3", start=day, end=day + DAY_S,
        unit="usd", kind="cost", amount=Decimal(BILL), currency="USD", tier=None, region=None, batch=None, settled=True,
    )  # fmt: skip
    statement = Statement(source="openai_costs", account="", start=day, end=day + DAY_S, rows=(row,), read_at=day,
                          settled_until=day, name="costs.json")  # fmt: skip
    await registry.statements.import_statement(statement, actor=ROOT)
    title = f"openai billed {BILL}"
    await registry.insights.merge_findings(
        [
            build_finding(
                "billed_difference",
                ("openai",),
                title=title,
                seen=title,
                advice="Look.",
                effort=LOW,
                category="spend",
            )
        ],
        looked_for=(),
    )


@asynccontextmanager
async def place(directory: Path, *drafts: NewRole) -> AsyncIterator[Place]:
    """Start a server with a person of these roles, and with calls and a bill whose figures all differ."""
    async with operator_server(directory, clock=MovedClock()) as server, without_cookies() as session:
        own = World(OWN)
        await fill(server, own, 0)
        for number, team in enumerate((OWN, "ads")):
            costs = {"cost": COUNTED, "estimated_cost": ESTIMATED} if team == OWN else {"cost": "7"}
            costly = call(
                50 + number, at=server.clock.now() - 3600, team=team, cost_source="reported", **costs
            )
            await add(server.services.spool.log, costly)
        known = server.services.money.ledger.dimensions()
        for draft in drafts:
            await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
        await schedule(server.registry, own, EVA)
        there = Place(server, session, await signed_in(server, "none", EVA), own=own, foreign=own)
        await keep_bill(there)
        yield there


@dataclass(frozen=True)
class Said:
    """The answer of one address or tool."""

    status: int
    text: str


def paths_of(operator_address: OperatorApiAddress, world: World) -> list[str]:
    path = operator_address.path.removeprefix(OPERATOR_API)
    kind = path.split("/")[1]
    path = path.format(
        **{
            name: world.ids.get("comment" if name == "comment" else kind, "1")
            for name in operator_address.path_parameters
        }
    )
    queries = (
        QUERIES.get(operator_address.name, ())
        if operator_address.required
        else ["", *QUERIES.get(operator_address.name, ())]
    )
    return [f"{path}?{query}" if query else path for query in queries]


async def walk(there: Place, names: Collection[str] = ()) -> Mapping[tuple[str, str], Said]:
    """Read every address that shows calls, and all that assistants get. With `names`, read only these addresses."""
    found = {}
    for row in OPERATOR_ADDRESSES:
        streams = any(EVENT_STREAM in content for content in row.gives.values())
        if names and row.name not in names:
            continue
        if row.methods[0] == "GET" and row.needs and row.shows in (SLICED, WHOLE, OPERATION) and not streams:
            for path in paths_of(row, there.own):
                found[row.name, path] = Said(*await there.send("GET", path, None, there.eva))
    for asked, line in () if names else (await everything(there)).items():
        found["assistant", asked] = Said(200, line)
    return found


async def use(there: Place, name: str, **arguments: Any) -> Said:
    params = {"name": name, "arguments": arguments}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    answer = await there.server.over_http("POST", "/mcp", {"line": line}, headers=there.eva)
    return Said(answer.status, json.dumps(answer.payload, ensure_ascii=False))


async def report(there: Place, *asked: str) -> tuple[int, Any]:
    query = "&".join(("range=last_7d", *asked))
    answer = await there.server.over_http("GET", f"/report?{query}", headers=there.eva)
    return answer.status, answer.payload


def names_of(found: Mapping[tuple[str, str], Said], marks: Sequence[str]) -> set[str]:
    return {" ".join(place) for place, said in found.items() if any(mark in said.text for mark in marks)}


async def test_counted_money_alone_is_shown(tmp_path: Path) -> None:
    """
    A role that shows only counted costs shows all calls, and no figure of a bill anywhere. A person with all cost
    types sees the bill at several addresses.
    """
    draft = replace_fields(EVERYWHERE, cost_types=COUNTED_TYPES)
    async with place(tmp_path, draft) as there:
        found = await walk(there)
        assert set() == names_of(found, MADE_OF_BILLS)
        assert {"report /report", "overview /overview", "assistant get_org_context {}"} <= names_of(
            found, MADE_OF_CALLS
        )
        for cost_type in ("billed_cost", "discounted_cost"):
            status, said = await report(there, f"cost_type={cost_type}")
            assert status == 403
            assert said["error"]["type"] == "cost_type"
            assert "your roles show" in (await use(there, "get_cost_data", cost_type=cost_type)).text
        status, said = await report(there, "by=team")
        assert {OWN: "4324.60718", "ads": "7"} == {row["team"]: row["cost"] for row in said["rows"]}
        whole_calls = {row.name for row in OPERATOR_ADDRESSES if row.shows in (WHOLE, OPERATION)}
        names = {name for name, _ in found}
        closed = names - {name for (name, _), said in found.items() if said.status != 403}
        assert names & whole_calls == closed
        session = await there.server.over_http("GET", "/session", headers=there.eva)
        assert (True, list(COUNTED_TYPES)) == tuple(
            session.payload["rights"][each] for each in ("is_limited", "cost_types")
        )
        [role] = [each for each in there.server.registry.roles.all() if each.name == "Part"]
        limits = RoleLimits()
        known = there.server.services.money.ledger.dimensions()
        await there.server.registry.roles.change(
            role.id, {"cost_types": []}, known_dimensions=known, limits=limits, actor=ROOT
        )
        shown = await walk(there, () if IS_LONG else ("list_statements", "list_insights"))
        assert {"list_statements /statements", "list_insights /insights"} <= names_of(shown, MADE_OF_BILLS)


async def test_billed_money_alone_is_shown(tmp_path: Path) -> None:
    """
    A role that shows only billed costs shows the whole bill, and no figure of calls anywhere. Answers that need
    calls are refused with the reason.
    """
    draft = replace_fields(EVERYWHERE, cost_types=("billed_cost",))
    async with place(tmp_path, draft) as there:
        found = await walk(there)
        assert set() == names_of(found, MADE_OF_CALLS)
        for row in OPERATOR_ADDRESSES:
            for path in paths_of(row, there.own):
                if (row.name, path) in found and row.shows == SLICED:
                    said = found[row.name, path]
                    assert said.status == 403, path
                    assert '"cost_type"' in said.text, path
        _, said = await report(there, "cost_type=billed_cost", "by=charge")
        assert {"usage": BILL, "tax": "1"} == {row["charge"]: row["cost"] for row in said["rows"]}
        assert {"through", "days"} == set(said["billed"])
        assert (await report(there))[0] == 403
        assert (await report(there, "cost_type=discounted_cost"))[0] == 403
        assert ".41923" in (await use(there, "get_cost_data", cost_type="billed_cost")).text
        assert "your roles show only billed_cost" in (await use(there, "get_budgets")).text


async def test_roles_unite_by_cost_type(tmp_path: Path) -> None:
    """Each cost type follows the roles that show it: counted costs of one team, and billed costs of all."""
    filters = (RoleFilter(dimension="team", values=("ads",)),)
    of_team = replace_fields(EVERYWHERE, name="Ads", data_access=LIMITED, filters=filters)
    of_bill = replace_fields(EVERYWHERE, cost_types=("billed_cost",))
    async with place(tmp_path, of_team, of_bill) as there:
        _, counted = await report(there, "by=team")
        assert {"ads": "7"} == {row["team"]: row["cost"] for row in counted["rows"]}
        _, billed = await report(there, "cost_type=billed_cost")
        assert "7778.41923" == billed["total"]["cost"]
        _, cut = await report(there, "cost_type=discounted_cost")
        assert "0" == cut["total"]["cost"]


async def test_a_measure_is_of_its_cost_type(tmp_path: Path) -> None:
    """A person with only real_cost may query cost and calls, but no measure of another cost type."""
    draft = replace_fields(EVERYWHERE, cost_types=("real_cost",))
    async with place(tmp_path, draft) as there:
        status, said = await report(there, "show=cost,calls,input_tokens")
        assert status == 200
        assert said["total"]["cost"] == "4331.60718"
        for asked in ("show=estimated", "show=cost,saved", "show=cost&top=1&top_by=reported", "show=saved_by_caching",
                      "show=cost,reported&format=csv", "show=cost&per=hourly&lines=meters", ""):  # fmt: skip
            status, said = await report(there, asked)
            assert status == 403, asked
            assert said["error"]["type"] == "cost_type", asked

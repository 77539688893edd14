"""Reports of billed costs over the operator API, with every grouping that the bill's rows allow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from spool import money
from spool.currencies import SCALE
from spool.ledger.billed import EVERY, BilledDay, BilledSum
from spool.ledger.dimensions import BILLED
from spool.ledger.sums import Dimensions
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.roles import LIMITED, NewRole, RoleFilter, RoleLimits
from tests.integration.operations.money.costs.test_report import NOW, raw, report
from tests.integration.operations.people.test_limited_person import EVA, ROOT
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.spool.contract.examples import add, call

DAY_S = 86400
TODAY = int(NOW.timestamp()) // DAY_S * DAY_S
SPAN = (("from", "2026-09-14"), ("to", "2026-09-20"))
BILL = (("search", "usage", EVERY, 4), ("ads", "usage", EVERY, 3), ("search", "discount", 2, -1),
        ("", "discount", 1, -1), ("", "tax", EVERY, 2))  # fmt: skip


def billed_sum(team: str, charge: str, arranged: int, amount: int) -> BilledSum:
    values: dict[str, Any] = dict.fromkeys(Dimensions._fields, "") | {
        "kind": "call" if team else BILLED,
        "provider": "openai",
    }
    dimensions = Dimensions(**{**values, "size": 0, "team": team, "model": "o3"})
    return BilledSum(dimensions, charge, "exact" if team else "unallocated", arranged, amount * money.UNIT)


async def keep_bill(server: OperatorServer, *more: BilledSum, days_ago: int = 2) -> None:
    """Store one billed day, with a call of a team on it."""
    day = TODAY - days_ago * DAY_S
    await add(server.services.spool.log, call(1, at=day + 5, team="search", cost="9", cost_source="reported"))
    made = BilledDay(
        day=day, provider="openai", state="closed", mark="1", source="openai_costs", read_at=day, made_at=day,
        reasons={"tax": 2 * money.UNIT},
    )  # fmt: skip
    await server.services.money.ledger.store_billed_days(
        [(made, [*(billed_sum(*each) for each in BILL), *more])]
    )


async def begin_bills(server: OperatorServer) -> None:
    """Store an empty bill of an old day, so that bills are known for every later time."""
    day = TODAY - 40 * DAY_S
    empty = BilledDay(
        day=day, provider="openai", state="closed", mark="0", source="openai_costs", read_at=day, made_at=day
    )
    await server.services.money.ledger.store_billed_days([(empty, [])])


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path, clock=MovedClock(NOW.timestamp())) as server:
        await begin_bills(server)
        await keep_bill(server)
        yield server


async def test_a_report_is_in_the_money_of_its_cost_type(server: OperatorServer) -> None:
    """
    A report is in the costs of its cost type. Both cost types have the same total. The default is counted costs,
    without any data of bills.
    """
    for cost_type, search in (("billed_cost", "4"), ("discounted_cost", "3")):
        found = await report(server, *SPAN, ("cost_type", cost_type), ("by", "team"))
        assert found["total"]["cost"] == "8"
        assert found["report"]["cost_type"] == cost_type
        assert {"ads": "3", "search": search} == {
            row["team"]: row["cost"] for row in found["rows"] if row["team"]
        }
        assert {"closed": 1, "provisional": 0, "open": 6} == found["billed"]["days"]
        assert {"tax": "2"} == found["billed"]["by_reason"]
    by_charge = await report(
        server, *SPAN, ("cost_type", "billed_cost"), ("by", "charge"), ("where", "charge!=tax")
    )
    assert {"usage": "7", "discount": "-1"} == {row["charge"]: row["cost"] for row in by_charge["rows"]}
    counted = await report(server, *SPAN, ("by", "team"))
    assert counted["total"]["cost"] == "9"
    assert counted["billed"] is None
    assert counted["report"]["cost_type"] == "real_cost"
    assert "charge" not in counted["report"]["dimensions"]
    asked = (("cost_type", "billed_cost"), ("missing", "counted"), ("by", "basis"))
    filled = await report(server, *SPAN, *asked)
    assert {"exact": "7", "unallocated": "1", "counted": "9"} == {
        row["basis"]: row["cost"] for row in filled["rows"]
    }
    assert filled["total"]["cost"] == "17"
    assert filled["billed"]["counted"] == "9"
    refused = await report(server, *SPAN, ("missing", "counted"), status=400)
    assert "missing applies only to billed costs" in refused["error"]["message"]


async def test_billed_costs_support_comparison_top_and_csv(server: OperatorServer) -> None:
    """Comparison, `top` and CSV work as for counted costs. Cost is the only column."""
    asked = (*SPAN, ("cost_type", "billed_cost"), ("by", "team"), ("top", "1"), ("compare", "previous"))
    found = await report(server, *asked)
    assert [(None, "1", "0"), ("search", "4", "0"), ("(other)", "3", "0")] == [
        (row["team"], row["cost"], row["previous"]["cost"]) for row in found["rows"]
    ]
    text = (await raw(server, *asked, ("format", "csv")))[1]
    assert [",".join(line.split(",")[:3]) for line in text.split()] == [
        "team,cost,previous_cost", ",1,0", "search,4,0", "(other),3,0"
    ]  # fmt: skip


@pytest.mark.parametrize("top", ["1", "99", "100", "500"])
@pytest.mark.parametrize("by", ["charge", "basis", "team"])
async def test_long_lists_of_billed_money_have_the_same_sums(
    server: OperatorServer, by: str, top: str
) -> None:
    """A list of 100 and more groups is read in another way, which must not touch dimensions of bill rows."""
    asked = (*SPAN, ("cost_type", "billed_cost"), ("by", by), ("show", "cost"))
    every = {row[by]: row["cost"] for row in (await report(server, *asked))["rows"]}
    found = (await report(server, *asked, ("top", top), ("top_by", "cost"), ("compare", "previous")))["rows"]
    shown = {row[by]: row["cost"] for row in found}
    if int(top) >= len(every):
        assert every == shown
    assert sum(map(Decimal, every.values())) == sum(map(Decimal, shown.values()))


async def test_billed_money_in_another_currency(server: OperatorServer) -> None:
    """
    Billed costs in another currency are converted at the rate of each day, in rows of any length and in amounts
    beside the rows. Amounts without a rate are listed and are in no sum.
    """
    rates = {TODAY - 2 * DAY_S: Decimal("0.5"), TODAY - 9 * DAY_S: Decimal("0.8")}

    def rate(own: str, other: str, day: int) -> int | None:
        assert (own, other) == ("USD", "EUR")
        return int(rates[day] * SCALE) if day in rates else None

    await keep_bill(server, days_ago=9)
    server.services.money.ledger.rates = rate
    both = (("from", "2026-09-01"), ("to", "2026-09-20"), ("cost_type", "billed_cost"), ("currency", "EUR"))
    for per in ("daily", "weekly", "monthly", "total"):
        found = await report(server, *both, ("by", "charge"), ("per", per))
        by_charge: dict[str, Decimal] = {}
        for row in found["rows"]:
            by_charge[row["charge"]] = by_charge.get(row["charge"], Decimal(0)) + Decimal(row["cost"])
        # 7, -1 and 2 dollars on a day at 0.5 and on a day at 0.8
        assert {"usage": Decimal("9.1"), "discount": Decimal("-1.3"), "tax": Decimal("2.6")} == by_charge
        assert "10.4" == found["total"]["cost"]
        assert ({"tax": "2.6"}, "2.6") == (found["billed"]["by_reason"], found["billed"]["unallocated"])
        assert ("EUR", {}) == (found["report"]["currency"], found["report"]["unconverted"])
    filled = await report(server, *both, ("missing", "counted"), ("by", "basis"))
    # the call of 9 dollars, on a day at 0.5
    assert ("14.9", "4.5") == (filled["total"]["cost"], filled["billed"]["counted"])
    assert ["4.5"] == [each["real_cost"] for each in filled["billed"]["without_statement"]]
    del rates[TODAY - 9 * DAY_S]
    lacking = await report(server, *both, ("by", "charge"))
    assert ("4", {"USD": "8"}) == (lacking["total"]["cost"], lacking["report"]["unconverted"])
    assert {"tax": "1"} == lacking["billed"]["by_reason"]


NOT_TOLD: Sequence[tuple[tuple[str, str], str]] = [
    (("show", "calls"), "only money"),
    (("top_by", "calls"), "only money"),
    (("unit", "user"), "only money"),
    (("per", "hourly"), "per whole day in UTC"),
    (("cost_type", "guessed_cost"), "cost_type"),
]


async def test_query_for_data_missing_from_bills_is_refused(server: OperatorServer) -> None:
    """A query for data that bills lack is refused. The error names what to query instead."""
    for asked, words in NOT_TOLD:
        kind = () if asked[0] == "cost_type" else (("cost_type", "billed_cost"),)
        refused = await report(server, *SPAN, *kind, asked, status=400)
        assert words in refused["error"]["message"], (asked, words)


async def test_a_limited_person_has_the_same_answer_whatever_others_are_billed(tmp_path: Path) -> None:
    """
    Two installations differ only in other teams' bills. A limited person gets equal answers, while answers
    about all calls differ.
    """
    of_others = (
        billed_sum("ads", "usage", EVERY, 50),
        billed_sum("", "credit", EVERY, -7),
        billed_sum("tuning", "usage", EVERY, 2),
    )
    told = []
    for name, more in (("alone", ()), ("with others", of_others)):
        directory = tmp_path / name
        directory.mkdir()
        async with operator_server(directory, clock=MovedClock(NOW.timestamp())) as server:
            await keep_bill(server, *more)
            draft = NewRole(
                name="Part", data_access=LIMITED, filters=(RoleFilter(dimension="team", values=("search",)),),
                permission_sets=(VIEW_COSTS,), members=(EVA,),
            )  # fmt: skip
            known = server.services.money.ledger.dimensions()
            await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ROOT)
            eva = await signed_in(server, "none", EVA)
            answers = []
            for cost_type in ("billed_cost", "discounted_cost"):
                span = "&".join(f"{name}={value}" for name, value in (*SPAN, ("cost_type", cost_type)))
                for by in ("", "team", "charge,basis", "model", "team&top=1", "team&compare=previous"):
                    answer = await server.over_http("GET", f"/report?{span}&by={by}", headers=eva)
                    assert 200 == answer.status, answer.payload
                    answers.append(answer.payload)
            whole = await report(server, *SPAN, ("cost_type", "billed_cost"))
            told.append((answers, whole["total"]["cost"]))
    (before, whole_before), (after, whole_after) = told
    assert before == after
    assert whole_before == "8"
    assert whole_after == "53"
    assert before[0]["total"]["cost"] == "4"
    assert set(before[0]["billed"]) == {"through", "days"}
    assert "3" == before[6]["total"]["cost"]

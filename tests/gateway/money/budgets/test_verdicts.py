"""The table of verdicts: equal to the ledger, signed, the same from every gateway, and with its problems."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from gateway.core.errors import Refusal
from gateway.devices.agent.policy.signatures import PublicKey
from gateway.money.budgets import joined, verdicts
from gateway.money.budgets.declared import BudgetTable, NewBudget, ViewName
from gateway.money.budgets.verdicts import (
    ACTING,
    ALL,
    NEAR,
    OVER,
    RENEW_S,
    WITHIN,
    BudgetVerdictBoard,
    BudgetVerdicts,
    SourceDelay,
)
from spool.ledger.dimensions import BILLED_TYPES, TOTAL
from spool.ledger.queries import CostQuery
from spool.ledger.sums import DAY_S
from spool.ledger.token_sums import TokenSum
from spool.record import NS, Correction, Inference
from spool.registry.views import NewView
from tests.gateway.money.budgets.house import ADA, KNOWN, House
from tests.spool.ledger.rebuilding import rebuild_without_end
from tests.spool.ledger_log import FakePrices

NOW = 1_790_000_000.0


@pytest.fixture
async def house() -> House:
    return await House(at=NOW).start()


async def read(house: House, name: str = ALL, board: BudgetVerdictBoard | None = None) -> BudgetVerdicts:
    signed = await (board or house.evaluator.verdicts).current_signed_table(name)
    return msgspec.json.decode(signed.body, type=BudgetVerdicts)


def board_of(house: House) -> BudgetVerdictBoard:
    """Return the board of another gateway on the same registry and ledger."""
    return BudgetVerdictBoard(
        house.registry, house.ledger, house.log, house.clock, house.evaluator.budget_ledger
    )


@pytest.mark.parametrize(
    ("dollars", "state"), [("9.95", WITHIN), ("9.96", NEAR), ("11.999", NEAR), ("12", OVER), ("99", OVER)]
)
async def test_states(house: House, dollars: str, state: str) -> None:
    """The highest threshold below 100 % makes a verdict near, and the whole amount makes it over."""
    budget = await house.budget(
        await house.view(), default_amount="12", alerts={"1": "Y", "83": "Y", "150": "Y"}
    )
    house.spend(dollars)
    [row] = (await read(house)).rows
    assert (budget.id, state, dollars, "12") == (row.budget, row.state, row.spent, row.limit)
    left = max(Decimal(0), Decimal(12) - Decimal(dollars))
    assert left == Decimal(row.left or "")
    acting = await read(house, ACTING)
    assert [] == acting.rows if state == WITHIN else [row] == acting.rows
    assert [budget.id] == acting.budgets


async def test_it_equals_the_ledger_after_each_drain(house: House) -> None:
    """Sums by owner equal a count by hand to the last digit, and the table follows within ten seconds."""
    await house.budget(await house.view(), per="team", default_amount="1")
    chance = random.Random(20261128)
    by_hand: dict[str, Decimal] = {}
    for _ in range(12):
        for _ in range(chance.randrange(4)):
            team, dollars = chance.choice(["search", "ads", "ops"]), f"0.{chance.randrange(1, 10**9):09}"
            house.spend(dollars, team=team)
            by_hand[team] = by_hand.get(team, Decimal(0)) + Decimal(dollars)
        house.clock.at += verdicts.REFRESH_S
        rows = (await read(house)).rows
        assert by_hand == {row.owner: Decimal(row.spent or "") for row in rows}
        assert [row.state for row in rows] == sorted(
            (row.state for row in rows), key=[OVER, NEAR, WITHIN].index
        )
        assert {row.owner: row.state == OVER for row in rows} == {
            team: sum >= 1 for team, sum in by_hand.items()
        }


class Repriced(FakePrices):
    """Prices at which the calls of a group cost a random total."""

    def __init__(self, chance: random.Random) -> None:
        self._cost = f"{chance.uniform(0, 2):.9f}"

    def estimate_sum(self, total: TokenSum) -> str | None:
        return self._cost


async def reprice(house: House, chance: random.Random) -> None:
    await house.ledger.reprice(house.log, Repriced(chance), since=datetime.fromtimestamp(NOW - DAY_S, UTC))


async def recount(house: House, chance: random.Random) -> None:
    await house.ledger.rebuild(house.log)
    await house.ledger.catch_up(house.log)


async def correct_last(house: House, chance: random.Random) -> None:
    """A late report changes the cost of the newest call in the table of verdicts."""
    calls = [record for entry in house.log.entries for record in entry.records]
    last = next(record for record in reversed(calls) if isinstance(record, Inference))
    if any(isinstance(record, Correction) and record.corrects == last.id for record in calls):
        return
    after = msgspec.structs.replace(last, estimated_cost=f"0.{chance.randrange(10**9):09}")
    late = Correction(
        id=bytes([len(calls)]) * 16, source="litellm", corrects=last.id, reason="late_usage",
        known_at=int(NOW) * NS, start_time=last.start_time or 0, before=last, after=after,
    )  # fmt: skip
    house.log.add([late], at=house.clock.at)


async def test_it_equals_the_ledger_after_corrections_prices_and_recounts(house: House) -> None:
    """
    Late reports, new prices and a recount in random order change the rows as they change the totals. A row that was
    over may turn back.
    """
    await house.budget(await house.view(), per="team", default_amount="1")
    chance = random.Random(82)
    back_again = 0
    before: dict[str | None, str] = {}
    for step in range(40):
        team = chance.choice(["search", "ads", "ops"])
        if step % 4 == 3:
            await chance.choice([reprice, recount, correct_last])(house, chance)
        else:
            house.spend(f"0.{chance.randrange(1, 10**9):09}", team=team)
        house.clock.at += verdicts.REFRESH_S
        rows = {row.owner: row for row in (await read(house)).rows}
        query = CostQuery(
            since=datetime.fromtimestamp(NOW - DAY_S, UTC),
            until=datetime.fromtimestamp(NOW + DAY_S, UTC),
            granularity=TOTAL,
            group_by=["team"],
        )
        counted = {row.group[0]: Decimal(row.cost) for row in await house.ledger.costs(query)}
        assert counted == {owner: Decimal(row.spent or "") for owner, row in rows.items()}
        assert all((row.state == OVER) == (counted[row.owner or ""] >= 1) for row in rows.values())
        back_again += sum(before.get(owner) == OVER != row.state for owner, row in rows.items())
        before = {owner: row.state for owner, row in rows.items()}
    assert back_again > 0


async def test_all_gateways_return_the_same_signed_bytes(house: House) -> None:
    """The table of verdicts is signed with the key of the installation, also after a restart."""
    await house.budget(await house.view(), default_amount="1")
    house.spend("2")
    one = await house.evaluator.verdicts.current_signed_table(ACTING)
    other = await board_of(house).current_signed_table(ACTING)
    assert one == other
    key = PublicKey(house.evaluator.verdicts.signing_key.public_pem)
    assert key.is_valid_signature(one.signature, one.body)
    assert not key.is_valid_signature(one.signature, one.body + b" ")
    await house.restart()
    assert one == await house.evaluator.verdicts.current_signed_table(ACTING)


async def test_a_table_is_renewed_before_it_ends(house: House) -> None:
    """
    Without new rows in the ledger, a table of verdicts keeps its bytes for a minute. With new rows, it changes
    within ten seconds.
    """
    board = house.evaluator.verdicts
    await house.budget(await house.view(), default_amount="1")
    house.spend("2")
    first = await board.current_signed_table(ACTING)
    house.clock.at += RENEW_S - 1
    assert first == await board.current_signed_table(ACTING)
    house.clock.at += verdicts.REFRESH_S
    second = await read(house, ACTING)
    assert (1, 2) == (msgspec.json.decode(first.body, type=BudgetVerdicts).version, second.version)
    assert verdicts.parse_time_s(second.valid_until) == house.clock.at + 300
    house.spend("3")
    house.clock.at += verdicts.REFRESH_S
    assert "5" == (await read(house, ACTING)).rows[0].spent


async def test_budgets_that_an_enforcer_cannot_follow_are_problems(house: House) -> None:
    """Budgets by status, by a dimension that is unknown before a call, or of billed costs have no verdict."""
    known = (*KNOWN, "status")
    failed = await house.registry.views.create(
        NewView(name="failed", principal_dimension="model", filter={"status": ("error",)}),
        known_dimensions=known,
        max_rows=9,
        actor=ADA,
    )
    by_status = await house.budget(failed)
    view = await house.view(name="all")
    new = NewBudget(name="Regions", view=ViewName(id=view.id), default_amount="1", per="region")
    per_region = await house.registry.declared_table(BudgetTable).create(
        new, known_dimensions=(*KNOWN, "region"), max_rows=9, actor=ADA
    )
    billed = await house.budget(view, name="Bills", cost_type=next(iter(BILLED_TYPES)))
    fine = await house.budget(
        await house.view({"tag:service": ("shop",), "!team": ("ads",)}, name="fine"), name="Fine"
    )
    table = await read(house)
    problems = {problem.budget: problem.problem for problem in table.problems}
    assert {by_status.id, per_region.id, billed.id} == {*problems}
    assert "does not know status before a call" in problems[by_status.id]
    assert "does not know region before a call" in problems[per_region.id]
    assert "billed costs" in problems[billed.id]
    [row] = table.rows
    assert (fine.id, {"tag:service": ["shop"]}, {"team": ["ads"]}) == (
        row.budget,
        row.match.include,
        row.match.exclude,
    )


async def test_while_totals_are_counted_again_the_table_stays(house: House) -> None:
    await house.budget(await house.view(), default_amount="1")
    house.spend("2")
    async with rebuild_without_end(house.ledger):
        with pytest.raises(Refusal) as refusal:
            await house.evaluator.verdicts.current_signed_table(ACTING)
    assert 503 == refusal.value.status
    before = await house.evaluator.verdicts.current_signed_table(ACTING)
    house.spend("3")
    house.clock.at += 2 * RENEW_S
    async with rebuild_without_end(house.ledger):
        assert before == await house.evaluator.verdicts.current_signed_table(ACTING)


async def test_amounts_may_be_left_out(house: House) -> None:
    """In a table without amounts, further spend of a budget that is already over makes no new table."""
    board = BudgetVerdictBoard(
        house.registry, house.ledger, house.log, house.clock, house.evaluator.budget_ledger, lambda: False
    )
    await house.budget(await house.view(), default_amount="1")
    house.spend("2")
    first = await board.current_signed_table(ALL)
    assert b'"spent":null,"limit":null,"left":null' in first.body
    house.spend("3")
    house.clock.at += verdicts.REFRESH_S
    assert first == await board.current_signed_table(ALL)
    assert "5" == (await read(house, board=board_of(house))).rows[0].spent


async def test_delays_of_sources(house: House) -> None:
    """
    The delay of a source is measured from the end of a call to its commit. A call that ended later, by its own
    clock, has none.
    """
    for seconds in range(200):
        house.spend("1", source="kong", end_time=int((NOW - seconds) * NS))
    house.spend("1", source="litellm", end_time=int((NOW + 9) * NS))
    house.spend("1", source="otel", end_time=None)
    first = await read(house)
    assert {
        "kong": SourceDelay(calls=200, median_s=99.0, most_s=197.0),
        "litellm": SourceDelay(calls=1, median_s=0.0, most_s=0.0),
    } == first.delays
    house.clock.at += verdicts.REFRESH_S
    other = board_of(house)
    other._delays, other._measured_at = {}, house.clock.monotonic()
    assert first == await read(house, board=other)  # another gateway's measurement makes no new table


async def test_rows_are_limited(house: House, monkeypatch: Any) -> None:
    """
    At the limit, a table of verdicts is complete. Above it, the rows that are over come first, and the table says
    that rows are missing.
    """
    view = await house.view()
    await house.budget(view, per="team", default_amount="1")
    for number in range(3):
        house.spend("2" if number else "0.95", team=f"team {number}")
    monkeypatch.setattr(verdicts, "MAX_ROWS", 3)
    assert not (await read(house)).truncated
    monkeypatch.setattr(verdicts, "MAX_ROWS", 2)
    table = await read(house, board=board_of(house))
    house.clock.at += RENEW_S
    table = await read(house)
    assert table.truncated
    assert [OVER, OVER] == [row.state for row in table.rows]


async def test_one_query_for_many_budgets_equals_a_query_for_each(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Budgets that differ in one value of their views share a query. Its sums equal those of single queries, for random
    calls, views, measures and periods.
    """
    chance = random.Random(828)
    monkeypatch.setattr(joined, "MOST_ROWS", 14)
    values = {
        "team": ["search", "ads", "ops", "a@example.com", "other"],
        "model": ["m1", "m2"],
        "tag:service": ["shop", "desk"],
    }
    kinds = [["team"], ["team"], ["team"], ["team", "tag:service"], ["model"], [*values]]
    budgets = []
    for number in range(40):
        filter = {
            name: tuple(chance.sample(values[name], chance.choice([1, 1, 1, 1, 2])))
            for name in chance.choice(kinds)
        }
        more = {"!model": ("m9",)} if "model" not in filter and chance.random() < 0.2 else {}
        view = await house.view({**filter, **more}, name=f"view {number}")
        fields = {
            "measure": chance.choice(["cost", "cost", "calls"]),
            "granularity": chance.choice(["daily", "monthly", "monthly"]),
            "per": chance.choice([None, "model"]),
        }
        budgets.append((await house.budget(view, name=f"budget {number}", **fields), view))
    queries: list[CostQuery] = []
    costs = house.ledger.costs

    async def noted(query: CostQuery) -> Any:
        queries.append(query)
        return await costs(query)

    monkeypatch.setattr(house.ledger, "costs", noted)
    sizes: dict[str, int] = {}
    shared = 0
    for _ in range(6):
        for _ in range(20):
            team, model = chance.choice([*values["team"], None]), chance.choice(["m1", "m2", "m9"])
            tags = chance.choice([{}, {"service": "shop"}, {"service": "desk"}])
            house.spend(f"0.{chance.randrange(1, 10**9):09}", team=team, request_model=model, tags=tags)
        await house.ledger.catch_up(house.log)
        together, alone = house.evaluator.budget_ledger(), house.evaluator.budget_ledger()
        await together.read_sums_of_similar_budgets(budgets, sizes)
        shared += len(queries)
        for budget, view in budgets:
            in_common, single = (
                await together.read_running_figures(budget, view),
                await alone.read_running_figures(budget, view),
            )
            assert single.periods == in_common.periods
            sizes[budget.id] = single.periods[0].owner_count
        queries.clear()
    assert shared > 10

"""Budgets over a ledger: notifications across restarts, late calls, changed prices and changed budgets."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from msgspec.structs import replace as changed

from gateway.money.budgets.declared import ACTUAL, BUDGETS, FIRED, BudgetTable, Silence
from gateway.money.budgets.judging import judge_all, rules_digest
from gateway.money.budgets.notice_texts import CROSSED, EXPECTED, TAKEN_BACK
from spool import money
from spool.errors import Invalid
from spool.ledger.queries import CostQuery, CostRow
from spool.ledger.token_sums import TokenSum
from spool.listing import ListQuery, SortField
from spool.record import NS, Correction, Inference, utc_iso
from spool.registry.documents import replace_fields
from spool.registry.insights import Insight
from spool.registry.views import ViewConnections
from tests.gateway.money.budgets.house import ADA, House, monthly
from tests.spool.ledger_log import HOUR, FakePrices

DAY = 24 * HOUR
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
NOW = NOVEMBER + 10 * DAY


async def opened(**options: int) -> House:
    """Start an installation whose budgets have existed since October."""
    return await House(at=NOVEMBER - 10 * DAY, **options).start()


async def insights(house: House) -> list[Insight]:
    query = ListQuery(sort=SortField("title"), order="asc", identity="id", limit=50)
    return [insight for insight in (await house.registry.insights.page(query)).rows if insight.present]


async def test_threshold_is_sent_once_over_restarts() -> None:
    """
    A crossing is stored for each channel, shown as an insight, and sent once, however often it is evaluated.
    """
    house = await opened()
    budget = await house.budget(await house.view())
    house.clock.at = NOW
    await house.evaluate()
    house.spend("85.00")
    for _ in range(3):
        await house.evaluate()
        await house.restart()
    assert [(CROSSED, "80 %")] == await house.told() == await house.told("oncall")
    [notice] = [
        notification.notice
        for notification in await house.notifications()
        if notification.channel == "oncall"
    ]
    assert notice.fields["actual"] == "85"
    assert notice.fields["planned"] == "100"
    assert notice.link.endswith(f"/console/#/budgets?open={budget.id}")
    [insight] = await insights(house)
    assert insight.category == "budget"
    assert insight.title == "Budget Search is past 80 % of $100.00"
    house.spend("20")
    await house.evaluate()
    assert [(CROSSED, "80 %"), (CROSSED, "100 %")] == await house.told()
    assert ["warning", "critical"] == [
        notification.notice.severity
        for notification in await house.notifications()
        if notification.channel == "oncall"
    ]
    [insight] = await insights(house)
    assert "5.00" == insight.cost_impact


async def test_a_new_budget_is_quiet_about_what_it_is_past_already() -> None:
    """
    The first evaluation of a new budget marks thresholds below the current spend as fired, without a notification.
    The next threshold that is crossed is sent.
    """
    house = await opened()
    view = await house.view()
    house.clock.at = NOW
    house.spend("85")
    budget = await house.budget(view)
    await house.evaluate()
    assert [] == await house.told()
    [period] = await house.registry.declared_table(BudgetTable).alerts_of_budget(budget.id)
    assert [(50, FIRED, False), (80, FIRED, False)] == [
        (alert.percent, alert.state, alert.told) for alert in period.owners[""]
    ]
    house.spend("20")
    await house.evaluate()
    assert [(CROSSED, "100 %")] == await house.told()


async def test_a_changed_amount_arms_the_thresholds_again() -> None:
    """
    After the amount is raised, 80 % is a higher sum, and crossing it is sent again. A new name does
    not reset thresholds.
    """
    house = await opened()
    budget = await house.budget(await house.view())
    house.clock.at = NOW
    house.spend("85")
    await house.evaluate()
    await house.registry.declared_table(BudgetTable).change(
        budget.id, {"name": "New"}, known_dimensions=(), actor=ADA
    )
    await house.evaluate()
    assert [(CROSSED, "80 %")] == await house.told()
    await house.registry.declared_table(BudgetTable).change(
        budget.id, {"default_amount": "1000"}, known_dimensions=(), actor=ADA
    )
    await house.evaluate()
    assert [] == await insights(house)
    house.spend("800")
    await house.evaluate()
    assert [(CROSSED, "80 %")] * 2 == await house.told()
    assert 2 == len({notification.notice.id for notification in await house.notifications()})


async def test_each_period_has_its_own_alerts() -> None:
    """
    Thresholds fire again in December. A November call that arrives on 2 December fires November's threshold,
    marked as late.
    """
    house = await opened()
    await house.budget(
        await house.view(),
        planned_limits=monthly({"2026-11-01": "10", "2026-12-01": "1000"}),
        default_amount="",
    )
    house.clock.at = NOW
    await house.evaluate()
    house.clock.at = NOVEMBER + 31 * DAY
    house.spend("9", at=NOW)
    house.spend("900")
    await house.evaluate()
    assert [(CROSSED, "80 %")] * 2 == await house.told()
    notices = [
        notification.notice for notification in await house.notifications() if notification.channel == "costs"
    ]
    late = [notice for notice in notices if "late" in notice.text]
    assert ["monthly from 2026-11-01 (UTC)"] == [notice.fields["period"] for notice in late]
    house.clock.at = NOVEMBER + 34 * DAY
    house.spend("90", at=NOW)
    await house.evaluate()
    assert 2 == len(await house.told())


async def test_changed_amount_leaves_alerts_of_closed_periods() -> None:
    """
    A changed amount on 1 December applies to December. November's alerts stay, and late calls fire none of them.
    """
    house = await opened()
    budget = await house.budget(await house.view())
    house.clock.at = NOW
    house.spend("55")
    await house.evaluate()
    house.clock.at = NOVEMBER + 30 * DAY + HOUR
    await house.registry.declared_table(BudgetTable).change(
        budget.id, {"default_amount": "60"}, known_dimensions=(), actor=ADA
    )
    house.spend("55", at=NOW)
    await house.evaluate()
    assert [(CROSSED, "50 %")] == await house.told()
    november, december = await house.registry.declared_table(BudgetTable).alerts_of_budget(budget.id)
    assert [(alert.percent, alert.told) for alert in november.owners[""]] == [(50, True)]
    assert december.owners == {}


class Halved(FakePrices):
    def estimate_sum(self, total: TokenSum) -> str | None:
        return "0.5"


async def test_price_change_below_a_sent_threshold_sends_one_correction() -> None:
    """
    If prices change and the costs drop below a sent threshold, one correction is sent. Crossing the threshold
    again sends nothing.
    """
    house = await opened()
    await house.budget(await house.view())
    house.clock.at = NOW
    house.spend("85")
    await house.evaluate()
    await house.ledger.reprice(house.log, Halved(), since=datetime.fromtimestamp(NOVEMBER, UTC))
    await house.evaluate()
    await house.evaluate()
    assert [(CROSSED, "80 %"), (TAKEN_BACK, "80 %")] == await house.told()
    assert [] == await insights(house)
    house.spend("84")
    await house.evaluate()
    assert 2 == len(await house.told())


async def test_sum_below_a_sent_threshold_sends_one_correction() -> None:
    """
    If a late report or a reversal lowers the sum below a sent threshold, one correction is sent. The change
    counts in the period of the call.
    """
    house = await opened()
    await house.budget(await house.view())
    house.clock.at = NOW
    house.spend("45", cost="45", cost_source="reported", meters={"web_searches": 3})
    house.spend("40")
    await house.evaluate()
    [first, _] = [record for entry in house.log.entries for record in entry.records]
    assert isinstance(first, Inference)
    costs = [changed(first, cost=cost) for cost in ("45", "0", "60")]
    for index, (before, after) in enumerate(pairwise(costs)):
        late = Correction(
            id=bytes([index]) * 16, source="openrouter", corrects=first.id, reason="final_cost",
            known_at=int(NOW) * NS, start_time=int(NOW) * NS, before=before, after=after,
        )  # fmt: skip
        house.log.add([late], at=NOW)
        await house.evaluate()
        await house.evaluate()
    assert [(CROSSED, "80 %"), (TAKEN_BACK, "80 %"), (CROSSED, "100 %")] == await house.told()


async def test_rebuild_of_sums_sends_no_correction() -> None:
    """During a rebuild the sums are incomplete, so no alert is taken back."""
    house = await opened()
    await house.budget(await house.view())
    house.clock.at = NOW
    house.spend("85")
    await house.evaluate()
    await house.ledger.rebuild(house.log)
    assert (await house.evaluate()).waits
    await house.ledger.catch_up(house.log)
    assert (await house.evaluate()).waits is None
    assert [(CROSSED, "80 %")] == await house.told()


async def test_each_owner_has_the_amount_of_its_own() -> None:
    """With `per = team`, each team crosses thresholds separately. All calls without a team have one owner."""
    house = await opened()
    budget = await house.budget(await house.view(), per="team")
    house.clock.at = NOW
    for team, dollars in (("a", "85"), ("b", "10"), (None, "120")):
        house.spend(dollars, team=team)
    await house.evaluate()
    assert [(CROSSED, "80 %"), (CROSSED, "100 %")] == sorted(
        await house.told(), key=lambda each: len(each[1])
    )
    named = {notification.notice.fields["owner"] for notification in await house.notifications()}
    assert {"a", "unknown"} == named
    [insight] = await insights(house)
    assert "Budget Search: 2 of team past a threshold" == insight.title
    [period] = await house.registry.declared_table(BudgetTable).alerts_of_budget(budget.id)
    assert {"", "a"} == set(period.owners)


async def test_a_bound_leaves_out_the_owners_that_spend_least() -> None:
    """
    Above `budgets.max_owners`, only the largest owners are evaluated. The figures state the number left out.
    """
    house = await opened(max_owners=2)
    budget = await house.budget(await house.view(), per="team")
    house.clock.at = NOW
    for number in range(5):
        house.spend(str(90 + number), team=f"t{number}")
    await house.evaluate()
    running = house.evaluator.figures[budget.id].periods[0]
    assert set(running.spent) == {"t4", "t3"}
    assert running.owners_left_out == 3
    assert 2 == len(await house.told())


async def test_a_silence_notes_and_does_not_send() -> None:
    """Until the silence ends, crossings are shown but not sent."""
    house = await opened()
    budget = await house.budget(
        await house.view(), silence=Silence(until=utc_iso(NOW + DAY), reason="migration")
    )
    house.clock.at = NOW
    house.spend("85")
    await house.evaluate()
    assert [] == await house.told()
    assert 1 == len(await insights(house))
    house.clock.at = NOW + DAY
    house.spend("16")
    await house.evaluate()
    assert [(CROSSED, "100 %")] == await house.told()
    [period] = await house.registry.declared_table(BudgetTable).alerts_of_budget(budget.id)
    assert [False, False, True] == [alert.told for alert in period.owners[""] if alert.kind == ACTUAL]


async def test_forecast_is_sent_before_the_money_is_spent() -> None:
    """
    After ten days of $5 per day out of $100, the forecast passes 100 %. It is sent once it has held for six hours.
    """
    house = await opened()
    await house.budget(await house.view(), forecast_alerts={"100": "Y"}, alerts={})
    house.clock.at = NOW
    for day in range(-20, 10):
        house.spend("5", at=NOVEMBER + day * DAY + 12 * HOUR)
    for _ in range(3):
        await house.evaluate()
        house.clock.at += 3 * HOUR
    assert [(EXPECTED, "100 %")] == await house.told()
    [notice] = [
        notification.notice for notification in await house.notifications() if notification.channel == "costs"
    ]
    assert 145 < float(notice.fields["forecast"]) < 155


async def test_the_channels_are_those_of_the_budget_or_of_its_view() -> None:
    """The channels of the budget apply, or else those of its view. A deleted channel name is ignored."""
    house = await opened()
    view = await house.view(connections=ViewConnections(notify=("oncall", "gone")))
    budget = await house.budget(view)
    house.clock.at = NOW
    house.spend("55")
    await house.evaluate()
    assert len(await house.told("costs")) == 0
    assert len(await house.told("oncall")) == 1
    await house.registry.declared_table(BudgetTable).change(
        budget.id, {"channels": ("costs",)}, known_dimensions=(), actor=ADA
    )
    house.spend("50")
    await house.evaluate()
    assert len(await house.told("costs")) == 1
    assert len(await house.told("oncall")) == 1


async def test_a_broken_view_is_an_insight_and_no_silence() -> None:
    """
    If a view uses a tag that is no longer configured, its budgets have no figures (not zeros), and an insight
    reports the problem.
    """
    house = await opened()
    budget = await house.budget(await house.view({"tag:service": ("search",)}))
    house.clock.at = NOW
    house.spend("85", tags={"service": "search"})
    await house.evaluate()
    assert [(CROSSED, "80 %")] == await house.told()
    house.known = ()
    await house.restart()
    done = await house.evaluate()
    assert done.evaluated == 0
    assert done.broken == 1
    assert "tag:service" in str(house.evaluator.figures[budget.id].problem)
    [insight] = await insights(house)
    assert "Budget Search is not evaluated" == insight.title
    house.known = ("service",)
    await house.restart()
    await house.evaluate()
    assert [(CROSSED, "80 %")] == await house.told()


async def test_a_budget_that_changes_meanwhile_is_left_to_the_next_evaluation() -> None:
    """New rules are not applied to figures that were read under the old rules."""
    house = await opened()
    budget = await house.budget(await house.view())
    house.clock.at = NOW
    house.spend("85")
    books = house.evaluator.budget_ledger()
    await house.ledger.catch_up(house.log)
    stale = await books.read_figures(
        replace_fields(budget, default_amount="1"), house.registry.views.find(budget.view_id)
    )
    await house.evaluate()
    judged = await house.registry.declared_table(BudgetTable).judge_and_store_alerts(
        lambda kept: judge_all({budget.id: stale}, kept, now=NOW, channels=("costs",), link=lambda _: "")
    )
    assert judged.alerts == []
    assert judged.notices == []
    assert judged.findings is None


async def test_one_budget_does_not_wait_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A changed budget is evaluated separately during a full evaluation. Its older figures take back no alert.
    """
    house = await opened()
    changed = await house.budget(await house.view())
    await house.budget(await house.view({"model": ("slow",)}, name="Slow"), name="Slow")
    house.clock.at = NOW
    house.spend("10")
    held, released, costs = asyncio.Event(), asyncio.Event(), house.ledger.costs

    async def slow(query: CostQuery) -> Sequence[CostRow]:
        if query.include:
            held.set()
            await released.wait()
        return await costs(query)

    monkeypatch.setattr(house.ledger, "costs", slow)
    running = asyncio.create_task(house.evaluator.run())
    await held.wait()
    house.spend("75")
    assert await house.evaluator.evaluate_budget_if_totals_complete(changed)
    assert [(CROSSED, "80 %")] == await house.told()
    assert {changed.id} == set(house.evaluator.figures)
    assert not released.is_set()
    released.set()
    await house.evaluate()  # this evaluation starts after the running one has ended
    assert [(CROSSED, "80 %")] == await house.told()
    running.cancel()
    await asyncio.wait([running])


@pytest.mark.proves("insights about deleted things")
async def test_the_insight_of_a_deleted_budget_is_not_open() -> None:
    """
    After the next evaluation, the insight of the deleted budget is closed. Insights of other budgets stay.
    """
    house = await opened()
    view = await house.view()
    deleted, other_budget = await house.budget(view), await house.budget(view, name="Other")
    house.clock.at = NOW
    house.spend("150")
    await house.evaluate()
    await house.registry.declared_table(BudgetTable).delete(deleted.id, actor=ADA)
    await house.evaluate()
    statuses = {
        insight.present: insight.status for insight in await house.registry.insights.detector_insights()
    }
    assert {True: "new", False: "addressed"} == statuses
    await house.registry.declared_table(BudgetTable).delete(other_budget.id, actor=ADA)
    await house.evaluate()
    assert {"addressed"} == {insight.status for insight in await house.registry.insights.detector_insights()}


async def test_upgrade_leaves_budget_digests_and_sends_no_alert_again() -> None:
    """
    Budgets of earlier releases had no cost type and no currency. Their digest of the rules is unchanged, so
    an upgrade sends no alert again.
    """
    budget = BUDGETS.build_row_from_body({
        "name": "Search", "view_id": "v", "planned": {"2026-11-01": "5"}, "default_amount": "1", "alerts": {"80": "Y"},
        "forecast_alerts": {}, "id": "b", "created": 1.0, "last_updated": 1.0, "rules_since": 1.0,
    })  # fmt: skip
    before = "7930aa069e85e3b35b09cfa6d761a32d"
    assert before == rules_digest(budget, None)
    assert before != rules_digest(replace_fields(budget, cost_type="metered_cost"), None)
    assert before != rules_digest(replace_fields(budget, currency="EUR"), None)


async def test_a_budget_of_a_meter_counts_its_quantity() -> None:
    """Searches are counted to a millionth, without cached calls. An unknown measure is rejected."""
    house = await opened()
    view = await house.view()
    budget = await house.budget(view, measure="web_searches", default_amount="10", alerts={"80": "Y"})
    seconds = await house.budget(view, name="Sound", measure="audio_seconds", default_amount="3", alerts={})
    house.clock.at = NOW
    await house.evaluate()
    house.spend("1", meters={"web_searches": 7, "audio_seconds": "2.5"})
    house.spend("1", meters={"web_searches": 2})
    house.spend("1", meters={"web_searches": 90}, status="cached")
    await house.evaluate()
    spent = {id: each.periods[0].total_spend.actual for id, each in house.evaluator.figures.items()}
    assert {budget.id: 9 * money.UNIT, seconds.id: 5 * money.UNIT // 2} == spent
    [notice] = [
        notification.notice for notification in await house.notifications() if notification.channel == "costs"
    ]
    assert "9 web searches" in notice.text and "$" not in notice.text
    with pytest.raises(Invalid, match="cost, tokens, calls, a meter such as web_searches"):
        await house.budget(view, name="Wrong", measure="searches")

"""
Each threshold is sent once even if the process is killed at any commit, and actual spend equals a recount.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.money.budgets.declared import GRANULARITIES, MEASURES
from gateway.money.budgets.notice_texts import CROSSED
from gateway.money.budgets.periods import period_at
from spool import money
from spool.registry.documents import replace_fields
from tests.gateway.money.budgets.house import House, Killed
from tests.rounds import examples
from tests.spool.ledger_log import HOUR

DAY = 24 * HOUR
NOVEMBER = datetime(2026, 11, 1, tzinfo=UTC).timestamp()
PERCENTS = (20, 50, 80, 100)

steps = st.lists(
    st.sampled_from(["spend", "evaluate", "kill before", "kill after", "restart", "hour", "month"]),
    max_size=40,
)


@settings(deadline=None, max_examples=examples(40))
@given(steps)
def test_kills_and_restarts_send_each_threshold_once(course: list[str]) -> None:
    """
    The process is killed before or after commits, restarted, and spends in new months, in random order.

    For each month, exactly those thresholds were sent that were the highest new crossing of an evaluation.
    """
    asyncio.run(_run(course))


async def _run(course: list[str]) -> None:
    house = await House(at=NOVEMBER).start()
    await house.budget(
        await house.view(), alerts={str(percent): "Y" for percent in PERCENTS}, granularity="monthly"
    )
    await house.evaluate()
    spent: Counter[str] = Counter()
    known: dict[str, int] = {}  # for each month, the highest percentage that is known to be crossed
    expected: Counter[tuple[str, str]] = Counter()
    for step in [*course, "evaluate"]:
        month = period_at(house.clock.at, "monthly", UTC).first_day
        match step:
            case "spend":
                house.spend("13")
                spent[month] += 13
            case "restart":
                await house.restart()
            case "hour":
                house.clock.at += HOUR
            case "month":
                house.clock.at = period_at(house.clock.at, "monthly", UTC).end.timestamp()
            case _:
                house.store.kill = step.removeprefix("kill ") if step.startswith("kill") else ""
                with suppress(Killed):
                    await house.evaluate()
                if step == "kill before":
                    await house.restart()
                    continue
                if step == "kill after":
                    await house.restart()
                for first_day, dollars in spent.items():
                    end = period_at(
                        datetime.fromisoformat(f"{first_day}T00Z").timestamp(), "monthly", UTC
                    ).end.timestamp()
                    if end <= house.clock.at - 3 * DAY:
                        continue
                    crossed = max((percent for percent in PERCENTS if dollars >= percent), default=0)
                    if crossed > known.get(first_day, 0):
                        expected[first_day, f"{crossed} %"] += 1
                        known[first_day] = crossed
    notices = Counter(
        (
            notification.notice.fields["period"][len("monthly from ") :][:10],
            notification.notice.fields["threshold"],
        )
        for notification in await house.notifications()
        if notification.channel == "costs" and notification.notice.kind == CROSSED
    )
    assert expected == notices
    assert all(count == 1 for count in notices.values())


ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Tokyo", "America/Sao_Paulo")
amounts = st.decimals(0, 1000, places=12, allow_nan=False, allow_infinity=False).map("{:f}".format)
calls = st.lists(
    st.fixed_dictionaries({
        "at": st.integers(-40 * DAY, 0),
        "dollars": amounts,
        "team": st.sampled_from(["a", "b", None]),
        "model": st.sampled_from(["gpt-4o", "haiku"]),
        "status": st.sampled_from(["ok", "error", "cached"]),
        "tokens": st.integers(0, 10_000),
    }),
    max_size=30,
)  # fmt: skip
filters = st.fixed_dictionaries(
    {},
    optional={
        "team": st.sampled_from([("a",), ("a", ""), ("",)]),
        "!model": st.just(("haiku",)),
        "!team": st.just(("b",)),
    },
)
# Berlin's clocks change at the end of October, and New York's at the beginning of November.
moments = st.integers(int(NOVEMBER) - 10 * DAY, int(NOVEMBER) + 20 * DAY)


@settings(deadline=None, max_examples=examples(150))
@given(
    calls, filters, moments, st.sampled_from(GRANULARITIES), st.sampled_from(ZONES), st.sampled_from(MEASURES),
    st.sampled_from(["", "team"]),
)  # fmt: skip
def test_actual_equals_a_recount(
    made: list[dict[str, Any]],
    filter: dict[str, tuple[str, ...]],
    now: int,
    granularity: str,
    zone: str,
    measure: str,
    per: str,
) -> None:
    """
    A budget's actual spend equals a recount to the last digit, for any filter, period, time zone and measure.
    """
    if granularity in ("quarterly", "yearly"):
        zone = "UTC"
    asyncio.run(_recounted(made, filter, now, granularity, zone, measure, per))


async def _recounted(
    made: list[dict[str, Any]],
    filter: dict[str, tuple[str, ...]],
    now: int,
    granularity: str,
    zone: str,
    measure: str,
    per: str,
) -> None:
    house = await House(at=now).start()
    view = await house.view(filter)
    budget = await house.budget(view, granularity=granularity, time_zone=zone, measure=measure, per=per)
    expected: Counter[str] = Counter()
    local = ZoneInfo(zone)
    running = _calendar(datetime.fromtimestamp(now, local), granularity)
    for fields in made:
        at = now + fields["at"]
        house.spend(
            fields["dollars"], at=at, team=fields["team"], request_model=fields["model"], status=fields["status"],
            input_tokens=fields["tokens"], output_tokens=1,
        )  # fmt: skip
        passes = (
            (fields["team"] or "") in filter.get("team", ("a", "b", ""))
            and (fields["team"] or "") not in filter.get("!team", ())
            and fields["model"] not in filter.get("!model", ())
        )
        is_running = _calendar(datetime.fromtimestamp(at, local), granularity) == running
        if passes and is_running and fields["status"] != "cached":
            value = {"cost": money.text_to_units(fields["dollars"]), "calls": money.UNIT}.get(
                measure, (fields["tokens"] + 1) * money.UNIT
            )
            expected[(fields["team"] or "") if per else ""] += value
    await house.evaluate()
    spent = house.evaluator.figures[budget.id].periods[0].spent
    assert {owner: value for owner, value in expected.items() if value} == {
        owner: owner_spend.actual for owner, owner_spend in spent.items() if owner_spend.actual
    }
    # The amounts of all owners must add up to the amount of the budget without owners.
    books = house.evaluator.budget_ledger()
    [total] = (await books.read_figures(replace_fields(budget, per=""), view)).periods[0].spent.values() or [
        None
    ]
    assert sum(expected.values()) == (total.actual if total else 0)


def _calendar(moment: datetime, granularity: str) -> tuple[int, ...]:
    """Return a key that is equal for two times in the same period."""
    match granularity:
        case "daily":
            return (moment.year, moment.month, moment.day)
        case "weekly":
            return tuple(moment.isocalendar()[:2])
        case "monthly":
            return (moment.year, moment.month)
        case "quarterly":
            return (moment.year, (moment.month - 1) // 3)
    return (moment.year,)

"""The webhook event `budget.verdict`: once for each change of a state, over restarts and gateways."""

from __future__ import annotations

import pytest

from gateway.money.budgets.verdicts import ACTING, REFRESH_S
from spool.registry.notices import Notice
from tests.gateway.money.budgets.house import CHANNELS, House
from tests.gateway.money.budgets.test_verdicts import NOW


async def open_house(house: House) -> House:
    await house.start()
    house.registry.notices.webhook_channels = frozenset(CHANNELS[:1])
    house.evaluator._events._is_on = lambda: True
    return house


@pytest.fixture
async def house() -> House:
    return await open_house(House(at=NOW))


async def events(house: House) -> list[Notice]:
    waiting = [each for each in await house.notifications() if each.notice.kind == "budget.verdict"]
    assert {"costs"} >= {each.channel for each in waiting}
    return [each.notice for each in waiting]


async def test_each_change_is_sent_once(house: House) -> None:
    """
    If a table that a reader requests, an evaluation and a restart see the same change of a verdict, one event is
    sent. A further change is sent again.
    """
    await house.budget(await house.view(), default_amount="10")
    house.spend("8.5")
    await house.evaluator.verdicts.current_signed_table(ACTING)
    await house.evaluate()
    await open_house(house)
    await house.evaluate()
    assert ["near"] == [notice.fields["state"] for notice in await events(house)]
    house.spend("1.5")
    await house.evaluate()
    house.clock.at += REFRESH_S
    await house.evaluator.verdicts.current_signed_table(ACTING)
    house.clock.at += 32 * 86400  # move the clock to the next month
    await house.evaluate()
    assert ["near", "over", "within"] == [notice.fields["state"] for notice in await events(house)]
    assert 3 == len({notice.id for notice in await events(house)})


async def test_owners_of_a_budget_are_one_event(house: House) -> None:
    await house.budget(await house.view(), per="team", default_amount="1")
    for number in range(30):
        house.spend("2" if number % 3 else "0.85", team=f"team {number}")
    await house.evaluate()
    [notice] = await events(house)
    assert ("20", "10") == (notice.fields["over"], notice.fields["near"])
    assert "team 0 is near." in notice.text
    assert "And 20 more." in notice.text


async def test_it_is_off_by_default() -> None:
    house = await House(at=NOW).start()
    house.registry.notices.webhook_channels = frozenset(CHANNELS)
    await house.budget(await house.view(), default_amount="1")
    house.spend("2")
    await house.evaluate()
    await house.evaluator.verdicts.current_signed_table(ACTING)
    assert [] == await events(house)


async def test_a_budget_without_webhooks_has_no_event(house: House) -> None:
    """
    The event `budget.verdict` is sent to the channels of the budget that have the type webhook, and to no others.
    """
    await house.budget(await house.view(), default_amount="1", channels=("oncall",))
    house.spend("2")
    await house.evaluate()
    assert [] == await events(house)

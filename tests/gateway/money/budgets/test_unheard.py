"""Budgets whose alerts reach nobody are counted."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.money.budgets.declared import BUDGETS, SpendBudget
from gateway.money.budgets.judging import count_budgets_without_channel
from spool.registry.notices import FAILING, PARKED, REMOVED, RUNNING, ChannelCounts, ChannelState


def budget(**fields: Any) -> SpendBudget:
    values: dict[str, Any] = {
        "id": "b", "name": "Search", "view_id": "v", "planned": {}, "alerts": {"80": "Y"}, "forecast_alerts": {},
        "created": 1.0, "last_updated": 1.0, "rules_since": 1.0,
    }  # fmt: skip
    return BUDGETS.build_row_from_body({**values, **fields})


def channel(name: str, state: str) -> ChannelState:
    return ChannelState(
        name=name,
        type="webhook",
        state=state,
        reason="",
        insights="none",
        counts=ChannelCounts(),
        oldest=None,
    )


@pytest.mark.parametrize(
    ("fields", "states", "unheard"),
    [
        ({}, {}, 1),
        ({"alerts": {"80": "N"}}, {}, 0),
        ({"alerts": {}, "forecast_alerts": {"100": "Y"}}, {}, 1),
        ({}, {"desk": RUNNING}, 0),
        ({}, {"desk": FAILING}, 0),
        ({}, {"desk": PARKED}, 1),
        ({}, {"desk": REMOVED}, 1),
        ({}, {"desk": PARKED, "mail": RUNNING}, 0),
        ({"channels": ("desk",)}, {"desk": PARKED, "mail": RUNNING}, 1),
        ({"channels": ("gone",)}, {"mail": RUNNING}, 0),
    ],
)
def test_unheard_budgets(fields: dict[str, Any], states: dict[str, str], unheard: int) -> None:
    """A channel that fails for a while still counts, because its notifications are sent again."""
    channels = [channel(name, state) for name, state in states.items()]
    assert unheard == count_budgets_without_channel([budget(**fields)], {}, channels)

"""A budget has one state in every face, also without thresholds for its actual spend."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.money.budgets.declared import BudgetTable, NewBudget, Silence, ViewName
from gateway.money.budgets.states import (
    NO_AMOUNT,
    NOT_EVALUATED,
    NOT_EVALUATED_YET,
    OVER,
    OVER_THRESHOLD,
    WITHIN,
    state_of_budget,
)
from spool.registry.documents import replace_fields
from spool.registry.views import NewView
from tests.gateway.money.budgets.house import monthly
from tests.integration.conftest import ACTOR
from tests.integration.states.conftest import Faces
from tests.rounds import part
from tests.spool.contract.examples import add, call

SPENT = "88.36"
EMPTY = NewBudget(name="b", view=ViewName(id=""))


@pytest.mark.parametrize(
    ("fields", "percent", "state"),
    part(
        [
            ({"default_amount": "4", "forecast_alerts": {"100": "Y"}}, 2209, OVER),
            ({"default_amount": "4", "silence": Silence(until="2096-10-02", reason="holiday")}, 2209, OVER),
            ({"default_amount": SPENT, "forecast_alerts": {"100": "Y"}}, 100, OVER),
            ({"default_amount": "4", "per": "team", "forecast_alerts": {"100": "Y"}}, 2209, OVER),
            ({"default_amount": "100", "alerts": {"80": "Y", "100": "N"}}, 88, OVER_THRESHOLD),
            ({"default_amount": "100", "alerts": {"80": "N", "100": "Y"}}, 88, WITHIN),
            ({"default_amount": "100", "forecast_alerts": {"1": "Y"}}, 88, WITHIN),
            ({"planned_limits": monthly({"2020-01-01": "4"})}, None, NO_AMOUNT),
        ],
        every=2,
    ),
)
async def test_every_face_shows_the_state(
    faces: Faces, fields: dict[str, Any], percent: int | None, state: str
) -> None:
    at = time.time()
    paid = {"cost": SPENT, "cost_source": "reported", "team": "search"}
    await add(faces.server.app.services.storage.log, call(1, at=at, **paid))
    registry = faces.server.app.services.operators.installation.require_registry()
    view = await registry.views.create(
        NewView(name="all", filter={}, principal_dimension="model"),
        known_dimensions=("model",),
        max_rows=10,
        actor=ACTOR,
    )
    draft = replace_fields(EMPTY, view=ViewName(id=view.id), **fields)
    await registry.declared_table(BudgetTable).create(
        draft, known_dimensions=("team",), max_rows=10, actor=ACTOR
    )
    assert (await faces.server.app.services.operators.money.require_budgets().evaluate_all()).waits is None
    [listed] = (await faces.api("/budgets"))["budgets"]
    assert (state, percent) == (listed["state"], listed["percent"])
    shown = (await faces.printed("budgets", "show", listed["id"]))["budget"]
    assert (state, percent) == (shown["state"], shown["percent"])
    assert state in (await faces.command("budgets", "list")).stdout
    [told] = (await faces.tool("get_budgets"))["budgets"]
    assert state == told["state"]
    ratios = [
        value for (name, _), value in (await faces.metrics()).items() if name == "tollhouse_budget_ratio"
    ]
    assert ([] if percent is None else [percent]) == [int(ratio * 100) for ratio in ratios]


def test_states_without_figures() -> None:
    assert NOT_EVALUATED_YET == state_of_budget(None, None)
    assert NOT_EVALUATED == state_of_budget("the view is gone", None)

"""Budgets of files and the table of verdicts: each step of a random order against a count by hand."""

from __future__ import annotations

import json
from collections import Counter
from decimal import Decimal
from random import Random
from typing import Any

import pytest

from gateway.money.budgets import verdicts
from gateway.money.budgets.declared import BudgetTable
from gateway.operations.files.applying import ApplyOptions
from gateway.operations.files.calls import apply_and_activate
from spool.registry.file_owners import owner_document_id
from tests.integration.conftest import ACTOR
from tests.integration.operations.files.objects import files_of
from tests.integration.operations.money.test_published_budgets import CALL, Asking, asking
from tests.rounds import part

__all__ = ["asking"]
MODELS = ("gpt-4o", "gpt-4o-mini")
VIEWS = {"all": MODELS, "large": MODELS[:1], "small": MODELS[1:]}
STEPS = 25


class Installation:
    """An installation with budgets, and what a person would count."""

    def __init__(self, asking: Asking, key: str, rng: Random) -> None:
        self._asking, self._key, self._rng = asking, key, rng
        self._services = asking.serving.app.services.operators
        self._registry = self._services.installation.require_registry()
        self._in_files: dict[str, dict[str, Any]] = {}
        self._by_hand: dict[str, dict[str, Any]] = {}
        self._calls: Counter[str] = Counter()

    async def step(self) -> None:
        await self._rng.choice(
            [self._state, self._state, self._remove, self._release, self._edit, self._call]
        )()

    async def _state(self) -> None:
        """State in files a new budget or another form of an existing one, also of one that people manage."""
        name = f"budget {self._rng.randrange(6)}"
        view = self._rng.choice([*VIEWS])
        measure = self._rng.choice(["cost", "calls"]) if view == "large" else "calls"
        amount = self._rng.randint(1, 8) * (CALL if measure == "cost" else 1)
        self._by_hand.pop(name, None)
        self._in_files[name] = {
            "name": name, "view": view, "measure": measure, "default_amount": str(amount),
            "alerts": self._rng.choice([{}, {"50": "Y"}, {"50": "Y", "80": "N"}]),
        }  # fmt: skip
        # choose another view, because the view is a part of the name of a budget
        for other in [each for each in VIEWS if each != view]:
            await self._forget(name, other)
        await self._apply()

    async def _remove(self) -> None:
        if self._in_files:
            self._in_files.pop(self._rng.choice(sorted(self._in_files)))
            await self._apply()

    async def _release(self) -> None:
        if not self._in_files:
            return
        name = self._rng.choice(sorted(self._in_files))
        self._by_hand[name] = self._in_files.pop(name)
        owner = self._registry.file_owners.all()[owner_document_id("budget", self._id(name))]
        await self._registry.file_owners.release_object(owner, actor=ACTOR)
        await self._apply()

    async def _edit(self) -> None:
        if self._by_hand:
            name = self._rng.choice(sorted(self._by_hand))
            amount = str(Decimal(self._by_hand[name]["default_amount"]) * 2)
            self._by_hand[name]["default_amount"] = amount
            changed = {"default_amount": amount}
            await self._registry.declared_table(BudgetTable).change(self._id(name), changed, actor=ACTOR)

    async def _call(self) -> None:
        model = self._rng.choice(MODELS)
        count = self._rng.randint(1, 2)
        await self._asking.calls(count, model=model)
        self._calls[model] += count

    async def _forget(self, name: str, view: str) -> None:
        """Delete a budget of this name that people manage in another view."""
        found = self._registry.views.find_by_name(view)
        for budget in self._registry.declared_table(BudgetTable).all():
            owner = self._registry.file_owners.all().get(owner_document_id("budget", budget.id))
            if found and budget.name == name and budget.view_id == found.id and owner is None:
                await self._registry.declared_table(BudgetTable).delete(budget.id, actor=ACTOR)

    async def _apply(self) -> None:
        views = [
            {
                "name": name,
                "filter": {} if name == "all" else {"model": [*models]},
                "principal_dimension": "model",
            }
            for name, models in VIEWS.items()
        ]
        files = files_of({"views": views, "budgets": [*self._in_files.values()]})
        outcome = await apply_and_activate(self._services, files, ApplyOptions(adopt=True), actor=ACTOR)
        assert outcome.is_valid, (outcome.problems, outcome.conflicts)

    def _id(self, name: str) -> str:
        [budget] = [each for each in self._registry.declared_table(BudgetTable).all() if each.name == name]
        return budget.id

    def expected(self) -> dict[str, tuple[Decimal, Decimal, str]]:
        found = {}
        for name, budget in {**self._in_files, **self._by_hand}.items():
            calls = sum(self._calls[model] for model in VIEWS[budget["view"]])
            spent = calls * (CALL if budget["measure"] == "cost" else Decimal(1))
            limit = Decimal(budget["default_amount"])
            below = max(
                (int(percent) for percent, sent in budget["alerts"].items() if sent == "Y"), default=0
            )
            is_near = below and spent * 100 >= limit * below
            found[name] = (spent, limit, "over" if spent >= limit else "near" if is_near else "within")
        return found

    async def shown(self) -> dict[str, tuple[Decimal, Decimal, str]]:
        answer = await self._asking.serving.send(
            "/v2/budgets/verdicts?state=all", b"", None, method="GET", key=self._key
        )
        rows = json.loads(answer.body)["rows"]
        return {row["name"]: (Decimal(row["spent"]), Decimal(row["limit"]), row["state"]) for row in rows}


@pytest.mark.parametrize("seed", part(range(8), every=8))
async def test_verdicts_follow_files(asking: Asking, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """
    Budgets are stated, changed and removed by files, released, edited by people and adopted again, while calls
    arrive. After each step, the table has each budget with its spend, limit and state.
    """
    monkeypatch.setattr(verdicts, "REFRESH_S", 0.0)
    monkeypatch.setattr(verdicts, "LOOK_S", 0.0)
    registry = asking.serving.app.services.operators.installation.require_registry()
    await registry.views.delete(asking.view, actor=ACTOR)
    key = await asking.serving.make_key("enforcer", scopes=["budgets:read_budgets"])
    installation = Installation(asking, key, Random(seed))
    for number in range(STEPS):
        await installation.step()
        assert installation.expected() == await installation.shown(), number

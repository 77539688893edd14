"""Checks of drafts keep fields that they do not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from gateway.money.allocation.declared import NamespaceDraft, check_namespace
from gateway.money.budgets.declared import BudgetDraft, check_budget
from spool.registry.connections import ConnectionDraft, check_connection
from spool.registry.roles import FULL, RoleDraft, RoleLimits, check_role_draft
from spool.registry.views import ViewDraft, check_view

AMOUNTS = {"planned": {}, "default_amount": "5", "alerts": {}, "forecast_alerts": {}}


@pytest.mark.parametrize(
    ("draft", "check", "fields"),
    [
        (ViewDraft, check_view, {"principal_dimension": "model"}),
        (BudgetDraft, partial(check_budget, now=0.0), {"view_id": "v", **AMOUNTS}),
        (RoleDraft, partial(check_role_draft, limits=RoleLimits()), {"data_access": FULL}),
        (ConnectionDraft, check_connection, {"cloud_provider": "x"}),
        (NamespaceDraft, check_namespace, {"description": ""}),
    ],
)
def test_a_field_more_of_a_draft_is_kept(
    draft: Any, check: Callable[[Any], Any], fields: dict[str, Any]
) -> None:
    """
    If a developer adds a field to a draft and forgets the check of drafts, the check still keeps the field.
    """

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Longer(draft):  # type: ignore[misc]
        note: str = ""

    checked = check(Longer(name=" one ", note="kept", **fields))
    assert checked.name == "one"
    assert checked.note == "kept"

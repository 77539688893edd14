"""Checks of drafts keep fields that they do not know."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from functools import partial
from typing import Any

import msgspec
import pytest

from gateway.money.allocation.declared import NewNamespace, check_namespace
from gateway.money.budgets.declared import NewBudget, ViewName, check_budget
from spool.registry.connections import ConnectionDraft, check_connection
from spool.registry.roles import FULL, NewRole, RoleLimits, check_role_draft
from spool.registry.views import NewView, check_view


@pytest.mark.parametrize(
    ("draft", "check", "fields"),
    [
        (NewView, check_view, {"filter": {}, "principal_dimension": "model"}),
        (NewBudget, partial(check_budget, now=0.0), {"view": ViewName(id="v"), "default_amount": "5"}),
        (NewRole, partial(check_role_draft, limits=RoleLimits()), {"data_access": FULL}),
        (ConnectionDraft, check_connection, {"cloud_provider": "x"}),
        (NewNamespace, check_namespace, {}),
    ],
)
def test_new_field_of_a_draft_survives_the_check(
    draft: Any, check: Callable[[Any], Any], fields: dict[str, Any]
) -> None:
    """
    If a developer adds a field to a draft and forgets the check of drafts, the check still keeps the field.
    """

    checked = check(longer(draft)(name=" one ", note="kept", **fields))
    assert checked.name == "one"
    assert checked.note == "kept"


def longer(draft: type[Any]) -> Any:
    options: dict[str, Any] = {"frozen": True, "kw_only": True}
    if issubclass(draft, msgspec.Struct):
        return msgspec.defstruct("Longer", [("note", str, "")], bases=(draft,), **options)
    return make_dataclass("Longer", [("note", str, "")], bases=(draft,), slots=True, **options)

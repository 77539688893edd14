"""Documents of earlier releases can be read, because each field added to a kind has a default."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from gateway.operations.list import RESOURCES, ResourceModules
from spool.registry.documents import DocumentCollection, stored_body
from tests.spool.registry.kept_documents import KEPT, kinds, kinds_in, least_document

_MADE = {"created": 1.0, "last_updated": 1.0}

# Documents with every field of the first release.
WHOLE: Mapping[str, Mapping[str, Any]] = {
    "annotation": {
        "id": "a", "day": "2026-11-20", "text": "4.2 went live", "view_id": "v", "author": "ada", **_MADE,
    },
    "budget": {
        "name": "Search", "view_id": "v", "granularity": "weekly",
        "planned": {"2026-11-02": "5", "2026-11-09": "7.50"},
        "default_amount": "9", "time_zone": "Europe/Berlin", "measure": "cost", "per": "team",
        "alerts": {"80": "Y", "100": "N"}, "forecast_alerts": {"90": "Y"}, "channels": ["desk"],
        "silent_until": 1793000000.123456, "silent_reason": "move", "cost_type": "metered_cost", "currency": "EUR",
        "id": "b", "rules_since": 2.0, **_MADE,
    },
    "allocation-namespace": {"id": "n", "name": "n", "description": "Own hardware", **_MADE},
    "contract": {
        "name": "Deal", "provider": "openai", "since": "2026-11-01", "until": "2027-11-01", "currency": "EUR",
        "terms": [{"kind": "discount", "percent": "5"}], "id": "c", **_MADE,
    },
    "plan": {
        "name": "Team", "view_id": "v", "fee": "20", "included": "500", "unit": "credits", "is_pooled": True,
        "cycle_day": 31, "overage_price": "0.04", "credit_value": "0.01", "currency": "EUR", "billed_by": "github",
        "seats": [{"user": "ada", "since": "2026-11-01", "until": "2026-12-01", "team": "search"}], "id": "p", **_MADE,
    },
    "scheduled_report": {
        "name": "Search", "view_id": "v", "channels": ["mail"], "every": "month", "day": 3, "at": "09:00",
        "time_zone": "Europe/Berlin", "people": ["ada@example.com"], "id": "s", "owner": "ada", "done": 1.0,
        "problem": "bounced", **_MADE,
    },
    "role": {
        "name": "Search", "description": "Costs of search", "data_access": "limited",
        "filters": [{"dimension": "team", "values": ["search", ""], "mode": "except"}], "cost_types": ["real_cost"],
        "permission_sets": ["view_costs"], "members": ["ada@example.com"], "groups": ["search"],
        "last_updated_by": "ada", "id": "r", **_MADE,
    },
    "view": {
        "name": "Search", "principal_dimension": "model", "filter": {"team": ["search", ""], "!user": ["x"]},
        "connections": {
            "email": {"addresses": ["ada@example.com"], "include_all_organizers": True},
            "slack": [{"id": "C1", "name": "finops"}], "notify": ["desk"],
        },
        "anomalies": {"enabled": False, "threshold_type": "Percent", "threshold_value": 40},
        "granularity": "daily", "group_by": ["model"], "cost_type": "metered_cost", "range": "last_30d", "id": "v",
        **_MADE,
    },
}  # fmt: skip

# Documents of a newer release: an object within them has an unknown field.
NEWER: Mapping[str, Mapping[str, Any]] = {
    "contract": {**WHOLE["contract"], "terms": [{"kind": "fee", "percent": "5", "unknown": 1}]},
    "plan": {
        **WHOLE["plan"],
        "unit": "unknown",
        "seats": [{"user": "ada", "since": "2026-11-01", "unknown": 1}],
    },
    "scheduled_report": {**WHOLE["scheduled_report"], "every": "unknown"},
    "role": {**WHOLE["role"], "filters": [{"dimension": "team", "values": ["search"], "unknown": 1}]},
    "view": {
        **WHOLE["view"],
        "connections": {
            "email": {"unknown": 1},
            "slack": [{"id": "C1", "name": "finops", "unknown": 1}],
            "unknown": 1,
        },
        "anomalies": {"threshold_type": "unknown", "unknown": 1},
    },
}


@pytest.mark.parametrize(
    "kind", list({each.name: each for each in kinds()}.values()), ids=lambda kind: kind.name
)
def test_documents_of_earlier_releases_are_read(kind: DocumentCollection[Any]) -> None:
    """If a later release adds a field without a default, this test fails. Give the field a default."""
    assert kind.name in KEPT, "a new kind: run python -m tests.spool.registry.kept_documents"
    kept = KEPT[kind.name]
    restored = kind.build_row_from_body(kept)
    assert type(restored) is kind.row
    assert kept.get("id", restored.id) == restored.id


@pytest.mark.parametrize("modules", RESOURCES.values(), ids=RESOURCES)
def test_examples_of_fields_make_the_least_document_of_a_new_kind(modules: ResourceModules) -> None:
    """So a new resource needs no document that is written by hand."""
    for kind in kinds_in(modules.fields):
        if issubclass(kind.row, msgspec.Struct):  # versions of definitions are no fields of a body
            assert kind.build_row_from_body(least_document(kind.row))


@pytest.mark.parametrize("name", WHOLE)
def test_a_document_keeps_its_form(name: str) -> None:
    """A row that is read and stored again gives the same members. A later release may add fields."""
    [kind, *_] = [kind for kind in kinds() if kind.name == name]
    again = json.loads(json.dumps(stored_body(kind.build_row_from_body(WHOLE[name]))))
    assert WHOLE[name] == {member: again[member] for member in WHOLE[name]}


@pytest.mark.parametrize("name", NEWER)
def test_a_document_of_a_newer_release_is_read(name: str) -> None:
    """After a return to an older release, an object with a field that it does not know is read."""
    [kind, *_] = [kind for kind in kinds() if kind.name == name]
    assert kind.build_row_from_body(NEWER[name]).name == NEWER[name]["name"]

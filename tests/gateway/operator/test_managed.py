"""The calls of a resource, as they are named and summed up."""

from __future__ import annotations

from dataclasses import replace

from gateway.api.managed import managed_by_keys
from gateway.api.views import VIEW
from gateway.operator.managed import managed_by_people
from spool.registry.permission_sets import VIEW_COSTS


def test_a_noun_has_its_article() -> None:
    """For keys and for people alike; a noun of two words is written apart."""
    noted, connection = replace(VIEW, noun="annotation"), replace(VIEW, noun="billing_connection")
    people = managed_by_people(noted, "/notes", reads=VIEW_COSTS, changes=VIEW_COSTS)
    keys = managed_by_keys(connection, "/notes", "id", group="notes", endpoint="notes")
    verbs = ("Create", "Show", "Change", "Delete")
    assert ["List annotations", *(f"{verb} an annotation" for verb in verbs)] == [
        row.summary for row in people
    ]
    assert "A billing connection" in [row.summary for row in keys]
    assert "Create a billing connection" in [row.summary for row in keys]

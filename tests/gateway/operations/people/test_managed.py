"""Names and summaries of the calls of a resource."""

from __future__ import annotations

from gateway.operations.managed import ByKeys, ByPeople
from gateway.operations.money.views import ViewResource
from gateway.operations.people.managed import build_key_rows, build_people_rows
from spool.registry.permission_sets import VIEW_COSTS


class Notes(ViewResource):
    noun = "annotation"
    people = ByPeople(path="/notes", reads=VIEW_COSTS, changes=VIEW_COSTS)


class Connections(ViewResource):
    noun = "billing_connection"
    keys = ByKeys(path="/notes", id="id", group="notes", endpoint="notes")


def test_a_noun_has_its_article() -> None:
    """
    The noun of a resource has its article. A noun of two words is written with a space, for keys and for people.
    """
    people = build_people_rows(Notes())
    keys = [row.summary for row in build_key_rows(Connections())]
    verbs = ("Create", "Show", "Change", "Delete")
    assert ["List annotations", *(f"{verb} an annotation" for verb in verbs)] == [
        row.summary for row in people
    ]
    assert "Show a billing connection" in keys
    assert "Create a billing connection" in keys

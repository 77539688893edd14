"""One declaration of a resource defines both its changes and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import UNSET, UnsetType

from gateway.core.fields import build_answer, changes_struct, given_fields, item_struct
from gateway.operations.list import RESOURCES
from gateway.operations.managed import ManagedResource
from gateway.service.addresses.areas import FOR_SENDERS, OPERATOR_AREAS
from spool.registry.field_notes import words


class NewRack(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, words("Unique.")]
    place: str = ""
    books: list[str] = []


RackChanges = changes_struct(NewRack, "Left out: as it is.", unchangeable_fields=("place",))
RackItem = item_struct(
    NewRack,
    "A rack.",
    answer_only_fields={"full": bool, "notes": Annotated[str | UnsetType, words("At times.")]},
)


@dataclass(frozen=True)
class Rack:
    id: str = "r"
    name: str = "one"
    place: str = "hall"
    books: tuple[str, ...] = ("x",)
    secret: str = "none of theirs"


def test_a_change_has_the_fields_of_a_new_one() -> None:
    """
    In a change, every field is optional. Fields that are set only at creation are rejected, and a version
    may be given.
    """
    assert {"name": UNSET, "books": UNSET, "version": None} == msgspec.structs.asdict(RackChanges())
    given = msgspec.json.decode(b'{"books": ["a", "b"], "version": "v"}', type=RackChanges)
    assert {"books": ("a", "b")} == given_fields(given)
    assert {"name": "ONE", "place": "", "books": ()} == given_fields(NewRack(name="one"), name=str.upper)
    with pytest.raises(msgspec.ValidationError, match="unknown field `place`"):
        msgspec.json.decode(b'{"place": "hall"}', type=RackChanges)


def test_an_answer_has_the_declared_fields_and_no_others() -> None:
    """
    Values are read from the row unless the caller passes them. Undeclared and missing fields raise errors.
    """
    whole = {"id": "r", "name": "one", "place": "hall", "books": ("x",), "full": True}
    assert whole == build_answer(RackItem, Rack(), full=True)
    assert {**whole, "place": "attic", "notes": "n"} == build_answer(
        RackItem, Rack(), full=True, place="attic", notes="n"
    )
    with pytest.raises(TypeError, match="secret"):
        build_answer(RackItem, Rack(), full=True, secret="told")
    with pytest.raises(AttributeError, match="full"):
        build_answer(RackItem, Rack())


def test_the_words_of_a_field_are_in_the_schemas() -> None:
    """The description of a field appears in the schemas of creation, change and answer."""
    for kind in (NewRack, RackChanges, RackItem):
        [schema] = msgspec.json.schema_components([kind])[1].values()
        assert "Unique." == schema["properties"]["name"]["description"], kind


def _declared() -> dict[str, ManagedResource[Any, Any]]:
    modules = [import_module(name) for area in (*FOR_SENDERS, *OPERATOR_AREAS) for name in area.modules]
    values = [value for module in modules for value in vars(module).values()]
    return {value.noun: value for value in values if isinstance(value, ManagedResource)}


def test_every_listed_resource_has_addresses() -> None:
    """
    Every listed resource is declared with addresses, because a resource without a declaration would
    be skipped silently.
    """
    declared = {resource.new.__module__ for resource in _declared().values()}
    assert {each.fields for each in RESOURCES.values()} <= declared


@pytest.mark.parametrize("resource", _declared().values(), ids=lambda resource: resource.noun)
def test_every_field_has_words(resource: ManagedResource[Any, Any]) -> None:
    """
    Every field of a resource has a description. Every field except ids can be changed, and every field is
    part of the answer.
    """
    fields = {each.name for each in msgspec.structs.fields(resource.new)}
    assert {*fields, "version"} - {*resource.changes.__struct_fields__} <= {"connection_id", "id", "version"}
    assert fields <= {*resource.item.__struct_fields__}
    _, schemas = msgspec.json.schema_components([resource.new])
    silent = [
        name
        for name, each in schemas[resource.new.__name__]["properties"].items()
        if "description" not in each
    ]
    assert [] == silent

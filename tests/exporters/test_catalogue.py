"""The list of destination types: complete, and each with what the configuration asks of it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from exporters.destinations import catalogue
from exporters.settings import DestinationSettings
from spool.record import TOPICS

OTHER_MODULES = {"__init__", "catalogue", "declaration", "upstream"}


def test_every_destination_module_is_in_the_list() -> None:
    """A module in the folder that the list forgot would be a destination that nobody can configure."""
    modules = {path.stem for path in Path(catalogue.__file__).parent.glob("*.py")}
    assert modules - OTHER_MODULES == set(catalogue.TYPES)


@pytest.mark.parametrize("name", catalogue.TYPES)
def test_a_type_without_its_setting_is_a_problem_and_with_it_none(name: str) -> None:
    """Whatever a type declares as needed is asked for under the user's own key name."""
    type = catalogue.TYPES[name]
    assert type.needs in {field.name for field in fields(DestinationSettings)}
    assert set(type.topics) <= set(TOPICS)
    without = DestinationSettings(name="one", type=name, topics=type.topics)
    assert [f"destinations[0].{type.needs} is required for type {name!r}"] == list(catalogue.problems([without]))
    value = Path("records") if type.needs == "path" else "http://127.0.0.1"
    settings = DestinationSettings(name="one", type=name, topics=type.topics, **{type.needs: value})  # type: ignore[arg-type]
    assert [] == list(catalogue.problems([settings]))

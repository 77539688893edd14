"""Every field of every kind: set, exported, changed and cleared by its file."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from gateway.operations.files.kinds import file_kinds, object_label
from tests.integration.operations.files.objects import OBJECTS, files_of
from tests.integration.operations.files.server import Api, api

ON_IT = pytest.mark.asyncio(loop_scope="module")
# Fields that cannot be left out alone, with the fields that the object then needs.
WITH: dict[tuple[str, str], dict[str, Any]] = {
    ("roles", "filters"): {"data_access": "full"},
    ("keys", "scopes"): {"use_cases": ["Send AI Telemetry"]},
    ("keys", "use_cases"): {"scopes": ["unit-cost_v1:read_telemetry"]},
    ("budgets", "granularity"): {"planned_limits": {"monthly": {"2026-11-01": {"amount": "1"}}}},
    ("budgets", "default_amount"): {
        "planned_limits": {"weekly": {"2026-11-02": {"amount": "1"}}},
        "granularity": "weekly",
    },
    ("plans", "unit"): {"credit_value": None},
    ("plans", "credit_value"): {"unit": None},
}
# Fields that an object of this type cannot be without.
ALWAYS = {"channels": {"url", "server", "username", "sender", "to"}}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def full(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Api]:
    async with api(tmp_path_factory.mktemp("full")) as server:
        yield server


Objects = dict[str, list[dict[str, Any]]]


def clearable(kind: str, one: dict[str, Any]) -> list[str]:
    """Return the fields of an object that may be left out."""
    known = file_kinds()[kind]
    fixed = {*known.files.key, *ALWAYS.get(kind, ())}
    return [name for name in one if name in known.defaults and name not in fixed]


def cleared(round: int) -> tuple[Objects, dict[str, str]]:
    """Return all objects, each without its field of this round, and the cleared field of each changed object."""
    objects: Objects = {}
    fields = {}
    for kind, ones in OBJECTS.items():
        objects[kind] = []
        for one in ones:
            [field] = clearable(kind, one)[round : round + 1] or [""]
            changed = {**one, **WITH.get((kind, field), {}), field: None} if field else one
            objects[kind].append({name: value for name, value in changed.items() if value is not None})
            if field:
                fields[
                    f"{file_kinds()[kind].noun} {object_label(file_kinds()[kind].object_key_of_fields(one))}"
                ] = field
    return objects, fields


ROUNDS = max(len(clearable(kind, one)) for kind, ones in OBJECTS.items() for one in ones)


def test_every_field_of_every_kind_has_a_value() -> None:
    for name, kind in file_kinds().items():
        stated = {field for one in OBJECTS[name] for field in one}
        assert set(kind.field_names) - stated == set(), name
        for field, default in kind.defaults.items():
            values = [one[field] for one in OBJECTS[name] if field in one]
            assert field not in kind.field_names or any(value != default for value in values), (name, field)


@ON_IT
async def test_files_are_exported_as_they_were_applied(full: Api) -> None:
    outcome = await full.apply(files_of())
    assert outcome["applied"], outcome
    assert await full.files() == files_of()
    again = await full.apply(files_of())
    assert again["differences"] == []


@ON_IT
async def test_a_removed_line_clears_its_field(full: Api) -> None:
    """
    If a line is removed from a file, its field is cleared. In each round of the test, every object loses another
    field, and has all others again. The plan names the field.
    """
    for round in range(ROUNDS):
        objects, fields = cleared(round)
        outcome = await full.apply(files_of(objects))
        assert "applied" in outcome, (round, outcome)
        words = {f"{each['kind']} {each['name']}": each["words"] for each in outcome["differences"]}
        for name, field in fields.items():
            assert field in words[name], (round, name)
        assert await full.files() == files_of(objects), round
    await full.apply(files_of())
    assert await full.files() == files_of()

"""
Areas of addresses. Each declares facts that are needed before its modules are imported, and these must
match its rows.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages

import pytest

from gateway import mcp, operations
from gateway.core.paths import OPERATOR_API
from gateway.http.address import addresses_defined_in_module, addresses_of_handler
from gateway.operations.installation import status
from gateway.operations.list import RESOURCES, ResourceModules
from gateway.operations.managed import ManagedResource
from gateway.service import addresses
from gateway.service.addresses.areas import (
    FOR_SENDERS,
    OF_AN_AGENT,
    OPERATOR_AREAS,
    AddressArea,
    operator_addresses,
    sender_addresses,
    with_resource_areas,
)

WITH_KEYS = (*FOR_SENDERS, *OF_AN_AGENT)
AREAS = [*WITH_KEYS, *OPERATOR_AREAS]
HOMES = (addresses, mcp, operations)

every_area = pytest.mark.parametrize("area", AREAS, ids=lambda area: area.paths[0])


def is_of(path: str, area: AddressArea) -> bool:
    """Return whether a path is under one of the area's paths. Parameters match any text."""
    return any(path == each or path.startswith(f"{each}/") for each in area.paths)


def test_every_module_with_rows_is_of_an_area() -> None:
    """
    Every module with rows belongs to an area, because the paths of other modules would not be found. The
    health module belongs to no area.
    """
    known = {status.__name__, *(name for area in AREAS for name in area.modules)}
    modules = [each.name for home in HOMES for each in walk_packages(home.__path__, f"{home.__name__}.")]
    modules += [each.resource for each in RESOURCES.values()]
    with_rows = {name for name in modules if any(addresses_defined_in_module(import_module(name)))}
    assert with_rows <= known, "name it with its paths in gateway/service/addresses/areas.py"
    assert known - with_rows <= {
        name
        for name in modules
        if any(isinstance(each, ManagedResource) for each in vars(import_module(name)).values())
    }


def test_a_module_is_of_one_area() -> None:
    """
    A module belongs to one area only. In two areas it would appear twice in the table. It may have rows for
    keys and for people.
    """
    for areas in (FOR_SENDERS, OPERATOR_AREAS):
        named = [name for area in areas for name in area.modules]
        assert sorted(set(named)) == sorted(named)


@every_area
def test_a_row_is_of_the_whole_handler(area: AddressArea) -> None:
    """The row of a handler is its outermost decorator, because a decorator above the row would be skipped."""
    for module in map(import_module, area.modules):
        for name, value in vars(module).items():
            assert all(row.handler is value for row in addresses_of_handler(value)), (
                f"{module.__name__}.{name}"
            )


@every_area
def test_a_path_is_in_its_area_alone(area: AddressArea) -> None:
    """A path belongs to one area only, because a request imports only the area that contains its row."""
    areas = WITH_KEYS if area in WITH_KEYS else OPERATOR_AREAS
    rows = sender_addresses(area) if area in WITH_KEYS else operator_addresses(area)
    for row in rows:
        path = row.path.removeprefix(OPERATOR_API).replace("{group:allocation|costformation}", "allocation")
        assert [area] == [each for each in areas if is_of(path, each)], path
    assert [] == [each for each in area.paths for other in areas if other is not area and is_of(each, other)]


@every_area
def test_the_labels_of_an_area_are_those_of_its_rows(area: AddressArea) -> None:
    """
    The labels that an area declares equal those of its rows, because metric series start at 0 before the
    rows are imported.
    """
    if area in WITH_KEYS:
        assert {row.endpoint for row in sender_addresses(area)} == set(area.endpoints)
    else:
        assert () == area.endpoints


@every_area
def test_every_path_of_an_area_leads_to_a_row(area: AddressArea) -> None:
    """Every path of an area leads to a row. Otherwise a request would import the area only to get 404."""
    rows = sender_addresses(area) if area in WITH_KEYS else operator_addresses(area)
    paths = [row.path.removeprefix(OPERATOR_API) for row in rows]
    for each in area.paths:
        pattern = each.replace("/v2/allocation", "/v2/{group:allocation|costformation}")
        pattern = pattern.replace("/v2/costformation", "/v2/{group:allocation|costformation}")
        assert any(path == pattern or path.startswith(f"{pattern}/") for path in paths), each


def test_a_resource_needs_no_area_of_its_own() -> None:
    """
    A resource needs no area of its own: its noun is its path, and its declaration has its rows. An area may
    add modules to the path.
    """
    [listed, own] = with_resource_areas(
        [AddressArea(modules=("gateway.operations.money.annotations", "more"), paths=("/annotations",))],
        {
            "annotations": ResourceModules("gateway.operations.money.annotations", "unused"),
            "racks": ResourceModules("gateway.operations.money.racks", "gateway.money.racks.declared"),
        },
    )
    assert listed.modules[-1] == "more"
    assert listed.paths == ("/annotations",)
    assert own.modules == ("gateway.operations.money.racks",)
    assert own.paths == ("/racks",)
    assert own.endpoints == ()


def test_a_resource_of_keys_needs_no_area_of_its_own() -> None:
    """A resource that keys manage has its rows at `/v2/` and its word, which is the label in metrics as well."""
    racks = ResourceModules("gateway.operations.money.racks", "gateway.money.racks.declared", has_keys=True)
    shelves = ResourceModules("gateway.operations.money.shelves", "gateway.money.shelves.declared")
    [own] = with_resource_areas([], {"racks": racks, "shelves": shelves}, of_keys=True)
    assert (own.modules, own.paths, own.endpoints) == ((racks.resource,), ("/v2/racks",), ("racks",))


def test_the_list_says_which_resources_keys_manage() -> None:
    for name, modules in RESOURCES.items():
        declared = [
            value.keys.path
            for value in vars(import_module(modules.resource)).values()
            if isinstance(value, ManagedResource) and value.keys is not None
        ]
        assert (f"/v2/{name}" in declared) == modules.has_keys, name

"""The operator API for the fleet: coverage, the list of machines, and the inventory of expected machines."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from gateway.bills.plans.declared import PlanTable
from gateway.core.errors import Refusal
from gateway.core.schemas import TEXT
from gateway.devices.fleet.coverage import (
    STATES,
    CauseCount,
    FleetCoverage,
    FleetRow,
    Part,
)
from gateway.devices.fleet.inventory_lists import MAX_LIST, SOURCES, read_inventory
from gateway.devices.fleet.repairs import find_repair
from gateway.devices.machine_state import FAILING, LINKS, WORDS
from gateway.http.lists import YES_NO, Filter, List, MemoryRows, Sort, age_filter, yes_no
from gateway.http.requests import Result
from gateway.operations.devices.devices import show_assistant
from gateway.operations.holders.operators import SenderServices
from gateway.operations.requests.address import call
from gateway.operations.requests.requests import OperatorRequest, read_bounded
from spool.record import moment
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION
from spool.registry.tables.inventory import Inventory
from spool.registry.texts import check_one_of

CSV = "text/csv"
MAX_NAMED = 100  # maximum people without a machine that a response names
# States in the order of the list: devices with trouble come first.
_ORDER = {
    word: place
    for place, word in enumerate(sorted(WORDS, key=lambda word: (word not in FAILING, WORDS.index(word))))
}


def describe_fleet_row(row: FleetRow) -> dict[str, object]:
    device, machine = row.device, row.machine
    hostname = "" if device is None else device.hostname
    return {
        "id": row.id,
        "state": row.state,
        "link": row.link or None,
        "covered": row.covered,
        "away": row.is_away,
        "causes": [
            {"state": state, "cause": cause or None, "words": find_repair((state, cause)).words}
            for state, cause in row.causes
        ],
        "device": None if device is None else device.id,
        "expected": row.is_expected,
        "hostname": hostname or ("" if machine is None else machine.hostname),
        "serial": "" if machine is None else machine.serial,
        "user": row.user,
        "assigned_to": "" if machine is None else machine.user,
        "team": row.team,
        "os": row.os,
        "system": row.system,
        "agent_version": "" if device is None else device.agent_version,
        "last_seen": moment(row.last_seen),
        "last_call": moment(row.last_call),
        "inventory_last_seen": None if machine is None else moment(machine.last_seen),
        "assistants": [show_assistant(state) for state in row.assistants],
    }


def _cause_filter_values(row: FleetRow) -> list[str]:
    named = [f"{state}.{cause}" for state, cause in row.causes]
    if row.causes:
        known = frozenset(row.causes)
        named += [
            f"{each.name}.{each.state}.{each.cause}"
            for each in row.assistants
            if (each.state, each.cause) in known
        ]
    return named


MACHINES: List[FleetRow] = List(
    root="devices",
    show=describe_fleet_row,
    identity=Sort(value=lambda row: row.id),
    sorts={
        "state": Sort(value=lambda row: _ORDER[row.state]),
        "id": Sort(value=lambda row: row.id),
        "user": Sort(value=lambda row: row.user),
        "team": Sort(value=lambda row: row.team),
        "system": Sort(value=lambda row: row.system),
        "last_seen": Sort(value=lambda row: row.last_seen),
        "last_call": Sort(value=lambda row: row.last_call),
    },
    default_sort=("state", "asc"),
    filters={
        "state": Filter(values=lambda row: (row.state,), valid_values=STATES),
        "link": Filter(values=lambda row: (row.link,) if row.link else (), valid_values=LINKS),
        "covered": yes_no(lambda row: row.covered),
        "away": yes_no(lambda row: row.is_away),
        "cause": Filter(values=_cause_filter_values, is_open=True),
        "assistant": Filter(values=lambda row: [each.name for each in row.assistants], is_open=True),
        "team": Filter(values=lambda row: (row.team,)),
        "system": Filter(values=lambda row: (row.system,)),
        "user": Filter(values=lambda row: (row.user,), is_open=True, names_people=True),
        "id": Filter(values=lambda row: (row.id,), is_open=True),
        "expected": yes_no(lambda row: row.is_expected),
        "no_report_for": age_filter(lambda row: 0.0 if row.device is None else row.device.quiet_since),
        "no_call_for": age_filter(lambda row: row.last_call or 0.0),
    },
)


def describe_coverage(coverage: FleetCoverage, inventory: Inventory | None) -> dict[str, object]:
    return {
        "machines": coverage.machines,
        "covered": coverage.covered,
        "covered_percent": covered_percent(coverage.covered, coverage.machines),
        "away": coverage.away,
        "offline": coverage.offline,
        "enrolled_devices": coverage.enrolled,
        "unexpected": coverage.unexpected,
        "states": dict(coverage.states),
        "causes": [_describe_cause(count) for count in coverage.causes],
        "assistants": {name: dict(counts) for name, counts in coverage.assistants.items()},
        "teams": [_describe_part("team", part) for part in coverage.teams],
        "systems": [_describe_part("system", part) for part in coverage.systems],
        "inventory": describe_inventory(inventory),
    }


def covered_percent(covered: int, machines: int) -> float | None:
    """Return the covered part in percent, rounded down to a tenth, so that 100 means all. None without machines."""
    return covered * 1000 // machines / 10 if machines else None


def _describe_cause(count: CauseCount) -> dict[str, object]:
    repair = find_repair((count.state, count.cause))
    return {
        "state": count.state,
        "cause": count.cause or None,
        "devices": count.devices,
        "assistants": dict(count.assistants),
        "words": repair.words,
        "repair": repair.advice,
    }


def _describe_part(name: str, part: Part) -> dict[str, object]:
    return {
        name: part.name,
        "machines": part.machines,
        "covered": part.covered,
        "covered_percent": covered_percent(part.covered, part.machines),
    }


def describe_inventory(inventory: Inventory | None) -> dict[str, object] | None:
    if inventory is None:
        return None
    return {
        "source": inventory.source,
        "imported": moment(inventory.imported),
        "imported_by": inventory.imported_by,
        "machines": len(inventory.machines),
    }


@call(
    "GET",
    "/fleet/coverage",
    VIEW_OPERATION,
    "Show how many machines of the fleet report, and why others do not",
)
async def show_coverage(request: OperatorRequest[SenderServices, None]) -> Result:
    fleet = request.services.require_fleet()
    rows = await fleet.rows()
    return {
        **describe_coverage(fleet.measure_coverage(rows), fleet.inventory),
        "people": await asyncio.to_thread(_people_fields, request, rows),
    }


def _people_fields(request: OperatorRequest[SenderServices, Any], rows: list[FleetRow]) -> dict[str, object]:
    people = request.shared.people
    today = datetime.fromtimestamp(request.now(), UTC).date().isoformat()
    seats = {
        people.person_identity(seat.user)
        for plan in request.registry.table(PlanTable).all()
        for seat in plan.seats
        if seat.since <= today and (not seat.until or today < seat.until)
    }
    without = sorted(seats - {people.person_identity(row.user) for row in rows if row.user})
    return {
        "with_seat": len(seats),
        "without_machine": len(without),
        "without_machine_names": without[:MAX_NAMED],
    }


@call(
    "GET",
    "/fleet/devices",
    VIEW_OPERATION,
    "List the machines of the fleet, those with trouble first",
    lists=MACHINES,
)
async def list_machines(request: OperatorRequest[SenderServices, None]) -> Result:
    fleet = request.services.require_fleet()
    return await request.list(MACHINES, MemoryRows(await fleet.rows()))


@call("GET", "/fleet/inventory", VIEW_OPERATION, "Show from where and when the inventory was imported")
async def show_inventory(request: OperatorRequest[SenderServices, None]) -> Result:
    return {"inventory": describe_inventory(request.services.require_fleet().inventory)}


@call(
    "PUT",
    "/fleet/inventory",
    OPERATE_SPOOL,
    "Replace the inventory of expected machines by a CSV list of an MDM",
    required=("source",),
    optional=("confirm", "admit"),
    takes={CSV: TEXT},
)
async def replace_inventory(request: OperatorRequest[SenderServices, None]) -> Result:
    """
    Replace the inventory. A list that cannot be read as a whole changes nothing. `admit=true` also enrols each
    serial number as a device, for machines that send without an agent.
    """
    query = request.http.query
    source = query.get("source", "")
    check_one_of("source", source, SOURCES)
    confirmed, admits = (query.get(name, "false") for name in ("confirm", "admit"))
    check_one_of("confirm", confirmed, YES_NO)
    check_one_of("admit", admits, YES_NO)
    fleet = request.services.require_fleet()
    content = await _read_csv(request)
    carried = request.shared.people.recorded_form
    listed = await asyncio.to_thread(read_inventory, "the list", content, carried=carried)
    change = await request.registry.inventory.replace(
        listed.machines, source=source, confirmed=confirmed == "true", actor=request.actor
    )
    admitted = await fleet.admit_machines(request.actor) if admits == "true" else 0
    return {
        "inventory": describe_inventory(fleet.inventory),
        "added": change.added,
        "removed": change.removed,
        "repeated": listed.repeated,
        "no_laptops": listed.no_laptops,
        "admitted": admitted,
    }


async def _read_csv(request: OperatorRequest[SenderServices, None]) -> bytes:
    """Read the body. Raises Refusal 415 or 413. The request's rights are checked again."""
    if request.http.content_type != CSV:
        raise Refusal(415, "unsupported_media_type", f"send the list as {CSV}")
    content = await read_bounded(request.http, most=MAX_LIST)
    if request.check_again is not None:
        await request.check_again()
    return content

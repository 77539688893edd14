"""The operator API for the fleet: coverage, the list of machines, and the inventory of expected machines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.bills.plans.declared import PlanTable
from gateway.core.errors import Refusal
from gateway.core.fields import build_answer
from gateway.core.schemas import TEXT
from gateway.devices.fleet.coverage import STATES, CauseCount, CoveragePart, FleetCoverage, FleetRow
from gateway.devices.fleet.inventory_lists import SOURCES, read_inventory_list
from gateway.devices.fleet.repairs import repair_of_cause
from gateway.devices.machine_state import FAILING, LINKS, WORDS
from gateway.http.lists import (
    YES_NO,
    Filter,
    ListDefinition,
    MemoryRows,
    SearchableObject,
    Sort,
    age_filter,
    yes_no_filter,
)
from gateway.http.requests import Result
from gateway.money.lost_calls import SHOWN_DAYS, FleetLosses
from gateway.operations.devices.devices import FleetAssistant, describe_assistant
from gateway.operations.holders.operators import SenderServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, read_bounded_body
from spool.devices.use_days import KEPT_DAYS
from spool.errors import Invalid
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.insights import dollar_text
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_COSTS, VIEW_OPERATION
from spool.registry.tables.inventory import Inventory
from spool.registry.texts import check_day_from_1970, check_one_of

CSV = "text/csv"
MAX_NAMED = 100  # maximum people without a machine that a response names
# States in the order of the list: devices with trouble come first.
_ORDER = {
    word: place
    for place, word in enumerate(sorted(WORDS, key=lambda word: (word not in FAILING, WORDS.index(word))))
}


def describe_fleet_row(row: FleetRow) -> dict[str, object]:
    device, machine = row.device, row.machine
    return build_answer(
        FleetDeviceItem,
        row,
        link=row.link or None,
        away=row.is_away,
        causes=[
            {"state": state, "cause": cause or None, "words": repair_of_cause((state, cause)).words}
            for state, cause in row.causes
        ],
        device=None if device is None else device.id,
        expected=row.is_in_inventory,
        hostname=row.names.hostname,
        serial=row.names.serial,
        assigned_to="" if machine is None else machine.user,
        agent_version="" if device is None else device.agent_version,
        last_seen=utc_iso(row.last_seen),
        last_call=utc_iso(row.last_call),
        inventory_last_seen=None if machine is None else utc_iso(machine.last_seen),
        assistants=[describe_assistant(state) for state in row.assistants],
    )


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


MACHINES: ListDefinition[FleetRow] = ListDefinition(
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
        "covered": yes_no_filter(lambda row: row.covered),
        "away": yes_no_filter(lambda row: row.is_away),
        "cause": Filter(values=_cause_filter_values, is_open=True),
        "assistant": Filter(values=lambda row: [each.name for each in row.assistants], is_open=True),
        "team": Filter(values=lambda row: (row.team,)),
        "system": Filter(values=lambda row: (row.system,)),
        "user": Filter(values=lambda row: (row.user,), is_open=True, names_people=True),
        "id": Filter(values=lambda row: (row.id,), is_open=True),
        "expected": yes_no_filter(lambda row: row.is_in_inventory),
        "no_report_for": age_filter(lambda row: 0.0 if row.device is None else row.device.last_contact_at),
        "no_call_for": age_filter(lambda row: row.last_call or 0.0),
    },
)


def describe_coverage(
    coverage: FleetCoverage, inventory: Inventory | None, losses: FleetLosses, *, shows_costs: bool
) -> dict[str, object]:
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
        "teams": [
            {**_describe_coverage_part("team", part), "lost_calls": losses.calls_by_team.get(part.name, 0)}
            for part in coverage.teams
        ],
        "systems": [_describe_coverage_part("system", part) for part in coverage.systems],
        "inventory": describe_machine_inventory(inventory),
        "losses": describe_losses(losses, shows_costs=shows_costs),
    }


def describe_losses(losses: FleetLosses, *, shows_costs: bool) -> dict[str, object]:
    """Return the losses of some days. Without `shows_costs`, no cost shows what a few people spend."""
    share = losses.lost_share if shows_costs else None
    costs = losses.estimated, losses.counted
    estimated, counted = (None if cost is None or not shows_costs else dollar_text(cost) for cost in costs)
    return {
        "since": losses.first,
        "until": losses.last,
        "calls": losses.calls,
        "slots": losses.slots,
        "people": losses.people,
        "machines": losses.machines,
        "estimated_cost": estimated,
        "counted_cost": counted,
        "covered_cost_percent": None if share is None else int((1 - share) * 1000) / 10,
    }


def covered_percent(covered: int, machines: int) -> float | None:
    """Return the covered part in percent, rounded down to a tenth, so that 100 means all. None without machines."""
    return covered * 1000 // machines / 10 if machines else None


def _describe_cause(count: CauseCount) -> dict[str, object]:
    repair = repair_of_cause((count.state, count.cause))
    return {
        "state": count.state,
        "cause": count.cause or None,
        "devices": count.devices,
        "assistants": dict(count.assistants),
        "words": repair.words,
        "repair": repair.advice,
    }


def _describe_coverage_part(name: str, part: CoveragePart) -> dict[str, object]:
    return {
        name: part.name,
        "machines": part.machines,
        "covered": part.covered,
        "covered_percent": covered_percent(part.covered, part.machines),
    }


def describe_machine_inventory(inventory: Inventory | None) -> dict[str, object] | None:
    if inventory is None:
        return None
    return {
        "source": inventory.source,
        "imported": utc_iso(inventory.imported),
        "imported_by": inventory.imported_by,
        "machines": len(inventory.machines),
    }


class CoverageStates(msgspec.Struct, kw_only=True):
    unused: Annotated[int, words("The machines whose assistants nobody uses."), example(0)]
    reporting: Annotated[int, words("The machines with an assistant that reports."), example(0)]
    delayed: Annotated[int, words("The machines on which calls wait."), example(0)]
    unseen: Annotated[
        int,
        words(
            "The machines that cannot be judged, because uses of an assistant cannot be compared with calls."
        ),
        example(0),
    ]
    at_risk: Annotated[int, words("The machines with a setting that will lose the next calls."), example(1)]
    unknown: Annotated[
        int, words("The machines of which nothing is known, or whose settings cannot be read."), example(0)
    ]
    agent_stopped: Annotated[
        int, words("The machines that the MDM still sees and whose agents no longer report."), example(0)
    ]
    losing: Annotated[
        int, words("The machines on which an assistant is used and its calls are lost."), example(0)
    ]
    missing: Annotated[int, words("The machines that never reported."), example(1)]
    copied: Annotated[int, words("The machines whose disk seems to be copied."), example(0)]
    pending: Annotated[int, words("The machines that wait for approval."), example(0)]
    left: Annotated[int, words("The machines whose agent was removed or unenrolled."), example(0)]
    revoked: Annotated[int, words("The revoked machines."), example(0)]


class TeamCoverage(msgspec.Struct, kw_only=True):
    team: Annotated[str, words("The team, or empty if it is unknown."), example("engineering")]
    lost_calls: Annotated[
        int,
        words("The least number of calls that machines of the team lost in the days of `losses`."),
        example(2),
    ]
    machines: Annotated[int, words("The machines of the team."), example(1)]
    covered: Annotated[
        int,
        words("The number of covered machines: they report, or their assistants are not in use."),
        example(0),
    ]
    covered_percent: Annotated[
        float, words("The covered part in percent, rounded down to a tenth."), example(0.0)
    ]


class SystemCoverage(msgspec.Struct, kw_only=True):
    system: Annotated[
        str, words("The system: `macos`, `windows`, `linux`, another word, or empty."), example("macos")
    ]
    machines: Annotated[int, words("The machines with this system."), example(2)]
    covered: Annotated[
        int,
        words("The number of covered machines: they report, or their assistants are not in use."),
        example(0),
    ]
    covered_percent: Annotated[
        float, words("The covered part in percent, rounded down to a tenth."), example(0.0)
    ]


class InventoryImport(msgspec.Struct, kw_only=True):
    source: Annotated[str | UnsetType, words("The MDM that exported the list."), example("jamf")] = UNSET
    imported: Annotated[
        str | UnsetType, words("When the list was imported."), example("2026-09-21T14:13:20.000Z")
    ] = UNSET
    imported_by: Annotated[
        str | UnsetType, words("The person who imported the list."), example("ada@example.com")
    ] = UNSET
    machines: Annotated[int | UnsetType, words("The number of machines in the list."), example(2)] = UNSET


class SeatCoverage(msgspec.Struct, kw_only=True):
    with_seat: Annotated[int, words("The people who have a seat of a plan today."), example(0)]
    without_machine: Annotated[
        int, words("The people with a seat who use no machine of the inventory and no device."), example(0)
    ]
    without_machine_names: Annotated[
        list[str], words("Names of these people, as records have them; at most 100."), example([])
    ]


class CoverageLosses(msgspec.Struct, kw_only=True):
    since: Annotated[str, words("The first UTC day."), example("2026-11-24")]
    until: Annotated[str, words("The last UTC day, which is included."), example("2026-11-30")]
    calls: Annotated[int, words("The least number of calls that did not arrive."), example(41)]
    slots: Annotated[
        int, words("The slots of five minutes in which a session was used and no call arrived."), example(130)
    ]
    people: Annotated[
        int, words("The people whose calls were lost. A machine without a user counts as one."), example(3)
    ]
    machines: Annotated[int, words("The machines that lost calls."), example(3)]
    estimated_cost: Annotated[
        str | None,
        words(
            "The estimated cost of the lost calls in USD. It is part of no other cost. Null if it is unknown, without "
            "the permission set *View Costs*, or with `privacy.min_group`."
        ),
        example("6.20"),
    ]
    counted_cost: Annotated[
        str | None,
        words("The cost of all calls of coding assistants in these days in USD, or null without losses."),
        example("413.02"),
    ]
    covered_cost_percent: Annotated[
        float | None,
        words(
            "The counted part of both costs in percent, rounded down to a tenth, or null without an estimate."
        ),
        example(98.5),
    ]


class CoverageAnswer(msgspec.Struct, kw_only=True):
    machines: Annotated[
        int, words("The machines of the inventory, or all devices if there is no inventory."), example(2)
    ]
    covered: Annotated[
        int,
        words("The number of covered machines: they report, or their assistants are not in use."),
        example(0),
    ]
    covered_percent: Annotated[
        float | None,
        words("The covered part in percent, rounded down to a tenth; null without machines."),
        example(0.0),
    ]
    away: Annotated[
        int,
        words(
            "The number of machines without a report, a call or a check-in for `devices.coverage_days`. Of the other "
            "fields, only `enrolled_devices` and `unexpected` include them."
        ),
        example(0),
    ]
    offline: Annotated[
        int,
        words(
            "The number of `machines` that missed three reports. They keep the state of their last report."
        ),
        example(0),
    ]
    enrolled_devices: Annotated[int, words("The number of enrolled devices."), example(1)]
    unexpected: Annotated[int, words("The number of devices that are not in the inventory."), example(0)]
    states: Annotated[CoverageStates, words("The states, with the fields below.")]
    causes: Annotated[
        list[dict[str, Any]],
        words("The machines by cause: `state`, `cause`, `devices`, `assistants`, `words` and `repair`."),
        example(
            [
                {
                    "state": "overridden",
                    "cause": "other_endpoint",
                    "devices": 1,
                    "assistants": {"codex": 1},
                    "words": "sends to another endpoint",
                    "repair": (
                        "Ask the person who uses this endpoint. Distribute the managed settings"
                        " (`tollhouse agent policy`), or run `tollhouse agent setup` on the "
                        "laptop."
                    ),
                }
            ]
        ),
    ]
    assistants: Annotated[
        dict[str, Any],
        words("The number of devices by assistant and state."),
        example({"codex": {"overridden": 1}}),
    ]
    teams: Annotated[list[TeamCoverage], words("The teams, each with the fields below.")]
    systems: Annotated[list[SystemCoverage], words("The systems, each with the fields below.")]
    inventory: Annotated[InventoryImport | None, words("The inventory, with the fields below.")]
    losses: Annotated[CoverageLosses, words("The lost calls of `since` to `until`, with the fields below.")]
    people: Annotated[SeatCoverage, words("The people, with the fields below.")]


class FleetDeviceItem(msgspec.Struct, kw_only=True):
    id: Annotated[
        str,
        words("The id of the device, or the serial number or host name of a missing machine."),
        example("laptop-ada"),
    ]
    state: Annotated[str, words("The state of the device."), example("at_risk")]
    link: Annotated[
        str | None,
        words(
            "`online`, `offline` after three missed reports, or `unknown`; null if the machine has no device."
        ),
        example("online"),
    ]
    covered: Annotated[bool, words("Whether the machine counts as covered."), example(False)]
    away: Annotated[
        bool, words("Whether nothing was heard of the machine for `devices.coverage_days`."), example(False)
    ]
    causes: Annotated[
        list[dict[str, str | None]],
        words("The reasons why calls of the machine may be lost, each with `state`, `cause` and `words`."),
        example([{"state": "overridden", "cause": "other_endpoint", "words": "sends to another endpoint"}]),
    ]
    device: Annotated[
        str | None, words("The id of the device, or null if the machine has none."), example("laptop-ada")
    ]
    expected: Annotated[bool, words("Whether the machine is in the inventory."), example(True)]
    hostname: Annotated[str, words("The host name."), example("ada-mac")]
    serial: Annotated[str, words("The serial number in the inventory, or empty."), example("C02XL0GYJGH5")]
    user: Annotated[str, words("The person who uses the device."), example("ada")]
    assigned_to: Annotated[str, words("The user in the inventory, or empty."), example("ada")]
    team: Annotated[
        str, words("The team by the device's label, or by the inventory."), example("engineering")
    ]
    os: Annotated[
        str, words("The operating system that the device reported, or the inventory."), example("macos 26.1")
    ]
    system: Annotated[
        str, words("The system: `macos`, `windows`, `linux`, another word, or empty."), example("macos")
    ]
    agent_version: Annotated[str, words("The version of the agent."), example("1.4.0")]
    last_seen: Annotated[
        str | None, words("When the last report of the device arrived."), example("2026-09-21T14:13:20.000Z")
    ]
    last_call: Annotated[
        str | None, words("When the newest call of the machine ended, or null."), example(None)
    ]
    inventory_last_seen: Annotated[
        str | None,
        words("The last check-in at the MDM, as the inventory states it."),
        example("2026-11-26T06:00:00.000Z"),
    ]
    assistants: Annotated[list[FleetAssistant], words("The coding assistants, with the fields below.")]


class InventoryAnswer(msgspec.Struct, kw_only=True):
    inventory: Annotated[InventoryImport | None, words("The inventory, with the fields below.")]


class ReplaceInventoryAnswer(msgspec.Struct, kw_only=True):
    inventory: Annotated[InventoryImport, words("The inventory, with the fields below.")]
    added: Annotated[int, words("The number of machines that the list adds."), example(2)]
    removed: Annotated[int, words("The number of machines that the list removes."), example(0)]
    repeated: Annotated[int, words("The number of rows that repeat a machine."), example(0)]
    no_laptops: Annotated[
        int, words("The number of rows that were left out because they are phones or tablets."), example(0)
    ]
    admitted: Annotated[int, words("The number of serial numbers that became devices."), example(0)]


@operator_call(
    "GET",
    "/fleet/coverage",
    VIEW_OPERATION,
    "Show how many machines of the fleet report, and why others do not",
    optional=("since", "until"),
    answers=CoverageAnswer,
)
async def show_coverage(request: OperatorRequest[SenderServices, None]) -> Result:
    """
    Return the coverage now, and the calls that were lost from the UTC day `since` to the UTC day `until`, both
    included. Without them, these are the last 7 days.
    """
    fleet, estimator = request.services.require_fleet(), request.services.require_losses()
    query = request.http.query
    until = _read_day(query, "until", datetime.fromtimestamp(request.now(), UTC).date())
    since = _read_day(query, "since", until - timedelta(days=SHOWN_DAYS - 1))
    if not timedelta(0) <= until - since < timedelta(days=KEPT_DAYS):
        raise Invalid(f"until must be 0 to {KEPT_DAYS - 1} days after since")
    rows = await fleet.machine_rows()
    losses = await estimator.losses_between(since, until)
    shows_costs = VIEW_COSTS in request.rights.permission_sets and not request.shared.people.min_group
    return {
        **describe_coverage(fleet.measure_coverage(rows), fleet.inventory, losses, shows_costs=shows_costs),
        "people": await asyncio.to_thread(_seat_coverage_fields, request, rows),
    }


def _read_day(query: Mapping[str, str], name: str, default: date) -> date:
    return check_day_from_1970(name, query[name]) if name in query else default


def _seat_coverage_fields(
    request: OperatorRequest[SenderServices, Any], rows: list[FleetRow]
) -> dict[str, object]:
    people = request.shared.people
    today = datetime.fromtimestamp(request.now(), UTC).date().isoformat()
    seats = {
        people.person_identity(seat.user)
        for plan in request.registry.declared_table(PlanTable).all()
        for seat in plan.seats
        if seat.since <= today and (not seat.until or today < seat.until)
    }
    without = sorted(seats - {people.person_identity(row.user) for row in rows if row.user})
    return {
        "with_seat": len(seats),
        "without_machine": len(without),
        "without_machine_names": without[:MAX_NAMED],
    }


async def _names_of_machines(request: OperatorRequest[SenderServices, None]) -> Iterator[SearchableObject]:
    return (
        SearchableObject(names.id, names) for names in request.services.require_fleet().all_machine_names()
    )


@operator_call(
    "GET",
    "/fleet/devices",
    VIEW_OPERATION,
    "List the machines of the fleet, those with trouble first",
    lists=MACHINES,
    item=FleetDeviceItem,
    names=_names_of_machines,
)
async def list_machines(request: OperatorRequest[SenderServices, None]) -> Result:
    fleet = request.services.require_fleet()
    return await request.list_page(MACHINES, MemoryRows(await fleet.machine_rows()))


@operator_call(
    "GET",
    "/fleet/inventory",
    VIEW_OPERATION,
    "Show from where and when the inventory was imported",
    answers=InventoryAnswer,
)
async def show_inventory(request: OperatorRequest[SenderServices, None]) -> Result:
    return {"inventory": describe_machine_inventory(request.services.require_fleet().inventory)}


@operator_call(
    "PUT",
    "/fleet/inventory",
    OPERATE_SPOOL,
    "Replace the inventory of expected machines by a CSV list of an MDM",
    required=("source",),
    optional=("confirm", "admit"),
    takes={CSV: TEXT},
    answers=ReplaceInventoryAnswer,
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
    carried = request.shared.people.text_for_record
    listed = await asyncio.to_thread(read_inventory_list, "the list", content, to_recorded_user=carried)
    change = await request.registry.inventory.replace_machines(
        listed.machines, source=source, confirmed=confirmed == "true", actor=request.actor
    )
    admitted = await fleet.enrol_machines_without_agent(request.actor) if admits == "true" else 0
    return {
        "inventory": describe_machine_inventory(fleet.inventory),
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
    most = request.services.require_devices().settings.max_inventory_bytes
    content = await read_bounded_body(request.http, max_bytes=most, setting="devices.max_inventory_bytes")
    if request.check_again is not None:
        await request.check_again()
    return content

"""
Erasure of people in a whole storage: registry, log, totals and devices.

The registry is changed first, so that new records and a later start apply the erasure. The later steps can be
repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from spool.clock import Clock
from spool.devices.device import Device, change_for_existing_device
from spool.devices.use_days import USE_DAYS
from spool.erasure import (
    NO_RECORDS,
    TOPICS_OF_PEOPLE,
    Erasure,
    RenamedRecords,
    Renaming,
    pseudonyms_by_digest,
)
from spool.errors import SpoolUnavailable
from spool.ledger.colours import NAME_COLOURS
from spool.ledger.sums import OTHER
from spool.log.partial_reports import COUNTED, COUNTERS, PARTS
from spool.log.pending_spans import KEPT_S
from spool.loops import repeat
from spool.people import STORED_BEFORE, People
from spool.record import AI_TELEMETRY
from spool.registry.audit import AuditedChange
from spool.registry.erasing import ErasedRows, find_pseudonym
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.searching import NO_NAMES, NamesFound, search_for_names
from spool.storage import Storage

AGAIN_AFTER_S = KEPT_S + 3600.0  # after this time, no report from before the erasure waits
LOOK_S = 600.0
DEVICE = "device "  # prefix of the name under which the agent of a device is listed


@dataclass(frozen=True, kw_only=True)
class ErasureResult:
    """
    The result of an erasure. `below`: agents and gateways that must also erase. `remains`: reasons why rows
    may still be on disk.
    """

    rows: ErasedRows = field(default_factory=ErasedRows)
    records: RenamedRecords = NO_RECORDS
    sums: int = 0  # sets of dimensions that were renamed
    found: NamesFound = NO_NAMES
    devices: Sequence[str] = ()
    below: Sequence[str] = ()  # agents and gateways of lower levels that must erase the person as well
    remains: Sequence[str] = ()


async def erase_from_storage(
    storage: Storage,
    erasure: Erasure,
    *,
    revoke_device: Callable[[Device], Device],
    actor: Actor,
    shown_names: Collection[str] = (),
    is_trial: bool = False,
    overwrites_remains: bool = True,
) -> ErasureResult:
    """
    Erase a person. Raises NotAllowed if the actor is this person, or if no other Admin would be left.

    `shown_names`: names that the console showed for the person. `revoke_device`: returns a device as revoked. With
    `is_trial`, nothing changes and rows are only counted. Without `overwrites_remains`, the caller must call
    `overwrite_deleted_data` after the last erasure.
    """
    registry = _require_registry(storage)
    devices = device_ids_of_person(storage, registry.people, erasure)
    below = await agents_and_gateways_that_must_erase(storage, registry, erasure, devices)
    erasure = replace(erasure, below=sorted({*erasure.below, *below}))
    rows = await registry.erase_person(erasure, shown_names, actor, is_trial=is_trial)
    if is_trial:
        name_of = _name_function(registry.people, erasure)
        records = await storage.rename_records(lambda name, _: name_of(name), is_trial=True)
        return ErasureResult(rows=rows, records=records, devices=devices, below=below)
    done = await _finish_erasure(
        storage, registry, erasure, revoke_device, actor, overwrites_remains=overwrites_remains
    )
    return replace(done, rows=rows, devices=devices, below=below)


async def _finish_erasure(
    storage: Storage,
    registry: Registry,
    erasure: Erasure,
    revoke_device: Callable[[Device], Device],
    actor: Actor,
    *,
    overwrites_remains: bool = True,
) -> ErasureResult:
    named = partial(find_pseudonym, registry.people, pseudonyms_by_digest([erasure]))

    async def rename_records_below(number: int) -> RenamedRecords:
        numbers = {topic: await storage.log.newest_number(topic) for topic in TOPICS_OF_PEOPLE}
        numbers[AI_TELEMETRY] = max(numbers[AI_TELEMETRY], number)
        numbered = await registry.persons.store_numbers_at_erasure(erasure, numbers, log=storage.incarnation)
        return await storage.rename_records(_pseudonym_function(registry.people, numbered))

    await storage.ledger.catch_up(storage.log)
    sums, renamed = await storage.ledger.rename_people(
        _name_function(registry.people, erasure), rename_records_below
    )
    if erasure.devices:
        await _erase_devices(
            storage, device_ids_of_person(storage, registry.people, erasure), revoke_device, actor
        )
        await _rename_person_in_other_devices(storage, named, actor)
    await _forget_colours(storage, erasure)
    remains = await overwrite_deleted_data(storage) if overwrites_remains else ()
    found = await search_for_names(storage.visit_rows, named)
    # stored last, so that a start after a crash repeats everything
    await registry.persons.store_finished_renaming(erasure)
    return ErasureResult(records=renamed, sums=sums, found=found, remains=remains)


async def _forget_colours(storage: Storage, erasure: Erasure) -> None:
    """
    Delete the colours of the person's names. The digests of another Tollhouse name no row, so all colours are then
    assigned again.
    """
    colours = storage.small.open_table(NAME_COLOURS)
    await colours.forget_colours(None if erasure.key else erasure.names)


async def overwrite_deleted_data(storage: Storage) -> Sequence[str]:
    """
    Overwrite the free space of the databases, which still has deleted rows. Return reasons why some may
    remain on disk.
    """
    remains = [
        await part.overwrite_deleted_data() for part in (_require_registry(storage), storage.ledger, storage)
    ]
    return [*filter(None, remains)]


async def run_erasures_forever(
    storage: Storage, clock: Clock, revoke_device: Callable[[Device], Device]
) -> None:
    """Repeat `continue_due_erasures` until cancelled."""
    await repeat(
        partial(continue_due_erasures, storage, clock, revoke_device),
        every_s=LOOK_S,
        failed="an erasure will be continued",
        action="erasure_waits",
    )


async def continue_due_erasures(
    storage: Storage, clock: Clock, revoke_device: Callable[[Device], Device]
) -> int:
    """
    Finish interrupted erasures. Rename once more in each erasure from AGAIN_AFTER_S ago, for reports that
    arrived late.
    """
    registry = _require_registry(storage)
    due = [
        erasure
        for erasure in registry.persons.erasures
        if not erasure.passes or (erasure.passes == 1 and clock.now() >= erasure.at + AGAIN_AFTER_S)
    ]

    async def continue_erasure(erasure: Erasure) -> None:
        if not erasure.passes:
            await _finish_erasure(storage, registry, erasure, revoke_device, Actor("erasure", ""))
            return
        is_last = not await _has_partial_reports_before(storage, erasure)
        rename = partial(storage.rename_records, _pseudonym_function(registry.people, erasure))
        late = await rename(is_trial=True)
        if late.records:
            # stored first, because after an interruption no record may have the name that the totals still have
            await registry.persons.store_whether_totals_have_names(erasure, True)
            await rename()
        has_changed = bool(late.records) or erasure.totals_have_names
        if has_changed:
            # names in the totals may belong to a new person, so the calls are counted again
            await storage.ledger.catch_up(storage.log)
            await storage.ledger.rebuild(storage.log)
            await storage.ledger.catch_up(storage.log)
        if is_last:
            await _forget_colours(storage, erasure)  # a chart from before the erasure may have stored one
        if is_last or has_changed:
            await overwrite_deleted_data(storage)
        if has_changed:
            await registry.persons.store_whether_totals_have_names(erasure, False)
        if is_last:
            named = _name_function(registry.people, erasure)
            found = await search_for_names(storage.visit_rows, named)
            after = {
                "renamed_records": late.records,
                "later_records": late.later,
                "searched_bytes": found.searched_bytes,
                "rows_with_name": found.rows,
            }
            await registry.audit_change(Actor("erasure", ""), "person.erase.search", erasure.id, after=after)
            await registry.persons.store_finished_renaming(erasure)

    await storage.failed_items.work_on("erasures", {erasure.id: erasure for erasure in due}, continue_erasure)
    return len(due)


async def _has_partial_reports_before(storage: Storage, erasure: Erasure) -> bool:
    """
    Return whether partial reports from before the erasure still wait, for example because a gateway was off.
    They may become records with the old name.
    """
    reports = storage.partial_reports
    found = [
        await reports.oldest_reports(kind, before_time=erasure.at, max_reports=1)
        for kind in (PARTS, COUNTERS, COUNTED)
    ]
    return any(found)


def device_ids_of_person(storage: Storage, people: People, erasure: Erasure) -> Sequence[str]:
    by_digest = pseudonyms_by_digest([erasure])
    return sorted(
        device.id
        for device in storage.devices.all()
        if device.user and find_pseudonym(people, by_digest, device.user) != device.user
    )


async def agents_and_gateways_that_must_erase(
    storage: Storage, registry: Registry, erasure: Erasure, devices_of_person: Collection[str]
) -> Sequence[str]:
    """
    Return the gateways below, and the agents of the person's devices, that must erase the person as well.

    No other gateway or agent gets an order, because an order would confirm a guessed name.
    """
    below = registry.persons.below
    agents = {name for name in below if name.startswith(DEVICE)}
    if not agents:
        return sorted(below)
    await storage.ledger.catch_up(storage.log)
    used = await storage.ledger.devices_of_renamed(_name_function(registry.people, erasure))
    concerned = agents if OTHER in used else {DEVICE + device for device in (*devices_of_person, *used)}
    return sorted(name for name in below if name in concerned or name not in agents)


def _pseudonym_function(people: People, erasure: Erasure) -> Renaming:
    return partial(people.pseudonym, erased=pseudonyms_by_digest([erasure]))


def _name_function(people: People, erasure: Erasure) -> Callable[[str], str]:
    """Return a function that returns the pseudonym of a name which is stored without the time of a call."""
    return partial(people.pseudonym, call=STORED_BEFORE, erased=pseudonyms_by_digest([erasure]))


async def _erase_devices(
    storage: Storage, ids: Sequence[str], revoke_device: Callable[[Device], Device], actor: Actor
) -> None:
    def erase_device(device: Device) -> Device:
        plain = replace(revoke_device(device), heartbeat=b"", labels={}, operator_labels={}, fingerprint="")
        return plain.with_changes_and_next_version(changes_enrolment=True, user="", hostname="", serial="")

    for id in ids:
        change = AuditedChange(actor=actor, action="device.erase", target=id)
        await storage.devices.update(id, change_for_existing_device(erase_device), change)
    await storage.small.open_table(USE_DAYS).sum_devices(ids)


async def _rename_person_in_other_devices(
    storage: Storage, rename: Callable[[str], str], actor: Actor
) -> None:
    """
    Replace the person's names in labels and host names of other devices, such as a server's label with its
    owner.
    """

    def with_pseudonyms(device: Device) -> Device:
        reported, own = (
            {key: rename(value) for key, value in labels.items()}
            for labels in (device.labels, device.operator_labels)
        )
        hostname = rename(device.hostname)
        if (reported, own, hostname) == (device.labels, device.operator_labels, device.hostname):
            return device
        return device.with_changes_and_next_version(
            changes_enrolment=True, labels=reported, operator_labels=own, hostname=hostname
        )

    for device in [each for each in storage.devices.all() if with_pseudonyms(each) is not each]:
        change = AuditedChange(actor=actor, action="device.erase", target=device.id)
        await storage.devices.update(device.id, change_for_existing_device(with_pseudonyms), change)


def _require_registry(storage: Storage) -> Registry:
    if storage.registry is None:
        raise SpoolUnavailable(storage.registry_problem)
    return storage.registry

"""Assignment of records to devices when other records of the payload are rejected."""

from __future__ import annotations

from dataclasses import replace

from gateway.configuration.sections import DeviceSettings
from gateway.devices.assignment import MAY_NOT_CHAIN, DeviceAssignment
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.normalise.outcome import ReadOutcome
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.devices.device import ENROLLED, REVOKED, Device
from spool.devices.table import DeviceTable
from spool.identity import RecordIdentity
from spool.record import Inference
from spool.registry.scopes import ENROLL
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.moved_clock import MovedClock


async def test_records_keep_their_device_when_others_are_refused() -> None:
    """
    Records keep their own device although other records of the payload are refused. Another Tollhouse
    forwarded the refused records, and this key may not send forwarded records.
    """
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    lifecycle = DeviceLifecycle(table, settings=DeviceSettings(), clock=MovedClock(), secret=b"s" * 32)
    names = ["far", "laptop-1", "far", "laptop-2", "laptop-3"]
    outcome = ReadOutcome(
        received=len(names),
        records=[
            Inference(id=bytes([place]) * 16, source="otel", session=name) for place, name in enumerate(names)
        ],
        identities=[RecordIdentity(bytes([place]) * 16) for place in range(len(names))],
        forwarded={0, 2},
        named={1: "laptop-1", 3: "laptop-2", 4: "laptop-3"},
    )
    bearer = AuthenticatedKey("fleet", frozenset({ENROLL}), may_chain=False)
    await DeviceAssignment(lifecycle).assign_or_reject_items(outcome, bearer)
    await table.close()
    kept = [(record.session, record.device) for record in outcome.records]
    assert [(name, name) for name in names if name != "far"] == kept
    assert [(0, MAY_NOT_CHAIN), (2, MAY_NOT_CHAIN)] == [(each.item, each.reason) for each in outcome.rejects]


async def test_rejected_calls_leave_no_session() -> None:
    """A rejected call stores no session, so a counter of another device is not mistaken for its duplicate."""
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    lifecycle = DeviceLifecycle(table, settings=DeviceSettings(), clock=MovedClock(), secret=b"s" * 32)
    for id, state in (("gone", REVOKED), ("laptop", ENROLLED)):
        await table.replace_row(
            Device(id=id, enrolled_at=1.0, enrolled_by="fleet", last_seen=1.0, state=state)
        )
    outcome = ReadOutcome(received=2)
    for place, (name, sessions) in enumerate((("gone", ["one", "both"]), ("laptop", ["both", "other"]))):
        record = Inference(id=bytes([place]) * 16, source="otel")
        outcome.add_record(record, RecordIdentity(record.id), device=name)
        for session in sessions:
            outcome.note_resource_session(record, session, device=name)
    await DeviceAssignment(lifecycle).assign_or_reject_items(
        outcome, AuthenticatedKey("fleet", frozenset({ENROLL}))
    )
    await table.close()
    assert ["laptop"] == [record.device for record in outcome.records]
    assert {("otel", None, "both"), ("otel", None, "other")} == outcome.sessions.keys()


async def test_costs_of_local_programs_and_forwarding_keys_are_retained() -> None:
    """An agent forwards the costs of its programs. The gateway decides whether they count."""
    table = await DeviceTable.open(SqliteDevices(MemoryDatabase(SPOOL)))
    lifecycle = DeviceLifecycle(table, settings=DeviceSettings(), clock=MovedClock(), secret=b"s" * 32)
    await table.replace_row(
        Device(id="laptop", enrolled_at=1.0, enrolled_by="fleet", last_seen=1.0, state=ENROLLED)
    )
    own = AuthenticatedKey("device laptop", frozenset(), device="laptop")
    costs = []
    for bearer in (own, replace(own, is_local=True), replace(own, may_chain=True)):
        call = Inference(id=b"1" * 16, source="claude_code", cost="0.5", cost_source="reported")
        outcome = ReadOutcome(received=1)
        outcome.add_record(call, RecordIdentity(call.id))
        await DeviceAssignment(lifecycle).assign_or_reject_items(outcome, bearer)
        costs.append((call.cost, call.cost_source))
    await table.close()
    assert [(None, "none"), ("0.5", "reported"), ("0.5", "reported")] == costs

"""
Assignment of records to devices, by the device that the telemetry names and the key under which it arrived.

A device's own key decides. Without such a key, the device name in the resource applies, and without a name
there, the `X-Device-Id` header. If a device has its own key, no other sender can name that device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gateway.devices.agent.heard_calls import ReceivedCall
from gateway.devices.agent.sessions import program_of_call
from gateway.devices.fleet.assistant_states import OTHER_CALLS
from gateway.devices.lifecycle import DeviceLifecycle
from gateway.normalise.assistants import assistant_of_source
from gateway.normalise.outcome import CHECK, ReadOutcome
from gateway.normalise.reading import tags as tag_rules
from gateway.people.authentication.bearer import NO_LABELS, AuthenticatedKey
from spool import identity
from spool.devices.device import ENROLLED, REVOKED, Device, is_device_id
from spool.identity import RecordIdentity
from spool.record import NS, AiRecord, Inference, UsageMetric

CLAIMED = "claimed_device"  # counter name for records that named a device but arrived under another key
DEVICE_REVOKED = "device_revoked"
MAY_NOT_CHAIN = "may_not_chain"
_NO_CHAIN = "records of another Tollhouse need a key that is listed in server.chain_keys"


class _DeviceMatch(NamedTuple):
    device: str | None
    claimed: bool = False
    revoked: bool = False


class DeviceAssignment:
    """
    The assignment of records to devices. `claimed` is called with the number of records that named a device
    but arrived under another key.
    """

    def __init__(
        self, lifecycle: DeviceLifecycle, *, claimed: Callable[[int], None] = lambda _: None
    ) -> None:
        self._lifecycle = lifecycle
        self._table = lifecycle.table
        self._count_claims = claimed

    async def assign_or_reject_items(self, outcome: ReadOutcome, bearer: AuthenticatedKey) -> None:
        """
        Assign items to the device of their sender. Items of a revoked device are rejected. Records that
        another Tollhouse forwarded are rejected if the key may not forward. All other items are stored. Under
        a device's own key, which an agent uses, forwarded records count as reports of this device. Raises
        Refusal 410 if the header names a revoked device.
        """
        if not (
            bearer.device
            or bearer.named
            or outcome.named
            or outcome.named_points
            or outcome.forwarded
            or outcome.sessions
        ):
            return
        if outcome.forwarded and not bearer.may_chain:
            refused = (
                outcome.forwarded
                if bearer.device is None
                else _positions_of_reports_that_reduce_sums(outcome)
            )
            _reject_items(outcome, set(refused), MAY_NOT_CHAIN, _NO_CHAIN)
        names = {name for _, name, _ in _items_with_device_and_whether_forwarded(outcome, bearer)}
        if bearer.device is None:
            await self._enrol_unknown_devices(sorted(name for name in names if name is not None), bearer)
        verdicts = {name: self._match_device_and_note_revoked(name, bearer) for name in names}
        claims, revoked_positions = 0, []
        for position, (record, name, forwarded) in enumerate(
            _items_with_device_and_whether_forwarded(outcome, bearer)
        ):
            verdict = verdicts[name]
            if verdict.revoked:
                revoked_positions.append(position)
            elif verdict.claimed and name is not None:
                claims += 1
                record.device = verdict.device
                record.tags = _with_claimed_device_tag(record.tags, name)
            elif verdict.device is not None or not forwarded:
                record.device = verdict.device
        if claims:
            self._count_claims(claims)
        if revoked_positions:
            _reject_items(outcome, set(revoked_positions), DEVICE_REVOKED, "its device was revoked")
        _remove_and_count_test_calls(outcome)
        if bearer.local_user is not None and (login := self._lifecycle.login_of(bearer.local_user)):
            _fill_missing_users(outcome, login)
        if bearer.device is not None and not bearer.may_chain:
            _identify_as_device_reports(outcome, bearer.device)
            if not bearer.is_local:
                _remove_costs(outcome)
        self._leave_out_sessions_of_revoked(outcome, bearer)
        self._record_newest_calls((verdict.device for verdict in verdicts.values()), outcome.records, bearer)

    def _leave_out_sessions_of_revoked(self, outcome: ReadOutcome, bearer: AuthenticatedKey) -> None:
        def is_revoked(name: str | None) -> bool:
            named_device = _device_id_or_none(name) or bearer.named
            return self._match_device_and_note_revoked(named_device, bearer).revoked

        sessions = outcome.sessions.items()
        outcome.sessions = {window: named for window, named in sessions if not all(map(is_revoked, named))}

    def labels_with_user(self, device: str | None) -> Mapping[str, str]:
        """Return the labels of a device. Its user is one of them, unless a label names another user."""
        enrolled = self._table.find(device) if device is not None else None
        if enrolled is None:
            return NO_LABELS
        return {"user": enrolled.user, **enrolled.all_labels} if enrolled.user else enrolled.all_labels

    async def _enrol_unknown_devices(self, names: list[str], bearer: AuthenticatedKey) -> None:
        if (
            bearer.named is not None
            and (named_device := self._table.find(bearer.named))
            and _is_revoked_by_another(named_device, bearer)
        ):
            raise self._lifecycle.note_revoked_and_build_refusal(named_device, bearer)
        for name in names:
            if self._table.find(name) is None:
                await self._lifecycle.enrol_or_list_device(name, bearer)

    def _match_device_and_note_revoked(self, name: str | None, bearer: AuthenticatedKey) -> _DeviceMatch:
        if bearer.device is not None:
            return _DeviceMatch(bearer.device, claimed=name not in (None, bearer.device))
        device = self._table.find(name) if name is not None else None
        if device is None:
            return _DeviceMatch(None)
        if _is_revoked_by_another(device, bearer):
            self._lifecycle.note_revoked_and_build_refusal(device, bearer)
            return _DeviceMatch(None, revoked=True)
        if device.has_key:
            return _DeviceMatch(None, claimed=True)
        return _DeviceMatch(device.id if device.state in (ENROLLED, REVOKED) else None)

    def _record_newest_calls(
        self, devices: Iterator[str | None], records: Sequence[AiRecord], bearer: AuthenticatedKey
    ) -> None:
        calls: dict[str, dict[str, float]] = {id: {} for id in devices if id is not None}
        now = self._lifecycle.now()
        for record in records:
            if isinstance(record, Inference) and record.device in calls:
                name = assistant_of_source(record.source, record.tags.get("service")) or OTHER_CALLS
                newest = calls[record.device]
                newest[name] = max(_call_end_or_now(record, now), newest.get(name, 0.0))
        if bearer.is_local and bearer.device is not None:
            user = bearer.local_user
            self._lifecycle.called([call for record in records if (call := received_call(record, now, user))])
        for id, ends in calls.items():
            device = self._table.find(id)
            if device is not None:
                self._lifecycle.note_telemetry(device, ends, bearer)


def _items_with_device_and_whether_forwarded(
    outcome: ReadOutcome, bearer: AuthenticatedKey
) -> Iterator[tuple[AiRecord, str | None, bool]]:
    for position, record in enumerate(outcome.records):
        forwarded = position in outcome.forwarded
        name = record.device if forwarded else outcome.named.get(position)
        yield record, _device_id_or_none(name) or bearer.named, forwarded
    for position, point in enumerate(outcome.points):
        yield point.template, _device_id_or_none(outcome.named_points.get(position)) or bearer.named, False


def _is_revoked_by_another(device: Device, bearer: AuthenticatedKey) -> bool:
    """
    Return whether a device is revoked, and not by the sending gateway, which may still send earlier records.
    """
    return device.state == REVOKED and device.revoked_by != bearer.name


def _positions_of_reports_that_reduce_sums(outcome: ReadOutcome) -> set[int]:
    """Return the positions of reports that reduce a sum, which a device's own report never does."""
    return {
        position
        for position in outcome.forwarded
        if isinstance(record := outcome.records[position], UsageMetric) and str(record.value).startswith("-")
    }


def _identify_as_device_reports(outcome: ReadOutcome, device: str) -> None:
    """
    Treat records as reports of a device. If the id of a record cannot be derived from its own fields, it
    counts only for this device. So the device cannot claim another sender's call.
    """
    for position in outcome.forwarded:
        record = outcome.records[position]
        stated = identity.identity_from_ids(record) if isinstance(record, Inference) else None
        record_identity = stated or RecordIdentity(identity.derived_dedup_key(record.id, f"device {device}"))
        record.id, outcome.identities[position] = record_identity.id, record_identity
    # the sending Tollhouse has already decided which counters repeat calls
    outcome.forwarded = {
        position for position in outcome.forwarded if not isinstance(outcome.records[position], Inference)
    }


def _remove_costs(outcome: ReadOutcome) -> None:
    """Remove a device's costs unless `server.chain_keys` lists its key. The gateway prices the calls."""
    for record in outcome.records:
        if isinstance(record, Inference):
            record.cost = record.estimated_cost = record.price_book = None
            record.charges, record.cost_source = {}, "none"


def received_call(record: AiRecord, now: float, user: int | None = None) -> ReceivedCall | None:
    """Return a call as the agent compares it with sessions, or None if no coding assistant made the record."""
    program = program_of_call(record.source, record.tags.get("service"))
    if program is None or not isinstance(record, Inference):
        return None
    ended = _call_end_or_now(record, now)
    began = record.start_time
    return ReceivedCall(program, record.session or "", user, ended if began is None else began / NS, ended)


def _call_end_or_now(call: Inference, now: float) -> float:
    """Return the end of a call in epoch seconds of the sender's clock. A call without a time ends now."""
    ended = call.end_time or call.start_time
    return now if ended is None else ended / NS


def _device_id_or_none(name: str | None) -> str | None:
    return name if name is not None and is_device_id(name) else None


def _with_claimed_device_tag(tags: Mapping[str, str], device_name: str) -> dict[str, str]:
    """
    Return a copy of the tags with the claimed device name. It is a copy because several records may share
    their tags.
    """
    tagged = dict(tags)
    tag_rules.put_tag_if_allowed(tagged, CLAIMED, device_name)
    return tagged


def _remove_and_count_test_calls(outcome: ReadOutcome) -> None:
    """
    Remove test calls and count them as ignored. This rule is last, so that all others apply to test calls as
    well.
    """
    checks = {position for position in outcome.forwarded if outcome.records[position].id == identity.CHECK_ID}
    if checks:
        _remove_items(outcome, checks)
        outcome.ignored[CHECK] += len(checks)


def _fill_missing_users(outcome: ReadOutcome, login: str) -> None:
    for record in (*outcome.records, *(point.template for point in outcome.points)):
        record.user = record.user or login


def _reject_items(outcome: ReadOutcome, positions: set[int], reason: str, message: str) -> None:
    _remove_items(outcome, positions)
    for position in sorted(positions):
        outcome.reject_item(position, reason, f"record {position}: {message}")


def _remove_items(outcome: ReadOutcome, positions: set[int]) -> None:
    """Remove the items at these positions from the outcome. Points are numbered after records."""
    records = len(outcome.records)
    kept_records = [position for position in range(records) if position not in positions]
    new_position = {old_position: now for now, old_position in enumerate(kept_records)}
    outcome.records = [outcome.records[position] for position in kept_records]
    outcome.identities = [outcome.identities[position] for position in kept_records]
    outcome.forwarded = {new_position[position] for position in outcome.forwarded if position in new_position}
    outcome.named = {
        new_position[position]: name for position, name in outcome.named.items() if position in new_position
    }
    of_points = [position for position in range(len(outcome.points)) if position + records not in positions]
    outcome.points = [outcome.points[position] for position in of_points]
    named_points = outcome.named_points
    outcome.named_points = {
        now: named_points[old_position]
        for now, old_position in enumerate(of_points)
        if old_position in named_points
    }
    if outcome.why is not None:
        outcome.why = [outcome.why[position] for position in kept_records]

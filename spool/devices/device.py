"""Devices, device names that could not be enrolled, and the storage protocol for both."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from spool.errors import NotAllowed, NotThere, SpoolUnavailable
from spool.log.partial_reports import Expectation

PENDING, ENROLLED, REVOKED = "pending", "enrolled", "revoked"
HEARD_EVERY_S = 15.0  # precision of the time of the last telemetry
REVOKED_UPSTREAM = "the upstream revoked this device; an operator there can approve it again"

_ID = re.compile(r"[A-Za-z0-9._:@-]{1,128}")


def is_device_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """
    One device. Each change creates a new row. `version` grows with every change that is sent upstream.

    `facts_version` is the version at which an enrolment field last changed. `sent_version` is the version
    that the upstream has.
    """

    id: str
    state: str = ENROLLED  # gateway.devices.machine_state computes the other states
    hostname: str = ""
    platform: str = ""
    agent_version: str = ""
    user: str = ""
    fingerprint: str = field(default="", repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)  # labels as the device reports them
    # labels that operators set; they override reported labels
    operator_labels: Mapping[str, str] = field(default_factory=dict)
    generation: int = 1  # generation of the device's key; a reset or a revocation ends all earlier keys
    has_key: bool = False
    key_used: bool = False
    enrolled_at: float
    enrolled_by: str
    # time of the last report; 0 if an operator admitted the device and it has never reported
    last_seen: float
    last_heartbeat: float | None = None
    last_telemetry: float | None = None
    # by coding assistant: end of the newest call that arrived from this device; "" for calls of other programs
    newest_calls: Mapping[str, float] = field(default_factory=dict)
    # by coding assistant: what is remembered between heartbeats, see gateway.devices.fleet.assistant_states
    uses: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    heartbeat: bytes = b""  # device-specific part of the newest heartbeat, as JSON
    clock_offset_s: float | None = None  # device clock minus server clock
    flagged_at: float | None = None  # time at which a device with another fingerprint tried to use this id
    version: int = 1
    facts_version: int = 1
    sent_version: int = 0
    upstream_id: str | None = None
    held: str | None = None  # why the upstream rejected this row
    reset_version: int = 0  # version of the last reset, so that the upstream also resets the device
    # Tollhouse key of the gateway that reported the revocation; "" if an operator revoked the device here
    revoked_by: str = ""
    token: str = ""  # id of the enrolment token that enrolled the device, or gave it its first key
    serial: str = ""  # serial number for which that token was made
    hardware_id: str = ""  # hash of the id of the machine's hardware, which the device claims
    cause: str = ""  # why a pending device is pending; "" if devices.policy wants an approval
    replaced_by: str = ""  # id of the device that the same machine became; the state is then REVOKED
    words: str = ""  # state of the words of its heartbeats, see gateway.devices.words
    copied_at: float | None = None  # time at which a heartbeat returned an older word
    left_at: float | None = (
        None  # time at which its agent said that it was removed; a later heartbeat ends this
    )
    state_changes: str = ""  # the last words of its state, a line each, see gateway.devices.states

    @property
    def all_labels(self) -> Mapping[str, str]:
        return {**self.labels, **self.operator_labels} if self.operator_labels else self.labels

    @property
    def quiet_since(self) -> float:
        """Return the time when the device last reported, or when it was admitted."""
        return self.last_seen or self.enrolled_at

    def with_changes(self, *, facts: bool = False, **changes: Any) -> Device:
        """
        Return the device with changes that must be sent upstream. `facts`: the changes belong to the enrolment.

        The upstream receives the newest heartbeat after the enrolment, so the heartbeat gets a version
        of its own.
        """
        version = self.version + 1
        if not facts:
            return replace(self, version=version, **changes)
        after = version if self.last_heartbeat is None else version + 1
        return replace(self, version=after, facts_version=version, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unenrolled:
    """A device name that appeared in telemetry under a key that may not enrol devices."""

    name: str
    first_seen: float
    last_seen: float
    count: int
    key: str  # name of the key that last sent the device name


DeviceChange = Callable[[Device | None], Device]


def require_known(change: Callable[[Device], Device]) -> DeviceChange:
    """Wrap a change so that it raises NotThere if the row has been deleted."""

    def changed(known: Device | None) -> Device:
        if known is None:
            raise NotThere("this device was deleted")
        return change(known)

    return changed


# -- the storage protocol ------------------------------------------------------------------------------------


Expectations = frozenset[Expectation]
NO_EXPECTATIONS: Expectations = frozenset()


class TokenUsedUp(NotAllowed):
    def __init__(self) -> None:
        super().__init__("the enrolment token is used up")


class TooManyDevices(NotAllowed):
    def __init__(self) -> None:
        super().__init__("the limit devices.max is reached: raise it, or delete some devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConditions:
    """
    Conditions for a write to rows that other processes also write.

    `expects` hold while the keys of the requests are valid. A new row whose id is in `bounded` is added only
    while there are fewer than `most` devices; None means no limit. `tokens` has the maximum number of devices of
    enrolment tokens, by token id.
    """

    expects: Expectations = NO_EXPECTATIONS
    bounded: frozenset[str] = frozenset()
    most: int | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWrite:
    """
    Rows and names to write in one transaction. Devices are replaced by id, and names by name. Names in `gone`
    and devices in `deleted` are deleted.

    `is_answered` means that a caller waits for the result.
    """

    devices: Sequence[Device]
    names: Sequence[Unenrolled]
    gone: Collection[str]
    deleted: Collection[str]
    conditions: WriteConditions
    is_answered: bool


class DevicesRefused(SpoolUnavailable):
    """
    Nothing was written, because expectations failed, there are too many devices, or a token is used up.

    `over` has the ids of devices above the limit, `unpaid` the ids of devices for which their token has no use left.
    """

    def __init__(
        self,
        *,
        ended: Collection[Expectation] = (),
        over: Collection[str] = (),
        unpaid: Collection[str] = (),
    ) -> None:
        super().__init__("some devices were rejected")
        self.ended = frozenset(ended)
        self.over = frozenset(over)
        self.unpaid = frozenset(unpaid)


class DeviceRows(Protocol):
    """The rows of devices in an engine."""

    @property
    def is_shared(self) -> bool:
        """Return True if other processes write the rows as well."""
        ...

    async def load(self) -> tuple[Sequence[Device], Sequence[Unenrolled]]: ...

    async def write(self, wanted: DeviceWrite) -> Mapping[str, Device | None]:
        """
        Write rows. Return the devices that another process wrote since the last read or write here. These
        devices are not replaced.

        The result maps each id to the current row, or to None for a deleted row. Raises DevicesRefused if the
        rows are shared and a condition fails.
        """
        ...

    async def outlast_commits(self) -> None:
        """Wait until running commits that use keys which `write` ended are stored or rejected."""
        ...

    async def failed_expectations(self, wanted: DeviceWrite) -> Expectations:
        """
        Return the expectations that fail now. Call it before changes are audited. Always empty if rows
        are not shared.

        Raises SpoolUnavailable if writing is impossible.
        """
        ...

    async def rows_of_others(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        """
        Return the rows that other processes wrote recently, None for deleted rows.

        `ids` names the rows that have changed. None means that any row may have changed.
        """
        ...

    async def unenrolled_names(self) -> Sequence[Unenrolled]:
        """Return the unenrolled names that any process stored."""
        ...

"""Devices, device names that could not be enrolled, and the storage protocol for both."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from spool.errors import NotAllowed, NotThere, SpoolUnavailable
from spool.log.partial_reports import Expectation

PENDING, ENROLLED, REVOKED = "pending", "enrolled", "revoked"

_ID = re.compile(r"[A-Za-z0-9._:@-]{1,128}")


def is_device_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """
    One device. Each change creates a new row; `version` grows with every change that is sent upstream.

    `facts_version` is the version at which an enrolment field last changed. `sent_version` is the version
    that upstream has.
    """

    id: str
    state: str = ENROLLED  # offline and mute devices are derived, never stored
    hostname: str = ""
    platform: str = ""
    agent_version: str = ""
    user: str = ""
    fingerprint: str = field(default="", repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)  # as the device reports them
    # set by operators; they override reported labels
    operator_labels: Mapping[str, str] = field(default_factory=dict)
    generation: int = 1  # of its key; a reset or a revocation ends all earlier keys
    has_key: bool = False
    key_used: bool = False
    enrolled_at: float
    enrolled_by: str
    last_seen: float  # 0 if it was never seen, only admitted by an operator
    last_heartbeat: float | None = None
    last_telemetry: float | None = None
    heartbeat: bytes = b""  # device-specific part of the newest heartbeat, JSON
    clock_offset_s: float | None = None  # device clock minus server clock
    flagged_at: float | None = None  # when another fingerprint tried to use this id
    version: int = 1
    facts_version: int = 1
    sent_version: int = 0
    upstream_id: str | None = None
    held: str | None = None  # why the upstream rejected this row
    reset_version: int = 0  # version of its last reset, which resets it upstream as well
    revoked_by: str = ""  # key of the Tollhouse that reported the revocation; "" for an operator here

    @property
    def all_labels(self) -> Mapping[str, str]:
        return {**self.labels, **self.operator_labels} if self.operator_labels else self.labels

    @property
    def quiet_since(self) -> float:
        """Return the time when the device last reported, or when it was admitted."""
        return self.last_seen or self.enrolled_at

    def updated(self, *, facts: bool = False, **changes: Any) -> Device:
        """
        Return the device with changes that must be sent upstream. `facts` if they belong to the enrolment.

        Upstream, the newest heartbeat follows the enrolment, so it gets one version more.
        """
        version = self.version + 1
        if not facts:
            return replace(self, version=version, **changes)
        after = version if self.last_heartbeat is None else version + 1
        return replace(self, version=after, facts_version=version, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unenrolled:
    """A device name from telemetry under a key that may not enrol devices."""

    name: str
    first_seen: float
    last_seen: float
    count: int
    key: str  # name of the key that sent it last


DeviceChange = Callable[[Device | None], Device]


def of_known(change: Callable[[Device], Device]) -> DeviceChange:
    """Wrap a change so that it raises NotThere if the row was deleted."""

    def changed(known: Device | None) -> Device:
        if known is None:
            raise NotThere("this device was deleted")
        return change(known)

    return changed


# -- the storage protocol ------------------------------------------------------------------------------------


Expectations = frozenset[Expectation]
NO_EXPECTATIONS: Expectations = frozenset()


class TooManyDevices(NotAllowed):
    def __init__(self) -> None:
        super().__init__("the limit devices.max is reached: raise it, or delete some devices")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConditions:
    """
    The conditions for a write to rows that other processes write as well.

    `expects`: the keys of the requests are still valid. A new row in `bounded` is added only while there are
    fewer than `most` devices; None means no limit.
    """

    expects: Expectations = NO_EXPECTATIONS
    bounded: frozenset[str] = frozenset()
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWrite:
    """
    Rows and names to write in one transaction. Devices are replaced by id, names by name; `gone` and
    `deleted` are deleted.

    `is_answered` means that somebody waits for the result.
    """

    devices: Sequence[Device]
    names: Sequence[Unenrolled]
    gone: Collection[str]
    deleted: Collection[str]
    conditions: WriteConditions
    is_answered: bool


class DevicesRefused(SpoolUnavailable):
    """Nothing was written, because expectations failed or there are too many devices."""

    def __init__(self, *, ended: Collection[Expectation] = (), over: Collection[str] = ()) -> None:
        super().__init__("some devices were rejected")
        self.ended = frozenset(ended)
        self.over = frozenset(over)


class DeviceRows(Protocol):
    """The rows of devices in an engine."""

    @property
    def is_shared(self) -> bool:
        """Return True if other processes write the rows as well."""
        ...

    async def load(self) -> tuple[Sequence[Device], Sequence[Unenrolled]]: ...

    async def write(self, wanted: DeviceWrite) -> Mapping[str, Device | None]:
        """
        Write rows. Return devices that another process wrote since the last read or write here; they
        are not replaced.

        Their values are the current rows, or None for deleted rows. Raises DevicesRefused if a condition
        fails on shared rows.
        """
        ...

    async def outlast_commits(self) -> None:
        """Wait until running commits under keys that `write` ended are stored or rejected."""
        ...

    async def ended(self, wanted: DeviceWrite) -> Expectations:
        """
        Return the expectations that fail now, before changes are audited. Always empty if rows are not shared.

        Raises SpoolUnavailable if writing is impossible.
        """
        ...

    async def others(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        """
        Return the rows that other processes wrote recently, None for deleted ones.

        `ids` have changed; None means that any may have changed.
        """
        ...

    async def names(self) -> Sequence[Unenrolled]:
        """Return the unenrolled names that any process stored."""
        ...

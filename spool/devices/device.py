"""
A device, a name that could not be enrolled, changes of a row as functions of it, and what a storage
engine owes them.
"""

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
    One device. A change is a new row; `version` grows with every change that is sent upstream.

    `facts_version` is the version at which a field of the enrolment last changed, `sent_version` the
    one upstream has.
    """

    id: str
    state: str = ENROLLED  # silent and mute are derived, never kept
    hostname: str = ""
    platform: str = ""
    agent_version: str = ""
    user: str = ""
    fingerprint: str = field(default="", repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)  # as the device reports them
    operator_labels: Mapping[str, str] = field(default_factory=dict)  # set by operators, stronger
    generation: int = 1  # of its key: a reset or a revocation ends all keys before
    has_key: bool = False
    key_used: bool = False
    enrolled_at: float
    enrolled_by: str
    last_seen: float  # 0: never, an operator admitted it
    last_heartbeat: float | None = None
    last_telemetry: float | None = None
    heartbeat: bytes = b""  # the newest one's own part, JSON
    clock_offset_s: float | None = None  # the device's clock less ours
    flagged_at: float | None = None  # another fingerprint asked under this id
    version: int = 1
    facts_version: int = 1
    sent_version: int = 0
    upstream_id: str | None = None
    held: str | None = None  # why the upstream refused this row
    reset_version: int = 0  # the version of its last reset: upstream resets it, too
    revoked_by: str = ""  # the key of the Tollhouse that told of the revocation; "" for an operator here

    @property
    def all_labels(self) -> Mapping[str, str]:
        return {**self.labels, **self.operator_labels} if self.operator_labels else self.labels

    @property
    def quiet_since(self) -> float:
        """Return the time when the device was last heard, or admitted."""
        return self.last_seen or self.enrolled_at

    def updated(self, *, facts: bool = False, **changes: Any) -> Device:
        """
        Returns the device with changes that the upstream must learn; `facts` when an enrolment carries them.

        The newest heartbeat follows an enrolment there, so it is one version later.
        """
        version = self.version + 1
        if not facts:
            return replace(self, version=version, **changes)
        after = version if self.last_heartbeat is None else version + 1
        return replace(self, version=after, facts_version=version, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unenrolled:
    """A name that telemetry gave under a key that may not enrol."""

    name: str
    first_seen: float
    last_seen: float
    count: int
    key: str  # the name of the key that brought it last


DeviceChange = Callable[[Device | None], Device]


def of_known(change: Callable[[Device], Device]) -> DeviceChange:
    """A change of a row that is there; NotThere if it was deleted."""

    def changed(known: Device | None) -> Device:
        if known is None:
            raise NotThere("there is no such device: it was deleted")
        return change(known)

    return changed


# -- what a storage engine owes the devices ------------------------------------------------------------------


Expectations = frozenset[Expectation]
NO_EXPECTATIONS: Expectations = frozenset()


class TooManyDevices(NotAllowed):
    """There are as many devices as may be."""

    def __init__(self) -> None:
        super().__init__("there are as many devices as devices.max allows: raise it, or delete some")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteConditions:
    """
    Under what rows are written, where other processes write them, too.

    `expects`: the keys of those who caused it are still good. A new row of `bounded` is added as long as
    there are fewer than `most`; None: any number.
    """

    expects: Expectations = NO_EXPECTATIONS
    bounded: frozenset[str] = frozenset()
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWrite:
    """
    In one transaction rows are replaced by id and names by name; names in `gone` and the rows `deleted` go.

    `is_answered`: somebody waits to be told that it is done.
    """

    devices: Sequence[Device]
    names: Sequence[Unenrolled]
    gone: Collection[str]
    deleted: Collection[str]
    conditions: WriteConditions
    is_answered: bool


class DevicesRefused(SpoolUnavailable):
    """Nothing was written: expectations that fail, and devices that are too many."""

    def __init__(self, *, ended: Collection[Expectation] = (), over: Collection[str] = ()) -> None:
        super().__init__("some of the devices may not be written")
        self.ended = frozenset(ended)
        self.over = frozenset(over)


class DeviceRows(Protocol):
    """The rows as an engine keeps them."""

    @property
    def is_shared(self) -> bool:
        """True if other processes write the rows, too."""
        ...

    async def load(self) -> tuple[Sequence[Device], Sequence[Unenrolled]]: ...

    async def write(self, wanted: DeviceWrite) -> Mapping[str, Device | None]:
        """
        Returns the devices of it that another process wrote since this one last read or wrote them, as
        they are now, None if they are gone: they are not replaced. DevicesRefused where rows are shared
        and a condition fails.
        """
        ...

    async def outlast_commits(self) -> None:
        """Wait until what was begun under keys that `write` ended is kept or refused."""
        ...

    async def ended(self, wanted: DeviceWrite) -> Expectations:
        """
        Asked before changes are audited: the expectations of it that fail now, none where rows are not shared.

        SpoolUnavailable if it cannot be written.
        """
        ...

    async def others(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        """
        The rows that other processes wrote lately, None for those that are gone. `ids` are known to have been
        changed; None: any may have been.
        """
        ...

    async def names(self) -> Sequence[Unenrolled]:
        """Return the senders without enrolment that any process noted."""
        ...

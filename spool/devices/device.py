"""A device, a name that could not be enrolled, and changes of a row as functions of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spool.errors import NotThere

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

"""Devices, device names that telemetry mentioned without an enrolment, and the storage protocol of both."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

from spool.errors import NotAllowed, NotThere, SpoolUnavailable
from spool.log.partial_reports import ExpectedVersion

PENDING, ENROLLED, REVOKED = "pending", "enrolled", "revoked"
HEARD_EVERY_S = 15.0  # seconds; precision of the time of the last telemetry
REVOKED_UPSTREAM = "the upstream revoked this device; an operator there can approve it again"

_ID = re.compile(r"[A-Za-z0-9._:@-]{1,128}")


def is_device_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """
    A device (a laptop or server) that reports. It is immutable: a change makes a new row. `version` grows
    with each change that the Tollhouse above must receive.

    `facts_version`: the version of the last change of an enrolment field. `sent_version`: the version that
    the Tollhouse above has received.
    """

    id: str
    state: str = ENROLLED  # gateway.devices.machine_state computes the other states
    hostname: str = ""
    platform: str = ""
    agent_version: str = ""
    user: str = ""
    fingerprint: str = field(default="", repr=False)
    labels: Mapping[str, str] = field(default_factory=dict)  # labels as the device reported them
    # labels that operators set; they override `labels`
    operator_labels: Mapping[str, str] = field(default_factory=dict)
    # generation of the device's key. A reset or a revocation ends earlier keys. It is about the time of the first
    # enrolment, because it begins with this time; an approval changes only `enrolled_at`.
    generation: int = 1
    has_key: bool = False
    key_used: bool = False
    enrolled_at: float
    enrolled_by: str
    # time of the last report; 0 if only an operator admitted the device
    last_seen: float
    last_heartbeat: float | None = None
    last_telemetry: float | None = None
    # end of the newest call by coding assistant; "" for other programs
    newest_calls: Mapping[str, float] = field(default_factory=dict)
    # JSON by coding assistant; see gateway.devices.fleet.assistant_states. Objects would take 2 KiB per device.
    uses: str = "{}"
    heartbeat: bytes = b""  # device-specific part of the newest heartbeat, as JSON
    clock_offset_s: float | None = None  # clock of the device minus clock of the server
    flagged_at: float | None = None  # when another machine's fingerprint tried to use this id
    version: int = 1
    facts_version: int = 1
    sent_version: int = 0
    upstream_id: str | None = None
    held: str | None = None  # why the upstream rejected the device
    reset_version: int = 0  # version of the last reset, for the upstream
    # key of the gateway that reported the revocation; "" for an operator here
    revoked_by: str = ""
    token: str = ""  # enrolment token with which the device got its first key
    serial: str = ""  # serial number for which the token was made
    hardware_id: str = ""  # hash of the hardware id that the agent claims
    cause: str = ""  # why the device is pending; "" if devices.policy wants an approval
    replaced_by: str = ""  # id of the device that the machine became; this one is then REVOKED
    words: str = ""  # numbers of the rotating tokens; see gateway.devices.heartbeat_tokens
    # when a heartbeat returned an older token, as that of a copied machine does
    copied_at: float | None = None
    left_at: float | None = None  # when its agent was removed; a later heartbeat clears this
    # the last states of the device, one "time state" per line; see gateway.devices.states
    state_changes: str = ""

    @property
    def all_labels(self) -> Mapping[str, str]:
        return {**self.labels, **self.operator_labels} if self.operator_labels else self.labels

    @property
    def last_contact_at(self) -> float:
        """Return the time of the last report or, if the device never reported, of its admission."""
        return self.last_seen or self.enrolled_at

    def with_changes_and_next_version(self, *, changes_enrolment: bool = False, **changes: Any) -> Device:
        """
        Return the device with these changes and the next version, so that it is sent upstream.

        `changes_enrolment`: enrolment fields change. The heartbeat is sent after the enrolment, so it then gets
        a version of its own.
        """
        version = self.version + 1
        if not changes_enrolment:
            return replace(self, version=version, **changes)
        after = version if self.last_heartbeat is None else version + 1
        return replace(self, version=after, facts_version=version, **changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnenrolledName:
    """A device name in telemetry whose key may not enrol devices."""

    name: str
    first_seen: float
    last_seen: float
    count: int
    key: str  # the key that last sent the name


LABELS = ("labels", "operator_labels")
MAPPINGS = (*LABELS, "newest_calls")  # columns with JSON
MOST_SHARED = 4096  # number of different labels that devices share


def decode_json_columns(columns: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Decode the columns with JSON. Devices share equal labels and names of assistants."""
    newest = json.loads(columns["newest_calls"])
    return {
        **{name: intern_labels(json.loads(columns[name])) for name in LABELS},
        "newest_calls": {sys.intern(name): time for name, time in newest.items()},
    }


def intern_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return equal labels, as one object for all devices, because own ones take 250 bytes per device."""
    return _labels_of_items(tuple(sorted(labels.items())))


@lru_cache(MOST_SHARED)
def _labels_of_items(items: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    return {sys.intern(name): sys.intern(value) for name, value in items}


DeviceChange = Callable[[Device | None], Device]


def change_for_existing_device(change: Callable[[Device], Device]) -> DeviceChange:
    """Wrap `change` so that it raises NotThere if the device's row was deleted."""

    def require_device_and_change(known_device: Device | None) -> Device:
        if known_device is None:
            raise NotThere("this device was deleted")
        return change(known_device)

    return require_device_and_change


# -- the storage protocol ------------------------------------------------------------------------------------


Expectations = frozenset[ExpectedVersion]
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
    Conditions that a write checks, for rows that other processes write as well.

    `expects`: the keys that ask for the changes must still be valid. New devices with ids in `bounded` are
    written only while there are fewer than `most` devices. `tokens`: how many devices each enrolment token
    may enrol.
    """

    expects: Expectations = NO_EXPECTATIONS
    bounded: frozenset[str] = frozenset()
    most: int | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceWrite:
    """
    The rows and names that one transaction replaces, and the ids (`gone`) and names (`deleted`) that it
    deletes.

    `is_answered`: a caller waits for the result.
    """

    devices: Sequence[Device]
    names: Sequence[UnenrolledName]
    gone: Collection[str]
    deleted: Collection[str]
    conditions: WriteConditions
    is_answered: bool


class DevicesRefused(SpoolUnavailable):
    """
    Raised if a write was refused: a key had ended, too many devices, or a used up token. Nothing was written.

    `over`: ids of devices beyond the limit. `unpaid`: ids of devices whose enrolment token is used up.
    """

    def __init__(
        self,
        *,
        ended: Collection[ExpectedVersion] = (),
        over: Collection[str] = (),
        unpaid: Collection[str] = (),
    ) -> None:
        super().__init__("some devices were rejected")
        self.ended = frozenset(ended)
        self.over = frozenset(over)
        self.unpaid = frozenset(unpaid)


class DeviceRows(Protocol):
    @property
    def is_shared(self) -> bool:
        """Whether other processes write the rows of devices as well."""
        ...

    async def load(self) -> tuple[Sequence[Device], Sequence[UnenrolledName]]: ...

    async def write(self, device_write: DeviceWrite) -> Mapping[str, Device | None]:
        """
        Write rows, except those that another process wrote since this process last read them. Return those
        rows by id, None if deleted.

        If rows are shared with other processes, raises DevicesRefused.
        """
        ...

    async def wait_for_running_commits(self) -> None:
        """Wait for the running commits of device keys that `write` revoked."""
        ...

    async def failed_expectations(self, device_write: DeviceWrite) -> Expectations:
        """
        Return which expectations fail, before the changes are audited.

        Empty if no other process writes the rows. Raises SpoolUnavailable.
        """
        ...

    async def rows_changed_elsewhere(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        """
        Return the rows that other processes wrote, by id, None if deleted. `ids`: the rows to read; None if
        any row may have changed.
        """
        ...

    async def unenrolled_names(self) -> Sequence[UnenrolledName]:
        """Return the names without enrolment that any process has seen in telemetry."""
        ...

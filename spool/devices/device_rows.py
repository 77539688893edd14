"""What a storage engine owes the devices: rows, and the conditions under which they are written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from spool.devices.device import Device, Unenrolled
from spool.errors import NotAllowed, SpoolUnavailable
from spool.log.partial_reports import Expectation

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

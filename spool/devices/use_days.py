"""
How many slots of a day each device used a coding assistant in, and how many of them lost their calls.

A slot is five minutes. A device states its days again with each heartbeat, so a statement replaces the earlier one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from spool.sql.small import SmallTable

# days for which each device has rows of its own; then only days with a loss keep them, and the others are summed
OWN_ROWS_DAYS = 30
KEPT_DAYS = 400
SUMMED = ""  # in place of a device: the sum of a team


@dataclass(frozen=True, slots=True, kw_only=True)
class UseDay:
    """
    The slots of a UTC day (YYYY-MM-DD), of a device or the sum of a team. `team` is the device's team at that time, and
    `lost_calls` the least number of calls that were lost.
    """

    day: str
    device: str
    assistant: str
    team: str
    used: int
    lost: int
    lost_calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeardSlots:
    """
    The slots of a device and assistant whose calls arrived, since the day after the first known one, because that may
    be known only in part.
    """

    device: str
    assistant: str
    team: str
    since: str
    heard: int


class UseDays(Protocol):
    async def replace_days(self, days: Sequence[UseDay]) -> None:
        """Store days of devices, each in place of the earlier one of its device and assistant."""
        ...

    async def losses_between(self, first: str, last: str) -> Sequence[UseDay]:
        """
        Return the losses from one day to another one, both included: a sum for each device, assistant and team that
        lost slots. `day` is the newest day with a loss.
        """
        ...

    async def heard_slots_since(self, first: str) -> Sequence[HeardSlots]: ...

    async def sum_devices(self, devices: Collection[str]) -> None:
        """Add the rows of devices to the sums of their teams, so that nothing names the devices."""
        ...

    async def sum_and_delete_old_days(self, today: str, known_devices: Collection[str]) -> None:
        """
        Sum the old days without a loss, and those of devices that are not known, by team. Delete days after
        KEPT_DAYS.
        """
        ...


USE_DAYS = SmallTable[UseDays]("slots of assistants", kept_by=("use_days", "SqlUseDays"))

"""What containers used, by cluster and day, and how far their metrics are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from spool.container_files.values import ClusterIdentity
from spool.sql.small import SmallTable

OPEN = -1  # the day of what is still being added up


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDay:
    """A cluster and a day (epoch seconds), with the time of its last change."""

    account: str
    region: str
    cluster: str
    day: int
    changed_at: float

    @property
    def identity(self) -> ClusterIdentity:
        return ClusterIdentity(self.account, self.region, self.cluster)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageDocument(UsageDay):
    """It with what was used."""

    body: bytes


class ContainerUsage(Protocol):
    """Documents of usage."""

    async def document(self, identity: ClusterIdentity, day: int) -> UsageDocument | None: ...

    async def days(self, since: int) -> Sequence[UsageDay]:
        """Return what is kept of days from `since` on, by day and cluster."""
        ...

    async def keep(self, documents: Sequence[UsageDocument]) -> None:
        """Keep documents in place of those of the same cluster and day: all of them, or none."""
        ...

    async def trim(self, before: int) -> None:
        """Forget the days before one."""
        ...


CONTAINER_USAGE = SmallTable[ContainerUsage](
    "usage of containers", kept_by=("container_usage", "SqlContainerUsage")
)

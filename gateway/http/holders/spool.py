"""What handlers of the spool work with: the log, its routes and deliveries, streams and events."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from gateway.service.configuration.sections import ServerSettings
from spool.errors import NotThere
from spool.ledger.own_records import OwnRecords
from spool.packed.native import NO_NATIVE, NativeUse

if TYPE_CHECKING:
    from gateway.normalise.memory.spans import SpanMemory
    from gateway.service.first_use import Once
    from gateway.service.monitoring.late_reports import KeptLateReports
    from spool.clock import Clock
    from spool.deliveries.protocols import Deliveries, LakeRecount, LakeRepairs, LakeState, PastRecords
    from spool.deliveries.values import RouteState
    from spool.log.counted_names import AmountOf
    from spool.log.partial_reports import PartialReports
    from spool.log.protocols import Log
    from spool.streams import StreamReader


async def _wake_nothing(route: str) -> None:
    """Do nothing: without a server no route runs, and it finds its work at the next start."""


async def _no_lakes() -> Sequence[LakeState]:
    return ()


class RepairLake(Protocol):
    async def __call__(self, destination: str, *, dry_run: bool) -> LakeRepairs:
        """Put missing files of a lake again. NotThere if there is no such lake."""
        ...


async def _no_lake(destination: str, *, dry_run: bool) -> LakeRepairs:
    raise NotThere(f"no destination that is a lake of files is named {destination!r}")


async def _no_recount(destination: str, topic: str, after: int) -> LakeRecount:
    raise NotThere(f"no destination that is a lake of files is named {destination!r}")


@dataclass(kw_only=True)
class SpoolServices:
    """
    `wake` has a route try at once, at whichever gateway it runs: its work was changed by hand. `syncs` are the
    tables brought upstream, shown as routes are; without a server none runs. `events_sent_as` says how a type of usage
    events leaves for the upstream, None if it does not; `is_unmapped` whether that is for want of a line in
    [upstream.events], and `event_amount` what an event amounts to by its type's line. `lakes` are those of files,
    and `past` reads what the log keeps no more from one of them, None if there is none.
    """

    log: Log
    deliveries: Deliveries
    streams: StreamReader
    clock: Clock
    wake: Callable[[str], Awaitable[None]] = _wake_nothing
    syncs: Callable[[], Sequence[RouteState]] = tuple
    events_sent_as: Callable[[str], str | None] = lambda _: None
    is_unmapped: Callable[[str], bool] = lambda _: False
    event_amount: AmountOf = lambda _: None
    partial_reports: PartialReports | None = None
    max_listed_records: Callable[[], int] = lambda: ServerSettings().max_listed_records
    hold_s: Callable[[], float] = lambda: 0.0
    native: NativeUse = NO_NATIVE
    memory: Once[SpanMemory] | None = None  # of the compiled module
    late_reports: KeptLateReports | None = None  # while the registry is damaged
    lakes: Callable[[], Awaitable[Sequence[LakeState]]] = _no_lakes
    past: Callable[[], PastRecords | None] = lambda: None
    repair_lake: RepairLake = _no_lake
    recount_lake: Callable[[str, str, int], Awaitable[LakeRecount]] = _no_recount
    own_records: OwnRecords = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.own_records = OwnRecords(self.log, self.clock)

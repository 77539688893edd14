"""
The seam of the storage: everything that a Tollhouse keeps, whatever engine keeps it.

`spool.engines.open_storage` opens one. Nobody outside an engine's folder writes SQL or knows a file name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from spool.clock import Clock
from spool.clusters import ClusterTable
from spool.container_files.files import ContainerFiles
from spool.deliveries.protocols import Deliveries
from spool.devices.table import DeviceTable
from spool.errors import NotAllowed
from spool.leases import Leases, SoleNode
from spool.ledger.ledger import CHUNK, Ledger
from spool.log.heard import Heard
from spool.log.partial_reports import PartialReports
from spool.log.protocols import Log, Observer
from spool.packed.native import Native
from spool.registry.registry import DeclaredTable, Registry
from spool.settings import ContainerSettings, SpoolSettings, StorageSettings
from spool.sql.small import SmallTables
from spool.streams import StreamBook, StreamReader

if TYPE_CHECKING:
    from spool.transfer.tables import MadeCopy, OpenTables, Progress


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """
    How a storage is opened.

    `cache_bytes` bounds the cache of decoded entries, None: the engine's default. `ledger_chunk` is how many
    numbers the ledger counts in one transaction. `registry_clock` gives the times of changes to keys,
    operators and insights, None: `clock`. `new_registry`: begin a new one if the registry is damaged or gone,
    and keep the old file aside. `native` is the compiled module; None: it is not used.
    `declared` are the tables of the registry that the packages above declare.
    `is_unfinished_copy`: who makes a copy looks into it; nobody else may.
    """

    settings: SpoolSettings
    clock: Clock
    directory: Path = Path()  # that of the data, for engines that keep files
    observer: Observer | None = None
    cache_bytes: int | None = None
    ledger_tags: Sequence[str] = ("service",)
    ledger_chunk: int = CHUNK
    native: Native | None = None
    registry_clock: Clock | None = None
    declared: Sequence[type[DeclaredTable]] = ()
    new_registry: bool = False
    is_unfinished_copy: bool = False
    container: ContainerSettings = field(default_factory=ContainerSettings)
    storage: StorageSettings = field(default_factory=StorageSettings)  # for engines that nodes share


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """A copy of the database that follows it. `is_synchronous`: commits may wait for it."""

    name: str
    is_synchronous: bool
    lag_bytes: int  # that it has not flushed yet
    lag_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseHealth:
    """
    Figures of a database that nodes share: every node tells the same, but for `failed_connections`.

    `standbys` and `oldest_transaction_s` are None where the role may not see them. `needs_standby`: nothing
    is kept without a synchronous one. Waits are those of this moment: how many, and the longest.
    """

    needs_standby: bool
    standbys: Sequence[Standby] | None
    standby_waits: int  # commits that a standby has not confirmed
    standby_wait_s: float
    head_waits: int  # nodes that wait until another one has committed
    head_wait_s: float
    oldest_transaction_s: float | None  # of anybody in this database
    connections: int  # of all that use the server
    max_connections: int
    failed_connections: int  # attempts of this node that failed
    nodes: int  # live ones
    leases_held: int
    leases_free: int  # that a live node would hold, and none does
    reporters: int  # rows of `Heard`


async def no_database() -> DatabaseHealth | None:
    return None


async def _no_copies(into: Path) -> None:
    raise NotAllowed("this storage engine keeps no files: back it up with its own tools")


async def _never_damage(error: Exception) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Storage:
    """
    An open storage. `close` finishes what is being written and releases the data directory, whatever of it fails.

    `registry` is None while its file is damaged, and `registry_problem` is the message for the operator: the
    log goes on without it. A damaged ledger is replaced and counted again from the log. `incarnation` changes
    when the log had to be begun anew: progress through a log of another incarnation means nothing. `secret`
    is the installation's. `is_shared`: other processes change it, too; `leases` say what of it this one may
    run then. `copy` fills an empty directory with copies of what is kept, of one commit of the log, while it
    is written. `health` has the figures of a database that nodes share, None where none is; SpoolUnavailable
    while it is away. `is_damage` tells whether an error met since then is damage of the log, and remembers
    it: opening again salvages.
    """

    log: Log
    deliveries: Deliveries
    partial_reports: PartialReports
    heard: Heard
    devices: DeviceTable
    clusters: ClusterTable
    streams: StreamReader
    book: StreamBook
    small: SmallTables
    container_files: ContainerFiles
    ledger: Ledger
    registry: Registry | None
    registry_problem: str
    secret: bytes
    incarnation: str
    is_shared: bool = False
    leases: Leases = field(default_factory=SoleNode)
    close: Callable[[], Awaitable[None]]
    is_damage: Callable[[Exception], Awaitable[bool]] = _never_damage
    copy: Callable[[Path], Awaitable[None]] = _no_copies
    health: Callable[[], Awaitable[DatabaseHealth | None]] = no_database


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """Records of a damaged file: brought into the log, in it already, done with before the damage, and unreadable."""

    added: int
    known: int
    settled: int
    unreadable: int


def _never_newer(directory: Path) -> None:
    """Nothing of a storage without files is in the directory."""


async def _nothing_to_recover(options: StorageOptions, file: Path) -> Recovered:
    raise NotAllowed(f"{file} cannot be read: this storage engine keeps no files")


@dataclass(frozen=True, kw_only=True)
class Administration:
    """
    What an engine that several nodes share can do with its storage while no server has it open.

    `problems`: every reason why a configuration cannot be used. `make` makes what is missing,
    `bring_up_to_date` brings it to the version of this Tollhouse, `status` describes it (`problem`: why
    nothing is kept), and `change` changes settings of all nodes. Their answers are for the operator. `lost`
    has a sentence for each loss of what the node of a data directory had acknowledged; SpoolError when the
    storage cannot be asked.
    """

    problems: Callable[[StorageSettings], Iterable[str]]
    make: Callable[[StorageSettings, SpoolSettings], Awaitable[Mapping[str, object]]]
    bring_up_to_date: Callable[[StorageSettings], Awaitable[Mapping[str, object]]]
    status: Callable[[StorageSettings], Awaitable[Mapping[str, object]]]
    change: Callable[[StorageSettings, Mapping[str, float]], Awaitable[Mapping[str, float]]]
    lost: Callable[[StorageSettings, Path], Awaitable[Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """
    What an engine consists of for those outside its folder. `docs/storage-engines.md` lists what it owes.

    `is_new`: whether a data directory holds nothing of it; OSError where one may not look. `version`: what to
    put into a bug report. `known_faults`: of that version, each with what it means here. `recover`: bring
    into the log what it does not have of a damaged file's records; NotAllowed for a file of which nothing can
    be read. `administration`: None where the storage is of one node. `tables`: how all that a storage holds
    is opened for another one to take over; NotAllowed while a node has it. `take_over`: fill an empty storage
    with that; nobody may use what was made before it is finished. Both None: it cannot be copied. `check_not_newer`:
    SpoolFromTheFuture where a newer release has written into a data directory, which may be in use.
    """

    open: Callable[[StorageOptions], Awaitable[Storage]]
    is_new: Callable[[Path], bool]
    version: Callable[[], str]
    known_faults: Callable[[], Sequence[str]] = tuple
    check_not_newer: Callable[[Path], None] = _never_newer
    recover: Callable[[StorageOptions, Path], Awaitable[Recovered]] = _nothing_to_recover
    administration: Administration | None = None
    tables: Callable[[StorageOptions], Awaitable[OpenTables]] | None = None
    take_over: Callable[[StorageOptions, OpenTables, Progress], Awaitable[MadeCopy]] | None = None

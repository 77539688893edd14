"""
Interface of the storage: everything that Tollhouse stores, independent of the engine.

`spool.engines.open_storage` opens a storage. Only the folders of engines contain SQL and file names.
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
from spool.erasure import RenamedRecords, Renaming
from spool.errors import NotAllowed
from spool.leases import Leases, SoleNode
from spool.ledger.ledger import CHUNK, Ledger
from spool.ledger.work import WORK_LIMITS, WorkLimits
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
    Options for opening a storage.

    `cache_bytes`: limit of the cache of decoded entries, None for the engine's default. `ledger_chunk`:
    number of records that the ledger counts per transaction. `work`: limits of the listed units of work.
    `registry_clock`: clock for changes of keys,
    operators and insights, None for `clock`. `new_registry`: if the registry is damaged or missing, start a
    new one and preserve the old file. `native`: the compiled module, or None to work without it. `declared`:
    tables of the registry that higher packages declare. `is_unfinished_copy`: open a storage that is still
    being copied, which only the copy itself may do.
    """

    settings: SpoolSettings
    clock: Clock
    directory: Path = Path()  # data directory, if the engine has files
    observer: Observer | None = None
    cache_bytes: int | None = None
    ledger_tags: Sequence[str] = ("service",)
    ledger_chunk: int = CHUNK
    work: WorkLimits = WORK_LIMITS
    native: Native | None = None
    registry_clock: Clock | None = None
    declared: Sequence[type[DeclaredTable]] = ()
    new_registry: bool = False
    is_unfinished_copy: bool = False
    container: ContainerSettings = field(default_factory=ContainerSettings)
    # settings of the engine; most of them are only for engines that several nodes share
    storage: StorageSettings = field(default_factory=StorageSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """A database that replicates this one. `is_synchronous` means that commits may wait for it."""

    name: str
    is_synchronous: bool
    lag_bytes: int  # bytes that the standby has not flushed yet
    lag_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseHealth:
    """
    Figures of a database that several nodes share. They are the same on every node, except for
    `failed_connections`.

    `standbys` and `oldest_transaction_s` are None if the database role may not see them. `needs_standby`
    means that commits need a synchronous standby. For waits that are in progress, there are their number and
    the duration of the longest.
    """

    needs_standby: bool
    standbys: Sequence[Standby] | None
    standby_waits: int  # number of commits that no standby has confirmed yet
    standby_wait_s: float
    head_waits: int  # number of nodes that wait for another node's commit
    head_wait_s: float
    # age in seconds of the oldest transaction of any client of this database
    oldest_transaction_s: float | None
    connections: int  # number of connections of all clients of the server
    max_connections: int
    failed_connections: int  # number of failed connection attempts of this node
    nodes: int  # number of running nodes
    leases_held: int
    leases_free: int  # number of leases that a running node needs and no node holds
    reporters: int  # number of stored senders, which are rows of `Heard`


async def no_database() -> DatabaseHealth | None:
    return None


async def _no_copies(into: Path) -> None:
    raise NotAllowed("this storage engine stores no files. Back it up with the database's own tools")


async def _never_damage(error: Exception) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Storage:
    """
    An open storage. `close` finishes the running writes and releases the data directory, even if a step fails.

    `registry` is None while its file is damaged. The log continues to work, and `registry_problem` is the
    message for operators. A damaged ledger is replaced and counted again from the log.

    `incarnation` changes when a new log had to be started. Progress through a log of another incarnation is
    invalid. `secret` is the secret of the installation. `is_shared` means that other processes change the
    storage as well; `leases` then decide which tasks this process may run.

    `copy` fills an empty directory with copies of the data as of one commit of the log, while the log is
    being written. `rename_records` renames people in all stored records. `overwrite` removes what replaced records
    left behind, and returns why some may be left, or "". `health` returns the figures of a shared database, or None
    for other storages. It raises SpoolUnavailable while the database is unreachable. `is_damage` returns True if
    damage of the log caused a later error. It stores this fact, so that the next opening salvages.
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
    rename_records: Callable[[Renaming], Awaitable[RenamedRecords]]
    overwrite: Callable[[], Awaitable[str]]
    health: Callable[[], Awaitable[DatabaseHealth | None]] = no_database

    def __post_init__(self) -> None:
        self.clusters.settings = None if self.registry is None else self.registry.cluster_settings


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """
    Number of records of a damaged file by outcome: imported, already known, settled before the
    damage, and unreadable.
    """

    added: int
    known: int
    settled: int
    unreadable: int


def _any_schema(directory: Path) -> None:
    """Do nothing, because a storage without files has nothing in the directory."""


async def _nothing_to_recover(options: StorageOptions, file: Path) -> Recovered:
    raise NotAllowed(f"{file} cannot be read, because this storage engine stores no files")


@dataclass(frozen=True, kw_only=True)
class Administration:
    """
    Administration of a storage that several nodes share. It needs no running server.

    `problems` yields every reason why a configuration is unusable. `certificate_files` yields the certificates
    that it names, each with its words in messages. The words for authorities begin with DATABASE_AUTHORITIES.
    `make` creates what is missing. `bring_up_to_date` migrates to the version of this Tollhouse. `status`
    describes the storage; its `problem` says why nothing can be stored. `change` changes settings for all nodes.
    Operators see the results. `lost` returns one sentence for each loss of data that the node of a data directory
    had acknowledged. All functions raise SpoolError if the storage is unreachable.
    """

    problems: Callable[[StorageSettings], Iterable[str]]
    certificate_files: Callable[[StorageSettings], Iterable[tuple[str, Path]]]
    make: Callable[[StorageSettings, SpoolSettings], Awaitable[Mapping[str, object]]]
    bring_up_to_date: Callable[[StorageSettings], Awaitable[Mapping[str, object]]]
    status: Callable[[StorageSettings], Awaitable[Mapping[str, object]]]
    change: Callable[[StorageSettings, Mapping[str, float]], Awaitable[Mapping[str, float]]]
    lost: Callable[[StorageSettings, Path], Awaitable[Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class Engine:
    """
    Parts of an engine that code outside its folder uses. `docs/storage-engines.md` lists what an
    engine must guarantee.

    `is_new`: returns True if a data directory has no data of the engine; raises OSError if it cannot be
    read. `version`: version for bug reports. `known_faults`: faults of that version, with their effects.
    `check_schema`: raises OtherSchema if a build with other tables wrote a data directory, which may
    be in use.

    `recover`: imports the records of a damaged file that the log does not have. Raises NotAllowed if nothing
    in the file is readable. `administration`: None for a storage of a single node.

    `tables`: opens all data for a copy to another storage. Raises NotAllowed while a node has the storage
    open. `take_over`: fills an empty storage with these tables. No node may use that storage before it is
    finished. Both are None if the storage cannot be copied.
    """

    open: Callable[[StorageOptions], Awaitable[Storage]]
    is_new: Callable[[Path], bool]
    version: Callable[[], str]
    known_faults: Callable[[], Sequence[str]] = tuple
    check_schema: Callable[[Path], None] = _any_schema
    recover: Callable[[StorageOptions, Path], Awaitable[Recovered]] = _nothing_to_recover
    administration: Administration | None = None
    tables: Callable[[StorageOptions], Awaitable[OpenTables]] | None = None
    take_over: Callable[[StorageOptions, OpenTables, Progress], Awaitable[MadeCopy]] | None = None

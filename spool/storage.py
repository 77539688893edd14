"""
All that Tollhouse stores, independent of the engine.

Only the folders of the engines contain SQL and file names.
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
from spool.erasure import RenameRecords, Renaming
from spool.errors import NotAllowed
from spool.leases import Leases, SoleNode
from spool.ledger.ledger import CHUNK, Ledger
from spool.ledger.work import WORK_LIMITS, WorkLimits
from spool.log.partial_reports import PartialReports
from spool.log.protocols import CommitObserver, RecordLog
from spool.log.recent_senders import StoredSenders
from spool.loops import FailedItems
from spool.packed.native import NativeModule
from spool.registry.registry import DeclaredTable, Registry
from spool.searching import VisitRows
from spool.settings import ContainerSettings, SpoolSettings, StorageSettings
from spool.sql.small import SmallTables
from spool.streams import KnownStreams, StreamReader

if TYPE_CHECKING:
    from spool.transfer.tables import OpenTables, Progress, UnfinishedStorageCopy


@dataclass(frozen=True, kw_only=True)
class StorageOptions:
    """
    The options for opening a storage. `cache_bytes`: memory for decoded entries, None for the default.
    `ledger_chunk`: records counted per transaction. `registry_clock`: None for `clock`. `new_registry`:
    replace a damaged or missing registry, and keep its file. `native`: the compiled module. `declared`:
    registry tables of higher packages. `is_unfinished_copy`: only for copying itself.
    """

    settings: SpoolSettings
    clock: Clock
    directory: Path = Path()  # data directory of engines with files
    observer: CommitObserver | None = None
    cache_bytes: int | None = None
    ledger_tags: Sequence[str] = ("service",)
    ledger_chunk: int = CHUNK
    work: WorkLimits = WORK_LIMITS
    native: NativeModule | None = None
    registry_clock: Clock | None = None
    declared: Sequence[type[DeclaredTable]] = ()
    new_registry: bool = False
    is_unfinished_copy: bool = False
    container: ContainerSettings = field(default_factory=ContainerSettings)
    # settings, mostly for engines that nodes share
    storage: StorageSettings = field(default_factory=StorageSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standby:
    """A standby of the database. Commits may wait for a synchronous one."""

    name: str
    is_synchronous: bool
    lag_bytes: int  # bytes that are not flushed yet
    lag_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseHealth:
    """
    The health of a shared database, equal on all nodes except `failed_connections`.

    `standbys` and `oldest_transaction_s` are None if the role may not see them. `needs_standby`: commits need
    a synchronous standby. Of present waits, the number and the longest duration in seconds are stated.
    """

    needs_standby: bool
    standbys: Sequence[Standby] | None
    standby_waits: int  # commits that no standby has confirmed yet
    standby_wait_s: float
    head_waits: int  # nodes that wait for the commit of another node
    head_wait_s: float
    # age of the oldest transaction of any client
    oldest_transaction_s: float | None
    connections: int  # connections of all clients
    max_connections: int
    failed_connections: int  # failed connections of this node
    nodes: int  # number of running nodes
    leases_held: int
    leases_free: int  # leases that a running node needs and no node holds
    reporters: int  # number of stored senders of calls


async def no_database() -> DatabaseHealth | None:
    return None


async def _refuse_to_copy_files(into: Path) -> None:
    raise NotAllowed("this storage engine stores no files. Back it up with the database's own tools")


async def _no_error_is_damage(error: Exception) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Storage:
    """
    An open storage. `close` finishes writes and releases the directory, even if a step fails.

    `registry`: None while it is damaged; then `registry_problem` has the reason for operators, and the log
    works. A damaged ledger is counted again. `incarnation` changes with a new log; progress in another is
    invalid. `is_shared`: other processes change the storage as well, so that `leases` decide who runs a task.

    `copy` fills an empty directory with the state at one commit, while writes continue.
    `overwrite_deleted_data` removes what deleted and replaced rows left on disk, or returns why some may
    remain. `visit_rows` reads all rows of all tables. `health`: None for unshared storages; raises
    SpoolUnavailable. `is_damage` returns whether damage of the log caused an error, and marks it, so that the
    next opening salvages. `failed_items`: of the background tasks of this process.
    """

    log: RecordLog
    deliveries: Deliveries
    partial_reports: PartialReports
    heard: StoredSenders
    devices: DeviceTable
    clusters: ClusterTable
    streams: StreamReader
    book: KnownStreams
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
    is_damage: Callable[[Exception], Awaitable[bool]] = _no_error_is_damage
    copy: Callable[[Path], Awaitable[None]] = _refuse_to_copy_files
    rename_records: RenameRecords
    visit_rows: VisitRows
    overwrite_deleted_data: Callable[[], Awaitable[str]]
    health: Callable[[], Awaitable[DatabaseHealth | None]] = no_database
    failed_items: FailedItems = field(default_factory=FailedItems)

    def __post_init__(self) -> None:
        self.clusters.settings = None if self.registry is None else self.registry.cluster_settings


@dataclass(frozen=True, kw_only=True)
class RecoveryResult:
    """
    The counts of a recovery. `added`: imported records. `settled`: records that were already delivered before
    the damage.
    """

    added: int
    known: int
    settled: int
    unreadable: int


def _accept_any_schema(directory: Path) -> None:
    """Do nothing, because there are no files."""


async def _nothing_to_recover(
    options: StorageOptions, file: Path, renaming: Renaming | None
) -> RecoveryResult:
    raise NotAllowed(f"{file} cannot be read, because this storage engine stores no files")


@dataclass(frozen=True, kw_only=True)
class Administration:
    """
    The administration of a shared storage without a running server.

    `problems`: why a configuration is unusable. `certificate_files`: files, each with a description for
    messages. `make` creates what is missing. `bring_up_to_date` migrates. `status` has a `problem` if nothing
    can be stored. `change` sets values for all nodes. `lost` returns data that this directory's node
    acknowledged and the storage lost. All of them raise SpoolError if the storage is unreachable.
    """

    problems: Callable[[StorageSettings], Iterable[str]]
    certificate_files: Callable[[StorageSettings], Iterable[tuple[str, Path]]]
    make: Callable[[StorageSettings, SpoolSettings], Awaitable[Mapping[str, object]]]
    bring_up_to_date: Callable[[StorageSettings], Awaitable[Mapping[str, object]]]
    status: Callable[[StorageSettings], Awaitable[Mapping[str, object]]]
    change: Callable[[StorageSettings, Mapping[str, float]], Awaitable[Mapping[str, float]]]
    lost: Callable[[StorageSettings, Path], Awaitable[Sequence[str]]]


@dataclass(frozen=True, kw_only=True)
class StorageEngine:
    """
    The functions of a storage engine. See `docs/storage/storage-engines.md` for guarantees.

    `is_new`: whether it has no data; raises OSError. `version`: for bug reports. `known_faults`: of that
    version, with their effects. `check_schema`: raises OtherSchema, even in use. `recover`: raises NotAllowed
    if nothing is readable. `administration`: None for a single node.

    `tables` returns all data for a copy, and raises NotAllowed while a node has the storage open. `take_over`
    fills an empty storage, which is unusable until that is finished. Both are None if the engine's data
    cannot be copied.
    """

    open: Callable[[StorageOptions], Awaitable[Storage]]
    is_new: Callable[[Path], bool]
    version: Callable[[], str]
    known_faults: Callable[[], Sequence[str]] = tuple
    check_schema: Callable[[Path], None] = _accept_any_schema
    recover: Callable[[StorageOptions, Path, Renaming | None], Awaitable[RecoveryResult]] = (
        _nothing_to_recover
    )
    administration: Administration | None = None
    tables: Callable[[StorageOptions], Awaitable[OpenTables]] | None = None
    take_over: Callable[[StorageOptions, OpenTables, Progress], Awaitable[UnfinishedStorageCopy]] | None = (
        None
    )

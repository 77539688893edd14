"""
Devices on PostgreSQL. A write states the version of each row that was read, so that concurrent
changes are detected.
"""

from __future__ import annotations

import asyncio
import json
import math
import secrets
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from spool.clusters import Cluster, TooManyClusters
from spool.devices.device import (
    MAPPINGS,
    Device,
    DevicesRefused,
    DeviceWrite,
    Expectations,
    UnenrolledName,
    WriteConditions,
    decode_json_columns,
)
from spool.errors import SpoolUnavailable
from spool.log.partial_reports import ExpectedVersion
from spool.postgres.database import (
    CommitUnknown,
    Connection,
    Database,
    PostgresConnection,
    PostgresTransactions,
)
from spool.postgres.registry.key_checks import (
    expected_versions_of_keys_no_longer_valid,
    lock_keys,
    require_valid_keys,
    wait_for_running_commits,
)
from spool.postgres.registry.store import announce_changes_and_return_position, lock_registry_changes
from spool.registry import following
from spool.registry.following import DEVICES
from spool.sql import devices
from spool.sql.clusters import CLUSTER, CLUSTERS, DELETE, PUT, SqlClusters, read_cluster

_NAMES = tuple(attribute.name for attribute in fields(Device))
_COLUMNS = ", ".join(f'"{name}"' for name in _NAMES)
# seconds for which a commit with a lost result is searched, and the pause between searches
LOOKED_UP_S, LOOK_UP_EVERY_S = 10.0, 0.1
OVERLAP_S = 30.0  # seconds by which a commit may be later than the time in its rows

_ALL = f"SELECT row_version, {_COLUMNS} FROM {{schema}}.devices"
_ADD = f"""
    INSERT INTO {{schema}}.devices ({_COLUMNS}, row_version, written_at)
    VALUES ({", ".join(f"%({name})s" for name in _NAMES)}, %(row_version)s, {{now}})
        ON CONFLICT (id) DO NOTHING RETURNING id"""
_CHANGE = f"""
    UPDATE {{schema}}.devices
       SET {", ".join(f'"{name}" = %({name})s' for name in _NAMES if name != "id")},
           row_version = %(row_version)s, written_at = {{now}}
     WHERE id = %(id)s AND row_version = %(read_version)s RETURNING id"""
_COUNT = """
    SELECT count(*), array_agg(id) FILTER (WHERE id = ANY(%s)) FROM {schema}.devices"""
_OF_TOKENS = "SELECT token, array_agg(id) FROM {schema}.devices WHERE token = ANY(%s) GROUP BY token"
_PUT_NAME = """
    INSERT INTO {schema}.unenrolled AS kept (name, first_seen, last_seen, count, key) VALUES (%s, %s, %s, %s, %s)
        ON CONFLICT (name) DO UPDATE
       SET first_seen = least(kept.first_seen, excluded.first_seen),
           last_seen = greatest(kept.last_seen, excluded.last_seen),
           count = greatest(kept.count, excluded.count), key = excluded.key"""
_TIME = "SELECT {now}"

T = TypeVar("T")
Versions = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class _RowChanges:
    """
    The rows of one write, sorted by id.

    `read`: the versions of the replaced rows, None for new rows. `urgent`: ids of rows that other processes
    must learn of at once. `ends_keys`: a device key becomes invalid.
    """

    devices: Mapping[str, Device]
    read: Mapping[str, int | None]
    versions: Mapping[str, int]
    urgent: set[str]
    ends_keys: bool

    def has_written(self, row: Sequence[Any]) -> bool:
        """
        Return whether the stored row has this write's values, because an earlier commit succeeded but its
        result was lost.
        """
        id = row[1]
        return (row[0], _read_device(row[1:])) == (self.versions[id], self.devices[id])


class PostgresDevices:
    is_shared = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self._versions: Versions = {}  # versions of rows as this process last read or wrote them
        self._told: dict[str, Device] = {}  # devices as last announced to other processes
        self._looked_at = 0.0
        # whether commits with a key that has ended may still run
        self._ends_keys = False

    async def load(self) -> tuple[Sequence[Device], Sequence[UnenrolledName]]:
        def read_devices_and_names(connection: Connection) -> tuple[list[Any], list[Any], float]:
            sql = self._database.fill_in_table_names
            [[at]] = connection.execute(
                sql(_TIME), {"now": self._database.now_unless_database_clock()}
            ).fetchall()
            return (
                connection.execute(sql(_ALL)).fetchall(),
                PostgresConnection(connection, sql).all(devices.ALL_NAMES),
                at,
            )

        rows, names, self._looked_at = await self._database.snapshot(read_devices_and_names)
        return [self._remember_row(row) for row in rows], [_read_unenrolled(row) for row in names]

    async def unenrolled_names(self) -> Sequence[UnenrolledName]:
        rows = await PostgresTransactions(self._database).read(lambda rows: rows.all(devices.ALL_NAMES))
        return [_read_unenrolled(row) for row in rows]

    async def failed_expectations(self, device_write: DeviceWrite) -> Expectations:
        database = self._database
        expects = device_write.conditions.expects

        def read_failed_key_expectations(connection: Connection) -> Collection[ExpectedVersion]:
            if not self._has_key_ending_change(device_write):
                database.require_standby(connection)
            return expected_versions_of_keys_no_longer_valid(
                connection, database.fill_in_table_names, expects, now=database.now_unless_database_clock()
            )

        return frozenset(await database.read(read_failed_key_expectations))

    async def write(self, device_write: DeviceWrite) -> Mapping[str, Device | None]:
        changes = self._row_changes(device_write)
        # A response depends on rows of other processes even without a change.
        needs_standby = self._database.needs_standby and (device_write.is_answered or bool(changes.urgent))
        written, replaced = await self._commit_and_retry(
            lambda connection: self._write_and_read_back(connection, device_write, changes),
            needs_standby=needs_standby,
        )
        self._ends_keys = self._ends_keys or changes.ends_keys
        for id in (*device_write.deleted, *(changes.devices.keys() - written)):
            self._forget_row(id)
        for id in written:
            self._versions[id] = changes.versions[id]
            self._told[id] = _device_without_activity_fields(changes.devices[id])
        lost: dict[str, Device | None] = dict.fromkeys(changes.devices.keys() - written)
        return lost | {device.id: device for device in map(self._remember_row, replaced)}

    def _row_changes(self, device_write: DeviceWrite) -> _RowChanges:
        ordered = sorted(device_write.devices, key=lambda device: device.id)
        read = {device.id: self._versions.get(device.id) for device in ordered}
        changed_ids = {
            device.id
            for device in ordered
            if _device_without_activity_fields(device) != self._told.get(device.id)
        }
        return _RowChanges(
            devices={device.id: device for device in ordered},
            read=read,
            versions={id: _next_version(version) for id, version in read.items()},
            urgent=changed_ids | set(device_write.deleted),
            ends_keys=self._has_key_ending_change(device_write),
        )

    def _write_and_read_back(
        self, connection: Connection, device_write: DeviceWrite, changes: _RowChanges
    ) -> tuple[set[str], list[Any]]:
        """
        Write rows. Return the ids of rows that now have the wanted values, and the rows that other processes
        wrote instead.

        If a condition fails, raises DevicesRefused and writes nothing.
        """
        self._lock_keys(connection, device_write, changes)
        self._require_write_conditions(connection, device_write.conditions, changes)
        written = self._write_rows(connection, changes, device_write.deleted)
        replaced = self._read_rows(connection, sorted(changes.devices.keys() - written))
        before = {row[1] for row in replaced if changes.has_written(row)}
        written |= before
        self._write_names(connection, device_write.names, device_write.gone)
        changed_keys = {(DEVICES, id) for id in changes.urgent & (written | set(device_write.deleted))}
        if changed_keys:
            announce_changes_and_return_position(connection, self._database, changed_keys)
        return written, [row for row in replaced if row[1] not in before]

    def _lock_keys(self, connection: Connection, device_write: DeviceWrite, changes: _RowChanges) -> None:
        """
        Lock the keys that the write expects. For urgent rows, take the registry's lock instead, so that
        urgent changes happen one after the other.
        """
        if not changes.urgent:
            lock_keys(connection, self._database.fill_in_table_names, device_write.conditions.expects)
            return
        lock_registry_changes(connection, self._database)
        # a key can be ended even without a standby, but then without a confirmation
        if not changes.ends_keys:
            self._database.require_standby(connection)

    def _require_write_conditions(
        self, connection: Connection, conditions: WriteConditions, changes: _RowChanges
    ) -> None:
        database = self._database
        ended = expected_versions_of_keys_no_longer_valid(
            connection,
            database.fill_in_table_names,
            conditions.expects,
            now=database.now_unless_database_clock(),
        )
        new = [id for id, version in changes.read.items() if version is None]
        over = self._new_ids_over_limit(connection, new, conditions)
        unpaid = self._ids_with_used_up_token(connection, changes.devices, conditions.tokens)
        if ended or over or unpaid:
            raise DevicesRefused(ended=ended, over=over, unpaid=unpaid)

    def _read_rows(self, connection: Connection, ids: Sequence[str]) -> list[Any]:
        statement = self._database.fill_in_table_names(f"{_ALL} WHERE id = ANY(%s)")
        return connection.execute(statement, (ids,)).fetchall() if ids else []

    async def _commit_and_retry(self, work: Callable[[Connection], T], *, needs_standby: bool) -> T:
        """
        Run `work` again if the connection is lost at COMMIT. It then finds the rows that its first run wrote.
        """
        until, unknown = math.inf, None
        while True:
            try:
                return await self._database.transaction(work, needs_standby=lambda _: needs_standby)
            except CommitUnknown as error:
                unknown = error
                until = min(until, time.monotonic() + LOOKED_UP_S)
            except DevicesRefused:
                raise
            except SpoolUnavailable:
                if unknown is None:
                    raise
            if time.monotonic() > until:
                raise unknown
            await asyncio.sleep(LOOK_UP_EVERY_S)

    async def wait_for_running_commits(self) -> None:
        if self._ends_keys:
            await wait_for_running_commits(self._database)
            self._ends_keys = False

    async def rows_changed_elsewhere(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        sorted_ids = None if ids is None else sorted(ids)
        since = self._looked_at - OVERLAP_S

        def read_foreign_rows(connection: Connection) -> tuple[list[Any], float]:
            sql = self._database.fill_in_table_names
            [[at]] = connection.execute(
                sql(_TIME), {"now": self._database.now_unless_database_clock()}
            ).fetchall()
            if sorted_ids is None:
                return connection.execute(sql(f"{_ALL} WHERE written_at >= %s"), (since,)).fetchall(), at
            return connection.execute(sql(f"{_ALL} WHERE id = ANY(%s)"), (sorted_ids,)).fetchall(), at

        rows, at = await self._database.read(read_foreign_rows)
        if ids is None:
            self._looked_at = at
        devices: dict[str, Device | None] = {
            row[1]: self._remember_row(row) for row in rows if row[0] != self._versions.get(row[1])
        }
        for id in set(sorted_ids or ()) - {row[1] for row in rows}:
            self._forget_row(id)
            devices[id] = None
        return devices

    def _new_ids_over_limit(
        self, connection: Connection, new_ids: Sequence[str], conditions: WriteConditions
    ) -> Sequence[str]:
        """
        Return the ids of new devices beyond the limit. The caller must hold the registry's lock, so that no
        other process adds devices.
        """
        bounded = [id for id in new_ids if id in conditions.bounded]
        if conditions.most is None or not bounded:
            return ()
        [[known, existing]] = connection.execute(
            self._database.fill_in_table_names(_COUNT), (bounded,)
        ).fetchall()
        adds = [id for id in bounded if id not in set(existing or ())]
        room = max(0, conditions.most - known - (len(new_ids) - len(bounded)))
        return adds[room:]

    def _ids_with_used_up_token(
        self, connection: Connection, devices: Mapping[str, Device], tokens: Mapping[str, int]
    ) -> Sequence[str]:
        """
        Return the ids of devices whose enrolment token is used up. The caller must hold the registry's head
        lock.
        """
        new_ids = [id for id, device in devices.items() if device.token in tokens]
        if not new_ids:
            return ()
        statement = self._database.fill_in_table_names(_OF_TOKENS)
        existing: dict[str, list[str]] = dict(connection.execute(statement, (sorted(tokens),)).fetchall())
        unpaid = list[str]()
        for token, most in tokens.items():
            known = set(existing.get(token, ()))
            adds = [id for id in new_ids if devices[id].token == token and id not in known]
            unpaid += adds[max(0, most - len(known)) :]
        return unpaid

    def _has_key_ending_change(self, device_write: DeviceWrite) -> bool:
        return any(map(self._is_key_ending_change, device_write.devices)) or bool(device_write.deleted)

    def _is_key_ending_change(self, changed_device: Device) -> bool:
        known = self._told.get(changed_device.id)
        if known is None or not known.has_key:
            return False
        return not changed_device.has_key or (changed_device.generation, changed_device.state) != (
            known.generation,
            known.state,
        )

    def _write_rows(self, connection: Connection, changes: _RowChanges, deleted: Collection[str]) -> set[str]:
        """
        Write the rows that have not changed since they were read. Return their ids.

        Rows are written in the order of their ids, so that two processes with the same rows cannot deadlock.
        """
        sql = self._database.fill_in_table_names
        now = self._database.now_unless_database_clock()
        written = dict[str, Any]()
        with connection.pipeline():
            for id in sorted({*changes.devices, *deleted}):
                if id in deleted:
                    PostgresConnection(connection, sql).run(devices.DELETE, id=id)
                if id in changes.devices:
                    versions = {"read_version": changes.read[id], "row_version": changes.versions[id]}
                    statement = sql(_ADD if changes.read[id] is None else _CHANGE)
                    values = {**versions, "now": now, **_device_values(changes.devices[id])}
                    written[id] = connection.execute(statement, values)
        return {id for id, cursor in written.items() if cursor.fetchone()}

    def _write_names(
        self, connection: Connection, names: Sequence[UnenrolledName], gone: Collection[str]
    ) -> None:
        sql = self._database.fill_in_table_names
        noted = {unenrolled.name: unenrolled for unenrolled in names}
        with connection.pipeline():
            # sorted, so that two processes with the same names cannot deadlock
            for name in sorted({*noted, *gone}):
                if name in noted:
                    unenrolled = noted[name]
                    connection.execute(
                        sql(_PUT_NAME),
                        (name, unenrolled.first_seen, unenrolled.last_seen, unenrolled.count, unenrolled.key),
                    )
                if name in gone:
                    PostgresConnection(connection, sql).run(devices.FORGET_NAME, name=name)

    def _remember_row(self, row: Sequence[Any]) -> Device:
        version, *values = row
        device = _read_device(values)
        self._versions[device.id] = version
        self._told[device.id] = _device_without_activity_fields(device)
        return device

    def _forget_row(self, id: str) -> None:
        self._versions.pop(id, None)
        self._told.pop(id, None)


def _device_without_activity_fields(device: Device) -> Device:
    """
    Return the device with only the fields that other processes must learn at once. Other fields reach them
    within seconds.
    """
    return replace(
        device,
        last_seen=0.0,
        last_heartbeat=None,
        last_telemetry=None,
        heartbeat=b"",
        clock_offset_s=None,
        version=0,
        sent_version=0,
        words="",
    )


def _next_version(version: int | None) -> int:
    """
    Return the next version of a row. A new row starts at a random version, to differ from a deleted row with
    its id.
    """
    return secrets.randbits(60) if version is None else version + 1


def _read_unenrolled(row: Sequence[Any]) -> UnenrolledName:
    name, first_seen, last_seen, count, key = row
    return UnenrolledName(name=name, first_seen=first_seen, last_seen=last_seen, count=count, key=key)


def _device_values(device: Device) -> dict[str, object]:
    values: dict[str, object] = {name: getattr(device, name) for name in _NAMES}
    return {**values, **{name: json.dumps(dict(getattr(device, name))) for name in MAPPINGS}}


def _read_device(row: Sequence[Any]) -> Device:
    values = dict(zip(_NAMES, row, strict=True))
    values.update(decode_json_columns(values))
    return Device(**values)


# -- clusters ------------------------------------------------------------------------------------------------


_COUNT_CLUSTERS = "SELECT count(*) FROM {schema}.clusters"


class PostgresClusters(SqlClusters):
    def __init__(self, database: Database) -> None:
        super().__init__(PostgresTransactions(database))
        self._database = database
        self._known: dict[str, Cluster] = {}  # clusters as this process last read or wrote them

    async def load(self) -> Sequence[Cluster]:
        clusters = await super().load()
        self._known = {cluster.id: cluster for cluster in clusters}
        return clusters

    async def write(
        self,
        cluster: Cluster,
        *,
        expected_versions: Collection[ExpectedVersion] = (),
        max_rows: int | None = None,
    ) -> None:
        """Write a cluster. Changes that another process has made since this process read the row are kept."""
        known = self._known.get(cluster.id)

        def write_merged_cluster(on: Connection) -> Cluster:
            connection = self._lock_registry_and_require_standby(on)
            require_valid_keys(
                on,
                self._database.fill_in_table_names,
                expected_versions,
                now=self._database.now_unless_database_clock(),
            )
            row = connection.first_row(f"{CLUSTERS} WHERE id = :id", id=cluster.id)
            if row is None and max_rows is not None and connection.first_row(_COUNT_CLUSTERS)[0] >= max_rows:
                raise TooManyClusters
            merged = (
                cluster
                if row is None or known is None
                else _apply_changed_fields_to_stored(known, cluster, read_cluster(row))
            )
            connection.run(PUT, **CLUSTER.stored_values(merged))
            announce_changes_and_return_position(on, self._database, [(following.CLUSTERS, cluster.id)])
            return merged

        self._known[cluster.id] = await self._run_transaction(write_merged_cluster)

    async def delete(self, id: str) -> None:
        def delete_cluster(on: Connection) -> None:
            self._lock_registry_and_require_standby(on).run(DELETE, id=id)
            announce_changes_and_return_position(on, self._database, [(following.CLUSTERS, id)])

        await self._run_transaction(delete_cluster)
        self._known.pop(id, None)

    def _lock_registry_and_require_standby(self, connection: Connection) -> PostgresConnection:
        lock_registry_changes(connection, self._database)
        self._database.require_standby(connection)
        return PostgresConnection(connection, self._database.fill_in_table_names)

    async def _run_transaction(self, work: Callable[[Connection], T]) -> T:
        return await self._database.transaction(work, needs_standby=lambda _: self._database.needs_standby)


def _apply_changed_fields_to_stored(previous: Cluster, edited: Cluster, stored: Cluster) -> Cluster:
    pairs = ((name, getattr(edited, name), getattr(previous, name)) for name in CLUSTER.names)
    return replace(stored, **{name: value for name, value, before in pairs if value != before})

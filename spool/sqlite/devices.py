"""Devices in spool.sqlite. Each method has its own transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Any

from spool.devices.device import (
    MAPPINGS,
    NO_EXPECTATIONS,
    Device,
    DeviceWrite,
    Expectations,
    UnenrolledName,
    decode_json_columns,
)
from spool.errors import SpoolUnavailable
from spool.sql.devices import ALL_NAMES, DELETE, FORGET_NAME
from spool.sqlite.database import Database, SqliteConnection

_COLUMNS = tuple(attribute.name for attribute in fields(Device))
_FLAGS = ("has_key", "key_used")

_PUT = f"INSERT OR REPLACE INTO devices ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"

_ALL = f"SELECT {', '.join(_COLUMNS)} FROM devices"

_PUT_NAME = (
    "INSERT OR REPLACE INTO unenrolled (name, first_seen, last_seen, count, key) VALUES (?, ?, ?, ?, ?)"
)


class SqliteDevices:
    is_shared = False

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self) -> tuple[Sequence[Device], Sequence[UnenrolledName]]:
        def read_devices_and_names(
            connection: sqlite3.Connection,
        ) -> tuple[list[Device], list[UnenrolledName]]:
            names = [
                UnenrolledName(name=name, first_seen=first, last_seen=last, count=count, key=key)
                for name, first, last, count, key in SqliteConnection(connection).all(ALL_NAMES)
            ]
            return [_read_device(row) for row in connection.execute(_ALL)], names

        return await self._database.read(read_devices_and_names)

    async def write(self, device_write: DeviceWrite) -> Mapping[str, Device | None]:
        def write_devices(connection: sqlite3.Connection) -> None:
            rows = SqliteConnection(connection)
            rows.run_each(DELETE, [{"id": id} for id in device_write.deleted])
            connection.executemany(_PUT, map(_device_values, device_write.devices))
            connection.executemany(
                _PUT_NAME,
                [
                    (
                        unenrolled.name,
                        unenrolled.first_seen,
                        unenrolled.last_seen,
                        unenrolled.count,
                        unenrolled.key,
                    )
                    for unenrolled in device_write.names
                ],
            )
            rows.run_each(FORGET_NAME, [{"name": name} for name in device_write.gone])

        try:
            await self._database.transaction(write_devices)
        except sqlite3.Error as error:
            raise SpoolUnavailable(f"the devices cannot be written: {error}") from error
        return {}

    async def wait_for_running_commits(self) -> None:
        """Do nothing, because no other process writes."""

    async def failed_expectations(self, device_write: DeviceWrite) -> Expectations:
        return NO_EXPECTATIONS

    async def unenrolled_names(self) -> Sequence[UnenrolledName]:
        return (await self.load())[1]

    async def rows_changed_elsewhere(self, ids: Collection[str] | None) -> Mapping[str, Device | None]:
        return {}


def _device_values(device: Device) -> list[Any]:
    values = {name: getattr(device, name) for name in _COLUMNS}
    values.update({name: json.dumps(dict(values[name])) for name in MAPPINGS})
    return list(values.values())


def _read_device(row: Sequence[Any]) -> Device:
    values = dict(zip(_COLUMNS, row, strict=True))
    values.update(decode_json_columns(values))
    values.update({name: bool(values[name]) for name in _FLAGS})
    return Device(**values)

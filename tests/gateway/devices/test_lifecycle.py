"""Device keys of shared storage: a key that another gateway just issued is not refused as invalid."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.errors import Refusal
from gateway.devices.lifecycle import NEWS_S, DeviceKeys
from spool.devices.device import REVOKED, Device
from spool.devices.table import DeviceTable
from spool.sqlite.devices import SqliteDevices
from spool.sqlite.directory import SPOOL
from spool.sqlite.memory_log import MemoryDatabase
from tests.moved_clock import MovedClock


class SharedDevices(SqliteDevices):
    is_shared = True


def answer(keys: DeviceKeys, secret: str) -> int:
    try:
        return 200 if keys.bearer_of_key(secret) else 0
    except Refusal as error:
        return error.status


async def test_a_key_that_is_newer_than_what_is_known() -> None:
    """
    If a device key is newer than the known row, the sender is asked to repeat. An older key, or the key of a
    device deleted long ago, is invalid.
    """
    clock = MovedClock()
    table = await DeviceTable.open(SharedDevices(MemoryDatabase(SPOOL)))
    keys = DeviceKeys(table, secret=b"i" * 32, clock=clock)
    began = int(clock.now())
    device = Device(id="laptop", enrolled_at=began, enrolled_by="fleet", last_seen=began, generation=began)
    secret, later = keys.issue_key(device), keys.issue_key(replace(device, generation=began + 1))
    assert 503 == answer(keys, secret)
    await table.replace_row(device)
    assert answer(keys, secret) == 503
    assert answer(keys, later) == 503
    await table.replace_row(replace(device, has_key=True))
    assert answer(keys, secret) == 200
    assert answer(keys, later) == 503
    await table.replace_row(replace(device, generation=began + 1))
    assert answer(keys, secret) == 401
    assert answer(keys, later) == 503
    await table.replace_row(replace(device, generation=began + 1, state=REVOKED))
    assert answer(keys, secret) == 401
    assert answer(keys, later) == 401
    await table.delete(["laptop"], [])
    clock.move(NEWS_S + 1)
    assert answer(keys, secret) == 401
    assert answer(keys, later) == 401
    await table.close()

"""The memory of a device and its states, in bytes of Python objects, which do not depend on the machine."""

from __future__ import annotations

import gc
import tracemalloc
from pathlib import Path

import pytest

from gateway.devices.fleet.inventory_lists import read_inventory_list
from gateway.devices.fleet.matching import ExpectedMachines
from tests.integration.fleet.test_outage import DEVICES, Site
from tests.integration.operations.server import operator_server

# maximum memory in bytes of a device with the states of six assistants, and of its rows in two lists
MAX_BYTES = 5_400
MACHINES = 2_000
# maximum memory in bytes of a machine of the inventory, and of what finds its device
MAX_MACHINE_BYTES = 720


@pytest.mark.proof
async def test_a_device_is_small_and_its_earlier_rows_are_released(tmp_path: Path) -> None:
    """
    The caches of states and rows keep nothing of a device that has reported again. The smallest of three
    figures counts, because an import or another task of the process may fall into one of them.
    """
    async with operator_server(tmp_path) as server:
        site = Site(server)
        table = site.lifecycle.table
        await site.enrol()
        await _report(site)
        await _look(site)
        sizes, after_reports, after_looks = [], [], []
        tracemalloc.start()
        try:
            for _ in range(3):
                await table.delete([device.id for device in table.all()], [])
                await _look(site)
                before = _traced()
                await site.enrol()
                await _report(site)
                await _look(site)
                size = _traced() - before
                await _report(site)
                after_reports.append(_traced() - before - size)
                await _look(site)
                after_looks.append(_traced() - before - size)
                sizes.append(size)
        finally:
            tracemalloc.stop()
        assert min(sizes) / DEVICES < MAX_BYTES
        assert min(after_reports) < 0.1 * min(sizes)
        assert min(after_looks) < 0.1 * min(sizes)


async def _report(site: Site) -> None:
    site.clock.move(300)
    await site.report(waits=False)
    site.call()
    await site.lifecycle.table.flush()


async def _look(site: Site) -> None:
    for path in ("/fleet/coverage", "/fleet/devices", "/devices"):
        answer = await site.server.ask("GET", path)
        assert 200 == answer.status
    await site.lifecycle.store_changed_states()


def _traced() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def test_a_machine_of_the_inventory_is_small() -> None:
    """The machines share the texts of their teams and systems."""
    content = _listed_machines(MACHINES)
    assert 1 == len(ExpectedMachines(read_inventory_list("list", _listed_machines(1)).machines).machines)
    tracemalloc.start()
    try:
        before = _traced()
        expected = ExpectedMachines(read_inventory_list("list", content).machines)
        size = _traced() - before
    finally:
        tracemalloc.stop()
    assert MACHINES == len(expected.machines)
    assert size / MACHINES < MAX_MACHINE_BYTES


def _listed_machines(machines: int) -> bytes:
    rows = (
        f"C02{n:09},laptop-{n}.example.com,user-{n}@example.com,Team number {n % 40},macOS {n % 3}.1"
        for n in range(machines)
    )
    return "\n".join(
        ("serial number,computer name,email address,department,operating system", *rows)
    ).encode()

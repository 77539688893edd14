"""The hours in which keys and sources sent records, added up over processes and restarts."""

from __future__ import annotations

from spool.registry.tables.sender_hours import (
    FORGOTTEN_HOURS,
    HOUR_S,
    KEPT_HOURS,
    MAX_SOURCES,
    RUNNING,
    SenderHours,
)
from tests.spool.contract.conftest import RegistryOpener

NOW_H = 497_000
NOW = float(NOW_H * HOUR_S)
PAIR = ("kong", "prod")


async def test_hours_of_processes_are_joined(open_registry: RegistryOpener) -> None:
    """
    Hours that several processes add are joined. The order of the additions does not matter, and the newest six
    weeks are stored.
    """
    registry = await open_registry()
    await registry.sender_hours.add({PAIR: {NOW_H: NOW + 5}}, now=NOW)
    earlier = {NOW_H - 2: NOW - 7100, NOW_H: NOW + 2}
    [joined] = await registry.sender_hours.add({PAIR: earlier}, now=NOW)
    assert SenderHours(source="kong", key="prod", end=NOW_H, hours=0b101, last=NOW + 5) == joined
    await registry.close()
    registry = await open_registry()
    assert [joined] == await registry.sender_hours.all()
    later = NOW_H + KEPT_HOURS
    [cut] = await registry.sender_hours.add({PAIR: {later: later * HOUR_S + 0.5}}, now=NOW)
    assert (later, 1) == (cut.end, cut.hours)


async def test_a_key_has_a_limited_number_of_sources(open_registry: RegistryOpener) -> None:
    """A sender that invents sources takes no room from other keys. Pairs that were silent for very long are deleted."""
    registry = await open_registry()
    invented = {(f"s{number}", "prod"): {NOW_H: NOW} for number in range(MAX_SOURCES + 5)}
    assert MAX_SOURCES == len(await registry.sender_hours.add(invented, now=NOW))
    ran = {RUNNING: {NOW_H - 1000: NOW - 3.6e6, NOW_H: NOW}}
    assert 1 == len(await registry.sender_hours.add({**ran, ("kong", "staging"): {NOW_H: NOW}}, now=NOW)) - 1
    [running] = [each for each in await registry.sender_hours.all() if each.key == each.source == ""]
    assert 1001 == running.hours.bit_length()
    later = NOW + (FORGOTTEN_HOURS + 1) * HOUR_S
    await registry.sender_hours.add({PAIR: {int(later // HOUR_S): later}}, now=later)
    assert ["kong"] == [each.source for each in await registry.sender_hours.all()]

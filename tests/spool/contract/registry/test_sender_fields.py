"""Fields that senders state, by day, source and version, added up over processes and restarts."""

from __future__ import annotations

from spool.registry.tables.sender_fields import KIND, SenderFieldTable
from spool.sender_fields import DAYS, MAX_GROUPS, MAX_SOURCES, MAX_VERSIONS, OTHER, FieldCounts, SenderDay
from tests.spool.contract.conftest import RegistryOpener

TODAY = 20_000


def counts(calls: int = 1, *, at: float = 0.0, sender: str = "a", **fields: int) -> FieldCounts:
    return FieldCounts(first=at, last=at, calls=calls, fields=fields, senders=[sender])


async def test_gateways_add_up(open_registry: RegistryOpener) -> None:
    """The counts of two gateways are added, and survive a restart."""
    gateways = [await open_registry() for _ in range(2)]
    for number, gateway in enumerate(gateways):
        new = {("kong", "3.9"): counts(3, at=number, sender=f"key {number}", cost=2)}
        await gateway.sender_fields.add({TODAY: new, TODAY - 1: new}, today=TODAY)
    for gateway in gateways:
        await gateway.close()
    stored = await (await open_registry()).sender_fields.days_since(TODAY - 1)
    both = FieldCounts(first=0, last=1, calls=6, fields={"cost": 4}, senders=["key 0", "key 1"])
    assert {TODAY - 1: {("kong", "3.9"): both}, TODAY: {("kong", "3.9"): both}} == stored


async def test_old_days_are_deleted(open_registry: RegistryOpener) -> None:
    """Counts of old days are deleted: fourteen days are stored, today included."""
    registry = await open_registry()
    days = {TODAY - age: {("kong", ""): counts()} for age in range(DAYS + 1)}
    await registry.sender_fields.add(days, today=TODAY)
    assert DAYS == len(await registry.sender_fields.days_since(0))
    await registry.sender_fields.add({TODAY + 1: {("kong", ""): counts()}}, today=TODAY + 1)
    assert [*range(TODAY + 2 - DAYS, TODAY + 2)] == [*await registry.sender_fields.days_since(0)]


async def test_sources_are_limited(open_registry: RegistryOpener) -> None:
    """
    The number of sources with counts of their own is limited to the first 64. All calls of the others are counted
    together.
    """
    registry = await open_registry()
    new = {(f"source {number}", "1"): counts(2) for number in range(MAX_SOURCES)}
    await registry.sender_fields.add({TODAY: new}, today=TODAY)
    for number in range(3):
        more = {(f"source {MAX_SOURCES + number}", "1"): counts(5), ("source 0", "1"): counts(1)}
        await registry.sender_fields.add({TODAY: more}, today=TODAY)
    stored = (await registry.sender_fields.days_since(0))[TODAY]
    assert MAX_SOURCES + 1 == len(stored)
    assert 15 == stored[OTHER, OTHER].calls
    assert 5 == stored["source 0", "1"].calls


async def test_the_newest_versions_have_counts_of_their_own(open_registry: RegistryOpener) -> None:
    """
    The newest versions have counts of their own. The ninth version joins the oldest to the others, on every day.
    The oldest version does not become the newest if it sends again. Calls without a version keep their counts.
    """
    table = (await open_registry()).sender_fields
    yesterday: SenderDay = {("kong", str(number)): counts(at=number) for number in range(MAX_VERSIONS)}
    await table.add({TODAY - 1: {**yesterday, ("kong", ""): counts(at=-1)}}, today=TODAY)
    assert {("kong", ""), *yesterday} == {*(await table.days_since(0))[TODAY - 1]}
    newest = {("kong", str(MAX_VERSIONS)): counts(at=MAX_VERSIONS), ("kong", "0"): counts(4, at=MAX_VERSIONS)}
    await table.add({TODAY: newest}, today=TODAY)
    await table.add({TODAY: {("kong", "0"): counts(2, at=99), ("kong", "1"): counts(at=99)}}, today=TODAY)
    stored = await table.days_since(0)
    assert {OTHER, "", *map(str, range(1, MAX_VERSIONS))} == {version for _, version in stored[TODAY - 1]}
    assert 6 == stored[TODAY]["kong", OTHER].calls
    assert 1 == stored[TODAY]["kong", "1"].first  # the first record of this version arrived yesterday
    assert await _calls(table) == MAX_VERSIONS + 1 + 1 + 4 + 2 + 1


async def _calls(table: SenderFieldTable) -> int:
    days = await table.days_since(0)
    return sum(counts.calls for senders in days.values() for counts in senders.values())


async def test_providers_of_a_version_are_limited(open_registry: RegistryOpener) -> None:
    registry = await open_registry()
    for number in range(MAX_GROUPS + 2):
        new = FieldCounts(first=0, last=0, calls=1, providers={f"provider {number}": 1})
        await registry.sender_fields.add({TODAY: {("kong", "1"): new}}, today=TODAY)
    [stored] = (await registry.sender_fields.days_since(0))[TODAY].values()
    assert MAX_GROUPS + 1 == len(stored.providers)
    assert 2 == stored.providers[OTHER]
    assert f"{TODAY}" in await registry._changes.read(lambda rows: rows.documents(KIND))

"""Two processes on one table of devices: no change is lost, and each one's memory follows the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from spool.devices.device import Device, DeviceChange, TokenUsedUp, TooManyDevices, change_for_existing_device
from spool.devices.table import DeviceTable
from spool.errors import KeyEnded, NotAllowed, NotThere, SpoolUnavailable
from spool.postgres.database import CommitUnknown
from spool.postgres.devices import PostgresDevices
from spool.postgres.registry.store import PostgresRegistry
from spool.registry.audit import AuditedChange
from spool.registry.enrolment_tokens import TokenDraft
from spool.registry.following import DEVICES
from spool.registry.key_expectations import valid_key_expectation
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.scopes import INGEST
from tests.moved_clock import MovedClock
from tests.spool.contract.conftest import migrated
from tests.spool.postgres_cluster import Schema

ACTOR = Actor("ada@example.com", "127.0.0.1")


def device(id: str = "laptop-1", **fields: Any) -> Device:
    return Device(**{"id": id, "enrolled_at": 1.0, "enrolled_by": "fleet", "last_seen": 1.0, **fields})


def labelled(name: str) -> DeviceChange:
    return change_for_existing_device(
        lambda known: known.with_changes_and_next_version(
            changes_enrolment=True, labels={**known.labels, name: name}
        )
    )


class Node:
    def __init__(self, rows: PostgresDevices, table: DeviceTable, registry: PostgresRegistry) -> None:
        self.rows = rows
        self.table = table
        self.registry = registry
        self.seq = 0

    async def follow(self) -> None:
        news = await self.registry.changes_since(self.seq)
        self.seq = news.seq
        await self.table.read_changes_of_other_processes(news.changed_ids(DEVICES))


@pytest.fixture
async def nodes(fresh_schema: Schema) -> AsyncIterator[tuple[Node, Node]]:
    async with AsyncExitStack() as stack:
        opened = []
        for _ in range(2):
            database = await stack.enter_async_context(migrated(fresh_schema))
            rows = PostgresDevices(database)
            table = await DeviceTable.open(rows)
            opened.append(Node(rows, table, PostgresRegistry(database)))
            stack.push_async_callback(table.close)
        yield opened[0], opened[1]


async def test_both_change_one_device(nodes: tuple[Node, Node]) -> None:
    """
    If two processes change one device, the second makes its change again on the row of the first.
    The versions continue.
    """
    here, there = nodes
    await here.table.replace_row(device())
    await there.follow()
    changes = [
        node.table.update("laptop-1", labelled(n)) for n, node in zip("abcdef", nodes * 3, strict=True)
    ]
    await asyncio.gather(*changes)
    await asyncio.gather(
        here.table.read_changes_of_other_processes(["laptop-1"]),
        there.table.read_changes_of_other_processes(["laptop-1"]),
    )
    found = here.table.find("laptop-1")
    assert found is not None and found == there.table.find("laptop-1")
    assert dict(zip("abcdef", "abcdef", strict=True)) == found.labels
    assert found.version == 7


async def test_two_first_contacts_are_one_device(nodes: tuple[Node, Node]) -> None:
    """
    If both processes hear of a new device at once, it is one device: the second finds the row of the first,
    although its memory does not have it.
    """
    here, there = nodes
    await here.table.update("laptop-1", lambda known: known or device(hostname="mill"))
    kept = await there.table.update("laptop-1", lambda known: known or device(hostname="other"))
    assert "mill" == kept.hostname


async def test_a_change_that_is_no_longer_possible(nodes: tuple[Node, Node]) -> None:
    """
    If the newest row of a device makes a change impossible, the change is refused. Other changes in the same
    batch are made.
    """
    here, there = nodes
    await here.table.replace_row(device())
    await there.follow()
    await here.table.update(
        "laptop-1", change_for_existing_device(lambda known: replace(known, state="revoked"))
    )

    def revoked(known: Device) -> Device:
        if known.state == "revoked":
            raise NotAllowed("the device is revoked already")
        return replace(known, state="revoked")

    outcomes = await asyncio.gather(
        there.table.update("laptop-1", change_for_existing_device(revoked)),
        there.table.update("laptop-1", change_for_existing_device(lambda known: replace(known, user="ada"))),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], NotAllowed) and not isinstance(outcomes[1], BaseException)
    assert outcomes[1].state == "revoked"
    assert outcomes[1].user == "ada"


@pytest.mark.parametrize("stands", [True, False])
async def test_a_change_whose_commit_was_not_answered(
    nodes: tuple[Node, Node], monkeypatch: pytest.MonkeyPatch, stands: bool
) -> None:
    """
    If the commit of a device's change is not answered, the change is looked up. It is made once and audited once,
    whether or not it was committed.
    """
    here, there = nodes
    await asyncio.gather(*(here.table.replace_row(device(id)) for id in ("revoked", "deleted")))
    await there.follow()
    database = here.rows._database
    transaction, lost = database.transaction, list[object]()

    async def losing(work: Any, **options: Any) -> Any:
        """Lose the answer to the first commit. At the first lookup the database is unavailable."""
        if len(lost) == 1:
            lost.append(work)
            raise SpoolUnavailable("the database is away")
        answer = await transaction(work, **options) if lost or stands else None
        if not lost:
            lost.append(work)
            raise CommitUnknown("the connection was lost")
        return answer

    monkeypatch.setattr(database, "transaction", losing)
    monkeypatch.setattr("spool.postgres.devices.LOOK_UP_EVERY_S", 0.0)
    audited: list[AuditedChange] = []

    async def audit(changes: Sequence[AuditedChange]) -> None:
        audited.extend(changes)

    def revoked(known: Device) -> Device:
        if known.state == "revoked":
            raise NotAllowed("the device is revoked already")
        return replace(known, state="revoked")

    here.table.auditor = audit
    change = AuditedChange(actor=ACTOR, action="device.revoke", target="revoked")
    made, new, _ = await asyncio.gather(
        here.table.update("revoked", change_for_existing_device(revoked), change),
        here.table.update("new", lambda known: known or device("new")),
        here.table.delete(["deleted"], []),
    )
    assert made.state == "revoked"
    assert new.id == "new"
    assert [change] == audited
    assert len(lost) == 2
    await there.follow()
    for node in nodes:
        assert {"revoked": "revoked", "new": "enrolled"} == {each.id: each.state for each in node.table.all()}


async def test_other_process_sees_a_revocation_and_a_deletion(nodes: tuple[Node, Node]) -> None:
    """
    The other process sees a revocation and a deletion at its next check. A device that it only touched
    does not return.
    """
    here, there = nodes
    await asyncio.gather(*(here.table.replace_row(device(id)) for id in ("revoked", "deleted")))
    await there.follow()
    await here.table.update(
        "revoked", change_for_existing_device(lambda known: replace(known, state="revoked"))
    )
    await here.table.delete(["deleted"], [])
    there.table.change_and_write_soon("deleted", lambda known: replace(known, last_seen=9.0))
    await there.table.flush()
    await there.follow()
    assert {"revoked": "revoked"} == {each.id: each.state for each in there.table.all()}
    with pytest.raises(NotThere):
        await there.table.update(
            "deleted", change_for_existing_device(lambda known: replace(known, user="ada"))
        )


async def test_what_others_wrote_is_read_while_a_change_is_audited(nodes: tuple[Node, Node]) -> None:
    """
    If others write devices while a change is being audited, changes and deletions in progress are applied on top of
    the newly read rows, so confirmed changes are not undone.
    """
    here, there = nodes
    await asyncio.gather(*(here.table.replace_row(device(id)) for id in ("revoked", "deleted")))
    await there.follow()

    async def audit(changes: Sequence[AuditedChange]) -> None:
        for id in ("revoked", "deleted"):
            if there.table.find(id) is not None:
                there.table.change_and_write_soon(
                    id, lambda known: replace(known, last_seen=known.last_seen + 1.0)
                )
        await there.table.flush()
        await here.table.read_changes_of_other_processes(None)

    here.table.auditor = audit
    change = AuditedChange(actor=ACTOR, action="device.revoke", target="revoked")
    revoke = change_for_existing_device(lambda known: replace(known, state="revoked"))
    outcomes = await asyncio.gather(
        here.table.update("revoked", revoke, change),
        here.table.delete(["deleted"], []),
        return_exceptions=True,
    )
    assert isinstance(outcomes[0], Device) and outcomes[1] is None
    await there.follow()
    for node in nodes:
        assert {"revoked": ("revoked", 2.0)} == {
            one.id: (one.state, one.last_seen) for one in node.table.all()
        }


async def test_a_name_stays_while_its_device_is_refused(nodes: tuple[Node, Node]) -> None:
    """The name of a refused device stays listed, even after another attempt under a key that has ended."""
    here, there = nodes
    here.table.store_unenrolled_name("mill", key="k", now=5.0)
    await here.table.flush()
    await there.table.read_changes_of_other_processes(None)
    with pytest.raises(KeyEnded):
        await there.table.update(
            "mill",
            lambda known: known or device("mill"),
            expected_versions=[valid_key_expectation(b"no such key")],
        )
    for node in nodes:
        await node.table.read_changes_of_other_processes(None)
        assert ["mill"] == [one.name for one in node.table.unenrolled_names()]


async def test_heartbeat_times_are_read_every_few_seconds(nodes: tuple[Node, Node]) -> None:
    """Times that change with every heartbeat are read every few seconds, not at once."""
    here, there = nodes
    await here.table.replace_row(device())
    await there.follow()
    here.table.change_and_write_soon("laptop-1", lambda known: replace(known, last_seen=9.0))
    here.table.store_unenrolled_name("mill", key="k", now=5.0)
    await here.table.flush()
    await there.follow()
    assert [1.0] == [each.last_seen for each in there.table.all()]
    await there.table.read_changes_of_other_processes(None)
    assert [9.0] == [each.last_seen for each in there.table.all()]
    assert ["mill"] == [each.name for each in there.table.unenrolled_names()]
    assert () == (await there.registry.changes_since(there.seq)).changed


async def test_an_id_that_is_enrolled_again(nodes: tuple[Node, Node]) -> None:
    """The row of a device that was deleted and enrolled again is a new one, whatever its version."""
    here, there = nodes
    await here.table.replace_row(device(hostname="old"))
    await there.follow()
    await here.table.delete(["laptop-1"], [])
    await here.table.replace_row(device(hostname="new"))
    await there.follow()
    assert ["new"] == [each.hostname for each in there.table.all()]


async def test_no_more_than_may_be_on_all_together(nodes: tuple[Node, Node]) -> None:
    """
    Devices that both processes enrol at once are counted in the database. Devices beyond the limit are refused.
    """
    each = 5
    outcomes = await asyncio.gather(
        *(
            node.table.update(
                f"{place}-{n}",
                lambda known, id=f"{place}-{n}": known or device(id),  # type: ignore[misc]
                max_devices=each + 1,
            )
            for place, node in enumerate(nodes)
            for n in range(each)
        ),
        return_exceptions=True,
    )
    kept = [one.id for one in outcomes if isinstance(one, Device)]
    assert each - 1 == sum(isinstance(one, TooManyDevices) for one in outcomes)
    for node in nodes:
        await node.follow()
        assert sorted(kept) == sorted(one.id for one in node.table.all())


async def test_one_that_both_enrol_counts_once(nodes: tuple[Node, Node]) -> None:
    """At the limit, a device that only the other process knows is still changed."""
    here, there = nodes
    await asyncio.gather(*(here.table.replace_row(device(id)) for id in ("a", "b")))
    kept = await there.table.update(
        "b", lambda known: replace(known or device("b"), user="ada"), max_devices=2
    )
    assert "ada" == kept.user
    with pytest.raises(TooManyDevices):
        await there.table.update("c", lambda known: known or device("c"), max_devices=2)


async def test_both_processes_share_the_uses_of_a_token(nodes: tuple[Node, Node]) -> None:
    """
    Both processes share the uses of a token, although neither knows the devices of the other. A refused device is
    in no memory, and a device that has the token already is changed.
    """

    def enrolled(known_device: Device | None, id: str = "") -> Device:
        return known_device or device(id, token="t")

    outcomes = await asyncio.gather(
        *(
            node.table.update(f"{n}-{place}", partial(enrolled, id=f"{n}-{place}"), token=("t", 7))
            for place, node in enumerate(nodes)
            for n in range(6)
        ),
        return_exceptions=True,
    )
    kept = sorted(one.id for one in outcomes if isinstance(one, Device))
    assert [7, 5] == [len(kept), sum(isinstance(one, TokenUsedUp) for one in outcomes)]
    for node in nodes:
        await node.follow()
        assert kept == sorted(one.id for one in node.table.all())
        assert 7 == node.table.count_token_uses("t")
    changed = change_for_existing_device(lambda known: replace(known, user="ada"))
    assert "ada" == (await nodes[0].table.update(kept[0], changed, token=("t", 7))).user
    other = device("other", token="")
    await nodes[0].table.replace_row(other)
    with pytest.raises(TokenUsedUp):
        await nodes[1].table.update("other", lambda _: replace(other, token="t"), token=("t", 7))


async def test_a_device_under_a_revoked_token(nodes: tuple[Node, Node]) -> None:
    """If a token is revoked, a process that does not know of the revocation yet adds no device under it."""
    here, there = nodes
    registry = await Registry.open(here.registry, secret=b"s" * 32, clock=MovedClock())
    draft = TokenDraft(name="jamf", uses=9, expires_at=MovedClock().now() + 60)
    [(token, _)] = await registry.enrolment_tokens.create([draft], actor=ACTOR)
    expects = registry.enrolment_tokens.not_revoked_expectations(token)
    assert expects
    new = {id: device(id, token=token.id) for id in ("before", "after")}
    await there.table.update(
        "before", lambda _: new["before"], expected_versions=expects, token=(token.id, 9)
    )
    await registry.enrolment_tokens.revoke("jamf", actor=ACTOR)
    with pytest.raises(KeyEnded):
        await there.table.update(
            "after", lambda _: new["after"], expected_versions=expects, token=(token.id, 9)
        )
    assert ["before"] == [one.id for one in there.table.all()]


async def test_what_a_key_that_has_ended_would_change(nodes: tuple[Node, Node]) -> None:
    """
    A change under an ended key is left out of the batch, with or without a waiting caller. Other changes in
    the batch are stored.
    """
    here, there = nodes
    registry = await Registry.open(here.registry, secret=b"s" * 32, clock=MovedClock())
    _, secret = await registry.keys.create(name="one", scopes=[INGEST], actor=ACTOR)
    expectation = registry.keys.valid_secret_expectation(secret)
    assert expectation is not None
    expects = (expectation,)
    audited: list[AuditedChange] = []

    async def audit(changes: Sequence[AuditedChange]) -> None:
        audited.extend(changes)

    there.table.auditor = audit
    await asyncio.gather(*(there.table.replace_row(device(id)) for id in ("a", "b")))
    await there.table.update(
        "a", change_for_existing_device(lambda known: replace(known, user="ada")), expected_versions=expects
    )
    await registry.keys.delete("one", confirm="one", actor=ACTOR)
    change = AuditedChange(actor=ACTOR, action="device.enrol", target="c")
    there.table.change_and_write_soon("a", lambda known: replace(known, last_seen=9.0), expectations=expects)
    there.table.change_and_write_soon("b", lambda known: replace(known, last_seen=9.0))
    there.table.store_unenrolled_name("mill", key="one", now=5.0, expected_versions=expects)
    there.table.store_unenrolled_name("loom", key="two", now=5.0)
    outcomes = await asyncio.gather(
        there.table.update(
            "a",
            change_for_existing_device(lambda known: replace(known, hostname="mill")),
            expected_versions=expects,
        ),
        there.table.update("a", change_for_existing_device(lambda known: replace(known, platform="linux"))),
        there.table.update("c", lambda known: known or device("c"), change, expected_versions=expects),
        return_exceptions=True,
    )
    assert [KeyEnded, Device, KeyEnded] == [type(one) for one in outcomes]
    assert [] == audited
    await here.table.read_changes_of_other_processes(None)
    for node in nodes:
        rows = {one.id: (one.user, one.platform, one.hostname, one.last_seen) for one in node.table.all()}
        assert {"a": ("ada", "linux", "", 1.0), "b": ("", "", "", 9.0)} == rows
        assert ["loom"] == [one.name for one in node.table.unenrolled_names()]

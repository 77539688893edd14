"""
Allocation in a registry: namespaces, numbered versions, and jobs that end in one transaction with their version.
"""

from __future__ import annotations

from typing import Any

import pytest

from gateway.money.allocation.declared import (
    CANCELLED,
    DONE,
    FAILED,
    PUBLISHING,
    VALIDATING,
    AllocationTable,
    JobFault,
    NewNamespace,
    PublishJob,
)
from spool.errors import AlreadyThere, Invalid, NotAllowed, NotThere, RegistryDamaged
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from tests.spool.contract.conftest import RegistryOpener
from tests.spool.kept import audit_rows

ADA = Actor("ada@example.com", "local")
BORDER = {"kept_since": None, "tags": {"tag:service": "2026-11-01T00:00:00+00:00"}}

BOB, FLEET = Actor("bob@example.com", "local"), Actor("fleet", "10.0.0.1", is_key=True)

pytestmark = pytest.mark.rule


async def submit(table: AllocationTable, text: str = "text", **given: Any) -> PublishJob:
    return await table.submit_job(text, **{"namespace": "", "base": None, "most": 9, "actor": ADA, **given})


async def publish(table: AllocationTable, text: str = "text", *, namespace: str = "", most: int = 9) -> int:
    job = await submit(table, text, namespace=namespace)
    await table.advance_job(job.id, PUBLISHING)
    return (
        await table.publish_job_version(
            job.id, dimensions=["User:Defined:D"], values_known_since=BORDER, max_versions=most
        )
    ).number


async def namespace(table: AllocationTable, id: str = "ml", most: int = 9) -> None:
    await table.create(NewNamespace(name=id), id=id, max_rows=most, actor=ADA)


@pytest.mark.one_engine
@pytest.mark.every_engine
async def test_everything_is_there_after_a_restart(open_registry: RegistryOpener) -> None:
    """
    After a restart, everything of allocation is there: namespaces, versions with their texts, and jobs in each
    state.
    """
    registry = await open_registry()
    table = registry.declared_table(AllocationTable)
    await namespace(table)
    assert [1, 2, 1] == [
        await publish(table),
        await publish(table, "newer"),
        await publish(table, namespace="ml"),
    ]
    waiting, failed, cancelled = [await submit(table, word) for word in ("waits", "fails", "is cancelled")]
    fault = JobFault(error="wrong", value="x", path=("Dimensions", 0))
    await table.fail_job(failed.id, "not valid", [fault])
    await table.cancel_job(cancelled.id, actor=ADA)
    kept = (table.all(), table.versions(), table.jobs(), table.versions_in_force())
    await registry.close()
    again = (await open_registry()).declared_table(AllocationTable)
    assert kept == (again.all(), again.versions(), again.jobs(), again.versions_in_force())
    assert {"": 2, "ml": 1} == {name: each.number for name, each in again.versions_in_force().items()}
    assert ["text", "newer"] == [await again.version_text(again.version("", number)) for number in (1, 2)]
    assert [waiting] == list(again.unfinished_jobs())
    assert "waits" == await again.definition_text_of_publish_job(waiting.id)
    assert again.find_job(failed.id).state == FAILED
    assert again.find_job(failed.id).faults == (fault,)
    assert CANCELLED == again.find_job(cancelled.id).state
    done = min((job for job in again.jobs() if job.state == DONE), key=lambda job: job.number)
    assert done.version == 1
    assert done.border == BORDER
    for over in (failed, cancelled, done):
        with pytest.raises(NotThere):
            await again.definition_text_of_publish_job(over.id)


async def test_a_stale_base_publishes_nothing(open_registry: RegistryOpener) -> None:
    """
    A job's base version is checked on submission, and again if another version was published since. With a
    stale base, nothing is published.
    """
    table = (await open_registry()).declared_table(AllocationTable)
    first, second = await submit(table), await submit(table)
    for job in (first, second):
        await table.advance_job(job.id, PUBLISHING)
    await table.publish_job_version(first.id, dimensions=[], values_known_since={}, max_versions=9)
    with pytest.raises(NotAllowed, match="version 1 is in force"):
        await table.publish_job_version(second.id, dimensions=[], values_known_since={}, max_versions=9)
    with pytest.raises(NotAllowed, match="based on version 0"):
        await submit(table, base=0)
    assert table.find_job(second.id).state == PUBLISHING
    assert table.latest_version_number("") == 1


async def test_what_a_job_may_become(open_registry: RegistryOpener) -> None:
    """
    A finished job stays unchanged, a publishing job cannot be cancelled, and only a publishing job can publish.
    """
    table = (await open_registry()).declared_table(AllocationTable)
    job = await submit(table)
    with pytest.raises(NotAllowed, match="queued"):
        await table.publish_job_version(job.id, dimensions=[], values_known_since={}, max_versions=9)
    await table.advance_job(job.id, VALIDATING)
    await table.advance_job(job.id, PUBLISHING)
    with pytest.raises(NotAllowed, match="publishing"):
        await table.cancel_job(job.id, actor=ADA)
    await table.publish_job_version(job.id, dimensions=[], values_known_since={}, max_versions=9)
    for step in (
        table.advance_job(job.id, VALIDATING),
        table.fail_job(job.id, "x"),
        table.cancel_job(job.id, actor=ADA),
    ):
        with pytest.raises(NotAllowed, match="done"):
            await step
    with pytest.raises(NotThere):
        await table.advance_job("none", VALIDATING)


async def test_the_oldest_are_forgotten(open_registry: RegistryOpener) -> None:
    """
    Old versions are deleted per namespace with their texts, and finished jobs as well. Waiting jobs stay.
    """
    table = (await open_registry()).declared_table(AllocationTable)
    await namespace(table)
    await publish(table, namespace="ml", most=2)
    for _ in range(3):
        await publish(table, most=2)
    assert {2, 3} == {each.number for each in table.versions("")}
    assert {1} == {each.number for each in table.versions("ml")}
    with pytest.raises(NotThere):
        table.version("", 1)
    waiting = await submit(table, most=3)
    assert 3 == len(table.jobs())
    await submit(table, most=3)
    await submit(table, most=3, actor=BOB)
    with pytest.raises(NotAllowed, match=r"3 publish jobs are waiting \(limit: allocation.max_jobs\)"):
        await submit(table, most=3, actor=FLEET)
    assert waiting.id in {job.id for job in table.jobs()}


async def test_whoever_submits_many_jobs_leaves_room_for_others(open_registry: RegistryOpener) -> None:
    """
    One actor may have half of the waiting jobs. Of the finished jobs, the oldest job of the actor with the
    most is deleted first.
    """
    table = (await open_registry()).declared_table(AllocationTable)
    first = await submit(table, actor=BOB, most=4)
    await table.cancel_job(first.id, actor=BOB)
    for _ in range(5):
        await table.cancel_job((await submit(table, actor=FLEET, most=4)).id, actor=ADA)
    assert first.id in {job.id for job in table.jobs()}
    for _ in range(2):
        await submit(table, actor=FLEET, most=4)
    with pytest.raises(
        NotAllowed, match=r"2 of 2 publish jobs are waiting \(limit: allocation.max_jobs\) are yours"
    ):
        await submit(table, actor=FLEET, most=4)
    # A person with the same name as the key is another actor.
    await submit(table, actor=Actor(FLEET.name, "local"), most=4)
    with pytest.raises(NotAllowed, match="1 of 3"):
        await submit(table, actor=Actor(FLEET.name, "local"), most=4)
    await submit(table, actor=BOB, most=4)
    assert 4 == len(table.jobs())


async def test_namespaces(open_registry: RegistryOpener) -> None:
    """
    Namespace ids are unique and have a fixed form, and their number is limited. A namespace with definitions
    or a running job cannot be deleted.
    """
    table = (await open_registry()).declared_table(AllocationTable)
    await namespace(table, most=1)
    for id, error in (
        ("ml", AlreadyThere),
        ("ops", NotAllowed),
        ("default", Invalid),
        ("", Invalid),
        ("A", Invalid),
    ):
        with pytest.raises(error):
            await namespace(table, id, most=1)
    with pytest.raises(NotThere):
        await submit(table, namespace="ops")
    changed = await table.change("ml", {"description": "Models"}, actor=ADA)
    assert changed.name == "ml"
    assert changed.description == "Models"
    job = await submit(table, namespace="ml")
    with pytest.raises(NotAllowed, match="being published"):
        await table.delete("ml", actor=ADA)
    await table.cancel_job(job.id, actor=ADA)
    await publish(table, namespace="ml")
    with pytest.raises(NotAllowed, match="defines User:Defined:D"):
        await table.delete("ml", actor=ADA)
    nothing = await submit(table, namespace="ml")
    await table.advance_job(nothing.id, PUBLISHING)
    await table.publish_job_version(nothing.id, dimensions=[], values_known_since={}, max_versions=9)
    await table.delete("ml", actor=ADA)
    assert table.all() == []
    assert table.versions("ml") == []
    with pytest.raises(NotThere):
        table.get("ml")


async def test_changes_are_audited(registry: Registry) -> None:
    """A version is audited under the actor who submitted it, whichever process runs the job."""
    table = registry.declared_table(AllocationTable)
    await namespace(table)
    await publish(table, namespace="ml")
    rows = await audit_rows(registry)
    assert {"allocation_namespace.create", "publish_job.create", "allocation.publish"} == {
        row.action for row in rows
    }
    assert {("ml", ADA.name)} == {
        (row.target, row.actor) for row in rows if row.action == "allocation.publish"
    }


async def test_a_document_that_is_none(registry: Registry) -> None:
    """If an allocation document in the registry is invalid, the registry reports damage instead of guessing."""
    await _spoil(registry)
    with pytest.raises(RegistryDamaged):
        await registry.declared_table(AllocationTable).load()


async def _spoil(registry: Registry) -> None:
    await registry._changes.change_rows(
        lambda rows: rows.put_document("allocation-version", "/1", {"number": "one"})
    )


async def test_a_job_that_two_carry_out(open_registry: RegistryOpener) -> None:
    """
    If two processes run one job, neither resets it to an earlier step, and the second process gets the result
    of the first.
    """
    table = (await open_registry()).declared_table(AllocationTable)
    job = await submit(table)
    await table.advance_job(job.id, PUBLISHING)
    assert PUBLISHING == (await table.advance_job(job.id, VALIDATING)).state
    await table.publish_job_version(job.id, dimensions=[], values_known_since=BORDER, max_versions=9)
    again = await table.publish_job_version(job.id, dimensions=[], values_known_since=BORDER, max_versions=9)
    assert again.number == 1
    assert table.versions() == [again]
    with pytest.raises(NotAllowed, match="done"):
        await table.advance_job(job.id, PUBLISHING)

"""Billing connections in a registry: unique names and ids, a limit, and an audit row per change."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from spool.errors import Invalid, NotThere
from spool.listing import ListQuery, SortField
from spool.registry.connections import ConnectionDraft, S3Bucket
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from tests.spool.contract.conftest import RegistryOpener

ADA = Actor("ada@example.com", "local")
BUCKET = S3Bucket(bucket_name="bills", bucket_path="daily/", cloud_account_id="123456789012")
DRAFT = ConnectionDraft(name="MongoDB", cloud_provider="MongoDB", expected_ingest_rate=1.5, s3_bucket=BUCKET)

pytestmark = pytest.mark.rule


async def audited(registry: Registry) -> list[tuple[str, str]]:
    query = ListQuery(sort=SortField("id"), order="asc", identity="id", limit=50)
    return [(row.action, row.target) for row in (await registry.audit_page(query)).rows]


@pytest.mark.every_engine
async def test_a_connection_is_there_after_a_restart(open_registry: RegistryOpener) -> None:
    """Every field of a connection survives a restart, with a new id or the given id."""
    registry = await open_registry()
    made = await registry.connections.create(DRAFT, max_rows=10, actor=ADA)
    named = await registry.connections.create(
        ConnectionDraft(name="bare", cloud_provider="x"), id="c-1", max_rows=10, actor=ADA
    )
    await registry.close()
    again = (await open_registry()).connections
    assert again.get(made.id) == made
    assert again.get("c-1") == named
    assert {name: getattr(made, name) for name in asdict(DRAFT)} == {
        name: getattr(DRAFT, name) for name in asdict(DRAFT)
    }
    assert 32 == len(made.id)


@pytest.mark.every_engine
async def test_deleted_connection_cannot_be_changed(registry: Registry) -> None:
    """A later change or deletion of a deleted connection fails. Each successful change has an audit row."""
    table = registry.connections
    made = await table.create(DRAFT, id="c-1", max_rows=10, actor=ADA)
    await table.change(made.id, {"name": "new"}, actor=ADA)
    await table.delete(made.id, actor=ADA)
    assert table.find(made.id) is None
    assert table.all() == []
    with pytest.raises(NotThere):
        await table.delete(made.id, actor=ADA)
    with pytest.raises(NotThere):
        await table.change(made.id, {}, actor=ADA)
    actions = ["connection.create", "connection.change", "connection.delete"]
    assert [(action, "c-1") for action in actions] == await audited(registry)


@pytest.mark.parametrize(
    "change",
    [
        {"name": " "},
        {"name": "x" * 201},
        {"cloud_provider": "a\nb"},
        {"expected_ingest_rate": float("inf")},
        {"expected_ingest_rate": -1.0},
        {"upstream_id": "a/b"},
        {"s3_bucket": replace(BUCKET, bucket_name="x")},
        {"s3_bucket": replace(BUCKET, bucket_path="x" * 1025)},
        {"s3_bucket": replace(BUCKET, cloud_account_id="12")},
    ],
)
async def test_what_breaks_a_rule_is_refused(
    open_registry: RegistryOpener, change: dict[str, object]
) -> None:
    """The rules apply to creation and change. Nothing of a refused draft is stored."""
    table = (await open_registry()).connections
    with pytest.raises(Invalid):
        await table.create(replace(DRAFT, **change), max_rows=10, actor=ADA)  # type: ignore[arg-type]
    assert [] == table.all()
    made = await table.create(DRAFT, max_rows=10, actor=ADA)
    with pytest.raises(Invalid):
        await table.change(made.id, change, actor=ADA)
    assert made == table.get(made.id)


async def test_an_id_has_a_form(open_registry: RegistryOpener) -> None:
    """Ids of connections appear in paths. Only the configuration may give its own connection any id."""
    table = (await open_registry()).connections
    for id in ("", "a b", "a/b", "x" * 129):
        with pytest.raises(Invalid):
            await table.create(DRAFT, id=id, max_rows=10, actor=ADA)
    for _ in range(2):
        await table.add_configured("c/1", replace(DRAFT, name="of the configuration"), actor=ADA)
    assert 1 == len(table.all())
    assert "x" * 128 == (await table.create(DRAFT, id="x" * 128, max_rows=10, actor=ADA)).id

"""Several gateways on PostgreSQL use the same links, whichever of them stored a link."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gateway.operations.money.work_links.declared import NewWorkLink, WorkLinkTable
from spool.errors import AlreadyThere
from spool.registry.operators import Actor
from tests.integration.conftest import Serve, Serving
from tests.integration.test_two_gateways import shared_config
from tests.spool.postgres_cluster import Schema
from tests.waiting import until

ADA = Actor("ada@example.com", "127.0.0.1")


def table(serving: Serving) -> WorkLinkTable:
    return serving.app.services.operators.installation.require_registry().declared_table(WorkLinkTable)


async def test_links_are_used_by_every_gateway(
    new_schema: Callable[[], Schema], serve: Serve, tmp_path: Path
) -> None:
    """
    The gateway that counts uses the links that were stored at any gateway. Of two conflicting links, one is
    refused.
    """
    schema = new_schema()
    config = shared_config(schema.dsn, schema.name, tmp_path)
    one = await serve(config=config)
    other = await serve(config=config, key_name="other sender")
    digests = [gateway.app.services.storage.ledger.digests for gateway in (one, other)]
    first, second = (digests[0].digest_of_id("session", name) for name in ("first", "second"))
    assert first == digests[1].digest_of_id("session", "first")
    await table(one).create(NewWorkLink(session=first, ticket="T"), max_rows=9, actor=ADA)
    await table(other).create(NewWorkLink(session=second, ticket="T"), max_rows=9, actor=ADA)
    try:
        await table(other).create(NewWorkLink(session=first, ticket="U"), max_rows=9, actor=ADA)
    except AlreadyThere as error:
        assert "already linked to T" in str(error)
    else:
        raise AssertionError("two links of one session")

    async def both_use_both() -> bool:
        ledgers = [gateway.app.services.storage.ledger for gateway in (one, other)]
        states = [await ledger._read_rows(lambda rows: rows.state_values()) for ledger in ledgers]
        marks = {table(gateway).unit_links.data_version for gateway in (one, other)}
        return 2 == len(table(one).all()) and marks == {state.get("links") for state in states}

    await until(both_use_both)

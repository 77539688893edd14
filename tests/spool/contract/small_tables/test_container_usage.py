"""Container usage: documents by cluster and day, replaced together."""

from __future__ import annotations

from spool.container_files.container_rows import CONTAINER_USAGE, OPEN, UsageDay, UsageDocument
from spool.container_files.values import ClusterIdentity
from spool.storage import Storage

ONE, TWO = ClusterIdentity("a", "r", "one"), ClusterIdentity("a", "r", "two")


def document(where: ClusterIdentity, day: int, body: bytes = b"{}", at: float = 1.5) -> UsageDocument:
    return UsageDocument(
        account=where.account, region=where.region, cluster=where.name, day=day, changed_at=at, body=body
    )


async def test_documents_are_stored_replaced_and_trimmed(storage: Storage) -> None:
    """
    Documents are stored by cluster and day. The document of open usage has no day, so trimming keeps it.
    """
    container_usage = storage.small.open_table(CONTAINER_USAGE)
    first = [document(TWO, 86_400), document(ONE, OPEN), document(ONE, 0), document(ONE, 86_400)]
    await container_usage.store_documents(first)
    changed = document(ONE, 0, b"\x00more", at=2.0)
    await container_usage.store_documents([changed])
    assert changed == await storage.small.open_table(CONTAINER_USAGE).document(ONE, 0)
    assert await container_usage.document(TWO, 0) is None
    found = await container_usage.days_since(OPEN)
    assert [(OPEN, "one"), (0, "one"), (86_400, "one"), (86_400, "two")] == [
        (each.day, each.cluster) for each in found
    ]
    assert UsageDay(account="a", region="r", cluster="one", day=0, changed_at=2.0) == found[1]
    await container_usage.delete_old_days(86_400)
    assert [OPEN, 86_400, 86_400] == [each.day for each in await container_usage.days_since(OPEN)]
    assert [86_400, 86_400] == [each.day for each in await container_usage.days_since(0)]

"""A billing connection: what billing data is taken from, and where it goes upstream."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.resources.declaration import changes_of, item_of, one_of, words
from spool.registry.connections import MAX_NAME, MAX_TEXT


class BucketInfo(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    bucket_name: str
    bucket_path: str
    cloud_account_id: str


class NewConnection(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`connection_id` makes the id one that senders have already; `upstream_connection_id` is its id upstream."""

    name: Annotated[str, words(f"Unique among connections, whatever the case: 1 to {MAX_NAME} printable characters.")]
    cloud_provider: Annotated[str, words(f"Whose billing data it takes: 1 to {MAX_TEXT} printable characters.")]
    expected_ingest_rate: Annotated[float | None, words("Kept and shown: a number from 0 to 1e15.")] = None
    is_enabled: Annotated[bool, words("Whether it takes drops.")] = True
    s3_bucket_info: Annotated[
        BucketInfo | None, words("Where the provider leaves its files; kept and shown, and not read.")
    ] = None
    connection_id: Annotated[str | None, words("An id that senders have already; a new one, unless given.")] = None
    upstream_connection_id: Annotated[str, words("The id that it has upstream; its own, unless given.")] = ""


ConnectionChanges = changes_of(
    NewConnection,
    "ConnectionChanges",
    "What is left out stays as it is.",
    once=("connection_id",),
    has_version=False,
)
ConnectionItem = item_of(
    NewConnection,
    "ConnectionItem",
    "A connection as it is answered; times are epoch seconds as text.",
    types={"connection_id": str},
    answered={
        "connection_name": str,
        "connection_type": str,
        "capabilities": list[str],
        "is_draft": bool,
        "state": Annotated[str, words("Whether a drop has come, and whether it is enabled.")],
        "created": str,
        "creation_date": str,
        "last_updated": str,
    },
)
OneConnection = one_of("OneConnection", connection=ConnectionItem)

"""A billing connection: what billing data is taken from, and where it goes upstream."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.http.resources.declaration import Option, changes_of, item_of, one_of, words
from spool.registry.connections import MAX_NAME, MAX_TEXT


class BucketInfo(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    bucket_name: str
    bucket_path: str
    cloud_account_id: str


class NewConnection(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`connection_id` makes the id one that senders have already; `upstream_connection_id` is its id upstream."""

    name: Annotated[
        str, words(f"Unique among connections, whatever the case: 1 to {MAX_NAME} printable characters.")
    ]
    cloud_provider: Annotated[
        str,
        words(f"Whose billing data it takes: 1 to {MAX_TEXT} printable characters."),
        Option("--provider", help="Whose bill it is, such as MongoDB."),
    ]
    expected_ingest_rate: Annotated[
        float | None, words("A number of the service's own, from 0 to 1e15: kept and shown.")
    ] = None
    is_enabled: Annotated[bool, words("Whether it takes drops."), Option(is_by_hand=True)] = True
    s3_bucket_info: Annotated[
        BucketInfo | None, words("Where the provider leaves its files; kept and shown, and not read.")
    ] = None
    connection_id: Annotated[
        str | None,
        words("An id that senders have already; a new one, unless given."),
        Option(is_by_hand=True),
    ] = None
    in_costs: Annotated[
        bool | None,
        words(
            "Whether its rows are in [billed costs](../billed-costs.md#rows-of-billing-connections). Those of a new "
            "one are, unless calls or statements of its provider are there: they would count twice."
        ),
    ] = None
    upstream_connection_id: Annotated[
        str, words("The id that it has upstream; its own, unless given."), Option("--upstream-id")
    ] = ""


ConnectionChanges = changes_of(
    NewConnection,
    "What is left out stays as it is.",
    once=("connection_id",),
    has_version=False,
)
ConnectionItem = item_of(
    NewConnection,
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
        "in_costs": bool,
        "in_costs_reason": Annotated[
            str | None, words("Why its rows would count twice; null in lists, and where they would not.")
        ],
        "last_updated": str,
    },
)
OneConnection = one_of(NewConnection, ConnectionItem)

"""
The resource of billing connections: the source of billing data, and the connection's id at the cost service.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.core.fields import KEPT_IN_SECONDS, changes_struct, item_struct, one_item_answer_struct
from spool.registry.connections import MAX_NAME, MAX_TEXT
from spool.registry.field_notes import Option, example, example_id, words


class BucketInfo(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    bucket_name: Annotated[str, words("The name of the bucket.")]
    bucket_path: Annotated[str, words("The path in the bucket.")]
    cloud_account_id: Annotated[str, words("The cloud account of the bucket.")]


class NewConnection(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a billing connection to create."""

    name: Annotated[
        str,
        words(
            f"A name that no other connection has, regardless of case: 1 to {MAX_NAME} printable characters."
        ),
        example("Vector database"),
    ]
    cloud_provider: Annotated[
        str,
        words(f"Provider of the billing data: 1 to {MAX_TEXT} printable characters."),
        Option("--provider", help="The provider of the bill, such as MongoDB."),
        example("MongoDB"),
    ]
    expected_ingest_rate: Annotated[
        float | None,
        words(
            "Expected rate of rows, a note for the cost service, from 0 to 1e15. Tollhouse only stores and shows it."
        ),
    ] = None
    is_enabled: Annotated[
        bool, words("Accept hourly files."), Option(is_by_hand=True), example(True, changed=False)
    ] = True
    s3_bucket_info: Annotated[
        BucketInfo | None, words("Location of the provider's files; stored and shown only, never read.")
    ] = None
    connection_id: Annotated[
        str | None, words("An id that senders already use; default: a new id."), Option(is_by_hand=True)
    ] = None
    in_costs: Annotated[
        bool | None,
        words(
            "Include the rows in [billed costs](../bills/billed-rows.md#rows-of-billing-connections). "
            "Default: yes, unless calls or bills of the provider would count them twice."
        ),
    ] = None
    upstream_connection_id: Annotated[
        str, words("The connection's id at your cost service; default: its own id."), Option("--upstream-id")
    ] = ""


ConnectionChanges = changes_struct(
    NewConnection, "Omitted fields stay unchanged.", unchangeable_fields=("connection_id",), has_version=False
)
_ID = example_id("connection")
ConnectionItem = item_struct(
    NewConnection,
    "A stored connection. Times are epoch seconds as text.",
    types_by_field={
        "connection_id": Annotated[str, words("The id of the connection."), example(_ID)],
        "upstream_connection_id": Annotated[
            str, words("The connection's id at your cost service."), example(_ID)
        ],
    },
    answer_only_fields={
        "connection_name": Annotated[str, words("The name of the connection."), example("Vector database")],
        "connection_type": Annotated[str, words("The kind of connection."), example("external")],
        "capabilities": Annotated[
            list[str], words("What the connection accepts."), example(["billing_drops"])
        ],
        "is_draft": Annotated[bool, words("Whether the connection is a draft."), example(False)],
        "state": Annotated[
            str,
            words("Whether the connection is enabled and has received an hourly file."),
            example("Pending Data", changed="Disabled"),
        ],
        "created": KEPT_IN_SECONDS["created"],
        "creation_date": KEPT_IN_SECONDS["created"],
        "in_costs": Annotated[bool, words("Whether billed costs include the rows."), example(True)],
        "in_costs_reason": Annotated[
            str | None,
            words("Reason why its rows would count twice; null in lists, or if they would not."),
            example(None),
        ],
        "last_updated": KEPT_IN_SECONDS["last_updated"],
    },
)
OneConnection = one_item_answer_struct(NewConnection, ConnectionItem)

"""What the doors of unit cost and of billing data take and answer, for `/openapi.json`."""

from __future__ import annotations

from gateway.http.answers import JSON
from gateway.http.operations import ANYTHING, COUNT, OBJECT, READ, TEXT, WRITE, Operation, Schema, array, closed
from gateway.receivers import unit_cost
from spool.registry.scopes import BILLING_DROP, VALIDATE_BILLING_DROP

_STREAMS = unit_cost.PREFIX
_ONE = _STREAMS + "/{type}/{stream}"
_BILLING = "/v2/connections/billing/{segment}"
_TYPES = {"type": ("allocation", "metric")}
_SEGMENTS = {"segment": ("external", "anycost")}
_OR_NULL: Schema = {"type": ["string", "null"]}
_STREAM = closed({"name": TEXT, "type": TEXT, "granularity": _OR_NULL, "dimensions": ANYTHING})
_ACCEPTED = closed({"accepted": COUNT})
_MANAGED = (*WRITE, 404, 409)
_RECORD = closed(
    {"timestamp": TEXT, "granularity": _OR_NULL, "value": _OR_NULL},
    {"element_name": TEXT, "filter": OBJECT, "associated_cost": OBJECT},
)


def _records(path: str, name: str, summary: str) -> Operation:
    return Operation(
        method="GET",
        path=path,
        name=name,
        summary=summary,
        scope=unit_cost.READ,
        lists=unit_cost.RECORDS,
        item=_RECORD,
        refusals=(*READ, 404),
        choices=_TYPES,
    )


def _managing(path: str, name: str, summary: str) -> Operation:
    return Operation(
        method="POST",
        path=path,
        name=name,
        summary=summary,
        scope=unit_cost.MANAGE_RECORDS,
        takes={JSON: OBJECT},
        gives={200: {JSON: _ACCEPTED}, 201: {JSON: _ACCEPTED}},
        refusals=_MANAGED,
        choices={**_TYPES, "operation": ("sum", "replace", "delete")},
    )


UNIT_COST = (
    Operation(
        method="PUT",
        path=_ONE,
        name="create_stream",
        summary="Create a stream, or see that it is there",
        scope=unit_cost.CREATE_STREAM,
        takes={JSON: OBJECT},
        gives={200: {JSON: closed({"stream": _STREAM})}, 201: {JSON: closed({"stream": _STREAM})}},
        refusals=_MANAGED,
        choices=_TYPES,
    ),
    _managing(_STREAMS, "sum_records_of_streams", "Add records that name their streams"),
    _managing(_ONE, "sum_records_of_stream", "Add records to a stream, by its older address"),
    _managing(_ONE + "/{operation}", "manage_records", "Add, replace or delete records of a stream"),
    _records(_ONE, "read_stream", "The records of a stream, by its older address"),
    _records(_ONE + "/records", "read_records", "The records of a stream of this type, with their totals"),
    _records(_STREAMS + "/{stream}/records", "read_records_by_name", "The records of a stream, with their totals"),
    Operation(
        method="DELETE",
        path=_STREAMS + "/{stream}",
        name="delete_stream",
        summary='Delete a stream; one that holds records wants {"force": true}',
        scope=unit_cost.DELETE_STREAM,
        gives={200: {JSON: closed({"stream": closed({"name": TEXT, "deleted": {"const": True}})})}},
        refusals=_MANAGED,
    ),
)

BILLING = (
    Operation(
        method="POST",
        path=_BILLING + "/{connection_id}/billing_drops",
        name="create_billing_drop",
        summary="Billing data of one month for an established connection",
        scope=BILLING_DROP,
        takes={JSON: OBJECT},
        gives={200: {JSON: closed({"connection": closed({"drop_id": TEXT, "month": _OR_NULL, "row_count": COUNT})})}},
        refusals=(*WRITE, 404),
        choices=_SEGMENTS,
    ),
    Operation(
        method="POST",
        path=_BILLING + "/validate_billing_drop",
        name="validate_billing_drop",
        summary="What would be wrong with a drop; nothing is kept",
        scope=VALIDATE_BILLING_DROP,
        takes={JSON: OBJECT},
        gives={200: {JSON: closed({"connection": closed({"is_valid": {"type": "boolean"}, "errors": array(TEXT)})})}},
        refusals=(*WRITE, 404),
        choices=_SEGMENTS,
    ),
)

"""The calls of the operator API for findings of the log: items that no dialect took, and reports that disagreed."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from gateway.http.holders.spool import SpoolServices
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.operator.address import call
from gateway.http.operator.requests import OperatorRequest
from gateway.http.requests import Result
from spool.record import moment
from spool.registry.permission_sets import VIEW_OPERATION

Finding = Mapping[str, Any]


def describe_shape(shape: Finding) -> dict[str, object]:
    return {**shape, "last_seen": moment(shape["last_seen"])}


IGNORED: List[Finding] = List(
    root="ignored",
    show=describe_shape,
    identity=Sort(value=lambda shape: "\n".join(shape["names"])),
    sorts={
        "names": Sort(value=lambda shape: "\n".join(shape["names"])),
        "count": Sort(value=lambda shape: shape["count"]),
        "last_seen": Sort(value=lambda shape: shape["last_seen"]),
    },
    default_sort=("last_seen", "desc"),
    filters={"name": Filter(values=lambda shape: shape["names"])},
)

CONFLICTS: List[Finding] = List(
    root="conflicts",
    show=dict,
    identity=Sort(value=lambda pair: "\n".join((pair["topic"], pair["first_source"], pair["second_source"]))),
    sorts={name: Sort(value=itemgetter(name)) for name in ("count", "first_source", "second_source")},
    default_sort=("count", "desc"),
    filters={
        "topic": Filter(values=lambda pair: (pair["topic"],)),
        "first_source": Filter(values=lambda pair: (pair["first_source"],)),
        "second_source": Filter(values=lambda pair: (pair["second_source"],)),
    },
)


@call("GET", "/ignored", VIEW_OPERATION, "List unrecognised AI shapes", lists=IGNORED)
async def list_ignored(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(IGNORED, MemoryRows(await request.services.log.unrecognised()))


@call("GET", "/conflicts", VIEW_OPERATION, "List reports that disagreed", lists=CONFLICTS)
async def list_conflicts(request: OperatorRequest[SpoolServices, None]) -> Result:
    return await request.list(CONFLICTS, MemoryRows(await request.services.log.conflicts()))

"""The calls of the operator API for what the log noticed: shapes that nobody took, reports that disagreed."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from aiohttp import web

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.operator.body import moment
from gateway.operator.calls import Asked, Call
from spool.registry.operators import VIEWER

Finding = Mapping[str, Any]


def shown_shape(shape: Finding) -> dict[str, object]:
    return {**shape, "last_seen": moment(shape["last_seen"])}


IGNORED: List[Finding] = List(
    root="ignored",
    show=shown_shape,
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


async def list_ignored(asked: Asked) -> web.Response:
    return await asked.list(IGNORED, MemoryRows(await asked.services.log.unrecognised()))


async def list_conflicts(asked: Asked) -> web.Response:
    return await asked.list(CONFLICTS, MemoryRows(await asked.services.log.conflicts()))


CALLS = (
    Call("GET", "/ignored", VIEWER, list_ignored, "List unrecognised AI shapes", lists=IGNORED),
    Call("GET", "/conflicts", VIEWER, list_conflicts, "List reports that disagreed", lists=CONFLICTS),
)

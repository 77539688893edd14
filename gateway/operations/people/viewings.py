"""Operator API handler for the list of who saw figures of which person."""

from __future__ import annotations

from typing import Annotated

import msgspec

from gateway.core.fields import build_answer
from gateway.core.visibility import WHOLE
from gateway.http.lists import Filter, ListDefinition, Sort, StoredRows
from gateway.http.requests import Result
from gateway.http.viewers import FACES
from gateway.operations.holders.operators import PeopleServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest
from spool.listing import SortField
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import ANSWER_PRIVACY_REQUESTS
from spool.registry.viewings import Viewing


def describe_viewing(row: Viewing) -> dict[str, object]:
    return build_answer(ViewingItem, row, user=row.person, reason=row.reason or None)


VIEWINGS: ListDefinition[Viewing] = ListDefinition(
    root="viewings",
    show=describe_viewing,
    identity=Sort(field=SortField("id")),
    sorts={"id": Sort(field=SortField("id")), "day": Sort(field=SortField("day"))},
    default_sort=("id", "desc"),
    filters={
        "user": Filter(field="person", is_open=True, names_people=True),
        "viewer": Filter(field="viewer", is_open=True),
        "day": Filter(field="day", is_open=True),
        "face": Filter(field="face", valid_values=FACES),
    },
)


class ViewingItem(msgspec.Struct, kw_only=True):
    day: Annotated[str, words("The day (UTC)."), example("2026-11-28")]
    viewer: Annotated[str, words("Who looked."), example("max@example.com")]
    user: Annotated[
        str,
        words("The person whose costs were shown, or `(several people)`."),
        example("email:419600c11ba4cfdd5d2f0b7a93c4e681"),
    ]
    face: Annotated[str, words("`command`, `console`, `api` or `mcp`."), example("console")]
    page: Annotated[str, words("The page, command or operation."), example("/report")]
    reason: Annotated[str | None, words("The reason that the viewer stated, or null."), example(None)]


@operator_call(
    "GET",
    "/people/viewings",
    ANSWER_PRIVACY_REQUESTS,
    "List who saw figures of which person",
    shows=WHOLE,
    lists=VIEWINGS,
    item=ViewingItem,
)
async def list_viewings(request: OperatorRequest[PeopleServices, None]) -> Result:
    return await request.list_page(VIEWINGS, StoredRows(request.registry.viewings.page))

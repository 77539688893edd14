"""Operator API of the search: one address for everything that has a name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nsmallest
from itertools import islice
from operator import itemgetter
from typing import Annotated

import msgspec

from gateway.core.errors import Refusal
from gateway.http.lists import SearchableObject
from gateway.http.requests import Result, services_type_of_handler
from gateway.operations.requests.address import NOTHING, ROWS_AT, SIGNED_IN, OperatorApiAddress, operator_call
from gateway.operations.requests.admission import can_call
from gateway.operations.requests.requests import OperatorRequest
from gateway.operations.services import OperatorServices
from spool.ledger.dimensions import TOTAL
from spool.ledger.periods import named_span
from spool.ledger.queries import CostQuery
from spool.ledger.work import TREES
from spool.registry.field_notes import example, words
from spool.turns.fair_turns import pause_if_step_was_long

MOST = 8  # maximum results of each kind
MAX_TEXT = 200
STEP = 500  # number of names after which other requests get a turn
_RANGE = "last_90d"
_OF_CALLS = "/work/{unit}/{id}"  # address whose readers may search the names in calls


# kind of object -> path of its list, whose address returns the names
LISTS: Mapping[str, str] = {
    "machine": "/fleet/devices",
    "cluster": "/clusters",
    "key": "/keys",
    "view": "/views",
    "budget": "/budgets",
    "plan": "/plans",
    "contract": "/contracts",
    "price": "/prices",
    "channel": "/notification-channels",
    "report": "/scheduled-reports",
    "role": "/roles",
    "operator": "/operators",
    "connection": "/connections",
    "insight": "/insights",
    "route": "/routes",
    "setting": "/configuration",
}


class SearchedText(msgspec.Struct, kw_only=True):
    q: Annotated[str, words("The text that was searched."), example("111")]
    kinds: Annotated[
        list[str],
        words("The kinds that were searched."),
        example(["team", "user", "model", "pull_request", "machine", "key", "view", "budget"]),
    ]


class FoundItem(msgspec.Struct, kw_only=True):
    kind: Annotated[
        str,
        words("A dimension, a unit of work, or the kind of the object, such as `machine` or `key`."),
        example("pull_request"),
    ]
    id: Annotated[str, words("The value, or the id that opens the object."), example("acme/shop#111")]
    name: Annotated[str, words("The name of the value or the object."), example("acme/shop#111")]


class SearchAnswer(msgspec.Struct, kw_only=True):
    search: Annotated[SearchedText, words("The search, with the fields below.")]
    found: Annotated[list[FoundItem], words("What was found, the best matches first.")]


@operator_call(
    "GET",
    "/search",
    SIGNED_IN,
    "Search everything that has a name",
    required=("q",),
    shows=NOTHING,
    in_turn=True,
    answers=SearchAnswer,
)
async def search(request: OperatorRequest[OperatorServices, None]) -> Result:
    """
    Search values of dimensions, units of work, and the rows of lists by a part of their names, ignoring case.

    Only what the person may see is found. At most eight of each kind are returned: first equal names, then
    names that begin with the text, then names that contain it.
    """
    text = request.http.query.get("q", "").strip()
    if not 0 < len(text) <= MAX_TEXT or not text.isprintable():
        raise Refusal(400, "invalid_parameter", f"q must have 1 to {MAX_TEXT} printable characters")
    rows = await request.http.app[ROWS_AT]((*LISTS.values(), _OF_CALLS))
    found: dict[str, Iterable[SearchableObject]] = {}
    if can_call(rows[_OF_CALLS], request.rights):
        found |= await _values_containing(request, text) | await _find_work_units(request, text)
    for kind, path in LISTS.items():
        if not can_call(rows[path], request.rights):
            continue
        try:
            found[kind] = await _names_in_list(request, rows[path])
        except Refusal as refusal:
            if refusal.status != 503:  # 503 means that this gateway does not manage objects of this kind
                raise
    best = [(rank, kind, named) for kind in found for rank, named in await _best_matches(text, found[kind])]
    best.sort(key=itemgetter(0))
    return {
        "search": {"q": text, "kinds": list(found)},
        "found": [{"kind": kind, "id": named.id, "name": _displayed_name(named)} for _, kind, named in best],
    }


async def _values_containing(
    request: OperatorRequest[OperatorServices, None], text: str
) -> dict[str, list[SearchableObject]]:
    values = await request.ledger.values_containing(
        await request.cost_reader.visible_dimensions(), text.casefold()
    )
    return {name: [SearchableObject(value, (value,)) for value in known] for name, known in values.items()}


async def _find_work_units(
    request: OperatorRequest[OperatorServices, None], text: str
) -> dict[str, list[SearchableObject]]:
    since, until = named_span(_RANGE, request.now())
    query = CostQuery(since=since, until=until, granularity=TOTAL, measures=("calls",))
    names = await request.ledger.work_units_containing(query, text, MOST)
    return {
        # a session or a run is found by its id, but shown as its digest
        unit: [
            SearchableObject(name, _searchable_forms_of_work_unit(name, text if unit in TREES else ""))
            for name in known
        ]
        for unit, known in names.items()
    }


def _searchable_forms_of_work_unit(name: str, searched_id: str) -> Sequence[str]:
    """Return a name and its last part: people name the pull request shop#111 as #111 or 111."""
    number = name.rpartition("#")[2]
    return name, f"#{number}", number, searched_id


async def _names_in_list(
    request: OperatorRequest[OperatorServices, None], operator_address: OperatorApiAddress
) -> Iterable[SearchableObject]:
    if operator_address.names is None:
        raise TypeError(
            f"the address {operator_address.path} declares no function that returns names for the search"
        )
    services = request.services.services_of_type(services_type_of_handler(operator_address.names))
    return await operator_address.names(replace(request, services=services))


async def _best_matches(
    text: str, candidates: Iterable[SearchableObject]
) -> list[tuple[int, SearchableObject]]:
    """
    Return the best matching names, each after its rank. They are compared in steps, so that other requests
    get a turn.
    """
    low, left = text.casefold(), iter(candidates)
    best: list[tuple[int, str, str, SearchableObject]] = []
    while step := list(islice(left, STEP)):
        best = nsmallest(MOST, [*best, *_ranked_matches(low, step)])
        await pause_if_step_was_long()
    return [(rank, named) for rank, *_, named in best]


def _ranked_matches(
    lower_case_text: str, candidates: Iterable[SearchableObject]
) -> Iterator[tuple[int, str, str, SearchableObject]]:
    for named in candidates:
        names = [name.casefold() for name in named.names]
        if any(lower_case_text in name for name in names):
            rank = (
                0
                if lower_case_text in names
                else 1
                if any(name.startswith(lower_case_text) for name in names)
                else 2
            )
            yield rank, _displayed_name(named).casefold(), named.id, named


def _displayed_name(named: SearchableObject) -> str:
    return next(filter(None, named.names))

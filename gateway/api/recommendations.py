"""
Savings recommendations, their types and comments, for keys. Each method has a scope of its own.

No paths are published for these scopes: the addresses and fields are Tollhouse's own, in the form of insights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

import msgspec

from gateway.api.lists.recommendations import (
    RECOMMENDATION_COMMENTS,
    RECOMMENDATION_DIMENSIONS,
    RECOMMENDATION_TYPES,
    ShownType,
    describe_recommendation,
    describe_recommendation_comment,
    describe_type,
    dimension_rows,
    recommendation_comment_rows,
    recommendation_list,
    recommendation_rows,
    type_rows,
)
from gateway.errors import Refusal
from gateway.http.address import Served, key_call
from gateway.http.answers import JSON
from gateway.http.holders.money import MoneyServices
from gateway.http.requests import KeyRequest, Result
from gateway.rate_cards.card import CardUnreadable
from gateway.recommendations.gathering import Chosen
from gateway.recommendations.list import BY_NAME
from gateway.schemas import BOOLEAN, COUNT, OBJECT, TEXT, TEXT_OR_NULL, Schema, array, closed
from spool.errors import Invalid, NotThere
from spool.ledger.queries import DIMENSIONS
from spool.people import People
from spool.record import decimal_text
from spool.registry.operators import Actor
from spool.registry.recommendations import TypeSettings
from spool.registry.registry import Registry
from spool.registry.views import EXCLUDES

BUSY_S = 5
Status = Literal["new", "in_progress", "on_hold", "addressed", "ignored"]


class RecommendationChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    ids: list[str]
    status: Status | None = None
    assignee: str | None = None


class LeastSavings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Decimal numbers, as text or as numbers: dollars a month, and percent of everything that was spent."""

    least_savings: str | float | None = None
    least_share: str | float | None = None


class TypeChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    enabled: bool | None = None
    thresholds: LeastSavings | None = None


class OneMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    message: str


class NewComments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One comment as `message`, or several as `comments`."""

    message: str | None = None
    comments: list[OneMessage] = []


class SavingsCheck(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`filter` maps dimensions to values as in costs: `!` before a dimension excludes, null is the unknown value."""

    type: str | None = None
    filter: dict[str, list[str | None]] = {}


_PROCESSING = closed({"model": TEXT_OR_NULL, "provider": TEXT_OR_NULL, "mode": TEXT_OR_NULL})
_VALUES: Schema = {**OBJECT, "additionalProperties": array(TEXT)}
_REALIZED: Schema = {**closed({"amount": TEXT, "since": TEXT, "until": TEXT}), "type": ["object", "null"]}

RECOMMENDATION = closed(
    {
        "id": TEXT,
        "type": TEXT,
        "title": TEXT,
        "description": TEXT,
        "formula": TEXT,
        "assumptions": array(TEXT),
        "status": TEXT,
        "open": BOOLEAN,
        "assignee": TEXT,
        "effort": TEXT,
        "confidence": TEXT,
        "monthly_savings": TEXT,
        "gross_savings": TEXT,
        "spent": TEXT,
        "price_book": TEXT,
        "current": _PROCESSING,
        "recommended": _PROCESSING,
        "dimensions": _VALUES,
        "evidence": closed({"first_day": TEXT, "last_day": TEXT}),
        "promised_savings": TEXT_OR_NULL,
        "realized_savings": _REALIZED,
        "created": TEXT,
        "last_updated": TEXT,
    }
)
_COMMENT = closed({"id": TEXT, "message": TEXT, "author": TEXT, "created": TEXT, "last_updated": TEXT})
_TYPE = closed(
    {
        "type": TEXT,
        "title": TEXT,
        "formula": TEXT,
        "assumptions": array(TEXT),
        "confidence": TEXT,
        "effort": TEXT,
        "enabled": BOOLEAN,
        "thresholds": closed({"least_savings": TEXT, "least_share": TEXT}),
        "last_updated": TEXT_OR_NULL,
    }
)
_CHANGED = closed({"id": TEXT}, {"status": TEXT, "assignee": TEXT, "error": TEXT})
_CHECK = closed(
    {
        "count": COUNT,
        "monthly_savings": TEXT,
        "spent": TEXT,
        "failed": array(TEXT),
        "types": array(closed({"type": TEXT, "count": COUNT, "monthly_savings": TEXT})),
    }
)

_BASE = "/v2/optimize"
_ALL = "/recommendations"
_ONE = _ALL + "/{recommendation_id}"
_COMMENTS = _ONE + "/comments"
_TYPES = "/recommendation_types"


def _call(method: str, path: str, summary: str, **row: Any) -> Callable[[Served], Served]:
    """Give a handler its row, whose scope and name are the handler's."""

    def give(handler: Served) -> Served:
        name = handler.__name__
        decorate = key_call(
            method,
            _BASE + path,
            f"optimize:{name}",
            summary,
            endpoint="optimize",
            name=f"optimize_{name}",
            **row,
        )
        return decorate(handler)

    return give


@_call(
    "GET", _ALL, "List what would have cost less", lists=recommendation_list(DIMENSIONS), item=RECOMMENDATION
)
async def list_recommendations(request: KeyRequest[MoneyServices, None]) -> Result:
    money = request.services
    listed = recommendation_list(money.ledger.own_dimensions())
    return await request.list(listed, await recommendation_rows(money.require_registry()))


@_call(
    "PATCH",
    _ALL,
    "Set the status or the assignee of several",
    gives={JSON: closed({"recommendations": array(_CHANGED)})},
)
async def update_recommendations(request: KeyRequest[MoneyServices, RecommendationChanges]) -> Result:
    return await change_recommendations(_registry(request), request.body, request.actor)


@_call("GET", _ONE, "A recommendation", gives={JSON: closed({"recommendation": RECOMMENDATION})})
async def get_recommendation(request: KeyRequest[MoneyServices, None]) -> Result:
    return {
        "recommendation": describe_recommendation(
            await _registry(request).recommendations.get(request.word("recommendation_id"))
        )
    }


@_call("GET", _COMMENTS, "The comments on a recommendation", lists=RECOMMENDATION_COMMENTS, item=_COMMENT)
async def list_comments(request: KeyRequest[MoneyServices, None]) -> Result:
    id = request.word("recommendation_id")
    page = await request.list(
        RECOMMENDATION_COMMENTS, await recommendation_comment_rows(_registry(request), id)
    )
    return {"recommendation": {"id": id}, **page}


@_call(
    "POST",
    _COMMENTS,
    "Add a comment, or several, to a recommendation",
    gives={JSON: closed({"comments": array(_COMMENT)})},
)
async def create_comments(request: KeyRequest[MoneyServices, NewComments]) -> Result:
    return await add_comments(
        _registry(request), request.word("recommendation_id"), request.body, request.actor
    )


@_call("PATCH", _COMMENTS + "/{comment}", "Change a comment", gives={JSON: closed({"comment": _COMMENT})})
async def update_comment(request: KeyRequest[MoneyServices, OneMessage]) -> Result:
    table = _registry(request).recommendations
    number = comment_number(request.word("comment"))
    changed = await table.change_comment(
        request.word("recommendation_id"), number, request.body.message, actor=request.actor
    )
    return {"comment": describe_recommendation_comment(changed)}


@_call(
    "DELETE",
    _COMMENTS + "/{comment}",
    "Delete a comment",
    gives={JSON: closed({"comment": closed({"id": TEXT})})},
)
async def delete_comment(request: KeyRequest[MoneyServices, None]) -> Result:
    number = comment_number(request.word("comment"))
    await _registry(request).recommendations.delete_comment(
        request.word("recommendation_id"), number, actor=request.actor
    )
    return {"comment": {"id": str(number)}}


@_call("GET", _TYPES, "List the types, with how each is calculated", lists=RECOMMENDATION_TYPES, item=_TYPE)
async def list_recommendation_types(request: KeyRequest[MoneyServices, None]) -> Result:
    return await request.list(RECOMMENDATION_TYPES, await type_rows(_registry(request)))


@_call("GET", _TYPES + "/{type}", "A type", gives={JSON: closed({"recommendation_type": _TYPE})})
async def get_recommendation_type(request: KeyRequest[MoneyServices, None]) -> Result:
    return await one_type(_registry(request), request.word("type"))


@_call(
    "PATCH",
    _TYPES + "/{type}",
    "Switch a type on or off, or set the least that it reports",
    gives={JSON: closed({"recommendation_type": _TYPE})},
)
async def update_recommendation_type(request: KeyRequest[MoneyServices, TypeChanges]) -> Result:
    return await change_type(_registry(request), request.word("type"), request.body, request.actor)


@_call(
    "GET",
    "/dimensions",
    "What recommendations can be filtered by, with the values of those that are open",
    lists=RECOMMENDATION_DIMENSIONS,
    item=closed({"id": TEXT, "values": array(TEXT)}),
)
async def get_available_dimensions(request: KeyRequest[MoneyServices, None]) -> Result:
    money = request.services
    kept = await money.require_registry().recommendations.all()
    rows = dimension_rows(kept, money.ledger.own_dimensions())
    return await request.list(RECOMMENDATION_DIMENSIONS, rows)


@_call(
    "POST",
    "/check",
    "Look for savings now, and keep nothing",
    gives={JSON: closed({"check": _CHECK})},
    in_turn=True,
)
async def check(request: KeyRequest[MoneyServices, SavingsCheck]) -> Result:
    money = request.services
    if money.require_adviser().is_busy:
        raise Refusal(429, "busy", "Savings are being looked for; one look at a time.", retry_after_s=BUSY_S)
    return await check_savings(money, request.shared.people, request.body)


async def change_recommendations(
    registry: Registry, given: RecommendationChanges, actor: Actor, hidden: Container[str] = ()
) -> Result:
    """
    The answer has a result for each id, in the order in which they were given. What is `hidden` from the
    actor is answered as if it were not there.
    """
    table = registry.recommendations
    changed = await table.update(
        given.ids, status=given.status, assignee=given.assignee, actor=actor, hidden=hidden
    )
    return {
        "recommendations": [
            {"id": id, "error": "there is no recommendation with this id"}
            if each is None
            else {"id": id, "status": each.status, "assignee": each.assignee}
            for id, each in changed.items()
        ]
    }


async def one_type(registry: Registry, name: str) -> Result:
    check_type(name)
    return _describe_type(name, (await registry.recommendations.types()).get(name, TypeSettings()))


async def change_type(registry: Registry, name: str, given: TypeChanges, actor: Actor) -> Result:
    check_type(name)
    thresholds = msgspec.structs.asdict(given.thresholds) if given.thresholds else {}
    changes = {threshold: str(value) for threshold, value in thresholds.items() if value is not None}
    changed: dict[str, Any] = changes if given.enabled is None else {**changes, "enabled": given.enabled}
    return _describe_type(name, await registry.recommendations.change_type(name, changed, actor=actor))


async def add_comments(registry: Registry, id: str, given: NewComments, actor: Actor) -> Result:
    if (given.message is None) == (not given.comments):
        raise Invalid("give either message or comments")
    texts = [each.message for each in given.comments] if given.message is None else [given.message]
    added = await registry.recommendations.comment(id, texts, actor=actor)
    return {"comments": [describe_recommendation_comment(comment) for comment in added]}


async def check_savings(
    money: MoneyServices, people: People, given: SavingsCheck, may_see: Chosen = lambda _: True
) -> Result:
    """Count the savings, by type, that a run over the visible calls would find now; nothing is stored."""
    if given.type is not None:
        check_type(given.type)
    filters = people.asked(_check_filter(given.filter, money.ledger.own_dimensions()))
    try:
        result = await money.require_adviser().check(type=given.type, filters=filters, may_see=may_see)
    except CardUnreadable:
        raise Refusal(
            503, "unavailable", "The price card cannot be read; the operator finds why in the log."
        ) from None
    amounts = [(saving.type, Decimal(saving.monthly_savings)) for saving in result.savings]
    by_type: dict[str, list[Decimal]] = defaultdict(list)
    for type, amount in amounts:
        by_type[type].append(amount)
    return {
        "check": {
            "count": len(result.savings),
            "monthly_savings": decimal_text(sum((amount for _, amount in amounts), Decimal(0))),
            "spent": result.spent,
            "types": [
                {"type": type, "count": len(each), "monthly_savings": decimal_text(sum(each, Decimal(0)))}
                for type, each in by_type.items()
            ],
            "failed": list(result.failed),
        }
    }


def check_type(name: str) -> None:
    if name not in BY_NAME:
        raise NotThere(f"there is no such type of recommendations; there are {', '.join(BY_NAME)}")


def comment_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise NotThere("this recommendation has no comment with this id")
    return int(text)


def _check_filter(given: Mapping[str, Sequence[str | None]], known: Sequence[str]) -> dict[str, list[str]]:
    for name, values in given.items():
        if name.removeprefix(EXCLUDES) not in known:
            raise Invalid(f"filter may name {', '.join(known)}")
        if not values:
            raise Invalid(f"filter: {name} needs at least one value")
    return {name: [value or "" for value in values] for name, values in given.items()}


def _describe_type(name: str, settings: TypeSettings) -> Result:
    return {"recommendation_type": describe_type(ShownType(type=BY_NAME[name], settings=settings))}


def _registry(request: KeyRequest[MoneyServices, Any]) -> Registry:
    return request.services.require_registry()

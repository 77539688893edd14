"""
API of savings recommendations, their types and comments, for keys. Each method has its own scope.

The cost service publishes no paths for these scopes, so Tollhouse defines the addresses and fields. They are
similar to the addresses and fields of insights.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

import msgspec

from gateway.core.errors import Refusal
from gateway.core.fields import build_answer
from gateway.core.schemas import TEXT, closed_object_schema, schema_with_description
from gateway.http.address import Served, key_call
from gateway.http.answers import JSON
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort, yes_no_filter
from gateway.http.requests import Result
from gateway.intake.rate_cards.card import CardUnreadable
from gateway.money.costs.times import format_seconds
from gateway.money.recommendations.facts import RecommendationType, recommendation_dimensions
from gateway.money.recommendations.gathering import DimensionsTest
from gateway.money.recommendations.list import BY_NAME, TYPES
from gateway.operations.answers import DeletedComment, OperatorComment, Status
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money.recommendation_answers import (
    ChangeRecommendationsAnswer,
    CommentRecommendationAnswer,
    OneRecommendation,
    OneRecommendationType,
    RecommendationCheckAnswer,
    RecommendationCommentAnswer,
    RecommendationDimensionItem,
    RecommendationItem,
    RecommendationTypeItem,
)
from gateway.operations.requests.key_requests import KeyRequest
from spool.errors import Invalid, NotThere
from spool.ledger.dimensions import DIMENSIONS
from spool.people import People
from spool.record import decimal_text
from spool.registry.field_notes import words
from spool.registry.insights import EFFORTS, STATUSES
from spool.registry.operators import Actor
from spool.registry.recommendations import CONFIDENCES, Recommendation, RecommendationComment, TypeSettings
from spool.registry.registry import Registry
from spool.registry.views import EXCLUDES

BUSY_S = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownType:
    type: RecommendationType
    settings: TypeSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDimension:
    """A dimension by which recommendations can be filtered, with the values that occur in recommendations."""

    id: str
    values: Sequence[str]


def describe_recommendation(recommendation: Recommendation) -> dict[str, object]:
    saving = recommendation.saving
    return build_answer(
        RecommendationItem,
        saving,
        id=recommendation.id,
        assumptions=list(saving.assumptions),
        status=recommendation.status,
        open=recommendation.is_open,
        assignee=recommendation.assignee,
        current=asdict(saving.current),
        recommended=asdict(saving.recommended),
        dimensions={name: list(values) for name, values in saving.dimensions.items()},
        evidence={"first_day": saving.first_day, "last_day": saving.last_day},
        promised_savings=recommendation.promised,
        realized_savings=None if recommendation.realized is None else asdict(recommendation.realized),
        created=format_seconds(recommendation.created),
        last_updated=format_seconds(recommendation.last_updated),
    )


def describe_recommendation_comment(comment: RecommendationComment) -> dict[str, object]:
    return {
        "id": str(comment.id),
        "message": comment.text,
        "author": comment.author,
        "created": format_seconds(comment.created),
        "last_updated": format_seconds(comment.last_updated),
    }


def describe_recommendation_type(row: ShownType) -> dict[str, object]:
    settings = row.settings
    return {
        "type": row.type.NAME,
        "title": row.type.TITLE,
        "formula": row.type.FORMULA,
        "assumptions": list(row.type.ASSUMPTIONS),
        "confidence": row.type.CONFIDENCE,
        "effort": row.type.EFFORT,
        "enabled": settings.enabled,
        "thresholds": {"least_savings": settings.least_savings, "least_share": settings.least_share},
        "last_updated": None if settings.last_updated is None else format_seconds(settings.last_updated),
    }


def recommendation_list(dimensions: Sequence[str]) -> ListDefinition[Recommendation]:
    """
    Define the list of recommendations. Each dimension of the totals is a filter. A recommendation matches if
    it concerns one of the given values.
    """
    filters: dict[str, Filter[Recommendation]] = {
        "type": Filter(
            values=lambda row: (row.saving.type,), valid_values=tuple(type.NAME for type in TYPES)
        ),
        "status": Filter(values=lambda row: (row.status,), valid_values=STATUSES),
        "open": yes_no_filter(lambda row: row.is_open),
        "confidence": Filter(values=lambda row: (row.saving.confidence,), valid_values=CONFIDENCES),
        "assignee": Filter(values=lambda row: (row.assignee,)),
    }
    of_dimensions = {
        name: Filter(
            values=partial(_dimension_values, name), is_open=name in ("user", "device"), names_people=True
        )
        for name in recommendation_dimensions(dimensions)
    }
    return ListDefinition(
        root="recommendations",
        show=describe_recommendation,
        identity=Sort(value=lambda row: row.id),
        sorts={
            # This float is only for sorting. The response has the exact value.
            "savings": Sort(value=lambda row: float(Decimal(row.saving.monthly_savings))),
            "last_updated": Sort(value=lambda row: row.last_updated),
            "status": Sort(value=lambda row: STATUSES.index(row.status)),
            "type": Sort(value=lambda row: row.saving.type),
            "effort": Sort(value=lambda row: EFFORTS.index(row.saving.effort)),
        },
        default_sort=("savings", "desc"),
        filters=filters | of_dimensions,
    )


def _dimension_values(dimension: str, row: Recommendation) -> Sequence[str]:
    return row.saving.dimensions.get(dimension, ())


RECOMMENDATION_COMMENTS: ListDefinition[RecommendationComment] = ListDefinition(
    root="comments",
    show=describe_recommendation_comment,
    identity=Sort(value=lambda comment: comment.id),
    sorts={
        "created": Sort(value=lambda comment: comment.created),
        "last_updated": Sort(value=lambda comment: comment.last_updated),
        "author": Sort(value=lambda comment: comment.author),
    },
    default_sort=("created", "asc"),
    beside={
        "recommendation": closed_object_schema(
            {"id": schema_with_description(TEXT, "The id of the recommendation.")}
        )
    },
)

RECOMMENDATION_TYPES: ListDefinition[ShownType] = ListDefinition(
    root="recommendation_types",
    show=describe_recommendation_type,
    identity=Sort(value=lambda row: row.type.NAME),
    sorts={
        "type": Sort(value=lambda row: row.type.NAME),
        "confidence": Sort(value=lambda row: CONFIDENCES.index(row.type.CONFIDENCE)),
        "effort": Sort(value=lambda row: EFFORTS.index(row.type.EFFORT)),
    },
    default_sort=("type", "asc"),
    filters={
        "enabled": yes_no_filter(lambda row: row.settings.enabled),
        "confidence": Filter(values=lambda row: (row.type.CONFIDENCE,), valid_values=CONFIDENCES),
    },
)

RECOMMENDATION_DIMENSIONS: ListDefinition[ShownDimension] = ListDefinition(
    root="dimensions",
    show=lambda row: {"id": row.id, "values": list(row.values)},
    identity=Sort(value=lambda row: row.id),
    sorts={"id": Sort(value=lambda row: row.id)},
    default_sort=("id", "asc"),
    default_limit=1000,
)


async def recommendation_rows(registry: Registry) -> MemoryRows[Recommendation]:
    return MemoryRows(await registry.recommendations.all())


async def recommendation_comment_rows(registry: Registry, id: str) -> MemoryRows[RecommendationComment]:
    """Return the comments on a recommendation. Raises NotThere if there is no such recommendation."""
    return MemoryRows(await registry.recommendations.comments(id))


async def recommendation_type_rows(registry: Registry) -> MemoryRows[ShownType]:
    settings = await registry.recommendations.stored_type_settings()
    return MemoryRows(
        [
            ShownType(
                type=recommendation_type, settings=settings.get(recommendation_type.NAME, TypeSettings())
            )
            for recommendation_type in TYPES
        ]
    )


def dimension_rows(
    recommendations: Iterable[Recommendation], dimensions: Sequence[str]
) -> MemoryRows[ShownDimension]:
    dimension_sets = [
        recommendation.saving.dimensions for recommendation in recommendations if recommendation.is_open
    ]
    values = {
        name: sorted({value for values_by_name in dimension_sets for value in values_by_name.get(name, ())})
        for name in recommendation_dimensions(dimensions)
    }
    return MemoryRows(
        [ShownDimension(id=name, values=dimension_values) for name, dimension_values in values.items()]
    )


class RecommendationChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes to recommendations. Omitted fields stay as they are."""

    ids: Annotated[list[str], words("The ids of the recommendations.")]
    status: Annotated[Status | None, words("The status of the recommendations.")] = None
    assignee: Annotated[str | None, words("The person who works on the recommendations.")] = None


class LeastSavings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The minimum savings of a recommendation, as decimal numbers in text or number form."""

    least_savings: Annotated[str | float | None, words("The minimum savings in dollars per month.")] = None
    least_share: Annotated[str | float | None, words("The minimum savings in percent of all costs.")] = None


class TypeChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes to a type. Omitted fields stay as they are."""

    enabled: Annotated[bool | None, words("Whether recommendations of the type are made.")] = None
    thresholds: Annotated[LeastSavings | None, words("The minimum savings.")] = None


class OneMessage(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    message: Annotated[str, words("The text of the comment.")]


class NewComments(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One comment as `message`, or several as `comments`."""

    message: Annotated[str | None, words("The text of one comment.")] = None
    comments: Annotated[list[OneMessage], words("Several comments.")] = []


class SavingsCheck(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A request to look for savings."""

    type: Annotated[str | None, words("The type of recommendations to look for; default: all.")] = None
    filter: Annotated[
        dict[str, list[str | None]],
        words(
            "Values by dimension, as in cost queries: `!` before a dimension excludes its values, "
            "null is the unknown value."
        ),
    ] = {}


_BASE = "/v2/optimize"
_ALL = "/recommendations"
_ONE = _ALL + "/{recommendation_id}"
_COMMENTS = _ONE + "/comments"
_TYPES = "/recommendation_types"


def _recommendation_call(method: str, path: str, summary: str, **row: Any) -> Callable[[Served], Served]:
    """
    Register the handler under its path. The scope and the name of the call come from the handler's name.
    """

    def register_address_of_handler(handler: Served) -> Served:
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

    return register_address_of_handler


@_recommendation_call(
    "GET", _ALL, "List recommendations", lists=recommendation_list((*DIMENSIONS,)), item=RecommendationItem
)
async def list_recommendations(request: KeyRequest[MoneyServices, None]) -> Result:
    money = request.services
    listed = recommendation_list(money.ledger.builtin_and_tag_dimensions())
    return await request.list_page(listed, await recommendation_rows(money.require_registry()))


@_recommendation_call(
    "PATCH",
    _ALL,
    "Set the status or the assignee of several recommendations",
    gives={JSON: ChangeRecommendationsAnswer},
)
async def update_recommendations(request: KeyRequest[MoneyServices, RecommendationChanges]) -> Result:
    return await change_recommendations(_require_registry(request), request.body, request.actor)


@_recommendation_call("GET", _ONE, "Show a recommendation", gives={JSON: OneRecommendation})
async def get_recommendation(request: KeyRequest[MoneyServices, None]) -> Result:
    return {
        "recommendation": describe_recommendation(
            await _require_registry(request).recommendations.get(request.path_parameter("recommendation_id"))
        )
    }


@_recommendation_call(
    "GET",
    _COMMENTS,
    "List the comments on a recommendation",
    lists=RECOMMENDATION_COMMENTS,
    item=OperatorComment,
)
async def list_comments(request: KeyRequest[MoneyServices, None]) -> Result:
    id = request.path_parameter("recommendation_id")
    page = await request.list_page(
        RECOMMENDATION_COMMENTS, await recommendation_comment_rows(_require_registry(request), id)
    )
    return {"recommendation": {"id": id}, **page}


@_recommendation_call(
    "POST",
    _COMMENTS,
    "Add one or more comments to a recommendation",
    gives={JSON: CommentRecommendationAnswer},
)
async def create_comments(request: KeyRequest[MoneyServices, NewComments]) -> Result:
    return await add_comments(
        _require_registry(request), request.path_parameter("recommendation_id"), request.body, request.actor
    )


@_recommendation_call(
    "PATCH", _COMMENTS + "/{comment}", "Change a comment", gives={JSON: RecommendationCommentAnswer}
)
async def update_comment(request: KeyRequest[MoneyServices, OneMessage]) -> Result:
    table = _require_registry(request).recommendations
    number = parse_comment_number(request.path_parameter("comment"))
    changed = await table.change_comment(
        request.path_parameter("recommendation_id"), number, request.body.message, actor=request.actor
    )
    return {"comment": describe_recommendation_comment(changed)}


@_recommendation_call("DELETE", _COMMENTS + "/{comment}", "Delete a comment", gives={JSON: DeletedComment})
async def delete_comment(request: KeyRequest[MoneyServices, None]) -> Result:
    number = parse_comment_number(request.path_parameter("comment"))
    await _require_registry(request).recommendations.delete_comment(
        request.path_parameter("recommendation_id"), number, actor=request.actor
    )
    return {"comment": {"id": str(number)}}


@_recommendation_call(
    "GET",
    _TYPES,
    "List the types of recommendations and their formulas",
    lists=RECOMMENDATION_TYPES,
    item=RecommendationTypeItem,
)
async def list_recommendation_types(request: KeyRequest[MoneyServices, None]) -> Result:
    return await request.list_page(
        RECOMMENDATION_TYPES, await recommendation_type_rows(_require_registry(request))
    )


@_recommendation_call(
    "GET", _TYPES + "/{type}", "Show a type of recommendations", gives={JSON: OneRecommendationType}
)
async def get_recommendation_type(request: KeyRequest[MoneyServices, None]) -> Result:
    return await describe_type_by_name(_require_registry(request), request.path_parameter("type"))


@_recommendation_call(
    "PATCH",
    _TYPES + "/{type}",
    "Switch a type on or off, or set its minimum savings",
    gives={JSON: OneRecommendationType},
)
async def update_recommendation_type(request: KeyRequest[MoneyServices, TypeChanges]) -> Result:
    return await change_type(
        _require_registry(request), request.path_parameter("type"), request.body, request.actor
    )


@_recommendation_call(
    "GET",
    "/dimensions",
    "List the dimensions to filter recommendations by, with the values of open ones",
    lists=RECOMMENDATION_DIMENSIONS,
    item=RecommendationDimensionItem,
)
async def get_available_dimensions(request: KeyRequest[MoneyServices, None]) -> Result:
    money = request.services
    all_recommendations = await money.require_registry().recommendations.all()
    rows = dimension_rows(all_recommendations, money.ledger.builtin_and_tag_dimensions())
    return await request.list_page(RECOMMENDATION_DIMENSIONS, rows)


@_recommendation_call(
    "POST",
    "/check",
    "Look for savings now, without storing them",
    gives={JSON: RecommendationCheckAnswer},
    in_turn=True,
)
async def check(request: KeyRequest[MoneyServices, SavingsCheck]) -> Result:
    money = request.services
    if money.require_adviser().is_busy:
        raise Refusal(
            429,
            "busy",
            "Another search for savings is running. Try again when it has finished.",
            retry_after_s=BUSY_S,
        )
    return await check_savings(money, request.shared.people, request.body)


async def change_recommendations(
    registry: Registry, body: RecommendationChanges, actor: Actor, hidden: Container[str] = ()
) -> Result:
    """
    Change recommendations, and return a result for each id in the given order.

    Ids in `hidden` are treated as if they did not exist, because the actor may not see them.
    """
    table = registry.recommendations
    changed = await table.change_recommendations(
        body.ids, status=body.status, assignee=body.assignee, actor=actor, hidden=hidden
    )
    return {
        "recommendations": [
            {"id": id, "error": "there is no recommendation with this id"}
            if recommendation is None
            else {"id": id, "status": recommendation.status, "assignee": recommendation.assignee}
            for id, recommendation in changed.items()
        ]
    }


async def describe_type_by_name(registry: Registry, name: str) -> Result:
    check_type_name(name)
    return _type_answer(
        name, (await registry.recommendations.stored_type_settings()).get(name, TypeSettings())
    )


async def change_type(registry: Registry, name: str, body: TypeChanges, actor: Actor) -> Result:
    check_type_name(name)
    thresholds = msgspec.structs.asdict(body.thresholds) if body.thresholds else {}
    changes = {threshold: str(value) for threshold, value in thresholds.items() if value is not None}
    changed: dict[str, Any] = changes if body.enabled is None else {**changes, "enabled": body.enabled}
    return _type_answer(name, await registry.recommendations.change_type(name, changed, actor=actor))


async def add_comments(registry: Registry, id: str, body: NewComments, actor: Actor) -> Result:
    if (body.message is None) == (not body.comments):
        raise Invalid("give either message or comments")
    texts = [comment.message for comment in body.comments] if body.message is None else [body.message]
    added = await registry.recommendations.add_comments(id, texts, actor=actor)
    return {"comments": [describe_recommendation_comment(comment) for comment in added]}


async def check_savings(
    money: MoneyServices, people: People, body: SavingsCheck, may_see: DimensionsTest = lambda _: True
) -> Result:
    """
    Return, by type, the number and sum of the savings that a run over the visible calls would find now.
    Nothing is stored.
    """
    if body.type is not None:
        check_type_name(body.type)
    filters = people.check_and_expand_filter(
        _check_filter(body.filter, money.ledger.builtin_and_tag_dimensions())
    )
    try:
        result = await money.require_adviser().find_savings(type=body.type, filters=filters, may_see=may_see)
    except CardUnreadable:
        raise Refusal(
            503, "unavailable", "The price card cannot be read. The log of the gateway has the reason."
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
                {
                    "type": type,
                    "count": len(savings),
                    "monthly_savings": decimal_text(sum(savings, Decimal(0))),
                }
                for type, savings in by_type.items()
            ],
            "failed": list(result.failed),
        }
    }


def check_type_name(name: str) -> None:
    if name not in BY_NAME:
        raise NotThere(f"there is no such type of recommendations; the types are {', '.join(BY_NAME)}")


def parse_comment_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise NotThere("this recommendation has no comment with this id")
    return int(text)


def _check_filter(
    filters: Mapping[str, Sequence[str | None]], known_names: Sequence[str]
) -> dict[str, list[str]]:
    for name, values in filters.items():
        if name.removeprefix(EXCLUDES) not in known_names:
            raise Invalid(f"filter accepts only the dimensions {', '.join(known_names)}")
        if not values:
            raise Invalid(f"filter: {name} needs at least one value")
    return {name: [value or "" for value in values] for name, values in filters.items()}


def _type_answer(name: str, settings: TypeSettings) -> Result:
    return {
        "recommendation_type": describe_recommendation_type(ShownType(type=BY_NAME[name], settings=settings))
    }


def _require_registry(request: KeyRequest[MoneyServices, Any]) -> Registry:
    return request.services.require_registry()

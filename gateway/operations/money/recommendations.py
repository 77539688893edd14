"""
Operator API of recommendations. Values and rules are the same as in the API for keys. In addition, a search
can be requested.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Any

import msgspec

from gateway.core.visible import Visible
from gateway.http.lists import MemoryRows
from gateway.http.requests import Result
from gateway.intake.rate_cards.card import CardUnreadable
from gateway.money.recommendations.facts import dimension_value
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.money import published_recommendations as by_key
from gateway.operations.money.published_recommendations import (
    RECOMMENDATION_COMMENTS,
    RECOMMENDATION_DIMENSIONS,
    RECOMMENDATION_TYPES,
    NewComments,
    OneMessage,
    RecommendationChanges,
    SavingsCheck,
    TypeChanges,
    describe_recommendation,
    describe_recommendation_comment,
    dimension_rows,
    recommendation_comment_rows,
    recommendation_list,
    type_rows,
)
from gateway.operations.requests.address import NOTHING, SLICED, call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid, NotThere
from spool.ledger.queries import DIMENSIONS
from spool.ledger.sums import Dimensions
from spool.registry.permission_sets import VIEW_RECOMMENDATIONS, WORK_ON_INSIGHTS
from spool.registry.recommendations import Recommendation


class SavingsLook(RequestBody):
    """An empty JSON object."""


@call(
    "GET",
    "/recommendations",
    VIEW_RECOMMENDATIONS,
    "List recommendations",
    lists=recommendation_list((*DIMENSIONS,)),
    shows=SLICED,
)
async def list_recommendations(request: OperatorRequest[MoneyServices, None]) -> Result:
    listed = recommendation_list(request.services.ledger.own_dimensions())
    visible = await request.reads.visible()
    rows = [
        _hide_realized(recommendation, visible)
        for recommendation in await request.registry.recommendations.all()
        if visible.recommendation(recommendation)
    ]
    return await request.list(listed, MemoryRows(rows))


@call(
    "PATCH",
    "/recommendations",
    WORK_ON_INSIGHTS,
    "Set the status or the assignee of recommendations",
    shows=SLICED,
)
async def change_recommendations(request: OperatorRequest[MoneyServices, RecommendationChanges]) -> Result:
    visible, all_recommendations = await request.reads.visible(), await request.registry.recommendations.all()
    hidden = frozenset(
        recommendation.id
        for recommendation in all_recommendations
        if not visible.recommendation(recommendation)
    )
    return await by_key.change_recommendations(request.registry, request.body, request.actor, hidden=hidden)


@call("POST", "/recommendations/run", WORK_ON_INSIGHTS, "Look for savings now")
async def look_for_savings(request: OperatorRequest[MoneyServices, SavingsLook]) -> Result:
    """
    Look for savings and answer when the search has finished. Otherwise a command without a server would exit
    before it finishes.
    """
    try:
        async with request.audited("recommendations.run", "recommendations", {}):
            done = await request.services.require_adviser().look()
    except CardUnreadable as error:
        raise Invalid(str(error)) from error
    return {"look": {**asdict(done.merged), "failed": list(done.failed)}}


@call(
    "GET",
    "/recommendations/{id}",
    VIEW_RECOMMENDATIONS,
    "Show a recommendation and its comments",
    shows=SLICED,
)
async def show_recommendation(request: OperatorRequest[MoneyServices, None]) -> Result:
    visible = await request.reads.visible()
    recommendation = await _visible_recommendation(request, visible)
    shown = describe_recommendation(_hide_realized(recommendation, visible))
    comments = await request.registry.recommendations.comments(recommendation.id)
    return {
        "recommendation": shown,
        "comments": [describe_recommendation_comment(comment) for comment in comments],
    }


@call(
    "GET",
    "/recommendations/{id}/comments",
    VIEW_RECOMMENDATIONS,
    "List the comments on a recommendation",
    lists=RECOMMENDATION_COMMENTS,
    shows=SLICED,
)
async def list_recommendation_comments(request: OperatorRequest[MoneyServices, None]) -> Result:
    id = await _visible_id(request)
    page = await request.list(
        RECOMMENDATION_COMMENTS, await recommendation_comment_rows(request.registry, id)
    )
    return {"recommendation": {"id": id}, **page}


@call("POST", "/recommendations/{id}/comments", WORK_ON_INSIGHTS, "Comment on a recommendation", shows=SLICED)
async def comment_recommendation(request: OperatorRequest[MoneyServices, NewComments]) -> Result:
    id = await _visible_id(request)
    return await by_key.add_comments(request.registry, id, request.body, request.actor)


@call(
    "PATCH",
    "/recommendations/{id}/comments/{comment}",
    WORK_ON_INSIGHTS,
    "Change a comment on a recommendation",
    shows=SLICED,
)
async def change_recommendation_comment(request: OperatorRequest[MoneyServices, OneMessage]) -> Result:
    table = request.registry.recommendations
    number = by_key.comment_number(request.word("comment"))
    id = await _visible_id(request)
    changed = await table.change_comment(id, number, request.body.message, actor=request.actor)
    return {"comment": describe_recommendation_comment(changed)}


@call(
    "DELETE",
    "/recommendations/{id}/comments/{comment}",
    WORK_ON_INSIGHTS,
    "Delete a comment on a recommendation",
    shows=SLICED,
)
async def delete_recommendation_comment(request: OperatorRequest[MoneyServices, None]) -> Result:
    number = by_key.comment_number(request.word("comment"))
    id = await _visible_id(request)
    await request.registry.recommendations.delete_comment(id, number, actor=request.actor)
    return {"deleted": str(number)}


@call(
    "GET",
    "/recommendation-types",
    VIEW_RECOMMENDATIONS,
    "List the types of recommendations",
    lists=RECOMMENDATION_TYPES,
    shows=NOTHING,
)
async def list_recommendation_types(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list(RECOMMENDATION_TYPES, await type_rows(request.registry))


@call(
    "GET",
    "/recommendation-types/{type}",
    VIEW_RECOMMENDATIONS,
    "Show a type of recommendations",
    shows=NOTHING,
)
async def show_recommendation_type(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await by_key.describe_one_type(request.registry, request.word("type"))


@call(
    "PATCH",
    "/recommendation-types/{type}",
    WORK_ON_INSIGHTS,
    "Switch a type of recommendations on or off, or set its minimum savings",
)
async def change_recommendation_type(request: OperatorRequest[MoneyServices, TypeChanges]) -> Result:
    return await by_key.change_type(request.registry, request.word("type"), request.body, request.actor)


@call(
    "GET",
    "/recommendation-dimensions",
    VIEW_RECOMMENDATIONS,
    "List the dimensions to filter recommendations by",
    lists=RECOMMENDATION_DIMENSIONS,
    shows=SLICED,
)
async def list_recommendation_dimensions(request: OperatorRequest[MoneyServices, None]) -> Result:
    visible, all_recommendations = await request.reads.visible(), await request.registry.recommendations.all()
    rows = dimension_rows(
        filter(visible.recommendation, all_recommendations), request.ledger.own_dimensions()
    )
    return await request.list(RECOMMENDATION_DIMENSIONS, rows)


@call(
    "GET",
    "/recommendation-check",
    VIEW_RECOMMENDATIONS,
    "Look for savings now, without storing them",
    optional=("type", "filter"),
    shows=SLICED,
    in_turn=True,
)
async def check_savings(request: OperatorRequest[MoneyServices, None]) -> Result:
    """
    Return the savings that a run would find. `filter` is JSON in the same form as in the request body of the
    API for keys.
    """
    query = request.http.query
    try:
        filters = msgspec.json.decode(query.get("filter", "{}"), type=dict[str, list[str | None]])
    except msgspec.DecodeError as error:
        raise Invalid(f'filter must be a JSON object such as {{"team": ["search"]}}: {error}') from None
    savings_check = SavingsCheck(type=query.get("type"), filter=filters)
    ledger = request.ledger

    def may_see(dimensions: Dimensions) -> bool:
        return ledger.is_whole or ledger.has_call(partial(dimension_value, dimensions))

    return await by_key.check_savings(request.services, request.shared.people, savings_check, may_see)


def _hide_realized(recommendation: Recommendation, visible: Visible) -> Recommendation:
    return recommendation if visible.realized(recommendation) else replace(recommendation, realized=None)


async def _visible_id(request: OperatorRequest[MoneyServices, Any]) -> str:
    return (await _visible_recommendation(request, await request.reads.visible())).id


async def _visible_recommendation(
    request: OperatorRequest[MoneyServices, Any], visible: Visible
) -> Recommendation:
    """
    Return the recommendation of the path. Raises NotThere if it does not exist or is not visible to this person.
    """
    recommendation = await request.registry.recommendations.get(request.word("id"))
    if not visible.recommendation(recommendation):
        raise NotThere("there is no recommendation with this id")
    return recommendation

"""
Operator API of recommendations. Values and rules are the same as in the API for keys. In addition, a search
can be requested.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from typing import Annotated, Any

import msgspec

from gateway.core.fields import one_field_answer
from gateway.core.visibility import VisibilityRules
from gateway.http.lists import MemoryRows
from gateway.http.requests import Result
from gateway.money.recommendations.facts import dimension_value
from gateway.operations.answers import DeletedItem, OperatorComment, SearchResult
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
    recommendation_type_rows,
)
from gateway.operations.money.recommendation_answers import (
    ChangeRecommendationsAnswer,
    CommentRecommendationAnswer,
    OneRecommendationType,
    RecommendationAnswer,
    RecommendationCheckAnswer,
    RecommendationCommentAnswer,
    RecommendationDimensionItem,
    RecommendationItem,
    RecommendationTypeItem,
)
from gateway.operations.requests.address import NOTHING, SLICED, operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid, NotThere
from spool.ledger.dimensions import DIMENSIONS
from spool.ledger.sums import Dimensions
from spool.registry.field_notes import words
from spool.registry.permission_sets import VIEW_RECOMMENDATIONS, WORK_ON_INSIGHTS
from spool.registry.recommendations import Recommendation


class SavingsLook(RequestBody):
    """The request body, an empty JSON object."""


@operator_call(
    "GET",
    "/recommendations",
    VIEW_RECOMMENDATIONS,
    "List recommendations",
    lists=recommendation_list((*DIMENSIONS,)),
    shows=SLICED,
    item=RecommendationItem,
)
async def list_recommendations(request: OperatorRequest[MoneyServices, None]) -> Result:
    listed = recommendation_list(request.services.ledger.builtin_and_tag_dimensions())
    visible = await request.cost_reader.read_visibility()
    rows = [
        _hide_realized_saving_if_not_visible(recommendation, visible)
        for recommendation in await request.registry.recommendations.all()
        if visible.can_see_recommendation(recommendation)
    ]
    return await request.list_page(listed, MemoryRows(rows))


@operator_call(
    "PATCH",
    "/recommendations",
    WORK_ON_INSIGHTS,
    "Set the status or the assignee of recommendations",
    shows=SLICED,
    answers=ChangeRecommendationsAnswer,
)
async def change_recommendations(request: OperatorRequest[MoneyServices, RecommendationChanges]) -> Result:
    visible, all_recommendations = (
        await request.cost_reader.read_visibility(),
        await request.registry.recommendations.all(),
    )
    hidden = frozenset(
        recommendation.id
        for recommendation in all_recommendations
        if not visible.can_see_recommendation(recommendation)
    )
    return await by_key.change_recommendations(request.registry, request.body, request.actor, hidden=hidden)


@operator_call(
    "POST",
    "/recommendations/run",
    WORK_ON_INSIGHTS,
    "Look for savings now",
    answers=one_field_answer(
        "RunRecommendationsAnswer", look=Annotated[SearchResult, words("The result of the search.")]
    ),
)
async def look_for_savings(request: OperatorRequest[MoneyServices, SavingsLook]) -> Result:
    """
    Look for savings before answering. Otherwise a command without a server would exit before the search
    finishes.
    """
    async with request.audited_change("recommendations.run", "recommendations", {}):
        done = await request.services.require_adviser().find_and_store_savings()
    return {"look": {**asdict(done.merged), "failed": list(done.failed)}}


@operator_call(
    "GET",
    "/recommendations/{id}",
    VIEW_RECOMMENDATIONS,
    "Show a recommendation and its comments",
    shows=SLICED,
    answers=RecommendationAnswer,
)
async def show_recommendation(request: OperatorRequest[MoneyServices, None]) -> Result:
    visible = await request.cost_reader.read_visibility()
    recommendation = await _visible_recommendation(request, visible)
    shown = describe_recommendation(_hide_realized_saving_if_not_visible(recommendation, visible))
    comments = await request.registry.recommendations.comments(recommendation.id)
    return {
        "recommendation": shown,
        "comments": [describe_recommendation_comment(comment) for comment in comments],
    }


@operator_call(
    "GET",
    "/recommendations/{id}/comments",
    VIEW_RECOMMENDATIONS,
    "List the comments on a recommendation",
    lists=RECOMMENDATION_COMMENTS,
    shows=SLICED,
    item=OperatorComment,
)
async def list_recommendation_comments(request: OperatorRequest[MoneyServices, None]) -> Result:
    id = await _visible_id(request)
    page = await request.list_page(
        RECOMMENDATION_COMMENTS, await recommendation_comment_rows(request.registry, id)
    )
    return {"recommendation": {"id": id}, **page}


@operator_call(
    "POST",
    "/recommendations/{id}/comments",
    WORK_ON_INSIGHTS,
    "Comment on a recommendation",
    shows=SLICED,
    answers=CommentRecommendationAnswer,
)
async def comment_recommendation(request: OperatorRequest[MoneyServices, NewComments]) -> Result:
    id = await _visible_id(request)
    return await by_key.add_comments(request.registry, id, request.body, request.actor)


@operator_call(
    "PATCH",
    "/recommendations/{id}/comments/{comment}",
    WORK_ON_INSIGHTS,
    "Change a comment on a recommendation",
    shows=SLICED,
    answers=RecommendationCommentAnswer,
)
async def change_recommendation_comment(request: OperatorRequest[MoneyServices, OneMessage]) -> Result:
    table = request.registry.recommendations
    number = by_key.parse_comment_number(request.path_parameter("comment"))
    id = await _visible_id(request)
    changed = await table.change_comment(id, number, request.body.message, actor=request.actor)
    return {"comment": describe_recommendation_comment(changed)}


@operator_call(
    "DELETE",
    "/recommendations/{id}/comments/{comment}",
    WORK_ON_INSIGHTS,
    "Delete a comment on a recommendation",
    shows=SLICED,
    answers=DeletedItem,
)
async def delete_recommendation_comment(request: OperatorRequest[MoneyServices, None]) -> Result:
    number = by_key.parse_comment_number(request.path_parameter("comment"))
    id = await _visible_id(request)
    await request.registry.recommendations.delete_comment(id, number, actor=request.actor)
    return {"deleted": str(number)}


@operator_call(
    "GET",
    "/recommendation-types",
    VIEW_RECOMMENDATIONS,
    "List the types of recommendations",
    lists=RECOMMENDATION_TYPES,
    shows=NOTHING,
    item=RecommendationTypeItem,
)
async def list_recommendation_types(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await request.list_page(RECOMMENDATION_TYPES, await recommendation_type_rows(request.registry))


@operator_call(
    "GET",
    "/recommendation-types/{type}",
    VIEW_RECOMMENDATIONS,
    "Show a type of recommendations",
    shows=NOTHING,
    answers=OneRecommendationType,
)
async def show_recommendation_type(request: OperatorRequest[MoneyServices, None]) -> Result:
    return await by_key.describe_type_by_name(request.registry, request.path_parameter("type"))


@operator_call(
    "PATCH",
    "/recommendation-types/{type}",
    WORK_ON_INSIGHTS,
    "Switch a type of recommendations on or off, or set its minimum savings",
    answers=OneRecommendationType,
)
async def change_recommendation_type(request: OperatorRequest[MoneyServices, TypeChanges]) -> Result:
    return await by_key.change_type(
        request.registry, request.path_parameter("type"), request.body, request.actor
    )


@operator_call(
    "GET",
    "/recommendation-dimensions",
    VIEW_RECOMMENDATIONS,
    "List the dimensions to filter recommendations by",
    lists=RECOMMENDATION_DIMENSIONS,
    shows=SLICED,
    item=RecommendationDimensionItem,
)
async def list_recommendation_dimensions(request: OperatorRequest[MoneyServices, None]) -> Result:
    visible, all_recommendations = (
        await request.cost_reader.read_visibility(),
        await request.registry.recommendations.all(),
    )
    rows = dimension_rows(
        filter(visible.can_see_recommendation, all_recommendations),
        request.ledger.builtin_and_tag_dimensions(),
    )
    return await request.list_page(RECOMMENDATION_DIMENSIONS, rows)


@operator_call(
    "GET",
    "/recommendation-check",
    VIEW_RECOMMENDATIONS,
    "Look for savings now, without storing them",
    optional=("type", "filter"),
    shows=SLICED,
    in_turn=True,
    answers=RecommendationCheckAnswer,
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

    def can_see_dimensions(dimensions: Dimensions) -> bool:
        return ledger.is_whole or ledger.has_call(partial(dimension_value, dimensions))

    return await by_key.check_savings(
        request.services, request.shared.people, savings_check, can_see_dimensions
    )


def _hide_realized_saving_if_not_visible(
    recommendation: Recommendation, visibility_rules: VisibilityRules
) -> Recommendation:
    return (
        recommendation
        if visibility_rules.can_see_realized_saving(recommendation)
        else replace(recommendation, realized=None)
    )


async def _visible_id(request: OperatorRequest[MoneyServices, Any]) -> str:
    return (await _visible_recommendation(request, await request.cost_reader.read_visibility())).id


async def _visible_recommendation(
    request: OperatorRequest[MoneyServices, Any], visibility_rules: VisibilityRules
) -> Recommendation:
    recommendation = await request.registry.recommendations.get(request.path_parameter("id"))
    if not visibility_rules.can_see_recommendation(recommendation):
        raise NotThere("there is no recommendation with this id")
    return recommendation

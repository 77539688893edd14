"""Recommendations."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.lists import recommendations as recommendation_lists
from gateway.api.recommendations import NewComments, OneMessage, RecommendationChanges, TypeChanges
from gateway.operator import recommendations
from gateway.operator.address import NOTHING, SLICED
from spool.ledger.queries import DIMENSIONS
from spool.registry.permission_sets import VIEW_RECOMMENDATIONS, WORK_ON_INSIGHTS

ROWS = (
    call("GET", "/recommendations", VIEW_RECOMMENDATIONS, recommendations.list_recommendations,
         "List what would have cost less",
         lists=recommendation_lists.recommendation_list(DIMENSIONS), shows=SLICED),
    call("PATCH", "/recommendations", WORK_ON_INSIGHTS, recommendations.change_recommendations,
         "Set the status or the assignee of recommendations", takes=RecommendationChanges, shows=SLICED),
    call("POST", "/recommendations/run", WORK_ON_INSIGHTS, recommendations.look_for_savings, "Look for savings now",
         takes=recommendations.SavingsLook),
    call("GET", "/recommendations/{id}", VIEW_RECOMMENDATIONS, recommendations.show_recommendation,
         "Show a recommendation and its comments", shows=SLICED),
    call("GET", "/recommendations/{id}/comments", VIEW_RECOMMENDATIONS, recommendations.list_recommendation_comments,
         "List the comments on a recommendation", lists=recommendation_lists.RECOMMENDATION_COMMENTS, shows=SLICED),
    call("POST", "/recommendations/{id}/comments", WORK_ON_INSIGHTS, recommendations.comment_recommendation,
         "Comment on a recommendation", takes=NewComments, shows=SLICED),
    call("PATCH", "/recommendations/{id}/comments/{comment}", WORK_ON_INSIGHTS,
         recommendations.change_recommendation_comment,
         "Change a comment on a recommendation", takes=OneMessage, shows=SLICED),
    call("DELETE", "/recommendations/{id}/comments/{comment}", WORK_ON_INSIGHTS,
         recommendations.delete_recommendation_comment, "Delete a comment on a recommendation", shows=SLICED),
    call("GET", "/recommendation-types", VIEW_RECOMMENDATIONS, recommendations.list_recommendation_types,
         "List the types of recommendations", lists=recommendation_lists.RECOMMENDATION_TYPES, shows=NOTHING),
    call("GET", "/recommendation-types/{type}", VIEW_RECOMMENDATIONS, recommendations.show_recommendation_type,
         "Show a type of recommendations", shows=NOTHING),
    call("PATCH", "/recommendation-types/{type}", WORK_ON_INSIGHTS, recommendations.change_recommendation_type,
         "Switch a type of recommendations, or set the least that it reports", takes=TypeChanges),
    call("GET", "/recommendation-dimensions", VIEW_RECOMMENDATIONS, recommendations.list_recommendation_dimensions,
         "List what recommendations can be filtered by", lists=recommendation_lists.RECOMMENDATION_DIMENSIONS,
         shows=SLICED),
    call("GET", "/recommendation-check", VIEW_RECOMMENDATIONS, recommendations.check_savings,
         "Look for savings now, and keep nothing", optional=("type", "filter"), shows=SLICED, in_turn=True),
)  # fmt: skip

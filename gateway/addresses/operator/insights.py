"""Insights."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.lists import insights as insight_lists
from gateway.operator import insights
from gateway.operator.address import SLICED
from spool.registry.permission_sets import VIEW_COSTS, WORK_ON_INSIGHTS

ROWS = (
    call("GET", "/insights", VIEW_COSTS, insights.list_insights, "List insights",
         lists=insight_lists.INSIGHTS_OF_PEOPLE, shows=SLICED),
    call("POST", "/insights/run", WORK_ON_INSIGHTS, insights.inspect, "Look with every detector now",
         takes=insights.Inspection),
    call("GET", "/insights/{id}", VIEW_COSTS, insights.show_insight, "Show an insight and its comments", shows=SLICED),
    call("PATCH", "/insights/{id}", WORK_ON_INSIGHTS, insights.set_insight, "Set an insight's status",
         takes=insights.InsightStatus, shows=SLICED),
    call("GET", "/insights/{id}/comments", VIEW_COSTS, insights.list_comments, "List the comments on an insight",
         lists=insight_lists.COMMENTS, shows=SLICED),
    call("POST", "/insights/{id}/comments", WORK_ON_INSIGHTS, insights.comment_insight, "Comment on an insight",
         takes=insights.InsightComment, shows=SLICED),
    call("DELETE", "/insights/{id}/comments/{comment}", WORK_ON_INSIGHTS, insights.delete_insight_comment,
         "Delete a comment on an insight", shows=SLICED),
)  # fmt: skip

"""
The published API of insights: the list, one insight, its status and its comments.

Each method has its own scope. Except for the list, responses have the form that clients of the cost service
expect: status 200 even after a creation, a comment's text as `message`, and references as `{"id"}`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from functools import partial
from typing import Annotated, Any

import msgspec

from gateway.core.fields import build_answer
from gateway.http.address import key_call
from gateway.http.answers import JSON
from gateway.http.lists import YES_NO, Filter, ListDefinition, MemoryRows, PageQuery, Sort, StoredRows
from gateway.http.requests import Result
from gateway.money.costs.times import format_seconds
from gateway.operations.answers import (
    CommentOnInsight,
    DeletedComment,
    DeletedCommentName,
    Effort,
    InsightItem,
    InsightName,
    Status,
)
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.requests.key_requests import KeyRequest
from spool.errors import NotThere, RegistryDamaged
from spool.listing import DESCENDING, ListPage, SortField
from spool.registry.field_notes import example, words
from spool.registry.insights import EFFORTS, ON_HOLD, STATUSES, Comment, Insight, InsightDraft
from spool.registry.notices import SEVERITIES, insight_severity
from spool.registry.registry import Registry
from spool.registry.texts import MAX_AMOUNT, web_link_or_empty

HIDE_RESOLVED = "hide_resolved"
RESOLVED = ("addressed", "ignored")
NOTHING = ("",)  # filter values for a status or a category that no insight has
ABOUT = "about"
MONEY, OPERATION = "money", "operation"
STATES = OPENED, SNOOZED, DONE = "open", "snoozed", "done"

# Categories of findings whose impact is the affected spend, not money that can be saved.
_OF_OPERATION = ("coverage", "delivery", "keys", "reliability")


def describe_insight(insight: Insight) -> dict[str, object]:
    return build_answer(
        InsightItem,
        insight,
        link=web_link_or_empty(insight.link),
        created=format_seconds(insight.created),
        last_updated=format_seconds(insight.last_updated),
    )


def describe_insight_for_people(insight: Insight) -> dict[str, object]:
    """
    Describe an insight with the fields that only people see.

    `gone` means that a detector no longer finds the problem. The insight then has the status addressed,
    unless a person has set another status. `about` states whether the insight is about money, or about the
    operation of Tollhouse and its senders.
    """
    added = {
        "gone": insight.is_no_longer_found,
        ABOUT: insight_subject(insight),
        "severity": insight_severity(insight),
    }
    return {**describe_insight(insight), **added}


def insight_subject(insight: Insight) -> str:
    return OPERATION if insight.category in _OF_OPERATION else MONEY


def insight_state(insight: Insight) -> str:
    if insight.status in RESOLVED:
        return DONE
    return SNOOZED if insight.status == ON_HOLD else OPENED


def urgency_sort_key(insight: Insight) -> str:
    """
    Return a text by which insights are sorted in descending order: the open ones first, then the snoozed ones,
    each by severity and then by cost impact.
    """
    state = STATES[::-1].index(insight_state(insight))
    severity = SEVERITIES.index(insight_severity(insight))
    cost = int((MAX_AMOUNT + Decimal(insight.cost_impact)) * 1_000_000)
    return f"{state}{severity}{cost:019}"


def describe_comment(comment: Comment) -> dict[str, object]:
    return {
        "id": str(comment.id),
        "insight": {"id": comment.insight},
        "message": comment.text,
        "author": comment.author,
        "created": format_seconds(comment.created),
        "last_updated": format_seconds(comment.last_updated),
    }


INSIGHTS: ListDefinition[Insight] = ListDefinition(
    root="insights",
    show=describe_insight,
    identity=Sort(field=SortField("id"), value=lambda insight: insight.id),
    sorts={
        "category": Sort(field=SortField("category", is_text=True), value=lambda insight: insight.category),
        "cost_impact": Sort(  # This value is only for sorting. The response has the exact value.
            field=SortField("cost_impact", numeric=True), value=lambda insight: float(insight.cost_impact)
        ),
        "effort": Sort(
            field=SortField("effort", words=EFFORTS), value=lambda insight: EFFORTS.index(insight.effort)
        ),
        "last_updated": Sort(field=SortField("last_updated"), value=lambda insight: insight.last_updated),
        "status": Sort(
            field=SortField("status", words=STATUSES), value=lambda insight: STATUSES.index(insight.status)
        ),
        "title": Sort(field=SortField("title", is_text=True), value=lambda insight: insight.title),
    },
    default_sort=("status", "asc"),
    filters={
        "status": Filter(field="status", values=lambda insight: (insight.status,), valid_values=STATUSES),
        # Clients of the cost service set this filter. The value "false" hides nothing.
        HIDE_RESOLVED: Filter(
            holds=lambda insight, value: value == "false" or insight.status not in RESOLVED,
            valid_values=YES_NO,
            type="boolean",
        ),
    },
)


class InsightCounts(msgspec.Struct, kw_only=True):
    """The number of insights by state, and of open ones by subject."""

    open: Annotated[int, words("The number of open insights."), example(15)]
    snoozed: Annotated[int, words("The number of insights that are on hold."), example(1)]
    done: Annotated[int, words("The number of insights that are addressed or ignored."), example(2)]
    money: Annotated[int, words("The number of open insights about money."), example(11)]
    operation: Annotated[int, words("The number of open insights about the operation."), example(4)]


INSIGHTS_OF_PEOPLE: ListDefinition[Insight] = replace(
    INSIGHTS,
    show=describe_insight_for_people,
    sorts={**INSIGHTS.sorts, "severity": Sort(value=urgency_sort_key)},
    default_sort=("severity", DESCENDING),
    filters={
        **INSIGHTS.filters,
        ABOUT: Filter(values=lambda insight: (insight_subject(insight),), valid_values=(MONEY, OPERATION)),
        "severity": Filter(values=lambda insight: (insight_severity(insight),), valid_values=SEVERITIES),
    },
    beside={"counts": InsightCounts},
)


def count_insights(insights: Sequence[Insight]) -> dict[str, int]:
    """Count insights by state, and the open ones also by subject."""
    states = Counter(insight_state(insight) for insight in insights)
    subjects = Counter(insight_subject(insight) for insight in insights if insight_state(insight) == OPENED)
    return {
        **{state: states[state] for state in STATES},
        **{subject: subjects[subject] for subject in (MONEY, OPERATION)},
    }


COMMENTS: ListDefinition[Comment] = ListDefinition(
    root="comments",
    show=describe_comment,
    identity=Sort(value=lambda comment: comment.id),
    sorts={
        "created": Sort(value=lambda comment: comment.created),
        "last_updated": Sort(value=lambda comment: comment.last_updated),
        "author": Sort(value=lambda comment: comment.author),
    },
    default_sort=("created", "asc"),
    beside={"insight": InsightName},
)


class InsightRows:
    """
    Stored insights as rows of a list. The storage filters only by status, so the filter that hides resolved
    insights is translated to it.
    """

    def __init__(self, registry: Registry) -> None:
        self._stored = StoredRows(registry.insights.page)

    async def page(
        self, list_definition: ListDefinition[Insight], page_query: PageQuery
    ) -> ListPage[Insight]:
        filters = dict(page_query.filters)
        if filters.pop(HIDE_RESOLVED, ()) == ("true",):
            open_statuses = tuple(
                status for status in filters.get("status", STATUSES) if status not in RESOLVED
            )
            filters["status"] = open_statuses or NOTHING
        return await self._stored.page(list_definition, replace(page_query, filters=filters))


def insight_rows(registry: Registry) -> InsightRows:
    return InsightRows(registry)


async def comment_rows(registry: Registry, insight: str) -> MemoryRows[Comment]:
    """Return the comments on an insight. Raises NotThere if there is no such insight."""
    return MemoryRows(await registry.insights.comments(insight))


_Title = Annotated[str, words("The title of the insight.")]
_Description = Annotated[str, words("The description of the insight.")]
_Category = Annotated[str, words("The category of the insight.")]
_Link = Annotated[str, words("An address with more about the insight.")]
_Status = Annotated[Status, words("The status of the insight.")]
_Effort = Annotated[Effort, words("The effort to act on the insight.")]
_CostImpact = Annotated[str | float, words("The cost at stake in dollars, as text or a number.")]
_Message = Annotated[str, words("The text of the comment.")]


class NewInsight(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    title: _Title
    description: _Description = ""
    category: _Category = ""
    link: _Link = ""
    status: _Status = "new"
    effort: _Effort = "not_set"
    cost_impact: _CostImpact = "0"


class InsightChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Changes to an insight. Omitted fields stay as they are."""

    title: _Title | None = None
    description: _Description | None = None
    category: _Category | None = None
    link: _Link | None = None
    status: _Status | None = None
    effort: _Effort | None = None
    cost_impact: _CostImpact | None = None


class NewComment(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    message: _Message


class OneInsight(msgspec.Struct, kw_only=True):
    insight: Annotated[InsightItem, words("The insight, with the fields below.")]


class OneComment(msgspec.Struct, kw_only=True):
    comment: Annotated[CommentOnInsight, words("The comment, with the fields below.")]


class DeletedInsight(msgspec.Struct, kw_only=True):
    insight: Annotated[InsightName, words("The deleted insight.")]
    comments: Annotated[list[DeletedCommentName], words("The comments of the insight, deleted with it.")]


_ALL = "/v2/insights"
_ONE = _ALL + "/{id}"
_COMMENTS = _ONE + "/comments"

_call = partial(key_call, endpoint="insights")


@_call(
    "GET",
    _ALL,
    "insights:read_insights",
    "List insights",
    name="insights_read_all",
    lists=INSIGHTS,
    item=InsightItem,
)
async def read_insights(request: KeyRequest[MoneyServices, None]) -> Result:
    return await request.list_page(INSIGHTS, insight_rows(_require_registry(request)))


@_call(
    "POST",
    _ALL,
    "insights:create_insight",
    "Create an insight",
    name="insights_create",
    gives={JSON: OneInsight},
)
async def create_insight(request: KeyRequest[MoneyServices, NewInsight]) -> Result:
    body = request.body
    draft = InsightDraft(
        title=body.title,
        description=body.description,
        category=body.category,
        link=body.link,
        effort=body.effort,
        cost_impact=str(body.cost_impact),
    )
    insight = await _require_registry(request).insights.create(draft, status=body.status, actor=request.actor)
    return {"insight": describe_insight(insight)}


@_call(
    "GET",
    _ONE,
    "insights:read_insight",
    "Show an insight",
    name="insights_read_one",
    gives={JSON: OneInsight},
)
async def read_insight(request: KeyRequest[MoneyServices, None]) -> Result:
    return {
        "insight": describe_insight(
            await _require_registry(request).insights.get(request.path_parameter("id"))
        )
    }


@_call(
    "PATCH",
    _ONE,
    "insights:update_insight",
    "Change an insight",
    name="insights_update",
    gives={JSON: OneInsight},
)
async def update_insight(request: KeyRequest[MoneyServices, InsightChanges]) -> Result:
    stated_fields = msgspec.structs.asdict(request.body)
    changes = {name: str(value) for name, value in stated_fields.items() if value is not None}
    status = changes.pop("status", None)
    table = _require_registry(request).insights
    insight = await table.change(
        request.path_parameter("id"), status=status, fields=changes, actor=request.actor
    )
    return {"insight": describe_insight(insight)}


@_call(
    "DELETE",
    _ONE,
    "insights:delete_insight",
    "Delete an insight",
    name="insights_delete",
    gives={JSON: DeletedInsight},
)
async def delete_insight(request: KeyRequest[MoneyServices, None]) -> Result:
    id, comments = await _require_registry(request).insights.delete_with_comments(
        request.path_parameter("id"), actor=request.actor
    )
    return {"insight": {"id": id}, "comments": [{"id": str(comment)} for comment in comments]}


@_call(
    "GET",
    _COMMENTS,
    "insights:read_insight_comments",
    "List the comments on an insight",
    name="insights_read_comments",
    lists=COMMENTS,
    item=CommentOnInsight,
)
async def read_comments(request: KeyRequest[MoneyServices, None]) -> Result:
    id = request.path_parameter("id")
    page = await request.list_page(COMMENTS, await comment_rows(_require_registry(request), id))
    return {"insight": {"id": id}, **page}


@_call(
    "POST",
    _COMMENTS,
    "insights:create_insight_comment",
    "Comment on an insight",
    name="insights_create_comment",
    gives={JSON: OneComment},
)
async def create_comment(request: KeyRequest[MoneyServices, NewComment]) -> Result:
    table = _require_registry(request).insights
    comment = await table.add_comment(request.path_parameter("id"), request.body.message, actor=request.actor)
    return {"comment": describe_comment(comment)}


@_call(
    "PATCH",
    _COMMENTS + "/{comment}",
    "insights:update_insight_comment",
    "Change a comment on an insight",
    name="insights_update_comment",
    gives={JSON: OneComment},
)
async def update_comment(request: KeyRequest[MoneyServices, NewComment]) -> Result:
    table = _require_registry(request).insights
    number = parse_comment_number(request.path_parameter("comment"))
    insight = request.path_parameter("id")
    text = request.body.message
    comment = await table.change_comment(insight, number, text, actor=request.actor)
    return {"comment": describe_comment(comment)}


# No scope exists for deleting a comment, so this address requires the scope for changing comments.
@_call(
    "DELETE",
    _COMMENTS + "/{comment}",
    "insights:update_insight_comment",
    "Delete a comment on an insight",
    name="insights_delete_comment",
    gives={JSON: DeletedComment},
)
async def delete_comment(request: KeyRequest[MoneyServices, None]) -> Result:
    table = _require_registry(request).insights
    number = parse_comment_number(request.path_parameter("comment"))
    await table.delete_comment(request.path_parameter("id"), number, actor=request.actor)
    return {"comment": {"id": str(number)}}


def parse_comment_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise NotThere("this insight has no comment with this id")
    return int(text)


def _require_registry(request: KeyRequest[MoneyServices, Any]) -> Registry:
    registry = request.services.registry
    if registry is None:
        raise RegistryDamaged("registry.sqlite cannot be read")
    return registry

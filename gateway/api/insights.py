"""
The published list of insights (part 4.1), and one insight, its status and its comments beside it.

Each method has a scope of its own. All but the list speaks as the service's own clients do: 200 also for what
is new, a comment's `message`, and things named by `{"id"}`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import msgspec

from gateway.api.lists.insights import (
    COMMENTS,
    INSIGHTS,
    comment_rows,
    describe,
    describe_comment,
    insight_rows,
)
from gateway.http.address import key_call
from gateway.http.answers import JSON
from gateway.http.holders.money import MoneyServices
from gateway.http.requests import KeyRequest, Result
from spool.errors import NotThere, RegistryDamaged
from spool.registry.insights import Draft
from spool.registry.registry import Registry

Status = Literal["new", "in_progress", "on_hold", "addressed", "ignored"]
Effort = Literal["not_set", "low", "medium", "high"]


class NewInsight(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`cost_impact` is a decimal number of dollars, as text or as a number."""

    title: str
    description: str = ""
    category: str = ""
    link: str = ""
    status: Status = "new"
    effort: Effort = "not_set"
    cost_impact: str | float = "0"


class InsightChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    title: str | None = None
    description: str | None = None
    category: str | None = None
    link: str | None = None
    status: Status | None = None
    effort: Effort | None = None
    cost_impact: str | float | None = None


class NewComment(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    message: str


class InsightItem(msgspec.Struct, kw_only=True):
    """An insight as it is answered; times are epoch seconds as text."""

    id: str
    title: str
    description: str
    category: str
    link: str
    status: Status
    effort: Effort
    cost_impact: str
    created: str
    last_updated: str


class InsightName(msgspec.Struct, kw_only=True):
    id: str


class CommentName(msgspec.Struct, kw_only=True):
    id: str


class CommentItem(msgspec.Struct, kw_only=True):
    id: str
    insight: InsightName
    message: str
    author: str
    created: str
    last_updated: str


class OneInsight(msgspec.Struct, kw_only=True):
    insight: InsightItem


class OneComment(msgspec.Struct, kw_only=True):
    comment: CommentItem


class DeletedComment(msgspec.Struct, kw_only=True):
    """What is gone."""

    comment: CommentName


class Deleted(msgspec.Struct, kw_only=True):
    """What is gone."""

    insight: InsightName
    comments: list[CommentName]


_ALL = "/v2/insights"
_ONE = _ALL + "/{id}"
_COMMENTS = _ONE + "/comments"

_call = partial(key_call, endpoint="insights")


@_call(
    "GET",
    _ALL,
    "insights:read_insights",
    "Read all",
    name="insights_read_all",
    lists=INSIGHTS,
    item=InsightItem,
)
async def read_insights(request: KeyRequest[MoneyServices, None]) -> Result:
    return await request.list(INSIGHTS, insight_rows(_registry(request)))


@_call("POST", _ALL, "insights:create_insight", "Create", name="insights_create", gives={JSON: OneInsight})
async def create_insight(request: KeyRequest[MoneyServices, NewInsight]) -> Result:
    given = request.body
    draft = Draft(
        title=given.title,
        description=given.description,
        category=given.category,
        link=given.link,
        effort=given.effort,
        cost_impact=str(given.cost_impact),
    )
    insight = await _registry(request).insights.create(draft, status=given.status, actor=request.actor)
    return {"insight": describe(insight)}


@_call("GET", _ONE, "insights:read_insight", "Read one", name="insights_read_one", gives={JSON: OneInsight})
async def read_insight(request: KeyRequest[MoneyServices, None]) -> Result:
    return {"insight": describe(await _registry(request).insights.get(request.word("id")))}


@_call("PATCH", _ONE, "insights:update_insight", "Update", name="insights_update", gives={JSON: OneInsight})
async def update_insight(request: KeyRequest[MoneyServices, InsightChanges]) -> Result:
    given = msgspec.structs.asdict(request.body)
    changes = {name: str(value) for name, value in given.items() if value is not None}
    status = changes.pop("status", None)
    table = _registry(request).insights
    insight = await table.change(request.word("id"), status=status, fields=changes, actor=request.actor)
    return {"insight": describe(insight)}


@_call("DELETE", _ONE, "insights:delete_insight", "Delete", name="insights_delete", gives={JSON: Deleted})
async def delete_insight(request: KeyRequest[MoneyServices, None]) -> Result:
    id, comments = await _registry(request).insights.delete(request.word("id"), actor=request.actor)
    return {"insight": {"id": id}, "comments": [{"id": str(comment)} for comment in comments]}


@_call(
    "GET",
    _COMMENTS,
    "insights:read_insight_comments",
    "Read comments",
    name="insights_read_comments",
    lists=COMMENTS,
    item=CommentItem,
)
async def read_comments(request: KeyRequest[MoneyServices, None]) -> Result:
    id = request.word("id")
    page = await request.list(COMMENTS, await comment_rows(_registry(request), id))
    return {"insight": {"id": id}, **page}


@_call(
    "POST",
    _COMMENTS,
    "insights:create_insight_comment",
    "Create comment",
    name="insights_create_comment",
    gives={JSON: OneComment},
)
async def create_comment(request: KeyRequest[MoneyServices, NewComment]) -> Result:
    table = _registry(request).insights
    comment = await table.comment(request.word("id"), request.body.message, actor=request.actor)
    return {"comment": describe_comment(comment)}


@_call(
    "PATCH",
    _COMMENTS + "/{comment}",
    "insights:update_insight_comment",
    "Update comment",
    name="insights_update_comment",
    gives={JSON: OneComment},
)
async def update_comment(request: KeyRequest[MoneyServices, NewComment]) -> Result:
    table = _registry(request).insights
    number = comment_number(request.word("comment"))
    insight = request.word("id")
    text = request.body.message
    comment = await table.change_comment(insight, number, text, actor=request.actor)
    return {"comment": describe_comment(comment)}


# The catalogue has no scope of its own for this.
@_call(
    "DELETE",
    _COMMENTS + "/{comment}",
    "insights:update_insight_comment",
    "Delete comment",
    name="insights_delete_comment",
    gives={JSON: DeletedComment},
)
async def delete_comment(request: KeyRequest[MoneyServices, None]) -> Result:
    table = _registry(request).insights
    number = comment_number(request.word("comment"))
    await table.delete_comment(request.word("id"), number, actor=request.actor)
    return {"comment": {"id": str(number)}}


def comment_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 19):
        raise NotThere("this insight has no comment with this id")
    return int(text)


def _registry(request: KeyRequest[MoneyServices, Any]) -> Registry:
    """The registry. RegistryDamaged while its file is."""
    registry = request.services.registry
    if registry is None:
        raise RegistryDamaged("registry.sqlite cannot be read")
    return registry

"""
Insights and their comments as every list and answer shows them, to keys and to operators alike.

Fields and order are the published interface's (parts 2.2 and 4.1): status and effort sort by their meaning.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.api.times import seconds
from gateway.http.lists import YES_NO, Filter, List, MemoryRows, PageQuery, Sort, StoredRows
from gateway.schemas import TEXT, closed
from spool.listing import ListPage, SortField
from spool.registry.insights import EFFORTS, STATUSES, Comment, Insight, web_link
from spool.registry.registry import Registry

HIDE_RESOLVED = "hide_resolved"
RESOLVED = ("addressed", "ignored")
NO_STATUS = ("",)  # that no insight has


def describe(insight: Insight) -> dict[str, object]:
    return {
        "id": insight.id,
        "title": insight.title,
        "description": insight.description,
        "category": insight.category,
        "link": web_link(insight.link),
        "status": insight.status,
        "effort": insight.effort,
        "cost_impact": insight.cost_impact,
        "created": seconds(insight.created),
        "last_updated": seconds(insight.last_updated),
    }


def describe_for_people(insight: Insight) -> dict[str, object]:
    """
    `gone`: a detector found it, and does so no more; then it is addressed, unless a person said otherwise.
    """
    return {**describe(insight), "gone": insight.is_gone}


def describe_comment(comment: Comment) -> dict[str, object]:
    return {
        "id": str(comment.id),
        "insight": {"id": comment.insight},
        "message": comment.text,
        "author": comment.author,
        "created": seconds(comment.created),
        "last_updated": seconds(comment.last_updated),
    }


INSIGHTS: List[Insight] = List(
    root="insights",
    show=describe,
    identity=Sort(field=SortField("id"), value=lambda insight: insight.id),
    sorts={
        "category": Sort(field=SortField("category"), value=lambda insight: insight.category),
        "cost_impact": Sort(  # to sort by; what is shown is exact
            field=SortField("cost_impact", numeric=True), value=lambda insight: float(insight.cost_impact)
        ),
        "effort": Sort(
            field=SortField("effort", words=EFFORTS), value=lambda insight: EFFORTS.index(insight.effort)
        ),
        "last_updated": Sort(field=SortField("last_updated"), value=lambda insight: insight.last_updated),
        "status": Sort(
            field=SortField("status", words=STATUSES), value=lambda insight: STATUSES.index(insight.status)
        ),
        "title": Sort(field=SortField("title"), value=lambda insight: insight.title),
    },
    default_sort=("status", "asc"),
    filters={
        "status": Filter(field="status", values=lambda insight: (insight.status,), valid_values=STATUSES),
        # Of the service's own client. "false" leaves nothing out.
        HIDE_RESOLVED: Filter(
            holds=lambda insight, value: value == "false" or insight.status not in RESOLVED,
            valid_values=YES_NO,
            type="boolean",
        ),
    },
)

INSIGHTS_OF_PEOPLE: List[Insight] = replace(INSIGHTS, show=describe_for_people)

COMMENTS: List[Comment] = List(
    root="comments",
    show=describe_comment,
    identity=Sort(value=lambda comment: comment.id),
    sorts={
        "created": Sort(value=lambda comment: comment.created),
        "last_updated": Sort(value=lambda comment: comment.last_updated),
        "author": Sort(value=lambda comment: comment.author),
    },
    default_sort=("created", "asc"),
    beside={"insight": closed({"id": TEXT})},
)


class InsightRows:
    """Insights in the storage, which knows of statuses alone."""

    def __init__(self, registry: Registry) -> None:
        self._stored = StoredRows(registry.insights.page)

    async def page(self, listed: List[Insight], wanted: PageQuery) -> ListPage[Insight]:
        filters = dict(wanted.filters)
        if filters.pop(HIDE_RESOLVED, ()) == ("true",):
            left = tuple(status for status in filters.get("status", STATUSES) if status not in RESOLVED)
            filters["status"] = left or NO_STATUS
        return await self._stored.page(listed, replace(wanted, filters=filters))


def insight_rows(registry: Registry) -> InsightRows:
    return InsightRows(registry)


async def comment_rows(registry: Registry, insight: str) -> MemoryRows[Comment]:
    """NotThere when there is no such insight."""
    return MemoryRows(await registry.insights.comments(insight))

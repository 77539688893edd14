"""
Insights and their comments as every list and answer shows them, to keys and to operators alike.

Fields and order are the published interface's (parts 2.2 and 4.1): status and effort sort by their meaning.
"""

from __future__ import annotations

from dataclasses import replace

from gateway.api.times import seconds
from gateway.http.lists import YES_NO, Filter, List, MemoryRows, PageQuery, Sort, StoredRows
from gateway.schemas import TEXT, closed
from spool.listing import ASCENDING, ListPage, ListQuery, SortField
from spool.registry.insights import EFFORTS, MAX_INSIGHTS, STATUSES, Comment, Insight, web_link
from spool.registry.notices import insight_severity
from spool.registry.registry import Registry

HIDE_RESOLVED = "hide_resolved"
RESOLVED = ("addressed", "ignored")
NOTHING = ("",)  # a status and a category that no insight has

ABOUT = "about"
MONEY, OPERATION = "money", "operation"
# What these find is no money that somebody could save: their impact is the spend that is concerned.
_OF_OPERATION = ("coverage", "delivery", "keys", "reliability")


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
    `gone`: a detector found it, and does so no more; then it is addressed, unless a person said otherwise. `about`:
    money, or the operation of Tollhouse and its senders.
    """
    added = {"gone": insight.is_gone, ABOUT: about(insight), "severity": insight_severity(insight)}
    return {**describe(insight), **added}


def about(insight: Insight) -> str:
    return OPERATION if insight.category in _OF_OPERATION else MONEY


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
        "category": Sort(field=SortField("category", is_text=True), value=lambda insight: insight.category),
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
        "title": Sort(field=SortField("title", is_text=True), value=lambda insight: insight.title),
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

INSIGHTS_OF_PEOPLE: List[Insight] = replace(
    INSIGHTS,
    show=describe_for_people,
    filters={
        **INSIGHTS.filters,
        ABOUT: Filter(holds=lambda insight, value: about(insight) == value, valid_values=(MONEY, OPERATION)),
    },
)

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


_EVERY = ListQuery(
    sort=SortField("id"), order=ASCENDING, identity="id", limit=MAX_INSIGHTS, filters={}, known=("category",)
)


class InsightRows:
    """Insights in the storage, which knows of statuses and categories alone."""

    def __init__(self, registry: Registry) -> None:
        self._table = registry.insights
        self._stored = StoredRows(self._table.page)

    async def page(self, listed: List[Insight], wanted: PageQuery) -> ListPage[Insight]:
        filters = dict(wanted.filters)
        if filters.pop(HIDE_RESOLVED, ()) == ("true",):
            left = tuple(status for status in filters.get("status", STATUSES) if status not in RESOLVED)
            filters["status"] = left or NOTHING
        asked = set(filters.pop(ABOUT, ()))
        if len(asked) != 1:
            return await self._stored.page(listed, replace(wanted, filters=filters))
        known = (await self._table.page(replace(_EVERY, limit=1))).known["category"]
        if not known:  # so many that they are not told
            return await MemoryRows((await self._table.page(_EVERY)).rows).page(listed, wanted)
        of_operation = asked == {OPERATION}
        chosen = tuple(each for each in known if (each in _OF_OPERATION) == of_operation)
        with_category = replace(listed, filters={**listed.filters, "category": Filter(field="category")})
        return await self._stored.page(
            with_category, replace(wanted, filters={**filters, "category": chosen or NOTHING})
        )


def insight_rows(registry: Registry) -> InsightRows:
    return InsightRows(registry)


async def comment_rows(registry: Registry, insight: str) -> MemoryRows[Comment]:
    """NotThere when there is no such insight."""
    return MemoryRows(await registry.insights.comments(insight))

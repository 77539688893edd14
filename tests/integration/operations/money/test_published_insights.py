"""Insights over HTTP: the published list operation, and what people do with one insight."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from spool.registry.insights import Finding, InsightDraft
from tests.integration.conftest import ACTOR, Serve, Serving
from tests.spool.kept import audit_rows

SCOPES = (
    "insights:create_insight", "insights:create_insight_comment", "insights:delete_insight", "insights:read_insight",
    "insights:read_insight_comments", "insights:read_insights", "insights:update_insight",
    "insights:update_insight_comment",
)  # fmt: skip
FIELDS = {
    "id", "title", "description", "category", "link", "status", "effort", "cost_impact", "created", "last_updated",
}  # fmt: skip
STATUSES = ["new", "in_progress", "on_hold", "addressed", "ignored"]
SORTS = ["category", "cost_impact", "effort", "last_updated", "status", "title"]
AVAILABLE = [
    {"field": "status", "valid_values": STATUSES, "valid_types": ["string"]},
    {"field": "hide_resolved", "valid_values": ["true", "false"], "valid_types": ["boolean"]},
]

# Titles, statuses, categories, efforts and cost impacts are chosen so that every sort key gives a different order.
KEPT = (
    ("delta", "ignored", "usage", "high", "9"),
    ("alpha", "new", "keys", "low", "10"),
    ("echo", "addressed", "cost", "medium", "-1.5"),
    ("bravo", "on_hold", "routes", "not_set", "0.25"),
    ("charlie", "in_progress", "errors", "low", "1000"),
)


class Desk:
    """A gateway with a key that has every insight scope."""

    def __init__(self, serving: Serving, key: str) -> None:
        self.serving = serving
        self.key = key

    async def ask(
        self, method: str, path: str, body: object = None, *, key: str = "", status: int = 200
    ) -> Any:
        answer = await self.serving.send(
            path, b"" if body is None else json.dumps(body).encode(), method=method, key=key or self.key
        )
        assert status == answer.status, answer.body
        return json.loads(answer.body)

    async def page(self, *query: tuple[str, str], status: int = 200) -> Any:
        return await self.ask("GET", f"/v2/insights?{urlencode(query)}", status=status)

    async def titles(self, *query: tuple[str, str]) -> list[str]:
        return [item["title"] for item in (await self.page(*query))["insights"]]

    async def fill(self) -> None:
        for title, status, category, effort, impact in KEPT:
            body = {
                "title": title,
                "status": status,
                "category": category,
                "effort": effort,
                "cost_impact": impact,
            }
            await self.ask("POST", "/v2/insights", body)

    async def one(self) -> str:
        made = await self.ask("POST", "/v2/insights", {"title": "a spike"})
        return str(made["insight"]["id"])


async def desk(serve: Serve) -> Desk:
    serving = await serve()
    return Desk(serving, await serving.make_key("desk", scopes=SCOPES))


async def test_an_empty_list(serve: Serve) -> None:
    """An empty list has the full envelope and the default sort, status ascending."""
    assert {
        "insights": [],
        "pagination": {
            "page_count": 0, "item_count": 0, "total_count": 0,
            "cursor": {"next_cursor": None, "previous_cursor": None, "has_next": False, "has_previous": False},
        },
        "filtering": {"available": AVAILABLE, "current": {}},
        "sorting": {
            "available": SORTS,
            "current": [{"sort_key": "status", "sort_order": "asc"}],
            "ordering": ["asc", "desc"],
        },
    } == await (await desk(serve)).page()  # fmt: skip


async def test_an_item(serve: Serve) -> None:
    """An item has exactly ten fields. Amounts are exact text. Times are epoch seconds as text."""
    reading = await desk(serve)
    body = {"title": " Spike ", "cost_impact": 12.5, "link": "https://example.com", "description": "why"}
    made = (await reading.ask("POST", "/v2/insights", body))["insight"]
    [item] = (await reading.page())["insights"]
    assert made == item == (await reading.ask("GET", f"/v2/insights/{made['id']}"))["insight"]
    assert set(item) == FIELDS
    assert ("Spike", "12.5", "new", "not_set", "why") == tuple(
        item[name] for name in ("title", "cost_impact", "status", "effort", "description")
    )
    assert float(item["created"]) == float(item["last_updated"]) > 1_700_000_000


SORTED = {
    "category": ["echo", "charlie", "alpha", "bravo", "delta"],
    "cost_impact": ["echo", "bravo", "delta", "alpha", "charlie"],
    "effort": ["bravo", "alpha", "charlie", "echo", "delta"],
    "last_updated": [title for title, *_ in KEPT],
    "status": ["alpha", "charlie", "bravo", "echo", "delta"],
    "title": ["alpha", "bravo", "charlie", "delta", "echo"],
}


async def test_sorting(serve: Serve) -> None:
    """Six sort keys work in both directions. Status and effort sort by meaning, amounts as numbers."""
    reading = await desk(serve)
    await reading.fill()
    assert SORTED["status"] == await reading.titles()
    for key, titles in SORTED.items():
        # Insights with equal effort are ordered by their random ids.
        same = {"alpha": "low", "charlie": "low"} if key == "effort" else {}
        expected = [same.get(title, title) for title in titles]
        for order in ("asc", "desc"):
            payload = await reading.page(("sort_key", key), ("sort_order", order))
            found = [same.get(item["title"], item["title"]) for item in payload["insights"]]
            assert (expected if order == "asc" else expected[::-1]) == found
            assert [{"sort_key": key, "sort_order": order}] == payload["sorting"]["current"]
        assert expected == [same.get(title, title) for title in await reading.titles(("sort_key", key))]


@pytest.mark.proves("`hide_resolved`")
async def test_filtering(serve: Serve) -> None:
    """
    A filter parameter takes one value and may be repeated. The answer lists the applied filters.
    `hide_resolved`, which the published client sends, combines with status filters and holds on every page.
    """
    reading = await desk(serve)
    await reading.fill()
    everything = ["alpha", "charlie", "bravo", "echo", "delta"]
    hidden, shown = ("hide_resolved", "true"), ("hide_resolved", "false")
    cases: tuple[tuple[tuple[tuple[str, str], ...], list[str]], ...] = (
        ((), everything),
        ((("status", "new"),), ["alpha"]),
        ((("status", "ignored"), ("status", "new")), ["alpha", "delta"]),
        ((("status", "new"), ("status", "new")), ["alpha"]),
        (tuple(("status", status) for status in STATUSES), everything),
        ((hidden,), ["alpha", "charlie", "bravo"]),
        ((shown,), everything),
        ((hidden, ("status", "ignored"), ("status", "new")), ["alpha"]),
        ((hidden, ("status", "ignored")), []),
    )
    for asked, titles in cases:
        payload = await reading.page(*asked)
        assert titles == [item["title"] for item in payload["insights"]], asked
        current: dict[str, list[str]] = {}
        for name, value in dict.fromkeys(asked):
            current.setdefault(name, []).append(value)
        assert current == payload["filtering"]["current"]
        assert AVAILABLE == payload["filtering"]["available"]
        assert len(titles) == payload["pagination"]["total_count"]
        first = await reading.page(*asked, ("limit", "1"))
        if cursor := first["pagination"]["cursor"]["next_cursor"]:
            assert titles[1:] == await reading.titles(("cursor", cursor), ("limit", "10"))


WRONG_QUESTIONS: Sequence[tuple[list[tuple[str, str]], str]] = [
    ([("status", "open")], "status must be one of new, in_progress, on_hold, addressed, ignored"),
    ([("status", "new,ignored")], "status must be one of"),
    ([("sort_key", "title"), ("sort_key", "status")], "only once"),
]


async def test_wrong_questions(serve: Serve) -> None:
    """A wrong query gets a 400 that names the valid choices."""
    reading = await desk(serve)
    for query, words in WRONG_QUESTIONS:
        error = (await reading.page(*query, status=400))["error"]
        assert words in error["message"], (query, words)


async def test_the_life_of_an_insight(serve: Serve) -> None:
    """
    An insight is created, changed, commented and deleted with its comments. Every change is audited under
    the key's name.
    """
    reading = await desk(serve)
    id = await reading.one()
    changed = (await reading.ask("PATCH", f"/v2/insights/{id}", {"status": "in_progress"}))["insight"]
    assert changed["status"] == "in_progress"
    assert changed["title"] == "a spike"
    path = f"/v2/insights/{id}/comments"
    first = (await reading.ask("POST", path, {"message": "who?"}))["comment"]
    second = (await reading.ask("POST", path, {"message": "search"}))["comment"]
    edited = (await reading.ask("PATCH", f"{path}/{first['id']}", {"message": "who was it?"}))["comment"]
    listed = await reading.ask("GET", path)
    assert {"insight", "comments", "pagination", "filtering", "sorting"} == set(listed)
    assert listed["insight"] == {"id": id}
    assert listed["comments"] == [edited, second]
    assert {"id", "insight", "message", "author", "created", "last_updated"} == set(edited)
    assert ("desk", "who was it?", {"id": id}) == tuple(
        edited[name] for name in ("author", "message", "insight")
    )
    third = (await reading.ask("POST", path, {"message": "a secret by mistake"}))["comment"]
    page = await reading.ask("GET", f"{path}?limit=2")
    deleted = {"comment": {"id": third["id"]}}
    assert deleted == await reading.ask("DELETE", f"{path}/{third['id']}")
    await reading.ask("DELETE", f"{path}/{third['id']}", status=404)
    await reading.ask("PATCH", f"{path}/{third['id']}", {"message": "again"}, status=404)
    cursor = quote(page["pagination"]["cursor"]["next_cursor"])
    assert [] == (await reading.ask("GET", f"{path}?cursor={cursor}"))["comments"]
    gone = await reading.ask("DELETE", f"/v2/insights/{id}")
    assert {"insight": {"id": id}, "comments": [{"id": first["id"]}, {"id": second["id"]}]} == gone
    await reading.ask("GET", f"/v2/insights/{id}", status=404)
    registry = reading.serving.app.services.storage.registry
    assert registry is not None
    rows = [row for row in await audit_rows(registry) if row.actor == "desk"]
    actions = [
        "create",
        "change",
        "comment",
        "comment",
        "comment.change",
        "comment",
        "comment.delete",
        "delete",
    ]
    assert [f"insight.{action}" for action in actions] == [row.action for row in rows]
    [row] = [row for row in rows if row.action == "insight.comment.delete"]
    assert {"comment": int(third["id"]), "author": "desk"} == row.before


REFUSED: Sequence[tuple[str, str, object, int, str]] = [
    ("POST", "/v2/insights", {}, 400, "title"),
    ("POST", "/v2/insights", {"title": "  "}, 400, "needs a title"),
    ("POST", "/v2/insights", {"title": "x", "status": "open"}, 400, "status"),
    ("POST", "/v2/insights", {"title": "x", "effort": "tiny"}, 400, "effort"),
    ("POST", "/v2/insights", {"title": "x", "cost_impact": "much"}, 400, "cost_impact must be a decimal"),
    ("POST", "/v2/insights", {"title": "x", "cost_impact": "Infinity"}, 400, "cost_impact must be a decimal"),
    ("POST", "/v2/insights", {"title": "x", "link": "javascript:alert(1)"}, 400, "link must be an address"),
    ("POST", "/v2/insights", {"title": "x", "link": "https://"}, 400, "link must be an address"),
    ("PATCH", "/v2/insights/{id}", {"link": "//example.com/x"}, 400, "link must be an address"),
    ("POST", "/v2/insights", {"title": "x" * 257}, 400, "title must have at most 256"),
    ("GET", "/v2/insights/none/comments", None, 404, "no insight has this id"),
    ("POST", "/v2/insights/none/comments", {"message": "x"}, 404, "no insight has this id"),
    ("POST", "/v2/insights/{id}/comments", {"message": " "}, 400, "a comment must not be empty"),
    ("PATCH", "/v2/insights/{id}/comments/7", {"message": "x"}, 404, "no comment with this id"),
    ("PATCH", "/v2/insights/{id}/comments/x", {"message": "x"}, 404, "no comment with this id"),
    ("DELETE", "/v2/insights/{id}/comments/7", None, 404, "no comment with this id"),
]


async def test_what_is_refused(serve: Serve) -> None:
    """A refusal has the plain form: a type and a message that names the field."""
    reading = await desk(serve)
    id = await reading.one()
    for method, path, body, status, words in REFUSED:
        error = (await reading.ask(method, path.replace("{id}", id), body, status=status))["error"]
        assert words in error["message"], (method, path, body)
        assert {"type", "message"} == set(error), (method, path, body)


async def test_found_again(serve: Serve) -> None:
    """
    An insight that is found again keeps its status and comments. An addressed insight becomes new again.
    """
    reading = await desk(serve)
    registry = reading.serving.app.services.storage.registry
    assert registry is not None
    table = registry.insights

    async def look(*findings: Finding) -> None:
        await table.merge_findings(findings, looked_for=["spike"])

    async def state() -> tuple[str, str]:
        [item] = (await reading.page())["insights"]
        return item["status"], item["cost_impact"]

    def found(impact: str, newest: float | None = None) -> Finding:
        return Finding(
            key="spike:monday", draft=InsightDraft(title="Spike", cost_impact=impact), newest=newest
        )

    await look(found("5"))
    id = (await reading.page())["insights"][0]["id"]
    await table.add_comment(id, "looking", actor=ACTOR)
    await table.change(id, status="on_hold", actor=ACTOR)
    await look(found("7"))
    assert ("on_hold", "7") == await state()
    assert 1 == len(await table.comments(id))
    addressed = await table.change(id, status="addressed", actor=ACTOR)
    await look(found("7", newest=addressed.status_at - 60))
    assert ("addressed", "7") == await state()
    await look(found("8", newest=addressed.status_at + 60))
    assert ("new", "8") == await state()
    await table.change(id, status="addressed", actor=ACTOR)
    await look(found("8"))
    assert ("addressed", "8") == await state()
    await look()
    await look(found("9"))
    assert ("new", "9") == await state()
    await table.change(id, status="ignored", actor=ACTOR)
    await look()
    await look(found("9"))
    assert ("ignored", "9") == await state()

"""Answers link to the console page that shows the same data."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

from gateway.mcp.tools.list import TOOLS
from gateway.operations.holders.operators import PublicUrls
from spool.registry.insights import InsightDraft
from spool.registry.views import NewView
from tests.integration.conftest import ACTOR
from tests.integration.mcp.conftest import Assistant
from tests.integration.mcp.test_findings import make_budget
from tests.integration.mcp.test_tools import QUESTIONS
from tests.integration.operations.test_console_page import STATIC
from tests.spool.savings import SAVING

# for these tools, no page of the console shows the same data
WITHOUT = {"get_available_dimensions", "get_reference_info"}


async def link_of(assistant: Assistant, tool: str, **asked: object) -> str:
    """Return the link in the text of an answer, or an empty string."""
    result = await assistant.call(tool, **asked)
    found = re.search(r"^In the console: (\S+)$", result["content"][0]["text"], re.MULTILINE)
    return found.group(1) if found else ""


def read(link: str) -> tuple[str, dict[str, list[str]]]:
    """Return the page of a link and its parameters."""
    path, _, query = urlsplit(link).fragment.partition("?")
    return path, parse_qs(query)


async def test_links_lead_to_pages_that_are_there(assistant: Assistant) -> None:
    """Every tool with a console page links to an existing page, and so does each row that has one."""
    pages = set(re.findall(r'path: "([^"]+)"', (STATIC / "pages/list.mjs").read_text()))
    registry = assistant.serving.app.services.operators.installation.require_registry()
    await make_budget(registry, "Search")
    await registry.insights.create(
        InsightDraft(title="Spike", category="spike", cost_impact="2"), actor=ACTOR
    )
    await registry.recommendations.merge_savings([SAVING], looked_for=[SAVING.type])
    address = assistant.serving.app.services.operators.installation.urls().console
    for tool, (asked, *_) in QUESTIONS.items():
        if tool == "get_telemetry_data":
            continue  # this installation has no stream to query
        link = await link_of(assistant, tool, **asked)
        assert (tool in WITHOUT) is (link == ""), tool
        if link:
            assert link.partition("#")[0] == address, link
            assert read(link)[0] in pages, link
    for tool, root, page in (
        ("get_budgets", "budgets", "/budgets"), ("get_insights", "insights", None),
        ("get_optimize_recs", "recommendations", "/recommendations"),
    ):  # fmt: skip
        for row in (await assistant.content(tool))[root]:
            where = page or f"/{row['kind']}s"
            assert (where, {"open": [row["id"]]}) == read(row["link"])
    assert {name for name, tool in TOOLS.items() if not tool.writes} == set(QUESTIONS)


async def test_link_to_costs_has_the_same_query(assistant: Assistant) -> None:
    """The link keeps the time, groups, filters and view. Names from senders are encoded."""
    evil = "a) b|c&by=team"
    await assistant.calls("gpt-4o", evil)
    views = assistant.serving.app.services.operators.installation.require_registry().views
    view = await views.create(
        NewView(name="All", filter={}, principal_dimension="model"),
        known_dimensions=("model",),
        max_rows=9,
        actor=ACTOR,
    )
    today = datetime.now(UTC).date().isoformat()
    filters = {"model": [evil], "!team": [None]}
    link = await link_of(
        assistant, "get_cost_data", group_by=["model", "team", "user"], date_range="today", measure="calls",
        granularity="daily", filters=filters, view="All",
    )  # fmt: skip
    assert re.fullmatch(r"[!-~]+", link) and "|" not in link and ")" not in link
    wanted = {
        "from": [today], "by": ["model", "team"], "measure": ["calls"], "bin": ["daily"], "view": [view.id],
        "model": [evil], "team!": ["unknown"],
    }  # fmt: skip
    assert ("/costs", wanted) == read(link)
    days = {"start": "2026-01-01", "end": "2026-01-31"}
    compared = read(
        await link_of(assistant, "compare_costs", date_range=days, baseline={**days, "end": "2026-01-15"})
    )
    wanted = {
        "from": ["2026-01-01"],
        "to": ["2026-01-31"],
        "by": ["model"],
        "against": ["2026-01-01..2026-01-15"],
        "parts": ["1"],
    }
    assert ("/costs", wanted) == compared


async def test_a_link_is_given_where_people_can_follow_it(assistant: Assistant) -> None:
    """
    Links use the public address if one is set. A server that listens on all interfaces gives none, and no
    link is too long.
    """
    services = assistant.serving.app.services.operators
    services.installation.urls = lambda: PublicUrls(console="http://0.0.0.0:4318/console/")
    assert "" == await link_of(assistant, "get_org_context")
    services.installation.urls = lambda: PublicUrls(
        console="http://0.0.0.0:4318/console/", public="https://toll.example/console/"
    )
    assert "https://toll.example/console/#/" == await link_of(assistant, "get_org_context")
    many = [f"{n}{'x' * 200}" for n in range(20)]
    await assistant.calls(*many)
    assert "" == await link_of(assistant, "get_cost_data", filters={"model": many})

"""The newer tools keep their answers within the size limit. Rows that are cut still count in the sums."""

from __future__ import annotations

import json
import threading
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import pytest
import pytest_asyncio

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.claims import CauseClaim
from gateway.bills.reconciliation.comparing import Reconciliation
from gateway.bills.reconciliation.lines import DIFFERS, ComparisonLine
from gateway.bills.reconciliation.reconciler import ReconciledMonth
from gateway.configuration.sections import Config, McpSettings
from gateway.configuration.server import AnswerSettings
from gateway.core.first_use import LazyValue
from gateway.mcp.resources import CONTEXT_URI, VIEW_URI
from gateway.mcp.tool import MAX_BYTES
from spool.money import text_to_units
from spool.registry.insights import ADDRESSED
from spool.registry.recommendations import MAX_RECOMMENDATIONS
from spool.registry.views import NewView
from spool.settings import SpoolSettings
from tests.integration.conftest import ACTOR
from tests.integration.mcp.conftest import Assistant, OpenAssistant
from tests.integration.receivers.test_topics import SUM, body, usage, writer
from tests.rounds import IS_LONG
from tests.spool.savings import SAVING

VALUES = 5000 if IS_LONG else 1000
LONG = "ignore | previous\u202e " + "ü" * 230


@pytest_asyncio.fixture
async def assistant(open_assistant: OpenAssistant) -> Assistant:
    """Return an assistant whose queries may take long, because only their sizes are checked."""
    return await open_assistant(Config(answers=AnswerSettings(max_time=3600.0), spool=SpoolSettings(hold=0)))


async def bounded(assistant: Assistant, tool: str, **asked: Any) -> Any:
    """
    Return the structured content of an answer within the size limit, after checking that no control
    characters hide a name.
    """
    result = await assistant.call(tool, **asked)
    assert result["isError"] is False, result
    text = json.dumps(result, ensure_ascii=False)
    assert len(text.encode()) <= MAX_BYTES + 1000, tool
    assert "ü" in text and "\u202e" not in text
    return result["structuredContent"]


async def test_a_reconciliation(assistant: Assistant) -> None:
    """
    Many providers have thousands of models and causes each. The shown rows and the rest add up to the total.
    """
    lines = [
        ComparisonLine(
            name=f"{LONG}{n}",
            billed=text_to_units("2"),
            counted=text_to_units("1"),
            state=DIFFERS,
            billed_tokens=3,
        )
        for n in range(VALUES)
    ]
    for line in lines:
        line.parts["volume"] = line.difference
    total = ComparisonLine(
        billed=2 * VALUES * text_to_units("1"),
        counted=VALUES * text_to_units("1"),
        state=DIFFERS,
        billed_tokens=3 * VALUES,
    )
    total.parts["volume"] = total.difference
    claim = CauseClaim(
        cause="unreported_traffic",
        amount=1,
        tokens=1,
        moved=1,
        sure="likely",
        evidence=LONG * 9,
        advice=LONG * 9,
    )
    one: dict[str, Any] = {
        "total": total, "days": (), "models": lines, "keys": (), "claims": [claim] * VALUES, "finest": "day",
        "has_money": True, "sources": (), "set_aside": (), "foreign": {}, "only_billed": {}, "only_counted": {},
        "renamed": (),
    }  # fmt: skip
    found = [Reconciliation(provider=f"{LONG}{n}", **one) for n in range(50)]

    class Stub:
        async def reconcile(self, month: CalendarMonth) -> ReconciledMonth:
            return ReconciledMonth(month=month, providers=found, without={})

    assistant.serving.app.services.operators.money.reconciler = LazyValue(lambda: cast(Any, Stub()))
    content = await bounded(assistant, "get_reconciliation", limit=50)
    assert content["provider_count"] == 50
    assert content["truncated"] is True
    for each in content["providers"]:
        shown = [*each["rows"], each["rest"]]
        for name in ("billed", "counted", "difference", "volume"):
            assert text_to_units(each["total"][name]) == sum(text_to_units(line[name]) for line in shown)
        assert VALUES == each["cause_count"]


async def test_realized_savings(assistant: Assistant) -> None:
    """The answer is bounded even if the maximum number of recommendations is stored and all are addressed."""
    table = assistant.serving.app.services.operators.installation.require_registry().recommendations
    savings = [replace(SAVING, key=f"{SAVING.type}:{n}", title=LONG) for n in range(MAX_RECOMMENDATIONS)]
    await table.merge_savings(savings, looked_for=[SAVING.type])
    ids = [each.id for each in await table.all()]
    for start in range(0, len(ids), 500):
        await table.change_recommendations(ids[start : start + 500], status=ADDRESSED, actor=ACTOR)
    content = await bounded(assistant, "get_realized_savings", limit=100)
    assert content["saving_count"] == MAX_RECOMMENDATIONS
    assert content["truncated"] is True
    assert Decimal(SAVING.monthly_savings) * MAX_RECOMMENDATIONS == Decimal(content["total_promised"])


@pytest.mark.proof
async def test_recommendations(assistant: Assistant) -> None:
    """
    The answer is bounded even if the maximum number of recommendations is stored, each about many teams. The
    total covers all of them.
    """
    table = assistant.serving.app.services.operators.installation.require_registry().recommendations
    teams = [f"{LONG}{n}" for n in range(50)]
    long = LONG * 9
    saving = replace(SAVING, title=long, description=long, formula=long, assumptions=[long] * 3)
    saving = replace(saving, dimensions={"team": teams, "user": teams})
    many = [replace(saving, key=f"{SAVING.type}:{n}") for n in range(MAX_RECOMMENDATIONS)]
    await table.merge_savings(many, looked_for=[SAVING.type])
    content = await bounded(assistant, "get_optimize_recs", limit=50)
    assert content["recommendation_count"] == MAX_RECOMMENDATIONS
    assert content["truncated"] is True
    assert Decimal(SAVING.monthly_savings) * MAX_RECOMMENDATIONS == Decimal(content["total_monthly_savings"])


async def test_records_of_a_stream(assistant: Assistant) -> None:
    """A dimension has thousands of values. On every page the shown rows and the rest add up to the total."""
    hour = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    at = hour.isoformat().replace("+00:00", "Z")
    key = await writer(assistant.serving)
    for start in range(0, VALUES, 1000):
        records = [usage(timestamp=at, filter={"Region": [f"{LONG}{n}"]}) for n in range(start, start + 1000)]
        assert 200 == (await assistant.serving.send(SUM, body(*records), key=key)).status
    content = await bounded(assistant, "get_telemetry_data", stream="api-calls", limit=100)
    assert content["record_count"] == VALUES
    assert content["truncated"] is True
    assert str(VALUES) == content["total"]
    assert VALUES == Decimal(content["other"]) + sum(Decimal(each["value"]) for each in content["records"])


async def test_resources(assistant: Assistant) -> None:
    views = assistant.serving.app.services.operators.installation.require_registry().views
    draft = NewView(name="All", filter={}, principal_dimension="model", group_by=("model", "request_model"))
    view = await views.create(draft, known_dimensions=("model", "request_model"), max_rows=10, actor=ACTOR)
    for start in range(0, VALUES, 1000):
        await assistant.calls(*(f"{LONG}{n}" for n in range(start, start + 1000)))
    for uri in (CONTEXT_URI, f"{VIEW_URI}{view.id}"):
        answer = await assistant.ask("resources/read", {"uri": uri})
        assert answer.status == 200
        assert len(answer.body) <= MAX_BYTES + 1000
        assert "\u202e" not in answer.body.decode()


async def test_values_are_cleaned_and_compared_off_the_event_loop(
    open_assistant: OpenAssistant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many values exist, cleaning and comparing them runs off the event loop, which senders need."""
    assistant = await open_assistant(Config(mcp=McpSettings(calls_per_minute=0), spool=SpoolSettings(hold=0)))
    await assistant.calls("ß0", "ß1", "ß2")
    loop, on_the_loop = threading.get_ident(), []
    category = unicodedata.category

    def noted(character: str) -> str:
        if character == "ß" and threading.get_ident() == loop:
            on_the_loop.append(character)
        return category(character)

    monkeypatch.setattr(unicodedata, "category", noted)
    found = await assistant.content("get_dimension_values", dimension="model", match="ß")
    assert 3 == found["value_count"]
    for asked in ({"&model": ["1"]}, {"model": ["ß1"]}):
        found = await assistant.content("get_cost_data", filters=asked, group_by=["model"])
        assert [{"model": "ß1"}] == [row["group"] for row in found["rows"]]
    await assistant.content("compare_costs", group_by=["model"])
    assert [] == on_the_loop

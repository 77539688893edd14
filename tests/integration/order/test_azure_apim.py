"""
Azure API Management's metrics next to its log: in any order the metrics are kept for reference. Without the
log they count.
"""

from __future__ import annotations

import json
from typing import Any

from tests.integration.order.cases import CASES
from tests.integration.order.running import Request, told_in_every_order, told_in_memory

ROWS = CASES / "gateway/azure_apim"
LOG = Request("azure_apim", (ROWS / "llm-log-rows.json").read_bytes())


def metric(name: str, total: int) -> dict[str, Any]:
    """Return a row of AppMetrics with the tokens of three requests in a minute."""
    return {
        "TimeGenerated": "2026-11-20T10:00:00Z", "Name": name, "Sum": total, "Min": 1, "Max": total, "ItemCount": 3,
        "AppRoleName": "apim-prod", "AppRoleInstance": "gw-0",
        "Properties": {"API ID": "azure-openai", "Subscription ID": "team-search", "Prompt": "PLANTED"},
    }  # fmt: skip


METRICS = Request(
    "azure_apim",
    json.dumps(
        [metric("Prompt Tokens", 1200), metric("Completion Tokens", 340), metric("Total Tokens", 1540)]
    ).encode(),
)


def test_metrics_repeat_the_log() -> None:
    """The rows of total tokens are dropped, and a repeated row is a duplicate."""
    for rows, _ in told_in_every_order([LOG, METRICS]):
        shadows = {row["token_type"]: row["shadow"] for row in rows if row["kind"] == "usage_metric"}
        assert {"input": True, "output": True} == shadows
        assert 2 == len([row for row in rows if row["kind"] == "usage_metric"])


def test_metrics_alone_count() -> None:
    """If the log of Azure API Management is not exported, its metrics count."""
    rows, _ = told_in_memory([METRICS, METRICS])
    assert [("input", 1200, False), ("output", 340, False)] == sorted(
        (row["token_type"], row["value"], row["shadow"]) for row in rows
    )
    assert all({"api": "azure-openai", "subscription": "team-search"} == row["tags"] for row in rows)

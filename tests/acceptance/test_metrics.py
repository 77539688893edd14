"""Metrics of a new server that dashboards and alerts rely on."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from gateway.devices.fleet.coverage import STATES as FLEET_STATES
from gateway.devices.machine_state import WORDS
from spool.record import TOPICS
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE, post, request, span
from tests.waiting import wait_until

RECORDS = (
    "received", "accepted", "duplicate", "ignored", "rejected", "amended", "amended_late", "corrected", "bridged",
    "bridged_late", "conflict", "unidentified",
)  # fmt: skip
ROUTE = (
    "delivered_total",
    "dead_total",
    "refused_total",
    "ambiguous_total",
    "queued_records",
    "oldest_age_seconds",
    "unknown",
)
SINGLE = (
    "spool_entries", "spool_bytes", "spool_free_bytes", "duplicate_window_seconds", "commit_seconds_count",
    "flush_seconds_count", "loop_lag_seconds", "clock_step_seconds", "failed_attempts_total",
)  # fmt: skip


def scraped(tollhouse: Tollhouse) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Return the labels and values of all series by name."""
    text = KEEP_ALIVE.request("GET", f"{tollhouse.url}/metrics").data.decode()
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def test_every_series_of_the_contract_is_there_from_the_start(installations: Any) -> None:
    """
    All series start at 0 before any record, because a rate over a series that starts later misses its first step.
    """
    tollhouse: Tollhouse = installations()
    tollhouse.start()
    found = scraped(tollhouse)

    for name in RECORDS:
        series = found[f"tollhouse_records_{name}_total"]
        assert set(TOPICS) == {labels["topic"] for labels, _ in series}, name
        assert {0.0} == {value for _, value in series}, name
    for name in ROUTE:
        assert [({"route": "archive/ai-telemetry"}, 0.0)] == found[f"tollhouse_route_{name}"], name
    states = {labels["state"]: value for labels, value in found["tollhouse_route_state"]}
    assert {"running": 1.0, "parked": 0.0, "refusing": 0.0} == {
        name: states[name] for name in states if name != "orphaned"
    }
    assert set(WORDS) == {labels["state"] for labels, _ in found["tollhouse_devices"]}
    assert {labels["state"] for labels, _ in found["tollhouse_fleet_devices"]} == set(FLEET_STATES)
    assert {"heard", "silent", "disabled"} == {labels["state"] for labels, _ in found["tollhouse_clusters"]}
    for name in ("waiting_files", "waiting_bytes", "oldest_age_seconds"):
        assert [({}, 0.0)] == found[f"tollhouse_container_{name}"]
    answered = {labels["endpoint"] for labels, value in found["tollhouse_requests_total"] if value == 0}
    assert {"otlp/traces", "otlp/metrics", "otlp/logs"} <= answered
    assert [] == [name for name in SINGLE if f"tollhouse_{name}" not in found]


def test_cost_and_tokens_are_there_if_they_are_wanted_and_after_a_restart(installations: Any) -> None:
    """
    The metric for the month's cost comes from the ledger, so a new process shows it as well. Without the setting,
    the cost metrics are absent.
    """
    tollhouse: Tollhouse = installations(server="metrics_names = 5")
    key = tollhouse.key("sender")
    tollhouse.start()
    assert 200 == post(tollhouse.url, request([span("one", tollhouse__team="red")]), key).status
    tollhouse.wait_until_drained()
    tollhouse.kill()
    tollhouse.start()

    def month() -> list[tuple[dict[str, str], float]]:
        return scraped(tollhouse).get("tollhouse_month_cost_dollars", [])

    wait_until(month, "the cost of the month")
    [(labels, cost)] = month()
    assert ("openai", "estimated") == (labels["provider"], labels["cost_source"]) and cost > 0
    found = scraped(tollhouse)
    assert {"input", "output"} == {each["direction"] for each, _ in found["tollhouse_tokens_total"]}
    assert 5.0 == {each["name"]: value for each, value in found["tollhouse_limit"]}["server.metrics_names"]

    tollhouse.stop()
    tollhouse.config.write_text(tollhouse.config.read_text().replace("metrics_names = 5", ""))
    tollhouse.start()
    assert set() == {"tollhouse_month_cost_dollars", "tollhouse_tokens_total"} & set(scraped(tollhouse))
    assert "server.metrics_names" not in {each["name"] for each, _ in scraped(tollhouse)["tollhouse_limit"]}

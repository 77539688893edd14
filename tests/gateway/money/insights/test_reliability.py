"""
Detectors of retry storms, stopped routes, rejected records, unrecognized telemetry and devices without calls.
"""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from gateway.clusters.clusters import UnappliedConfig
from gateway.money.insights.detector_facts import DAY_S, RouteDeadLetters, UnrecognisedShape
from gateway.money.insights.detectors.calls import retry_storm
from gateway.money.insights.detectors.records import (
    dead_letters,
    lake_differs,
    refused_records,
    stuck_route,
    unknown_arrival,
    unmapped_events,
    unrecognised_shape,
)
from gateway.money.insights.detectors.senders import silent_cluster, unapplied_config
from spool.clusters import Cluster
from spool.deliveries.protocols import LakeState, LakeVerdict
from spool.deliveries.values import RouteState
from spool.log.counted_names import EventType
from tests.gateway.money.insights.examples import NOW, found, impacts, spend

RUNNING = RouteState(
    name="upstream/ai-telemetry", topic="ai-telemetry", required=True, state="running", reason=None, progress=1,
    queued=0, oldest_age_s=None, delivered=9, refused=0, dead=0, stuck=0,
)  # fmt: skip


def test_a_storm_of_failures() -> None:
    """Two hours in which most calls failed are one finding, with the cost of the failed calls."""
    hours = [spend(0.5, errors=90, calls=100), spend(0.25, errors=60, calls=90), spend(0.1, errors=1)]
    failed = [spend(0.5, cost=Decimal(2)), spend(0.25, cost=Decimal(1)), spend(0.1, cost=Decimal(50))]
    [finding] = found(retry_storm, hours=hours, failed=failed)
    assert finding.draft.title == "150 of 190 calls of gpt-4o failed within 2 hours"
    assert finding.draft.cost_impact == "3.00"


def test_usual_failures_are_no_storm() -> None:
    """Many errors among far more calls are ignored, and so are a few calls that all failed."""
    assert [] == found(retry_storm, hours=[spend(errors=40, calls=1000), spend(0.5, errors=20, calls=20)])


def test_routes_that_deliver_nothing() -> None:
    """
    A stopped route has a finding with advice for its state. Its waiting records are weighed with the average cost.
    """
    routes = [
        RUNNING,
        replace(RUNNING, name="a/ai-telemetry", state="parked", reason="401", queued=100),
        replace(RUNNING, name="b/ai-telemetry", state="refusing", queued=50),
        replace(RUNNING, name="c/ai-telemetry", state="orphaned"),
        replace(RUNNING, name="d/ai-telemetry", stuck=1),
    ]
    findings = found(stuck_route, routes=routes, week=[spend(cost=Decimal(20))])
    assert ["20.00", "10.00", "0.00", "0.00"] == impacts(findings)
    ends = ["is paused", "is rejected", "is without a destination", "is stuck"]
    titles = [finding.draft.title for finding in findings]
    assert all(any(title.endswith(end) for title in titles) for end in ends)


def test_a_running_route_is_calm() -> None:
    """A queue is not a finding while the route is running."""
    assert [] == found(stuck_route, routes=[replace(RUNNING, queued=1000)])


def test_deliveries_of_unknown_fate() -> None:
    """
    A running route may have deliveries that were sent without an answer. The finding says how to resolve them.
    """
    [finding] = found(
        unknown_arrival, routes=[RUNNING, replace(RUNNING, name="upstream/unit-cost", unknown=1200)]
    )
    assert "upstream/unit-cost may or may not have 1,200 records" == finding.draft.title
    assert "tollhouse streams resolve" in finding.draft.description


def test_records_that_were_rejected_within_a_day() -> None:
    """
    The finding about records rejected within a day has the newest reason, and names only routes
    with rejected records.
    """
    routes = [
        RUNNING,
        replace(RUNNING, refused_recently=1250, refusal="no chain"),
        replace(RUNNING, name="b/ai-telemetry"),
    ]
    [finding] = found(refused_records, routes=routes)
    assert "upstream/ai-telemetry rejected 1,250 records within a day" == finding.draft.title
    assert "The newest reason: no chain." in finding.draft.description
    assert "tollhouse spool replay" in finding.draft.description


def test_dead_letters_that_grow() -> None:
    """Rejected records of the last day are reported with their cost. Older ones are ignored."""
    dead = RouteDeadLetters(
        route="a/ai-telemetry", count=7, recent=3, newest=NOW, newest_error="not allowed", cost=Decimal("1.5")
    )
    [finding] = found(dead_letters, dead=[dead, replace(dead, route="b/ai-telemetry", recent=0)])
    assert finding.draft.title == "a/ai-telemetry rejected 3 records within a day"
    assert finding.draft.cost_impact == "1.50"


def test_shapes_that_nobody_understands() -> None:
    """
    Findings about unrecognized telemetry name the attributes, the most frequent first. Old shapes and shapes beyond
    the limit are not listed.
    """
    shapes = [
        UnrecognisedShape(names=(f"acme.{number:02}", "acme.tokens"), count=number, last_seen=NOW)
        for number in range(1, 40)
    ]
    findings = found(
        unrecognised_shape,
        shapes=[*shapes, UnrecognisedShape(names=("old",), count=99, last_seen=NOW - 8 * DAY_S)],
    )
    assert 20 == len(findings)
    assert "39 items look like AI calls but are unrecognized" == findings[0].draft.title
    assert "acme.39, acme.tokens" in findings[0].draft.description
    assert [] == found(unrecognised_shape)


def test_names_of_senders_are_cut_and_printable() -> None:
    [finding] = found(
        unrecognised_shape, shapes=[UnrecognisedShape(names=("x\x1b" * 500,), count=1, last_seen=NOW)]
    )
    assert "\x1b" not in finding.draft.description
    assert len(finding.draft.description) < 600


def test_clusters_that_report_no_more() -> None:
    """
    The finding about silent clusters has their display names, the most recently seen first, and the command to
    delete them.
    """
    mill = Cluster(id="c-1", account="1", region="eu", name="mill", first_seen=0.0, last_seen=NOW - 2 * DAY_S)
    yard = replace(mill, id="c-2", display_name="The yard", last_seen=NOW - DAY_S)
    first, second = found(silent_cluster, silent_clusters=[mill, yard])
    assert "The cluster The yard has stopped reporting" == first.draft.title
    assert "The cluster mill has stopped reporting" == second.draft.title
    assert "tollhouse clusters delete c-1 --confirm c-1" in second.draft.description


def test_configurations_that_no_agent_runs() -> None:
    """If no agent has used a configuration for a day, the finding repeats the agent's problem."""
    mill = Cluster(id="c-1", account="1", region="eu", name="mill", first_seen=NOW, last_seen=NOW)
    waiting = [
        UnappliedConfig(cluster=mill, state="failed", since=NOW - DAY_S, problem="no room"),
        UnappliedConfig(cluster=replace(mill, id="c-2"), state="pending", since=NOW - DAY_S + 1),
    ]
    [finding] = found(unapplied_config, unapplied_configs=waiting)
    assert "The cluster mill does not run its configuration" == finding.draft.title
    assert "the state failed since" in finding.draft.description and "no room" in finding.draft.description


def test_usage_events_without_a_mapping() -> None:
    """The finding about event types without a stream lists the types of the last week, the most frequent first."""
    seen = [
        EventType(type="login", count=2, last_seen=NOW - 60),
        EventType(type="api_call", count=3, last_seen=NOW - 60),
        EventType(type="old", count=9, last_seen=NOW - 8 * DAY_S),
    ]
    findings = found(unmapped_events, unmapped=seen)
    assert [
        "3 usage events of the type api_call have no stream",
        "2 usage events of the type login have no stream",
    ] == [finding.draft.title for finding in findings]
    assert "[upstream.events]" in findings[0].draft.description


def test_a_lake_that_differs() -> None:
    """If the newest check of a route found differences, the finding lists their kinds."""
    sound = LakeVerdict(route="lake/ai-telemetry", at=NOW - 60, files=3, rows=30, differences={})
    difference_text = "ai_telemetry/v1/date=2026-11-20/lake.parquet: 10 records, $1"
    broken = replace(
        sound, route="other/ai-telemetry", differences={"missing": 2, "foreign": 1}, words=difference_text
    )
    states = [LakeState(route=state.route, landed_at=NOW, verdict=state) for state in (sound, broken)]
    never = LakeState(route="new/ai-telemetry", landed_at=None, verdict=None)
    [finding] = found(lake_differs, lakes=[*states, never])
    assert "The lake of other/ai-telemetry differs from what was sent" == finding.draft.title
    assert f"1 foreign, 2 missing. The first one: {difference_text}." in finding.draft.description

"""What needs attention: one entry per cause, one number for every page, and only for those who may see it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.operations.money import attention
from gateway.operations.money.insights import make_insight_updater
from gateway.operations.money.reports.declared import NewScheduledReport, ScheduledReportTable
from spool.deliveries.values import RouteSpec
from spool.devices.device import Device
from spool.listing import ListPage, ListQuery
from spool.log.accounting import route_topic
from spool.record import AI_TELEMETRY, UNIT_COST
from spool.registry.insights import CallFilter, Finding, Insight, InsightDraft
from spool.registry.notices import RUNNING, ChannelCounts, ChannelState
from spool.registry.permission_sets import VIEW_COSTS
from spool.registry.roles import FULL, IS, LIMITED, NewRole, RoleFilter, RoleLimits
from spool.registry.views import NewView
from tests.integration.conftest import ACTOR
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer, operator_server
from tests.spool.contract.examples import add, call

ROUTE = "archive/ai-telemetry"
KEY = "403: forbidden (key costs)"
PAUSED = "Forwarding of ai-telemetry to archive is paused"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as server:
        await server.services.spool.deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])
        server.registry.notices.channels = ("desk",)
        yield server


async def needs(server: OperatorServer, headers: dict[str, str] | None = None) -> Any:
    answer = await (
        server.over_http("GET", "/attention", headers=headers) if headers else server.ask("GET", "/attention")
    )
    assert 200 == answer.status, answer.payload
    return answer.payload["attention"]


async def critical(server: OperatorServer, title: str) -> str:
    draft = InsightDraft(title=title, category="delivery")
    return (await server.registry.insights.create(draft, actor=ACTOR)).id


async def pause(server: OperatorServer) -> None:
    await server.services.spool.deliveries.set_route_state(ROUTE, "parked", KEY)


async def test_nothing_needs_attention(server: OperatorServer) -> None:
    assert {"count": 0, "operation": True, "planted": None, "causes": []} == await needs(server)


async def test_a_problem_and_its_insight_are_one_cause(server: OperatorServer) -> None:
    """
    A problem and its insight are one entry in the list of what needs attention: a paused route counts at once,
    before a detector runs, and its insight adds no second entry. Another critical insight does, in the order of the
    list of insights.
    """
    await pause(server)
    early = await needs(server)
    assert 1 == early["count"]
    [cause] = early["causes"]
    assert ("route", ROUTE, PAUSED, "critical", None) == tuple(
        cause[name] for name in ("kind", "subject", "title", "severity", "insight")
    )
    assert f"{PAUSED}: archive refuses Tollhouse's key costs (403). Nothing is lost." == cause["text"]
    assert 200 == (await server.ask("POST", "/insights/run", {})).status
    later = await needs(server)
    [insight] = await server.registry.insights.detector_insights()
    assert 1 == later["count"]
    assert [{**cause, "insight": insight.id}] == later["causes"]
    own = await critical(server, "The lake lacks a day")
    found = await needs(server)
    assert 2 == found["count"]
    assert [insight.id, own] == [each["insight"] for each in found["causes"]]


async def test_a_missing_destination_is_one_cause(server: OperatorServer) -> None:
    """
    A missing destination is one cause: its routes count once, before and after a detector runs. People put off the
    whole cause.
    """
    names = [f"lake/{topic}" for topic in (AI_TELEMETRY, UNIT_COST)]
    deliveries = server.services.spool.deliveries
    await deliveries.set_routes([RouteSpec(name=name, topic=route_topic(name)) for name in (ROUTE, *names)])
    await deliveries.set_routes([RouteSpec(name=ROUTE, topic=AI_TELEMETRY)])
    text = (
        "The configuration no longer has the destination lake, so its ai-telemetry and unit-cost records "
        "wait. Nothing is lost."
    )
    for _ in range(2):
        found = await needs(server)
        assert 1 == found["count"]
        assert [("ai-telemetry and unit-cost for lake have no destination", text)] == [
            (cause["title"], cause["text"]) for cause in found["causes"]
        ]
        await server.ask("POST", "/insights/run", {})
    [insight] = await server.registry.insights.detector_insights()
    assert insight.title == "The routes lake/ai-telemetry and lake/unit-cost are without a destination"
    await server.ask("PATCH", f"/insights/{insight.id}", {"status": "on_hold"})
    assert 0 == (await needs(server))["count"]


async def test_routes_that_stopped_for_other_reasons_are_other_causes(server: OperatorServer) -> None:
    deliveries = server.services.spool.deliveries
    names = [f"lake/{topic}" for topic in (AI_TELEMETRY, UNIT_COST)]
    await deliveries.set_routes([RouteSpec(name=name, topic=route_topic(name)) for name in names])
    for name, reason in zip(names, (KEY, "404: no such path"), strict=True):
        await deliveries.set_route_state(name, "parked", reason)
    assert names == [
        cause["subject"] for cause in (await needs(server))["causes"] if cause["subject"] in names
    ]


async def test_reports_that_do_not_reach_everybody(server: OperatorServer) -> None:
    """
    A scheduled report whose channels were deleted is a critical cause, and one that missed a recipient is a
    warning. While there is no channel at all, both wait for one.
    """
    view = await server.registry.views.create(
        NewView(name="All", filter={}, principal_dimension="team"),
        known_dimensions={"team": ()},
        max_rows=10,
        actor=ACTOR,
    )
    table = server.registry.declared_table(ScheduledReportTable)
    for name, channel in (("lost", "deleted"), ("partial", "desk"), ("good", "desk")):
        draft = NewScheduledReport(name=name, view=view.id, channels=(channel,))
        report = await table.create(draft, max_rows=10, actor=ACTOR, owner="")
        if name == "partial":
            await table.store_notices_once(
                report, report.next_due_at(report.created), [], "not sent: bob has no account"
            )
    server.services.installation.channels = channels_of("desk")
    found = await needs(server)
    assert [
        ("The scheduled report lost reaches nobody: its channels no longer exist", "critical"),
        ("The scheduled report partial did not reach everybody: not sent: bob has no account", "warning"),
    ] == [(cause["text"], cause["severity"]) for cause in found["causes"]]
    server.registry.notices.channels = ()
    [cause] = (await needs(server))["causes"]
    assert cause["text"] == "Nobody is notified: there is no channel. 3 scheduled reports reach nobody."


def channels_of(*names: str) -> Callable[[], Awaitable[Sequence[ChannelState]]]:
    async def channels() -> Sequence[ChannelState]:
        return [
            ChannelState(
                name=name,
                type="webhook",
                state=RUNNING,
                reason="",
                insights="critical",
                counts=ChannelCounts(),
                oldest=None,
            )
            for name in names
        ]

    return channels


async def test_a_laptop_that_loses_calls_is_named(server: OperatorServer) -> None:
    """If laptops lose calls, the cause names at most three of them, and none that was not seen for two weeks."""
    devices = server.services.senders.devices
    assert devices is not None
    claims = b'{"assistants": {"codex": {"state": "unreachable", "cause": "agent_down"}}}'
    now = server.clock.now()
    for number in range(6):
        seen = now - 15 * 86_400 if number == 5 else now - 10 * devices.interval_s
        device = Device(id=f"laptop-{number}", enrolled_at=0, enrolled_by="test", last_seen=seen)
        await devices.table.replace_row(replace(device, heartbeat=claims, last_heartbeat=seen))
    [cause] = (await needs(server))["causes"]
    assert cause["text"] == "Lost calls on 5 laptops: laptop-0, laptop-1, laptop-2 and 2 more"


async def test_losses_of_half_the_fleet_are_critical_and_found_at_once(server: OperatorServer) -> None:
    """
    If half of the fleet loses calls, the overview and the insight both state this as critical. The inspector does
    not wait for its next turn.
    """
    devices = server.services.senders.devices
    assert devices is not None
    watching = make_insight_updater(server.services)
    assert not await watching.has_changed_state()
    now = server.clock.now()
    for number in range(20):
        state = b"unreachable" if number < 10 else b"unused"
        claims = b'{"assistants": {"codex": {"state": "' + state + b'"}}}'
        device = Device(id=f"laptop-{number}", enrolled_at=0, enrolled_by="test", last_seen=now)
        await devices.table.replace_row(replace(device, heartbeat=claims, last_heartbeat=now))
    assert await watching.has_changed_state()
    await watching.find_and_store_insights()
    assert not await watching.has_changed_state()
    [cause] = (await needs(server))["causes"]
    assert ("critical", "Lost calls on 10 laptops") == (cause["severity"], cause["title"])
    [insight] = (await server.ask("GET", "/insights")).payload["insights"]
    assert ("critical", "coverage") == (insight["severity"], insight["category"])


@pytest.mark.parametrize(
    ("status", "count"), [("on_hold", 0), ("ignored", 0), ("addressed", 1), ("in_progress", 1)]
)
async def test_people_put_a_problem_off(server: OperatorServer, status: str, count: int) -> None:
    """A problem does not count while its insight is on hold or ignored. It counts if somebody says it is solved."""
    await pause(server)
    await server.ask("POST", "/insights/run", {})
    [insight] = await server.registry.insights.detector_insights()
    await server.ask("PATCH", f"/insights/{insight.id}", {"status": status})
    assert count == (await needs(server))["count"]


async def test_critical_insights_count_while_they_are_open(server: OperatorServer) -> None:
    """
    The number of critical causes equals the number that the filter for critical open insights finds. Insights of a
    lower severity do not count.
    """
    ids = [await critical(server, title) for title in ("one", "two", "three")]
    await server.registry.insights.create(InsightDraft(title="dear", cost_impact="900"), actor=ACTOR)
    await server.registry.insights.change(ids[0], status="in_progress", actor=ACTOR)
    await server.registry.insights.change(ids[1], status="on_hold", actor=ACTOR)
    listed = await server.ask("GET", "/insights?status=new&status=in_progress&severity=critical")
    found = await needs(server)
    assert 2 == found["count"] == listed.payload["pagination"]["total_count"]
    assert [row["id"] for row in listed.payload["insights"]] == [
        cause["insight"] for cause in found["causes"]
    ]


async def test_many_insights(server: OperatorServer) -> None:
    """All critical insights count, and the first 200 are listed. Insights of a lower severity are not read."""
    for category, number in (("delivery", 230), ("prices", 40)):
        findings = [
            Finding(
                key=f"{category}:{each}", draft=InsightDraft(title=f"{category} {each}", category=category)
            )
            for each in range(number)
        ]
        await server.registry.insights.merge_findings(findings, looked_for=())
    page = server.registry.insights.page
    read: list[int] = []

    async def counted(query: ListQuery) -> ListPage[Insight]:
        answer = await page(query)
        read.append(len(answer.rows))
        return answer

    server.registry.insights.page = counted  # type: ignore[method-assign]
    found = await needs(server)
    assert (230, 200, [230]) == (found["count"], len(found["causes"]), read)


async def test_problems_without_an_insight(server: OperatorServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejected records, deliveries without an answer and a full disk are causes, each with its subject."""
    spool = server.services.spool
    await add(spool.log, *[call(number) for number in range(3)])
    for _ in range(2):
        delivery = await spool.deliveries.take_due_delivery(ROUTE, now=server.clock.now(), max_records=1)
        assert delivery is not None
        await spool.deliveries.set_aside(delivery, error="no such model", status="400")
    monkeypatch.setattr(attention, "NEARLY_FULL", 0.0)
    found = await needs(server)
    assert [
        ("space", None, "The queue on disk is 0 % full"),
        ("dead", ROUTE, f"2 rejected records of {ROUTE}"),
    ] == [(cause["kind"], cause["subject"], cause["title"]) for cause in found["causes"]]
    assert 2 == found["count"]


async def test_a_missing_channel_is_a_warning(server: OperatorServer) -> None:
    """A missing notification channel is the last cause in the list, and does not count as critical."""
    server.registry.notices.channels = ()
    await pause(server)
    found = await needs(server)
    assert [("route", "critical"), ("no_channel", "warning")] == [
        (cause["kind"], cause["severity"]) for cause in found["causes"]
    ]
    assert 1 == found["count"]


async def test_unknown_insights_are_not_zero(server: OperatorServer) -> None:
    """While the registry is damaged, this is a cause itself, in addition to those that are known."""
    await pause(server)
    server.services.installation.registry = None
    server.services.installation.registry_problem = "registry.sqlite is damaged"
    found = await needs(server)
    assert [("registry", "registry.sqlite is damaged"), ("route", found["causes"][1]["text"])] == [
        (cause["kind"], cause["text"]) for cause in found["causes"]
    ]
    assert 2 == found["count"]


@pytest.mark.parametrize("is_limited", [False, True])
async def test_people_see_only_what_they_may(server: OperatorServer, is_limited: bool) -> None:
    """
    A person without the right to see the operation learns only of insights. A person with limited access learns
    only of insights about visible calls.
    """
    headers = await signed_in(server, "none")
    draft = NewRole(
        name="Costs",
        data_access=LIMITED if is_limited else FULL,
        filters=(RoleFilter(dimension="team", values=("search",), mode=IS),) if is_limited else (),
        permission_sets=(VIEW_COSTS,),
        members=("ada@example.com",),
    )
    known = server.services.money.ledger.dimensions()
    await server.registry.roles.create(draft, known_dimensions=known, limits=RoleLimits(), actor=ACTOR)
    server.registry.notices.channels = ()
    await pause(server)
    await critical(server, "of all calls")
    await server.registry.insights.merge_findings(
        [
            Finding(
                key=f"lost:{team}",
                draft=InsightDraft(title=f"of {team}", category="delivery"),
                concerns=CallFilter(include={"team": (team,)}),
            )
            for team in ("search", "ads")
        ],
        looked_for=(),
    )
    found = await needs(server, headers)
    seen = {"of search"} if is_limited else {"of search", "of ads", "of all calls"}
    assert seen == {cause["title"] for cause in found["causes"]}
    assert len(seen) == found["count"]
    assert found["operation"] is False
    listed = await server.over_http("GET", "/insights?severity=critical", headers=headers)
    assert seen == {row["title"] for row in listed.payload["insights"]}
    assert len(seen) == listed.payload["counts"]["open"]

"""
Problems that people should notice: the console, a command and a metric name each of them. A new problem is one row
of THINGS, and one of the installations must have its cause. Causes that take time lie in the past: the storage has
old arrivals and old heartbeats. `tollhouse insights check` is the inspection that a server makes every ten minutes.
In the installation without a cause, nothing is named.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.reader import load_config
from gateway.operations.money.reports.declared import NewScheduledReport, ScheduledReportTable
from gateway.service.assembly.storage import open_storage
from spool.clock import SystemClock
from spool.deliveries.values import Delivery, RouteSpec
from spool.devices.device import Device
from spool.identity import RecordIdentity
from spool.log.accounting import route_topic
from spool.log.values import Submission
from spool.record import AI_TELEMETRY, NS, UNIT_COST, UnitCostOperation
from spool.registry.operators import Actor
from spool.registry.registry import Registry
from spool.registry.tables.inventory import Machine
from spool.registry.tables.sender_hours import HOUR_S, RUNNING
from spool.registry.views import NewView
from spool.storage import Storage
from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import KEEP_ALIVE
from tests.clients.loopback import Loopback, body_of
from tests.exporters.notifications.examples import SECRET
from tests.spool.contract.examples import add, call
from tests.waiting import wait_until

pytestmark = pytest.mark.proof

DAY_S = 86_400.0
INTERVAL_S = 3_600.0  # interval of heartbeats in seconds, so long that no laptop falls silent during the test
ACTOR = Actor("ada@example.com", "test")
DOCTOR = ("doctor",)
INSIGHTS = ("insights", "list")


Metrics = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Thing:
    """
    A problem that people should notice, and where it is named. `at` is the installation that has the cause.
    `console` is part of a title or text of /attention or of an open insight, and `printed` is part of the output of
    `command`. `metric` returns whether the metrics show the problem.
    """

    name: str
    at: str = "troubled"
    console: str
    command: tuple[str, ...] = DOCTOR
    printed: str
    metric: Callable[[Metrics], bool]


def _is_over_zero(series: str) -> Callable[[Metrics], bool]:
    return lambda metrics: metrics.get(series, 0.0) > 0


def _is_full(metrics: Metrics) -> bool:
    free, used = metrics["tollhouse_spool_free_bytes"], metrics["tollhouse_spool_bytes"]
    return free / (free + used) < 0.1


def _of_route(name: str, route: str, state: str, *, console: str, printed: str) -> Thing:
    metric = _is_over_zero(f'tollhouse_route_state{{route="{route}",state="{state}"}}')
    return Thing(name=name, console=console, printed=f"route {route}: {printed}", metric=metric)


NOBODY = "1 budget and 1 scheduled report reach nobody"
LAPTOPS = "Lost calls on 1 laptop: laptop-losing"
AGENTS = "The agent stopped on 1 laptop: laptop-stopped"
THINGS = (
    Thing(
        name="a gateway stops reporting",
        console="The source litellm has stopped sending",
        command=INSIGHTS,
        printed="The source litellm has stopped sending",
        metric=_is_over_zero('tollhouse_sender_stopped{kind="source",sender="litellm"}'),
    ),
    _of_route(
        "a destination rejects everything",
        "strict/ai-telemetry",
        "refusing",
        console="strict rejects every record of ai-telemetry",
        printed="rejected",
    ),
    _of_route(
        "a destination refuses the key",
        "closed/ai-telemetry",
        "parked",
        console="Forwarding of ai-telemetry to closed is paused: closed refuses Tollhouse's key (403)",
        printed="paused",
    ),
    _of_route(
        "a destination is no longer configured",
        "old-lake/unit-cost",
        "orphaned",
        console="ai-telemetry and unit-cost for old-lake have no destination",
        printed="without a destination",
    ),
    Thing(
        name="a destination rejected a record",
        console="1 rejected record of archive/ai-telemetry",
        printed="1 rejected record of archive/ai-telemetry",
        metric=_is_over_zero('tollhouse_route_dead_total{route="archive/ai-telemetry"}'),
    ),
    Thing(
        name="a destination gave no answer",
        console="1 record sent to archive/unit-cost without an answer",
        printed="1 record sent to archive/unit-cost without an answer",
        metric=_is_over_zero('tollhouse_route_unknown{route="archive/unit-cost"}'),
    ),
    Thing(
        name="a budget has no channel",
        console=NOBODY,
        printed=NOBODY,
        metric=_is_over_zero("tollhouse_budgets_without_channel"),
    ),
    Thing(
        name="a scheduled report has no channel",
        console=NOBODY,
        printed=NOBODY,
        metric=_is_over_zero('tollhouse_scheduled_reports{state="without_channel"}'),
    ),
    Thing(
        name="a scheduled report goes to a deleted channel",
        at="notifying",
        console="The scheduled report Friday reaches nobody: its channels no longer exist",
        printed="The scheduled report Friday reaches nobody: its channels no longer exist",
        metric=_is_over_zero('tollhouse_scheduled_reports{state="without_channel"}'),
    ),
    Thing(
        name="a channel refuses notifications",
        at="notifying",
        console="The channel desk sends no notifications",
        printed="The channel desk sends no notifications",
        metric=_is_over_zero('tollhouse_notification_channel_state{channel="desk",state="parked"}'),
    ),
    Thing(
        name="the queue on disk is full",
        at="full",
        console="The queue on disk is",
        printed="The queue on disk is",
        metric=_is_full,
    ),
    # laptops: further states of devices and assistants belong here
    Thing(
        name="a laptop loses calls",
        console=LAPTOPS,
        printed=LAPTOPS,
        metric=_is_over_zero('tollhouse_devices{state="losing"}'),
    ),
    Thing(
        name="the agent of a laptop stopped, and the MDM still sees the laptop",
        console=AGENTS,
        printed=AGENTS,
        metric=_is_over_zero('tollhouse_devices{state="agent_stopped"}'),
    ),
    Thing(
        name="why a laptop loses calls",
        console="Codex on laptop-losing is used while the agent is stopped",
        command=INSIGHTS,
        printed="Codex on laptop-losing is used while the agent is stopped",
        metric=_is_over_zero('tollhouse_insights{detector="fleet_losing",severity="info"}'),
    ),
)


class Receiver(Loopback):
    """Rejects every record, or the key if the path is /closed."""

    def __init__(self) -> None:
        super().__init__(_Handler)


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body_of(self)
        self.send_response(403 if self.path == "/closed" else 400)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing."""


BASE = f"""
[server]
listen = "127.0.0.1:0"
grpc_listen = ""
[spool]
hold = "0s"
max_bytes = "{{max_bytes}}"
[devices]
heartbeat_interval = "{INTERVAL_S:.0f}s"
[[destinations]]
name = "archive"
type = "ndjson"
path = "records.ndjson"
topics = ["{AI_TELEMETRY}", "{UNIT_COST}"]
"""
RECEIVER = """
[[{section}]]
name = "{name}"
type = "webhook"
url = "{url}/{name}"
secret_file = "secret"
"""


def _of_receiver(section: str, name: str, receiver: Receiver) -> str:
    return RECEIVER.format(section=section, name=name, url=receiver.url)


def installed(directory: Path, more: str = "", *, max_bytes: str = "1GiB") -> Tollhouse:
    house = Tollhouse(directory, BASE.format(max_bytes=max_bytes) + more)
    (directory / "secret").write_text(SECRET)
    return house


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture(scope="module")
def houses(tmp_path_factory: pytest.TempPathFactory, receiver: Receiver) -> Iterator[dict[str, Tollhouse]]:
    """
    Running installations by name. `calm` has no problem, and each other installation has the causes of the problems
    in its rows.
    """
    folder = tmp_path_factory.mktemp("noticed")
    destinations = "".join(_of_receiver("destinations", name, receiver) for name in ("strict", "closed"))
    desk = _of_receiver("notify", "desk", receiver).replace("/desk", "/closed")
    good = desk.replace('"desk"', '"good"')
    houses = {
        "calm": installed(folder / "calm", good),
        "troubled": installed(folder / "troubled", destinations),
        "notifying": installed(folder / "notifying", desk),
        "full": installed(folder / "full", good, max_bytes="16MiB"),
    }
    for name, plant in (
        ("calm", _calls),
        ("troubled", _trouble),
        ("notifying", _report_to_a_deleted_channel),
        ("full", _fill),
    ):
        asyncio.run(_planted(houses[name], plant))
    _budget(houses["troubled"])
    for house in houses.values():
        house.start()
    houses["notifying"].run("notifications", "channels", "test", "desk")
    troubled = houses["troubled"]
    wait_until(lambda: troubled.route("strict/ai-telemetry")["state"] == "refusing", "a rejection")
    wait_until(lambda: troubled.route("closed/ai-telemetry")["state"] == "parked", "a refused key")
    wait_until(lambda: _channel(houses["notifying"]) == "parked", "a refused notification")
    for house in houses.values():
        house.json("insights", "check")
    yield houses
    for house in houses.values():
        house.stop(code=None)


def _channel(house: Tollhouse) -> str:
    [channel] = house.asked("/notification-channels")["notification_channels"]
    return str(channel["state"])


async def _planted(house: Tollhouse, plant: Callable[[Storage], Any]) -> None:
    async with open_storage(load_config(house.config), clock=SystemClock()) as storage:
        await plant(storage)


async def _calls(storage: Storage) -> None:
    at = SystemClock().now() - 60
    await add(storage.log, *[call(n, at=at, request_model="toll-1", team="search") for n in range(3)])


async def _trouble(storage: Storage) -> None:
    now = SystemClock().now()
    names = [f"{name}/{topic}" for name in ("archive", "old-lake") for topic in (AI_TELEMETRY, UNIT_COST)]
    await storage.deliveries.set_routes([RouteSpec(name=name, topic=route_topic(name)) for name in names])
    await _calls(storage)
    await storage.log.append_submission(_sum(now))
    rejected = await _due(storage, "archive/ai-telemetry")
    await storage.deliveries.set_aside(rejected, error="the model is not known", status="422")
    cut_off = await _due(storage, "archive/unit-cost")
    await storage.deliveries.mark_outcome_unknown(cut_off, reason="the connection ended before an answer")
    await _laptops(storage, now)
    await _stop(_registry(storage), now)
    await _schedule(_registry(storage), "weekly")


async def _laptops(storage: Storage, now: float) -> None:
    """Add a laptop that loses calls, one whose agent stopped while the MDM sees it, and a good one."""
    losing = {"codex": {"state": "unreachable", "cause": "agent_down"}}
    for id, heard, claims, calls in (
        ("laptop-losing", now, losing, {}),
        ("laptop-stopped", now - DAY_S, {}, {"codex": now - DAY_S}),
        ("laptop-good", now, {}, {"codex": now}),
    ):
        await storage.devices.replace_row(
            Device(
                id=id,
                enrolled_at=now - 30 * DAY_S,
                enrolled_by="test",
                last_seen=heard,
                last_heartbeat=heard,
                newest_calls=calls,
                heartbeat=json.dumps({"assistants": claims}).encode(),
            )
        )
    for checked_in in (now - HOUR_S, now):
        machines = [Machine(serial="laptop-stopped", last_seen=checked_in)]
        actor = Actor("test", "")
        await _registry(storage).inventory.replace_machines(
            machines, source="csv", confirmed=True, actor=actor
        )


async def _stop(registry: Registry, now: float) -> None:
    """Add the hours of a gateway that sent in each hour of four weeks, and stopped six hours ago."""
    hours = range(int(now // HOUR_S) - 28 * 24, int(now // HOUR_S) + 1)
    running = {hour: float(hour * HOUR_S) for hour in hours}
    sent = {hour: at for hour, at in running.items() if at < now - 6 * HOUR_S}
    await registry.sender_hours.add({RUNNING: running, ("litellm", ""): sent}, now=now)


async def _schedule(registry: Registry, name: str) -> None:
    """Add a scheduled report to a channel that does not exist."""
    view = NewView(name="Everything", filter={}, principal_dimension="team")
    made = await registry.views.create(view, known_dimensions={"team": ()}, max_rows=10, actor=ACTOR)
    draft = NewScheduledReport(name=name, view=made.id, channels=("deleted",))
    await registry.declared_table(ScheduledReportTable).create(draft, max_rows=10, actor=ACTOR, owner="")


async def _report_to_a_deleted_channel(storage: Storage) -> None:
    await _schedule(_registry(storage), "Friday")


def _budget(house: Tollhouse) -> None:
    house.json("budgets", "create", "--name", "Search", "--view", "Everything", "--amount", "100")


async def _fill(storage: Storage) -> None:
    """Add records that no total and no destination has, until the queue is nearly full."""
    await storage.deliveries.set_routes([RouteSpec(name="archive/ai-telemetry", topic=AI_TELEMETRY)])
    at, number = SystemClock().now(), 0
    while (stats := await storage.log.stats()).bytes < 0.93 * stats.max_bytes:
        texts = [secrets.token_urlsafe(3000) for _ in range(20)]
        await add(
            storage.log, *[call(number + n, at=at, tags={"note": text}) for n, text in enumerate(texts)]
        )
        number += len(texts)


def _registry(storage: Storage) -> Registry:
    assert storage.registry is not None
    return storage.registry


async def _due(storage: Storage, route: str) -> Delivery:
    delivery = await storage.deliveries.take_due_delivery(route, now=SystemClock().now(), max_records=1)
    assert delivery is not None
    return delivery


def _sum(now: float) -> Submission:
    operation = UnitCostOperation(
        id=b"o" * 16, stream="requests", stream_type="allocation", operation="sum", start_time=int(now) * NS,
        granularity="DAILY", element_name="acme", value="2",
    )  # fmt: skip
    return Submission(
        topic=UNIT_COST, received=1, records=[operation], identities=[RecordIdentity(operation.id)]
    )


def on_console(house: Tollhouse) -> str:
    """Return the texts of the causes on Overview and of the open insights."""
    causes = house.asked("/attention")["attention"]["causes"]
    insights = house.asked("/insights?limit=100")["insights"]
    return "\n".join([text for cause in causes for text in (cause["title"], cause["text"])]
                     + [insight["title"] for insight in insights])  # fmt: skip


def printed(house: Tollhouse, command: tuple[str, ...]) -> str:
    """Return the output of a command. Diagnoses of the doctor that are not a warning or a problem are left out."""
    if command != DOCTOR:
        return house.run(*command)
    found = json.loads(house.attempt(*command, "--json").stdout)["doctor"]["found"]
    return "\n".join(
        f"{one['about']}: {one['words']}" for one in found if one["status"] not in ("ok", "note")
    )


def metrics(house: Tollhouse) -> Metrics:
    text = KEEP_ALIVE.request("GET", f"{house.url}/metrics").data.decode()
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.fixture(scope="module")
def commands(houses: dict[str, Tollhouse]) -> Callable[[str, tuple[str, ...]], str]:
    """Return the output of a command at an installation. Each runs once, because the installations stay the same."""
    return cache(lambda name, command: printed(houses[name], command))


@pytest.mark.parametrize("thing", THINGS, ids=lambda thing: thing.name)
def test_a_thing_is_noticed(
    houses: dict[str, Tollhouse], commands: Callable[[str, tuple[str, ...]], str], thing: Thing
) -> None:
    """
    The console, a command and a metric name each problem. None of them does in the installation without a problem.
    """
    house, calm = houses[thing.at], houses["calm"]
    assert thing.console in on_console(house)
    assert thing.printed in commands(thing.at, thing.command)
    assert thing.metric(metrics(house))
    assert thing.console not in on_console(calm)
    assert thing.printed not in commands("calm", thing.command)
    assert not thing.metric(metrics(calm))


def test_nothing_else_is_noticed(
    houses: dict[str, Tollhouse], commands: Callable[[str, tuple[str, ...]], str]
) -> None:
    """Each cause on the Overview has a row in THINGS, so that a command and a metric name it as well."""
    assert "" == on_console(houses["calm"])
    assert "attention" not in commands("calm", DOCTOR)
    for name in ("troubled", "notifying", "full"):
        for cause in houses[name].asked("/attention")["attention"]["causes"]:
            texts = f"{cause['title']}\n{cause['text']}"
            assert any(
                thing.console in texts or thing.console.startswith(cause["title"]) for thing in THINGS
            ), texts

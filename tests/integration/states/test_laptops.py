"""A laptop has one state at any time: in Fleet, Devices, Overview, insights, metrics, commands, CSV and MCP."""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from gateway.configuration.sections import Config, DeviceSettings
from gateway.devices.fleet.heartbeat_facts import CAUSES
from gateway.devices.fleet.repairs import repair_of_cause
from gateway.devices.machine_state import CLOCK_WRONG, MACHINE, REVOKED_THERE, WORDS
from gateway.money.insights.findings import MAX_ROWS
from spool.clusters import ClusterTable, ReportedCluster
from spool.devices.device import ENROLLED, PENDING, REVOKED, REVOKED_UPSTREAM, Device
from spool.devices.table import DeviceTable
from spool.registry.operators import Actor
from spool.registry.tables.cluster_settings import ClusterChange
from spool.registry.tables.inventory import Machine
from tests.integration.conftest import Serve
from tests.integration.states.conftest import Faces, faces_of
from tests.moved_clock import MovedClock
from tests.rounds import IS_LONG, some

DAY_S, HOUR_S = 86_400.0, 3_600.0
ACTOR = Actor("test", "")


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest_asyncio.fixture
async def moved(serve: Serve, tmp_path: Path, clock: MovedClock) -> Faces:
    config = Config(devices=DeviceSettings(heartbeat_interval=600.0))
    return await faces_of(await serve(config=config, clock=clock), tmp_path / "data-0")


def made(dice: random.Random, number: int, now: float) -> Device:
    """Return a random device, as agents, calls and operators could have made it."""
    heard = now - dice.choice((0.0, HOUR_S, DAY_S, 13 * DAY_S, 20 * DAY_S))
    claims, uses, calls = {}, {}, {}
    for name in dice.sample(("codex", "copilot", "claude-code"), dice.randrange(4)):
        state = dice.choice(("unused", "unused", "reporting", *CAUSES))
        claims[name] = {"state": state, "cause": dice.choice(("", *CAUSES[state]))}
        if state == "unused" and claims[name]["cause"]:  # such a cause says that uses cannot be judged
            claims[name]["use"] = "unseen"
        uses[name] = {"setting": "configured", "since": heard - DAY_S}
        if dice.random() < 0.3:
            uses[name]["unheard"] = heard - dice.choice((60.0, 2 * HOUR_S))
        if dice.random() < 0.2:
            uses[name] |= {"missing": heard - HOUR_S, "missed": heard - dice.choice((60.0, 900.0))}
        if dice.random() < 0.6:
            calls[name] = heard - dice.choice((0.0, 3 * HOUR_S, 15 * DAY_S))
    heartbeat = {"assistants": claims, "spool": {"oldest_age_s": dice.choice((0.0, 2 * DAY_S))}}
    has_agent = dice.random() < 0.9
    return Device(
        id=f"d{number}",
        state=dice.choice((ENROLLED,) * 8 + (PENDING, REVOKED)),
        replaced_by=dice.choice(("",) * 19 + ("other",)),
        copied_at=dice.choice((None,) * 9 + (now,)),
        left_at=dice.choice((None,) * 14 + (now,)),
        enrolled_at=heard - DAY_S,
        enrolled_by="fleet",
        last_seen=dice.choice((heard,) * 9 + (0.0,)),
        clock_offset_s=dice.choice((None, 0.0, 1.5, -299.0, 400.0)),
        held=dice.choice((None,) * 9 + (REVOKED_UPSTREAM, "400 the name is too long")),
        last_heartbeat=heard if has_agent else None,
        newest_calls=calls,
        uses=json.dumps(uses),
        labels=dice.choice(({},) * 14 + ({"kind": "cluster"},)),
        heartbeat=json.dumps(heartbeat).encode() if has_agent else b"",
    )


async def test_every_face_says_the_same_at_random_times(moved: Faces, clock: MovedClock) -> None:
    services = moved.server.app.services.operators
    table = services.senders.require_devices().table
    inventory = services.installation.require_registry().inventory
    dice = random.Random(11)
    seen: Counter[str] = Counter()
    for round in range(6 if IS_LONG else 4):
        await table.delete([device.id for device in table.all()], [])
        for number in range(60):
            await table.replace_row(made(dice, number, clock.now()))
        for hours in (5.0, 0.0):  # the two lists show two check-ins of the same machine
            listed = [
                Machine(serial=f"d{n}", last_seen=clock.now() - hours * HOUR_S) for n in range(0, 60, 2)
            ]
            await inventory.replace_machines(listed, source="csv", confirmed=True, actor=ACTOR)
        clock.move(dice.choice((60.0, 3 * HOUR_S, 5 * DAY_S)))
        await services.senders.require_devices().store_changed_states()
        seen += await compare(moved, round)
    assert set(WORDS) <= seen.keys()


async def compare(faces: Faces, round: int) -> Counter[str]:
    """Compare the words of all devices on all faces. Return how often each word occurs."""
    devices = (await faces.api("/devices?limit=1000"))["devices"]
    word_of = {row["id"]: row["state"] for row in devices}
    link_of = {row["id"]: row["link"] for row in devices}
    fleet = (await faces.api("/fleet/devices?limit=1000"))["devices"]
    of_fleet = {row["device"]: row["state"] for row in fleet if row["device"]}
    hidden = {row["id"] for row in devices if is_hidden(row)}
    assert {id: word for id, word in word_of.items() if id not in hidden} == of_fleet, round
    assert {row["device"]: row["link"] for row in fleet if row["device"]} == {
        id: link_of[id] for id in of_fleet
    }
    for id in list(word_of)[:10]:
        shown = (await faces.api(f"/devices/{id}"))["device"]
        assert (word_of[id], link_of[id]) == (shown["state"], shown["link"])
        assert word_of[id] == shown["state_changes"][0]["state"]
        [one] = [row for row in fleet if row["device"] == id] or [shown]
        assert shown["assistants"] == one["assistants"]
    printed = await faces.printed("devices", "show", id)
    assert shown["state_changes"] == printed["device"]["state_changes"]
    printed = await faces.printed("devices", "list", "--limit", "1000")
    assert word_of == {row["id"]: row["state"] for row in printed["devices"]}
    table = (await faces.command("fleet", "devices", "--limit", "1000", "--csv")).stdout
    of_csv = {row["id"]: row["state"] for row in csv.DictReader(io.StringIO(table))}
    assert {row["id"]: row["state"] for row in fleet} == of_csv
    answer = await faces.tool("get_resource_metadata", kind="device", limit=100)
    assert word_of == {row["id"]: row["state"] for row in answer["rows"]}
    counted = Counter(word_of.values())
    metrics = await faces.metrics()
    for word in WORDS:
        assert counted[word] == metrics["tollhouse_devices", (("state", word),)], word
    coverage = await faces.api("/fleet/coverage")
    expected = [row for row in fleet if row["expected"] and not row["away"]]
    assert Counter(row["state"] for row in expected) == Counter(
        {word: count for word, count in coverage["states"].items() if count}
    )
    for word, count in coverage["states"].items():
        assert count == metrics["tollhouse_fleet_devices", (("state", word),)]
    assert sum(row["covered"] for row in expected) == coverage["covered"]
    causes = {
        cause["subject"]: cause["title"] for cause in await faces.attention() if cause["kind"] == "devices"
    }
    in_use = Counter(row["state"] for row in fleet if not row["away"])
    assert {word for word in ("losing", "agent_stopped") if in_use[word]} == causes.keys()
    for word, title in causes.items():
        assert f"{in_use[word]} laptop" in title
    await compare_insights(faces, fleet)
    return counted


def is_hidden(row: dict[str, Any]) -> bool:
    """Return whether a device is no machine of a person, or an earlier life of a machine."""
    is_cluster = {"kind": "cluster"}.items() <= row["labels"].items()
    return bool(is_cluster or row["state"] == "replaced")


async def compare_insights(faces: Faces, fleet: list[dict[str, Any]]) -> None:
    """
    An insight names the most frequent causes of machines that are not covered, and each cause that is not of an
    assistant. It names no other cause.
    """
    found = [insight for insight in await faces.insights() if not insight.is_no_longer_found]
    titles = [insight.title for insight in found]
    lines = [line for insight in found for line in (insight.title, *insight.description.splitlines())]
    in_use = [row for row in fleet if not row["away"]]
    bad = [row for row in in_use if not row["covered"]]
    words_of_causes = {
        cause["words"] for row in bad for cause in row["causes"] if cause["cause"] != "no_agent"
    }
    words_of_causes |= {
        cause["words"] for row in in_use for cause in row["causes"] if cause["state"] == MACHINE
    }
    known = [each for state, causes in CAUSES.items() for each in product([state], causes)]
    words = {repair_of_cause(cause).words for cause in (*known, CLOCK_WRONG, REVOKED_THERE)}
    told = {each for each in words | words_of_causes if any(line.endswith(f" {each}") for line in lines)}
    assert told <= words_of_causes
    assert len(told) >= min(len(words_of_causes), MAX_ROWS)
    is_stopped = any(row["state"] == "agent_stopped" and row["expected"] for row in bad)
    assert is_stopped == any(title.endswith(" has stopped reporting") for title in titles)


async def test_clusters_and_their_agents_at_random_times(moved: Faces, clock: MovedClock) -> None:
    """
    Random clusters with random agents. The state of a cluster is that of its device, on every face.
    """
    services = moved.server.app.services.operators
    devices, clusters = services.senders.require_devices(), services.senders.clusters
    assert clusters is not None
    dice = random.Random(5)
    seen: Counter[str] = Counter()
    for _ in some(range(12), every=4):
        await devices.table.delete([device.id for device in devices.table.all()], [])
        for cluster in list(clusters.table.all()):
            await clusters.table.delete(cluster.id, ACTOR)
        for number in dice.sample(range(12), 12):
            clock.move(dice.choice((0.0, 60.0, 300.0)))
            await plant(dice, number, devices.table, clusters.table, clock.now())
        clock.move(dice.choice((60.0, 1000.0, 3 * HOUR_S)))
        seen += await compare_clusters(moved)
    assert seen.keys() >= {"heard", "silent", "disabled", "collector", "revoked"}


async def plant(
    dice: random.Random, number: int, devices: DeviceTable, clusters: ClusterTable, now: float
) -> None:
    """Add a cluster that reports now, and a device that reports for it or for no cluster."""
    heard = now - dice.choice((0.0, 800.0, 3000.0, DAY_S))
    id = f"agent-{number}"
    reported = ReportedCluster(account="a", region="r", name=f"c{number}", device=dice.choice((id, id, "")))
    await clusters.store_report(reported)
    if dice.random() < 0.2:
        await clusters.change(reported.id, ClusterChange(enabled=False), ACTOR)
    await devices.replace_row(
        Device(
            id=id,
            state=dice.choice((ENROLLED, ENROLLED, ENROLLED, REVOKED)),
            hostname=f"host-{number}",
            labels={"kind": "cluster"},
            enrolled_at=1.0,
            enrolled_by="fleet",
            last_seen=heard,
            last_heartbeat=heard,
        )
    )


async def compare_clusters(faces: Faces) -> Counter[str]:
    devices = {row["id"]: row for row in (await faces.api("/devices?limit=1000"))["devices"]}
    clusters = (await faces.api("/clusters?limit=1000"))["clusters"]
    printed = (await faces.printed("clusters", "list"))["clusters"]
    state_of = {row["name"]: _state(row) for row in clusters}
    assert state_of == {row["name"]: _state(row) for row in printed}
    metrics = await faces.metrics()
    counted = Counter(state_of.values())
    for state in ("heard", "silent", "disabled"):
        assert counted[state] == metrics["tollhouse_clusters", (("state", state),)]
    table = faces.server.app.services.operators.senders.clusters
    assert table is not None
    for cluster in table.table.all():
        device = devices.get(cluster.device)
        if device is not None and device["link"] == "online":
            assert "silent" != state_of[cluster.name]
    titles = {insight.title for insight in await faces.insights() if not insight.is_no_longer_found}
    silent = {name for name, state in state_of.items() if state == "silent"}
    assert silent == {name for name in state_of if f"The cluster {name} has stopped reporting" in titles}
    words = Counter(row["state"] for row in devices.values())
    for word in WORDS:
        assert words[word] == metrics["tollhouse_devices", (("state", word),)], word
    return counted + words


def _state(row: dict[str, Any]) -> str:
    return ("silent" if row["silent"] else "heard") if row["enabled"] else "disabled"


async def test_a_device_that_is_replaced_stays_a_device(moved: Faces, clock: MovedClock) -> None:
    """
    A device that was replaced stays a device: the fleet does not list it, and every face of devices says
    `replaced`.
    """
    table = moved.server.app.services.single.devices.table
    known = made(random.Random(1), 1, clock.now())
    await table.replace_row(replace(known, id="old", state=REVOKED, replaced_by="new"))
    assert "replaced" == (await moved.api("/devices/old"))["device"]["state"]
    assert [] == (await moved.api("/fleet/devices"))["devices"]

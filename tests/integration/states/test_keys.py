"""
The state of an API key is the same word on every face: lists, commands, insights, metrics, assistants and its sender.

The keys were made 60 days ago by a registry whose clock was behind, so some of them have expired by now.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from gateway.configuration.reader import load_config
from gateway.service.assembly.storage import open_storage
from spool.clock import SystemClock
from spool.ledger.periods import minute_text
from spool.record import utc_iso
from spool.registry.operators import Actor
from spool.registry.scopes import AI_HUB, INGEST
from tests.acceptance.conftest import ARCHIVE, Tollhouse
from tests.integration.states import faces
from tests.moved_clock import MovedClock

HOUR_S, DAY_S = 3_600.0, 86_400.0
ACTOR = Actor("ada@example.com", "test")
TRIES = 3
NOW = round(time.time(), 3)


@dataclass(frozen=True, kw_only=True)
class PlantedKey:
    """
    A key with its state on every face. `ends_in_s` is its remaining time, None if it has no end, and `used_s` the time
    since its last use, None if it was never used. `severity` is None if no face should mention the key.
    """

    name: str
    state: str = "Enabled"
    ends_in_s: float | None = None
    used_s: float | None = None
    tries: int = 0
    severity: str | None = None

    @property
    def expires_at(self) -> float | None:
        return None if self.ends_in_s is None else NOW + self.ends_in_s

    @property
    def title(self) -> str:
        ends = "expired" if self.tries else "expires"
        text = f"The API key {self.name} {ends} on {minute_text(self.expires_at or 0.0, NOW)}"
        return f"{text} and is still used" if self.tries else text


KEYS = (
    PlantedKey(name="lasting", used_s=60),
    PlantedKey(name="last day", ends_in_s=12 * HOUR_S, used_s=60, severity="critical"),
    PlantedKey(name="last week", ends_in_s=3 * DAY_S, used_s=60, severity="warning"),
    PlantedKey(name="next week", ends_in_s=10 * DAY_S, used_s=60, severity="info"),
    PlantedKey(name="next month", ends_in_s=30 * DAY_S, used_s=60),
    PlantedKey(name="never used", ends_in_s=12 * HOUR_S, severity="info"),
    PlantedKey(name="used long ago", ends_in_s=12 * HOUR_S, used_s=40 * DAY_S, severity="info"),
    PlantedKey(
        name="over", state="Expired", ends_in_s=-2 * DAY_S, used_s=3 * DAY_S, tries=TRIES, severity="critical"
    ),
    PlantedKey(name="over and quiet", state="Expired", ends_in_s=-2 * DAY_S, used_s=3 * DAY_S),
    PlantedKey(name="over and disabled", state="Disabled", ends_in_s=-2 * DAY_S, used_s=3 * DAY_S),
    PlantedKey(name="disabled", state="Disabled", ends_in_s=12 * HOUR_S, used_s=60),
)
BY_NAME = {key.name: key for key in KEYS}


@dataclass(frozen=True, kw_only=True)
class Site:
    house: Tollhouse
    secrets: Mapping[str, str]
    answers: Mapping[str, tuple[int, str]]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A running installation with all keys. The sender of `over` has tried since it expired."""
    house = Tollhouse(tmp_path_factory.mktemp("keys"), ARCHIVE.format(server="", hold="0s", more=""))
    secrets = asyncio.run(_planted(house))
    house.start()
    for key in KEYS:
        if key.state == "Disabled":
            house.run("keys", "disable", key.name)
    tries = [faces.send(house, secrets["over"]) for _ in range(TRIES)]
    others = {name: faces.send(house, secrets[name]) for name in ("lasting", "disabled", "over and disabled")}
    yield Site(house=house, secrets=secrets, answers={**others, "over": tries[-1]})
    house.stop(code=None)


async def _planted(house: Tollhouse) -> Mapping[str, str]:
    behind = MovedClock(at=NOW - 60 * DAY_S)
    secrets = {}
    async with open_storage(load_config(house.config), clock=SystemClock(), registry_clock=behind) as storage:
        assert storage.registry is not None
        keys = storage.registry.keys
        for planted in KEYS:
            key, secret = await keys.create(
                name=planted.name, scopes=[INGEST], expires_at=planted.expires_at, actor=ACTOR
            )
            secrets[planted.name] = secret
            if planted.used_s is not None:
                await keys.store_access_times({key.id: NOW - planted.used_s})
    return secrets


def test_each_sender_reads_the_state_of_its_key(site: Site) -> None:
    """
    A sender whose key has expired gets an answer that says since when. A sender with a wrong secret learns nothing
    about a key.
    """
    for name, (status, text) in site.answers.items():
        key = BY_NAME[name]
        assert (200 if key.state == "Enabled" else 401) == status, name
        assert (key.state == "Disabled") == ("is disabled" in text), name
        assert (key.state == "Expired") == ("expired on" in text), name
    assert f"expired on {utc_iso(BY_NAME['over'].expires_at)}" in site.answers["over"][1]
    status, text = faces.send(site.house, site.secrets["over"][:-1] + "!")
    assert (401, True) == (status, "this API key is unknown or was deleted" in text)


def test_lists_and_commands_show_the_state(site: Site) -> None:
    """Lists and commands show the state of a key next to its published status, which stays Enabled or Disabled."""
    listed = {row["name"]: row for row in site.house.json("keys", "list", "--limit", "100")["keys"]}
    for key in KEYS:
        shown = site.house.asked(f"/keys/{key.name.replace(' ', '%20')}")["key"]
        for row in (listed[key.name], shown):
            assert key.state == row["state"], key.name
            assert ("Disabled" if key.state == "Disabled" else "Enabled") == row["status"], key.name
            assert key.tries == row.get("refused_since_expiry", 0), key.name
    assert "Expired" in site.house.run("keys", "show", "over")
    expired = site.house.json("keys", "list", "--state", "Expired")["keys"]
    assert {"over", "over and quiet"} == {row["name"] for row in expired}


def test_an_impact_that_nobody_stated_is_a_dash(site: Site) -> None:
    """The table and the text of an insight without a cost impact have a dash, and its JSON has the stored amount."""
    faces.insights(site.house)
    [row] = [
        each
        for each in site.house.json("insights", "list")["insights"]
        if BY_NAME["over"].title == each["title"]
    ]
    assert not float(row["cost_impact"])
    [line] = [
        line for line in site.house.run("insights", "list").splitlines() if BY_NAME["over"].title in line
    ]
    assert [row["id"], "new", "critical", "-", "low"] == line.split()[:5]
    assert "effort low, impact -, since" in site.house.run("insights", "show", row["id"])


def test_a_key_in_trouble_is_named_with_one_severity(site: Site) -> None:
    """
    A key in trouble is named with the same title and severity in overview, insights, doctor and check. The overview
    leaves out what is only information.
    """
    causes, insights = faces.causes(site.house), faces.insights(site.house)
    diagnoses = faces.diagnoses(site.house)
    code, checked = faces.check(site.house)
    assert 1 == code  # a key that is still used has expired
    for key in KEYS:
        insight = insights.pop(key.title, None) if key.expires_at is not None else None
        assert key.severity == (insight and insight["severity"]), key.name
        cause = causes.pop(key.title, None) if key.expires_at is not None else None
        shown = None if key.severity == "info" else key.severity
        assert shown == (cause and cause["severity"]), key.name
        marks = {"critical": "problem", "warning": "warning", None: None}
        said = {status for status, _, words in diagnoses if key.expires_at and words.startswith(key.title)}
        assert said == ({marks[shown]} if shown else set()), key.name
        problems = sum(text.startswith(key.title) for text in checked["problems"]) if key.expires_at else 0
        warned = sum(text.startswith(key.title) for text in checked["warnings"]) if key.expires_at else 0
        assert (shown == "critical", shown == "warning") == (problems, warned), key.name
    assert not [cause for cause in causes.values() if cause["kind"] == "key"]
    assert not [title for title in insights if " expire" in title]


def test_a_key_out_of_use_is_idle(site: Site) -> None:
    """A key that nobody uses is named by one insight, unless it has expired or is disabled."""
    idle = {title for title in faces.insights(site.house) if title.endswith("is not in use")}
    assert {f"The API key {name} is not in use" for name in ("never used", "used long ago")} == idle


def test_metrics_count_the_states(site: Site) -> None:
    """The numbers by state add up to the list. Only keys in use have a series of their expiry."""
    shown = faces.metrics(site.house)
    states = {row["name"]: row["state"] for row in site.house.asked("/keys?limit=100")["keys"]}
    for state in ("Enabled", "Disabled", "Expired"):
        count = list(states.values()).count(state)
        assert count == shown[f'tollhouse_keys{{state="{state}"}}'], state
    series = "tollhouse_key_end_timestamp_seconds"
    ends = {
        name: key.expires_at
        for name, key in BY_NAME.items()
        if key.expires_at and key.state == "Enabled" and key.used_s == 60
    }
    assert ends == {
        name.split('"')[1]: pytest.approx(at) for name, at in shown.items() if name.startswith(series)
    }
    tries = {name: at for name, at in shown.items() if name.startswith("tollhouse_expired_key_requests")}
    assert {'tollhouse_expired_key_requests{key="over"}': TRIES} == tries


def test_assistants_read_the_state(site: Site) -> None:
    secret = site.house.key("assistant", "--scope", AI_HUB)
    rows = faces.resources(site.house, "key", secret)
    assert {key.name: key.state.lower() for key in KEYS} == {
        name: row["state"] for name, row in rows.items() if name in BY_NAME
    }


def test_tries_survive_a_restart_and_end_with_a_new_date(site: Site) -> None:
    """
    The number of refused tries with an expired key is stored over a restart. A moved date lets the sender in again,
    and ends the count and the insight.
    """
    house = site.house
    house.stop()
    house.start()
    assert TRIES == house.asked("/keys/over")["key"]["refused_since_expiry"]
    house.run("keys", "edit", "over", "--expires-in", "90d")
    assert 200 == faces.send(house, site.secrets["over"])[0]
    shown = house.asked("/keys/over")["key"]
    assert ("Enabled", None) == (shown["state"], shown.get("refused_since_expiry"))
    assert BY_NAME["over"].title not in {*faces.insights(house), *faces.causes(house)}

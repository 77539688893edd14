"""The detector of sources and keys that stopped sending: one finding per stop, and none for a stop on purpose."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from gateway.money.insights.detector_facts import DAY_S
from gateway.money.insights.detectors.senders import idle_key, stopped_sender
from spool.record import DEVICE_KEYS
from spool.registry.insights import Finding
from spool.registry.keys import ApiKey, Secret
from spool.registry.tables.sender_hours import HOUR_S, RUNNING, SenderHours, hours_of_new_sender
from tests.gateway.money.insights.examples import NOW, found
from tests.gateway.money.insights.test_keys import key

NOW_H = int(NOW // HOUR_S)
WEEKS = 5


def sending(
    source: str, key: str, *, stopped_h: int = 0, hours: Iterable[int] = range(WEEKS * 7 * 24)
) -> SenderHours:
    """Return a pair that sent in some of the last hours, given by their age, until `stopped_h` hours ago."""
    ages = [age for age in hours if age >= stopped_h]
    return hours_of_new_sender((source, key), {NOW_H - age: (NOW_H - age) * HOUR_S + 1800.0 for age in ages})


RUNS = sending(*RUNNING)
KEYS = [key(id=1, name="prod"), key(id=2, name="staging")]


def titles(*hours: SenderHours, keys: Sequence[ApiKey] = KEYS, running: SenderHours = RUNS) -> list[str]:
    return [finding.draft.title for finding in reported(*hours, keys=keys, running=running)]


def reported(
    *hours: SenderHours, keys: Sequence[ApiKey] = KEYS, running: SenderHours = RUNS
) -> Sequence[Finding]:
    return found(stopped_sender, sender_hours=[running, *hours], keys=keys)


def test_a_busy_sender_is_named_after_four_whole_hours() -> None:
    assert [] == titles(sending("kong", "prod", stopped_h=5))
    [finding] = reported(sending("kong", "prod", stopped_h=6))
    assert "The API key prod has stopped sending" == finding.draft.title
    assert "silent for 4 or more of the hours in which it usually sends" in finding.draft.description
    assert "It sent with these sources: kong." in finding.draft.description
    assert finding.newest == (NOW_H - 6) * HOUR_S + 1800.0


def test_a_stop_is_reported_once() -> None:
    """
    The key is named if no other key sent the source. The source is named if all of its keys stopped. If only one of two
    keys stopped, that key is named.
    """
    alone = [sending(source, "prod", stopped_h=9) for source in ("kong", "otel")]
    assert ["The API key prod has stopped sending"] == titles(*alone)
    both = [sending("kong", name, stopped_h=9) for name in ("prod", "staging")]
    assert ["The source kong has stopped sending"] == titles(*both)
    assert ["The API key prod has stopped sending"] == titles(both[0], sending("kong", "staging"))
    assert ["The source kong has stopped sending"] == titles(sending("kong", "", stopped_h=9))


def test_a_key_that_stopped_first_stays_reported() -> None:
    """
    A key that stopped first stays reported when its source stops as well. Otherwise, its insight would end and
    begin again while the key is silent.
    """
    pairs = [sending("kong", "prod", stopped_h=40), sending("kong", "staging", stopped_h=9)]
    assert ["The source kong has stopped sending", "The API key prod has stopped sending"] == titles(*pairs)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([key(name="prod", status="Disabled")], []),
        ([key(name="another")], []),
        ([], []),
        ([key(name="prod")], ["The API key prod has stopped sending"]),
    ],
)
def test_a_sender_that_was_stopped_on_purpose_is_not_named(keys: list[ApiKey], expected: list[str]) -> None:
    """Disabled, deleted and expired keys are left out, with the sources that only they sent."""
    assert expected == titles(sending("kong", "prod", stopped_h=9), keys=keys)
    expired = [replace(each, secrets=(Secret(b"d" * 32, NOW - 60.0),)) for each in keys]
    assert [] == titles(sending("kong", "prod", stopped_h=9), keys=expired)


def test_devices_report_their_own_state() -> None:
    """Laptops that lose calls are reported as devices, so their sources are left out."""
    assert [] == titles(sending("claude_code", DEVICE_KEYS, stopped_h=20))


def test_hours_without_tollhouse_do_not_count() -> None:
    """While Tollhouse does not run, no sender can report. Afterwards each has four usual hours to come back."""
    always = range(WEEKS * 7 * 24)
    pair = sending("kong", "prod", stopped_h=60)
    for back_h, expected in ((4, 0), (6, 1)):
        ran = [age for age in always if age < back_h or age >= 60]
        assert expected == len(titles(pair, running=sending(*RUNNING, hours=ran)))
    assert [] == [*found(stopped_sender, sender_hours=[pair], keys=KEYS)]


def test_a_stop_stays_reported_however_long_it_lasts() -> None:
    """The rhythm is learned from the weeks before the last record, so a long silence does not become usual."""
    pair = sending("kong", "prod", stopped_h=24, hours=range(24, 24 + WEEKS * 7 * 24))
    for days in (1, 30, 300):
        older = replace(pair, end=pair.end - 24 * days, last=pair.last - DAY_S * days)
        running = replace(RUNS, hours=(1 << 390 * 24) - 1)
        assert ["The API key prod has stopped sending"] == titles(older, running=running)


def test_a_stopped_key_is_not_reported_as_idle_as_well() -> None:
    """The detector of idle keys keeps keys that were never used and keys that never sent records."""
    idle = [
        key(id=1, name="prod", last_accessed=NOW - 40 * DAY_S),
        key(id=2, name="never", last_accessed=None),
    ]
    pair = sending("kong", "prod", stopped_h=40 * 24, hours=range(40 * 24, 40 * 24 + WEEKS * 7 * 24))
    running = replace(RUNS, hours=(1 << 390 * 24) - 1)
    assert ["The API key prod has stopped sending"] == titles(pair, keys=idle, running=running)
    told = found(idle_key, keys=idle, sender_hours=[pair, running])
    assert ["The API key never is not in use"] == [finding.draft.title for finding in told]
    assert 2 == len(found(idle_key, keys=idle))

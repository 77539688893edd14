"""Findings about enrolment tokens that somebody else may use."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.devices.fleet.coverage import FleetRow, fleet_row_of_device
from gateway.devices.machine_state import MachineEvidence, evaluate_machine_state
from gateway.money.insights.detector_facts import DAY_S, InsightFacts
from gateway.money.insights.detectors.tokens import token_burst, token_strangers
from spool.devices.device import Device
from spool.registry.enrolment_tokens import EnrolmentToken
from spool.registry.notices import WARNING
from spool.registry.tables.inventory import Machine

NOW = 1_800_000_000.0
HOUR_S = 3600.0
CREATED = NOW - 10 * DAY_S
TOKEN = EnrolmentToken(
    id="t1", name="mdm", uses=9999, expires_at=NOW + DAY_S, digest="", created=CREATED, created_by="ada",
    last_updated=CREATED, per_hour=0,
)  # fmt: skip


def device(number: int, at: float, *, token: str = "t1", hardware: str = "") -> Device:
    return Device(
        id=f"m{number:04}",
        enrolled_at=at,
        enrolled_by="token mdm",
        last_seen=at,
        token=token,
        fingerprint=f"f{number}",
        hardware_id=hardware,
        generation=int(at),
    )


def row(device: Device, *, is_expected: bool) -> FleetRow:
    machine = Machine(serial=device.id) if is_expected else None
    return fleet_row_of_device(
        device, machine, evaluate_machine_state(MachineEvidence(device, 60.0, machine), NOW), os=""
    )


def enrolled(strangers: int, known: int, at: float = NOW - HOUR_S) -> InsightFacts:
    rows = [row(device(n, at), is_expected=n >= strangers) for n in range(strangers + known)]
    return InsightFacts(now=NOW, fleet=rows, tokens=[TOKEN])


@pytest.mark.parametrize(
    ("strangers", "known", "is_found"), [(4, 1, False), (5, 45, True), (5, 46, False), (100, 900, True)]
)
def test_machines_outside_the_inventory(strangers: int, known: int, is_found: bool) -> None:
    """An enrolment token is reported if at least 5 machines, and 10 % of the machines of a day, are unknown."""
    found = token_strangers(enrolled(strangers, known))
    assert is_found == bool(found)
    assert all(each.severity == WARNING and "token mdm" in each.draft.title for each in found)


def test_strangers_need_an_inventory_and_a_day() -> None:
    """
    Without an inventory all machines are unknown, so none is reported. Machines of yesterday are not reported
    again, and each token has its own figures.
    """
    assert not token_strangers(enrolled(50, 0))
    assert not token_strangers(enrolled(50, 5, at=NOW - DAY_S))
    facts = enrolled(50, 5)
    [found] = token_strangers(facts)
    assert "m0000" in found.draft.description and "and 38 more" in found.draft.description
    assert not token_strangers(replace(facts, tokens=[replace(TOKEN, id="other")]))


def hours(*counts: tuple[float, int]) -> InsightFacts:
    """Return devices that enrolled some hours after the token was made."""
    moments = [CREATED + hour * HOUR_S for hour, count in counts for _ in range(count)]
    return InsightFacts(now=NOW, devices=[device(n, at) for n, at in enumerate(moments)], tokens=[TOKEN])


@pytest.mark.parametrize(
    ("counts", "is_found"),
    [
        ([(0, 500)], False),  # the agent was rolled out to 500 machines on the first day
        ([(120, 20)], False),
        ([(120, 21)], True),
        ([(0, 10), (120, 30)], False),
        ([(0, 10), (120, 31)], True),
        ([(119, 10), (120, 25), (121, 60)], False),
        ([(30, 21)], False),  # the burst of enrolments was more than a week ago
        ([(h, 7) for h in range(100, 160)], False),
        ([(h, 30) for h in range(0, 230, 24)], False),
    ],
)
def test_bursts(counts: list[tuple[float, int]], is_found: bool) -> None:
    """
    From the second day of a token on, an hour is a burst if more than 20 devices enrol, and three times as many as
    in the largest hour before.
    """
    found = token_burst(hours(*counts))
    assert is_found == bool(found)
    assert all(each.severity == WARNING for each in found)


def test_a_later_burst_is_a_new_one() -> None:
    [first] = token_burst(hours((100, 25)))
    [second] = token_burst(hours((100, 25), (200, 100)))
    assert first.key == second.key
    assert first.newest is not None and second.newest is not None and first.newest < second.newest
    assert "100 machines" in second.draft.description and "more than 25" in second.draft.description


@pytest.mark.parametrize(
    ("per_hour", "seconds", "is_found"),
    [
        (200, [18] * 199, True),
        (200, [18] * 198, False),
        (3, [1799, 1800], True),
        (3, [1800, 1800], False),
        (1, [], True),
    ],
)
def test_a_limit_that_is_reached(per_hour: int, seconds: list[int], is_found: bool) -> None:
    """Also on the token's first day, and at once: with the enrolment after which the next one is refused."""
    times = [NOW - 3600 + sum(seconds[:n]) for n in range(len(seconds) + 1)]
    token = replace(TOKEN, per_hour=per_hour, created=times[0])
    facts = InsightFacts(now=NOW, devices=[device(n, at) for n, at in enumerate(times)], tokens=[token])
    found = token_burst(facts)
    assert is_found == bool(found)
    for each in found:
        assert (WARNING, times[-1]) == (each.severity, each.newest)
        assert f"{per_hour} machines enrolled with it within an hour" in each.draft.description
        assert "--per-hour" in each.draft.description
    assert not token_burst(replace(facts, tokens=[replace(token, per_hour=0)]))
    assert not token_burst(replace(facts, now=NOW + 7 * DAY_S))


@pytest.mark.parametrize(("copies", "is_found"), [(19, False), (20, True)])
def test_copies_of_one_machine(copies: int, is_found: bool) -> None:
    devices = [device(n, CREATED + n * DAY_S / 10, hardware="h" * 64) for n in range(copies)]
    devices += [device(100 + n, CREATED, hardware=f"{n:064}") for n in range(50)]
    assert is_found == bool(token_burst(InsightFacts(now=NOW, devices=devices, tokens=[TOKEN])))

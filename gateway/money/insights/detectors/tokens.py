"""Detectors for enrolment tokens that somebody else may use: machines outside the inventory, bursts and copies."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gateway.devices.fleet.coverage import FleetRow
from gateway.money.insights.detector_facts import (
    DAY_S,
    InsightFacts,
    mark_as_needing_only_states,
    mark_impossible_in_demo,
)
from gateway.money.insights.findings import (
    MAX_FINDINGS,
    build_finding,
    format_hour,
    format_rows,
    printable_name,
)
from spool.devices.device import Device
from spool.registry.enrolment_tokens import EnrolmentToken
from spool.registry.insights import LOW, Finding
from spool.registry.notices import WARNING

LEAST_STRANGERS, STRANGERS_PERCENT = 5, 10
BURST, BURST_FACTOR = 20, 3
COPIES = 20  # maximum fingerprints of one hardware id that are listed
SHOWN_S = 7 * DAY_S  # seconds for which a burst stays listed
_HOUR_S = 3600
_OWN_ROLL_OUT = "If you roll the agent out, create a token with a higher `--per-hour`. "


@mark_as_needing_only_states
@mark_impossible_in_demo("laptops of a demo month enrol without a token")
def token_strangers(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find tokens with which many machines enrolled within a day, although the inventory lacks these machines.
    """
    if not any(row.is_in_inventory for row in facts.fleet):
        return []
    rows_of_token: defaultdict[str, list[FleetRow]] = defaultdict(list)
    for row in facts.fleet:
        if row.device is not None and row.device.token and facts.now - row.device.enrolled_at < DAY_S:
            rows_of_token[row.device.token].append(row)
    found = []
    for token in _tokens_in_use(facts.tokens, rows_of_token):
        rows = rows_of_token[token.id]
        strangers = sorted(row.id for row in rows if not row.is_in_inventory)
        if len(strangers) >= LEAST_STRANGERS and 100 * len(strangers) >= STRANGERS_PERCENT * len(rows):
            found.append(_finding_of_machines_outside_inventory(token, strangers, len(rows)))
    return found[:MAX_FINDINGS]


def _finding_of_machines_outside_inventory(
    token: EnrolmentToken, unknown_machines: Sequence[str], machines: int
) -> Finding:
    return build_finding(
        "token_strangers",
        (token.id,),
        title=f"{len(unknown_machines)} machines outside the inventory used the token {printable_name(token.name)}",
        seen=(
            f"Within a day, {machines} machines enrolled with it, and the inventory does not have these:"
            f"{format_rows([printable_name(id) for id in unknown_machines])}"
        ),
        advice=(
            "If the machines are new, import the inventory again. Otherwise the token has leaked: revoke it "
            f"(`tollhouse devices tokens revoke {token.id}`), and revoke the machines."
        ),
        category="reliability",
        effort=LOW,
        severity=WARNING,
    )


@mark_as_needing_only_states
@mark_impossible_in_demo("laptops of a demo month enrol without a token")
def token_burst(facts: InsightFacts) -> Sequence[Finding]:
    """
    Find tokens that reached their limit of an hour, with an hour of unusually many enrolments after the first day, or
    with copies of one machine.
    """
    devices_of: defaultdict[str, list[Device]] = defaultdict(list)
    for device in facts.devices:
        if device.token:
            devices_of[device.token].append(device)
    found = []
    for token in _tokens_in_use(facts.tokens, devices_of):
        burst = _newest_enrolment_burst(devices_of[token.id], token, facts.now)
        full_at = _newest_full_hour(devices_of[token.id], token, facts.now)
        copies = _most_fingerprints(devices_of[token.id])
        if burst is not None or full_at is not None or copies >= COPIES:
            found.append(_token_burst_finding(token, burst, full_at, copies))
    return found[:MAX_FINDINGS]


class _EnrolmentBurst(NamedTuple):
    at: float
    devices: int
    usual: int


def _newest_enrolment_burst(
    devices: Iterable[Device], token: EnrolmentToken, now: float
) -> _EnrolmentBurst | None:
    """
    Return the newest hour with many more enrolments than any hour before. The token's first day is ignored as
    a roll-out.
    """
    counts = Counter(int(device.enrolled_at // _HOUR_S) for device in devices)
    burst, usual = None, 0
    for number, count in sorted(counts.items()):
        at = number * _HOUR_S
        is_judged = at >= token.created + DAY_S and at > now - SHOWN_S
        if is_judged and count > BURST and count > BURST_FACTOR * usual:
            burst = _EnrolmentBurst(at, count, usual)
        usual = max(usual, count)
    return burst


def _newest_full_hour(devices: Iterable[Device], token: EnrolmentToken, now: float) -> float | None:
    """Return when a token last enrolled as many devices as it may within an hour, so that the next ones are refused."""
    times = sorted(device.generation for device in devices)
    if not token.per_hour:
        return None
    hours = zip(times, times[token.per_hour - 1 :], strict=False)
    full = [last for first, last in hours if last - first < _HOUR_S and last > now - SHOWN_S]
    return max(full, default=None)


def _most_fingerprints(devices: Iterable[Device]) -> int:
    prints_of: defaultdict[str, set[str]] = defaultdict(set)
    for device in devices:
        if device.hardware_id and device.fingerprint:
            prints_of[device.hardware_id].add(device.fingerprint)
    return max(map(len, prints_of.values()), default=0)


def _token_burst_finding(
    token: EnrolmentToken, burst: _EnrolmentBurst | None, full_at: float | None, copies: int
) -> Finding:
    seen = []
    if full_at is not None:
        seen.append(
            f"Around {format_hour(full_at)}, {token.per_hour} machines enrolled with it within an hour, which is its "
            "limit. Further machines must wait."
        )
    if burst is not None:
        seen.append(
            f"In the hour from {format_hour(burst.at)}, {burst.devices} machines enrolled with it. No "
            "hour before had more "
            f"than {burst.usual}."
        )
    if copies >= COPIES:
        seen.append(f"One hardware id enrolled with {copies} fingerprints, as copies of one machine do.")
    return build_finding(
        "token_burst",
        (token.id,),
        title=f"Unusually many machines used the token {printable_name(token.name)}",
        seen=" ".join(seen),
        advice=(
            ("" if full_at is None else _OWN_ROLL_OUT)
            + "If nobody rolled the agent out, the token has leaked: revoke it "
            f"(`tollhouse devices tokens revoke {token.id}`), and revoke the machines that nobody knows."
        ),
        category="reliability",
        effort=LOW,
        newest=max(filter(None, (full_at, burst and burst.at)), default=None),
        severity=WARNING,
    )


def _tokens_in_use(tokens: Sequence[EnrolmentToken], used: Mapping[str, object]) -> Iterable[EnrolmentToken]:
    return (token for token in tokens if token.id in used)

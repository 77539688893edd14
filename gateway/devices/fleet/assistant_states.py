"""
The state of a coding assistant on a device, from the agent's claim and from the calls that arrived.

Only calls that arrived make an assistant `reporting`. An agent cannot claim this state.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, NamedTuple

from gateway.devices.fleet.facts import (
    NO_AGENT,
    NO_RECORD,
    NOT_CONFIGURED,
    NOT_INSTALLED,
    OVERRIDDEN,
    REPORTING,
    TELEMETRY_OFF,
    UNKNOWN,
    UNREACHABLE,
    UNUSED,
    decoded,
    epoch,
)
from spool.devices.device import Device

RECENT_S = 14 * 86_400.0
# Seconds by which a use may be newer than the newest call, because assistants export their calls in batches.
DELAY_S = 600.0
USE_PRECISION_S = 3600.0  # agents round the time of a use down to the hour
_CLAIMED = frozenset({NOT_INSTALLED, UNKNOWN, TELEMETRY_OFF, OVERRIDDEN, NOT_CONFIGURED})
FINE = frozenset({REPORTING, UNUSED, NOT_INSTALLED})  # states that need no repair


class AssistantState(NamedTuple):
    """`newest` is the time of the newest call in epoch seconds."""

    name: str
    state: str
    cause: str = ""
    version: str = ""
    newest: float | None = None


def assistants_of(device: Device, *, now: float) -> list[AssistantState]:
    """Return the states of all assistants that the agent names or whose calls arrived, ordered by name."""
    claims = decoded(device.heartbeat).get("assistants") or {}
    ahead_s = max(0.0, device.clock_offset_s or 0.0)  # a clock that is ahead would make each use look too new
    return [
        _evaluated(
            name,
            claims.get(name),
            newest=device.newest_calls.get(name),
            enrolled_at=device.enrolled_at,
            now=now,
            ahead_s=ahead_s,
        )
        for name in sorted(claims.keys() | device.newest_calls.keys())
    ]


def holds_until(device: Device, *, now: float) -> float:
    """Return the time until which the states of the assistants hold, if the device reports nothing new."""
    claims = decoded(device.heartbeat).get("assistants") or {}
    ahead_s = max(0.0, device.clock_offset_s or 0.0)
    used = (epoch(claim.get("used_at")) for claim in claims.values())
    times = [time + RECENT_S for time in device.newest_calls.values()]
    times += [time - ahead_s + USE_PRECISION_S + DELAY_S for time in used if time is not None]
    return min((time for time in times if time >= now), default=inf)


def _evaluated(
    name: str,
    claim: Mapping[str, Any] | None,
    *,
    newest: float | None,
    enrolled_at: float,
    now: float,
    ahead_s: float,
) -> AssistantState:
    used = None if claim is None else epoch(claim.get("used_at"))
    state, cause = evaluate(
        "" if claim is None else claim["state"],
        "" if claim is None else claim.get("cause", ""),
        used=None if used is None else used - ahead_s,
        newest=newest,
        enrolled_at=enrolled_at,
        now=now,
    )
    version = "" if claim is None else claim.get("version", "")
    return AssistantState(name, state, cause, version, newest)


def evaluate(
    claimed: str, cause: str, *, used: float | None, newest: float | None, enrolled_at: float, now: float
) -> tuple[str, str]:
    """
    Return the state and its cause. Times are in epoch seconds: of the last use, and of the newest call that arrived.

    `claimed` and `cause` are the agent's words, or "" if no agent reports the assistant.
    """
    is_recent = newest is not None and now - newest <= RECENT_S
    since = enrolled_at if newest is None else newest
    is_unheard = used is not None and used > since + DELAY_S
    if claimed != UNREACHABLE and used is not None:
        # a use of this hour may be seconds old, and its calls may still be on their way
        is_unheard = is_unheard and now - used > USE_PRECISION_S + DELAY_S
    if is_recent and not is_unheard:
        return REPORTING, ""
    if not claimed:
        return UNKNOWN, NO_AGENT
    if claimed in _CLAIMED:
        return claimed, cause
    if claimed == UNREACHABLE:
        return UNREACHABLE, cause or NO_RECORD
    if is_unheard:
        return UNREACHABLE, NO_RECORD
    return UNUSED, ""

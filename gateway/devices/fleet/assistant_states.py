"""
The state of a coding assistant on a device: its setting, its use, and one word for both.

The setting is the agent's claim. The use follows from the times of uses, which the agent states, and of calls, which
arrived. Only calls that arrived make an assistant `reporting`. An agent cannot claim this word.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import inf
from sys import intern
from typing import NamedTuple

import msgspec

from gateway.devices.fleet.heartbeat_facts import (
    DIRECT,
    DISK_FULL,
    LATEST_TIME,
    NO_AGENT,
    NO_RECORD,
    NOT_CONFIGURED,
    NOT_FORWARDED,
    NOT_INSTALLED,
    OVERRIDDEN,
    REPORTING,
    TELEMETRY_OFF,
    UNKNOWN,
    UNREACHABLE,
    UNUSED,
    parse_time_to_epoch,
)
from gateway.devices.fleet.use_slots import DAY_S
from gateway.devices.fleet.uses import HEARD, LOSING, NONE, RECENT_S, UNSEEN, WAITING, is_use_without_call
from spool.devices.device import Device

USE_PRECISION_S = 3600.0  # agents round the time of a use down to the hour
# seconds from a use without a call until it counts as a loss, because assistants export in batches
GRACE_S = USE_PRECISION_S + 600.0
# seconds; if a call is further in the future, its time is wrong, whatever the clock offset
MOST_AHEAD_S = 86_400.0
FORWARDED_AFTER_S = 600.0  # seconds in which a call that the agent sent must arrive
DELAYED_S = 86_400.0  # seconds for which calls may wait on a machine that still counts as covered

CONFIGURED, OFF, UNSET, ABSENT = "configured", "off", "unset", "absent"
SETTINGS: Mapping[str, str] = {  # state of an assistant's settings, by the state that the agent reports
    REPORTING: CONFIGURED,
    UNUSED: CONFIGURED,
    UNREACHABLE: CONFIGURED,
    OVERRIDDEN: OVERRIDDEN,
    TELEMETRY_OFF: OFF,
    NOT_CONFIGURED: UNSET,
    UNKNOWN: UNKNOWN,
    NOT_INSTALLED: ABSENT,
}
DELAYED = "delayed"  # state of use that only the gateway determines
# states in which calls are lost, unless a call shows otherwise
BAD = frozenset({OVERRIDDEN, OFF, UNSET, UNKNOWN})
# causes for which calls still wait on the laptop, so the agent will send them
WAITS_ON_LAPTOP = frozenset({"backlog", "tls", "dns", "refused", "no_answer"})
FINE = frozenset({REPORTING, UNUSED, NOT_INSTALLED})  # states of an assistant that need no repair
OTHER_CALLS = ""  # name for the calls of a device that come from no coding assistant


class _AssistantClaim(msgspec.Struct, gc=False):
    """The fields that an agent reports about an assistant and that decide its state."""

    state: str
    cause: str = ""
    use: str = ""
    version: str = ""
    used_at: str | None = None
    heard_at: str | None = None
    direct: bool = False


class SpoolClaim(msgspec.Struct, gc=False):
    """What an agent reports about its spool."""

    records: int | None = None
    oldest_age_s: float | None = None
    full: bool = False
    refused_since: str | None = None


class _Claims(msgspec.Struct, gc=False):
    """The assistants in a stored heartbeat, with the fields that decide their states."""

    assistants: dict[str, _AssistantClaim] = {}
    spool: SpoolClaim | None = None


class AssistantState(msgspec.Struct, frozen=True, gc=False):
    """
    The state of an assistant on a device. `newest` is the time of its newest call in epoch seconds, and
    `state` the word that people read.
    """

    name: str
    state: str
    cause: str = ""
    version: str = ""
    newest: float | None = None
    setting: str = UNKNOWN
    use: str = NONE


_DECODER = msgspec.json.Decoder(_Claims)
_NO_CLAIM = _AssistantClaim("")
_NO_SPOOL_CLAIM = SpoolClaim()


class AssistantEvidence(NamedTuple):
    """
    The evidence that decides an assistant's state. Times are in epoch seconds of the gateway's clock.

    `claim` is the state of the setting that the agent reports, and `cause` the reason; both are "" without a
    report. `use` is the reported use, or "" if the agent is too old or not allowed to report it. `since` is
    the time from which the setting applies, and `unheard` the first use without a call. `missing` is the hour
    of a call that the agent sent and that had not arrived at the time `missed`. If `is_direct`, calls go to the
    gateway, and may name no device. If `is_full`, the agent can store no call; `has_refused` says that it already
    refused one.
    """

    claim: str = ""
    cause: str = ""
    use: str = ""
    newest: float | None = None
    since: float = 0.0
    unheard: float | None = None
    missing: float | None = None
    missed: float = 0.0
    is_direct: bool = False
    is_full: bool = False
    has_refused: bool = False


class RememberedEvidence(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """
    The part of `AssistantEvidence` that is stored between two heartbeats. `heard` is the hour (by the agent's
    clock) of the newest call that the agent had sent when it last had no waiting records. If the agent's
    clock was set, `heard` is LATEST_TIME, because earlier hours cannot be compared.
    """

    setting: str
    since: float
    unheard: float | None = None
    heard: float | None = None
    missing: float | None = None
    missed: float = 0.0


_MEMORIES = msgspec.json.Decoder(dict[str, RememberedEvidence])
_NO_MEMORY = RememberedEvidence("", 0.0)


def state_cause_setting_and_use(evidence: AssistantEvidence, *, moment: float) -> tuple[str, str, str, str]:
    claim, cause, stated, newest, since, unheard, missing, missed, is_direct, is_full, has_refused = evidence
    is_recent = newest is not None and moment - newest <= RECENT_S
    setting = SETTINGS[claim] if claim else UNKNOWN
    if missing is not None and is_use_without_call(missing, newest) and moment > missed + FORWARDED_AFTER_S:
        return UNREACHABLE, NOT_FORWARDED, setting, LOSING
    sends_elsewhere = is_direct or (stated == LOSING and setting in (OVERRIDDEN, OFF, UNSET))
    if is_full and setting != ABSENT and not sends_elsewhere:
        if has_refused and (is_recent or stated in (HEARD, WAITING, LOSING)):
            return UNREACHABLE, DISK_FULL, setting, LOSING
        return UNKNOWN, DISK_FULL, setting, stated if stated == LOSING else HEARD if is_recent else NONE
    if not claim:
        found = (REPORTING, "") if is_recent else (UNKNOWN, NO_AGENT)
        return *found, UNKNOWN, HEARD if is_recent else UNSEEN
    is_bad = setting in BAD and not (newest is not None and newest >= since)
    if claim == UNREACHABLE and cause in WAITS_ON_LAPTOP:
        return claim, cause, setting, DELAYED
    if is_direct and unheard is not None and newest is None and not is_bad and claim != NOT_INSTALLED:
        return UNSEEN, DIRECT, setting, UNSEEN
    if stated == UNSEEN and not is_bad:
        is_heard = newest is not None and moment - newest <= DAY_S
        return (REPORTING, "", setting, HEARD) if is_heard else (UNSEEN, cause, setting, UNSEEN)
    use = HEARD if is_recent else NONE
    # the agent's own result has precedence: its times are exact, and the gateway knows only the hours
    if stated:
        use = stated if stated in (LOSING, WAITING) else use
    elif unheard is not None and is_use_without_call(unheard, newest):
        use = LOSING if is_bad or claim == UNREACHABLE or moment > unheard + GRACE_S else WAITING
    elif claim == UNREACHABLE and use == NONE:  # an agent that states no uses may still see a loss
        use = LOSING
    if use == LOSING:
        if setting in BAD:
            return claim, cause, setting, use
        return UNREACHABLE, cause or NO_RECORD, setting, use
    if is_bad:
        return claim, cause, setting, use
    if is_recent:
        return REPORTING, "", setting, use
    return claim if claim == NOT_INSTALLED else UNUSED, "", setting, use


def assistant_states_of_device(device: Device, *, moment: float) -> list[AssistantState]:
    """
    Return the states of a device's assistants, by name: those that the agent reports, and those whose calls
    arrived.
    """
    reported, memories = _decode_claims(device.heartbeat), remembered_evidence_by_assistant(device)
    claims, spool = reported.assistants, reported.spool or _NO_SPOOL_CLAIM
    names = (claims.keys() | device.newest_calls.keys()) - {OTHER_CALLS}
    return [
        _evaluate_assistant(
            device, name, claims.get(name, _NO_CLAIM), spool, memories.get(name, _NO_MEMORY), moment
        )
        for name in sorted(names)
    ]


def reported_spool(device: Device) -> SpoolClaim:
    return _decode_claims(device.heartbeat).spool or _NO_SPOOL_CLAIM


def assistant_states_valid_until(device: Device, *, moment: float) -> float:
    """
    Return the time until which the states of a device's assistants stay the same if the device reports
    nothing new.
    """
    recent_s = (DAY_S, RECENT_S) if b'"unseen"' in device.heartbeat else (RECENT_S,)
    times = [time + after_s for time in device.newest_calls.values() for after_s in recent_s]
    for memory in remembered_evidence_by_assistant(device).values():
        if memory.unheard is not None:
            times.append(memory.unheard + GRACE_S)
        if memory.missing is not None:
            times.append(memory.missed + FORWARDED_AFTER_S)
    return min((time for time in times if time >= moment), default=inf)


def remembered_evidence_by_assistant(device: Device) -> Mapping[str, RememberedEvidence]:
    return _MEMORIES.decode(device.uses)


def encode_remembered_evidence(memories: Mapping[str, RememberedEvidence]) -> str:
    return msgspec.json.encode(memories).decode()


def updated_remembered_evidence_json(
    device: Device, heartbeat: bytes, *, now: float, is_clock_moved: bool = False
) -> str:
    """
    Return the stored facts about a device's assistants, as JSON. If an assistant is used but no call arrives,
    only the first such use is stored, so that later ones do not delay the time at which its calls count as
    lost. Repaired settings delete it.
    """
    found, known = {}, remembered_evidence_by_assistant(device)
    claims = _decode_claims(heartbeat)
    is_empty = claims.spool is not None and claims.spool.records == 0
    for name, claim in claims.assistants.items():
        before = known.get(name)
        setting, newest = SETTINGS[claim.state], device.newest_calls.get(name)
        since, unheard = now, None
        if before is not None:
            is_same = before.setting == setting
            since = before.since if is_same else now
            unheard = before.unheard if is_same or setting != CONFIGURED else None
        if unheard is not None and not is_use_without_call(unheard, newest):
            unheard = None
        used = parse_time_to_epoch(claim.used_at)
        if used is not None and unheard is None:
            used = to_gateway_time(device, used, now=now)
            unheard = used if used >= since and is_use_without_call(used, newest) else None
        memory = before or RememberedEvidence(setting, since)
        memory = msgspec.structs.replace(memory, setting=setting, since=since, unheard=unheard)
        heard = parse_time_to_epoch(claim.heard_at)
        if is_clock_moved:  # if the clock was set, this time cannot be compared with the earlier hours
            memory = msgspec.structs.replace(memory, heard=LATEST_TIME)
        if is_empty and heard is not None:
            memory = _remembered_evidence_after_sent_call(
                memory, None if before is None else heard, newest, device, now
            )
            memory = msgspec.structs.replace(memory, heard=heard)
        found[name] = memory
    return encode_remembered_evidence(found)


def _remembered_evidence_after_sent_call(
    memory: RememberedEvidence,
    sent_call_at: float | None,
    newest_call_at: float | None,
    device: Device,
    now: float,
) -> RememberedEvidence:
    """
    Return what is stored about an assistant after the agent stated that no records wait, and that it sent a
    call in the hour of `sent_call_at`.

    Calls from before the enrolment were sent elsewhere, so they cannot be missing.
    """
    if memory.missing is not None and not is_use_without_call(memory.missing, newest_call_at):
        memory = msgspec.structs.replace(memory, missing=None, missed=0.0)
    if sent_call_at is None or (memory.heard is not None and sent_call_at <= memory.heard):
        return memory
    hour = sent_call_at - (device.clock_offset_s or 0.0)
    # ignore a time that the agent stated before its clock was set back
    if (
        memory.missing is None
        and device.enrolled_at <= hour <= now
        and is_use_without_call(hour, newest_call_at)
    ):
        return msgspec.structs.replace(memory, missing=hour, missed=now)
    return memory


def to_gateway_time(device: Device, time: float, *, now: float) -> float:
    """Return a device's time by the gateway's clock. It is never in the future."""
    return min(time - (device.clock_offset_s or 0.0), now)


def corrected_call_end(device: Device, time: float, *, now: float) -> float:
    """
    Convert the end of a call to the gateway's clock. If the device's clock offset is unknown, the time stays
    as it is, until `set_clock_offset` corrects it.
    """
    if device.clock_offset_s is None and time <= now + MOST_AHEAD_S:
        return time
    return to_gateway_time(device, time, now=now)


def set_clock_offset(device: Device, offset_s: float | None, *, now: float) -> Device:
    """
    Return a device with the clock offset from a heartbeat. The first known offset also corrects the times of
    earlier calls.
    """
    after = replace(device, clock_offset_s=offset_s)
    if device.clock_offset_s is not None:
        return after
    newest = {name: to_gateway_time(after, time, now=now) for name, time in device.newest_calls.items()}
    return replace(after, newest_calls=newest)


def _evaluate_assistant(
    device: Device,
    name: str,
    claim: _AssistantClaim,
    spool: SpoolClaim,
    memory: RememberedEvidence,
    moment: float,
) -> AssistantState:
    newest = device.newest_calls.get(name)
    evidence = AssistantEvidence(
        claim.state,
        claim.cause,
        claim.use,
        newest,
        memory.since,
        memory.unheard,
        memory.missing,
        memory.missed,
        claim.direct,
        spool.full,
        parse_time_to_epoch(spool.refused_since) is not None,
    )
    state, cause, setting, use = state_cause_setting_and_use(evidence, moment=moment)
    # shared texts, because a large fleet has 60,000 states with few different texts
    return AssistantState(
        intern(name), intern(state), intern(cause), intern(claim.version), newest, setting, intern(use)
    )


@lru_cache(maxsize=1)  # a machine's state asks several times for the claims of its heartbeat
def _decode_claims(heartbeat: bytes) -> _Claims:
    return _DECODER.decode(heartbeat) if heartbeat else _Claims()

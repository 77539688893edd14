"""
The state of an assistant, from the facts that the probe found and what it remembers of earlier runs.

States and causes are words of fixed lists. With several users on a machine, the worst state of a home in
which the assistant is used is the machine's state. Without any use, the homes of people count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

from gateway.devices.agent.heard_calls import HeardCalls
from gateway.devices.agent.sessions import SessionProgram
from gateway.devices.fleet.heartbeat_facts import (
    INTERMITTENT,
    NOT_CONFIGURED,
    NOT_INSTALLED,
    OVERRIDDEN,
    REPORTING,
    TELEMETRY_OFF,
    UNKNOWN,
    UNREACHABLE,
    UNUSED,
)
from gateway.devices.fleet.uses import (
    LOSING,
    RECENT_S,
    RememberedAssistantUses,
    SessionFile,
    UseObservation,
    remembered_uses_after_probe,
)

# states of assistants in users' home directories without lost calls, worst first
_WORST: Final = (
    UNKNOWN, TELEMETRY_OFF, OVERRIDDEN, NOT_CONFIGURED, UNREACHABLE, REPORTING, UNUSED, NOT_INSTALLED,
)  # fmt: skip
ROOT: Final = 0


class SettingsSource(StrEnum):
    """The place from which a setting of an assistant comes."""

    SERVER = "server_policy"
    MDM = "mdm_policy"
    FILE = "file_policy"
    ENVIRONMENT = "environment"
    USER = "user"

    @property
    def is_policy(self) -> bool:
        return self in (SettingsSource.SERVER, SettingsSource.MDM, SettingsSource.FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssistantFacts:
    """
    The facts about an assistant, for one user. Times are in epoch seconds.

    - `program`: how it writes its sessions.
    - `problem`: why its settings are unknown: no_permission, malformed or version.
    - `is_enabled`, `enabled_by`: the effective switch and its source; None if nothing sets it.
    - `is_ours`, `endpoint_by`: whether the effective endpoint is ours, and its source; None if there is none.
    - `hides`: the source that hides a policy file with our endpoint.
    - `lacks_policy`: a policy was applied on this machine, but its file is missing or changed.
    - `changed_at`, `running_since`: the change of the file with the endpoint, and the start of the oldest
      process.
    - `sessions`: the files of each session. `unseen`: why its uses cannot be compared with calls.
    - `newest_call`: the end of the newest call of this home that the agent has. `calls`: the calls of each session.
      `calls_of_user`: the calls of this home that name no session.
    - `is_direct`: calls go to the gateway, so the agent does not know them.
    - `path`: why calls do not reach the agent. `waits`: why the newest calls wait at the agent.
    """

    program: SessionProgram
    is_installed: bool = True
    problem: str = ""
    is_enabled: bool | None = None
    enabled_by: SettingsSource | None = None
    is_ours: bool | None = None
    endpoint_by: SettingsSource | None = None
    hides: SettingsSource | None = None
    lacks_policy: bool = False
    changed_at: float | None = None
    running_since: float | None = None
    sessions: Mapping[str, SessionFile] = field(default_factory=dict)
    unseen: str = ""
    newest_call: float | None = None
    calls: Mapping[str, HeardCalls] = field(default_factory=dict)
    calls_of_user: Sequence[HeardCalls] = ()
    is_direct: bool = False
    path: str = ""
    waits: str = ""

    @property
    def used_at(self) -> float | None:
        used = (each for each in self.sessions.values() if each.size >= self.program.least_growth)
        return max((each.changed_at for each in used), default=None)

    def is_heard(self, session: str, slot: int) -> bool:
        own = self.calls.get(session)
        return any(each.has_slot(slot) for each in (own, *self.calls_of_user) if each is not None)

    @property
    def is_configured(self) -> bool:
        return bool(self.is_enabled and self.is_ours)


class HomeState(NamedTuple):
    """The state of an assistant in one home directory. `user` is None if the agent sees only this home."""

    state: str
    cause: str
    memory: RememberedAssistantUses
    used_at: float | None = None
    user: int | None = None
    is_direct: bool = False


def evaluate_home(
    facts: AssistantFacts, earlier_uses: RememberedAssistantUses, *, now: float, user: int | None = None
) -> HomeState:
    """Return the state and its cause. The cause is "" if the state has none, or if none was found."""
    bad = _bad_state_and_cause(facts)
    setting = "configured" if bad is None else bad[0]
    look = UseObservation(
        setting=setting,
        is_bad=bad is not None,
        cut=facts.path,
        sessions={} if facts.is_direct else facts.sessions,
        is_heard=facts.is_heard,
        heard=facts.newest_call,
        unseen=facts.unseen,
        is_database=facts.program.is_database,
        least_growth=facts.program.least_growth,
        has_sure_uses=facts.program.has_sure_uses,
    )
    memory = remembered_uses_after_probe(earlier_uses, look, now=now)
    heard = memory.heard
    is_disproved = heard is not None and heard >= memory.since
    is_losing = memory.use_state(now=now) == LOSING
    if bad is not None and (is_losing or not is_disproved):
        state, cause = bad
    elif is_losing:
        state, cause = UNREACHABLE, facts.path or memory.cut or (INTERMITTENT if memory.is_held else "")
    elif facts.waits:
        state, cause = UNREACHABLE, facts.waits
    else:
        is_recent = heard is not None and now - heard <= RECENT_S
        state, cause = (UNUSED, facts.unseen) if facts.unseen else (REPORTING if is_recent else UNUSED, "")
    # only calls show a use of a program without files of sessions
    used_at = facts.used_at if facts.program.shapes else facts.newest_call
    return HomeState(state, cause, memory, used_at, user, facts.is_direct)


def _bad_state_and_cause(facts: AssistantFacts) -> tuple[str, str] | None:
    if not facts.is_installed:
        return NOT_INSTALLED, ""
    if facts.problem:
        return UNKNOWN, facts.problem
    if facts.is_enabled is False:
        return TELEMETRY_OFF, _cause_of_disabled_telemetry(facts.enabled_by)
    if facts.is_ours is False or (facts.hides and not facts.is_configured):
        return OVERRIDDEN, _cause_of_other_endpoint(facts.hides or facts.endpoint_by)
    if not facts.is_configured:
        return NOT_CONFIGURED, "policy_not_applied" if facts.lacks_policy else "no_policy"
    if facts.running_since and facts.changed_at and facts.running_since < facts.changed_at:
        return NOT_CONFIGURED, "not_restarted"
    return None


def worst_home_state(homes: Sequence[HomeState], *, now: float) -> HomeState:
    """Return the worst of the homes with a use in 14 days, or else of the homes of people, or else of all."""
    used = [home for home in homes if home.used_at is not None and now - home.used_at <= RECENT_S]
    people = [home for home in homes if home.user != ROOT]
    return min(
        used or people or homes,
        key=lambda home: (home.memory.use_state(now=now) != LOSING, _order_of_home(home)),
    )


def _order_of_home(home: HomeState) -> int:
    """Return the place of a home, worst first. One that cannot be judged is worse than any that is fine."""
    is_unseen = home.memory.unseen and home.state in (REPORTING, UNUSED)
    return 2 * _WORST.index(REPORTING) - 1 if is_unseen else 2 * _WORST.index(home.state)


def _cause_of_disabled_telemetry(source: SettingsSource | None) -> str:
    if source is SettingsSource.ENVIRONMENT:
        return "environment"
    return "vendor_policy" if source is not None and source.is_policy else "settings"


def _cause_of_other_endpoint(source: SettingsSource | None) -> str:
    return "other_endpoint" if source is None or source is SettingsSource.USER else source.value

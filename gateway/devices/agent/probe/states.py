"""
The state of an assistant, from the facts that the probe found.

The states and causes are closed words. The order of the states is the order of evaluation: the first that holds
is the state. With several users on a machine, the first that holds for one of them is the state of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gateway.devices.fleet.facts import (
    NOT_CONFIGURED,
    NOT_INSTALLED,
    OVERRIDDEN,
    REPORTING,
    STATES,
    TELEMETRY_OFF,
    UNKNOWN,
    UNREACHABLE,
    UNUSED,
)

RECENT_S: Final = 14 * 86_400.0  # a record of this age still shows that the assistant reports
DELAY_S: Final = 600.0  # seconds that a use may be newer than the newest record
EXPORT_S: Final = 60.0  # seconds after a use in which its records may be on their way


class SettingsSource(StrEnum):
    """Where a setting comes from."""

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

    - `problem`: why its settings are unknown: no_permission, malformed or version.
    - `is_enabled`, `enabled_by`: the effective switch and its source; None if nothing sets it.
    - `is_ours`, `endpoint_by`: whether the effective endpoint is ours, and its source; None if there is none.
    - `hides`: the source that hides a policy file with our endpoint.
    - `lacks_policy`: a policy was applied on this machine, but its file is missing or changed.
    - `changed_at`, `running_since`: the change of the file with the endpoint, and the start of the oldest process.
    - `used_at`: the last use. `newest_record`: the newest record that no error holds back.
    - `path`: why records do not reach the agent or the gateway: a cause of `unreachable`.
    """

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
    used_at: float | None = None
    newest_record: float | None = None
    enrolled_at: float | None = None
    path: str = ""

    @property
    def is_configured(self) -> bool:
        return bool(self.is_enabled and self.is_ours)


def evaluate(facts: AssistantFacts, *, now: float) -> tuple[str, str]:
    """Return the state and its cause. The cause is "" if the state has none, or if none was found."""
    is_unheard = _is_unheard(facts, now)
    if facts.newest_record is not None and now - facts.newest_record <= RECENT_S and not is_unheard:
        return REPORTING, ""
    if not facts.is_installed:
        return NOT_INSTALLED, ""
    if facts.problem:
        return UNKNOWN, facts.problem
    if facts.is_enabled is False:
        return TELEMETRY_OFF, _cause_off(facts.enabled_by)
    if facts.is_ours is False or (facts.hides and not facts.is_configured):
        return OVERRIDDEN, _cause_other(facts.hides or facts.endpoint_by)
    if not facts.is_configured:
        return NOT_CONFIGURED, "policy_not_applied" if facts.lacks_policy else "no_policy"
    if facts.running_since and facts.changed_at and facts.running_since < facts.changed_at:
        return NOT_CONFIGURED, "not_restarted"
    return (UNREACHABLE, facts.path) if is_unheard else (UNUSED, "")


def of_machine(states: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return the state of a machine from the states for its users that have the assistant."""
    return min(states, key=lambda found: STATES.index(found[0]), default=(NOT_INSTALLED, ""))


def _is_unheard(facts: AssistantFacts, now: float) -> bool:
    """Return whether the assistant was used without a record."""
    if facts.used_at is None or not EXPORT_S <= now - facts.used_at <= RECENT_S:
        return False
    heard = max((at for at in (facts.newest_record, facts.enrolled_at) if at is not None), default=None)
    return heard is None or facts.used_at > heard + DELAY_S


def _cause_off(source: SettingsSource | None) -> str:
    if source is SettingsSource.ENVIRONMENT:
        return "environment"
    return "vendor_policy" if source is not None and source.is_policy else "settings"


def _cause_other(source: SettingsSource | None) -> str:
    return "other_endpoint" if source is None or source is SettingsSource.USER else source.value

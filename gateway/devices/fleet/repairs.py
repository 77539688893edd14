"""What each cause means and how to repair it, in words for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from gateway.devices.fleet.heartbeat_facts import (
    DIRECT,
    DISK_FULL,
    INTERMITTENT,
    NO_AGENT,
    NO_RECORD,
    NOT_CONFIGURED,
    NOT_FORWARDED,
    OVERRIDDEN,
    SESSIONS_ELSEWHERE,
    SESSIONS_UNREADABLE,
    SEVERAL_USERS,
    TELEMETRY_OFF,
    UNKNOWN,
    UNREACHABLE,
)
from gateway.devices.fleet.uses import UNSEEN
from gateway.devices.machine_state import CLOCK_WRONG, REVOKED_THERE, Cause


class CauseRepair(NamedTuple):
    """
    A cause in words, and its repair. `words` follow the name of an assistant or a machine, as in "Codex sends
    to another endpoint".
    """

    words: str
    advice: str


_POLICY = "Distribute the managed settings (`tollhouse agent policy`), or run `tollhouse agent setup` on the laptop."
_SPACE = "Free space on the laptop's disk, or raise spool.max_bytes of the agent."
_UNKNOWN = "Run `tollhouse agent status` on the laptop."
_REPAIRS: Mapping[Cause, CauseRepair] = {
    (UNKNOWN, "no_permission"): CauseRepair(
        "has settings that the agent may not read", "Let the agent's probe run as root or LocalSystem."
    ),
    (UNKNOWN, "malformed"): CauseRepair(
        "has settings that cannot be read", "Correct the settings file, or delete it and apply the policy."
    ),
    (UNKNOWN, "version"): CauseRepair("has a version that the agent does not know", "Upgrade the agent."),
    (UNKNOWN, "probe_stale"): CauseRepair(
        "has a state from before the agent's probe stopped",
        "Start the service that runs `tollhouse agent probe` every 5 minutes.",
    ),
    (UNKNOWN, DISK_FULL): CauseRepair("may lose its calls, because the agent's disk is full", _SPACE),
    (UNREACHABLE, DISK_FULL): CauseRepair("loses its calls, because the agent's disk is full", _SPACE),
    (UNKNOWN, NO_AGENT): CauseRepair(
        "is not reported by any agent", "Install or upgrade the agent, so that it reports the assistants."
    ),
    (TELEMETRY_OFF, "settings"): CauseRepair(
        "has telemetry switched off in its settings", f"Ask the person to remove the setting. {_POLICY}"
    ),
    (TELEMETRY_OFF, "environment"): CauseRepair(
        "has telemetry switched off by the environment",
        "Remove the variable that does it, such as OTEL_SDK_DISABLED, from the environment of the laptop.",
    ),
    (TELEMETRY_OFF, "vendor_policy"): CauseRepair(
        "has telemetry switched off by the vendor's policy",
        "Change the policy in the vendor's administration.",
    ),
    (OVERRIDDEN, "server_policy"): CauseRepair(
        "uses settings of the vendor's server",
        "Add the fragment in the folder `merge` of the policy to these settings.",
    ),
    (OVERRIDDEN, "mdm_policy"): CauseRepair(
        "uses other settings of the MDM",
        "Add the fragment in the folder `merge` of the policy to these settings.",
    ),
    (OVERRIDDEN, "file_policy"): CauseRepair(
        "uses another managed file", "Add the fragment in the folder `merge` of the policy to this file."
    ),
    (OVERRIDDEN, "project"): CauseRepair(
        "uses settings of a project", "Remove the telemetry settings from the project's folder."
    ),
    (OVERRIDDEN, "environment"): CauseRepair(
        "sends elsewhere because of the environment",
        "Remove the variable that does it, such as OTEL_EXPORTER_OTLP_ENDPOINT, from the environment and `.env` files.",
    ),
    (OVERRIDDEN, "other_endpoint"): CauseRepair(
        "sends to another endpoint", f"Ask the person who uses this endpoint. {_POLICY}"
    ),
    (NOT_CONFIGURED, "no_policy"): CauseRepair("was never set up", _POLICY),
    (NOT_CONFIGURED, "policy_not_applied"): CauseRepair(
        "has not received the policy",
        "Check in the MDM why the policy is not on the laptop. `tollhouse agent policy apply` shows the reason.",
    ),
    (NOT_CONFIGURED, "not_restarted"): CauseRepair(
        "was not restarted since the policy arrived", "Ask the person to restart the assistant."
    ),
    (UNREACHABLE, "agent_down"): CauseRepair(
        "is used while the agent is stopped", "Start the agent's service."
    ),
    (UNREACHABLE, "port_taken"): CauseRepair(
        "is used while another program has the agent's port",
        "Stop the other program, or give the agent another port.",
    ),
    (UNREACHABLE, "proxy"): CauseRepair(
        "sends to a proxy instead of the agent", "Add 127.0.0.1 to NO_PROXY on the laptop."
    ),
    (UNREACHABLE, "tls"): CauseRepair(
        "is used while the agent does not trust the gateway's certificate",
        "Install the certificate authority.",
    ),
    (UNREACHABLE, "dns"): CauseRepair(
        "is used while the agent cannot resolve the gateway's name", "Check the name and the laptop's DNS."
    ),
    (UNREACHABLE, "refused"): CauseRepair(
        "is used while the gateway refuses the agent",
        "Check the device's state with `tollhouse devices show`.",
    ),
    (UNREACHABLE, "no_answer"): CauseRepair(
        "is used while the gateway does not answer the agent",
        "Check the laptop's network, its proxy and firewall, and whether the gateway runs.",
    ),
    (UNREACHABLE, "backlog"): CauseRepair(
        "has calls that wait on the laptop or at another gateway",
        "Check the connection of the laptop, and that of each gateway on the way. The calls are sent later.",
    ),
    (UNREACHABLE, INTERMITTENT): CauseRepair(
        "lost calls at least three times on a day",
        "Look for variables of single terminals, and for programs that end before their last export.",
    ),
    (UNSEEN, SEVERAL_USERS): CauseRepair(
        "is used by several people of a machine, and its calls name no session",
        "Remove settings that leave out session ids, such as OTEL_METRICS_INCLUDE_SESSION_ID=false.",
    ),
    (UNSEEN, DIRECT): CauseRepair(
        "sends to the gateway, which has no call of this device",
        "Let it send to the agent, or add --device to `tollhouse agent policy --mode direct`, so that calls name their "
        "device.",
    ),
    (UNSEEN, SESSIONS_ELSEWHERE): CauseRepair(
        "has calls of a person whose home shows no sessions",
        "Find out where its sessions are, such as in a container or a moved folder, and name the folder in ~/.profile.",
    ),
    (UNSEEN, SESSIONS_UNREADABLE): CauseRepair(
        "has sessions that the probe cannot list",
        "Let links of session folders lead to folders of the same user, name moved folders with an absolute path, ~ or "
        "$HOME, and delete old sessions if there are over 20,000 files.",
    ),
    (UNREACHABLE, NO_RECORD): CauseRepair("was used, but no call arrived", _UNKNOWN),
    (UNREACHABLE, NOT_FORWARDED): CauseRepair(
        "has calls that the agent received and this gateway did not",
        "Run `tollhouse spool status` for the agent and each gateway on the way, and look for records that were set "
        "aside.",
    ),
    CLOCK_WRONG: CauseRepair(
        "sent a time that is wrong by more than 5 minutes", "Set the clock, and let it follow a time server."
    ),
    REVOKED_THERE: CauseRepair(
        "stayed enrolled here after the upstream revoked the device",
        "Revoke the device here as well, or approve it at the upstream: `tollhouse devices approve ID`.",
    ),
}
_STATES: Mapping[str, str] = {
    UNKNOWN: "has an unknown state",
    TELEMETRY_OFF: "has telemetry switched off",
    OVERRIDDEN: "uses other settings",
    NOT_CONFIGURED: "is not set up",
    UNREACHABLE: "cannot send",
}


def repair_of_cause(cause: Cause) -> CauseRepair:
    return _REPAIRS.get(cause) or CauseRepair(_STATES.get(cause[0], cause[0]), _UNKNOWN)

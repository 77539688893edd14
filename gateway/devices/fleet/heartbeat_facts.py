"""
The optional facts of a heartbeat about the machine and its coding assistants.

The agent may be newer than its gateway, or be altered by its user. So an invalid value is left out, and the
rest of the heartbeat counts. Every text is a word of a fixed list or a few characters of a fixed set, so the
facts of a device have less than 16 KiB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from hashlib import sha256
from typing import Any

import msgspec

from gateway.devices.fleet.use_slots import COUNTED_DAYS, SlotCount, utc_day
from gateway.devices.fleet.uses import USES
from gateway.normalise.assistants import ASSISTANTS

MAX_TEXT = 64
MAX_POLICY_NUMBER = 2**53 - 1  # larger numbers are not exact in JSON of every program
MAX_SLOTS = 100_000  # slots of a day; a session has 288, and a machine a few at once
LATEST_TIME = 4e9  # epoch seconds; it is in the year 2096

REPORTING, UNUSED, UNKNOWN, UNREACHABLE = "reporting", "unused", "unknown", "unreachable"
NOT_INSTALLED, TELEMETRY_OFF, OVERRIDDEN = "not_installed", "telemetry_off", "overridden"
NOT_CONFIGURED = "not_configured"
# causes for which the uses of an assistant cannot be compared with calls
SEVERAL_USERS, SESSIONS_UNREADABLE = "several_users", "sessions_unreadable"
SESSIONS_ELSEWHERE = "sessions_elsewhere"
INTERMITTENT = "intermittent"  # calls were lost several times on a day
# state of an assistant -> causes that an agent may state for it
CAUSES: Mapping[str, tuple[str, ...]] = {
    REPORTING: (),
    NOT_INSTALLED: (),
    UNKNOWN: ("no_permission", "malformed", "version", "probe_stale"),
    TELEMETRY_OFF: ("settings", "environment", "vendor_policy"),
    OVERRIDDEN: ("server_policy", "mdm_policy", "file_policy", "project", "environment", "other_endpoint"),
    NOT_CONFIGURED: ("no_policy", "policy_not_applied", "not_restarted"),
    UNREACHABLE: (
        "agent_down",
        "port_taken",
        "proxy",
        "tls",
        "dns",
        "refused",
        "no_answer",
        "backlog",
        INTERMITTENT,
    ),
    UNUSED: (SEVERAL_USERS, SESSIONS_UNREADABLE, SESSIONS_ELSEWHERE),
}
NO_AGENT = "no_agent"  # stated only by the gateway: no agent reports the assistant
NO_RECORD = "no_record"  # stated only by the gateway: the assistant was used, but no call arrived
DIRECT = "direct"  # stated only by the gateway: the assistant sends to the gateway, which has no call of its device
DISK_FULL = "disk_full"  # stated only by the gateway: the spool of the agent is full
NOT_FORWARDED = "not_forwarded"  # stated only by the gateway: the agent has a call that did not arrive
STATES = tuple(CAUSES)

ASSISTANT_TITLES: Mapping[str, str] = {  # as the console's page Fleet writes them
    "claude-code": "Claude Code",
    "codex": "Codex",
    "copilot": "Copilot",
    "gemini-cli": "Gemini CLI",
    "qwen-code": "Qwen Code",
    "opencode": "opencode",
}

SERIAL_PREFIX = b"tollhouse serial number\n"

KIND, CLUSTER = "kind", "cluster"  # label of a device that reports for a cluster, and its value

KEY_STORAGES = ("tpm", "keychain", "file")  # places where an agent may keep its key

_WORD = re.compile(rf"[a-z0-9][a-z0-9_-]{{0,{MAX_TEXT - 1}}}")
_TEXT = re.compile(rf"[A-Za-z0-9(][A-Za-z0-9 ._+~:/()#-]{{0,{MAX_TEXT - 1}}}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_MAX_MIB = 2**20

Reader = Callable[[Any], Any]


def valid_facts(reported: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid facts of a heartbeat, which can be sent upstream as they are."""
    return _read_valid_fields(reported, FACTS)


def without_future_days(facts: Mapping[str, Any], now: float) -> Mapping[str, Any]:
    """Return valid facts without counts of days that have not begun, which a wrong clock states."""
    today = utc_day(now)
    for fields in facts.get("assistants", {}).values():
        if "slots" in fields:
            fields["slots"] = {day: numbers for day, numbers in fields["slots"].items() if day <= today}
    return facts


def heartbeat_with_earlier_facts(earlier_heartbeat: bytes, heartbeat: bytes) -> bytes:
    """Return a heartbeat with those earlier facts that it does not state itself. Both are JSON."""
    if not earlier_heartbeat:
        return heartbeat
    before, now = decode_heartbeat(earlier_heartbeat), decode_heartbeat(heartbeat)
    kept = {name: before[name] for name in FACTS if name in before and name not in now}
    return msgspec.json.encode({**now, **kept}) if kept else heartbeat


def valid_hardware_id(value: Any) -> str:
    return value if isinstance(value, str) and _SHA256.fullmatch(value) else ""


def hash_serial(serial: str) -> str:
    """Return the hash that every agent reports, "" without a serial number."""
    return sha256(SERIAL_PREFIX + serial.strip().casefold().encode()).hexdigest() if serial.strip() else ""


def has_cluster_label(labels: Mapping[str, str]) -> bool:
    return labels.get(KIND) == CLUSTER


def decode_heartbeat(heartbeat: bytes) -> dict[str, Any]:
    return msgspec.json.decode(heartbeat, type=dict[str, Any]) if heartbeat else {}


def parse_time_to_epoch(text: Any) -> float | None:
    """Parse an RFC 3339 time with an offset into epoch seconds. Return None for anything else."""
    if not isinstance(text, str) or len(text) > MAX_TEXT:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    seconds = at.timestamp() if at.tzinfo else -1.0
    return seconds if 0 <= seconds < LATEST_TIME else None


def _read_valid_fields(value: Any, readers: Mapping[str, Reader]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    fields = {name: read(value[name]) for name, read in readers.items() if name in value}
    return {name: field for name, field in fields.items() if field is not None}


def _pattern_reader(pattern: re.Pattern[str]) -> Reader:
    return lambda value: value if isinstance(value, str) and pattern.fullmatch(value) else None


def _valid_time(value: Any) -> str | None:
    return value if parse_time_to_epoch(value) is not None else None


def _valid_flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _valid_policy_number(value: Any) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value <= MAX_POLICY_NUMBER else None


def _valid_mebibytes(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and 0 <= value <= _MAX_MIB else None


def _valid_assistants(value: Any) -> dict[str, dict[str, Any]] | None:
    if not isinstance(value, Mapping):
        return None
    valid = {name: _valid_assistant(value[name]) for name in ASSISTANTS if name in value}
    return {name: fields for name, fields in valid.items() if fields}


def _valid_assistant(value: Any) -> dict[str, Any]:
    fields = _read_valid_fields(value, _ASSISTANT)
    if "state" not in fields:
        return {}
    if "cause" in fields and fields["cause"] not in CAUSES[fields["state"]]:
        del fields["cause"]
    return fields


def _valid_slots(value: Any) -> dict[str, list[int]] | None:
    """Return the valid days of the counts of slots. Each is used, lost, and lost calls."""
    if not isinstance(value, Mapping):
        return None
    days = sorted(day for day, numbers in value.items() if _is_day(day) and _are_slots(numbers))
    return {day: value[day] for day in days[-COUNTED_DAYS:]}


def _is_day(text: Any) -> bool:
    try:
        return isinstance(text, str) and date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _are_slots(numbers: Any) -> bool:
    is_list = isinstance(numbers, list) and len(numbers) == len(SlotCount._fields)
    if not is_list or not all(type(number) is int and 0 <= number <= MAX_SLOTS for number in numbers):
        return False
    used, lost, calls = numbers
    return calls <= lost <= used and bool(calls) == bool(lost)


def _group_reader(readers: Mapping[str, Reader]) -> Reader:
    return lambda value: _read_valid_fields(value, readers) or None


_ASSISTANT: Mapping[str, Reader] = {
    "state": lambda value: value if isinstance(value, str) and value in CAUSES else None,
    "cause": _pattern_reader(_WORD),
    "version": _pattern_reader(_TEXT),
    "used_at": _valid_time,
    "use": lambda value: value if isinstance(value, str) and value in USES else None,
    "state_since": _valid_time,
    "unheard_since": _valid_time,
    "heard_at": _valid_time,
    "configured": _valid_flag,
    "direct": _valid_flag,
    "slots": _valid_slots,
}
FACTS: Mapping[str, Reader] = {
    "serial": _pattern_reader(_TEXT),
    "serial_hash": _pattern_reader(_SHA256),
    "os": _pattern_reader(_TEXT),
    "agent": _group_reader(
        {"service": _pattern_reader(_WORD), "rss_mib": _valid_mebibytes, "started_at": _valid_time}
    ),
    "policy": _group_reader(
        {
            "sha256": _pattern_reader(_SHA256),
            "number": _valid_policy_number,
            "applied_at": _valid_time,
            "error": _pattern_reader(_WORD),
        }
    ),
    "key_storage": lambda value: value if isinstance(value, str) and value in KEY_STORAGES else None,
    "assistants": _valid_assistants,
}

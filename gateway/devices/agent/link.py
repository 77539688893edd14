"""
The files with which the agent and the probe inform each other, and the numbers of heartbeats, in the agent's
data directory.

The probe stores the states of assistants, and the agent how it reaches the gateway. Neither trusts the
other's file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from gateway.devices.agent.identity import write_private_file
from gateway.devices.fleet.heartbeat_facts import NOT_INSTALLED, UNKNOWN

STATES_FILE: Final = "states.json"
LINK_FILE: Final = "link.json"
SOURCES_FILE: Final = "sources.json"
HEARD_FILE: Final = "heard.json"  # file of the calls that the agent received, by session
USES_FILE: Final = (
    "uses.json"  # file of uses and sessions; only the probe reads it, because the times are exact
)
HEARTBEATS_FILE: Final = "heartbeats.json"
# words that the setting agent.report may list
USER, SERIAL, USE, ENDPOINT = "user", "serial", "use", "endpoint"
MOST_BYTES: Final = 64 * 1024
MOST_WORD: Final = 256
BACKLOG_S: Final = 600.0  # seconds; records that wait longer to be sent count as a backlog
PROBE_STALE_S: Final = 900.0  # seconds after which the probe counts as stale: three times its interval
PROBE_STALE, BACKLOG = "probe_stale", "backlog"
DAEMON: Final = "daemon"
# fields of a heartbeat that the agent copies from the probe
PROBED: Final = "user", "hardware_id", "serial", "serial_hash", "os", "policy", "assistants"


class ProbedAssistantStates:
    """
    The heartbeat fields that the probe stored. They are read again when the file is replaced. If the probe
    stored nothing for PROBE_STALE_S, the states of the assistants are unknown. Time in which the machine sleeps does
    not count.
    """

    def __init__(self, directory: Path, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._path = directory / STATES_FILE
        self._monotonic = monotonic
        self._stored_at = monotonic()
        self._stamp: tuple[int, int] | None = None
        self._fields: dict[str, Any] = {}

    def probed_fields(self) -> Mapping[str, Any]:
        """Return the heartbeat fields, or {} if there is no valid file."""
        try:
            status = self._path.stat()
        except OSError:
            return {}
        stamp = (status.st_mtime_ns, status.st_ino)
        if stamp != self._stamp:
            self._stamp, self._fields, self._stored_at = stamp, self._read_state_file(), self._monotonic()
        is_stale = self._monotonic() - self._stored_at > PROBE_STALE_S
        return {**self._fields, "assistants": self._assistants_as_unknown()} if is_stale else self._fields

    def _assistants_as_unknown(self) -> dict[str, Any]:
        assistants = self._fields.get("assistants")
        rows = assistants.items() if isinstance(assistants, dict) else ()
        unknown = {"state": UNKNOWN, "cause": PROBE_STALE}
        return {
            name: row if row.get("state") == NOT_INSTALLED else _with_last_use(unknown, row)
            for name, row in rows
            if isinstance(row, dict)
        }

    async def wait_for_probed_fields(self, most_s: float) -> None:
        from asyncio import sleep  # imported here, because the probe does not need it

        for _ in range(round(most_s / 0.5)):
            if self.probed_fields():
                return
            await sleep(0.5)

    def states_to_compare(self) -> object:
        """
        Return a value that changes if a state, a version or the policy changes, but not with each use of an
        assistant.
        """
        assistants = self.probed_fields().get("assistants")
        rows = assistants.items() if isinstance(assistants, dict) else ()
        named = ((name, row) for name, row in rows if isinstance(row, dict))
        words = ("state", "cause", "version", "use")
        states = [(name, *map(row.get, words)) for name, row in named]
        return states, self.probed_fields().get("policy"), self.probed_fields().get("hardware_id")

    def _read_state_file(self) -> dict[str, Any]:
        try:
            with self._path.open("rb") as file:
                content = file.read(MOST_BYTES + 1)
            found = msgspec.json.decode(content, type=dict[str, Any]) if len(content) <= MOST_BYTES else {}
        except (OSError, msgspec.DecodeError, RecursionError):
            return {}
        return {name: found[name] for name in PROBED if name in found}


def _with_last_use(row: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "use": before["use"]} if "use" in before else dict(row)


class _StoredHeartbeatNumbers(msgspec.Struct):
    seq: int = 0
    next: str = ""


class HeartbeatNumbers:
    """
    The number of each heartbeat, and the token that the gateway returned to the last one, which the next
    heartbeat repeats. Both are stored before they are used. So the gateway notices a copy of this disk, and
    does not mistake a crash for one.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / HEARTBEATS_FILE
        try:
            self._numbers = msgspec.json.decode(self._path.read_bytes(), type=_StoredHeartbeatNumbers)
        except (FileNotFoundError, msgspec.DecodeError):
            self._numbers = _StoredHeartbeatNumbers()

    def number_next_heartbeat(self) -> dict[str, object]:
        """Return the fields of a new heartbeat. Raises OSError if the number cannot be stored."""
        self._store_numbers(_StoredHeartbeatNumbers(self._numbers.seq + 1, self._numbers.next))
        return {"seq": self._numbers.seq, **({"next": self._numbers.next} if self._numbers.next else {})}

    def store_heartbeat_token(self, heartbeat_token: str) -> None:
        if len(heartbeat_token) <= MOST_WORD:
            self._store_numbers(_StoredHeartbeatNumbers(self._numbers.seq, heartbeat_token))

    def _store_numbers(self, numbers: _StoredHeartbeatNumbers) -> None:
        write_private_file(self._path, msgspec.json.encode(numbers).decode())
        self._numbers = numbers


class LinkFile:
    """
    The file in which the agent stores its own state for `tollhouse agent probe`. It is written only if
    something changed.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / LINK_FILE
        self._text = ""

    def write_if_changed(self, **fields: object) -> None:
        text = msgspec.json.encode(fields).decode()
        if text != self._text:
            write_private_file(self._path, text)
            self._text = text


def service_manager_kind() -> str:
    """Return how this process was started: by the system's or a user's service manager, or by hand."""
    if "INVOCATION_ID" not in os.environ:
        return "manual"
    return "user" if "MANAGERPID" in os.environ else DAEMON


def resident_memory() -> dict[str, int]:
    """Return the resident memory in MiB, where a system states it in a file."""
    if sys.platform != "linux":
        return {}
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"rss_mib": pages * os.sysconf("SC_PAGESIZE") // 2**20}

"""
The facts of this machine for the probe: homes, processes, the agent's files and its port, and the hardware's
ids.
"""

from __future__ import annotations

import os
import platform
import re
import socket
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from gateway.devices.agent.heard_calls import read_heard_calls
from gateway.devices.agent.link import LINK_FILE, SERIAL, USER, USES_FILE
from gateway.devices.agent.policy.targets import LINUX, MACOS, WINDOWS
from gateway.devices.agent.probe.folders import MOST_BYTES, GuardedFolder, UnreadableFile
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, probe_and_remember_states
from gateway.devices.fleet.heartbeat_facts import MAX_TEXT, hash_serial
from gateway.devices.fleet.uses import RememberedAssistantUses

MOST_HOMES: Final = 64
MOST_BYTES_OF_USES: Final = 16 * 1024 * 1024  # the file has an entry for each session of 30 days
MOST_PROCESSES: Final = 4096
CONNECT_S: Final = 1.0
AGENT_DOWN, PORT_TAKEN = "agent_down", "port_taken"
HARDWARE_PREFIX: Final = b"tollhouse hardware id\n"
_FIRST_USER: Final = {LINUX: 1000, MACOS: 500}
# file in which systemd-logind writes the user who is active at the screen
_SEAT: Final = "run/systemd/seats/seat0"
# folder of the hardware's ids, to which the link /sys/class/dmi/id leads
_DMI: Final = "sys/devices/virtual/dmi/id"
# ids and serial numbers that vendors leave in many machines
_PLACEHOLDERS: Final = frozenset(
    {
        "",
        "0",
        "none",
        "default string",
        "not specified",
        "system serial number",
        "to be filled by o.e.m.",
        "00020003-0004-0005-0006-000700080009",
        "03000200-0400-0500-0006-000700080009",
        "12345678-1234-5678-90ab-cddeefaabbcc",
    }
)


def current_system() -> str:
    return {"darwin": MACOS, "win32": WINDOWS}.get(sys.platform, LINUX)


class ProbeResult(NamedTuple):
    """The heartbeat fields that one inspection of the machine found, and what the next inspection needs."""

    found: dict[str, Any]
    memories: Mapping[str, RememberedAssistantUses]


class AgentState(NamedTuple):
    """
    The agent's address, why it cannot be reached there, why it cannot forward to the gateway, and the time of
    the oldest record that waits.
    """

    url: str
    problem: str
    forward: str
    oldest_at: float | None


def probe_agent(data_dir: Path, listen: str) -> AgentState:
    """Find the agent. `listen` is its address, or ends with the port 0 if the agent chooses one."""
    stored = _read_agent_file(data_dir, LINK_FILE)
    chosen = stored.get("url") if listen.endswith(":0") else f"http://{listen}"
    url = chosen if isinstance(chosen, str) else ""
    forward, oldest_at = str(stored.get("forward") or ""), _number_or_none(stored.get("oldest_at"))
    return AgentState(url, _probe_agent_connection(url), forward, oldest_at)


def probe_machine(
    data_dir: Path, *, ours: Iterable[str], report: Iterable[str], now: float, listen: str
) -> ProbeResult:
    """
    Inspect this machine once: as root the homes of all users, and otherwise the user's own home. `listen` is
    the agent's address, or ends with the port 0 if the agent chooses one.
    """
    agent = probe_agent(data_dir, listen)
    words, url = tuple(report), agent.url
    link = AgentLink(
        path=agent.problem, forward=agent.forward, oldest_at=agent.oldest_at, calls=read_heard_calls(data_dir)
    )
    machine = ProbedMachine(
        system=current_system(),
        root=GuardedFolder(Path(Path.home().anchor)),
        homes=list(_homes_to_probe()),
        ours=[each for each in (*ours, url) if each],
        only_http=[url] if url else [],
        registry=_registry_values,
        started_at=Processes().started_at,
    )
    memories = _read_remembered_assistant_uses(data_dir)
    found = {
        **machine_identity_fields(machine.root, words),
        **probe_and_remember_states(machine, link, words, now=now, remembered_uses=memories),
    }
    user = user_at_screen(machine.root) if USER in words and can_see_all_homes() else ""
    return ProbeResult({**found, "user": user} if user else found, memories)


# -- homes -------------------------------------------------------------------------------------------------------


def _homes_to_probe() -> Iterator[UserHome]:
    if sys.platform == "win32":
        users = Path(os.environ.get("PUBLIC", r"C:\Users\Public")).parent
        for path in islice(users.iterdir(), MOST_HOMES):
            yield UserHome(
                folder=GuardedFolder(path), environment=dict(os.environ) if path == Path.home() else {}
            )
    elif can_see_all_homes():
        yield from find_user_homes()
    else:
        yield UserHome(folder=GuardedFolder(Path.home()), user=os.geteuid(), environment=dict(os.environ))


def can_see_all_homes() -> bool:
    return sys.platform != "win32" and os.geteuid() == 0


def user_at_screen(root: GuardedFolder, console: str = "/dev/console") -> str:
    """Return the person who is logged in at this machine's screen, or "" if nobody is or nothing shows it."""
    if sys.platform == "win32":
        return ""
    import pwd

    try:
        if sys.platform == "darwin":
            uid = Path(console).stat().st_uid
        else:
            stored = root.read_file(_SEAT)
            match = re.search(rb"^ACTIVE_UID=(\d+)$", stored[0], re.MULTILINE) if stored else None
            uid = int(match[1]) if match else 0
        return pwd.getpwuid(uid).pw_name if uid >= _FIRST_USER[current_system()] else ""
    except (OSError, KeyError, OverflowError, UnreadableFile):
        return ""


def find_user_homes() -> Iterator[UserHome]:
    """Yield the homes of root and of people's accounts. A home that another account owns is left out."""
    if sys.platform == "win32":
        return
    import pwd

    seen: set[int] = set()
    for entry in pwd.getpwall():
        is_person = entry.pw_uid == 0 or _FIRST_USER.get(current_system(), 0) <= entry.pw_uid < 65534
        if not is_person or entry.pw_uid in seen or len(seen) >= MOST_HOMES:
            continue
        try:
            status = Path(entry.pw_dir).stat()
        except OSError:
            continue
        if stat.S_ISDIR(status.st_mode) and status.st_uid == entry.pw_uid:
            seen.add(entry.pw_uid)
            yield UserHome(
                folder=GuardedFolder(Path(entry.pw_dir), (entry.pw_uid, entry.pw_gid)), user=entry.pw_uid
            )


# -- the agent ---------------------------------------------------------------------------------------------------


def _read_agent_file(data_dir: Path, name: str, most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    try:
        stored = GuardedFolder(data_dir).read_file(name, most_bytes)
        return msgspec.json.decode(stored[0], type=dict[str, Any]) if stored else {}
    except (UnreadableFile, msgspec.DecodeError):
        return {}


def _number_or_none(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _read_remembered_assistant_uses(data_dir: Path) -> dict[str, RememberedAssistantUses]:
    try:
        return msgspec.convert(
            _read_agent_file(data_dir, USES_FILE, MOST_BYTES_OF_USES), dict[str, RememberedAssistantUses]
        )
    except msgspec.ValidationError:
        return {}


def _probe_agent_connection(url: str) -> str:
    parts = urlsplit(url)
    if not parts.hostname or not parts.port:
        return AGENT_DOWN
    try:
        with closing(socket.create_connection((parts.hostname, parts.port), timeout=CONNECT_S)) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while len(answer) < 4096 and (more := connection.recv(4096)):
                answer += more
    except ConnectionRefusedError:
        return AGENT_DOWN
    except OSError:
        return PORT_TAKEN
    return "" if answer.startswith(b"HTTP/1.1 ") and b'"live"' in answer else PORT_TAKEN


# -- processes ---------------------------------------------------------------------------------------------------


class Processes:
    """The running processes of assistants. Only Linux lists them in files."""

    def __init__(self, folder: Path = Path("/proc")) -> None:
        self._folder = folder
        self._found: dict[tuple[str, int], float] | None = None

    def started_at(self, program: str, user: int | None) -> float | None:
        if self._found is None:
            self._found = self._start_times_by_program_and_user()
        return None if user is None else self._found.get((program, user))

    def _start_times_by_program_and_user(self) -> dict[tuple[str, int], float]:
        if sys.platform != "linux":
            return {}
        try:
            lines = (self._folder / "stat").read_text().splitlines()
            booted = next(float(line.split()[1]) for line in lines if line.startswith("btime "))
            processes = [each for each in self._folder.iterdir() if each.name.isdigit()][:MOST_PROCESSES]
        except (OSError, StopIteration):
            return {}
        found: dict[tuple[str, int], float] = {}
        ticks_per_s = os.sysconf("SC_CLK_TCK")
        for process in processes:
            try:
                with (process / "cmdline").open("rb") as file:
                    # only the program and its first word are read, because later words may be a prompt
                    words = file.read(1024).split(b"\0")[:2]
                fields = (process / "stat").read_text().rpartition(")")[2].split()
                user = process.stat().st_uid
            except (OSError, UnicodeDecodeError):
                continue
            started = booted + int(fields[19]) / ticks_per_s
            for word in words:
                program = word.rpartition(b"/")[2].decode(errors="replace")
                found[program, user] = min(started, found.get((program, user), started))
        return found


# -- hardware and system -----------------------------------------------------------------------------------------


def machine_identity_fields(root: GuardedFolder, report: tuple[str, ...]) -> dict[str, str]:
    found = {"os": _os_name(), "hardware_id": hashed_hardware_id(_read_dmi_field(root, "product_uuid"))}
    serial = _read_dmi_field(root, "product_serial")[:MAX_TEXT]
    if serial.lower() not in _PLACEHOLDERS:
        found["serial_hash"] = hash_serial(serial)
        found["serial"] = serial if SERIAL in report else ""
    return {name: value for name, value in found.items() if value}


def _read_dmi_field(root: GuardedFolder, name: str) -> str:
    try:
        stored = root.read_file(f"{_DMI}/{name}")
    except UnreadableFile:
        return ""
    return stored[0].decode(errors="replace").strip() if stored else ""


def hashed_hardware_id(uuid: str) -> str:
    """Return the id of a machine from its SMBIOS UUID, or "" if the UUID is a placeholder."""
    uuid = uuid.strip().lower()
    if uuid in _PLACEHOLDERS or len(set(uuid.replace("-", ""))) == 1:
        return ""
    return sha256(HARDWARE_PREFIX + uuid.encode()).hexdigest()


def _os_name() -> str:
    if sys.platform == "darwin":
        name = f"macos {platform.mac_ver()[0]}"
    elif sys.platform == "win32":
        name = f"windows {platform.version()}"
    else:
        try:
            release = platform.freedesktop_os_release()
        except OSError:
            release = {}
        name = f"{release.get('ID', 'linux')} {release.get('VERSION_ID', '')}"
    return name.strip()[:MAX_TEXT]


def _registry_values(key: str) -> Mapping[str, object]:
    values: dict[str, object] = {}
    if sys.platform == "win32":
        import winreg

        try:
            with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:
                for number in range(winreg.QueryInfoKey(opened)[1]):
                    name, value, _ = winreg.EnumValue(opened, number)
                    values[name] = value
        except FileNotFoundError:
            return {}
    return values

"""A made-up laptop: the real probe on a tree of files, and the real reporter over HTTP, with a moved clock."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from exporters.device_reporter import DeviceReporter
from exporters.secret_source import SecretSource
from exporters.service.paths import UpstreamPaths
from exporters.service.upstream_client import build_client
from exporters.settings import UpstreamSettings
from gateway.devices.agent.heard_calls import HeardSessions, ReceivedCall, read_heard_calls
from gateway.devices.agent.identity import (
    KEY_FILE,
    DeviceIdentity,
    load_or_create_identity,
    write_private_file,
)
from gateway.devices.agent.link import (
    BACKLOG_S,
    STATES_FILE,
    USES_FILE,
    HeartbeatNumbers,
    ProbedAssistantStates,
)
from gateway.devices.agent.policy.targets import LINUX, MANAGED, Destination
from gateway.devices.agent.probe.folders import GuardedFolder, replace_file
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, probe_and_remember_states
from gateway.devices.fleet.heartbeat_facts import hash_serial
from gateway.devices.fleet.uses import RememberedAssistantUses
from spool.record import utc_iso
from tests.integration.fleet import history
from tests.integration.fleet.history import ASSISTANTS, USERS, Call, History, Key
from tests.integration.payloads import json_span
from tests.moved_clock import MovedClock

OURS = "http://127.0.0.1:4318"
OTHER = "https://collector.example.net:4318"
SESSIONS = {  # the session of each user
    "ada": "0f0e0d0c-0b0a-4908-8706-050403020100",
    "bob": "1f1e1d1c-1b1a-4918-8716-151413121110",
}
FILES = {
    "gemini-cli": ".gemini/tmp/work/chats/session-2026-11-27T08-00-{short}.jsonl",
    "copilot": ".copilot/session-state/{id}/events.jsonl",
}
PROGRAMS = {"gemini-cli": "gemini-cli", "copilot": "copilot_cli"}
PROMPT_BYTES, OPENED_BYTES = 3000, 200
GEMINI = {"event.name": "gemini_cli.api_response", "model": "gemini-2.5-pro", "input_token_count": "120"}


class Laptop:
    """One laptop with its history. `step` lets five minutes happen, after the clock was moved."""

    def __init__(self, place: Path, name: str, past: History, clock: MovedClock) -> None:
        self.past = past
        self.name = name
        self.root = place / "root"
        self.data = place / "data"
        self.data.mkdir(parents=True)
        self._clock = clock
        self._homes = [
            UserHome(folder=GuardedFolder(self.root / "home" / user), user=1000 + number)
            for number, user in enumerate(USERS)
        ]
        for home in self._homes:
            home.folder.path.mkdir(parents=True)
        self._waiting: list[tuple[Key, Call]] = []
        self._heard = HeardSessions(self.data)
        self._awake_s = 0.0
        self._settled_at = clock.now()
        self._settings: dict[str, str] = {}
        self.is_online = False
        self.arrived: dict[
            str, float
        ] = {}  # true ends of the newest calls that the gateway has, by assistant
        self.dropped: dict[str, list[Call]] = {}
        self.looks: list[float] = []  # looks after which a heartbeat could say that nothing waits
        self.told_offset_s: float | None = None  # the clock offset that the newest heartbeat stated
        self.serial = f"serial of {name}"
        self.more: Mapping[str, object] = {  # further facts in the reports of the laptop
            "hardware_id": sha256(name.encode()).hexdigest(),
            "serial_hash": hash_serial(self.serial),
        }
        self.words: list[str] = []  # what the gateway stated after each look, and when losses began
        self.losses: list[float] = []

    def connect(self, url: str, enrolment_key: Path) -> None:
        """Start the agent's process, with nothing in its memory."""
        self.url, self.enrolment_key = url, enrolment_key
        self.who: DeviceIdentity = load_or_create_identity(self.data, device_id=self.name)
        self._numbers = HeartbeatNumbers(self.data)
        self._probed = ProbedAssistantStates(self.data, monotonic=lambda: self._awake_s)
        key_file = self.data / KEY_FILE
        settings = UpstreamSettings(base_url=url, kind="tollhouse")
        self.reporter = DeviceReporter(
            build_client(settings, clock=self._clock),
            UpstreamPaths(settings),
            facts=self._facts,
            report=self._report,
            version=lambda: (self._probed.states_to_compare(), self._spool_fullness()),
            enrolment_key=SecretSource("the enrolment key", file=enrolment_key),
            key_file=key_file,
            keep_key=lambda key: write_private_file(key_file, key + "\n"),
            keep_word=self._numbers.store_heartbeat_token,
        )

    async def restart(self) -> None:
        await self.reporter.close()
        self.connect(self.url, self.enrolment_key)

    @property
    def has_backlog(self) -> bool:
        return bool(self._waiting)

    @property
    def key(self) -> str:
        return (self.data / KEY_FILE).read_text().strip()

    def take_calls(self) -> None:
        """Let the programs write their sessions, and the agent hear the calls of the last five minutes."""
        now = self._clock.now()
        self._settle()
        for key in self.past.calls:
            for at in self.past.opened[key]:
                if self._settled_at < at <= now:
                    self._grow_session(key, at, OPENED_BYTES)
            for at, *_ in self.past.calls[key]:
                if self._settled_at < at <= now:
                    self._grow_session(key, at, PROMPT_BYTES)
            for call in self.past.calls[key]:
                if self._settled_at < call.heard_at <= now:
                    if call.is_dropped:
                        self.dropped.setdefault(key.assistant, []).append(call)
                    else:
                        self._waiting.append((key, call))
                    times = (at + self.past.offset_s(at) for at in (call.at, call.ended))
                    received = ReceivedCall(PROGRAMS[key.assistant], SESSIONS[key.user], None, *times)
                    self._heard.add_calls([received], self._local())
        self._heard.write(0, self._local())
        self._settled_at = now

    def probe(self) -> None:
        """Look, and store what was found, as `tollhouse agent probe` does."""
        self._awake_s += history.LOOK_S
        if self._is(history.NO_PROBE) or self._is(history.DISK_FULL):
            return
        oldest = self._oldest_s()
        now = self._local()
        link = AgentLink(
            path="agent_down" if self._is(history.AGENT_DOWN) else "",
            forward="backlog" if oldest > BACKLOG_S else "",
            oldest_at=(now - oldest) // BACKLOG_S * BACKLOG_S if oldest > BACKLOG_S else None,
            calls=read_heard_calls(self.data),
        )
        seen = ProbedMachine(
            system=LINUX, root=GuardedFolder(self.root), homes=self._homes, ours=[OURS], only_http=[OURS]
        )
        memories = self._memories()
        found = probe_and_remember_states(seen, link, ("user", "use"), now=now, remembered_uses=memories)
        replace_file(self.data, STATES_FILE, json.dumps(found))
        replace_file(self.data, USES_FILE, msgspec.json.encode(memories).decode())

    async def report(self) -> None:
        """Send what is due. The laptop was online if the gateway heard it."""
        self.is_online = False
        if self._is(history.OFFLINE) or self._is(history.AGENT_DOWN):
            return
        if not (self.data / KEY_FILE).exists():
            await self.reporter.send_report_and_return_wait_s()
        await self.reporter.send_report_and_return_wait_s()
        self.is_online = self.reporter.reason is None
        if self.is_online and not (
            self._waiting or self._is(history.NO_PROBE) or self._is(history.DISK_FULL)
        ):
            self.looks.append(self._clock.now())

    def deliver(self) -> list[bytes]:
        """Return the bodies that the agent can send now. They no longer wait."""
        if any(map(self._is, (history.OFFLINE, history.AGENT_DOWN, history.BLOCKED))):
            return []
        sent, self._waiting = self._waiting, []
        for key, call in sent:
            self.arrived[key.assistant] = max(call.ended, self.arrived.get(key.assistant, 0.0))
        return [self._body(key, call) for key, call in sent]

    def install_again(self, name: str) -> None:
        """Lose the data directory, as a new system does."""
        shutil.rmtree(self.data)
        self.data.mkdir()
        self.name, self._waiting, self._heard, self.looks = name, [], HeardSessions(self.data), []
        self.arrived, self.dropped, self.told_offset_s = {}, {}, None
        self.past.installed = self._clock.now()

    def lacking(self, now: float) -> Iterator[Call]:
        """Yield the calls that the agent dropped after the newest call of their assistant that arrived."""
        for assistant, calls in self.dropped.items():
            newest = self.arrived.get(assistant, 0.0)
            yield from (call for call in calls if newest < call.ended and call.heard_at <= now)

    def is_stated(self, call: Call) -> bool:
        """
        Return whether heartbeats stated a call long enough ago, in an hour without a later call that arrived. The hour
        of the first heartbeat may have calls from before the device was enrolled, so it shows no loss.
        """
        hour = call.ended // history.HOUR * history.HOUR
        if not self.looks or hour < self.looks[0]:
            return False
        newest = max((end for end in self.arrived.values()), default=0.0)
        is_later = newest + 2 * history.MINUTE < hour and len(self.past.offsets) == 1
        return is_later and len([at for at in self.looks if at > call.heard_at]) >= LOOKS_OF_A_HEARTBEAT

    def _is(self, kind: str) -> bool:
        return self.past.has(kind, self._clock.now())

    def _local(self) -> float:
        return self._clock.now() + self.past.offset_s(self._clock.now())

    def _oldest_s(self) -> float:
        return max((self._clock.now() - call.heard_at for _, call in self._waiting), default=0.0)

    def _facts(self) -> Mapping[str, object]:
        who = self.who
        return {
            "device_id": who.device_id,
            "fingerprint": who.fingerprint,
            **self._probed.probed_fields(),
            **self.more,
        }

    async def _report(self) -> Mapping[str, object]:
        self.told_offset_s = self.past.offset_s(self._clock.now())
        return {
            "sent_at": utc_iso(self._local()),
            "spool": {
                "records": len(self._waiting),
                "oldest_age_s": self._oldest_s(),
                **self._spool_fullness(),
            },
            **self._numbers.number_next_heartbeat(),
        }

    def _spool_fullness(self) -> dict[str, object]:
        """Return whether the disk is full now, and the end of the first call that it refused."""
        now = self._clock.now()
        spans = [
            each.span for each in self.past.faults if each.kind == history.DISK_FULL and each.span.has(now)
        ]
        lost = [call for calls in self.past.calls.values() for call in calls if call.is_lost]
        ends = [call.ended for call in lost for span in spans if span.has(call.ended) and call.ended <= now]
        refused = min(ends) + self.past.offset_s(min(ends)) if ends else None
        return {"full": bool(spans), "refused_since": utc_iso(refused)}

    def _memories(self) -> dict[str, RememberedAssistantUses]:
        path = self.data / USES_FILE
        return (
            msgspec.json.decode(path.read_bytes(), type=dict[str, RememberedAssistantUses])
            if path.exists()
            else {}
        )

    def _settle(self) -> None:
        """Write the settings that hold now, if they changed."""
        for assistant in ASSISTANTS:
            managed = MANAGED[assistant]
            kinds = [
                kind for kind in (history.OVERRIDDEN, history.UNSET) if self._has_setting(kind, assistant)
            ]
            text = managed.settings_text(Destination(endpoint=OTHER if history.OVERRIDDEN in kinds else OURS))
            self._put(managed.files[LINUX], None if history.UNSET in kinds else text)
        for user in USERS:
            is_own = self.past.has(history.OVERRIDDEN, self._clock.now(), Key(history.OWN_VARIABLES, user))
            self._put(f"home/{user}/.profile", VARIABLE if is_own else None)

    def _has_setting(self, kind: str, assistant: str) -> bool:
        """Return whether a setting is wrong for all users."""
        now = self._clock.now()
        return all(self.past.has(kind, now, Key(assistant, user)) for user in USERS)

    def _put(self, path: str, text: str | None) -> None:
        if self._settings.get(path, "") == text:
            return
        file = self.root / path.lstrip("/")
        self._settings[path] = text or ""
        if text is None:
            file.unlink(missing_ok=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            os.utime(file, (self._local(),) * 2)

    def _grow_session(self, key: Key, at: float, size: int) -> None:
        id = SESSIONS[key.user]
        file = self.root / "home" / key.user / FILES[key.assistant].format(id=id, short=id[:8])
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a") as opened:
            opened.write("x" * size)
        os.utime(file, (at + self.past.offset_s(at),) * 2)

    def _body(self, key: Key, call: Call) -> bytes:
        ended = int((call.ended + self.past.offset_s(call.ended)) * 1e9)
        begun = ended - 1_000_000
        if key.assistant == "gemini-cli":
            facts = {**GEMINI, "prompt_id": f"{self.name} {call.at}", "event.timestamp": utc_iso(ended / 1e9)}
            item = {"timeUnixNano": str(ended), "attributes": _otlp_attributes(facts)}
            return _request("resourceLogs", "scopeLogs", "logRecords", "gemini-cli", item)
        span = json_span(startTimeUnixNano=str(begun), endTimeUnixNano=str(ended))
        return _request("resourceSpans", "scopeSpans", "spans", "github-copilot", span)


# a heartbeat is sent at least each 15 minutes, and its call has 10 minutes to arrive
LOOKS_OF_A_HEARTBEAT = 8
VARIABLE = f"export GEMINI_TELEMETRY_OTLP_ENDPOINT={OTHER}\n"


def path_of(body: bytes) -> str:
    return "/v1/logs" if b"resourceLogs" in body else "/v1/traces"


def _request(resources: str, scopes: str, items: str, service: str, item: Mapping[str, Any]) -> bytes:
    resource = {"attributes": _otlp_attributes({"service.name": service})}
    return json.dumps({resources: [{"resource": resource, scopes: [{items: [item]}]}]}).encode()


def _otlp_attributes(facts: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": str(value)}} for name, value in facts.items()]

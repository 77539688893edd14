"""Made-up machines for the probe: a root with files, and homes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.devices.agent.heard_calls import HeardCalls
from gateway.devices.agent.policy.targets import LINUX, MANAGED, Destination
from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, probe_and_remember_states
from gateway.devices.agent.sessions import PROGRAMS, PROGRAMS_BY_NAME, session_key, user_key
from gateway.devices.fleet.use_slots import OpenUse
from gateway.devices.fleet.uses import RememberedAssistantUses

# the program of each assistant whose sessions are looked at
PROGRAM_OF = {program.assistant: program.name for program in PROGRAMS if program.shapes}
OURS = "http://127.0.0.1:4318"
OTHER = "https://collector.example.net:4318"
USE = ("user", "use")
SESSION = "0f0e0d0c-0b0a-4908-8706-050403020100"
SESSIONS = {
    "claude-code": f".claude/projects/-work/{SESSION}.jsonl",
    "codex": f".codex/sessions/2026/11/27/rollout-2026-11-27T08-00-00-{SESSION}.jsonl",
    "copilot": f".copilot/session-state/{SESSION}/events.jsonl",
    "gemini-cli": f".gemini/tmp/work/chats/session-2026-11-27T08-00-{SESSION[:8]}.jsonl",
    "qwen-code": f".qwen/projects/-work/chats/{SESSION}.jsonl",
    "opencode": ".local/share/opencode/opencode.db",
}


def key_of(assistant: str) -> str:
    """Return the key of the session that `SESSIONS` names."""
    program = PROGRAMS_BY_NAME[PROGRAM_OF[assistant]]
    return session_key(program.name, "" if program.is_database else SESSION)


def heard(assistant: str, *ended: float) -> dict[str, HeardCalls]:
    """Return what the agent knows after short calls of this session that ended at these times."""
    program = PROGRAMS_BY_NAME[PROGRAM_OF[assistant]]
    calls = HeardCalls()
    for each in ended:
        calls.add_call(each - 5, each)
    if program.is_database:
        return {user_key(program.name, None): calls}
    return {key_of(assistant): calls, user_key(program.name, None): HeardCalls(max(ended))}


class Tree:
    """A machine with the home `home/ada`. All times of files are old enough to be no fresh use."""

    def __init__(self, root: Path, system: str = LINUX) -> None:
        self.root = root
        self.system = system
        self.memories: dict[str, RememberedAssistantUses] = {}
        self.homes = {"ada": UserHome(folder=GuardedFolder(root / "home/ada"))}
        (root / "home/ada").mkdir(parents=True)

    def remember_uses(self, assistant: str) -> None:
        """Let earlier looks have seen some uses of the session without a call, hours before the files' age."""
        times = [time.time() - 4 * 3600 + 600 * number for number in range(4)]
        self.memories[f"{PROGRAM_OF[assistant]} "] = RememberedAssistantUses(
            setting="configured",
            looked=times[-1] + 60,
            awake=10_000,
            open=tuple(OpenUse(key_of(assistant), at, 10_000 - 60 - (times[-1] - at)) for at in times),
            used=times[-1],
        )

    def write(self, path: str, content: Any = "", *, age_s: float = 3600) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        os.utime(file, (time.time() - age_s,) * 2)
        return file

    def use(self, path: str, *, age_s: float = 3600) -> Path:
        """Write a file of a session with a prompt."""
        return self.write(path, "a prompt" * 640, age_s=age_s)

    def apply_policy(self, assistant: str, endpoint: str = OURS) -> Path:
        """Write the managed file of an assistant."""
        policy = MANAGED[assistant]
        target = policy.files[self.system].removeprefix("C:").replace("\\", "/")
        return self.write(target, policy.settings_text(Destination(endpoint=endpoint)))

    def look(
        self,
        link: AgentLink | None = None,
        report: tuple[str, ...] = USE,
        now: float | None = None,
        **machine: Any,
    ) -> Mapping[str, Any]:
        seen = ProbedMachine(
            system=self.system,
            root=GuardedFolder(self.root),
            homes=list(self.homes.values()),
            ours=[OURS, "http://127.0.0.1:4317", "https://tollhouse.example.com"],
            only_http=[OURS],
            **machine,
        )
        return probe_and_remember_states(
            seen, link or AgentLink(), report, now=now or time.time(), remembered_uses=self.memories
        )

    def state(self, assistant: str, link: AgentLink | None = None, **machine: Any) -> tuple[str, str]:
        row = self.look(link, **machine)["assistants"][assistant]
        return row["state"], row.get("cause", "")

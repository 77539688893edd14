"""Made-up machines for the probe: a root with files, and homes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gateway.devices.agent.policy.targets import LINUX, MANAGED, Destination
from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.probe.look import AgentLink, ProbedMachine, UserHome, probe_and_remember_states
from gateway.devices.fleet.uses import RememberedAssistantUses

OURS = "http://127.0.0.1:4318"
OTHER = "https://collector.example.net:4318"
USE = ("user", "use")


class Tree:
    """A machine with the home `home/ada`. All times of files are old enough to be no fresh use."""

    def __init__(self, root: Path, system: str = LINUX) -> None:
        self.root = root
        self.system = system
        self.memories: dict[str, RememberedAssistantUses] = {}
        self.homes = {"ada": UserHome(folder=GuardedFolder(root / "home/ada"))}
        (root / "home/ada").mkdir(parents=True)

    def remember_uses(self, assistant: str) -> None:
        """Let earlier looks have seen two uses without a call, in the hour before the files' age."""
        first = time.time() - 3 * 3600
        newest = (first + 60, first + 900)
        memory = RememberedAssistantUses(setting="configured", unheard=first, newest=newest, used=newest[-1])
        self.memories[f"{assistant} "] = memory

    def write(self, path: str, content: Any = "", *, age_s: float = 3600) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        os.utime(file, (time.time() - age_s,) * 2)
        return file

    def use(self, path: str, *, age_s: float = 3600) -> Path:
        """Write a file of a session with a prompt."""
        return self.write(path, "a prompt" * 40, age_s=age_s)

    def apply_policy(self, assistant: str, endpoint: str = OURS) -> Path:
        """Write the managed file of an assistant."""
        policy = MANAGED[assistant]
        target = policy.files[self.system].removeprefix("C:").replace("\\", "/")
        return self.write(target, policy.settings_text(Destination(endpoint=endpoint)))

    def look(
        self, link: AgentLink | None = None, report: tuple[str, ...] = USE, **machine: Any
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
            seen, link or AgentLink(), report, now=time.time(), remembered_uses=self.memories
        )

    def state(self, assistant: str, link: AgentLink | None = None, **machine: Any) -> tuple[str, str]:
        row = self.look(link, **machine)["assistants"][assistant]
        return row["state"], row.get("cause", "")

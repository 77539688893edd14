"""
The programs whose sessions the probe compares with calls: folders, names of session files, and keys of sessions.

A program writes each session to a file of its own, and its telemetry names the same session. Both lead to the same
key, so the agent and the probe find out together whether the calls of a session arrive. The ids themselves are
neither stored nor sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Final

from gateway.normalise.assistants import assistant_of_source

_UUID: Final = r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_ANY, _NUMBER = r"[^.].*", r"\d+"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionProgram:
    """
    A program of an assistant, and the files in which it writes its sessions.

    `folder` is below a home. A variable of `moved` names a place that replaces the stated beginning of `folder`.
    `shapes` are the paths of session files below `folder`, as one pattern per level; a group has the session's id,
    of which only `id_length` characters are compared. Without `shapes`, only calls show a use. If `is_database`, one
    file has all sessions, so each change is a use. Growth below `least_growth` bytes is no use. `has_sure_uses` says
    that only a prompt makes the files grow by more. docs/fleet/coverage.md has what each program writes.
    """

    name: str
    assistant: str
    folder: str
    shapes: tuple[tuple[str, ...], ...]
    moved: Mapping[str, str] = field(default_factory=dict)
    id_length: int = 36
    is_database: bool = False
    least_growth: int = 0
    has_sure_uses: bool = False


PROGRAMS: Final = (
    SessionProgram(
        name="claude-code",
        assistant="claude-code",
        folder=".claude/projects",
        shapes=((_ANY, rf"{_UUID}\.jsonl"), (_ANY, _UUID, "subagents", r"agent-.*\.jsonl")),
        moved={"CLAUDE_CONFIG_DIR": ".claude"},
        least_growth=2560,
        has_sure_uses=True,
    ),
    SessionProgram(
        name="codex",
        assistant="codex",
        folder=".codex/sessions",
        shapes=((_NUMBER, _NUMBER, _NUMBER, rf"rollout-.*-{_UUID}\.jsonl"),),
        moved={"CODEX_HOME": ".codex"},
        least_growth=4096,
    ),
    SessionProgram(name="copilot_chat", assistant="copilot", folder="", shapes=(), is_database=True),
    SessionProgram(
        name="copilot_cli",
        assistant="copilot",
        folder=".copilot/session-state",
        shapes=((_UUID, r"events\.jsonl"),),
        least_growth=1024,
    ),
    SessionProgram(
        name="gemini-cli",
        assistant="gemini-cli",
        folder=".gemini/tmp",
        shapes=((_ANY, "chats", r"session-.*-([0-9a-f]{8})\.jsonl?"), (_ANY, "chats", _UUID, r".*\.jsonl?")),
        id_length=8,
        least_growth=1000,
    ),
    SessionProgram(
        name="qwen-code",
        assistant="qwen-code",
        folder=".qwen/projects",
        shapes=((_ANY, "chats", rf"{_UUID}\.jsonl"),),
        least_growth=1024,
        has_sure_uses=True,
    ),
    SessionProgram(
        name="opencode",
        assistant="opencode",
        folder=".local/share/opencode",
        shapes=((r"opencode\.db(?:-wal)?()",),),
        moved={"XDG_DATA_HOME": ".local/share", "OPENCODE_DB": ".local/share/opencode/opencode.db"},
        is_database=True,
    ),
)
PROGRAMS_BY_NAME: Final = {program.name: program for program in PROGRAMS}
_HOME_VARIABLE: Final = re.compile(r"^(?:~|\$HOME|\$\{HOME\})(?=/|$)")


def program_of_call(source: str, service: str | None) -> str | None:
    """Return the program that made a call, or None if it is no coding assistant. Copilot's are named like sources."""
    return source if source in PROGRAMS_BY_NAME else assistant_of_source(source, service)


def session_key(program: str, id: str) -> str:
    known = PROGRAMS_BY_NAME.get(program)
    text = f"{program}\0{id[: known.id_length] if known else id}"
    return blake2b(text.encode(), digest_size=8).hexdigest()


def moved_places(program: SessionProgram, path: str, variables: Mapping[str, str]) -> Iterator[str | None]:
    """
    Yield where a path of a program is, relative to the home or absolute: for each variable that moves it, and without
    any. None is a place that the value of a variable does not show, because only `~` and `$HOME` are known.
    """
    for name, beginning in program.moved.items():
        if (value := variables.get(name)) and path.startswith(beginning):
            place, is_below_home = _HOME_VARIABLE.subn(".", value, count=1)
            is_known = "$" not in place and (is_below_home or Path(place).is_absolute())
            yield place + path.removeprefix(beginning) if is_known else None
    yield path


def user_key(program: str, user: int | None) -> str:
    """Return the key of all calls of a program by a user of the machine, or by all users if `user` is None."""
    return program if user is None else f"{program} {user}"

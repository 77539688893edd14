"""
Editing of hooks in an assistant's settings: each event has a list of hooks, to which Tollhouse's hook is
added.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.devices.agent.edits import MISSING, NotEditable
from gateway.devices.agent.hook import parse_hook_arguments

COMMAND = ("agent", "verdict")
EXAMPLE = "tollhouse agent verdict --session-limit 20"


def hook_command_problem(command: str) -> str:
    """Return why a command cannot be the hook, or "". A wrong command could block every prompt."""
    return "" if _is_hook_command(command) else f"--hook {command} is no command such as '{EXAMPLE}'"


def hook_entry(command: str) -> Mapping[str, Any]:
    return {"hooks": [{"type": "command", "command": command}]}


def with_hook_entry(present: Any, command: str) -> Sequence[Any]:
    """
    Return the hooks of an event with Tollhouse's hook, which replaces an earlier one. Raises NotEditable.
    """
    if present is MISSING:
        return [hook_entry(command)]
    if not isinstance(present, list):
        raise NotEditable("the hooks of an event are not a list")
    return [*(each for each in present if not _is_own_hook_entry(each)), hook_entry(command)]


def own_hook_entries(present: Any) -> Sequence[Any]:
    return [each for each in present if _is_own_hook_entry(each)] if isinstance(present, list) else []


def hooks_without_entries(hooks: Any, entries_to_remove: Sequence[Any]) -> Any:
    """Return the hooks of an event without those in `entries_to_remove`. Return MISSING if no other hook is left."""
    if not entries_to_remove or not isinstance(hooks, list):
        return hooks
    return [each for each in hooks if each not in entries_to_remove] or MISSING


def _is_own_hook_entry(hook_entry: Any) -> bool:
    match hook_entry:
        case {"hooks": [{"type": "command", "command": str(command)}]}:
            return _is_hook_command(command)
    return False


def _is_hook_command(command: str) -> bool:
    try:
        program, *words = shlex.split(command)
    except ValueError:
        return False
    name = program.replace("\\", "/").rpartition("/")[2].removesuffix(".exe")
    return (name, *words[:2]) == ("tollhouse", *COMMAND) and parse_hook_arguments(words[2:]) is not None

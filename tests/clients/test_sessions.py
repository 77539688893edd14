"""
The sessions of real assistants: the id in the name of a session's file is the id in the telemetry, so the probe finds
the calls of each session. A resumed session keeps its id.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.devices.agent.probe.folders import GuardedFolder
from gateway.devices.agent.sessions import PROGRAMS_BY_NAME, program_of_call, session_key
from tests.clients.assistants import ASSISTANTS, Place
from tests.clients.conftest import Stand

pytestmark = pytest.mark.clients

CONTINUE = {
    "claude_code": ["--continue"],
    "gemini_cli": ["--resume", "latest"],
    "qwen_code": ["--continue"],
    "copilot_cli": ["--continue"],
}


@pytest.mark.parametrize("assistant", sorted(ASSISTANTS.keys() - {"claude_code_traced"}))
def test_the_files_of_sessions_have_the_keys_of_calls(stand: Stand, tmp_path: Path, assistant: str) -> None:
    place = Place(home=tmp_path, provider=stand.provider.url, tollhouse=stand.url, key=stand.key)
    started = ASSISTANTS[assistant](place)
    sizes = []
    for more in ([], CONTINUE.get(assistant)):
        if more is not None:
            command, environment = [*started.command, *more], {**started.environment, "HOME": str(tmp_path)}
            stand.program(command, tmp_path, environment)
        records = stand.records()
        [name] = {program_of_call(record["source"], None) for record in records}
        assert name is not None
        program = PROGRAMS_BY_NAME[name]
        files = GuardedFolder(tmp_path).session_files(program.folder, program.shapes)
        calls = {session_key(name, record["session"]) for record in records if record["session"]}
        assert calls == {session_key(name, id) for id in files}
        sizes.append(sum(file.size for file in files.values()))
    # a prompt makes the file grow by more than what counts as no use
    assert sizes[0] >= program.least_growth
    if assistant in CONTINUE:
        assert sizes[1] - sizes[0] >= program.least_growth

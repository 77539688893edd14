"""The commands of docs/operations run in their order next to a running server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from contextlib import suppress
from typing import Any

import pytest

from tests.acceptance.conftest import ROOT
from tests.acceptance.payloads import post, request, span
from tests.processes.copied import command_in
from tests.rounds import part

# pages without commands have none to run, and `tests.acceptance.test_document_commands` runs those of two pages
DOCUMENTS = [
    path
    for path in sorted((ROOT / "docs/operations").glob("*.md"))
    if "\n```sh\n" in path.read_text() and path.stem not in ("settings-as-files", "upgrade")
]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("document", part(DOCUMENTS, every=3), ids=lambda document: document.stem)
def test_the_commands_of_a_document_run(installations: Any, document: Any) -> None:
    """Every command succeeds in a directory with a configuration file, next to a server that has records."""
    one = installations()
    key = one.key("sender")
    one.start()
    assert 200 == post(one.url, request([span(f"chatcmpl-{number:020}") for number in range(5)]), key).status
    scripts = re.findall(r"^```sh\n(.*?)^```$", document.read_text(), re.MULTILINE | re.DOTALL)
    assert scripts
    assert one.process is not None
    own = {"PID": str(one.process.pid), "TOLLHOUSE_URL": one.url, "TOLLHOUSE_KEY": key}
    commands = one.directory / "commands"
    commands.mkdir()
    number = command_in(commands)
    env = {**os.environ, "PATH": f"{commands}:{os.environ['PATH']}", **own}
    printed = one.directory / "printed"
    for script in scripts:
        with printed.open(
            "w"
        ) as file:  # the command prints into a file, because a background process would keep a pipe open
            shell = subprocess.Popen(
                ["bash", "-euc", script], cwd=one.directory, env=env, stdout=file, stderr=file, start_new_session=True,
                pass_fds=[number],
            )  # fmt: skip
            try:
                assert 0 == shell.wait(), f"{script}\n{printed.read_text()}"
                if "--take-over" in script:
                    assert 0 == one.process.wait(), printed.read_text()
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(shell.pid, signal.SIGKILL)

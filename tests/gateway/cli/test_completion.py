from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from gateway.cli import main
from tests.processes.copied import command_in


@pytest.mark.parametrize("shell", ("bash", "zsh", "fish"))
def test_each_shell_gets_its_script(shell: str) -> None:
    """The completion script calls `tollhouse` itself to get the completions."""
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert f"_TOLLHOUSE_COMPLETE={shell}_complete" in result.output


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    "words, completed",
    [(("spool", "reco"), "recover"), (("report", "--fr"), "--from"), (("keys", "create", "--nam"), "--name")],
)
def test_bash_completes_commands_and_options(words: tuple[str, ...], completed: str, tmp_path: Path) -> None:
    """Bash completes commands and options after the script was evaluated as the manual says."""
    script = f"""
        eval "$(tollhouse completion bash)"
        COMP_WORDS=(tollhouse {" ".join(words)}) COMP_CWORD={len(words)}
        _tollhouse_completion tollhouse
        echo "${{COMPREPLY[@]}}"
    """
    number = command_in(tmp_path)
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ("bash", "-c", script), env=environ, pass_fds=[number], capture_output=True, text=True
    )
    assert done.stdout.strip() == completed
    assert done.stderr == ""

"""A copy of the loaded process behaves like a new process."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
from pathlib import Path

import pytest

from spool.settings import LOCK_FILE
from tests.processes.copied import CopiedProcess, command_in, start_process
from tests.processes.loaded import COMMAND


def test_it_prints_and_ends_as_a_new_process(tmp_path: Path) -> None:
    """
    Arguments, directory and environment are the copy's own. Output and exit code equal those of
    the installed command.
    """
    (tmp_path / "bad.toml").write_text("listen = 1\n")
    env = {**os.environ, "TOLLHOUSE_SERVER__LISTEN": "nowhere"}
    command = [str(COMMAND), "check", "--config", "bad.toml"]
    copy = start_process(command, cwd=tmp_path, env=env, is_read=True)
    assert isinstance(copy, CopiedProcess)
    new = start_process(command, cwd=tmp_path, env=env, is_read=True, is_new=True)
    assert isinstance(new, subprocess.Popen)
    printed = []
    for process in (copy, new):
        assert process.stdout is not None and process.stderr is not None
        with process.stdout as stdout, process.stderr as stderr:
            printed.append((stdout.read(), stderr.read(), process.wait()))
    assert printed[0] == printed[1]
    assert 2 == printed[0][2]


def test_it_ends_by_a_signal(tmp_path: Path) -> None:
    """SIGTERM lets a server stop cleanly, and SIGKILL does not."""
    command = [str(COMMAND), "serve", "--data", "data", "--listen", "127.0.0.1:0", "--grpc-listen", ""]
    for number, code in ((signal.SIGKILL, -signal.SIGKILL), (signal.SIGTERM, 0)):
        process = start_process(command, cwd=tmp_path, is_read=True)
        assert process.stdout is not None and process.stderr is not None
        with process.stdout as stdout, process.stderr:
            assert stdout.readline().startswith("listening on http://")
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.001)
            process.send_signal(number)
            assert process.wait() == code
            assert process.poll() == code


def test_a_shell_has_copies(tmp_path: Path) -> None:
    """The command in the shell's PATH behaves like the installed one, and killing it ends its copy."""
    number = command_in(tmp_path)
    env = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TOLLHOUSE_SERVER__LISTEN": "127.0.0.1:0",
    }

    def shell(script: str, answers: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=env,
            pass_fds=[number],
            input=answers,
            capture_output=True,
            text=True,
        )

    done = shell("tollhouse init --ask && grep ^listen tollhouse.toml", answers="127.0.0.1:9\n\n\n\n")
    assert done.returncode == 0
    assert done.stderr == ""
    assert 'listen = "127.0.0.1:9"' == done.stdout.splitlines()[-1]
    done = shell("tollhouse keys show nobody; echo $?")
    assert "nobody" in done.stderr
    assert done.stdout == "2\n"
    served = """
        tollhouse serve --data {name} --grpc-listen '' >{name}.out &
        until grep -qs ^listening {name}.out; do sleep 0.1; done
        kill {how} $!; wait $!
    """
    assert 0 == shell(served.format(name="one", how="")).returncode
    assert 128 + signal.SIGKILL == shell(served.format(name="two", how="-9")).returncode
    with (tmp_path / "two" / LOCK_FILE).open() as lock:
        # this succeeds only after the copy has ended, because the copy holds the lock
        fcntl.flock(lock, fcntl.LOCK_EX)

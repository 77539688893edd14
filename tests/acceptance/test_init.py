"""`tollhouse init` writes a first configuration file that works unchanged."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.configuration.reader import load_config
from tests.acceptance.conftest import COMMAND
from tests.processes.copied import copying_command, run_process


def init(directory: Path, *words: str, answers: str = "") -> subprocess.CompletedProcess[str]:
    command = [str(COMMAND), "init", *words]
    if not answers:
        return run_process(command, cwd=directory)
    program, number = copying_command()
    return subprocess.run(
        [program, *command[1:]],
        cwd=directory,
        input=answers,
        capture_output=True,
        text=True,
        pass_fds=[number],
    )


def shell(words: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """Run the command with these words, split like in a shell."""
    program, number = copying_command()
    script = ["bash", "-c", f"{program} {words}"]
    return subprocess.run(script, cwd=directory, capture_output=True, text=True, pass_fds=[number])


def test_without_answers_everything_has_its_default(tmp_path: Path) -> None:
    """`init` without options writes each default as a commented line, which changes nothing when enabled."""
    assert 0 == init(tmp_path).returncode
    file = tmp_path / "tollhouse.toml"
    text = file.read_text()
    plain = load_config(file, env={})
    file.write_text(re.sub(r"^#(?=\w)", "", text.partition("[upstream]")[0], flags=re.MULTILINE))
    assert plain == load_config(file, env={})
    assert '\nmax_bytes = "10GiB"\n' in file.read_text()


def test_what_flags_say_passes_check(installations: Any, tmp_path: Path) -> None:
    """
    With flags for upstream, key and destinations, the commands that `init` prints work on the written file.
    """
    far = installations("far")
    key = far.key("near tollhouse")
    upstream = ("--upstream", far.start(), "--upstream-key-file", "upstream.key")
    receivers = ("--destination", "ndjson:records.ndjson", "--destination", f"otlp:{far.url}")
    near = tmp_path / "near"
    near.mkdir()
    (near / "upstream.key").write_text(key)
    done = init(near, "--listen", "127.0.0.1:0", *upstream, *receivers)
    assert 0 == done.returncode, done.stderr
    check, create = (line.split("tollhouse ")[1] for line in done.stdout.splitlines()[1:3])
    checked = shell(f"{check} --json", near)
    found = {row["name"]: row["status"] for row in json.loads(checked.stdout)["destinations"]}
    assert {
        "ndjson": "ok",
        "otlp-2": "refused",
    } == found  # the second destination is refused because it has no key
    created = shell(create, near)
    assert created.returncode == 0
    assert "th_" in created.stdout


def test_what_is_answered_is_written(tmp_path: Path) -> None:
    """
    The answers to the questions of `init` are written: a listen address, an upstream with its key, a file,
    and the treatment of e-mail addresses.
    """
    answers = "0.0.0.0:4318\nhttps://cost.example.com\nupstream.key\narchive/records.ndjson\nkeep\n"
    assert 0 == init(tmp_path, "--ask", answers=answers).returncode
    written = tomllib.loads((tmp_path / "tollhouse.toml").read_text())
    assert "0.0.0.0:4318" == written["server"]["listen"]
    assert written["upstream"]["base_url"] == "https://cost.example.com"
    assert written["upstream"]["keys"][0]["secret_file"] == "upstream.key"
    assert "archive/records.ndjson" == written["destinations"][0]["path"]
    assert "keep" == written["privacy"]["emails"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("--upstream", "https://cost.example.com"),
            "--upstream needs a key: use either --upstream-key-file or",
        ),
        (("--upstream-key-env", "KEY"), "need --upstream URL"),
        (("--listen", "nowhere"), "server.listen must be HOST:PORT"),
        (
            ("--destination", "fax:a"),
            "must be TYPE:TARGET, where TYPE is one of ndjson, focus, otlp, webhook",
        ),
        (("--config", "none/tollhouse.toml"), "cannot be written: No such file or directory"),
    ],
)
def test_a_wrong_flag_writes_nothing(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    done = init(tmp_path, *words)
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr, done.stderr
    assert [] == list(tmp_path.iterdir())


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    """`init` leaves an existing file unchanged, whoever wrote it, and ends with exit code 2."""
    (tmp_path / "tollhouse.toml").write_text("# mine\n")
    assert 2 == init(tmp_path).returncode
    assert "# mine\n" == (tmp_path / "tollhouse.toml").read_text()

"""The list of commands: its lines, its groups and its suggestions."""

from __future__ import annotations

import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

from gateway.cli import COMMANDS, GROUPS, main
from gateway.http.resources.list import RESOURCES


@pytest.mark.parametrize("name", COMMANDS)
def test_a_line_of_the_list_is_the_first_sentence_of_the_command(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None and command.help is not None
    first_paragraph = " ".join(command.help.split("\n\n")[0].split())
    [line] = [commands[name][1] for commands in GROUPS.values() if name in commands]
    assert re.split(r"(?<=\.)\s", first_paragraph)[0] == line
    assert command.name == name


def test_each_command_is_in_one_group() -> None:
    assert sum(map(len, GROUPS.values())) == len(COMMANDS)
    assert RESOURCES.keys() <= COMMANDS.keys()


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (["sned"], "Did you mean 'send'?"),
        (["budget"], "Did you mean 'budgets'?"),
        (["keys", "lst"], "Did you mean 'list'?"),
        (["keys", "list", "--jsn"], "'--json'"),
    ],
    ids=" ".join,
)
def test_a_mistyped_word_gets_a_suggestion(words: list[str], suggestion: str) -> None:
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert suggestion in result.stderr


@pytest.mark.parametrize("word", ["--help", "version", "--version", "sned"])
def test_the_list_and_the_version_load_no_command(word: str) -> None:
    """These start fast because they load only this module, click and the standard library."""
    program = (
        "import sys\n"
        "from gateway.cli import main\n"
        "try:\n    main(sys.argv[1:])\nfinally:\n"
        "    print([name for name in sys.modules if name.split('.')[0] in ('gateway', 'exporters', 'spool')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, word], capture_output=True, text=True, timeout=300, check=False
    )
    loaded = done.stdout.splitlines()[-1]
    assert set(re.findall(r"[\w.]+", loaded)) == {"gateway", "gateway.cli", "spool", "spool.printable"}

"""The list of commands that `tollhouse` prints: its lines, its groups and its suggestions."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from gateway.cli import COMMANDS, GROUPS, main
from gateway.operations.list import RESOURCES
from tests.rounds import part

COMPLETED = "vers"  # a word that the shell completes
AS_COMPLETION = {"_TOLLHOUSE_COMPLETE": "bash_complete", "COMP_WORDS": "tollhouse vers", "COMP_CWORD": "1"}


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


@pytest.mark.parametrize("word", part(["--help", "version", "--version", "sned", COMPLETED], every=3))
def test_the_list_and_the_version_load_no_command(word: str) -> None:
    """
    The list, the version, a suggestion and a completion start fast, because they load only the lists of commands and
    resources, click and the standard library.
    """
    program = (
        "import sys\n"
        "from gateway.cli import main\n"
        "try:\n    main(sys.argv[1:], prog_name='tollhouse')\nfinally:\n"
        "    print([name for name in sys.modules if name.split('.')[0] in ('gateway', 'exporters', 'spool')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, word],
        env={**os.environ, **(AS_COMPLETION if word == COMPLETED else {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    loaded = done.stdout.splitlines()[-1]
    lists = {"gateway.operations", "gateway.operations.list"}
    assert set(re.findall(r"[\w.]+", loaded)) == {
        "gateway",
        "gateway.cli",
        "spool",
        "spool.printable",
        *lists,
    }


@pytest.mark.parametrize(
    "words", part([["send"], ["events", "send"], ["events", "list"]], every=3), ids=" ".join
)
def test_help_loads_no_decoder(words: list[str]) -> None:
    """
    `send --help` loads no decoders, because they and the protobuf library take more time than the rest of a
    command's start.
    """
    program = (
        "import sys\n"
        "from gateway.cli import main\n"
        "try:\n    main([*sys.argv[1:], '--help'], prog_name='tollhouse')\nfinally:\n"
        "    print([name for name in sys.modules if name.startswith(('google.', 'gateway.normalise.otlp.spans'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


# verbs that one of list, show, create, edit and delete replaces
OTHER_VERBS = {
    "add",
    "remove",
    "set",
    "update",
    "forget",
    "drop",
    "change",
    "new",
    "get",
    "view",
    "label",
    "end",
}
# `storage set` changes settings, not a resource. `prices update` fetches a list.
OWN_VERBS = {"storage set", "prices update", "agent policy remove"}  # the last is the opposite of apply


def walked(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    """Yield every command and group with its words, such as "keys list"."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from walked(command, f"{path}{name} ")


def test_resources_have_one_set_of_verbs() -> None:
    """
    Commands that list, show, create, edit or delete use these words and no others, also in a name such as
    add-channel.
    """
    found = {
        path
        for path, _ in walked(main)
        if OTHER_VERBS & {path.split()[-1], path.split()[-1].partition("-")[0]}
        or path.split()[-1].startswith(("list-", "show-", "create-", "edit-", "delete-"))
    }
    assert found == OWN_VERBS

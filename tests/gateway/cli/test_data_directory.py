"""
Selection of the data directory: commands do not create one by accident, and report the configuration
that they found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

import gateway.cli
from gateway.cli import main

# Serve, init and demo create a data directory. The other commands of this set need none, because they read a
# payload, call an address, or run as the laptop's service.
BEGIN = {"serve", "init", "demo"}
NEED_NONE = {
    "agent policy apply", "agent policy key", "agent policy remove", "agent policy verify",
    "agent probe", "agent setup", "agent status", "agent test", "agent unenrol", "agent verdict",
    "clusters apply", "completion",
    "events send", "explain", "health", "lake import", "lake manifest", "lake sql", "lake verify", "send", "version",
}  # fmt: skip
# Arguments that a command needs before it looks for data. PLACE is another folder. FILE is an empty
# file in PLACE.
WORDS = {
    "operators edit": ["mira@example.com", "--role", "Member"],
    "restore": ["PLACE", "--no-erasures"],
    "storage copy": ["--from-config", "FILE", "--to-config", "FILE"],
    "storage set": ["retention=3d"],
    "spool dead edit": ["1", "FILE"],
}


def leaves(group: click.Group, context: click.Context, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from leaves(command, context, f"{path}{name} ")
        else:
            yield path + name, command


COMMANDS = {
    name: command for name, command in leaves(main, click.Context(main)) if name not in BEGIN | NEED_NONE
}


def words_of(command: click.Command, file: Path) -> Iterator[str]:
    """Yield a value for each required parameter."""
    for param in command.params:
        if not param.required:
            continue
        if isinstance(param, click.Option):
            yield param.opts[-1]
        if isinstance(param.type, click.Choice):
            yield str(param.type.choices[0])
        elif isinstance(param.type, (click.Path, click.File)):
            yield str(file)
        else:
            yield {"DAY": "2026-01-01", "month": "2026-01"}.get(param.metavar or param.name or "", "1")


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create an empty working directory from which no configuration of this machine is found."""
    place = tmp_path / "empty"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(gateway.cli, "PLACES", (Path("tollhouse.toml"), tmp_path / "etc/tollhouse.toml"))
    for name in ("TOLLHOUSE_CONFIG", "TOLLHOUSE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    return place


def run(*words: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert code == result.exit_code, (words, result.output, result.exception)
    return result


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_begins_no_data_directory(name: str, empty: Path, tmp_path: Path) -> None:
    """
    In an empty folder, each command ends with exit code 2, says how to name the directory, and creates nothing. 2 is
    no error of `plan`, which ends with 1.
    """
    file = tmp_path / "file"
    file.write_text("")
    stand_for = {"PLACE": str(tmp_path), "FILE": str(file)}
    words = [stand_for.get(word, word) for word in WORDS.get(name, [])] or list(
        words_of(COMMANDS[name], file)
    )
    result = run(*name.split(), *words, code=1 if name == "plan" else 2)
    assert "data directory" in result.stderr or 'storage.engine is "sqlite"' in result.stderr, result.stderr
    assert list(empty.iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file"]


def test_what_is_not_there_is_named(empty: Path, tmp_path: Path) -> None:
    """
    The error names the directory and the service's configuration file. If a configuration names the
    directory, the error names that file.
    """
    told = run("keys", "list", code=2).stderr
    assert f"there is no data directory {empty}/tollhouse-data; name it with --data" in told
    assert "/etc/tollhouse/tollhouse.toml" in told
    (empty / "tollhouse.toml").write_text('data_dir = "gone"\n')
    assert "which tollhouse.toml names" in run("keys", "list", code=2).stderr
    told = run("keys", "list", "--data", tmp_path / "other", "--config", "tollhouse.toml", code=2).stderr
    assert f"there is no data directory {tmp_path}/other; name it with --data" in told
    assert ["tollhouse.toml"] == [path.name for path in empty.iterdir()]
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/mine.txt").write_text("")
    told = run("keys", "list", "--data", tmp_path / "notes", code=2).stderr
    assert "other files in it and no Tollhouse data" in told
    assert ["mine.txt"] == [path.name for path in (tmp_path / "notes").iterdir()]


def test_configuration_is_found_in_the_documented_order(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The order is --config, $TOLLHOUSE_CONFIG, ./tollhouse.toml, then the service's file. With --data, no
    configuration is used.
    """
    configurations = {}
    for name in ("named", "variable", "here", "etc"):
        folder = empty if name == "here" else tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "tollhouse.toml").write_text(f'data_dir = "{name}"\n')
        (folder / name).mkdir()
        configurations[name] = folder / "tollhouse.toml"

    def used(*words: str | Path) -> tuple[str, str]:
        """
        Return the directory in which the command created a key, and the configuration that the command reported.
        """
        said = run("keys", "create", "--name", "one", "--use-case", "Send AI Telemetry", *words).stderr
        (directory,) = (path.parent for path in tmp_path.rglob("registry.sqlite"))
        for file in directory.iterdir():
            file.unlink()
        told = [line for line in said.splitlines() if line.startswith("configuration")]
        return directory.name, "".join(told)

    monkeypatch.setenv("TOLLHOUSE_CONFIG", str(configurations["variable"]))
    assert ("named", "") == used("--config", configurations["named"])
    assert ("variable", "") == used()
    monkeypatch.delenv("TOLLHOUSE_CONFIG")
    assert ("here", "configuration: tollhouse.toml") == used()
    configurations["here"].unlink()
    assert ("etc", f"configuration: {configurations['etc']}") == used()
    assert ("here", "") == used("--data", "here")


def test_commands_that_init_prints_work_unchanged(empty: Path) -> None:
    """`init` creates a private directory, and the commands that it prints work unchanged."""
    printed = run("init").stdout
    assert 0o700 == (empty / "tollhouse-data").stat().st_mode & 0o777
    assert "tollhouse keys create --name" in printed
    run("check")
    made = run("keys", "create", "--name", "one", "--use-case", "Send AI Telemetry", "--json")
    assert "is a new data directory" in made.stderr
    listed: Any = json.loads(run("keys", "list", "--json").stdout)
    assert ["one"] == [key["name"] for key in listed["keys"]]

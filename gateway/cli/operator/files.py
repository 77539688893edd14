"""`tollhouse plan` and `tollhouse apply`: settings from a directory of files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from gateway.cli import COMMANDS, exit_with_message
from gateway.cli.operator.client import OperatorClient, with_client
from gateway.cli.output import JsonObject, show_json
from gateway.operations.files.declared import FOLDERS

DIFFERS = 2  # exit code of a plan with differences; every fault of a plan is 1
NOT_VALID = 2  # exit code of an apply whose files are not valid

directory_argument = click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
secrets_option = click.option(
    "--secrets",
    type=click.Path(path_type=Path, file_okay=False),
    help="Directory of the files with secrets; default: DIR. Secrets of new keys are written there.",
)


class _PlanCommand(click.Command):
    """
    A command whose exit code 2 means that something differs. So every error exits with 1, even wrong use.
    """

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        try:
            return super().make_context(*args, **extra)
        except click.UsageError as error:
            error.show()
            sys.exit(1)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SystemExit as end:
            sys.exit(1 if end.code else 0)


@click.command(cls=_PlanCommand)
@directory_argument
@click.option("--json", "as_json", is_flag=True, help="Print the response of the operator API.")
@click.option("--adopt", is_flag=True, help="Plan to take over objects of other sets or made by hand.")
@secrets_option
@with_client
def plan(client: OperatorClient, directory: Path, as_json: bool, adopt: bool, secrets: Path | None) -> None:
    """
    Compare the settings with the files of a directory.

    Nothing is changed. Exits with 0 if they are equal, with 2 if they differ, and with 1 in any other case, also
    after wrong use.
    """
    files = _read_files(directory, "plan")
    result = _request_apply_of_files(
        client, files, adopt=adopt, secrets=_read_file_secrets(files, secrets or directory), dry_run=True
    )
    if as_json:
        show_json(result)
    outcome = result["apply"]
    if not as_json:
        _print_apply_outcome(outcome)
    if outcome["problems"] or outcome["conflicts"]:
        sys.exit(1)
    if any(each["action"] != "note" for each in outcome["differences"]):
        click.get_current_context().exit(DIFFERS)


@click.command()
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(path_type=Path))
@click.option("--adopt", is_flag=True, help="Take over objects of other sets or made by hand.")
@secrets_option
@click.option(
    "--release",
    metavar="KIND/NAME",
    help="Release an object from its file, such as views/Search, so that people may change it.",
)
@with_client
def apply(
    client: OperatorClient, directory: Path | None, adopt: bool, secrets: Path | None, release: str | None
) -> None:
    """
    Make the settings equal to the files of a directory.

    All differences are applied, or none. Exits with 0 if the settings are equal now, with 2 if the files are not
    valid, and with 1 in any other case.
    """
    if (release is None) == (directory is None):
        exit_with_message("name a directory, or an object with --release", 2)
    if release is not None:
        kind, _, name = release.partition("/")
        client.request("POST", "/release", body={"kind": kind, "name": name})
        click.echo(f"released {release}")
        return
    assert directory is not None
    files = _read_files(directory, "apply")
    given = _read_file_secrets(files, secrets or directory)
    with client.client_for_many_requests() as opened:
        planned = _request_apply_of_files(opened, files, adopt=adopt, secrets=given, dry_run=True)["apply"]
        problems = [
            *(_format_problem(problem) for problem in planned["problems"]),
            *_difference_texts(planned["conflicts"]),
        ]
        if problems:
            exit_with_message("\n".join(problems), NOT_VALID)
        if planned["new_secrets"] and secrets is None:
            exit_with_message(
                f"{', '.join(planned['new_secrets'])}: new keys need a directory for their secrets: --secrets DIR",
                2,
            )
        made = {path: _find_or_create_secret(secrets or directory, path) for path in planned["new_secrets"]}
        _print_apply_outcome(
            _request_apply_of_files(opened, files, adopt=adopt, secrets={**given, **made}, dry_run=False)[
                "apply"
            ]
        )


def read_settings_files(directory: Path) -> Mapping[str, str]:
    """Return the text of each YAML file of a directory. Raises OSError, and ValueError if one is not UTF-8."""
    places = [directory, *(directory / folder for folder in FOLDERS if (directory / folder).is_dir())]
    paths = [path for place in places for path in place.iterdir() if path.suffix in (".yaml", ".yml")]
    return {path.relative_to(directory).as_posix(): path.read_text("utf-8") for path in sorted(paths)}


def read_secrets(files: Mapping[str, str], directory: Path) -> dict[str, str]:
    """
    Return the secrets by path: the content of each existing file that the settings files name for a secret.
    """
    found = {}
    for path in _paths_of_secret_files(files):
        try:
            found[path] = (directory / path).read_text("utf-8")
        except FileNotFoundError:
            # skip the missing file: the server reports it, except if a dry run compares an existing object
            continue
    return found


def _paths_of_secret_files(files: Mapping[str, str]) -> Iterator[str]:
    from gateway.core.faults import DefinitionFaults, InvalidDefinition
    from gateway.core.yaml_text import read_yaml

    for text in files.values():
        try:
            node = read_yaml(text.encode(), DefinitionFaults())
        except InvalidDefinition:
            continue  # skip the file: the server reports the error with its line
        for item in node if isinstance(node, list) else ():
            path = item.get("secret_file") if isinstance(item, dict) else None
            if isinstance(path, str):
                yield path


def _read_files(directory: Path, command: str) -> Mapping[str, str]:
    if not directory.is_dir():
        plural = f"{command}s" if f"{command}s" in COMMANDS else ""
        hint = f"; did you mean `tollhouse {plural} {directory}`?" if plural else ""
        exit_with_message(f"{directory} is not a directory{hint}", NOT_VALID)
    try:
        return read_settings_files(directory)
    except (OSError, ValueError) as error:
        exit_with_message(f"{directory}: {error}", NOT_VALID)


def _read_file_secrets(files: Mapping[str, str], directory: Path) -> dict[str, str]:
    try:
        return read_secrets(files, directory)
    except (OSError, ValueError) as error:
        exit_with_message(f"a file with a secret cannot be read: {error}")


def _request_apply_of_files(
    client: OperatorClient,
    files: Mapping[str, str],
    *,
    adopt: bool,
    secrets: Mapping[str, str],
    dry_run: bool,
) -> JsonObject:
    body = {"files": files, "dry_run": dry_run, "adopt": adopt, "secrets": secrets}
    return client.request("POST", "/apply", body=body)


def _find_or_create_secret(directory: Path, path: str) -> str:
    """
    Write a new secret to a file that only its owner can read, and flush it to the disk. If the file exists, an
    earlier apply was interrupted, so return its content.
    """
    from gateway.operations.files.kinds import file_kinds

    file = directory / path
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if file.exists():
            return file.read_text("utf-8")
        secret = file_kinds()[path.partition("/")[0]].new_secret()
        part = file.with_name(f".{file.name}.part")
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as written:
            written.write(f"{secret}\n")
            written.flush()
            os.fsync(written.fileno())
        part.rename(file)
        _flush_directory(file.parent)
    except OSError as error:
        exit_with_message(f"{file}: {error.strerror}")
    return secret


def _flush_directory(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _print_apply_outcome(outcome: JsonObject) -> None:
    for text in (*_difference_texts(outcome["differences"]), *_difference_texts(outcome["conflicts"])):
        click.echo(text)
    for problem in outcome["problems"]:
        click.echo(f"tollhouse: {_format_problem(problem)}", err=True)
    if not (outcome["differences"] or outcome["conflicts"] or outcome["problems"]):
        click.echo("the settings are equal to the files")


def _difference_texts(differences: list[JsonObject]) -> list[str]:
    return [str(each["text"]) for each in differences]


def _format_problem(problem: JsonObject) -> str:
    return f"{problem['file']}:{problem['line']}:{problem['column']}: {problem['message']}"


def write_settings_files(directory: Path, files: Mapping[str, str]) -> None:
    """Write the files of an export. Exits if the directory has other files, because these would be applied as well."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        found = {path.relative_to(directory).as_posix() for path in directory.rglob("*") if not path.is_dir()}
        others = sorted(found - files.keys())
        if others:
            exit_with_message(f"{directory} has other files, such as {others[0]}; name an empty directory")
        for name, text in files.items():
            file = directory / name
            file.parent.mkdir(exist_ok=True)
            part = file.with_name(f".{file.name}.part")
            part.write_text(text, "utf-8")
            part.rename(file)
    except OSError as error:
        exit_with_message(f"{directory}: {error.strerror}")

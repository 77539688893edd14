"""`tollhouse plan` and `tollhouse apply`: settings from a directory of files."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
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
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help=(
        "Directory of files with secrets that the settings may name, besides DIR. Repeatable. Secrets of new keys "
        "are written to the first."
    ),
)


class OutsideDirectories(Exception):
    """Raised if a settings file names a file that the person who applies it did not allow."""


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
def plan(
    client: OperatorClient, directory: Path, as_json: bool, adopt: bool, secrets: tuple[Path, ...]
) -> None:
    """
    Compare the settings with the files of a directory.

    Nothing is changed. Exits with 0 if they are equal, with 2 if they differ, also in objects that the set may not
    change, and with 1 in any other case, also after wrong use.
    """
    files = _read_files(directory, "plan")
    result = _request_apply_of_files(
        client, files, adopt=adopt, secrets=_read_file_secrets(files, directory, secrets), dry_run=True
    )
    outcome = result["apply"]
    if as_json:
        show_json(result)
    else:
        _print_apply_outcome(outcome)
        _print_needed_rights(outcome)
    if outcome["problems"]:
        sys.exit(1)
    if outcome["conflicts"] or any(each["action"] != "note" for each in outcome["differences"]):
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
    client: OperatorClient,
    directory: Path | None,
    adopt: bool,
    secrets: tuple[Path, ...],
    release: str | None,
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
    given = _read_file_secrets(files, directory, secrets)
    with client.client_for_many_requests() as opened:
        planned = _request_apply_of_files(opened, files, adopt=adopt, secrets=given, dry_run=True)["apply"]
        problems = [*_problem_texts(planned), *_difference_texts(planned, "conflicts")]
        if problems:
            exit_with_message("\n".join(problems), NOT_VALID)
        if planned["new_secrets"] and not secrets:
            exit_with_message(
                f"{', '.join(planned['new_secrets'])}: new keys need a directory for their secrets: --secrets DIR",
                2,
            )
        made = {path: _find_or_create_secret(secrets[0], path) for path in planned["new_secrets"]}
        _print_apply_outcome(
            _request_apply_of_files(opened, files, adopt=adopt, secrets={**given, **made}, dry_run=False)[
                "apply"
            ]
        )


def read_settings_files(directory: Path) -> Mapping[str, str]:
    """
    Return the text of each YAML file of a directory. Raises OutsideDirectories for a link that leads out of the
    directory, OSError, and ValueError if a file is not UTF-8.
    """
    places = [directory, *(directory / folder for folder in FOLDERS if (directory / folder).is_dir())]
    paths = [path for place in places for path in place.iterdir() if path.suffix in (".yaml", ".yml")]
    return {
        path.relative_to(directory).as_posix(): _resolve_allowed_path(path, [directory]).read_text("utf-8")
        for path in sorted(paths)
    }


def read_secrets(files: Mapping[str, str], directory: Path, allowed: Sequence[Path]) -> dict[str, str]:
    """
    Return the secrets by path: the content of each existing file that the settings files name for a secret. A
    relative path is below the first of the allowed directories, or below `directory` if there are none.

    Raises OutsideDirectories, before any such file is read, for a path that leads out of `directory` and of the
    allowed directories. Otherwise, the author of the files could send any file of this machine to a channel.
    """
    base = allowed[0] if allowed else directory
    resolved = {
        path: _resolve_allowed_path(base / path, [directory, *allowed])
        for path in _paths_of_secret_files(files)
    }
    found = {}
    for path, file in resolved.items():
        try:
            found[path] = file.read_text("utf-8")
        except FileNotFoundError:
            # skip the missing file: the server reports it, except if an existing object keeps its secret
            continue
    return found


def _resolve_allowed_path(path: Path, allowed: Sequence[Path]) -> Path:
    resolved = path.resolve()
    if not any(resolved.is_relative_to(directory.resolve()) for directory in allowed):
        raise OutsideDirectories(
            f"{path} is outside of {' and '.join(map(str, allowed))}: move the file, or allow its directory with "
            "--secrets"
        )
    return resolved


def _paths_of_secret_files(files: Mapping[str, str]) -> Iterator[str]:
    from gateway.core.faults import DefinitionFaults, InvalidDefinition
    from gateway.core.yaml_text import read_yaml

    for text in files.values():
        try:
            node = read_yaml(text.encode(), DefinitionFaults(), max_items=sys.maxsize)
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
    except OutsideDirectories as error:
        exit_with_message(str(error), NOT_VALID)
    except (OSError, ValueError) as error:
        exit_with_message(f"{directory}: {error}", NOT_VALID)


def _read_file_secrets(files: Mapping[str, str], directory: Path, allowed: Sequence[Path]) -> dict[str, str]:
    try:
        return read_secrets(files, directory, allowed)
    except OutsideDirectories as error:
        exit_with_message(f"secret_file: {error}", NOT_VALID)
    except (OSError, ValueError) as error:
        exit_with_message(f"a file with a secret cannot be read: {error}")


def _request_apply_of_files(
    client: OperatorClient, files: Mapping[str, str], **options: bool | Mapping[str, str]
) -> JsonObject:
    return client.request("POST", "/apply", body={"files": files, **options})


def _find_or_create_secret(directory: Path, path: str) -> str:
    """
    Write a new secret to a file that only its owner can read, and flush it to the disk. If the file exists, an
    earlier apply was interrupted, so return its content.
    """
    from gateway.operations.files.kinds import file_kinds

    file = _resolve_allowed_path(directory / path, [directory])
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
    for text in (*_difference_texts(outcome, "differences"), *_difference_texts(outcome, "conflicts")):
        click.echo(text)
    for text in _problem_texts(outcome):
        click.echo(f"tollhouse: {text}", err=True)
    if not (outcome["differences"] or outcome["conflicts"] or outcome["problems"]):
        click.echo("the settings are equal to the files")


def _print_needed_rights(outcome: JsonObject) -> None:
    from spool.registry.permission_sets import PERMISSION_SETS

    needed = [PERMISSION_SETS[id].title for id in outcome["permission_sets"]]
    missing = [PERMISSION_SETS[id].title for id in outcome["missing_permission_sets"]]
    if needed:
        click.echo(f"needs {', '.join(needed)}")
    if missing:
        click.echo(
            f"tollhouse: you lack {', '.join(missing)}; an Admin can give you a role with it", err=True
        )


def _difference_texts(outcome: JsonObject, part: str) -> list[str]:
    return [*(str(each["text"]) for each in outcome[part]), *_left_out_text(outcome, part)]


def _problem_texts(outcome: JsonObject) -> list[str]:
    return [*map(_format_problem, outcome["problems"]), *_left_out_text(outcome, "problems")]


def _left_out_text(outcome: JsonObject, part: str) -> list[str]:
    count = outcome["left_out"][part]
    return [f"and {count:,} more {part}"] if count else []


def _format_problem(problem: JsonObject) -> str:
    return f"{problem['file']}:{problem['line']}:{problem['column']}: {problem['message']}"


def expected_secret_files(files: Mapping[str, str]) -> list[str]:
    """Return the paths at which the settings files expect secrets, which an export does not contain."""
    return sorted(set(_paths_of_secret_files(files)))


def problems_on_empty_installation(client: OperatorClient, directory: Path) -> list[str]:
    """Return why an installation without objects would refuse the files of a directory, a text for each problem."""
    files = _read_files(directory, "export")
    outcome = _request_apply_of_files(client, files, dry_run=True, on_empty=True)["apply"]
    return [
        *(": ".join(filter(None, (each["object"], _format_problem(each)))) for each in outcome["problems"]),
        *_left_out_text(outcome, "problems"),
    ]


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

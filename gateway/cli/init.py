"""`tollhouse init`: writes a first configuration file from options or prompts."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from exporters.destinations.catalogue import TYPES
from exporters.settings import DestinationSettings, UpstreamKey, UpstreamSettings
from gateway.cli import exit_with_message, load_config_or_exit
from gateway.cli.parameters import Choice
from gateway.configuration.sections import Config, PrivacySettings
from gateway.configuration.server import ServerSettings
from gateway.configuration.settings_in_effect import configuration_keys
from gateway.configuration.values import UNITS, format_quantity
from spool.disks import make_directory
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings

EMAILS = ("hash", "keep", "drop")
_FORM = f"TYPE:TARGET, where TYPE is one of {', '.join(TYPES)}, such as ndjson:archive/records.ndjson"


@dataclass(frozen=True, kw_only=True)
class InitAnswers:
    data: str
    listen: str
    upstream: str
    key_file: str
    key_env: str
    use_cases: Sequence[str]
    destinations: Sequence[str]
    emails: str | None


@click.command()
@click.option(
    "--config",
    default="tollhouse.toml",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Configuration file to write.",
)
@click.option("--data", default="tollhouse-data", show_default=True, help="Data directory to create.")
@click.option("--listen", metavar="HOST:PORT", help="Address for HTTP; default: 127.0.0.1:4318.")
@click.option(
    "--upstream", metavar="URL", help="Address of the cost service to send records to; default: none."
)
@click.option("--upstream-key-file", metavar="FILE", help="File with the key for the cost service.")
@click.option(
    "--upstream-key-env",
    metavar="NAME",
    help="Environment variable with the key for the cost service, instead of a file.",
)
@click.option(
    "--use-case",
    "use_cases",
    multiple=True,
    help=f"Use case of the key at the cost service; default: {SEND_AI_TELEMETRY}.",
)
@click.option(
    "--destination",
    "destinations",
    multiple=True,
    metavar="TYPE:TARGET",
    help=f"Another destination for the records: {_FORM}.",
)
@click.option(
    "--emails",
    type=Choice(EMAILS),
    help=(
        "Treatment of e-mail addresses that name users: keep them, drop them, or hash them (reports then "
        f"show codes such as email:f271...); default: {PrivacySettings().emails}."
    ),
)
@click.option(
    "--ask/--no-ask",
    default=None,
    help="Prompt for values that no option gives; default: only on a terminal without options.",
)
def init(
    config: Path,
    data: str,
    listen: str | None,
    upstream: str | None,
    upstream_key_file: str | None,
    upstream_key_env: str | None,
    use_cases: tuple[str, ...],
    destinations: tuple[str, ...],
    emails: str | None,
    ask: bool | None,
) -> None:
    """
    Write a first configuration file with comments.

    Also creates the data directory. An existing file is never overwritten. A file that `tollhouse serve`
    would reject is not written.
    """
    if config.exists():
        exit_with_message(f"{config} already exists; name another file with --config, or remove it", 2)
    stated = (listen, upstream, upstream_key_file, upstream_key_env, emails, *use_cases, *destinations)
    if ask or (ask is None and not any(stated) and sys.stdin.isatty()):
        listen = listen or click.prompt("Address to listen on", default=ServerSettings().listen)
        upstream = upstream or click.prompt(
            "Address of the cost service (empty: none)", default="", show_default=False
        )
        if upstream and not (upstream_key_file or upstream_key_env):
            upstream_key_file = click.prompt("File with the key for the cost service")
        if not destinations:
            where = click.prompt(
                "File to write records to, one per line (empty: none)", default="", show_default=False
            )
            destinations = (f"ndjson:{where}",) if where else ()
        emails = emails or click.prompt(
            "E-mail addresses that name users: hash them (reports show codes), keep or drop them",
            default=PrivacySettings().emails,
            type=Choice(EMAILS),
        )
    if upstream and bool(upstream_key_file) == bool(upstream_key_env):
        exit_with_message(
            "--upstream needs a key: use either --upstream-key-file or --upstream-key-env, not both", 2
        )
    if not upstream and (upstream_key_file or upstream_key_env or use_cases):
        exit_with_message("--upstream-key-file, --upstream-key-env and --use-case need --upstream URL", 2)
    answers = InitAnswers(
        data=data,
        listen=listen or ServerSettings().listen,
        upstream=upstream or "",
        key_file=upstream_key_file or "",
        key_env=upstream_key_env or "",
        use_cases=use_cases or (SEND_AI_TELEMETRY,),
        destinations=destinations,
        emails=emails,
    )
    directory = _write_configuration(config, "\n".join(_configuration_lines(answers)))
    click.echo(f"wrote {config}; the data directory is {directory}. Next:")
    config_option = "" if config == Path("tollhouse.toml") else f" --config {config}"
    click.echo(f"  tollhouse check{config_option}")
    click.echo(f'  tollhouse keys create{config_option} --name "first key" --use-case "{SEND_AI_TELEMETRY}"')
    click.echo(f"  tollhouse serve{config_option}")


def _write_configuration(path: Path, text: str) -> Path:
    """
    Create the data directory and write the file atomically; return the directory.

    Never replaces an existing file. Exits with code 2 if the configuration has problems.
    """
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".tollhouse-", encoding="utf-8"
        ) as draft:
            draft.write(text)
            draft.flush()
            directory = load_config_or_exit(Path(draft.name)).data_dir
            make_directory(directory, 0o700)
            os.fsync(draft.fileno())
            Path(draft.name).chmod(0o644)
            os.link(draft.name, path)
            return directory
    except FileExistsError:
        exit_with_message(f"{path} already exists; name another file with --config, or remove it", 2)
    except OSError as error:
        exit_with_message(f"{error.filename or path} cannot be written: {error.strerror}", 2)


def _configuration_lines(answers: InitAnswers) -> Iterator[str]:
    yield "# Keys after a # show their defaults. Relative paths are relative to this file."
    yield ""
    yield from _setting_lines(Config, {"data_dir": answers.data})
    yield ""
    yield "[server]"
    yield from _setting_lines(
        ServerSettings, {"listen": answers.listen}, ("grpc_listen", "operator_listen", "accept_bearer")
    )
    yield ""
    yield "[privacy]"
    yield from _setting_lines(
        PrivacySettings,
        {"emails": answers.emails} if answers.emails else {},
        ("emails",) * (not answers.emails),
    )
    yield ""
    yield "[spool]"
    yield from _setting_lines(SpoolSettings, {}, ("max_bytes", "retention", "hold"))
    yield ""
    yield "[upstream]"
    if answers.upstream:
        yield from _setting_lines(
            UpstreamSettings, {"base_url": answers.upstream}, ("connection_id", "proxy")
        )
        yield "[[upstream.keys]]"
        secret = {"secret_file": answers.key_file} if answers.key_file else {"secret_env": answers.key_env}
        yield from _setting_lines(
            UpstreamKey, {"name": "telemetry", **secret, "use_cases": answers.use_cases}
        )
    else:
        yield from _setting_lines(UpstreamSettings, {}, ("base_url",))
        yield "#[[upstream.keys]]"
        example = {"name": "telemetry", "secret_file": "telemetry.key", "use_cases": answers.use_cases}
        yield from (
            line if line.startswith("#") else f"#{line}" for line in _setting_lines(UpstreamKey, example)
        )
    for index, text in enumerate(answers.destinations):
        kind, _, where = text.partition(":")
        if kind not in TYPES or not where:
            exit_with_message(f"--destination {text!r} must be {_FORM}", 2)
        yield ""
        yield "[[destinations]]"
        name = kind if index == 0 else f"{kind}-{index + 1}"
        yield from _setting_lines(
            DestinationSettings, {"name": name, "type": kind, TYPES[kind].needs: where}, ("topics",)
        )


def _setting_lines(
    section: type[Any], values: Mapping[str, Any], defaults: Sequence[str] = ()
) -> Iterator[str]:
    keys_by_name = {key.name: key for key in configuration_keys(section)}
    for name in (*values, *defaults):
        key = keys_by_name[name]
        value = values.get(name, key.default)
        text = format_quantity(key.kind, value) if key.kind in UNITS else value
        # JSON is valid here, because TOML writes strings and lists of strings in the same way.
        line = f"{name} = {json.dumps(text, ensure_ascii=False)}"
        yield f"# {key.setting.words}"
        yield line if name in values else f"#{line}"

"""`tollhouse init`: writes a first configuration file, with comments, from flags or answers."""

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
from gateway.cli import configured, fail
from gateway.cli.parameters import Choice
from gateway.service.configuration.in_effect import keys
from gateway.service.configuration.sections import Config, PrivacySettings, ServerSettings
from gateway.service.configuration.values import UNITS, written
from spool.disks import make_directory
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings

EMAILS = ("hash", "keep", "drop")
_FORM = f"TYPE:WHERE, where TYPE is one of {', '.join(TYPES)}, such as ndjson:archive/records.ndjson"


@dataclass(frozen=True, kw_only=True)
class Answers:
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
    help="The file to write.",
)
@click.option("--data", default="tollhouse-data", show_default=True, help="Where everything is kept.")
@click.option("--listen", metavar="HOST:PORT", help="Where HTTP listens; default: 127.0.0.1:4318.")
@click.option("--upstream", metavar="URL", help="The cost service that records are sent to; default: none.")
@click.option("--upstream-key-file", metavar="FILE", help="The file that holds the key for it.")
@click.option("--upstream-key-env", metavar="NAME", help="Or the environment variable that does.")
@click.option(
    "--use-case", "use_cases", multiple=True, help=f"What the key is for; default: {SEND_AI_TELEMETRY}."
)
@click.option(
    "--destination", "destinations", multiple=True, metavar="TYPE:WHERE", help=f"A further receiver: {_FORM}."
)
@click.option(
    "--emails",
    type=Choice(EMAILS),
    help="What becomes of e-mail addresses that name users: hash them (people are codes then, such as "
    f"email:f2712dd8eb4fbcfd), keep or drop them; default: {PrivacySettings().emails}.",
)
@click.option(
    "--ask/--no-ask", default=None, help="Ask for what no flag says; default: on a terminal without flags."
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
    Write a first configuration file, with comments, and create the data directory.

    A file that is there is never overwritten, and one that `tollhouse serve` would refuse is not written.
    """
    if config.exists():
        fail(f"{config} is there already; name another file with --config, or remove it", 2)
    stated = (listen, upstream, upstream_key_file, upstream_key_env, emails, *use_cases, *destinations)
    if ask or (ask is None and not any(stated) and sys.stdin.isatty()):
        listen = listen or click.prompt("Where does it listen", default=ServerSettings().listen)
        upstream = upstream or click.prompt(
            "Address of the cost service (empty: none)", default="", show_default=False
        )
        if upstream and not (upstream_key_file or upstream_key_env):
            upstream_key_file = click.prompt("File that holds the key for it")
        if not destinations:
            where = click.prompt(
                "File for the records, one a line (empty: none)", default="", show_default=False
            )
            destinations = (f"ndjson:{where}",) if where else ()
        emails = emails or click.prompt(
            "E-mail addresses that name users: hash them (people are codes in reports), keep or drop them",
            default=PrivacySettings().emails,
            type=Choice(EMAILS),
        )
    if upstream and bool(upstream_key_file) == bool(upstream_key_env):
        fail("--upstream needs --upstream-key-file or --upstream-key-env, and not both", 2)
    if not upstream and (upstream_key_file or upstream_key_env or use_cases):
        fail("the key is for --upstream URL, which is missing", 2)
    answers = Answers(
        data=data,
        listen=listen or ServerSettings().listen,
        upstream=upstream or "",
        key_file=upstream_key_file or "",
        key_env=upstream_key_env or "",
        use_cases=use_cases or (SEND_AI_TELEMETRY,),
        destinations=destinations,
        emails=emails,
    )
    directory = _write(config, "\n".join(_lines(answers)))
    click.echo(f"wrote {config}, and created the data directory {directory}; next:")
    named = "" if config == Path("tollhouse.toml") else f" --config {config}"
    click.echo(f"  tollhouse check{named}")
    click.echo(f'  tollhouse keys create{named} --name "first key" --use-case "{SEND_AI_TELEMETRY}"')
    click.echo(f"  tollhouse serve{named}")


def _write(path: Path, text: str) -> Path:
    """
    All of the file or nothing, and nothing in place of another; exit 2 with every problem that it would have.

    Creates the data directory before it, whose path is returned.
    """
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=".tollhouse-", encoding="utf-8"
        ) as draft:
            draft.write(text)
            draft.flush()
            directory = configured(Path(draft.name)).data_dir
            make_directory(directory, 0o700)
            os.fsync(draft.fileno())
            Path(draft.name).chmod(0o644)
            os.link(draft.name, path)
            return directory
    except FileExistsError:
        fail(f"{path} is there already; name another file with --config, or remove it", 2)
    except OSError as error:
        fail(f"{error.filename or path} cannot be written: {error.strerror}", 2)


def _lines(answers: Answers) -> Iterator[str]:
    yield "# A # before a key shows its default. Relative paths are relative to this file."
    yield ""
    yield from _keys(Config, {"data_dir": answers.data})
    yield ""
    yield "[server]"
    yield from _keys(
        ServerSettings, {"listen": answers.listen}, ("grpc_listen", "operator_listen", "accept_bearer")
    )
    yield ""
    yield "[privacy]"
    yield from _keys(
        PrivacySettings,
        {"emails": answers.emails} if answers.emails else {},
        ("emails",) * (not answers.emails),
    )
    yield ""
    yield "[spool]"
    yield from _keys(SpoolSettings, {}, ("max_bytes", "retention", "hold"))
    yield ""
    yield "[upstream]"
    if answers.upstream:
        yield from _keys(UpstreamSettings, {"base_url": answers.upstream}, ("connection_id", "proxy"))
        yield "[[upstream.keys]]"
        secret = {"secret_file": answers.key_file} if answers.key_file else {"secret_env": answers.key_env}
        yield from _keys(UpstreamKey, {"name": "telemetry", **secret, "use_cases": answers.use_cases})
    else:
        yield from _keys(UpstreamSettings, {}, ("base_url",))
        yield "#[[upstream.keys]]"
        example = {"name": "telemetry", "secret_file": "telemetry.key", "use_cases": answers.use_cases}
        yield from (line if line.startswith("#") else f"#{line}" for line in _keys(UpstreamKey, example))
    for place, text in enumerate(answers.destinations):
        kind, _, where = text.partition(":")
        if kind not in TYPES or not where:
            fail(f"--destination {text!r} must be {_FORM}", 2)
        yield ""
        yield "[[destinations]]"
        name = kind if place == 0 else f"{kind}-{place + 1}"
        yield from _keys(
            DestinationSettings, {"name": name, "type": kind, TYPES[kind].needs: where}, ("topics",)
        )


def _keys(section: type[Any], values: Mapping[str, Any], defaults: Sequence[str] = ()) -> Iterator[str]:
    """The keys that have values, then those of `defaults` as comments; each with its words."""
    found = {key.name: key for key in keys(section)}
    for name in (*values, *defaults):
        key = found[name]
        value = values.get(name, key.default)
        text = written(key.kind, value) if key.kind in UNITS else value
        # texts and lists of them are the same in TOML
        line = f"{name} = {json.dumps(text, ensure_ascii=False)}"
        yield f"# {key.setting.words}"
        yield line if name in values else f"#{line}"

"""`tollhouse check`: checks the configuration and whether the upstream accepts it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import click
import orjson

from exporters.check import DestinationCheck, StreamCheck, check_destinations
from exporters.check import check as check_upstream
from exporters.destinations.catalogue import secret_of
from exporters.errors import Misconfigured
from exporters.probe import OK, REFUSED, UNAVAILABLE, UNUSED
from gateway.cli import config_option, configured
from gateway.configuration.secret_file import SecretFile
from gateway.configuration.sections import Config, ConfigError, SourceSettings
from gateway.intake.prices import PriceBook
from spool.clock import SystemClock
from spool.mounts import mount_of

# What a status of exporters.probe means for the records of its route.
_EFFECTS = {REFUSED: "would be parked", UNAVAILABLE: "would wait and be tried again"}


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(config: Path | None, as_json: bool) -> None:
    """
    Check the configuration, its files, the upstream and the destinations.

    Nothing is started. An empty export goes to OTLP endpoints; no other stream or destination has a request
    that leaves nothing behind, so those are marked unverified. Exit 1 when something would not work.
    """
    settings = configured(config)
    problems = list(file_problems(settings))
    streams, destinations = asyncio.run(try_receivers(settings))
    tried = [stream.status for stream in streams if stream.key] + [each.status for each in destinations]
    failed = bool(problems) or any(status in _EFFECTS for status in tried)
    mount = mount_of(settings.data_dir)
    warning = mount.warning if mount else ""
    if as_json:
        found = {
            "problems": problems,
            "warnings": [f"data_dir: {warning}"] if warning else [],
            "upstream": [asdict(stream) for stream in streams],
            "destinations": [asdict(destination) for destination in destinations],
        }
        click.echo(orjson.dumps(found))
    else:
        _show(settings, problems, warning, streams, destinations)
    sys.exit(1 if failed else 0)


async def try_receivers(config: Config) -> tuple[Sequence[StreamCheck], Sequence[DestinationCheck]]:
    """Whether the upstream and the destinations would take what is sent to them."""
    clock = SystemClock()
    streams = await check_upstream(config.upstream, clock=clock)
    return streams, await check_destinations(config.destinations, clock=clock)


def file_problems(config: Config) -> Iterator[str]:
    """What the configuration names on this machine and cannot be used."""
    directory = config.data_dir if config.data_dir.exists() else config.data_dir.parent
    if not os.access(directory, os.W_OK):
        yield f"data_dir: {directory} is not writable"
    for place, key in enumerate(config.upstream.keys):
        if key.secret_file and not os.access(key.secret_file, os.R_OK):
            yield f"upstream.keys[{place}].secret_file: {key.secret_file} cannot be read"
        if key.secret_env and not os.environ.get(key.secret_env):
            yield f"upstream.keys[{place}].secret_env: {key.secret_env} is not set"
    for place, destination in enumerate(config.destinations):
        secret = secret_of(destination, f"destinations[{place}].secret_file")
        try:
            if secret:
                secret.value()
        except Misconfigured as error:
            yield str(error)
    signing = config.sources.get("helicone", SourceSettings()).signing_secret_file
    secrets = {
        "server.api_key_file": config.server.api_key_file,
        "sources.helicone.signing_secret_file": signing,
    }
    for setting, path in secrets.items():
        try:
            if path:
                SecretFile(setting, path)
        except ConfigError as error:
            yield from error.problems
    try:
        PriceBook.load(config.prices)
    except (OSError, ValueError) as error:
        yield f"prices: {error}"


def _show(
    config: Config,
    problems: Sequence[str],
    warning: str,
    streams: Sequence[StreamCheck],
    destinations: Sequence[DestinationCheck],
) -> None:
    click.echo(f"data        {config.data_dir}")
    if warning:
        click.echo(f"warning     data_dir: {warning}")
    for problem in problems:
        click.echo(f"problem     {problem}")
    if not streams:
        click.echo("upstream    none: records are kept, priced and shown here")
    for stream in streams:
        click.echo(f"upstream    {stream.stream:<20}{_verdict(stream)}")
    for destination in destinations:
        what = f"{', '.join(destination.topics)} to {destination.to}"
        found = _with_effect(destination.status, destination.words)
        click.echo(f"destination {destination.name:<20}{what}: {found}")


def _verdict(stream: StreamCheck) -> str:
    if stream.status == UNUSED:
        return f"not sent: {stream.words}"
    if stream.key is None:
        return f"parked: no key grants {stream.scope}"
    where = "" if stream.published or stream.status == OK else " (an address that the service does not publish)"
    return f"under key {stream.key!r}: {_with_effect(stream.status, stream.words)}{where}"


def _with_effect(status: str, words: str | None) -> str:
    said = f": {words}" if words else ""
    return f"{status}{said}; records {_EFFECTS[status]}" if status in _EFFECTS else f"{status}{said}"

"""`tollhouse check`: validates the configuration and tests every receiver that it names."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from exporters.check import (
    ChannelCheck,
    DestinationCheck,
    StreamCheck,
    check_channels,
    check_destinations,
    check_gateway,
    results_with_stopped_routes,
)
from exporters.check import check_streams as check_upstream
from exporters.probe import OK, REFUSED, UNAVAILABLE, UNUSED, probe_directory
from exporters.service.billing_drops import VALIDATION_STREAM as BILLING_VALIDATION
from exporters.service.events import needs_event_mapping
from exporters.service.unit_cost import STREAM as UNIT_COST
from gateway.cli import config_option, load_config_or_exit
from gateway.cli.data_directory import require_data_directory
from gateway.cli.output import readable_value
from gateway.configuration.attribution import SourceSettings
from gateway.configuration.certificates import certificate_troubles, read_certificate_expiries
from gateway.configuration.problems import config_warnings
from gateway.configuration.secret_file import SecretFile
from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards.card import CardUnreadable
from gateway.service.assembly.sent_secrets import secret_problems
from spool.clock import SystemClock
from spool.deliveries.values import RUNNING
from spool.disks import find_mount
from spool.installation import FILE, read_public_id
from spool.printable import printable_json
from spool.registry.notices import CRITICAL
from spool.settings import SQLITE

VALIDATED_HERE = "billing files are then validated only by this gateway"

# status of a route's test request -> effect on the records of this route
_EFFECTS = {REFUSED: "would wait here until that is fixed", UNAVAILABLE: "would wait here and be retried"}


@click.command()
@config_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--send",
    is_flag=True,
    help=(
        "Also send one test call to your cost service and to each OTLP destination. A Tollhouse does not "
        "count this call. Any other receiver counts one call with zero tokens."
    ),
)
def check(config: Path | None, as_json: bool, send: bool) -> None:
    """
    Check the configuration without starting anything.

    Checks the settings, the files they name, your cost service, the destinations, the notification channels, the
    keys of enforcers and the OpenID provider. If a server is running, the command also shows its stopped routes, the
    API keys that end soon or are used after their end, and whether the key in server.api_key_file is usable.

    File destinations get a test file, and OTLP endpoints an empty export. If a destination is a Tollhouse, it
    also gets one test call and does not count it. Its response shows whether it rejects records from this key
    (server.chain_keys). Other destinations offer no request without side effects, so the check only connects to
    them and reports them as unverified. No notification is sent. Streams without configuration are skipped. Exit
    code 1 if something would not work.
    """
    settings = load_config_or_exit(config)
    if config is None:  # without a configuration file, only the data directory can be checked
        require_data_directory(settings, config)
    problems = list(configured_file_problems(settings))
    server = asyncio.run(fetch_server_state(settings))
    problems += server.problems
    certificates = certificate_troubles(read_certificate_expiries(settings), now=SystemClock().now())
    problems += [each.text for each in certificates if each.severity == CRITICAL]
    streams, destinations = asyncio.run(try_receivers(settings, server.stopped, send=send))
    problems += stopped_routes_not_listed(server.stopped, streams, destinations)
    channels = asyncio.run(check_channels(settings.notify, clock=SystemClock()))
    sign_in = asyncio.run(oidc_provider_problem(settings))
    missing = asyncio.run(missing_for_mcp_clients(settings))
    refused = asyncio.run(enforcer_problems(settings))
    statuses = [stream.status for stream in streams if stream.key]
    statuses += [destination.status for destination in destinations] + [
        channel.status for channel in channels
    ]
    failed = bool(problems or sign_in or any(refused.values())) or any(
        status in _EFFECTS for status in statuses
    )
    warned = [*_config_warnings(settings), *server.warnings]
    warned += [each.text for each in certificates if each.severity != CRITICAL]
    warned += asyncio.run(fetch_key_warnings(settings))
    if as_json:
        report = {
            "problems": problems,
            "has_data_dir": not _missing_directory_hint(settings),
            "warnings": warned,
            "upstream": [asdict(stream) for stream in streams],
            "destinations": [asdict(destination) for destination in destinations],
            "channels": [asdict(channel) for channel in channels],
            "enforcers": [{"name": name, "problem": problem} for name, problem in refused.items()],
            "oidc": {"issuer": settings.oidc.issuer, "problem": sign_in} if settings.oidc.issuer else None,
            "mcp_oauth": {"resource": settings.mcp.oauth.resource, "missing": missing}
            if settings.mcp.oauth.resource
            else None,
        }
        click.echo(printable_json(report))
    else:
        _show_check_result(settings, problems, warned, streams, destinations)
        _show_channels(channels)
        if settings.oidc.issuer:
            click.echo(
                f"sign-in      {settings.oidc.issuer}: {sign_in or 'ok: its addresses and keys were found'}"
            )
        for name, problem in refused.items():
            click.echo(f"enforcer     {name}: {problem or 'ok: the key can read limits'}")
        for message in missing:
            click.echo(f"assistants   {settings.mcp.oauth.resource}: {message}")
    sys.exit(1 if failed else 0)


@dataclass(frozen=True, kw_only=True)
class ServerState:
    """
    What the running server reports: problems and warnings of API keys, and by route name, why each stopped
    route delivers nothing. Empty if no server runs.
    """

    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()
    stopped: Mapping[str, str] = field(default_factory=dict)


async def fetch_server_state(config: Config) -> ServerState:
    from gateway.cli.operator.client import OperatorClient

    client = OperatorClient(config, "tollhouse check")
    status = await client.get_from_running_server("/status")
    attention = await client.get_from_running_server("/attention")
    causes = attention["attention"]["causes"] if attention else []
    keys = [cause for cause in causes if cause["kind"] == "key"]
    return ServerState(
        problems=[cause["text"] for cause in keys if cause["severity"] == CRITICAL],
        warnings=[cause["text"] for cause in keys if cause["severity"] != CRITICAL],
        stopped=reasons_of_stopped_routes(status),
    )


def reasons_of_stopped_routes(status: Mapping[str, Any]) -> Mapping[str, str]:
    """Return why each stopped route in a response of /status delivers nothing, by route name."""
    return {
        route["route"]: (
            f"{readable_value('state', route['state'])}, {route['queued']} records wait: "
            f"{route['reason'] or 'no reason is known'}"
        )
        for route in status.get("routes", ())
        if route["state"] != RUNNING
    }


def stopped_routes_not_listed(
    stopped: Mapping[str, str], streams: Sequence[StreamCheck], destinations: Sequence[DestinationCheck]
) -> Sequence[str]:
    """Return texts for the stopped routes that the lines of streams and destinations do not name yet."""
    listed = [stream.words or "" for stream in streams]
    listed += [destination.words or "" for destination in destinations]
    texts = [f"route {name}: {reason}" for name, reason in stopped.items()]
    return [text for text in texts if not any(text in words for words in listed)]


async def try_receivers(
    config: Config, stopped: Mapping[str, str], *, send: bool = False
) -> tuple[Sequence[StreamCheck], Sequence[DestinationCheck]]:
    """
    Test whether the cost service and the destinations would accept records. If a route is stopped, its state
    is the result instead. `send` is the option --send of `check`.
    """
    clock = SystemClock()
    used = [UNIT_COST] if config.publish or config.streams else []
    streams = await check_upstream(config.upstream, clock=clock, used_streams=used, send_call=send)
    installation = read_public_id(_installation_secret_path(config))
    destinations = list(
        await check_destinations(config.destinations, clock=clock, installation=installation, send_call=send)
    )
    if config.agent.gateway:
        destinations.append(await check_gateway(config.agent.gateway, config.upstream, clock=clock))
    return results_with_stopped_routes(streams, destinations, stopped)


def _installation_secret_path(config: Config) -> Path | None:
    return config.data_dir / FILE if config.storage.engine == SQLITE else config.storage.secret_file


async def enforcer_problems(config: Config) -> Mapping[str, str]:
    """Return by name of each enforcer why its limits cannot be read, or "" if its key works."""
    if not config.enforcers:
        return {}
    from gateway.service.assembly.enforcers import probe_enforcer_keys

    return await probe_enforcer_keys(config, SystemClock())


async def oidc_provider_problem(config: Config) -> str:
    """Return why nobody can sign in with the OpenID provider, or "" if it answers or none is configured."""
    if not config.oidc.issuer:
        return ""
    from gateway.people.authentication.oidc.provider import provider_problem

    return await provider_problem(config.oidc, clock=SystemClock())


async def fetch_key_warnings(config: Config) -> Sequence[str]:
    """
    Return why the running server does not accept the key in server.api_key_file, and which names in
    server.key_addresses match no key. Empty if no server runs.
    """
    if config.server.api_key_file is None and not config.server.key_addresses:
        return ()
    from gateway.cli.operator.client import OperatorClient

    client = OperatorClient(config, "tollhouse check")
    answer = await client.get_from_running_server("/keys")
    not_open = [f"server.api_key_file: {answer['not_open']}"] if answer.get("not_open") else []
    return not_open + [
        f"server.key_addresses.{name} matches no key, so it restricts nothing"
        for name in answer.get("unknown_names", ())
    ]


async def missing_for_mcp_clients(config: Config) -> Sequence[str]:
    """
    List what MCP clients need and the OpenID provider does not offer. Empty if MCP accepts no OAuth tokens.
    """
    if not config.mcp.oauth.resource:
        return ()
    from gateway.people.authentication.oidc.provider import missing_client_features

    return await missing_client_features(config.oidc, clock=SystemClock())


def configured_file_problems(config: Config) -> Iterator[str]:
    """
    Yield the problems of the files, directories and secrets that the configuration names on this machine.
    """
    probe = probe_directory(config.data_dir)
    if probe.status != OK:
        yield f"data_dir: {probe.words}"
    yield from secret_problems(config)
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
        PriceBook.load(config.prices, config.data_dir)
    except CardUnreadable as error:
        yield str(error)
    if config.currency.rates_file is not None:
        yield from _rates_file_problems(config.currency.rates_file, config.currency.max_file_bytes)


def _rates_file_problems(path: Path, most_bytes: int) -> Iterator[str]:
    from gateway.money.currencies import RatesUnreadable, read_rates_file

    try:
        read_rates_file(path, most_bytes)
    except RatesUnreadable as error:
        yield f"currency.rates_file: {error}"


def _config_warnings(config: Config) -> Iterator[str]:
    mount = find_mount(config.data_dir)
    if mount and mount.warning:
        yield f"data_dir: {mount.warning}"
    yield from config_warnings(config)


def _show_check_result(
    config: Config,
    problems: Sequence[str],
    warned: Sequence[str],
    streams: Sequence[StreamCheck],
    destinations: Sequence[DestinationCheck],
) -> None:
    click.echo(f"data         {config.data_dir}{_missing_directory_hint(config)}")
    for warning in warned:
        click.echo(f"warning      {warning}")
    for problem in problems:
        click.echo(f"problem      {problem}")
    if not streams and not config.agent.gateway:
        click.echo("cost service none: records are stored, priced and shown here")
    for stream in streams:
        click.echo(f"cost service {stream.stream:<20}{_describe_stream_check(stream)}")
    if config.upstream.events and needs_event_mapping(config.upstream):
        mapped = ", ".join(sorted(config.upstream.events))
        click.echo(f"events       mapped: {mapped}; all other types are unmapped: stored here and not sent")
    for destination in destinations:
        description = f"{', '.join(destination.topics)} to {destination.to}"
        effect = _describe_check_status(destination.status, destination.words, is_route=True)
        click.echo(f"destination  {destination.name:<20}{description}: {effect}")


def _missing_directory_hint(config: Config) -> str:
    if config.storage.engine != SQLITE or config.data_dir.exists():
        return ""
    return ": not created yet; `tollhouse serve` creates it at its first start"


def _show_channels(channels: Sequence[ChannelCheck]) -> None:
    for channel in channels:
        verdict = _describe_check_status(channel.status, channel.words, is_route=False)
        click.echo(
            f"channel      {channel.name:<20}{' to '.join(filter(None, (channel.type, channel.to)))}: {verdict}"
        )


def _describe_stream_check(stream: StreamCheck) -> str:
    if stream.status == UNUSED:
        return f"not sent: {stream.words}"
    if stream.key is None:
        return f"paused: no key has the use case {stream.scope}"
    where = (
        ""
        if stream.published or stream.status == OK
        else " (an address that is not in the service's documentation)"
    )
    is_asked = stream.stream == BILLING_VALIDATION
    verdict = _describe_check_status(stream.status, stream.words, effect=VALIDATED_HERE if is_asked else None)
    return f"under key {stream.key!r}: {verdict}{where}"


def _describe_check_status(
    status: str, message: str | None, *, is_route: bool = True, effect: str | None = None
) -> str:
    detail = f": {message}" if message else ""
    if status not in _EFFECTS or not is_route:
        return f"{status}{detail}"
    return f"{status}{detail}; {effect or f'records {_EFFECTS[status]}'}"

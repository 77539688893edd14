"""`tollhouse serve`: the process around the app: addresses, first key, signals and exit codes."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from pathlib import Path

import click

from gateway.app import App, StartAbandoned
from gateway.cli import config_option, configured, data_option, fail, forced_exit
from gateway.configuration.sections import Config, ConfigError
from gateway.http.connections import raise_descriptor_limit
from gateway.monitoring import logs
from spool.errors import SpoolError


@click.command()
@config_option
@data_option
@click.option("--listen", metavar="HOST:PORT", help="Where HTTP listens; port 0 picks one and prints it.")
@click.option("--grpc-listen", metavar="HOST:PORT", help='Where OTLP/gRPC listens; "" switches it off.')
def serve(config: Path | None, data: Path | None, listen: str | None, grpc_listen: str | None) -> None:
    """
    Run the gateway until SIGTERM or SIGINT.

    Without --config it runs on loopback with its data in ./tollhouse-data, and prints a first key once.
    """
    flags = {
        "data_dir": str(data.absolute()) if data else None,
        "server.listen": listen,
        "server.grpc_listen": grpc_listen,
    }
    settings = configured(config, flags)
    logs.configure(settings.log.level, lines_per_minute=settings.log.lines_per_minute)
    raise_descriptor_limit()
    try:
        sys.exit(asyncio.run(run(settings, embedded=config is None)))
    except ConfigError as error:
        fail("; ".join(error.problems), code=2)
    except (SpoolError, OSError) as error:
        fail(why(error))


async def run(config: Config, *, embedded: bool) -> int:
    """Exit code 0 after a signal, 1 when a background task died."""
    app = App(config, version=version("tollhouse"))

    async def announce() -> None:
        _announce(app, await app.first_key() if embedded else None)

    return await run_app(app, announce)


async def run_app(app: App, announce: Callable[[], Awaitable[None]]) -> int:
    """Start, announce, serve until a signal or the end of a background task, stop."""
    loop = asyncio.get_running_loop()
    asked_to_stop = asyncio.Event()

    def stop() -> None:  # a second signal finds the stop under way and changes nothing
        asked_to_stop.set()
        app.abandon()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await app.start()
    except StartAbandoned:
        return 0
    try:
        reload = _Reload(app)
        loop.add_signal_handler(signal.SIGHUP, reload.ask)
        await announce()
        return await _until_stopped(app, asked_to_stop)
    finally:
        with forced_exit.exit_after(loop):
            await app.stop()


async def _until_stopped(app: App, asked_to_stop: asyncio.Event) -> int:
    signalled = asyncio.create_task(asked_to_stop.wait())
    died = asyncio.create_task(app.failure())
    done, waiting = await asyncio.wait({signalled, died}, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    if signalled in done:
        return 0
    click.echo(f"tollhouse: the background task {died.result()!r} ended; stopping", err=True)
    return 1


class _Reload:
    """SIGHUP: one reload at a time; those asked for meanwhile become one more."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._again = False

    def ask(self) -> None:
        self._again = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="reload")

    async def _run(self) -> None:
        while self._again:
            self._again = False
            await self._app.reload()


def _announce(app: App, first_key: str | None) -> None:
    click.echo(f"listening on {app.url}")
    if app.grpc_address:
        click.echo(f"listening on grpc://{app.grpc_address}")
    if first_key is not None:
        click.echo(WELCOME.format(key=first_key, url=app.url, span=_first_span()))


# One line without line breaks inside quotes: it has to survive being pasted.
FIRST_SPAN = (
    '{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{trace_id}","spanId":"{span_id}","name":"chat gpt-4o",'
    '"kind":3,"startTimeUnixNano":"{start}","endTimeUnixNano":"{end}","attributes":['
    '{{"key":"gen_ai.operation.name","value":{{"stringValue":"chat"}}}},'
    '{{"key":"gen_ai.provider.name","value":{{"stringValue":"openai"}}}},'
    '{{"key":"gen_ai.request.model","value":{{"stringValue":"gpt-4o"}}}},'
    '{{"key":"gen_ai.usage.input_tokens","value":{{"intValue":"1200"}}}},'
    '{{"key":"gen_ai.usage.output_tokens","value":{{"intValue":"300"}}}}]}}]}}]}}]}}'
)

WELCOME = """
Created a new data directory. Its first key, shown this once, can only send AI telemetry:

    {key}

Send a first record:

curl {url}/v1/traces \\
  -H "Authorization: {key}" \\
  -H "Content-Type: application/json" \\
  -d '{span}'

Then look at it with `tollhouse spool status`, and point an OpenTelemetry exporter here:

    OTEL_EXPORTER_OTLP_ENDPOINT={url}
    OTEL_EXPORTER_OTLP_HEADERS=Authorization={key}

Further keys come from `tollhouse keys create`. To forward, name an upstream in tollhouse.toml and start with --config.
"""


def _first_span() -> str:
    now = time.time_ns()
    ids = {"trace_id": secrets.token_hex(16), "span_id": secrets.token_hex(8)}
    return FIRST_SPAN.format(start=now - 1_200_000_000, end=now, **ids)


def why(error: Exception) -> str:
    """What stopped it, in one line for the operator."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)

"""`tollhouse serve`: the server process, with its first key, signals and exit codes."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import signal
import sys
import sysconfig
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from gateway.cli import config_option, data_option, exit_with_message, load_config_or_exit
from gateway.configuration.local_operator import local_address
from gateway.configuration.reader import load_config, setting_origins
from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from gateway.http.listening.connections import raise_descriptor_limit
from gateway.http.listening.sockets import ListeningSockets
from gateway.monitoring import logs
from gateway.monitoring.memory import trim_and_freeze_memory
from gateway.monitoring.service_manager import ServiceManager
from spool.engines import load_engine
from spool.errors import OtherSchema, SpoolError, UnfinishedCopy
from spool.registry.operators import Actor

# imported late, so that --help and a refused start do not load the server
if TYPE_CHECKING:
    from gateway.operations.services import AllServices
    from gateway.service.app import TollhouseApp

SIGHUP = Actor("SIGHUP", "local")
# seconds; the waits of a stop take at most 24 s, and the rest is for closing files on a slow disk
STOP_WITHIN_S = 28.0
_OWN_PACKAGE = re.compile(r"^(?:exporters|gateway|spool)/", re.MULTILINE)
_OWN_NAME = re.compile(r"tollhouse-\d")

_log = logging.getLogger(__name__)


@click.command()
@config_option
@data_option
@click.option(
    "--listen", metavar="HOST:PORT", help="Address for HTTP; port 0 picks a free port and prints it."
)
@click.option("--grpc-listen", metavar="HOST:PORT", help='Address for OTLP/gRPC; "" turns it off.')
@click.option(
    "--take-over", is_flag=True, help="Take over from a server that already runs on the data directory."
)
@click.option(
    "--apply",
    "applied",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Make the settings equal to the files of this directory before the server accepts requests.",
)
@click.option(
    "--secrets",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path, file_okay=False),
    help="With --apply: directory of files with secrets that the settings may name, besides their own. Repeatable.",
)
def serve(
    config: Path | None,
    data: Path | None,
    listen: str | None,
    grpc_listen: str | None,
    take_over: bool,
    applied: Path | None,
    secrets: tuple[Path, ...],
) -> None:
    """
    Run the gateway until SIGTERM or SIGINT.

    Without a configuration file it listens on loopback and stores data in ./tollhouse-data, and the first start
    prints a key once. On a terminal, each start prints a link to the console.
    """
    flags = {
        "data_dir": str(data.absolute()) if data else None,
        "server.listen": listen,
        "server.grpc_listen": grpc_listen,
    }
    if others := foreign_distributions():
        words = "has files in the packages of Tollhouse; install Tollhouse in an environment of its own"
        exit_with_message(f"{others[0]} {words}", code=2)
    settings = load_config_or_exit(config, flags)
    if take_over:
        _exit_if_start_would_fail(settings)

    def reload_config() -> Config:
        return load_config(config, flags=flags)

    def origins_of_settings() -> Mapping[str, str]:
        return setting_origins(config, flags=flags)

    serve_until_stopped(
        settings,
        embedded=config is None,
        reread=reload_config,
        given=origins_of_settings,
        takes_over=take_over,
        applied=applied,
        secret_directories=secrets,
    )


def serve_until_stopped(settings: Config, **options: Any) -> NoReturn:
    logs.start_logging(settings.log.level, lines_per_minute=settings.log.lines_per_minute)
    raise_descriptor_limit()
    try:
        sys.exit(
            asyncio.run(run_server(settings, sockets=ListeningSockets.from_service_manager(), **options))
        )
    except ConfigError as error:
        exit_with_message("; ".join(error.problems), code=2)
    # exit code 2, because a restart would fail for the same reason
    except (OtherSchema, UnfinishedCopy) as error:
        exit_with_message(str(error), code=2)
    except (SpoolError, OSError) as error:
        exit_with_message(describe_stop(error))


def _exit_if_start_would_fail(config: Config) -> None:
    """Exit with code 2 if a start would fail, before the running server is asked to stop."""
    from gateway.cli.check import configured_file_problems

    problems = list(configured_file_problems(config))
    if problems:
        exit_with_message("; ".join(problems), code=2)
    try:
        load_engine(config.storage.engine).check_schema(config.data_dir)
    except OtherSchema as error:
        exit_with_message(str(error), code=2)


async def run_server(
    config: Config,
    *,
    embedded: bool,
    reread: Callable[[], Config] | None = None,
    given: Callable[[], Mapping[str, str]] | None = None,
    sockets: ListeningSockets | None = None,
    takes_over: bool = False,
    shows_link: bool = False,
    applied: Path | None = None,
    secret_directories: Sequence[Path] = (),
) -> int:
    """
    Run the server. Return 0 after a signal or a takeover by another process, 1 if a background task died.
    """
    from gateway.service.app import TollhouseApp

    app = TollhouseApp(
        config,
        version=version("tollhouse"),
        reread=reread,
        origins=given,
        sockets=sockets,
        takes_over=takes_over,
        prepare=None if applied is None else partial(_apply_directory, config, applied, secret_directories),
    )

    async def create_first_key_and_announce() -> None:
        first_key = await app.create_first_key() if embedded else None
        # On a terminal a person reads the link. A service manager collects the output, which must hold no
        # secret after the first start.
        is_wanted = shows_link or first_key is not None or sys.stdout.isatty()
        starter = Actor(local_address(app.config), "tollhouse serve")
        _announce_start(app, first_key, await app.console_link(starter) if is_wanted else None)

    return await run_app_until_stopped(app, create_first_key_and_announce)


async def _apply_directory(
    config: Config, directory: Path, secret_directories: Sequence[Path], services: AllServices
) -> None:
    from gateway.cli.operator.files import OutsideDirectories, read_secrets, read_settings_files
    from gateway.operations.files.applying import ApplyOptions
    from gateway.operations.files.calls import apply_and_activate, reasons_not_applied

    try:
        files = read_settings_files(directory)
        how = ApplyOptions(secrets=read_secrets(files, directory, secret_directories))
    except OutsideDirectories as error:
        raise ConfigError([str(error)]) from error
    except (OSError, ValueError) as error:
        raise ConfigError([f"{directory}: {error}"]) from error
    actor = Actor(local_address(config), "tollhouse serve")
    outcome = await apply_and_activate(services.operators, files, how, actor=actor)
    if not outcome.is_valid:
        raise ConfigError(reasons_not_applied(outcome))
    extra = {"action": "files_applied", "set": outcome.set, "changes": len(outcome.changes)}
    _log.info("settings applied from files", extra=extra)


async def run_app_until_stopped(
    app: TollhouseApp, announce: Callable[[], Awaitable[None]], *, stdin_stops: bool = False
) -> int:
    """
    Start the app, call `announce`, and serve until a signal, a takeover or the end of a background task. With
    `stdin_stops`, the end of standard input stops the app as well.
    """
    from gateway.service.app import StartAbandoned

    loop = asyncio.get_running_loop()
    manager = ServiceManager()
    asked_to_stop = asyncio.Event()

    def request_stop() -> None:  # a second signal during a stop has no further effect
        asked_to_stop.set()
        app.stop_waiting_for_space()

    reload = _ConfigReloader(app, manager)
    _handle_signals(loop, request_stop, reload.request_reload)
    if stdin_stops:
        threading.Thread(
            target=_stop_when_stdin_ends, args=(loop, request_stop), daemon=True, name="stdin"
        ).start()
    starting = asyncio.create_task(manager.request_more_start_time(), name="starting")
    try:
        await app.start()
    except StartAbandoned:
        return 0
    finally:
        starting.cancel()
    trim_and_freeze_memory()
    watch = asyncio.create_task(manager.feed_watchdog(app.services.single.health.is_live), name="watchdog")
    try:
        await announce()
        manager.send_state("READY=1")
        reload.start_handling_reloads()
        return await _wait_until_stopped(app, asked_to_stop)
    finally:
        manager.send_state("STOPPING=1")
        with exit_process_if_block_takes_longer(loop):
            await app.stop()
        watch.cancel()


def _handle_signals(
    loop: asyncio.AbstractEventLoop, stop: Callable[[], None], reload: Callable[[], None]
) -> None:
    # on Windows, event loops have no signal handlers, and no signal requests a reload
    if sys.platform == "win32":
        for number in (signal.SIGINT, signal.SIGBREAK):
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    # this handler replaces the default, with which SIGHUP would end the process
    loop.add_signal_handler(signal.SIGHUP, reload)


def _stop_when_stdin_ends(loop: asyncio.AbstractEventLoop, stop: Callable[[], None]) -> None:
    with suppress(OSError):  # a standard input that cannot be read counts as ended
        while os.read(0, 4096):
            pass
    with suppress(RuntimeError):  # ignore a loop that has already stopped for another reason
        loop.call_soon_threadsafe(stop)


async def _wait_until_stopped(app: TollhouseApp, asked_to_stop: asyncio.Event) -> int:
    signalled = asyncio.create_task(asked_to_stop.wait())
    handed_over = asyncio.create_task(app.wait_for_handover())
    died = asyncio.create_task(app.wait_for_failure())
    done, waiting = await asyncio.wait({signalled, handed_over, died}, return_when=asyncio.FIRST_COMPLETED)
    for task in waiting:
        task.cancel()
    if died not in done:
        return 0
    click.echo(f"tollhouse: the background task {died.result()!r} ended; stopping", err=True)
    return 1


class _ConfigReloader:
    """
    Reloads on SIGHUP, one at a time. Signals during a reload, or before `start_handling_reloads`, cause one
    further reload.
    """

    def __init__(self, app: TollhouseApp, manager: ServiceManager) -> None:
        self._app = app
        self._manager = manager
        self._task: asyncio.Task[None] | None = None
        self._again = False
        self._has_begun = False

    def start_handling_reloads(self) -> None:
        self._has_begun = True
        if self._again:
            self.request_reload()

    def request_reload(self) -> None:
        self._again = True
        if not self._has_begun:
            return
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._reload_until_current(), name="reload")

    async def _reload_until_current(self) -> None:
        while self._again:
            self._again = False
            self._manager.announce_reload()
            try:
                with suppress(ConfigError):  # the reload has already logged why the configuration is invalid
                    await self._app.reload(SIGHUP)
            except SpoolError as error:
                _log.error("configuration not reloaded: %s", error, extra={"action": "reload_failed"})
            self._manager.send_state("READY=1")


def _announce_start(app: TollhouseApp, first_key: str | None, link: str | None) -> None:
    click.echo(f"listening on {app.url}")
    if app.grpc_address:
        click.echo(f"listening on grpc://{app.grpc_address}")
    if app.services.operators.installation.planted is not None:
        click.echo("This data directory is a demo: its calls are made up.")
    if link is not None:
        click.echo(f"\nOpen the console. This link works once and expires in ten minutes:\n\n    {link}\n")
    if first_key is not None:
        click.echo(WELCOME.format(key=first_key, url=app.url, command=program_name()))


WELCOME = """\
This is a new data directory. Its first key can only send AI telemetry, and it is shown only now:

    {key}

Send a first record from a second terminal:

    TOLLHOUSE_KEY={key} {command} send --example litellm --to {url}

The record appears in the console after ten seconds.

To send your own calls, set two variables for any OpenTelemetry exporter:

    OTEL_EXPORTER_OTLP_ENDPOINT={url}
    OTEL_EXPORTER_OTLP_HEADERS=Authorization={key}

Next steps:
    {command} report        show what your AI calls cost
    {command} keys create   create a key for each sender
    {command} init          write tollhouse.toml, for example to forward records to your cost service
"""


def program_name() -> str:
    """Return how to call this program in a shell: by its name, or by its path if the shell does not find it."""
    called = Path(sys.argv[0])
    if called.name != "tollhouse" or shutil.which("tollhouse"):
        return "tollhouse"
    # relative_to raises ValueError if the program is outside of the current directory
    with suppress(ValueError):
        return str(called.absolute().relative_to(Path.cwd()))
    return str(called)


def describe_stop(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


@contextmanager
def exit_process_if_block_takes_longer(
    loop: asyncio.AbstractEventLoop, *, within_s: float = STOP_WITHIN_S
) -> Iterator[None]:
    """
    End the process with exit code 1 if the block takes longer than `within_s`, even if the event loop is blocked.

    Logs the tasks that were still running. Committed data is on disk, and senders repeat requests that
    were not acknowledged.
    """
    timer = threading.Timer(within_s, _log_tasks_and_exit, [loop, within_s])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _log_tasks_and_exit(loop: asyncio.AbstractEventLoop, within_s: float) -> None:
    running = sorted(_describe_task(task) for task in asyncio.all_tasks(loop))
    extra = {"action": "stop_cut", "tasks": running}
    _log.critical("stopping took longer than %g s; the process ends now", within_s, extra=extra)
    os._exit(1)


def _describe_task(task: asyncio.Task[object]) -> str:
    frames = task.get_stack(limit=1)
    if not frames:
        return task.get_name()
    return f"{task.get_name()}: {frames[0].f_code.co_qualname}:{frames[0].f_lineno}"


def foreign_distributions(libraries: Path | None = None) -> Sequence[str]:
    """Return the names of other distributions with files in the packages of Tollhouse, from the records of pip."""
    records = (libraries or Path(sysconfig.get_path("purelib"))).glob("*.dist-info/RECORD")
    others = (record for record in records if not _OWN_NAME.match(record.parent.name))
    return sorted(record.parent.stem for record in others if _OWN_PACKAGE.search(record.read_text("utf-8")))

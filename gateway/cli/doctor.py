"""`tollhouse doctor`: inspects everything, reports problems, and packs a bundle for bug reports."""

from __future__ import annotations

import asyncio
import io
import os
import platform
import resource
import shutil
import stat
import statistics
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from decimal import Decimal
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import click
import orjson

from exporters.check import StreamCheck, check_channels
from exporters.probe import OK as TAKEN
from exporters.probe import REFUSED, UNAVAILABLE, UNUSED
from gateway.cli import config_option, data_option, exit_with_message, load_config_or_exit
from gateway.cli.check import (
    configured_file_problems,
    missing_for_mcp_clients,
    oidc_provider_problem,
    reasons_of_stopped_routes,
    try_receivers,
)
from gateway.cli.data_directory import require_data_directory
from gateway.cli.operator.client import OperatorClient
from gateway.cli.output import show_json
from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError
from gateway.service.demo.note import read_note
from spool.clock import EARLIEST, SystemClock
from spool.disks import find_mount, nearest_existing_path
from spool.engines import load_engine
from spool.errors import SpoolError
from spool.packed.native import load_if_enabled
from spool.printable import replace_unprintable
from spool.registry.keys import ENABLED
from spool.registry.notices import CRITICAL
from spool.settings import DAY_S, GIB, LOCAL, MIB, SpoolSettings

OK, NOTE, WARNING, PROBLEM = "ok", "note", "warning", "problem"
MARKS = {OK: "ok", "note": "note", "warning": "WARNING", PROBLEM: "PROBLEM"}
FLUSHES = 30
SLOW_FLUSH_S, HANGING_FLUSH_S = 0.1, 2.0
# bytes of free disk space; with less space, a start may not be able to reserve what it needs
LEAST_ROOM = 256 * MIB
LEAST_DESCRIPTORS = 1024
SYNCHRONISED = (Path("/run/systemd/timesync/synchronized"), Path("/run/chrony"), Path("/run/chronyd.pid"))
LEFT_OUT = "(left out)"
# Settings with text values that the bundle may show. Their values are fixed words, or they are names and
# addresses that other lists also show.
_SHOWN = {
    "type", "policy", "emails", "level", "measure", "per", "by", "granularity", "start", "compression", "use_cases",
    "scopes", "topics", "billing_segment", "engine", "tags", "listen", "grpc_listen", "operator_listen",
    "metrics_listen", "idempotency_header",
}  # fmt: skip
WINDOW_S = SpoolSettings().duplicate_window
# a day before the end of the window, so that time remains to deliver waiting records
LATE_S = WINDOW_S - DAY_S
_ADDRESSES = {"url", "base_url", "ai_telemetry_url", "gateway", "cors_origins"}
# status of a test request -> status of the diagnosis
_TRIED = {TAKEN: OK, REFUSED: PROBLEM, UNAVAILABLE: PROBLEM}

State = dict[str, Mapping[str, Any]]  # path of the operator API -> its response


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """
    One finding. `status` is OK, NOTE (a fact to know), WARNING (works, with a risk) or PROBLEM (does not work).
    """

    about: str
    status: str
    words: str


@click.command()
@config_option
@data_option
@click.option(
    "--bundle",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to create with the findings, for a bug report.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(config: Path | None, data: Path | None, bundle: Path | None, as_json: bool) -> None:
    """
    Inspect this installation and report problems.

    Checks the machine, the data directory, the configuration and all receivers, and lists what needs attention on the
    console's Overview. Works with or without a running server. The bundle contains no secrets, headers or records. Exit
    code 1 if something does not work.
    """
    settings = load_config_or_exit(config, {"data_dir": str(data.absolute()) if data else None})
    if config is None:
        require_data_directory(settings, config)
    # machine() must check permissions first, because opening the data directory makes it private
    diagnoses: list[Diagnosis] = list(diagnose_machine(settings))
    state, trouble = fetch_api_responses(settings)
    diagnoses += [
        *diagnose_shared_storage(settings),
        *diagnose_installation(settings, state, trouble),
        *diagnose_receivers(settings, state),
    ]
    problems = sum(diagnosis.status == PROBLEM for diagnosis in diagnoses)
    if as_json:
        show_json({"doctor": {"problems": problems, "found": [asdict(diagnosis) for diagnosis in diagnoses]}})
    else:
        for diagnosis in diagnoses:
            click.echo(
                f"{MARKS[diagnosis.status]:8} {diagnosis.about:24} {replace_unprintable(diagnosis.words)}"
            )
    if bundle is not None:
        try:
            write_bundle(bundle, settings, diagnoses, state)
        except OSError as error:
            exit_with_message(f"{bundle}: {error.strerror}")
        click.echo(f"wrote {bundle}", err=as_json)
    sys.exit(1 if problems else 0)


def diagnose_machine(config: Config) -> Iterator[Diagnosis]:
    """
    Inspect the machine: versions, data directory, flush times, clock, limits and permissions. No network is
    needed.
    """
    yield from _diagnose_versions(config)
    yield from _diagnose_data_dir(config)
    note = read_note(config.data_dir)
    if note is not None:
        problems = f", with {len(note.planted)} planted problems" if note.planted else ""
        yield Diagnosis(about="demo", status=NOTE, words=f"the data was made up by tollhouse demo{problems}")
    yield _diagnose_flush_times(config.data_dir)
    yield from _diagnose_clock()
    yield _diagnose_descriptors()
    yield from _diagnose_permissions(config)


def _diagnose_versions(config: Config) -> Iterator[Diagnosis]:
    engine = load_engine(config.storage.engine)
    message = (
        f"tollhouse {installed('tollhouse')}, python {platform.python_version()}, {engine.version()}, "
        f"{platform.system().lower()} {platform.release()} {platform.machine()}"
    )
    yield Diagnosis(about="versions", status=OK, words=message)
    for fault in engine.known_faults():
        yield Diagnosis(about="engine", status=NOTE, words=fault)
    native = load_if_enabled(config.server.native)
    message = (
        native.status_text
        if native.is_on
        else f"{native.status_text}; with it the same work takes less processor time"
    )
    yield Diagnosis(about="compiled module", status=OK if native.is_on else NOTE, words=message)


def _diagnose_data_dir(config: Config) -> Iterator[Diagnosis]:
    directory = config.data_dir
    exists = directory.exists()
    if not os.access(nearest_existing_path(directory), os.W_OK | os.X_OK):
        yield Diagnosis(
            about="data_dir", status=PROBLEM, words=f"{nearest_existing_path(directory)} is not writable"
        )
    else:
        yield Diagnosis(
            about="data_dir", status=OK, words=f"{directory}{'' if exists else ' (not created yet)'}"
        )
    mount = find_mount(directory)
    if mount is None:
        yield Diagnosis(
            about="mount",
            status=NOTE,
            words="the type of the file system cannot be determined on this system",
        )
    elif mount.read_only:
        yield Diagnosis(about="mount", status=PROBLEM, words=f"{mount.point} is mounted read-only")
    elif mount.warning:
        yield Diagnosis(about="mount", status=WARNING, words=mount.warning)
    else:
        yield Diagnosis(about="mount", status=OK, words=f"{mount.kind} on {mount.point}")
    yield _diagnose_free_space(config)


def _diagnose_free_space(config: Config) -> Diagnosis:
    usage = shutil.disk_usage(nearest_existing_path(config.data_dir))
    message = (
        f"{_format_size(usage.free)} are free, spool.max_bytes is {_format_size(config.spool.max_bytes)}"
    )
    if usage.free < LEAST_ROOM:
        return Diagnosis(about="room", status=PROBLEM, words=f"{message}: free some space")
    if usage.free < config.spool.max_bytes:
        return Diagnosis(
            about="room",
            status=WARNING,
            words=f"{message}: the disk will be full before the queue reaches its limit",
        )
    return Diagnosis(about="room", status=OK, words=message)


def _format_size(size: int) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size // MIB} MiB"


def _diagnose_flush_times(directory: Path) -> Diagnosis:
    """Measure how long flushes of a temporary file take, because every commit waits for a flush."""
    try:
        times = measure_flush_times(nearest_existing_path(directory))
    except OSError as error:
        return Diagnosis(
            about="flush", status=PROBLEM, words=f"the time of a flush cannot be measured: {error.strerror}"
        )
    worst = max(times)
    middle = statistics.median(times)
    message = f"a flush takes {middle * 1000:.1f} ms, the slowest of {len(times)} took {worst * 1000:.0f} ms"
    if worst >= HANGING_FLUSH_S:
        return Diagnosis(about="flush", status=PROBLEM, words=f"{message}: programs that send will time out")
    if middle >= SLOW_FLUSH_S:
        return Diagnosis(
            about="flush", status=WARNING, words=f"{message}: every acknowledgement waits for a flush"
        )
    return Diagnosis(about="flush", status=OK, words=message)


def measure_flush_times(directory: Path, flushes: int = FLUSHES) -> list[float]:
    """Time `flushes` page writes with fdatasync; return seconds."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(flushes):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(8192))
            os.fdatasync(file.fileno())
            times.append(time.perf_counter() - began)
    return times


def _diagnose_clock() -> Iterator[Diagnosis]:
    now = SystemClock().now()
    shown = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < EARLIEST:
        yield Diagnosis(about="clock", status=PROBLEM, words=f"{shown}: the clock was never set")
    elif not any(path.exists() for path in SYNCHRONISED):
        yield Diagnosis(
            about="clock", status=NOTE, words=f"{shown}; no time service was found that sets the clock"
        )
    else:
        yield Diagnosis(about="clock", status=OK, words=shown)


def _diagnose_descriptors() -> Diagnosis:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    message = f"{soft} files may be open at once (can be raised to {hard})"
    status = WARNING if 0 <= soft < LEAST_DESCRIPTORS else OK
    return Diagnosis(about="descriptors", status=status, words=message)


def _diagnose_permissions(config: Config) -> Iterator[Diagnosis]:
    open_to_others = [str(path) for path in _files_to_keep_private(config) if _file_mode(path) & 0o077]
    if open_to_others:
        shown = ", ".join(open_to_others[:5]) + (" and others" if len(open_to_others) > 5 else "")
        yield Diagnosis(
            about="modes", status=WARNING, words=f"other users can read {shown}; run chmod go= on them"
        )
    else:
        yield Diagnosis(about="modes", status=OK, words="only their owner can read data and secrets")
    foreign = [
        str(path) for path in _files_to_keep_private(config) if _file_owner(path) not in (None, os.geteuid())
    ]
    if foreign and os.geteuid() != 0:
        message = f"{foreign[0]} belongs to another user than the one who runs this command"
        yield Diagnosis(about="owner", status=WARNING, words=message)


def _files_to_keep_private(config: Config) -> Iterator[Path]:
    if config.data_dir.is_dir():
        yield config.data_dir
        # other users can enter the directory, so the modes of its files matter as well
        if _file_mode(config.data_dir) & 0o077:
            yield from config.data_dir.iterdir()
    yield from _paths_of_secret_files(config)


def _paths_of_secret_files(config: Config) -> Iterable[Path]:
    secret_files = [key.secret_file for key in config.upstream.keys]
    secret_files += [destination.secret_file for destination in config.destinations]
    secret_files += [source.signing_secret_file for source in config.sources.values()]
    secret_files += [config.server.api_key_file, config.server.tls_key_file, config.agent.enrolment_key_file]
    return [path for path in secret_files if path is not None]


def _file_mode(path: Path) -> int:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return 0


def _file_owner(path: Path) -> int | None:
    try:
        return path.stat().st_uid
    except OSError:
        return None


def diagnose_installation(config: Config, state: State, trouble: str) -> Iterator[Diagnosis]:
    """
    Inspect the configuration and the responses of the operator API. `trouble` is the reason why responses are
    missing, or "".
    """
    problems = list(configured_file_problems(config))
    for problem in problems:
        yield Diagnosis(about="configuration", status=PROBLEM, words=problem)
    if not problems:
        yield Diagnosis(
            about="configuration", status=OK, words="every file that the configuration names is readable"
        )
    if trouble:
        yield Diagnosis(about="storage", status=PROBLEM, words=trouble)
    if "/status" in state:
        yield from diagnose_spool(state["/status"])
        yield from _diagnose_lakes(state["/status"])
    if "/attention" in state:
        yield from _diagnose_attention_causes(
            state["/attention"]["attention"]["causes"], is_storage_writable=_is_writable(state)
        )
    if "/clock" in state and (step_s := state["/clock"]["clock"]["step_s"]):
        message = f"the clock jumped by {step_s:+,.0f} s and is not trusted (accept it: tollhouse spool accept-clock)"
        yield Diagnosis(about="server clock", status=PROBLEM, words=message)
    if "/verify" in state:
        yield _diagnose_accounting(state["/verify"])
    unconverted = state.get("/report", {}).get("report", {}).get("unconverted")
    if unconverted:
        amounts = ", ".join(f"{amount} {currency}" for currency, amount in unconverted.items())
        message = (
            f"no exchange rate for {amounts} of the last 30 days; set rates_file under [currency], or "
            "add [[currency.rate]]"
        )
        yield Diagnosis(about="currencies", status=WARNING, words=message)
    if "/keys" in state:
        yield from _diagnose_keys(state["/keys"]["keys"])
        not_open = state["/keys"].get("not_open")
        if not_open:
            yield Diagnosis(about="key file", status=WARNING, words=not_open)


def fetch_api_responses(config: Config) -> tuple[State, str]:
    """
    Query the operator API of the running server, or open the data directory. Return the responses by path,
    and why some are missing, or "".
    """
    try:
        engine = load_engine(config.storage.engine)
        if engine.administration is None and engine.is_new(config.data_dir):
            return {}, ""
    except OSError as error:
        return {}, f"{config.data_dir}: {error.strerror}"
    client = OperatorClient(config, "tollhouse doctor")
    state: State = {}
    for path, query in (
        ("/status", []),
        ("/clock", []),
        ("/verify", []),
        ("/keys", [("limit", "1000")]),
        ("/attention", []),
        ("/report", [("range", "last_30d"), ("show", "cost")]),
    ):
        try:
            status, payload = asyncio.run(client.send_request("GET", path, query=query))
        except ConfigError as error:
            return state, "; ".join(error.problems)
        except (SpoolError, OSError, aiohttp.ClientError) as error:
            return state, str(error)
        except SystemExit:
            return state, "Tollhouse is starting or stopping, or does not respond"
        if status >= 400:
            return state, str(payload["error"]["message"])
        state[path] = payload
    # without a running server, no device can report, so every laptop would look silent
    if not client.has_running_server():
        causes = state["/attention"]["attention"]["causes"]
        state["/attention"] = {
            "attention": {"causes": [each for each in causes if each["kind"] != "devices"]}
        }
    return state, ""


def diagnose_shared_storage(config: Config) -> Iterator[Diagnosis]:
    """Inspect the database that several nodes share. Yields nothing for a data directory."""
    administration = load_engine(config.storage.engine).administration
    if administration is None:
        return

    async def fetch_status_and_losses() -> tuple[Mapping[str, Any], Sequence[str]]:
        return await administration.status(config.storage), await administration.lost(
            config.storage, config.data_dir
        )

    try:
        status, lost = asyncio.run(fetch_status_and_losses())
    except SpoolError as error:
        yield Diagnosis(about="database", status=PROBLEM, words=str(error))
        return
    message = (
        status["problem"]
        or f"{status['server']}, {status['durability']}, responded in {status['answer_ms']} ms"
    )
    yield Diagnosis(about="database", status=PROBLEM if status["problem"] else OK, words=message)
    for loss in lost:
        yield Diagnosis(about="acknowledged", status=PROBLEM, words=loss)
    if config.storage.durability == LOCAL:
        message = 'storage.durability = "local": an acknowledged record is on the disk of only one machine'
        yield Diagnosis(about="database", status=WARNING, words=message)


def diagnose_receivers(config: Config, state: State) -> Iterator[Diagnosis]:
    """
    Test the cost service, the destinations, the channels and the OpenID provider, as `tollhouse check` does.
    """
    stopped = reasons_of_stopped_routes(state.get("/status", {}))
    streams, destinations = asyncio.run(try_receivers(config, stopped))
    if not streams:
        yield Diagnosis(
            about="cost service", status=NOTE, words="none: records are stored, priced and shown here"
        )
    for stream in streams:
        yield Diagnosis(
            about=f"cost service {stream.stream}",
            status=_stream_severity(stream),
            words=_describe_stream_check(stream),
        )
    for destination in destinations:
        message = f"{destination.to}: {destination.words or destination.status}"
        yield Diagnosis(
            about=f"destination {destination.name}",
            status=_TRIED.get(destination.status, NOTE),
            words=message,
        )
    for channel in asyncio.run(check_channels(config.notify, clock=SystemClock())):
        message = f"{channel.to or channel.type}: {channel.words or channel.status}"
        yield Diagnosis(
            about=f"channel {channel.name}", status=_TRIED.get(channel.status, NOTE), words=message
        )
    if config.oidc.issuer:
        problem = asyncio.run(oidc_provider_problem(config))
        message = problem or "the provider's addresses and keys were found"
        yield Diagnosis(
            about=f"sign-in {config.oidc.issuer}", status=PROBLEM if problem else OK, words=message
        )
    for message in asyncio.run(missing_for_mcp_clients(config)):
        yield Diagnosis(about=f"assistants {config.mcp.oauth.resource}", status=NOTE, words=message)


def _stream_severity(stream: StreamCheck) -> str:
    if stream.status == UNUSED or stream.key is None:
        return NOTE
    return _TRIED.get(stream.status, NOTE)


def _describe_stream_check(stream: StreamCheck) -> str:
    if stream.status == UNUSED:
        return f"not sent: {stream.words}"
    if stream.key is None:
        return f"no key has the use case {stream.scope}; records would wait here until a key has it"
    return f"{stream.words or stream.status}, with the key {stream.key} for {stream.scope}"


def diagnose_spool(status: Mapping[str, Any]) -> Iterator[Diagnosis]:
    space = status["space"]
    used = f"{space['entries']} entries, {space['bytes'] / space['max_bytes']:.1%} of spool.max_bytes"
    if space["writable"]:
        yield Diagnosis(about="storage", status=OK, words=used)
    else:
        message = (
            f"{used}: {space['last_error'] or 'records cannot be stored, because the queue on disk is full'}"
        )
        yield Diagnosis(about="storage", status=PROBLEM, words=message)
    if space["wal_problem"]:
        yield Diagnosis(
            about="checkpoints", status=WARNING, words=f"the write-ahead log {space['wal_problem']}"
        )
    stopped = reasons_of_stopped_routes(status)
    for route in status["routes"]:
        if reason := stopped.get(route["route"]):
            yield Diagnosis(about=f"route {route['route']}", status=PROBLEM, words=reason)
        if (route["oldest_age_s"] or 0) > LATE_S:
            words = (
                f"the oldest record waits for {route['oldest_age_s'] / DAY_S:.1f} days. A call that another program "
                "reported as well counts twice at a receiving Tollhouse after its spool.duplicate_window, by default "
                f"{WINDOW_S / DAY_S:.0f} days"
            )
            yield Diagnosis(about=f"route {route['route']}", status=WARNING, words=words)
        if count := route["refused_24h"]:
            message = f"the destination rejected {count} records in the last 24 hours and accepted others"
            reason = f": {route['refusal']}" if route["refusal"] else ""
            yield Diagnosis(
                about=f"route {route['route']}",
                status=PROBLEM,
                words=f"{message}{reason} (tollhouse spool refused)",
            )


def _is_writable(state: State) -> bool:
    return "/status" not in state or bool(state["/status"]["space"]["writable"])


def _diagnose_attention_causes(
    causes: Sequence[Mapping[str, Any]], *, is_storage_writable: bool
) -> Iterator[Diagnosis]:
    for cause in causes:
        if cause["kind"] == "route" or (cause["kind"] == "space" and not is_storage_writable):
            continue
        status = PROBLEM if cause["severity"] == CRITICAL else WARNING
        title, text = cause["title"], cause["text"]
        words = text if text.startswith(title) else ": ".join(filter(None, (title, text)))
        yield Diagnosis(about="attention", status=status, words=words)


def _diagnose_lakes(status: Mapping[str, Any]) -> Iterator[Diagnosis]:
    for lake in status["lakes"]:
        about = f"lake {lake['route']}"
        landed = (
            f"the newest delivery landed at {lake['landed_at']}"
            if lake["landed_at"]
            else "nothing has landed yet"
        )
        verified = lake["verified"]
        if verified is None:
            yield Diagnosis(
                about=about,
                status=NOTE,
                words=f"{landed}; it has not been verified yet (tollhouse lake verify)",
            )
        elif verified["differences"]:
            kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(verified["differences"].items()))
            message = (
                f"{landed}; verified at {verified['at']}, with differences: {kinds} (tollhouse lake "
                "verify lists them)"
            )
            yield Diagnosis(about=about, status=PROBLEM, words=message)
        else:
            files = verified["files"]
            verified_text = (
                f"its {files} files matched their manifests" if files else "it matched the accounting"
            )
            message = f"{landed}; at {verified['at']} {verified_text}"
            yield Diagnosis(about=about, status=OK, words=message)


def _diagnose_accounting(accounting_state: Mapping[str, Any]) -> Diagnosis:
    if accounting_state["balanced"]:
        return Diagnosis(about="books", status=OK, words="recounted and balanced")
    return Diagnosis(about="books", status=PROBLEM, words="; ".join(accounting_state["imbalances"][:3]))


def _diagnose_keys(keys: Sequence[Mapping[str, Any]]) -> Iterator[Diagnosis]:
    enabled = [key for key in keys if key["state"] == ENABLED]
    wide = [key["name"] for key in enabled if key["scope_count"] > 1]
    if not enabled:
        yield Diagnosis(about="keys", status=NOTE, words="no key is enabled, so nobody can send")
    elif wide:
        message = f"of {len(enabled)} keys, these have more than one scope: {', '.join(sorted(wide)[:10])}"
        yield Diagnosis(about="keys", status=NOTE, words=message)
    else:
        yield Diagnosis(about="keys", status=OK, words=f"{len(enabled)} enabled, each with one scope")


def write_bundle(
    path: Path, config: Config, diagnoses: Sequence[Diagnosis], state: Mapping[str, object]
) -> None:
    """
    Write the findings, the configuration and the state into a tar.gz that only its owner can read.

    Nothing that could hold a secret is written. Free text of the configuration is left out, addresses show
    only scheme and host, and files of the data directory appear only with name and size. Never replaces an
    existing file. Raises OSError.
    """
    parts = {
        "diagnosis.json": [asdict(diagnosis) for diagnosis in diagnoses],
        "configuration.json": describe_settings(config),
        "files.json": _list_files(config.data_dir),
        "status.json": state.get("/status"),
        "books.json": state.get("/verify"),
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, content in parts.items():
            text = orjson.dumps(content, option=orjson.OPT_INDENT_2, default=str)
            member = tarfile.TarInfo(f"tollhouse-doctor/{name}")
            member.size, member.mode = len(text), 0o600
            archive.addfile(member, io.BytesIO(text))


def describe_settings(settings: object, name: str = "") -> object:
    """
    Convert a configuration section to plain values for a bug report. Values that may be secret are left out.
    """
    if is_dataclass(settings):
        return {
            attribute.name: describe_settings(getattr(settings, attribute.name), attribute.name)
            for attribute in fields(settings)
        }
    if isinstance(settings, Mapping):
        return {"entries": len(settings)} if name != "sources" else _describe_sources(settings)
    if isinstance(settings, tuple | list):
        return [describe_settings(item, name) for item in settings]
    if settings is None or isinstance(settings, bool | int | float | Decimal):
        return settings
    if isinstance(settings, Path):
        return "(a path)"
    return _redact_setting(str(settings), name)


def _describe_sources(sources: Mapping[str, object]) -> dict[str, object]:
    return {source: describe_settings(settings) for source, settings in sources.items()}


def _redact_setting(text: str, name: str) -> str:
    if not text or name in _SHOWN:
        return text
    if name in _ADDRESSES:
        parts = urlsplit(text)
        return f"{parts.scheme}://{parts.hostname or ''}"
    return LEFT_OUT


def _list_files(directory: Path) -> dict[str, Any]:
    if not directory.is_dir():
        return {}
    return {
        path.name: {"bytes": status.st_size, "mode": f"{status.st_mode & 0o7777:o}"}
        for path in sorted(directory.iterdir())
        if (status := path.lstat())
    }

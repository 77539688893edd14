"""The process of `tollhouse agent`: its server, and its connection to the gateway."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from exporters.secret_source import SecretSource
from exporters.settings import UpstreamKey
from gateway.cli import exit_with_message
from gateway.cli.agent_settings import flags_with_data_directory, load_agent_config
from gateway.cli.serve import describe_stop, run_app_until_stopped
from gateway.configuration.local_operator import system_user
from gateway.configuration.reader import load_config
from gateway.configuration.sections import Config
from gateway.configuration.values import ConfigError, is_loopback, split_address
from gateway.devices.agent.activity import ActivityRecorder
from gateway.devices.agent.connection_user import with_user_of_connection
from gateway.devices.agent.hook import HookArguments, reason_to_refuse_hook_call
from gateway.devices.agent.identity import (
    KEY_FILE,
    DeviceIdentity,
    load_or_create_identity,
    write_private_file,
)
from gateway.devices.agent.link import (
    BACKLOG,
    BACKLOG_S,
    DAEMON,
    USER,
    HeartbeatNumbers,
    LinkFile,
    ProbedAssistantStates,
    resident_memory,
    service_manager_kind,
)
from gateway.devices.own_verdicts import NewestBudgetVerdicts
from gateway.monitoring import logs
from gateway.people.authentication.bearer import AuthenticatedKey
from spool.clock import SteadyClock, SystemClock
from spool.errors import SpoolError
from spool.log.protocols import RecordLog
from spool.record import AI_TELEMETRY, Inference, utc_iso
from spool.registry.enrolment_tokens import PREFIX as TOKEN_PREFIX
from spool.registry.scopes import INGEST, SEND_AI_TELEMETRY

NOBODY = 65534  # id of a user that the reader cannot see, and of no person
DYNAMIC_USERS = range(61184, 65520)  # range of user ids that systemd assigns to services
FIRST_ANSWER_S = 10.0
MOST_READ_AGAIN = 20_000  # records of the log whose calls are recorded after a start
FIRST_LOOK_S = 10.0  # seconds that a first enrolment waits for the probe

# imported late, so that a wrong configuration is reported without loading the server
if TYPE_CHECKING:
    from gateway.operations.services import AllServices
    from gateway.service.app import TollhouseApp

_log = logging.getLogger(__name__)


def run_agent(file: Path | None, data: Path | None, flags: Mapping[str, Any], *, stdin_stops: bool) -> int:
    settings = load_agent_config(file, data, flags)
    problems = list(_config_problems(settings))
    if problems:
        exit_with_message("; ".join(problems), 2)

    def reload_config() -> Config:
        reread_config = load_config(file, flags=flags_with_data_directory(file, data, flags))
        problems = list(_config_problems(reread_config))
        if problems:
            raise ConfigError(problems)
        return config_with_gateway_as_upstream(reread_config)

    logs.start_logging(settings.log.level, lines_per_minute=settings.log.lines_per_minute)
    try:
        return asyncio.run(_run_app_with_gateway_link(settings, reload_config, stdin_stops=stdin_stops))
    except ConfigError as error:
        exit_with_message("; ".join(error.problems), code=2)
    except (SpoolError, OSError) as error:
        exit_with_message(describe_stop(error))


def _config_problems(config: Config) -> Iterator[str]:
    if not config.agent.gateway:
        yield "agent.gateway is required: --gateway URL, or gateway under [agent] in the configuration file"
    token_file, key_env = config.agent.enrolment_token_file, config.agent.enrolment_key_env
    if os.name == "posix" and token_file and token_file.exists() and token_file.stat().st_mode & 0o077:
        yield f"only its owner may read agent.enrolment_token_file: chmod 600 {token_file}"
    if key_env and os.environ.get(key_env, "").startswith(TOKEN_PREFIX):
        yield "an enrolment token is read only from a file: use agent.enrolment_token_file"
    if config.server.grpc_listen and find_spec("grpc") is None:
        yield 'this build of the agent has no gRPC: set server.grpc_listen = ""'
    for name in ("listen", "grpc_listen"):
        address = getattr(config.server, name)
        if address and not is_loopback(split_address(address)[0]):
            yield (
                f"server.{name} must be a loopback address, because an agent accepts telemetry without a key"
            )


async def _run_app_with_gateway_link(
    config: Config, reread: Callable[[], Config], *, stdin_stops: bool = False
) -> int:
    from gateway.service.app import TollhouseApp

    clock = SteadyClock(step_s=config.spool.clock_step, hold_s=config.spool.clock_hold)
    directory = config.data_dir
    own_identity = load_or_create_identity(directory, device_id=config.agent.device_id)
    recorder = ActivityRecorder(directory, now=time.time)
    local = AuthenticatedKey(
        "this machine",
        frozenset({INGEST}),
        labels=config.agent.labels,
        device=own_identity.device_id,
        is_local=True,
    )
    forwarded = config_with_gateway_as_upstream(config)
    app = TollhouseApp(
        forwarded,
        version=version("tollhouse"),
        clock=clock,
        local=local,
        observer=recorder,
        reread=reread,
        prepare=_read_empty_requests,
    )
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(recorder.stop)

        async def announce_and_connect() -> None:
            click.echo(f"listening on {app.url}")
            if app.grpc_address:
                click.echo(f"listening on grpc://{app.grpc_address}")
            click.echo(f"device {own_identity.device_id}, forwarding to {config.agent.gateway}")
            await stack.enter_async_context(_keep_gateway_link(forwarded, own_identity, recorder, app))

        return await run_app_until_stopped(app, announce_and_connect, stdin_stops=stdin_stops)


async def _read_empty_requests(services: AllServices) -> None:
    """
    Read an empty request of each signal and encoding. The first one imports modules, for which a program that ends may
    not wait.
    """
    from gateway.operations.receivers import otlp_http

    with services.receivers.inflight.new_share() as share:
        for signal in otlp_http.MEMBERS:
            for body, is_json in ((b"", False), (b"{}", True)):
                await otlp_http.read_export(
                    signal, body, json=is_json, receivers=services.receivers, reservation=share
                )


def config_with_gateway_as_upstream(config: Config) -> Config:
    """Return the configuration with the gateway as its upstream, under the device's own key."""
    key = UpstreamKey(name="device", secret_file=config.data_dir / KEY_FILE, use_cases=(SEND_AI_TELEMETRY,))
    return replace(config, upstream=replace(config.upstream, base_url=config.agent.gateway, keys=(key,)))


@asynccontextmanager
async def _keep_gateway_link(
    config: Config, device_identity: DeviceIdentity, recorder: ActivityRecorder, app: TollhouseApp
) -> AsyncIterator[None]:
    """Send heartbeats to the gateway, with the states of the assistants, while the block runs."""
    from exporters.device_reporter import DeviceReporter
    from exporters.service.paths import UpstreamPaths
    from exporters.service.upstream_client import build_client

    upstream, directory = config.upstream, config.data_dir
    key_file = directory / KEY_FILE
    numbers, link_file, is_full = HeartbeatNumbers(directory), LinkFile(directory), False
    probed, counters = ProbedAssistantStates(directory), app.services.single.exposition.metrics
    started_at, facts = utc_iso(int(time.time())), _device_facts(config, device_identity)
    verdicts = NewestBudgetVerdicts(time.time)

    async def queue_depth_and_age() -> tuple[int, float]:
        routes = await app.services.storage.deliveries.route_states()
        ages = [route.oldest_age_s for route in routes if route.oldest_age_s is not None]
        return sum(route.queued for route in routes), max(ages, default=0.0)

    def refused_since() -> float | None:
        return counters.full_since if is_full else None

    async def number_and_build_heartbeat() -> Mapping[str, object]:
        await store_link_state()  # a call may have been stored since the last look at the disk
        records, age_s = await queue_depth_and_age()
        return {
            "sent_at": utc_iso(time.time()),
            "spool": {
                "records": records,
                "oldest_age_s": age_s,
                "full": is_full,
                "refused_since": utc_iso(refused_since()),
            },
            "sources": recorder.activity_by_source(),
            "agent": {"service": service_manager_kind(), "started_at": started_at, **resident_memory()},
            "key_storage": "file",
            **_number_next_heartbeat(numbers),
        }

    async def store_link_state() -> None:
        nonlocal is_full
        is_full = not (await app.services.storage.log.stats()).writable
        _, age_s = await queue_depth_and_age()
        # rounded, so that the file of a stopped route is not rewritten at each check
        oldest_at = (time.time() - age_s) // BACKLOG_S * BACKLOG_S if age_s > BACKLOG_S else None
        link_file.write_if_changed(
            url=app.url, oldest_at=oldest_at, forward=link.problem or (BACKLOG if oldest_at else "")
        )

    link = DeviceReporter(
        build_client(upstream, clock=SystemClock()),
        UpstreamPaths(upstream),
        facts=lambda: {**facts, **probed.probed_fields()},
        report=number_and_build_heartbeat,
        version=lambda: (
            probed.states_to_compare(),
            sorted(recorder.activity_by_source()),
            is_full,
            refused_since() is None,
        ),
        enrolment_key=_enrolment_secret(config),
        key_file=key_file,
        keep_key=lambda key: write_private_file(key_file, key + "\n"),
        keep_word=lambda word: _store_heartbeat_token(numbers, word),
        keep_verdicts=verdicts.replace_with_json_text,
        accepted=lambda: _delete_enrolment_token_file(config),
        requested=store_link_state,
    )

    async def connect_and_run_link() -> None:
        # the first answer imports modules, which takes longer than a hook waits
        await asyncio.to_thread(
            reason_to_refuse_hook_call, HookArguments(app.url, "0"), b'{"session_id": "none"}', FIRST_ANSWER_S
        )
        await store_link_state()
        if service_manager_kind() == DAEMON and not key_file.exists():
            # the enrolment states the hardware id, which only the probe can read
            await probed.wait_for_probed_fields(FIRST_LOOK_S)
        await link.run()

    await _note_calls_and_their_users(app, recorder, config)
    app.services.single.devices.budget_refusal = verdicts.reason_to_refuse_calls
    task = asyncio.create_task(connect_and_run_link(), name="gateway connection")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await link.close()


async def _note_calls_and_their_users(app: TollhouseApp, recorder: ActivityRecorder, config: Config) -> None:
    """Let the recorder have every call, also those since its file was written, and calls the logins of their users."""
    devices, log = app.services.single.devices, app.services.storage.log
    recorder.next_number = lambda: log.next_number(AI_TELEMETRY)
    devices.called = recorder.record_calls
    app.services.receivers.access.with_user_of_connection = with_user_of_connection
    if USER in config.agent.report:
        devices.login_of = login_of_person
    await record_calls_since_stop(recorder, log)


async def record_calls_since_stop(recorder: ActivityRecorder, log: RecordLog) -> None:
    """Record the calls of the log that are newer than the recorder's file, because the agent may have been killed."""
    from gateway.devices.assignment import received_call

    next_number = log.next_number(AI_TELEMETRY)
    first = max(recorder.heard.number, next_number - MOST_READ_AGAIN, 1)
    entries = await log.read(AI_TELEMETRY, first, next_number - 1, includes_open_records=True)
    records = (record for entry in entries for record in entry.records if isinstance(record, Inference))
    recorder.record_calls([call for record in records if (call := received_call(record, time.time()))])


def _number_next_heartbeat(numbers: HeartbeatNumbers) -> Mapping[str, object]:
    """
    Return the number of the next heartbeat, and the rotating word from the gateway's last response, by which
    copied disks are noticed. On a full disk, return neither, because the number must be stored before it is
    sent.
    """
    try:
        return numbers.number_next_heartbeat()
    except OSError as error:
        _log.warning(
            "a heartbeat is sent without a number, because the next number cannot be stored: %s",
            error,
            extra={"action": "heartbeat_not_numbered"},
        )
        return {}


def _store_heartbeat_token(numbers: HeartbeatNumbers, heartbeat_token: str) -> None:
    try:
        numbers.store_heartbeat_token(heartbeat_token)
    except OSError as error:  # if the new word of a heartbeat cannot be stored, the previous word stays valid
        _log.warning(
            "the word that a gateway returned for a heartbeat cannot be stored: %s",
            error,
            extra={"action": "word_not_stored"},
        )


def _device_facts(config: Config, device_identity: DeviceIdentity) -> dict[str, object]:
    facts: dict[str, object] = {
        "device_id": device_identity.device_id,
        "hostname": socket.gethostname(),
        "platform": f"{platform.system().lower()}/{platform.machine()}",
        "agent_version": version("tollhouse"),
        "user": (config.agent.user or process_user_unless_service()) if USER in config.agent.report else "",
        "fingerprint": device_identity.fingerprint,
        "labels": dict(config.agent.labels),
    }
    return {name: value for name, value in facts.items() if value}


def process_user_unless_service() -> str | None:
    if service_manager_kind() == DAEMON:
        return None
    if sys.platform != "win32" and hasattr(os, "getuid") and _is_service_account(os.getuid()):
        return None
    return system_user()


@lru_cache
def login_of_person(uid: int) -> str:
    """Return the login of a user, or "" for root, a service and an unknown id."""
    if sys.platform == "win32" or uid == 0 or uid >= NOBODY or _is_service_account(uid):
        return ""
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return ""


def _is_service_account(uid: int) -> bool:
    first = 500 if sys.platform == "darwin" else 1000
    return 0 < uid < first or uid in DYNAMIC_USERS


def _enrolment_secret(config: Config) -> SecretSource | None:
    agent = config.agent
    if agent.enrolment_token_file:
        return SecretSource("the enrolment token", file=agent.enrolment_token_file)
    if not (agent.enrolment_key_file or agent.enrolment_key_env):
        return None
    return SecretSource("the enrolment key", file=agent.enrolment_key_file, env=agent.enrolment_key_env)


def _delete_enrolment_token_file(config: Config) -> None:
    token_file = config.agent.enrolment_token_file
    if token_file is None or not token_file.exists():
        return
    try:
        token_file.unlink()
    except OSError as error:
        extra = {"action": "token_not_deleted"}
        _log.warning("the file of the enrolment token cannot be deleted: %s", error, extra=extra)

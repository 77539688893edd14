"""
Restarts under load: with sockets that a service manager holds, and with a process that takes over from another.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest

from spool.sqlite.migrations import application_id
from spool.transfer.backups import back_up
from tests.acceptance.conftest import COMMAND, Tollhouse
from tests.acceptance.lifecycle.load import Tally, load
from tests.acceptance.payloads import post, request, span
from tests.bench.load.payloads import RUN, protobuf_spans
from tests.rounds import IS_LONG, part, some
from tests.waiting import wait_until

Installations = Callable[..., Tollhouse]
SCOPES = (
    "ai-telemetry-ingest:ingest-ai-telemetry",
    "events_v1:create_event",
    "unit-cost_v1:manage_telemetry_records",
)
SUM = "/unit-cost/v1/telemetry/allocation/api-calls/sum"
CONNECTIONS = 6 if IS_LONG else 2
EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Activated(Tollhouse):
    """
    An installation whose listening socket the test opens, like a service manager, and keeps open over restarts.
    """

    def __init__(self, directory: Path, config: str) -> None:
        super().__init__(directory, config)
        self.listening = socket.create_server(("127.0.0.1", 0))

    def begin(self) -> str:
        number = self.listening.fileno()
        os.set_inheritable(number, True)
        script = (
            f'exec 3<&{number}; export LISTEN_FDS=1 LISTEN_PID=$$ LISTEN_FDNAMES=tollhouse.socket; exec "$@"'
        )
        return self.start(command=["bash", "-c", script, "bash", str(COMMAND)], close_fds=False)


@pytest.fixture
def activated(installations: Installations) -> Iterator[Activated]:
    one = installations(kind=Activated)
    assert isinstance(one, Activated)
    yield one
    one.stop(signal.SIGKILL, code=None)
    one.listening.close()


def served(tally: Tally) -> None:
    """Wait until the running process has served for a while."""
    before = tally.acknowledged
    wait_until(lambda: tally.acknowledged > before + 50, "fifty more requests")


def check(one: Tollhouse, sent: int) -> None:
    """Check that every acknowledged record is stored once."""
    one.wait_until_drained()
    assert sent == len(one.records()) == len({record["id"] for record in one.records()})
    assert one.json("spool", "verify")["balanced"]


@pytest.mark.proof
def test_a_restart_with_a_socket_of_the_service_manager(activated: Activated) -> None:
    """
    During two restarts under load no connection is refused, no request fails, and nothing is lost or counted twice.
    """
    one = activated
    key = one.key("load")
    url = one.begin()
    assert f"http://127.0.0.1:{one.listening.getsockname()[1]}" == url
    with load(url, key, connections=CONNECTIONS) as tally:
        for _ in range(2):
            served(tally)
            one.stop()
            assert url == one.begin()
        served(tally)
    assert {} == dict(tally.failed)
    check(one, tally.records)


def test_takeover_under_load_fails_no_request(installations: Installations) -> None:
    """
    Takeovers under load, over HTTP and the operator's listener: the addresses stay, and no request fails.
    """
    one = installations(server='operator_listen = "127.0.0.1:0"')
    key = one.key("load")
    url = one.start()
    with load(url, key, connections=CONNECTIONS) as tally:
        for _ in some(range(3), every=3):
            served(tally)
            one.take_over()
            assert url == one.url
        served(tally)
    assert {} == dict(tally.failed)
    check(one, tally.records)


def stop_and_start(one: Tollhouse) -> None:
    one.stop()
    one.start()


def kill_and_start(one: Tollhouse) -> None:
    one.kill()
    one.start()


ENDS: dict[str, Callable[[Tollhouse], None]] = {
    "stopped": stop_and_start, "taken over": Tollhouse.take_over, "killed": kill_and_start,
}  # fmt: skip


@pytest.mark.proves("known ids after a stop")
@pytest.mark.parametrize("end", part(list(ENDS), every=3))
def test_a_restart_knows_what_was_counted(installations: Installations, end: str) -> None:
    """
    However the server ended, repeated events, calls and sums change neither the accounting, nor the totals,
    nor the deliveries. Another body under the same idempotency key is refused.
    """
    one = installations()
    key = one.key("load", *(f"--scope={scope}" for scope in SCOPES))
    one.start()
    calls = request([span(f"chatcmpl-{number:032d}") for number in range(100)])
    sum = {"timestamp": "2026-01-01", "granularity": "DAILY", "element_name": "acme", "value": 2}

    def send(body: object, path: str, idempotency_key: str) -> int:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return post(one.url, data, key, path, **{"Idempotency-Key": idempotency_key}).status

    def send_all() -> None:
        event = {"id": "1", "type": "page", "source": "app", "specversion": "1.0"}
        assert [200] * 3 == [
            send(event, "/v1/events", "event"), send(calls, "/v1/traces", ""), send({"records": [sum]}, SUM, "sum"),
        ]  # fmt: skip

    def accepted() -> dict[str, int]:
        topics = one.json("spool", "verify")["topics"]
        return {topic: terms["accepted"] for topic, terms in topics.items() if "accepted" in terms}

    for _ in range(2):
        send_all()
        one.wait_until_drained()
        ENDS[end](one)
        send_all()
        assert 422 == send({"records": [{**sum, "value": 3}]}, SUM, "sum")
        assert {"ai-telemetry": 100, "usage-events": 1, "unit-cost": 1} == accepted()
        check(one, 100)


INTERRUPTED = "interrupted"
REPEATED = {"CANCELLED", "UNAVAILABLE"}  # statuses after which the OTLP specification lets exporters retry


def test_grpc_call_between_two_processes_waits_for_the_new_one(installations: Installations) -> None:
    """
    With server.reuse_port, a call that arrives between two processes waits for the process that takes over.

    gRPC cancels a call that arrives at the moment of a stop. Its sender repeats it, and it counts once. A
    connection that nobody has accepted yet ends with its socket. Until the client reconnects, all its calls
    fail at once, so the test counts how often a series of failures starts.
    """
    one = installations()
    text = one.config.read_text().replace(
        'grpc_listen = ""', 'grpc_listen = "127.0.0.1:0"\nreuse_port = true'
    )
    one.config.write_text(text)
    key = one.key("load")
    one.start()
    with calls(one.grpc_url(), key) as answers:
        for _ in range(3):
            before = answers["OK"]
            wait_until(lambda: answers["OK"] > before + 10, "ten calls")  # noqa: B023 - waited for at once
            one.take_over()
    assert set() == set(answers) - REPEATED - {"OK", INTERRUPTED}
    assert answers[INTERRUPTED] <= 3 * 2, "a call and a connection for each stop at most"
    check(one, answers["OK"])


@contextmanager
def calls(target: str, key: str) -> Iterator[Counter[str]]:
    """
    Export one span after another while the block runs; count the results.

    INTERRUPTED counts failures that follow a success.
    """
    answers: Counter[str] = Counter()
    end = threading.Event()
    template = protobuf_spans(1)

    def send() -> None:
        is_interrupted = False
        with grpc.insecure_channel(target) as channel:  # type: ignore[no-untyped-call]
            export = channel.unary_unary(EXPORT)
            while not end.is_set():
                # the number of accepted requests does not change until the call is accepted
                number = answers["OK"]
                try:
                    export(
                        template.replace(RUN, b"%08d" % number),
                        metadata=(("authorization", key),),
                        timeout=60,
                    )
                    answers["OK"] += 1
                    is_interrupted = False
                except grpc.RpcError as error:
                    answers[error.code().name] += 1  # type: ignore[attr-defined]
                    answers[INTERRUPTED] += not is_interrupted
                    is_interrupted = True

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield answers
    finally:
        end.set()
        thread.join()


def test_take_over_without_a_running_server_starts_normally(installations: Installations) -> None:
    """
    `--take-over` can stay in a start script. Without a running server the process starts normally, even after a
    kill.
    """
    one = installations()
    one.start(more=["--take-over"])
    one.kill()
    one.start(more=["--take-over"])
    one.stop()


def test_running_server_continues_if_the_takeover_configuration_is_invalid(
    installations: Installations,
) -> None:
    """
    If the configuration of a process that takes over is invalid, it ends before it tells the running server to
    stop.
    """
    one = installations()
    key = one.key("load")
    url = one.start()
    good = one.config.read_text()
    one.config.write_text(
        good.replace("[spool]", 'tls_cert_file = "no.pem"\ntls_key_file = "no.pem"\n[spool]')
    )
    done = one.attempt("serve", "--take-over")
    assert done.returncode == 1
    assert "no.pem" in done.stderr
    one.config.write_text(good + '[prices]\nfile = "no-card.json"\n')
    done = one.attempt("serve", "--take-over")
    assert done.returncode == 2
    assert "no-card.json" in done.stderr
    one.config.write_text(good)
    with load(url, key, connections=1) as tally:
        one.take_over()
    assert dict(tally.failed) == {}
    assert one.url == url


@pytest.mark.parametrize(
    ("environment", "told"),
    part(
        [
            ("LISTEN_FDS=1", "ListenStream"),
            ("LISTEN_FDS=2", "FileDescriptorName=http"),
            ("LISTEN_FDS=2 LISTEN_FDNAMES=http:grpc", "FileDescriptorName=http"),
        ],
        every=3,
    ),
)
def test_sockets_that_cannot_be_used_are_named(tmp_path: Path, environment: str, told: str) -> None:
    """
    If the sockets of the service manager cannot be used, the exit code is 2. The message has the line to
    write into the unit.
    """
    with socket.socket() as unconnected:
        number = unconnected.fileno()
        script = f'exec 3<&{number} 4<&{number}; export LISTEN_PID=$$ {environment}; exec "$@"'
        done = subprocess.run(
            ["bash", "-c", script, "bash", str(COMMAND), "serve", "--listen", "127.0.0.1:0"],
            pass_fds=[number], cwd=tmp_path, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert told in done.stderr, done.stderr


def set_version(file: Path, number: int) -> None:
    with closing(sqlite3.connect(file)) as connection:
        numbered = f"PRAGMA user_version = {number}; PRAGMA application_id = {application_id(number)}"
        connection.executescript(f"BEGIN; {numbered}; COMMIT")


# Commands that open the data directory, and so must refuse one of another build.
OPENING = (
    ("serve",),
    ("serve", "--take-over"),
    ("spool", "verify"),
    ("spool", "recover"),
    ("spool", "recover", "spool.sqlite.saved"),
    ("storage", "export", "archive"),
    ("backup", "backup"),
    ("keys", "list"),
    ("report",),
    ("devices", "list"),
)


@pytest.mark.parametrize(
    ("number", "message"),
    part([(99 << 24, "version 99"), (1, "another build")], every=2),
    ids=["newer", "earlier build"],
)
def test_another_build_finds_its_data_as_it_left_them(
    installations: Installations, number: int, message: str
) -> None:
    """A build with other tables exits with 2 and a clear sentence, and does not change a byte of the directory."""
    one = installations()
    one.start()
    one.stop()
    shutil.copy(one.data / "spool.sqlite", one.directory / "spool.sqlite.saved")
    set_version(one.data / "spool.sqlite", number)

    def contents() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in one.data.rglob("*") if path.is_file()}

    before = contents()
    for words in OPENING:
        done = one.attempt(*words)
        assert 2 == done.returncode, (words, done.stderr)
        assert message in done.stderr, (words, done.stderr)
        assert before == contents(), words
    assert not (one.directory / "backup").exists()
    assert not (one.directory / "archive").exists()


async def test_a_backup_of_another_build_is_not_restored(installations: Installations) -> None:
    one = installations()
    other = Tollhouse(one.directory.with_name("other"), one.config.read_text())
    one.key("sender")
    set_version(one.data / "ledger.sqlite", 1)
    backup = one.directory / "backup"

    async def copy(into: Path) -> None:
        shutil.copytree(one.data, into, dirs_exist_ok=True)

    await back_up(copy, backup, version="1.0", made_at="2026-11-28T00:00:00Z", records={})
    done = other.attempt("restore", str(backup), "--no-erasures")
    assert 2 == done.returncode, done.stderr
    assert "another build" in done.stderr
    assert not [*other.data.iterdir()]


def test_an_older_release_does_not_stop_the_server_that_it_cannot_follow(
    installations: Installations,
) -> None:
    """If a newer release runs on the directory, the older one is refused before it requests a takeover."""
    one = installations()
    one.start()
    set_version(one.data / "spool.sqlite", 99 << 24)  # the first server still uses this data directory
    done = one.attempt("serve", "--take-over")
    assert done.returncode == 2
    assert "version 99" in done.stderr
    assert one.json("spool", "verify")["balanced"]
    assert [] == [line for line in one.log if '"action":"handed_over"' in line]

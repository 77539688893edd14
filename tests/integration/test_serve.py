"""`tollhouse serve` as a process: its output, its exit, and its messages if it cannot start."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
import pytest_asyncio
from click.testing import CliRunner

from gateway.cli import main
from gateway.cli.operator import client
from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.http.listening import listener
from gateway.service import app as apps
from gateway.service import listeners
from gateway.service.app import TollhouseApp
from gateway.service.assembly import background
from spool.clock import SystemClock
from spool.log.values import Receipt, Submission
from spool.settings import SpoolSettings
from spool.sqlite.spool import open_spool
from tests.gateway.http import raw
from tests.integration.payloads import JSON, traces
from tests.processes import copied as copies
from tests.processes.copied import COMMAND, copying_command, start_process
from tests.waiting import LIMIT_S, limited

ROOT = str(Path(apps.__file__).parents[2])
Run = Callable[..., Awaitable[Process]]
Copied = Callable[..., tuple[copies.Process, Callable[[str], Awaitable[str]]]]


@pytest_asyncio.fixture
async def run(tmp_path: Path) -> AsyncIterator[Run]:
    """
    Yield a function that starts the command in its own directory. Every process ends with the test.

    The process is a fork, which starts fast, unless its `descriptors` are limited.
    """
    made: list[Process] = []

    async def start(*words: str, descriptors: int | None = None) -> Process:
        def limit_descriptors() -> None:
            if descriptors is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        if descriptors is not None:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "gateway", "serve", *words,
                stdout=PIPE, stderr=PIPE, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT},
                preexec_fn=limit_descriptors,
            )  # fmt: skip
        else:
            program, number = copying_command()
            process = await asyncio.create_subprocess_exec(
                program, "serve", *words, stdout=PIPE, stderr=PIPE, cwd=tmp_path, pass_fds=[number]
            )
        made.append(process)
        return process

    yield start
    for process in made:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.fixture
def copied(tmp_path: Path) -> Iterator[Copied]:
    """
    Yield a function that starts the command as a copy that gets signals itself, without a program between that passes
    them on one by one. It returns the process, and a function that reads a line of its output.
    """
    made: list[copies.Process] = []

    def start(*words: str) -> tuple[copies.Process, Callable[[str], Awaitable[str]]]:
        process = start_process([str(COMMAND), "serve", *words], cwd=tmp_path, is_read=True)
        made.append(process)

        async def read(name: str) -> str:
            stream = process.stdout if name == "stdout" else process.stderr
            assert stream is not None
            async with limited():
                return (await asyncio.to_thread(stream.readline)).rstrip("\n")

        return process, read

    yield start
    for process in made:
        process.kill()
        process.wait(LIMIT_S)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


async def line(process: Process) -> str:
    assert process.stdout is not None
    async with limited():
        return (await process.stdout.readline()).decode().rstrip("\n")


async def ended(process: Process) -> tuple[int, str, str]:
    async with limited():
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


def port_of(line: str) -> int:
    return int(line.rpartition(":")[2])


async def test_it_prints_where_it_listens_and_a_first_key(run: Run) -> None:
    """
    The command prints a line for HTTP, one for gRPC, then the key once. SIGTERM ends it with 0. The logs are
    JSON on stderr.
    """
    process = await run("--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0")
    assert re.fullmatch(r"listening on http://127\.0\.0\.1:[1-9]\d*", await line(process))
    assert re.fullmatch(r"listening on grpc://127\.0\.0\.1:[1-9]\d*", await line(process))
    process.send_signal(signal.SIGTERM)
    code, out, err = await ended(process)
    assert code == 0
    assert out.count("listening on") == 0
    assert len(set(re.findall(r"th_[\w-]{43}", out))) == 1
    assert re.search(
        r"TOLLHOUSE_KEY=th_[\w-]{43} \S*tollhouse send --example litellm --to http://127.0.0.1:", out
    )
    assert ["stopping", "stopped"] == [json.loads(text)["action"] for text in err.splitlines()][-2:]
    again = await run("--listen", "127.0.0.1:0", "--grpc-listen", "")
    first = await line(again)
    again.send_signal(signal.SIGINT)
    assert (0, "") == (await ended(again))[:2]
    assert first.startswith("listening on http://")


async def test_it_prints_a_link_that_opens_the_console(run: Run) -> None:
    """
    At its first start `tollhouse serve` prints a link to the console, later only on a terminal. The page exists,
    and the link signs in once.
    """
    process = await run("--listen", "127.0.0.1:0", "--grpc-listen", "")
    while (link := (await line(process)).strip()).rpartition("#link=")[0] == "":
        assert process.returncode is None
        assert "th_" not in link  # the link is printed before the key, because people open the link first
    url, _, secret = link.partition("#link=")
    async with aiohttp.ClientSession() as session:
        async with session.get(url) as page:
            assert page.status == 200
            assert page.content_type == "text/html"
        for status in (201, 401):
            async with session.post(f"{url}api/sessions", json={"link": secret}) as signed_in:
                assert status == signed_in.status
    process.send_signal(signal.SIGTERM)
    await ended(process)


async def test_with_a_configuration_file_it_prints_no_secret(run: Run, tmp_path: Path) -> None:
    """
    With a configuration file, `tollhouse serve` prints no secret at its first start, because such an installation
    is expected to create its own key.
    """
    (tmp_path / "tollhouse.toml").write_text('[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = ""\n')
    process = await run("--config", "tollhouse.toml")
    await line(process)
    process.send_signal(signal.SIGTERM)
    code, out, err = await ended(process)
    assert code == 0
    assert out == ""
    assert "th_" not in err


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("--listen", "nowhere"), 2, "server.listen must be HOST:PORT"),
        (("--config", "missing.toml"), 2, "missing.toml"),
        (("--listen", "203.0.113.1:1"), 1, "203.0.113.1"),
        (("--data", "file/data", "--listen", "127.0.0.1:0"), 1, "file"),
        (("--data", "data", "--listen", "127.0.0.1:0", "--grpc-listen", ""), 1, "/data"),
    ],
)
async def test_it_says_why_it_cannot_start(
    run: Run, tmp_path: Path, words: tuple[str, ...], code: int, sentence: str
) -> None:
    """
    If the server cannot start, the exit code is 2 for the configuration and 1 for the environment, such as a
    data directory in use. The message is one line without a traceback.
    """
    (tmp_path / "file").write_text("")
    spool = await open_spool(tmp_path / "data", settings=SpoolSettings(), clock=SystemClock())
    try:
        returned, out, err = await ended(await run(*words))
    finally:
        await spool.close()
    assert code == returned, err
    assert out == "", err
    assert sentence in err
    assert "Traceback" not in err


async def test_a_port_in_use_is_one_clear_line(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for words in (("--listen", address), ("--listen", "127.0.0.1:0", "--grpc-listen", address)):
            code, out, err = await ended(await run(*words))
            told = [text for text in err.splitlines() if text.startswith("tollhouse: ")]
            assert code == 1, err
            assert out == "", err
            assert len(told) == 1, err
            assert address in told[0]
            assert "in use" in told[0]


async def test_a_second_signal_changes_nothing(copied: Copied) -> None:
    """Two SIGTERM and a SIGINT arrive during a request. The stop goes on and ends with 0."""
    process, read = copied("--listen", "127.0.0.1:0", "--grpc-listen", "")
    port = port_of(await read("stdout"))
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /v1/traces HTTP/1.1\r\nHost: t\r\nContent-Length: 100\r\n\r\n{")
    await writer.drain()
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGINT):
        process.send_signal(number)
    code = await asyncio.to_thread(process.wait, LIMIT_S)
    writer.close()
    assert code == 0
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()


async def test_half_sent_uploads_do_not_hold_up_a_stop(run: Run, tmp_path: Path) -> None:
    """
    Twenty large and small uploads and a gRPC call never finish. Senders get an answer that tells them to
    retry, and the stop ends by itself.
    """
    (tmp_path / "key").write_text("first-key-of-the-deployment\n")
    (tmp_path / "tollhouse.toml").write_text(
        '[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = "127.0.0.1:0"\napi_key_file = "key"\n'
    )
    process = await run("--config", "tollhouse.toml")
    port, grpc_port = port_of(await line(process)), port_of(await line(process))
    channel = grpc.aio.insecure_channel(f"127.0.0.1:{grpc_port}")
    export: Any = channel.stream_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")
    call = export(metadata=(("authorization", "first-key-of-the-deployment"),))
    await call.wait_for_connection()
    head = f"Authorization: first-key-of-the-deployment\r\nContent-Type: {JSON}\r\nContent-Length: 4000000"
    uploads = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
    async with limited():
        for place, (reader, writer) in enumerate(uploads):
            writer.write(
                f"POST /v1/traces HTTP/1.1\r\nHost: t\r\n{head}\r\nExpect: 100-continue\r\n\r\n".encode()
            )
            # This response shows that the server has accepted the upload.
            assert b"HTTP/1.1 100 Continue\r\n\r\n" == await reader.readuntil(b"\r\n\r\n")
            writer.write(b" " * (place * 100_000))
            await writer.drain()
    process.send_signal(signal.SIGTERM)
    code, _, err = await ended(process)
    statuses = {(await reader.readline()).split()[1] for reader, _ in uploads}
    for _, writer in uploads:
        writer.close()
    assert grpc.StatusCode.UNAVAILABLE == await call.code()
    await channel.close()
    assert code == 0
    assert statuses == {b"503"}
    assert "Traceback" not in err


async def test_a_stop_waits_for_bodies_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The stop does not wait a second time for answers. All waits together are shorter than the ten seconds
    of `docker stop`.
    """
    assert listeners.UPLOAD_S + listeners.DRAIN_S + 2 * listener.STOP_S < 10
    monkeypatch.setattr(listeners, "UPLOAD_S", 0.05)
    monkeypatch.setattr(listeners, "DRAIN_S", 3600.0)
    server = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
    app = TollhouseApp(Config(data_dir=tmp_path / "data", server=server), version="0")
    await app.start()
    key = await app.create_first_key()
    head = f"POST /v1/traces HTTP/1.1\r\nHost: t\r\nAuthorization: {key}\r\nContent-Type: {JSON}\r\n"
    uploads = [await asyncio.open_connection("127.0.0.1", port_of(app.url)) for _ in range(5)]
    async with limited():
        for reader, writer in uploads:
            writer.write(f"{head}Expect: 100-continue\r\nContent-Length: 4000000\r\n\r\n".encode())
            assert b"HTTP/1.1 100 Continue\r\n\r\n" == await reader.readuntil(b"\r\n\r\n")
    async with limited():
        await app.stop()
        assert {b"503"} == {(await reader.readline()).split()[1] for reader, _ in uploads}
    for _, writer in uploads:
        writer.close()


async def test_a_process_without_descriptors_stays_quiet_and_answers(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    With more connections than descriptors, idle connections are closed, the log stays short, and a
    command is answered.
    """
    (tmp_path / "tollhouse.toml").write_text('[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = ""\n')
    process = await run("--config", "tollhouse.toml", descriptors=64)
    port = port_of(await line(process))
    flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(150)]
    async with limited():
        assert b"" == await flood[0][0].read()
    monkeypatch.setattr(client, "PATIENCE_S", 120.0)
    words = ["spool", "status", "--config", str(tmp_path / "tollhouse.toml")]
    done = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert 0 == done.exit_code, done.output
    assert (
        200
        == raw.parsed(
            await raw.talk(port, b"GET /livez HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        ).status
    )
    for _, writer in flood:
        writer.close()
    process.send_signal(signal.SIGTERM)
    code, _, err = await ended(process)
    assert code == 0
    assert err.count("\n") < 200


async def test_sighup_reads_a_changed_key_file(copied: Copied, tmp_path: Path) -> None:
    """SIGHUP reads server.api_key_file again. Many SIGHUP at once do no harm."""
    (tmp_path / "key").write_text("first-key-of-the-deployment\n")
    (tmp_path / "tollhouse.toml").write_text(
        '[server]\nlisten = "127.0.0.1:0"\ngrpc_listen = ""\napi_key_file = "key"\n'
    )
    process, read = copied("--config", "tollhouse.toml")
    port = port_of(await read("stdout"))

    async def status(key: str) -> int:
        head = (f"Authorization: {key}", f"Content-Type: {JSON}")
        return raw.parsed(await raw.talk(port, raw.post("/v1/traces", traces(JSON), *head))).status

    assert await status("first-key-of-the-deployment") == 200
    assert await status("second-key-of-the-deployment") == 401
    (tmp_path / "key").write_text("second-key-of-the-deployment\n")
    for _ in range(20):
        process.send_signal(signal.SIGHUP)
    while "reloaded" not in await read("stderr"):
        pass
    assert await status("first-key-of-the-deployment") == 401
    assert await status("second-key-of-the-deployment") == 200
    process.send_signal(signal.SIGTERM)
    assert 0 == await asyncio.to_thread(process.wait, LIMIT_S)


async def test_a_background_task_that_dies_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A defect in one task costs only itself: the process serves, and the log names the task."""
    tries = 0
    started_again = asyncio.Event()

    async def die(*_: object) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            started_again.set()
            await asyncio.Event().wait()
        raise RuntimeError("no more")

    monkeypatch.setattr(background, "_run_retention", die)
    monkeypatch.setattr("gateway.service.app.RESTART_S", 0.0)
    server = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
    app = TollhouseApp(Config(data_dir=tmp_path / "data", server=server), version="0")
    await app.start()
    await started_again.wait()
    died = [vars(record) for record in caplog.records if vars(record).get("action") == "task_died"]
    assert [("retention", "RuntimeError")] * 2 == [(record["task"], record["error"]) for record in died]
    await app.stop()


async def test_stalled_upload_delays_a_stop_only_for_the_drain_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    An upload that makes no progress delays a stop only for the drain time. Then it is cut off without another wait.
    """
    monkeypatch.setattr(listeners, "DRAIN_S", 0.1)
    server = ServerSettings(listen="127.0.0.1:0", grpc_listen="127.0.0.1:0")
    app = TollhouseApp(Config(data_dir=tmp_path / "data", server=server), version="0")
    await app.start()
    key = await app.create_first_key()
    head = f"POST /v1/traces HTTP/1.1\r\nHost: t\r\nAuthorization: {key}\r\nContent-Type: {JSON}\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(app.url))
    writer.write(f"{head}Expect: 100-continue\r\nContent-Length: 100\r\n\r\n".encode())
    async with limited():
        assert b"HTTP/1.1 100 Continue\r\n" == await reader.readline()
    async with limited():
        await app.stop()
    writer.close()


async def test_a_stop_waits_for_a_commit_in_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A stop waits for a commit that has begun: a complete request is answered even if its commit takes longer than
    the time for uploads.
    """
    monkeypatch.setattr(listeners, "UPLOAD_S", 0.05)
    monkeypatch.setattr(listener, "STOP_S", 0.05)
    monkeypatch.setattr(listeners, "DRAIN_S", 120.0)
    server = ServerSettings(listen="127.0.0.1:0", grpc_listen="")
    app = TollhouseApp(Config(data_dir=tmp_path / "data", server=server), version="0")
    await app.start()
    key = await app.create_first_key()
    log, begun = app.services.storage.log, asyncio.Event()
    append = log.append_submission

    async def slow(submission: Submission) -> Receipt:
        begun.set()
        await asyncio.sleep(0.5)
        return await append(submission)

    monkeypatch.setattr(log, "append_submission", slow)
    body = traces(JSON)
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(app.url))
    head = f"POST /v1/traces HTTP/1.1\r\nHost: t\r\nAuthorization: {key}\r\nContent-Type: {JSON}\r\n"
    writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await begun.wait()
    async with limited():
        await app.stop()
        assert b"HTTP/1.1 200 OK\r\n" == await reader.readline()
    writer.close()

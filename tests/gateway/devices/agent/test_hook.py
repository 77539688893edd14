"""
What the hook of an assistant asks: its command line, its input, its answer in time, and the modules that it loads.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.devices.agent import hook
from gateway.devices.agent.hook import (
    HookArguments,
    parse_hook_arguments,
    parse_session_id,
    reason_to_refuse_hook_call,
)

PATIENT_S = 600.0
CANARY = "a canary sang in the coal mine"
INPUT = json.dumps({"session_id": "a-session", "prompt": CANARY}).encode()
# Parts of a standard library that take long to import. None of them is needed to ask a question.
SLOW = (
    "asyncio",
    "ssl",
    "http",
    "urllib",
    "email",
    "subprocess",
    "logging",
    "decimal",
    "datetime",
    "pathlib",
)


@contextmanager
def server(answer: Callable[[socket.socket, bytes], object]) -> Iterator[str]:
    """Serve one connection. `answer` gets the connection and the request."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                request = b""
                while CANARY.encode() not in request and not request.endswith(b"}"):
                    request += connection.recv(65536)
                answer(connection, request)

        serving = threading.Thread(target=serve)
        serving.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        serving.join(PATIENT_S)
        assert not serving.is_alive()


def answer_with(text: bytes) -> Callable[[socket.socket, bytes], object]:
    return lambda connection, request: connection.sendall(text)


@pytest.mark.parametrize(
    ("words", "question"),
    [
        ([], HookArguments()),
        (["--closed"], HookArguments(is_closed=True)),
        (["--session-limit", "20", "--closed"], HookArguments(session_limit="20", is_closed=True)),
        (["--session-limit=7.50"], HookArguments(session_limit="7.50")),
        (["--endpoint", "http://[::1]:9/"], HookArguments(endpoint="http://[::1]:9/")),
        (["--endpoint=http://localhost:4319"], HookArguments(endpoint="http://localhost:4319")),
    ],
)
def test_the_command_line_is_read_without_click(words: list[str], question: HookArguments) -> None:
    assert question == parse_hook_arguments(words)


@pytest.mark.parametrize(
    "words",
    [
        ["--session-limit"],
        ["--session-limit", "-1"],
        ["--session-limit", "1e3"],
        ["--session-limit=٣"],
        ["--closed=yes"],
        ["--endpoint", "http://tollhouse.example.com:4318"],
        ["--endpoint", "http://127.0.0.1:65536"],
        ["--endpoint", "https://127.0.0.1:4318"],
        ["--colour"],
        ["more"],
    ],
)
def test_a_wrong_command_line_refuses_only_with_closed(words: list[str]) -> None:
    """An assistant takes exit code 2 for a refusal, so a typing error must not stop every session."""
    assert parse_hook_arguments(words) is None
    for closed, code, effect in (([], 0, "goes on"), (["--closed"], 2, "is refused")):
        done = CliRunner().invoke(main, ["agent", "verdict", *closed, *words])
        assert (code, "") == (done.exit_code, done.stdout)
        assert effect in done.stderr
        assert "tollhouse agent verdict --help" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b"{",
        b"\xff",
        b"[" * 100_000,
        b'{"session_id":7}',
        b'{"session_id":""}',
        json.dumps({"session_id": "x" * 257}).encode(),
    ],
)
def test_input_without_a_session_makes_no_connection(text: bytes) -> None:
    """
    If the hook's input names no session, the hook permits the prompt, and with `--closed` it refuses. No connection
    is made in either case.
    """
    assert "" == parse_session_id(text) == reason_to_refuse_hook_call(HookArguments(), text)
    assert "refuses without one" in reason_to_refuse_hook_call(HookArguments(is_closed=True), text)


def test_only_the_session_and_the_limit_are_sent() -> None:
    sent: list[bytes] = []

    def answer(connection: socket.socket, request: bytes) -> None:
        sent.append(request)
        connection.sendall(b'HTTP/1.0 200 OK\r\n\r\n{"refuse":"enough"}')

    with server(answer) as endpoint:
        assert "enough" == reason_to_refuse_hook_call(HookArguments(endpoint, "20"), INPUT, PATIENT_S)
    head, _, body = sent[0].partition(b"\r\n\r\n")
    assert {"session_id": "a-session", "session_limit": "20"} == json.loads(body)
    assert CANARY.encode() not in head


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 200 OK\r\n\r\n",
        b'HTTP/1.0 503 No\r\n\r\n{"refuse":"x"}',
        b"HTTP/1.0 200 OK\r\n\r\n[]",
        b"HTTP/1.0 200 OK\r\n\r\n{}",
        b'HTTP/1.0 200 OK\r\n\r\n{"refuse":1}',
        b'\xff\xff {"refuse":"x"}',
        b"x" * 100_000,
    ],
)
@pytest.mark.parametrize("is_closed", [False, True])
def test_any_other_answer_is_none(answer: bytes, is_closed: bool) -> None:
    with server(answer_with(answer)) as endpoint:
        reason = reason_to_refuse_hook_call(HookArguments(endpoint, is_closed=is_closed), INPUT, PATIENT_S)
    assert is_closed == ("refuses without one" in reason)


@pytest.mark.parametrize("drips", [False, True])
def test_the_hook_does_not_wait_for_a_late_answer(drips: bool) -> None:
    """An agent that hangs, or that sends one byte after another, gets no more than the time for an answer."""
    ended = threading.Event()

    def answer(connection: socket.socket, request: bytes) -> None:
        while drips and not ended.is_set():
            try:
                connection.sendall(b"x")
            except OSError:
                break
            time.sleep(0.01)
        assert ended.wait(PATIENT_S)

    with server(answer) as endpoint:
        assert "" == reason_to_refuse_hook_call(HookArguments(endpoint), INPUT)
        ended.set()


def test_hook_without_an_agent_permits_the_prompt() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
    assert "" == reason_to_refuse_hook_call(HookArguments(endpoint), INPUT, PATIENT_S)
    assert "refuses without one" in reason_to_refuse_hook_call(
        HookArguments(endpoint, is_closed=True), INPUT, PATIENT_S
    )


@pytest.mark.parametrize(("closed", "code"), [([], hook.GO_ON), (["--closed"], hook.REFUSE)])
def test_the_command_loads_neither_click_nor_the_server(closed: list[str], code: int) -> None:
    """The hook's program exits with 0 or 2, prints at most one sentence, and imports only small modules."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = f"http://127.0.0.1:{listening.getsockname()[1]}"
    program = (
        "import sys\nfrom gateway.__main__ import main\ntry:\n    main()\nfinally:\n    print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "agent", "verdict", "--endpoint", endpoint, *closed],
        input=INPUT,
        capture_output=True,
        timeout=PATIENT_S,
        check=False,
    )
    assert code == done.returncode
    assert bool(closed) == len(done.stderr.splitlines())
    assert CANARY.encode() not in done.stdout + done.stderr
    loaded = set(re.findall(r"[\w.]+", done.stdout.decode()))
    ours = {name for name in loaded if name.split(".")[0] in ("gateway", "exporters", "spool", "click")}
    assert ours == {
        "gateway",
        *(f"gateway.{name}" for name in ("__main__", "devices", "devices.agent", "devices.agent.hook")),
    }
    assert loaded.isdisjoint(SLOW)

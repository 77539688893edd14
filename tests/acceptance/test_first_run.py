"""First steps of a new user: start, paste the printed line, look at the result."""

from __future__ import annotations

import json
import re
import secrets
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import COMMAND, SEND_AI_TELEMETRY
from tests.acceptance.payloads import post, request, span
from tests.processes.copied import copying_command, run_process


def test_the_printed_command_works_when_pasted(tmp_path: Path) -> None:
    """
    Without a configuration, a key is printed with a command that sends one record with it, and the record counts.
    """
    serve = [str(COMMAND), "serve", "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        serve, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=tmp_path
    )
    try:
        assert process.stdout is not None
        printed = ""
        while not (step := re.search(r"^ +(TOLLHOUSE_KEY=th_.+)\n", printed, re.MULTILINE)):
            line = process.stdout.readline()
            # A server without the command would print nothing more, and the test would wait for its time limit.
            assert line and "Next steps" not in line, printed
            printed += line
        assert re.search(r"^listening on http://127\.0\.0\.1:[1-9]\d*$", printed, re.MULTILINE), printed
        done = subprocess.run(
            ["bash", "-c", step[1]], capture_output=True, text=True, timeout=300, check=True, cwd=tmp_path
        )
        assert "accepted 1, ignored 0, rejected 0\n" == done.stdout
        status = run_process([str(COMMAND), "spool", "status", "--json"], cwd=tmp_path)
        topics = json.loads(status.stdout)["topics"]
        assert 1 == next(row["accepted"] for row in topics if row["topic"] == "ai-telemetry")
    finally:
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_second_start_prints_no_secret(tmp_path: Path) -> None:
    """The first key of a data directory is printed only at its first start."""
    outputs = []
    for _ in range(2):
        program, number = copying_command()
        serve = [program, "serve", "--listen", "127.0.0.1:0", "--grpc-listen", ""]
        process = subprocess.Popen(
            serve,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=tmp_path,
            pass_fds=[number],
        )
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("listening on")
        process.send_signal(signal.SIGTERM)
        outputs.append(first + process.stdout.read())
        process.stdout.close()
        assert 0 == process.wait()
    assert "th_" in outputs[0]
    assert "th_" not in outputs[1]


@pytest.mark.proof
def test_short_ids_that_a_local_server_reuses_are_calls_of_their_own(installations: Any) -> None:
    """3,000 calls with repeating ids chatcmpl-0 to chatcmpl-998 are 3,000 records. A repeat adds none."""
    tollhouse = installations()
    key = tollhouse.key("local")
    url = tollhouse.start()
    start = 1_790_000_000_000_000_000
    batches = [
        request(
            [
                span(
                    f"chatcmpl-{number % 999}", tokens=number % 400, start_ns=start + number * 60_000_000_000
                )
                for number in range(first, first + 1000)
            ]
        )
        for first in range(0, 3000, 1000)
    ]
    answers = [post(url, body, key) for body in batches]
    repeats = [post(url, body, key) for body in batches]
    tollhouse.wait_until_drained()
    assert 3000 == len(tollhouse.records())
    for first, again in zip(answers, repeats, strict=True):
        hide = r"id=[^;]+"
        assert 200 == first.status == again.status
        assert re.sub(hide, "", first.headers["Tollhouse-Receipt"]) == re.sub(
            hide, "", again.headers["Tollhouse-Receipt"]
        )
        assert first.data == again.data


def test_one_batch_twice_is_one_record_each(installations: Any) -> None:
    """If the same request is sent again, only the accounting changes."""
    tollhouse = installations()
    key = tollhouse.key("twice")
    url = tollhouse.start()
    body = request([span("chatcmpl-" + secrets.token_hex(12)) for _ in range(10)])
    for _ in range(3):
        assert 200 == post(url, body, key).status
    tollhouse.wait_until_drained()
    assert 10 == len(tollhouse.records())
    terms = tollhouse.json("spool", "verify")["topics"]["ai-telemetry"]
    assert terms["received"] == 30
    assert terms["accepted"] == 10
    assert terms["duplicates"] == 20


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("keys", "create", "--name", "ab", "--use-case", SEND_AI_TELEMETRY), "at least 3 characters"),
        (("keys", "create", "--name", "abc"), "scope"),
        (("keys", "create", "--name", "abc", "--scope", "a:b"), "a:b"),
        (("serve", "--listen", "nowhere"), "HOST:PORT"),
        (("servee",), "serve"),
    ],
)
def test_wrong_use_is_exit_2_and_a_sentence(
    installations: Any, words: tuple[str, ...], sentence: str
) -> None:
    """After wrong use the exit code is 2, and the message states the rule for the flag or value."""
    done = installations().attempt(*words)
    assert 2 == done.returncode
    assert sentence in done.stderr

"""A file of calls is sent twice, and sender and server are killed midway. Every call is stored once."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import urllib3

from tests.acceptance.conftest import COMMAND, Tollhouse
from tests.free_ports import free_port
from tests.processes.copied import run_process, start_process
from tests.rounds import IS_LONG
from tests.waiting import wait_until

CALLS = 100_000 if IS_LONG else 4000
ACCEPTED = re.compile(
    r'^tollhouse_records_accepted_total\{.*topic="ai-telemetry".*\} ([0-9.e+]+)$', re.MULTILINE
)


def test_every_call_of_a_file_is_there_once(installations: Any, tmp_path: Path) -> None:
    """
    The first run of `send` is killed. The second run resumes where the first one stopped, and survives a restart of
    the server. A third run sends nothing.
    """
    tollhouse = installations()
    # fixed port, so that no other process gets it while the server is down
    tollhouse.config.write_text(tollhouse.config.read_text().replace(":0", f":{free_port()}", 1))
    calls = _file_of_calls(tmp_path / "calls.ndjson")
    environment = {
        **os.environ,
        "TOLLHOUSE_KEY": tollhouse.key("send"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    command = [str(COMMAND), "send", str(calls), "--to", tollhouse.start()]
    first = start_process(command, cwd=tmp_path, env=environment)
    wait_until(lambda: _accepted(tollhouse) >= CALLS / 4, "a quarter of the calls")
    first.kill()
    first.wait()
    second = start_process(command, cwd=tmp_path, env=environment, is_read=True)
    assert second.stdout is not None and second.stderr is not None
    wait_until(lambda: _accepted(tollhouse) >= CALLS / 2, "half of the calls")
    tollhouse.kill()
    tollhouse.start()
    with second.stdout as stdout, second.stderr as stderr:
        output, complaints = stdout.read(), stderr.read()
    assert 0 == second.wait(), complaints
    assert re.search(r"sent before [1-9]", output), output
    third = run_process(command, cwd=tmp_path, env=environment)
    assert f"accepted 0, ignored 0, rejected 0, sent before {CALLS}" == third.stdout.strip()
    tollhouse.wait_until_drained()
    ids = [record["request_id"] for record in tollhouse.records()]
    assert len(ids) == CALLS
    assert len(set(ids)) == CALLS
    assert tollhouse.json("spool", "verify")["balanced"]


def _file_of_calls(path: Path) -> Path:
    call: dict[str, Any] = {
        "call_type": "acompletion",
        "custom_llm_provider": "openai",
        "model": "gpt-4o",
        "status": "success",
    }
    call |= {"prompt_tokens": 10, "completion_tokens": 20, "response_cost": 0.000225}
    with path.open("w") as lines:
        for number in range(CALLS):
            start = 1_766_000_000 + number / 10
            names = {"id": f"chatcmpl-{number:024d}", "litellm_call_id": f"call-{number}"}
            lines.write(json.dumps({**names, **call, "startTime": start, "endTime": start + 1}) + "\n")
    return path


def _accepted(tollhouse: Tollhouse) -> float:
    metrics = urllib3.request("GET", tollhouse.url + "/metrics").data.decode()
    return sum(float(number) for number in ACCEPTED.findall(metrics))

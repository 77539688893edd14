"""Enrolment tokens with the installed command: creation, kill -9 while devices enrol, and an agent's token file."""

from __future__ import annotations

import csv
import io
import json
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import HTTPError

from tests.acceptance.conftest import Tollhouse
from tests.acceptance.payloads import post
from tests.acceptance.test_devices import Agent, listed
from tests.waiting import wait_until

ENROL = "/v1/ai-control-plane/enroll"
AGENT = """
[server]
listen = "127.0.0.1:0"
grpc_listen = "127.0.0.1:0"
[agent]
gateway = "{url}"
enrolment_token_file = "enrolment.token"
"""


def rows(tollhouse: Tollhouse) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tollhouse.json("devices", "tokens", "list")["tokens"]
    return found


def test_tokens_by_command(installations: Any, tmp_path: Path) -> None:
    """A token is printed once. A list of machines becomes a list of tokens, one for each serial number."""
    gateway: Tollhouse = installations("gateway")
    secret = gateway.run(
        "devices", "tokens", "create", "--name", "jamf", "--uses", "500", "--per-hour", "50", "--label",
        "team=search"
    ).strip()  # fmt: skip
    assert secret.startswith("the_")
    machines = tmp_path / "machines.csv"
    machines.write_text("\ufeffHostname;Serial Number\nmill;C02A\nmill2;C02B\nagain;c02a\n", "utf-8")
    printed = gateway.run("devices", "tokens", "create", "--name", "one each", "--for", str(machines))
    made = list(csv.DictReader(io.StringIO(printed)))
    assert {"c02a", "C02B"} == {row["serial"] for row in made}
    assert 2 == len({row["token"] for row in made})
    listed_tokens = gateway.run("devices", "tokens", "list")
    assert "500" in listed_tokens
    assert {"jamf": 50, "one each": 200} == {row["name"]: row["per_hour"] for row in rows(gateway)}
    assert secret.rpartition("_")[2] not in listed_tokens
    revoked = gateway.run("devices", "tokens", "revoke", "one each", "--devices")
    assert "2 tokens and 0 devices revoked" in revoked
    assert {"active", "revoked"} == {row["state"] for row in rows(gateway)}
    gateway.run("devices", "tokens", "revoke", "unknown", code=2)
    machines.write_text("Hostname\nmill\n")
    gateway.run("devices", "tokens", "create", "--name", "one each", "--for", str(machines), code=2)


@pytest.mark.proves("An enrolment token leaks from an MDM or a ticket")
def test_kill_9_while_devices_enrol(installations: Any) -> None:
    """
    40 machines with 25 uses repeat their enrolment until they have an answer, while the gateway is killed. Exactly
    25 become devices, and each of them has its key.
    """
    gateway: Tollhouse = installations("gateway")
    made = gateway.json("devices", "tokens", "create", "--name", "jamf", "--uses", "25")
    token = made["tokens"][0]["secret"]
    rng = random.Random(5)
    gateway.start()

    def enrol(name: str) -> tuple[str, str | None]:
        body = {"device_id": name, "fingerprint": f"of {name}", "want_key": True}
        try:
            answer = post(gateway.url, json.dumps(body).encode(), token, path=ENROL)
        except (HTTPError, OSError):
            return name, None
        if answer.status == 200:
            return name, str(answer.json()["key"])
        return name, "refused" if answer.status == 403 else None

    waiting = [f"laptop-{number}" for number in range(40)]
    answers: dict[str, str] = {}
    for _ in range(4):
        with ThreadPoolExecutor(8) as senders:
            sent = [senders.submit(enrol, name) for name in waiting]
            sent[rng.randrange(len(sent))].result()
            gateway.kill()
        answers |= {name: answer for name, answer in (task.result() for task in sent) if answer}
        # every device repeats its first enrolment under the token, as if its answer had been lost
        gateway.start()
    answers = {name: answer or "" for name, answer in map(enrol, waiting)}
    keys = [answer for answer in answers.values() if answer.startswith("thd_")]
    assert 25 == len(set(keys)) == len(listed(gateway))
    assert 15 == sum(answer == "refused" for answer in answers.values())
    gateway.stop()
    [token_row] = rows(gateway)
    assert ("used_up", 25) == (token_row["state"], token_row["used"])


def test_an_agent_deletes_its_token(installations: Any) -> None:
    """The agent enrols with the token of its file, and deletes the file after the first heartbeat."""
    gateway: Tollhouse = installations("gateway")
    made = gateway.json("devices", "tokens", "create", "--name", "jamf", "--label", "team=search")
    gateway.start()
    laptop: Agent = installations("laptop", config=AGENT.format(url=gateway.url), kind=Agent)
    token_file = laptop.directory / "enrolment.token"
    token_file.write_text(made["tokens"][0]["secret"] + "\n")
    token_file.chmod(0o644)
    assert "chmod 600" in laptop.attempt("agent").stderr
    token_file.chmod(0o600)
    laptop.start()
    wait_until(lambda: not token_file.exists(), "the token file is deleted")
    device = listed(gateway)[laptop.device]
    assert ("online", {"team": "search"}) == (device["link"], device["labels"])
    laptop.stop()
    laptop.start()
    wait_until(lambda: laptop.process is not None, "the agent runs without the file")
    for log in (gateway.log, laptop.log):
        assert not any(made["tokens"][0]["secret"] in line for line in log)


@pytest.mark.proves("The disk of a laptop is copied")
def test_a_copied_agent(installations: Any, tmp_path: Path) -> None:
    """
    Restarts of an agent are no copies. A copy of its directory that was made before the last heartbeat is one.
    """
    gateway: Tollhouse = installations("gateway")
    made = gateway.json("devices", "tokens", "create", "--name", "jamf")
    gateway.start()
    laptop: Agent = installations("laptop", config=AGENT.format(url=gateway.url), kind=Agent)
    token_file = laptop.directory / "enrolment.token"
    token_file.write_text(made["tokens"][0]["secret"] + "\n")
    token_file.chmod(0o600)
    numbers = laptop.data / "heartbeats.json"

    def word() -> str:
        return str(json.loads(numbers.read_text()).get("next", "")) if numbers.exists() else ""

    def run_once() -> None:
        before = word()
        laptop.start()
        wait_until(lambda: word() != before, "a heartbeat is answered with the next word")
        laptop.stop()

    run_once()
    copy: Agent = installations("copy", config=AGENT.format(url=gateway.url), kind=Agent)
    shutil.copytree(laptop.data, copy.data, dirs_exist_ok=True)
    run_once()
    run_once()
    assert "copied" != listed(gateway)[laptop.device]["state"]
    copy.start()
    wait_until(lambda: listed(gateway)[laptop.device]["state"] == "copied", "the copy is noticed")

"""
One running Tollhouse with a record file, one provider with a journal, and the clients between them.

With `TOLLHOUSE_CAPTURE=1` the requests of each client are saved for `tests/acceptance/test_captures.py`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ARCHIVE, Tollhouse
from tests.clients import environments
from tests.clients.between.relay import Relay
from tests.clients.capture import Capture, SentRequest, names_of_this_machine
from tests.clients.journal import Call
from tests.clients.provider import Provider
from tests.documents import connect_page

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM_S = 300.0
# texts that occur in the programs' prompts, the responses or the tool results
CONTENT = ("What is the toll?", "one penny", "rain in")
# With these variables, OpenTelemetry's instrumentations write an event per call next to its span.
WITH_EVENTS = {
    "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_AND_EVENT",
}


@dataclass
class Stand:
    """The shared servers, with the positions at which this test's calls and records begin."""

    tollhouse: Tollhouse
    relay: Relay
    provider: Provider
    key: str
    calls_before: int
    records_before: int
    sent_before: int

    @property
    def url(self) -> str:
        return self.relay.url

    def calls(self) -> list[Call]:
        """Return the calls that the provider served in this test."""
        return self.provider.journal.calls()[self.calls_before :]

    def records(self) -> list[dict[str, Any]]:
        """
        Return the calls that this test added to the archive, after everything accepted has arrived there.
        """
        self.tollhouse.wait_until_drained()
        gained = self.tollhouse.records()[self.records_before :]
        # without counters, because they wait and arrive during later tests
        records = [one for one in gained if one["kind"] == "inference"]
        assert [] == [words for words in CONTENT if words in json.dumps(records)]
        return records

    def keep(
        self, family: str, run: str, told: Sequence[Call], *directories: Path, cost: Decimal | None = None
    ) -> None:
        """Save the requests of this test if captures are enabled. Call it after the assertions."""
        sent = self.relay.sent_hours()[self.sent_before :]
        keep(family, run, told, sent, self.tollhouse.directory, *directories, cost=cost)

    def run(self, client: str, program: str, *words: str, **env: Any) -> str:
        """Run a program in a client's environment until it has exported everything and ended."""
        command = [str(environments.python(client)), str(PROGRAMS / program), *words]
        # PYTHONPATH leads to modules that several programs share.
        return self.command(command, PYTHONPATH=str(PROGRAMS), **env)

    def command(self, command: list[str], directory: Path | None = None, **env: str) -> str:
        done = subprocess.run(
            command,
            cwd=directory,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            env=self.environment() | env,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    @staticmethod
    def program(
        command: list[str], home: Path, environment: Mapping[str, str], *, fails: bool = False
    ) -> None:
        """Run a program with its own home and environment until it ends."""
        own = {"PATH": os.environ["PATH"], "HOME": str(home), **environment}
        done = subprocess.run(
            command,
            cwd=home,
            capture_output=True,
            text=True,
            timeout=PROGRAM_S,
            env=own,
            stdin=subprocess.DEVNULL,
        )
        assert fails or done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"

    def environment(self) -> dict[str, str]:
        """Return the clients' variables, and nothing else of this process except PATH."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.tollhouse.directory),
            **connect_page("opentelemetry").environment(url=self.url, key=self.key),
            "OTEL_SERVICE_NAME": "clients",
            "OPENAI_BASE_URL": self.provider.url + "/v1",
            "OPENAI_API_KEY": "sk-fake",
            "ANTHROPIC_BASE_URL": self.provider.url,
            "ANTHROPIC_API_KEY": "sk-ant-fake",
            "PROVIDER_URL": self.provider.url,
        }


def keep(
    family: str,
    run: str,
    told: Sequence[Call],
    sent: Sequence[SentRequest],
    *directories: Path,
    cost: Decimal | None = None,
) -> None:
    """Write a capture if TOLLHOUSE_CAPTURE=1 and something was sent."""
    if sent and os.environ.get("TOLLHOUSE_CAPTURE") == "1":
        words = names_of_this_machine(*directories, *directories[0].parents[:2], Path(tempfile.gettempdir()))
        begin = sent[0].at
        requests = [replace(one, at=one.at - begin).without_traces_of(words) for one in sent]
        Capture(family, run, told, cost, requests).write()


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    served = Provider()
    yield served
    served.close()


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tollhouse, str]]:
    """Run the installed command for the whole session, with a key that can only send AI telemetry."""
    tollhouse = Tollhouse(
        tmp_path_factory.mktemp("installation"), ARCHIVE.format(server="", hold="0s", more="")
    )
    key = tollhouse.key("clients")
    try:
        tollhouse.start()
        yield tollhouse, key
    finally:
        tollhouse.stop(signal.SIGTERM, code=None)


@pytest.fixture(scope="session")
def relay(installation: tuple[Tollhouse, str]) -> Iterator[Relay]:
    served = Relay(installation[0].url)
    yield served
    served.close()


@pytest.fixture
def stand(installation: tuple[Tollhouse, str], relay: Relay, provider: Provider) -> Stand:
    tollhouse, key = installation
    before = len(provider.journal.calls()), len(tollhouse.records()), len(relay.sent_hours())
    return Stand(tollhouse, relay, provider, key, *before)

"""One running Tollhouse with a record file, one provider with a journal, and the clients between them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.conftest import ARCHIVE, Tollhouse
from tests.clients import environments
from tests.clients.journal import Call
from tests.clients.provider import Provider

PROGRAMS = Path(__file__).parent / "programs"
PROGRAM_S = 120.0
CONTENT = ("What is the toll?", "one penny", "rain in")  # what the programs ask, are told and hand back


@dataclass
class Stand:
    """Where a test's own calls and records begin."""

    tollhouse: Tollhouse
    provider: Provider
    key: str
    calls_before: int
    records_before: int

    @property
    def url(self) -> str:
        return self.tollhouse.url

    def calls(self) -> list[Call]:
        """What the provider served in this test."""
        return self.provider.journal.calls()[self.calls_before :]

    def records(self) -> list[dict[str, Any]]:
        """What the archive gained in this test, once everything accepted has reached it."""
        self.tollhouse.wait_until_drained()
        records = self.tollhouse.records()[self.records_before :]
        assert [] == [words for words in CONTENT if words in json.dumps(records)]
        return records

    def run(self, client: str, program: str, *words: str, **env: Any) -> str:
        """A program in a client's environment until it has ended, and with it all its exports."""
        return self.command([str(environments.python(client)), str(PROGRAMS / program), *words], **env)

    def command(self, command: list[str], directory: Path | None = None, **env: str) -> str:
        done = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, timeout=PROGRAM_S, env=self.environment() | env
        )
        assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    def environment(self) -> dict[str, str]:
        """The clients' own variables, and nothing else of this process but where programs are found."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.tollhouse.directory),
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization={self.key}",
            "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip",
            "OTEL_SERVICE_NAME": "clients",
            "OPENAI_BASE_URL": self.provider.url + "/v1",
            "OPENAI_API_KEY": "sk-fake",
            "ANTHROPIC_BASE_URL": self.provider.url,
            "ANTHROPIC_API_KEY": "sk-ant-fake",
            "PROVIDER_URL": self.provider.url,
        }


@pytest.fixture(scope="session")
def provider() -> Iterator[Provider]:
    served = Provider()
    yield served
    served.close()


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tollhouse, str]]:
    """The installed command, serving for the whole session, and a key that can send AI telemetry and nothing else."""
    tollhouse = Tollhouse(tmp_path_factory.mktemp("installation"), ARCHIVE.format(server="", hold="0s", more=""))
    key = tollhouse.key("clients")
    try:
        tollhouse.start()
        yield tollhouse, key
    finally:
        tollhouse.stop(signal.SIGTERM, code=None)


@pytest.fixture
def stand(installation: tuple[Tollhouse, str], provider: Provider) -> Stand:
    tollhouse, key = installation
    return Stand(tollhouse, provider, key, len(provider.journal.calls()), len(tollhouse.records()))

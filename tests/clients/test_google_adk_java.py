"""Google's Agent Development Kit for Java with its own tracing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients import environments
from tests.clients.conftest import Stand
from tests.clients.journal import assert_same, without

pytestmark = pytest.mark.clients


def test_the_records_are_the_journal(stand: Stand, tmp_path: Path) -> None:
    """Each call has one record. The kit reports no response id, and no model of a failure."""
    names = ("answers", "streams", "tools", "failures")
    variables = {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    command = [*environments.java("google_adk_java"), "client.GoogleAdk", *names]
    stand.program(command, tmp_path, stand.environment() | environments.of_java(**variables))
    calls = stand.calls()
    assert len(calls) == 5
    named = without("response_model", "request_id")
    nameless = without("provider", "request_model", "response_model", "request_id")
    expected = [nameless(call) if call.status == "error" else named(call) for call in calls]
    assert_same(expected, stand.records())
    stand.keep("google_adk_java", "all", expected, tmp_path)

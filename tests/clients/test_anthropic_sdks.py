"""Anthropic's SDKs for Java and Go write spans of their requests by themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.clients import environments
from tests.clients.conftest import Stand
from tests.clients.journal import Call, assert_same, without

pytestmark = pytest.mark.clients

NAMES = ("messages", "stream", "tools", "failures", "retries")


def java() -> list[str]:
    return [*environments.java("anthropic_sdk"), "client.AnthropicSdk"]


def go() -> list[str]:
    return [str(environments.go("anthropic_sdk_go", "."))]


def told(name: str, calls: Sequence[Call]) -> list[Call]:
    """Return the calls that the SDKs report: a request with its retries is one call."""
    return [calls[-1]] if name == "retries" else [without("reasoning_tokens")(call) for call in calls]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("program", [java, go])
def test_the_records_are_the_journal(
    stand: Stand, tmp_path: Path, program: Callable[[], list[str]], name: str
) -> None:
    """Each request has one record, with the status and the tokens that the provider served."""
    names = ("messages", "asynchronous") if name == "messages" and program is java else (name,)
    own = {**stand.environment(), "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    stand.program([*program(), *names], tmp_path, own)
    calls = stand.calls()
    assert calls
    expected = told(name, calls)
    assert_same(expected, stand.records())
    stand.keep("anthropic_sdks", f"{program.__name__}_{name}", expected, tmp_path)

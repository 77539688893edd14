"""Every case of a gateway format is recognized and gives the expected record, field by field."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from gateway.normalise.formats.list import BY_NAME, FORMAT_NAMES, recognise_format
from gateway.normalise.outcome import ReadOptions
from spool.record import record_to_json
from tests.gateway.normalise.formats.payloads import Case, cases, read

OTLP = {
    ("openrouter", "broadcast-claude-cache-write"),
    ("openrouter", "webhook-test-connection"),
    ("cloudflare", "otel-span"),
}


def comparable(row: dict[str, Any]) -> dict[str, Any]:
    """Round times to milliseconds and convert costs to numbers."""
    times = {
        name: row[name] and datetime.fromisoformat(cut(row[name])).timestamp()
        for name in ("start_time", "end_time")
    }
    cost = row.get("cost")
    return row | times | {"cost": cost and Decimal(cost)}


def _name(row: dict[str, Any]) -> tuple[str, str]:
    """Return a key that is different for each call and counter of a case."""
    return str(row.get("request_id")), str(row.get("token_type"))


def cut(instant: str) -> str:
    """Cut a time to microseconds, the precision of datetime."""
    whole, _, fraction = instant.removesuffix("Z").partition(".")
    return f"{whole}.{fraction[:6]:0<6}+00:00"


@pytest.mark.proves("The numbers are right")
@pytest.mark.parametrize("named", [True, False], ids=["named", "found"])
@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.format}/{case.name}")
def test_the_case_becomes_the_expected_records(case: Case, named: bool) -> None:
    """Every listed field has the expected value, whether or not the sender names its format."""
    outcome = read(case.format if named else None, case.body)
    got = [record_to_json(record) for record in outcome.records]
    expected = sorted((comparable(row) for row in case.expected), key=_name)
    for row, listed in zip(sorted(got, key=_name), expected, strict=True):
        seen = comparable(row)
        assert listed["start_time"] == pytest.approx(seen["start_time"], abs=0.001)
        assert listed["end_time"] == pytest.approx(seen["end_time"], abs=0.001)
        times = {name: seen[name] for name in ("start_time", "end_time")}
        assert listed | times == {name: seen[name] for name in listed}
    assert [] == outcome.rejects


@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.format}/{case.name}")
def test_case_is_recognized_as_its_own_format(case: Case) -> None:
    """Each case is recognized as its own format. A gateway that pushes OTLP is recognized as OTLP."""
    expected = "otlp/traces" if (case.format, case.name) in OTLP else case.format
    assert expected == recognise_format(case.body)


@pytest.mark.proves("The numbers are right")
@pytest.mark.parametrize("case", cases(), ids=lambda case: f"{case.format}/{case.name}")
def test_every_number_is_explained(case: Case) -> None:
    """With `explain`, each record names the payload fields of its tokens and cost."""
    outcome = read(None, case.body, options=ReadOptions(explain=True))
    assert outcome.why is not None
    for record, why in zip(outcome.records, outcome.why, strict=True):
        said = {
            name
            for name in ("input_tokens", "output_tokens", "cost")
            if getattr(record, name, None) is not None
        }
        assert said <= set(why)


def test_formats_are_those_that_have_cases() -> None:
    """
    Every format has a case. The names of formats are the same in addresses, in the command line and in records.
    """
    assert {case.format for case in cases()} == set(BY_NAME)
    assert (*BY_NAME, "otlp/traces", "otlp/metrics", "otlp/logs") == FORMAT_NAMES


def test_published_names_stay() -> None:
    """Names of formats never change, because senders have them in their configuration."""
    assert {
        "langfuse", "litellm", "kong", "portkey", "bedrock", "cloudflare", "envoy_ai_gateway", "helicone", "bifrost",
        "apisix", "higress", "agentgateway", "vertex", "azure_apim", "openmeter", "openrouter",
        "otlp/traces", "otlp/metrics", "otlp/logs",
    } <= set(FORMAT_NAMES)  # fmt: skip

"""Every trace case of tests/cases, in JSON and in protobuf."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from spool.record import record_to_json
from tests.gateway.normalise.otlp.payloads import ENCODINGS, in_protobuf, normalised

CASES = Path(__file__).parents[3] / "cases"


def cases() -> list[Path]:
    """Return the trace cases, with those of two gateway products that push traces to their own addresses."""
    payloads = (path for path in sorted(CASES.rglob("*.json")) if not path.name.endswith(".expected.json"))
    return [path for path in payloads if "resourceSpans" in path.read_text()]


def comparable(row: dict[str, Any], fields: list[str]) -> str:
    chosen = {name: row[name] for name in fields}
    if isinstance(chosen.get("cost"), str):
        chosen["cost"] = str(Decimal(chosen["cost"]).normalize())
    return json.dumps(chosen, sort_keys=True)


def test_the_cases_are_there() -> None:
    """
    The search for cases finds every dialect. If the search found nothing, all other tests here would
    pass without testing.
    """
    assert len(cases()) >= 28


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("path", cases(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_the_case_becomes_the_expected_records(path: Path, encoding: str) -> None:
    """Every field is equal in both encodings, and the accounting balances."""
    payload = json.loads(path.read_text())
    outcome = normalised(path.read_bytes() if encoding == "json" else in_protobuf(payload), encoding=encoding)
    expected = json.loads(path.with_suffix(".expected.json").read_text())["records"]
    fields = sorted(expected[0]) if expected else []
    found = [record_to_json(record) for record in outcome.records]
    assert sorted(comparable(row, fields) for row in expected) == sorted(
        comparable(row, fields) for row in found
    )


@pytest.mark.parametrize("path", cases(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_case_says_the_same_twice(path: Path) -> None:
    """State of one payload must not leak into the next."""
    first, second = normalised(path.read_bytes()), normalised(path.read_bytes())
    assert first.records == second.records
    assert [identity.id for identity in first.identities] == [identity.id for identity in second.identities]

"""Cases with units other than text: their stored meters and price lines, worked out by hand."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.explain import explain_payload
from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.configuration.sections import Config
from spool.meters import METERS

ROOT = Path(__file__).parents[2] / "cases"
CASES = [path for path in sorted(ROOT.rglob("*.expected.json")) if '"priced"' in path.read_text()]


def _payload(expected: Path) -> Path:
    stem = expected.name.removesuffix(".expected.json")
    return next(
        path for ending in (".json", ".ndjson") if (path := expected.with_name(stem + ending)).exists()
    )


def _config(expected: dict[str, Any]) -> Config:
    """Use the prices that a case states, if the packaged price card has none for its units."""
    own = [
        PriceOverride(
            model=row["model"], meters={name: Decimal(price) for name, price in row["meters"].items()}
        )
        for row in expected.get("prices", ())
    ]
    return Config(prices=PriceSettings(override=tuple(own)))


def _lines(row: dict[str, Any]) -> list[list[Any]]:
    lines = row.get("price_lines") or ()
    return [[line["of"], line["quantity"], line["price"], line["amount"]] for line in lines]


@pytest.mark.parametrize("case", CASES, ids=lambda path: f"{path.parent.name}/{path.name[:-14]}")
def test_each_unit_of_each_source_has_its_meter_and_its_line(case: Path) -> None:
    """
    For each case, the expected meters are stored, each meter is charged once, and the price lines add up
    to the estimate.
    """
    payload, expected = _payload(case), json.loads(case.read_text())
    format = None if case.parent.parent.name == "otlp" else case.parent.name
    result = asyncio.run(explain_payload(payload.read_bytes(), format, _config(expected), why=True))
    found = {row["request_id"] or row["trace_id"]: row for row in result["records"]}
    for id, wanted in expected["priced"].items():
        row = found[id]
        assert wanted["meters"] == row.get("meters")
        assert wanted["estimated_cost"] == row["estimated_cost"]
        assert wanted["lines"] == _lines(row)
        total = sum(Decimal(amount) for *_, amount in wanted["lines"])
        assert Decimal(row["estimated_cost"] or 0) == total
    assert expected.get("meter_too_large") == result.get("meter_too_large")


def test_each_meter_has_a_case_worked_out_by_hand() -> None:
    """
    Every meter has a case with its price lines worked out by hand. Of the meters for image sizes and
    qualities, a few have a case and represent the rest.
    """
    told: set[str] = set()
    for case in CASES:
        for wanted in json.loads(case.read_text())["priced"].values():
            told.update(wanted["meters"] or ())
    sized = {name for name in METERS if name.startswith("output_images_")}
    assert set(METERS) - sized <= told
    assert len(sized & told) >= 4

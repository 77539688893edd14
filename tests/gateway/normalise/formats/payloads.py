"""Helpers that decode a body by its format, and the example cases of all tests."""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.normalise import any_format
from gateway.normalise.formats.engine.declaration import NormalisedBody
from gateway.normalise.formats.langfuse.merger import count_incomplete_generations
from gateway.normalise.formats.list import recognise_format_or_refuse
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from spool.record import Inference, record_to_json

CASES = Path(__file__).parents[3] / "cases/gateway"


@dataclass(frozen=True)
class Case:
    format: str
    name: str
    body: bytes
    expected: list[dict[str, Any]]


def cases(format: str | None = None) -> list[Case]:
    paths = (path for path in sorted(CASES.glob("*/*.*json")) if not path.name.endswith(".expected.json"))
    return [
        Case(
            path.parent.name,
            path.stem,
            path.read_bytes(),
            json.loads(path.with_name(f"{path.stem}.expected.json").read_text())["records"],
        )
        for path in paths
        if format in (None, path.parent.name)
    ]


def case(format: str, name: str) -> Any:
    """Return the decoded payload of a case, so that a test can change it."""
    found = next(one for one in cases(format) if one.name == name)
    return json.loads(found.body)


def run(steps: Generator[None, None, NormalisedBody]) -> tuple[NormalisedBody, int]:
    """Decode a body; return the result and the number of turns of the event loop."""
    turns = 0
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            normalised: NormalisedBody = stop.value
            return normalised, turns
        turns += 1


def read(format: str | None, payload: Any, *, options: ReadOptions | None = None) -> ReadOutcome:
    """Decode a payload by its named or recognized format. Anything but bytes is encoded as JSON."""
    return read_batch(format, payload, options=options).outcome


def read_batch(format: str | None, payload: Any, *, options: ReadOptions | None = None) -> NormalisedBody:
    """Decode a payload, and check that the accounting balances."""
    body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    named = format or recognise_format_or_refuse(body, how_to_name_format="name it")
    normalised, _ = run(any_format.normalise_body(named, body, options=options or ReadOptions()))
    assert_balanced(normalised.outcome, waiting=count_incomplete_generations(normalised.reports))
    return normalised


def told(outcome: ReadOutcome) -> list[dict[str, Any]]:
    """
    Return the records as JSON. Ids of records without a dedup key are left out, because each reading
    creates new ones.
    """
    rows = []
    for record, identity in zip(outcome.records, outcome.identities, strict=True):
        row = record_to_json(record)
        if not identity.certain:
            del row["id"]
        rows.append(row)
    return rows


def one(format: str | None, payload: Any) -> Inference:
    outcome = read(format, payload)
    assert [] == outcome.rejects
    (record,) = outcome.records
    assert isinstance(record, Inference)
    return record


def assert_balanced(outcome: ReadOutcome, *, waiting: int = 0) -> None:
    went = (
        outcome.count
        + len(outcome.records)
        + len(outcome.points)
        + outcome.ignored.total()
        + len(outcome.rejects)
    )
    assert outcome.received + outcome.split == went + waiting
    assert len(outcome.records) == len(outcome.identities)

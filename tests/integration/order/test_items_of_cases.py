"""
The items of every shared case in any order, in one request or many, with restarts between them: the same records,
sums and conflicts.

docs/ordering.md names what depends on order by design; each exception below is one of its rows.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integration.order.running import ORDERS, SEED, Request, Row, cut, told_in_memory, told_on_disk, without

CASES = Path(__file__).parents[2] / "cases"

MEMBERS = {"resourceSpans": ("scopeSpans", "spans"), "resourceLogs": ("scopeLogs", "logRecords")}
# Several items of one call that are one record only within a request.
TOGETHER = ("gemini_cli/api_response_logs",)
# After a restart Langfuse's trace no longer finds its open generations: what it says of the owner comes too late.
LATE = {"langfuse": ("user", "team", "session", "tags")}


@dataclass(frozen=True)
class Case:
    """A payload, taken apart. A piece is what has to come in one request."""

    name: str
    format: str
    pieces: tuple[tuple[Any, ...], ...]

    def request(self, pieces: Sequence[Sequence[Any]]) -> Request:
        items = [item for piece in pieces for item in piece]
        if self.format in ("otlp/traces", "otlp/logs"):
            root = next(iter(items[0]))
            return Request(self.format, json.dumps({root: [item[root][0] for item in items]}).encode())
        if self.format == "langfuse":
            return Request(self.format, json.dumps({"batch": items}).encode())
        return Request(self.format, json.dumps(items if len(items) > 1 else items[0]).encode())


def read_case(path: Path) -> Case | None:
    """None for counters, and for what holds no two items."""
    name, text = f"{path.parent.name}/{path.stem}", path.read_text()
    values = (
        [json.loads(line) for line in text.splitlines() if line] if path.suffix == ".ndjson" else [json.loads(text)]
    )
    root = next((name for name in ("resourceMetrics", *MEMBERS) if name in values[0]), "")
    if root == "resourceMetrics":
        return None
    if root:
        format, pieces = "otlp/traces" if root == "resourceSpans" else "otlp/logs", _otlp_pieces(root, values[0][root])
    else:
        format, pieces = path.parent.name, tuple((item,) for item in _items(path.parent.name, values))
    if name in TOGETHER:
        pieces = (tuple(item for piece in pieces for item in piece),)
    return Case(name, format, pieces) if sum(map(len, pieces)) > 1 else None


def _items(format: str, values: list[Any]) -> list[Any]:
    if format == "langfuse":
        batch: list[Any] = values[0]["batch"]
        return batch
    return values[0] if isinstance(values[0], list) else values


def _otlp_pieces(root: str, entries: Sequence[Row]) -> tuple[tuple[Any, ...], ...]:
    """Each item in an envelope of its own; spans by trace, because twins and owners are found within a request."""
    middle, member = MEMBERS[root]
    by_trace: dict[str, list[Any]] = {}
    for entry in entries:
        for scope in entry[middle]:
            for item in scope[member]:
                key = item.get("traceId", "") if root == "resourceSpans" else str(len(by_trace))
                by_trace.setdefault(key, []).append({root: [{**entry, middle: [{**scope, member: [item]}]}]})
    return tuple(tuple(items) for items in by_trace.values())


PATHS = [path for path in sorted(CASES.glob("*/*/*.*json")) if not path.name.endswith(".expected.json")]
FOUND = {found.name: found for path in PATHS if (found := read_case(path)) is not None}


@pytest.mark.parametrize("name", FOUND)
def test_the_items_of_a_case_in_any_order(name: str) -> None:
    """On disk and in memory; where nothing identifies a call, its id is a random one."""
    case, choice = FOUND[name], random.Random(f"{SEED} {name}")
    print(f"TOLLHOUSE_ORDER_SEED={SEED}")
    expected = without(told_in_memory([case.request(case.pieces)]), "id")
    for _ in range(ORDERS):
        pieces = [choice.sample(piece, len(piece)) for piece in choice.sample(case.pieces, len(case.pieces))]
        groups = cut(pieces, [choice.random() < 0.5 for _ in pieces])
        requests = [case.request(group) for group in groups]
        restarts = [choice.random() < 0.3 for _ in requests]
        assert expected == without(told_in_memory(requests), "id")
        late = LATE.get(case.format, ()) if any(restarts) else ()
        assert without(expected, *late) == without(told_on_disk(requests, restarts), "id", *late)

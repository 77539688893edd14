"""
The payloads of the shared cases, split into pieces that may arrive in any order and in separate requests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.order.running import Request, Row

CASES = Path(__file__).parents[2] / "cases"
MEMBERS = {
    "resourceSpans": ("scopeSpans", "spans"),
    "resourceLogs": ("scopeLogs", "logRecords"),
    "resourceMetrics": ("scopeMetrics", "metrics"),
}
FORMATS = {"resourceSpans": "otlp/traces", "resourceLogs": "otlp/logs", "resourceMetrics": "otlp/metrics"}
POINTS = ("sum", "histogram", "gauge", "exponentialHistogram")
# These items of one call become one record only if they are in the same request.
TOGETHER = ("gemini_cli/api_response_logs",)


@dataclass(frozen=True)
class Case:
    """A payload in pieces. The items of a piece must arrive in one request."""

    name: str
    format: str
    pieces: tuple[tuple[Any, ...], ...]

    def request(self, pieces: Sequence[Sequence[Any]]) -> Request:
        items = [item for piece in pieces for item in piece]
        if self.format in FORMATS.values():
            root = next(iter(items[0]))
            return Request(self.format, json.dumps({root: [item[root][0] for item in items]}).encode())
        if self.format == "langfuse":
            return Request(self.format, json.dumps({"batch": items}).encode())
        return Request(self.format, json.dumps(items if len(items) > 1 else items[0]).encode())


def read_case(path: Path) -> Case | None:
    """Return the case, or None if it has fewer than two items."""
    name, text = f"{path.parent.name}/{path.stem}", path.read_text()
    values = (
        [json.loads(line) for line in text.splitlines() if line]
        if path.suffix == ".ndjson"
        else [json.loads(text)]
    )
    root = next((name for name in MEMBERS if name in values[0]), "")
    if root:
        format, pieces = FORMATS[root], _otlp_pieces(root, values[0][root])
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
    """
    Put each item into its own envelope. Spans stay grouped by trace, because twins and parents are found
    within a request.
    """
    middle, member = MEMBERS[root]
    by_trace: dict[str, list[Any]] = {}
    for entry in entries:
        for scope in entry[middle]:
            for item in _points(scope[member]) if root == "resourceMetrics" else scope[member]:
                key = item.get("traceId", "") if root == "resourceSpans" else str(len(by_trace))
                by_trace.setdefault(key, []).append({root: [{**entry, middle: [{**scope, member: [item]}]}]})
    return tuple(tuple(items) for items in by_trace.values())


def _points(metrics: Sequence[Row]) -> Iterator[Row]:
    """Yield a copy of the metric for each data point."""
    for metric in metrics:
        for kind in POINTS:
            for point in metric.get(kind, {}).get("dataPoints", ()):
                yield {**metric, kind: {**metric[kind], "dataPoints": [point]}}


PATHS = [path for path in sorted(CASES.glob("*/*/*.*json")) if not path.name.endswith(".expected.json")]
FOUND = {found.name: found for path in PATHS if (found := read_case(path)) is not None}

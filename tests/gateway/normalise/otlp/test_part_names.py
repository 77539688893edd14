"""Every attribute name of a token part that occurs in the cases is in a table."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.normalise.otlp.shapes import CONTAINERS, FIELD_NAMES

CASES = Path(__file__).parents[3] / "cases" / "otlp"
_USAGE = re.compile(r"gen_ai\.usage\..|llm\.token_count\..|.*\.usage\..")
_PART = re.compile(r"cache|reason|think|thought", re.IGNORECASE)
_PARTS = ("cache_read", "cache_write", "reasoning")
# The decoder does not read these names: sums of other calls, rejected prediction tokens, parts by modality, costs,
# and the cache writes that remain without those of an hour.
_NOT_READ = re.compile(
    r".*\.ephemeral_5m_input_tokens|gen_ai\.aggregated_usage\.|gen_ai\.usage\.partial\.|gen_ai\.usage\.(audio|image|text|video)\.|.*cost"
)


def names_of(item: Any) -> Iterator[str]:
    """Yield the names of all attributes in a payload."""
    if isinstance(item, list):
        for part in item:
            yield from names_of(part)
    elif isinstance(item, dict):
        if isinstance(item.get("key"), str):
            yield item["key"]
        for part in item.values():
            yield from names_of(part)


def test_no_part_of_a_sum_is_passed_over() -> None:
    """
    Every name of a part is in a table, because a cached token under an unknown name would be estimated at
    the full price.
    """
    known = {name for field in _PARTS for name in FIELD_NAMES[field]} | CONTAINERS.keys()
    payloads = [
        json.loads(path.read_bytes()) for path in CASES.rglob("*.json") if ".expected" not in path.name
    ]
    parts = {
        name
        for payload in payloads
        for name in names_of(payload)
        if _USAGE.match(name) and _PART.search(name) and not _NOT_READ.match(name)
    }
    assert parts
    assert set() == parts - known

"""What a provider served, call by call, in the words of a record: the truth that the archive is held against."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One answered request, or one record of it; None is what nobody said."""

    operation: str
    status: str
    provider: str | None = None
    request_model: str | None = None
    response_model: str | None = None
    request_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


FIELDS = tuple(field.name for field in fields(Call))
Change = Callable[[Call], Call]


class Journal:
    """Filled by the provider's threads, in order."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []

    def note(self, call: Call) -> None:
        with self._lock:
            self._calls.append(call)

    def calls(self) -> list[Call]:
        with self._lock:
            return list(self._calls)


def without(*names: str) -> Change:
    """A client that leaves these fields unsaid."""
    nothing: dict[str, Any] = dict.fromkeys(names)
    return lambda call: replace(call, **nothing)


def of_record(record: Mapping[str, Any]) -> Call:
    """A line of the archive, as far as the journal can know it."""
    return Call(**{name: record[name] for name in FIELDS})


def assert_same(expected: Iterable[Call], records: Iterable[Mapping[str, Any]]) -> None:
    """One record for each call and nothing else; the differences are shown, not the whole of both sides."""
    want, have = Counter(expected), Counter(of_record(record) for record in records)
    missing, unexpected = list((want - have).elements()), list((have - want).elements())
    assert missing == [], f"missing: {missing}\nunexpected: {unexpected}"
    assert unexpected == [], f"missing: {missing}\nunexpected: {unexpected}"


def without_names(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records of a client that has ids and model names of its own."""
    return [
        {name: one[name] for name in FIELDS} | {"request_id": None, "response_model": None} for one in records
    ]

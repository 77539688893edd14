"""The provider's journal of served calls, in the fields of a record. Tests compare the archive with it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that the provider served, or the record of a call. A field that was not reported is None."""

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
    """Calls in order, appended by the provider's threads."""

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
    """Return a change that removes these fields, for a client that does not report them."""
    nothing: dict[str, Any] = dict.fromkeys(names)
    return lambda call: replace(call, **nothing)


def of_record(record: Mapping[str, Any]) -> Call:
    """Reduce a line of the archive to the fields of the journal."""
    return Call(**{name: record[name] for name in FIELDS})


def assert_same(expected: Iterable[Call], records: Iterable[Mapping[str, Any]]) -> None:
    """Check that each call has exactly one record, and show only the differences."""
    want, have = Counter(expected), Counter(of_record(record) for record in records)
    missing, unexpected = list((want - have).elements()), list((have - want).elements())
    assert missing == [], f"missing: {missing}\nunexpected: {unexpected}"
    assert unexpected == [], f"missing: {missing}\nunexpected: {unexpected}"


def without_names(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Remove ids and response models, for a client that reports its own values."""
    return [
        {name: one[name] for name in FIELDS} | {"request_id": None, "response_model": None} for one in records
    ]

"""
Gemini CLI logs each call twice: an event of its own, and one of the conventions, which alone knows the response's id.

Both carry the same `event.timestamp` and model; their record times may be a millisecond apart.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterator

import msgspec

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.decoding.model import LogRecord
from gateway.normalise.otlp.log_dialects import CallEvent
from gateway.normalise.reading import vocabulary as words

_ALWAYS = ("gen_ai.response.id", "gen_ai.provider.name")
_WHEN_OK = ("gen_ai.response.model",)
# The record that is written when a request starts has none of these.
_ENDED = ("gen_ai.response.id", "gen_ai.response.model", *semconv.INPUT, *semconv.OUTPUT, *semconv.ERROR_TYPE)


class GeminiTwins:
    """Holds the records of one payload until all of it was seen."""

    def __init__(self) -> None:
        self._calls: list[tuple[int, LogRecord, CallEvent]] = []
        self._twins: defaultdict[Hashable, dict[str | None, deque[LogRecord]]] = defaultdict(dict)  # by session, too

    def hold(self, place: int, record: LogRecord, event: CallEvent) -> None:
        self._calls.append((place, record, event))

    def hold_twin(self, record: LogRecord) -> bool:
        """False for the record of a request's start: it is the twin of no call."""
        if semconv.first_name(record.attributes, _ENDED) is None:
            return False
        model = semconv.first_text(record.attributes, ("gen_ai.request.model",))
        self._twins[_key(record, model)].setdefault(_session(record), deque()).append(record)
        return True

    def pairs(self) -> Iterator[tuple[int, LogRecord, CallEvent]]:
        """Every call held, completed from its twin where that came in the same payload."""
        for place, record, event in self._calls:
            twin = self._twin_of(record)
            if twin is not None:
                record = _completed(record, twin, _ALWAYS if event.failed else _ALWAYS + _WHEN_OK)
            yield place, record, event

    def _twin_of(self, record: LogRecord) -> LogRecord | None:
        """The first that waits for it; where both name a session it is the same one."""
        waiting = self._twins.get(_key(record, semconv.first_text(record.attributes, ("model",))), {})
        session = _session(record)
        if session is None:
            session = next(iter(waiting), None)
        elif session not in waiting:
            session = None
        if session not in waiting:
            return None
        twin = waiting[session].popleft()
        if not waiting[session]:
            del waiting[session]
        return twin


def _key(record: LogRecord, model: str | None) -> Hashable:
    return words.text(record.attributes.get("event.timestamp")), model


def _session(record: LogRecord) -> str | None:
    return words.text(record.attributes.get("session.id"))


def _completed(record: LogRecord, twin: LogRecord, names: tuple[str, ...]) -> LogRecord:
    more = {name: twin.attributes[name] for name in names if name in twin.attributes}
    return msgspec.structs.replace(record, attributes=record.attributes | more)

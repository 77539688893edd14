"""The note of `tollhouse send` about calls that the report of this month does not show."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gateway.cli.send.command import CallsBeforeThisMonth, example_payload
from gateway.normalise.formats.engine.declaration import ExampleCall

NOW = datetime(2026, 3, 14, tzinfo=UTC).timestamp()
MONTH_NS = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp()) * 10**9
LATE_NS = int(datetime(2025, 12, 17, 23, tzinfo=UTC).timestamp()) * 10**9


def test_older_calls_are_counted_with_the_command_that_shows_them() -> None:
    """
    The note counts calls from before this month and names a command that shows them. The month begins at its
    first moment in UTC.
    """
    older = CallsBeforeThisMonth("otlp/traces", NOW)
    older.count_calls_in_body(example_payload("otlp/traces", ExampleCall(end_ns=MONTH_NS, duration_ms=0)))
    assert older.calls == 1
    assert older.older == 0
    assert older.oldest_day is None
    assert older.hint == ""
    older.count_calls_in_body(example_payload("otlp/traces", ExampleCall(end_ns=MONTH_NS, duration_ms=1)))
    assert "1 of 2 is from before this month; to see them: tollhouse report --from 2026-02-28" == older.hint
    older.count_calls_in_body(example_payload("otlp/traces", ExampleCall(end_ns=LATE_NS)))
    assert "2 of 3 are from before this month; to see them: tollhouse report --from 2025-12-17" == older.hint


@pytest.mark.parametrize("format", ["litellm", "langfuse", "kong", "openmeter", "otlp/traces"])
def test_calls_of_a_format_are_counted(format: str) -> None:
    """Older calls of every format are counted. The format is recognized as in the gateway."""
    older = CallsBeforeThisMonth(None, NOW)
    older.count_calls_in_body(example_payload(format, ExampleCall(end_ns=LATE_NS)))
    assert older.older == 1
    assert older.oldest_day == "2025-12-17"


def test_what_cannot_be_read_is_left_to_the_gateway() -> None:
    """A file that cannot be read adds nothing to the note, because the gateway's answer reports the error."""
    older = CallsBeforeThisMonth(None, NOW)
    older.count_calls_in_body(b"not json")
    assert older.calls == 0
    assert older.hint == ""

"""
Log lines on stderr: a short message and stable fields, as JSON, or as text for people if stderr is a terminal.

A line never contains a key or a prompt. For an exception it has only the type and the location, because the
text may quote what a sender sent.
"""

from __future__ import annotations

import logging
import sys
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any, TextIO

import orjson

from gateway.core.errors import innermost_frames
from gateway.core.rate_limits import TokenBuckets, address_network
from spool.clock import Clock, SystemClock
from spool.printable import printable_json, replace_unprintable

LINES_PER_MINUTE = 60
MAX_KINDS = 10_000
MAX_KIND = 80
# Fields of a log record that the logging module itself sets. All other fields come from `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def start_logging(
    level: str,
    stream: TextIO | None = None,
    *,
    lines_per_minute: int = LINES_PER_MINUTE,
    clock: Clock | None = None,
) -> None:
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(TerminalFormatter() if handler.stream.isatty() else JsonFormatter())
    handler.addFilter(RepeatedLines(clock or SystemClock(), lines_per_minute))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # At debug level, these libraries log requests verbatim.
    for chatty in ("asyncio", "aiohttp", "aiosqlite"):
        logging.getLogger(chatty).setLevel(max(logging.INFO, root.level))


class RepeatedLines(logging.Filter):
    """
    Limits repeated lines of the same kind about the same address, and asyncio's lines about failed accepts.

    Without the limit, a sender without a valid key could fill the disk with lines about refusals. The next
    written line of a kind has the number of suppressed lines as `left_out`.
    """

    def __init__(self, clock: Clock, lines_per_minute: int) -> None:
        super().__init__()
        self._buckets = TokenBuckets(clock, burst=lines_per_minute, per_s=lines_per_minute / 60)
        self._left_out: OrderedDict[str, int] = OrderedDict()

    def filter(self, record: logging.LogRecord) -> bool:
        kind = _line_kind_if_caused_by_outsider(record)
        if kind is None:
            return True
        if self._buckets.wait_s(kind):
            self._left_out[kind] = self._left_out.get(kind, 0) + 1
            if len(self._left_out) > MAX_KINDS:
                self._left_out.popitem(last=False)
            return False
        self._buckets.charge(kind)
        left_out = self._left_out.pop(kind, 0)
        if left_out:
            record.left_out = left_out
        return True


def _line_kind_if_caused_by_outsider(record: logging.LogRecord) -> str | None:
    if record.name == "asyncio":
        return record.getMessage()[:MAX_KIND]
    address = getattr(record, "address", None)
    if address is None:
        return None
    facts = (getattr(record, name, "") for name in ("action", "endpoint", "status", "type"))
    return " ".join(map(str, (address_network(address), *facts)))


class JsonFormatter(logging.Formatter):
    """Formats each record as one line: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra_fields(record),
        }
        return printable_json(line, option=orjson.OPT_NON_STR_KEYS)


class TerminalFormatter(logging.Formatter):
    """Formats each record as one line: local time, the level unless it is info, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).astimezone().strftime("%H:%M:%S")
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        message = record.getMessage()
        fields = [
            f"{name}={value if isinstance(value, str) else printable_json(value)}"
            for name, value in _extra_fields(record).items()
            if name != "action" and str(value) not in message
        ]
        shown = f" ({', '.join(fields)})" if fields else ""
        return replace_unprintable(f"{time} {level}{message}{shown}")


def _extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = {name: value for name, value in vars(record).items() if name not in _STANDARD}
    if record.exc_info and record.exc_info[1]:
        fields["error"] = type(record.exc_info[1]).__name__
        fields["where"] = innermost_frames(record.exc_info[1])
    return fields

"""
Log lines: JSON on stderr, a short sentence and stable fields.

Never a key and never a prompt: of an exception a line holds the type and the place, because its text may
quote what was sent.
"""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import orjson

FRAMES = 12
# What logging puts on every record; everything else came in as `extra`.
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure(level: str, stream: TextIO | None = None) -> None:
    """Everything that is logged from now on goes to stderr as JSON."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # asyncio's and aiohttp's debug lines show requests as they came in.
    for chatty in ("asyncio", "aiohttp", "aiosqlite"):
        logging.getLogger(chatty).setLevel(max(logging.INFO, root.level))


class JsonFormatter(logging.Formatter):
    """One line a record: time, level, logger, message, then the fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line.update((name, value) for name, value in vars(record).items() if name not in _STANDARD)
        if record.exc_info and record.exc_info[1]:
            line["error"] = type(record.exc_info[1]).__name__
            line["where"] = where(record.exc_info[1])
        return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()


def where(error: BaseException) -> list[str]:
    """The innermost frames of an exception as `file:line function`, without the text of either."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]

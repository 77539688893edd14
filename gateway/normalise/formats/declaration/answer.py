"""The answer to a sender: status and body."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

JSON = "application/json"


class FormatAnswer(NamedTuple):
    status: int
    body: bytes
    content_type: str = JSON


def json_answer(status: int, value: Any) -> FormatAnswer:
    return FormatAnswer(status, msgspec.json.encode(value))

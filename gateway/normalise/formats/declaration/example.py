"""The made-up call that every format's example payload reports."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import time_ns
from typing import Any
from uuid import uuid4


@dataclass(frozen=True, kw_only=True)
class ExampleCall:
    """A call that ended just now; every id is new each time."""

    end_ns: int = field(default_factory=time_ns)
    uuid: str = field(default_factory=lambda: str(uuid4()))
    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))
    model: str = "gpt-4o-mini"
    response_model: str = "gpt-4o-mini-2024-07-18"
    input_tokens: int = 1320
    output_tokens: int = 212
    cached_tokens: int = 1024
    cost: float = 0.0002484
    duration_ms: int = 1200

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.duration_ms * 1_000_000

    @property
    def start(self) -> str:
        return _text(self.start_ns)

    @property
    def end(self) -> str:
        return _text(self.end_ns)

    @property
    def response_id(self) -> str:
        return f"chatcmpl-{self.uuid}"

    @property
    def usage(self) -> dict[str, Any]:
        """In OpenAI's shape."""
        return {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }


def _text(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

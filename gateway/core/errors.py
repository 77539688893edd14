"""Refused requests, before they are encoded for their endpoint, and readable texts for system errors."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

FRAMES = 12
REPAIR_RETRY_S, RECOUNT_RETRY_S = 30, 60  # while the registry is damaged, and while totals are counted again
ASKED_TOO_MUCH = "asked_too_much"  # the result of a query would exceed a limit


class Refusal(Exception):
    """
    A response that refuses a request: a 4xx for the sender's mistake, or a 503. `type` is stable; `message`
    says what to do.

    The message may name a field and an offset, but never a value. `challenge` is the WWW-Authenticate header.
    """

    def __init__(
        self,
        status: int,
        type: str,
        message: str,
        *,
        retry_after_s: int | None = None,
        challenge: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.retry_after_s = retry_after_s
        self.challenge = challenge


class BadPayload(Refusal):
    """Raised if the body of a request does not match its headers or its address."""

    def __init__(self, message: str) -> None:
        super().__init__(400, "bad_payload", message)


def not_found_refusal(advice: str) -> Refusal:
    return Refusal(404, "not_found", f"There is nothing at this address. {advice}")


def error_reason(error: OSError) -> str:
    """Return the reason of a system error in words, without numbers and addresses."""
    return (
        os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    ).lower()


def innermost_frames(error: BaseException) -> list[str]:
    """
    Return the innermost frames of an exception as `file:line function`, without source lines or
    the exception's text.
    """
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]

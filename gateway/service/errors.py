"""A refused request, before it is encoded as its endpoint answers; errors of the system in words."""

from __future__ import annotations

import os

ASKED_TOO_MUCH = "asked_too_much"  # the type of the refusal of a question whose answer takes more than it may


class Refusal(Exception):
    """
    The sender's 4xx, or our 503. `type` is stable and machine-readable, `message` says what to do.

    A message names a field and an offset, never a value. `challenge` is the header WWW-Authenticate.
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
    """400: the body is not what its headers or the address say."""

    def __init__(self, message: str) -> None:
        super().__init__(400, "bad_payload", message)


def reason_of(error: OSError) -> str:
    """Return the system's words for an error, without numbers and addresses."""
    return (
        os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or str(error)
    ).lower()

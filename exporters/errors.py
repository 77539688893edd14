"""Why a delivery did not settle, named for what happens next."""

from __future__ import annotations


class SendError(Exception):
    """`answered`: the destination answered, so its idempotency key is spent."""

    def __init__(self, message: str, *, status: int | None = None, answered: bool = True) -> None:
        super().__init__(message)
        self.status = status
        self.answered = answered


class Retryable(SendError):
    """No answer, 408, 429, 5xx: the same records again, later."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        answered: bool = True,
        retry_after_s: float | None = None,
        keep_key: bool = False,
    ) -> None:
        super().__init__(message, status=status, answered=answered)
        self.retry_after_s = retry_after_s
        self.keep_key = keep_key  # no answer; or the first 502 or 504 under this key


class Rejected(SendError):
    """The destination read these bytes and refused them: look for the record at fault."""


class DeliveryTooLarge(SendError):
    """413, or over batch_bytes before it left: fewer records at once."""


class Divide(SendError):
    """One request must not hold all of it: split before the number `at` and send each part by itself."""

    def __init__(self, message: str, *, at: int) -> None:
        super().__init__(message, answered=False)
        self.at = at


class Misconfigured(SendError):
    """A key, address or file is wrong, for the operator to change (401, 403, 404, 405, 415, 501, 3xx)."""


class OutcomeUnknown(SendError):
    """No answer to a request that must not be repeated: an operator decides what became of it."""

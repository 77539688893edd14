"""Errors of deliveries. Each name says how the route continues."""

from __future__ import annotations


class SendError(Exception):
    """
    An error of a delivery.

    `answered`: the destination responded, and may repeat this response under the same idempotency key.
    `ambiguous`: the request was sent and may have been accepted, because no response arrived, or a proxy
    responded instead of the destination.
    """

    def __init__(
        self, message: str, *, status: int | None = None, answered: bool = True, ambiguous: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.answered = answered
        self.ambiguous = ambiguous

    @property
    def status_text(self) -> str | None:
        """
        Return the response status as text, to compare with other responses. Return None if there was no response.
        """
        return str(self.status or "refused") if self.answered else None


class PostponableError(SendError):
    """An error after which the destination may request a wait of `retry_after_s`."""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        answered: bool = True,
        ambiguous: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message, status=status, answered=answered, ambiguous=ambiguous)
        self.retry_after_s = retry_after_s


class Retryable(PostponableError):
    """No response, 408, 429 or 5xx. The same records are sent again later."""


class Rejected(SendError):
    """The destination read these bytes and rejected them. The route searches for the record at fault."""


class DeliveryTooLarge(SendError):
    """A 413, or more than batch_bytes before sending. The route sends fewer records per request."""


class SplitRequired(SendError):
    """
    The records must not be in one request. The route splits them before record number `at` and sends
    each part separately.
    """

    def __init__(self, message: str, *, at: int) -> None:
        super().__init__(message, answered=False)
        self.at = at


class Misconfigured(PostponableError):
    """
    A key, address or file is wrong, and the operator must fix it (401, 403, 404, 405, 415, 501, 3xx).

    `type` is the error type in the destination's response, if there is one.
    """

    type: str | None = None


class OutcomeUnknown(SendError):
    """No response to a request that must not be repeated. An operator decides whether it arrived."""

"""Errors of deliveries, classified by how the route continues."""

from __future__ import annotations


class SendError(Exception):
    """
    An error of a delivery. `answered`: the destination responded, and may repeat this response to the same
    idempotency key. `ambiguous`: the request may have been accepted, because no response arrived or a proxy
    responded.
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
        Return the response's status as text, or None without a response. Equal texts mean equal responses.
        """
        return str(self.status or "refused") if self.answered else None


class PostponableError(SendError):
    """An error after which the destination may ask the sender to wait."""

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
    """There was no response, or a 408, 429 or 5xx. The same records are sent again later."""


class Rejected(SendError):
    """The destination rejected these bytes. The route searches for the record at fault."""


class DeliveryTooLarge(SendError):
    """A 413, or more than batch_bytes. The route sends fewer records per request."""


class SplitRequired(SendError):
    """Raised if a delivery must be split. The route splits its records before the number `second_first_number`."""

    def __init__(self, message: str, *, second_first_number: int) -> None:
        super().__init__(message, answered=False)
        self.at = second_first_number


class Misconfigured(PostponableError):
    """
    The operator must fix a key, an address or a file (401, 403, 404, 405, 415, 501, 3xx). `type`: error type
    in the response.
    """

    type: str | None = None


class OutcomeUnknown(SendError):
    """There was no response to a request that must not be repeated. An operator decides."""

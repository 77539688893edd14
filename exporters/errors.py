"""Why a delivery did not settle, named for what happens next."""

from __future__ import annotations


class SendError(Exception):
    """
    `answered`: the destination answered, and may answer the same again under this idempotency key.

    `ambiguous`: the request left and may have been taken: no answer came, or one that a gateway gave in its place.
    """

    def __init__(
        self, message: str, *, status: int | None = None, answered: bool = True, ambiguous: bool = False
    ) -> None:
        super().__init__(message)
        self.status = status
        self.answered = answered
        self.ambiguous = ambiguous

    @property
    def answer(self) -> str | None:
        """Return the answer's status as text, to be compared with other answers; None if there was no answer."""
        return str(self.status or "refused") if self.answered else None


class PutOff(SendError):
    """`retry_after_s`: when the destination wants to be asked again, if it says so."""

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


class Retryable(PutOff):
    """No answer, 408, 429, 5xx: the same records again, later."""


class Rejected(SendError):
    """The destination read these bytes and refused them: look for the record at fault."""


class DeliveryTooLarge(SendError):
    """413, or over batch_bytes before it left: fewer records at once."""


class Divide(SendError):
    """One request must not hold all of it: split before the number `at` and send each part by itself."""

    def __init__(self, message: str, *, at: int) -> None:
        super().__init__(message, answered=False)
        self.at = at


class Misconfigured(PutOff):
    """
    A key, address or file is wrong, for the operator to change (401, 403, 404, 405, 415, 501, 3xx).

    `type` is the word under which the destination answered it, if it gave one.
    """

    type: str | None = None


class OutcomeUnknown(SendError):
    """No answer to a request that must not be repeated: an operator decides what became of it."""

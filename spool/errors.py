"""Errors of the storage. The docstring of each error says who must act next."""

from __future__ import annotations


class SpoolError(Exception):
    """An operation that the storage refuses or fails to do."""


class SpoolFull(SpoolError):
    """The storage has no space. The sender repeats the request after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SpoolUnavailable(SpoolError):
    """
    The commit failed, is not confirmed, or the log is closing. The sender repeats the request. If the first
    request was stored after all, the repeated one is recognized.
    """


class BeingMigrated(SpoolUnavailable):
    """
    Another process creates or migrates the tables of a shared storage. Operations that need them must wait.
    """


class Stale(SpoolUnavailable):
    """
    The data on which a submission is based have changed. Nothing was stored, and the caller must read
    the data again.
    """


class KeyEnded(Stale):
    """The key that sent a submission has ended. Nothing was stored, and repeating it cannot succeed."""


class KeyReused(Stale):
    """
    The idempotency key was used for another body. Nothing was stored, and the sender must use another key.
    """


class NotClosed(SpoolUnavailable):
    """
    Some of the requested records are not closed, or the watermark has fallen below them. The caller reads
    `closed_below` and then the records again.
    """


class SpoolDamaged(SpoolUnavailable):
    """
    Stored data are damaged. The damage is noted on disk, and the next opening salvages the readable data.
    """


class LedgerLost(SpoolUnavailable):
    """
    The sums were damaged, so they are counted again from the log. The caller repeats the operation, and sees
    partial sums until then.
    """


class TakenOver(SpoolError):
    """Another worker has taken the delivery. This worker must not send it."""


class SpoolLocked(SpoolError):
    """Another process holds the data directory. An operator must decide."""


class NotCertain(SpoolUnavailable):
    """A commit is stored, may be lost later, or never happened. The caller reads the rows to find out."""


class OtherSchema(SpoolError):
    """
    A build of Tollhouse with another schema wrote the data. An operator uses that build, upgrades Tollhouse or restores
    a backup.
    """


NOT_FINISHED = "is an unfinished copy. Repeat the command that made it (tollhouse storage copy or import)"


class UnfinishedCopy(SpoolError):
    """The storage is an unfinished copy of another storage. An operator makes the copy again."""


class EntryUnreadable(SpoolError):
    """An entry has a wrong checksum or format. It is set aside and counted as damaged."""


class NotThere(SpoolError):
    """The named object (receipt, rejected record, route or key) does not exist."""


class NotAllowed(SpoolError):
    """
    The request breaks a rule that the message states. Examples are a name in use, or a route with
    records that wait.
    """


class Managed(NotAllowed):
    """A file manages the object. The caller changes the file and applies it."""


class TokenEnded(NotAllowed):
    """A provider's token has not expired, but the session for which it was issued has ended."""


class Invalid(NotAllowed):
    """A value breaks a rule that the message states."""


class NotKept(Invalid):
    """
    The totals have no sums fine enough for the query. The message names the border and a possible query.
    """


class AskedTooMuch(SpoolError):
    """A query has too many result rows or takes too long. The message suggests another query."""


class AlreadyThere(NotAllowed):
    """The name is in use."""


class RowDamaged(SpoolError):
    """A stored row is invalid, because its bytes are damaged or another program changed it."""


class RegistryDamaged(SpoolError):
    """registry.sqlite is unreadable. The log and the totals are in other files, and continue to work."""

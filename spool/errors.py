"""Errors of the storage. The docstring of each error says who must act next."""

from __future__ import annotations


class SpoolError(Exception):
    """An operation that the storage refuses or fails to do."""


class SpoolFull(SpoolError):
    """Raised if the storage has no space. The sender repeats the request after `retry_after_s` seconds."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SpoolUnavailable(SpoolError):
    """
    Raised if a commit failed, is unconfirmed, or the log is closing. The sender repeats the request. If it
    was stored, the repeat is recognized as a duplicate.
    """


class BeingMigrated(SpoolUnavailable):
    """Another process migrates the tables. The operation must wait."""


class Stale(SpoolUnavailable):
    """
    Raised if data that the caller read before its submission have changed. Nothing was stored; the caller
    reads them again.
    """


class KeyEnded(Stale):
    """Raised if the sender's key has ended. Nothing was stored, and a repeat cannot succeed."""


class KeyReused(Stale):
    """The idempotency key was used before with another body. Nothing was stored; use another key."""


class NotClosed(SpoolUnavailable):
    """
    Raised if requested records may still change, perhaps because the watermark fell, below which no record
    changes. Read `lowest_open_number` again, then only records below it.
    """


class SpoolDamaged(SpoolUnavailable):
    """
    Raised if the spool's file is damaged. The damage is noted on disk, and the next opening salvages readable data.
    """


class LedgerLost(SpoolUnavailable):
    """
    Raised if the sums were damaged, so that they are counted again from the log. Repeat the operation, which
    then shows partial sums.
    """


class TotalsIncomplete(SpoolUnavailable):
    """Raised while the totals are counted again. The message has the counted share. Repeat the query later."""


class TakenOver(SpoolError):
    """Another worker has taken the delivery. This worker must not send it."""


class SpoolLocked(SpoolError):
    """Another process holds the directory's lock. An operator decides which process is to run."""


class NotCertain(SpoolUnavailable):
    """Raised if a commit may or may not be stored. Read the rows to find out."""


class OtherSchema(SpoolError):
    """
    The storage has another schema. An operator uses the build that wrote it, upgrades, or restores a backup.
    """


NOT_FINISHED = "is an unfinished copy. Repeat the command that made it (tollhouse storage copy or import)"


class UnfinishedCopy(SpoolError):
    """The directory holds a copy that was not completed. An operator makes the copy again."""


class EntryUnreadable(SpoolError):
    """The entry has a wrong checksum or format. It is set aside and counted as damaged."""


class NotThere(SpoolError):
    """Raised if the named object does not exist."""


class NotAllowed(SpoolError):
    """The operation breaks a rule that the message states, such as a name in use."""


class WouldRemove(NotAllowed):
    """Raised if an import would remove final figures of a bill, which it may do only if it is told to."""


class Managed(NotAllowed):
    """Raised if a file manages the object: change and apply the file instead."""


class TokenEnded(NotAllowed):
    """Raised if a provider's token outlived its session."""


class Invalid(NotAllowed):
    """Raised if a value breaks a rule, which the message states."""


class NotKept(Invalid):
    """No stored sums are fine enough for the query. The message names a possible query."""


class AskedTooMuch(SpoolError):
    """The query reads too many rows or takes too long. The message suggests another query."""


class AlreadyThere(NotAllowed):
    """Raised if the name of a new object is in use."""


class RowDamaged(SpoolError):
    """Raised if the bytes of a row are damaged, or another program changed them."""


class RegistryDamaged(SpoolError):
    """registry.sqlite is unreadable. The log and the totals continue to work."""

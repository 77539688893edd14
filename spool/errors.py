"""What can go wrong in the storage, named for whose move is next."""

from __future__ import annotations


class SpoolError(Exception):
    """Anything the durable core refuses or fails to do."""


class SpoolFull(SpoolError):
    """No room: the sender repeats after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class SpoolUnavailable(SpoolError):
    """The commit failed or the log is closing: nothing was kept, the sender repeats."""


class BeingMigrated(SpoolUnavailable):
    """Another process makes or changes the tables of a storage that several share: what needs them waits for it."""


class Stale(SpoolUnavailable):
    """What a submission was made from was changed meanwhile: nothing of it was kept, who made it reads again."""


class KeyEnded(Stale):
    """
    The key under which a submission was sent ended meanwhile: nothing of it was kept, and repeating it is no use.
    """


class KeyReused(Stale):
    """The idempotency key stands for another body: nothing of this one was kept, the sender chooses another key."""


class NotClosed(SpoolUnavailable):
    """Some of the numbers asked for are not closed, or not any more: the caller asks what is, and reads again."""


class SpoolDamaged(SpoolUnavailable):
    """What is kept is damaged, and that is remembered: opening it again salvages what can be read."""


class LedgerLost(SpoolUnavailable):
    """The sums were damaged and are counted again from the log: the caller repeats and sees them grow."""


class TakenOver(SpoolError):
    """The delivery was given to somebody else since: this one must not send it."""


class SpoolLocked(SpoolError):
    """Another process holds the data directory: the operator decides."""


class NotCertain(SpoolUnavailable):
    """It stands and may be lost, or it never happened: whoever asked looks what is there."""


class SpoolFromTheFuture(SpoolError):
    """The files were written by a newer version: the operator upgrades or restores a backup."""


NOT_FINISHED = (
    "is a copy that was not finished: run tollhouse storage copy or import again, whichever made it"
)


class UnfinishedCopy(SpoolError):
    """What is there is a copy of another storage that was not finished: the operator makes it again."""


class EntryUnreadable(SpoolError):
    """An entry's checksum or form is wrong; it is set aside and counted as damaged."""


class NotThere(SpoolError):
    """The named thing (receipt, dead letter, route, key) does not exist."""


class NotAllowed(SpoolError):
    """The request breaks a rule that the message states (a name taken, a route that still has work)."""


class TokenEnded(NotAllowed):
    """A provider's token is good by its time, and what it came from has ended."""


class Invalid(NotAllowed):
    """A value breaks the rule that the message states, whatever is kept."""


class NotKept(Invalid):
    """The ledger keeps no sums fine enough for the question; the message names the border and what can be asked."""


class AskedTooMuch(SpoolError):
    """A question whose answer takes more than it may: the message says what to ask instead."""


class AlreadyThere(NotAllowed):
    """The name is taken."""


class RowDamaged(SpoolError):
    """A stored row cannot be read as what it should be: its bytes were changed from outside, or damaged."""


class RegistryDamaged(SpoolError):
    """registry.sqlite cannot be read; the spool and the ledger are files of their own and go on."""

"""Error responses show the sender whether a repeat helps."""

from __future__ import annotations

import errno

import pytest

from gateway.http.error_table import operator_refusal_for_error, refusal_for_error
from spool import errors
from spool.errors import NotCertain, SpoolError, SpoolUnavailable

UNAVAILABLE = (503, "spool_unavailable", 1), (503, "unavailable", 1)
FAILED = (500, "internal", None), (500, "failed", None)
# For each storage error: the message for key holders, and the message for operators.
TOLD = {
    "AlreadyThere": ((409, "not_allowed", None), (409, "already_exists", None)),
    "AskedTooMuch": ((422, "asked_too_much", None), (422, "asked_too_much", None)),
    "BeingMigrated": UNAVAILABLE,
    "EntryUnreadable": FAILED,
    "Invalid": ((400, "invalid", None), (400, "invalid", None)),
    "KeyEnded": ((401, "unknown_key", None), (503, "unavailable", 1)),
    "KeyReused": UNAVAILABLE,
    "LedgerLost": UNAVAILABLE,
    "Managed": ((409, "managed", None), (409, "managed", None)),
    "WouldRemove": ((409, "would_remove", None), (409, "would_remove", None)),
    "NotAllowed": ((409, "not_allowed", None), (409, "not_allowed", None)),
    "NotCertain": UNAVAILABLE,
    "NotClosed": UNAVAILABLE,
    "NotKept": ((400, "invalid", None), (400, "invalid", None)),
    "NotThere": ((404, "not_found", None), (404, "not_found", None)),
    "RegistryDamaged": ((503, "unavailable", 30), (503, "registry_damaged", 30)),
    "RowDamaged": FAILED,
    "SpoolDamaged": UNAVAILABLE,
    "SpoolError": FAILED,
    "OtherSchema": FAILED,
    "SpoolFull": ((503, "spool_full", 7), (503, "spool_full", 7)),
    "SpoolLocked": FAILED,
    "SpoolUnavailable": UNAVAILABLE,
    "Stale": UNAVAILABLE,
    "TakenOver": FAILED,
    "TotalsIncomplete": ((503, "totals_incomplete", 60), (503, "totals_incomplete", 60)),
    "TokenEnded": ((409, "not_allowed", None), (409, "not_allowed", None)),
    "UnfinishedCopy": FAILED,
}


def test_each_storage_error_has_one_status_type_and_retry_time() -> None:
    """
    Every storage error has a fixed status, type and retry time, for key holders and in the operator API.
    """
    told = {}
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, SpoolError):
            error = kind("x", retry_after_s=7) if kind is errors.SpoolFull else kind("x")
            asked = refusal_for_error(error, endpoint="keys"), operator_refusal_for_error(error)
            told[name] = tuple((each.status, each.type, each.retry_after_s) for each in asked)
    assert TOLD == told


@pytest.mark.parametrize(
    "code", [errno.EMFILE, errno.ENOSPC, errno.EROFS, errno.EIO], ids=errno.errorcode.get
)
def test_an_error_of_the_machine_may_be_repeated(code: int) -> None:
    """
    OTLP senders drop data after a 500. Missing descriptors and full disks are temporary, so the answer is 503.
    """
    refusal = refusal_for_error(OSError(code, "x"), endpoint="otlp/traces")
    assert refusal.status == 503
    assert refusal.retry_after_s == 1


def test_change_that_may_have_succeeded_is_not_reported_as_failed() -> None:
    """If a change may have succeeded, the message says to check before repeating the change."""
    told = [
        refusal_for_error(error("x"), endpoint="keys").message for error in (NotCertain, SpoolUnavailable)
    ]
    assert [True, False] == ["Check whether it exists" in message for message in told]


def test_a_mistake_of_the_program_is_a_500() -> None:
    """A mistake of the program gets 500, because repeating the same bytes would not help."""
    assert 500 == refusal_for_error(KeyError("x"), endpoint="otlp/traces").status

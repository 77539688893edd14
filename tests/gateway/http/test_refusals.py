"""What a sender is told about an error: whether repeating helps."""

from __future__ import annotations

import errno

import pytest

from gateway.http.endpoint import refusal_of
from spool.errors import NotCertain, SpoolUnavailable


@pytest.mark.parametrize(
    "code", [errno.EMFILE, errno.ENOSPC, errno.EROFS, errno.EIO], ids=errno.errorcode.get
)
def test_an_error_of_the_machine_may_be_repeated(code: int) -> None:
    """A 500 is loss at a sender of OTLP; descriptors and disks come back."""
    refusal = refusal_of(OSError(code, "x"), endpoint="otlp/traces")
    assert (503, 1) == (refusal.status, refusal.retry_after_s)


def test_what_may_stand_is_not_told_to_be_gone() -> None:
    """Whoever asked for a change looks before it is asked again; what was not kept is sent again."""
    told = [refusal_of(error("x"), endpoint="keys").message for error in (NotCertain, SpoolUnavailable)]
    assert [True, False] == ["see whether it is there" in message for message in told]


def test_a_mistake_of_the_program_is_a_500() -> None:
    """Repeating the same bytes would not help."""
    assert 500 == refusal_of(KeyError("x"), endpoint="otlp/traces").status

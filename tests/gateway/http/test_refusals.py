"""What a sender is told about an error: whether repeating helps."""

from __future__ import annotations

import errno

import pytest

from gateway.http.endpoint import refusal_of


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOSPC, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_an_error_of_the_machine_may_be_repeated(code: int) -> None:
    """A 500 is loss at a sender of OTLP; descriptors and disks come back."""
    refusal = refusal_of(OSError(code, "x"), endpoint="otlp/traces")
    assert (503, 1) == (refusal.status, refusal.retry_after_s)


def test_a_mistake_of_the_program_is_a_500() -> None:
    """Repeating the same bytes would not help."""
    assert 500 == refusal_of(KeyError("x"), endpoint="otlp/traces").status

"""The upstream's validation of a billing drop, as Tollhouse reports it."""

from __future__ import annotations

import pytest

from exporters.errors import DeliveryTooLarge, Misconfigured, Rejected, Retryable, SendError
from exporters.http.answers import HttpAnswer
from exporters.service.billing_drops import MAX_ERRORS, BillingFileValidator


class Upstream:
    def __init__(self, said: bytes | SendError) -> None:
        self.said = said

    async def send(self, name: str, body: bytes, /) -> HttpAnswer:
        if isinstance(self.said, SendError):
            raise self.said
        return HttpAnswer(status=200, body=self.said)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b'{"connection": {"is_valid": true, "errors": []}}', []),
        (b'{"connection": {"is_valid": true, "errors": [], "more": 1}}', []),
        (b'{"connection": {"is_valid": false, "errors": ["row 1"]}}', ["row 1"]),
        (b'{"connection": {"is_valid": false}}', ["the upstream gives no reason"]),
        (b'{"connection": {"is_valid": false, "errors": ["a\\nb"]}}', ["a b"]),
        (b'{"connection": {}}', None),
        (b"<html>", None),
        (Rejected("400 no JSON"), ["400 no JSON"]),
        (DeliveryTooLarge("413"), ["413"]),
        (Retryable("no answer", answered=False), None),
        (Misconfigured("403", status=403), None),
    ],
)
async def test_a_verdict_or_none(said: bytes | SendError, expected: list[str] | None) -> None:
    """Only a rejection of the content is a verdict. An unreadable response, or none, is no verdict."""
    assert expected == await BillingFileValidator(Upstream(said)).fetch_errors(b"{}")  # type: ignore[arg-type]


async def test_errors_are_bounded() -> None:
    many = b'{"connection": {"is_valid": false, "errors": [' + b",".join([b'"x"'] * (MAX_ERRORS + 1)) + b"]}}"
    assert ["x"] * MAX_ERRORS == await BillingFileValidator(Upstream(many)).fetch_errors(b"{}")  # type: ignore[arg-type]

"""Operator API that tests a receiver of records before it is written into the configuration."""

from __future__ import annotations

from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from gateway.core.fields import one_field_answer
from gateway.http.requests import Result
from gateway.operations.holders.operators import InstallationServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import INSTALLATION_ADMINISTRATION


class ForwardingTest(RequestBody):
    """A request to test a destination for records."""

    type: Annotated[
        Literal["upstream", "otlp"],
        words("The kind of destination: `upstream` is the cost service, `otlp` an OpenTelemetry collector."),
    ]
    url: Annotated[str, words("The address of the destination.")]
    secret: Annotated[str, words("The key for the destination. It is not stored.")] = ""


class ForwardingTestResult(msgspec.Struct, kw_only=True):
    status: Annotated[
        str,
        words(
            "The result: `ok`, `refused` (the address or the key is wrong), `unavailable`, or `unverified` (no request "
            "can test it)."
        ),
        example("ok"),
    ]
    words: Annotated[str | None, words("The message of the receiver or of the test, or null."), example(None)]


@operator_call(
    "POST",
    "/forwarding-tests",
    INSTALLATION_ADMINISTRATION,
    "Test an address and a key for forwarding",
    answers=one_field_answer(
        "OneForwardingTest",
        forwarding_test=Annotated[ForwardingTestResult, words("The forwarding test, with the fields below.")],
    ),
)
async def test_forwarding(request: OperatorRequest[InstallationServices, ForwardingTest]) -> Result:
    """
    Send an empty export to the address. Nothing is stored, except for a row in the audit list with the server's name.

    `status` is `ok`, `refused` (the key or the address is wrong), `unavailable` or `unverified`.
    """
    body = request.body
    status, words = await request.services.try_receiver(body.type, body.url.strip(), body.secret.strip())
    server = urlsplit(body.url).hostname or ""
    await request.registry.audit_change(
        request.actor, "forwarding.test", server, after={"type": body.type, "status": status}
    )
    return {"forwarding_test": {"status": status, "words": words}}

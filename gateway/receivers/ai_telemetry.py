"""
`POST /v1/ai-telemetry/{format}`, and `POST /v1/ai-telemetry`, which finds the format by itself.

PUT and PATCH mean the same: some products let their users choose, and no choice may cost records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from aiohttp import web

from gateway.authentication.access import Bearer
from gateway.errors import Refusal
from gateway.http import answers
from gateway.http.boundary import Handler, admit, authorization, drive, guarded, read_body
from gateway.http.operations import ANYTHING, COUNT, ERROR, TEXT, WRITE, Content, Operation, array, closed
from gateway.normalise import any_format
from gateway.normalise.formats import answers as format_answers
from gateway.normalise.formats.recognise import format_shown
from gateway.services import ReceiverServices
from spool.registry.scopes import INGEST

FIREHOSE_KEY = "X-Amz-Firehose-Access-Key"
FIREHOSE_ID = "X-Amz-Firehose-Request-Id"

_REJECT = closed({"item": COUNT, "reason": TEXT, "message": TEXT})
_TAKEN = closed({"format": TEXT, "accepted": COUNT, "ignored": COUNT, "rejected": array(_REJECT)})
_FIREHOSE = closed({"requestId": TEXT, "timestamp": COUNT}, {"errorMessage": TEXT})
_FATE = closed({"id": TEXT, "status": COUNT}, {"message": TEXT, "error": TEXT})
LANGFUSE_SAID = closed({"successes": array(_FATE), "errors": array(_FATE)})
GIVES: Mapping[int, Content] = {
    200: {answers.JSON: {"anyOf": [_TAKEN, _FIREHOSE]}},
    204: {},
    207: {answers.JSON: LANGFUSE_SAID},
}
_ERRORS = {answers.JSON: {"anyOf": [ERROR, _FIREHOSE]}}

METHODS = ("POST", "PUT", "PATCH")  # one meaning

_TAKERS = (
    Operation(
        method=METHODS[0],
        path="/v1/ai-telemetry",
        name="ingest_recognised",
        summary="A payload of any known format, recognised by itself",
        scope=INGEST,
        takes={answers.JSON: ANYTHING},
        gives=GIVES,
        errors=_ERRORS,
    ),
    Operation(
        method=METHODS[0],
        path="/v1/ai-telemetry/{format}",
        name="ingest_format",
        summary="A payload of a named format",
        scope=INGEST,
        takes={answers.JSON: ANYTHING},
        gives=GIVES,
        errors=_ERRORS,
        refusals=(*WRITE, 404),
        choices={"format": any_format.FORMATS},
    ),
)
OPERATIONS = (
    *_TAKERS,
    *(replace(one, method=method, name=f"{one.name}_by_{method.lower()}") for one in _TAKERS for method in METHODS[1:]),
)


def door(services: ReceiverServices) -> Handler:
    """Both addresses; the format is the last part of the path, or nothing."""

    async def take(request: web.Request) -> web.Response:
        format = request.match_info.get("format")
        if format is not None and format not in any_format.FORMATS:
            known = ", ".join(any_format.FORMATS)
            raise Refusal(404, "unknown_format", f"This format is not known; known are {known}.")
        key = firehose_key if format == "bedrock" else authorization
        return await submit(request, services, admit(services, request, key(request)), format=format)

    def dress(request: web.Request, error: Refusal) -> web.Response:
        request_id = request.headers.get(FIREHOSE_ID)
        if not request_id:
            return answers.refusal(error)
        said = format_answers.firehose_answer(
            request_id, now=services.clock.now(), status=error.status, error=error.message
        )
        return answers.with_retry_after(_response(said), error)

    return guarded("ai-telemetry", take, services, methods=", ".join(METHODS), dress=dress)


async def submit(
    request: web.Request,
    services: ReceiverServices,
    bearer: Bearer,
    *,
    format: str | None,
    verify: Callable[[bytes], None] | None = None,
) -> web.Response:
    """
    One payload of one product, from the body to the answer that the product expects.

    `verify` refuses a body that it does not like before anything of it is read.
    """
    with services.budget.lease() as lease:
        body = await read_body(services, request, lease, bearer)
        if verify is not None:
            verify(body)
        named = format or format_shown(body, how="name it: POST /v1/ai-telemetry/{format}")
        outcome = await drive(any_format.normalise(named, body, options=services.options, hold=lease.take))
        receipt = await services.intake.take(outcome, bearer)
        said = format_answers.answer(named, body, outcome, now=services.clock.now())
    response = _response(said)
    if said.status < 300:
        response.headers[answers.RECEIPT] = answers.receipt_line(receipt)
    return response


def firehose_key(request: web.Request) -> str | None:
    """Firehose can set no header but its own."""
    return request.headers.get(FIREHOSE_KEY) or authorization(request)


def _response(said: format_answers.Answer) -> web.Response:
    return answers.respond(said.body, status=said.status, content_type=said.content_type)

"""
Receivers for AI telemetry in the formats of gateways, and for protocols of other products. The address names
the format, or the format is detected.

PUT and PATCH mean the same as POST, because some products let users choose the method.

Helicone's webhook cannot set a header, so its key is the last part of the URL. Logs of other systems contain
URLs, so this address accepts only keys without other scopes, and Tollhouse never logs its path. Helicone also
signs its bodies. Langfuse clients send requests to several addresses.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from aiohttp import web

from gateway.configuration.secret_file import SecretFile
from gateway.core.errors import Refusal
from gateway.core.schemas import (
    ANYTHING,
    COUNT,
    OBJECT,
    TEXT,
    Schema,
    array_schema,
    closed_object_schema,
    schema_with_description,
)
from gateway.http import answers
from gateway.http.address import (
    AS_BASIC,
    AS_BEARER,
    ERROR,
    IN_PATH,
    KEY,
    WRITE,
    ApiAddress,
    Content,
    KeyCarriage,
    authorization_header,
)
from gateway.http.answers import CLOUD_EVENTS, JSON
from gateway.http.requests import Result
from gateway.http.turns import LARGE, run_in_slices, run_on_thread_if_large
from gateway.intake.start_times import describe_misdated_items
from gateway.normalise import any_format
from gateway.normalise.formats.engine.declaration import FormatAnswer
from gateway.normalise.formats.engine.driver import answer_to_payload, answer_to_refused_payload
from gateway.normalise.formats.helicone import is_signed_by_helicone
from gateway.normalise.formats.list import BY_NAME, FORMAT_NAMES, FORMATS, recognise_format_or_refuse
from gateway.normalise.otlp.decoding.json_schema import JsonTraces
from gateway.operations.installation.nearest_address import advice_for_path
from gateway.operations.receivers.otlp_http import otlp_address, store_export
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.requests.receiver_services import ReceiverServices
from spool.registry.scopes import INGEST

# Response that Langfuse clients read to check a key. It is the same for every key, so the holder of a
# write-only key learns nothing.
_PROJECT = {
    "id": "tollhouse",
    "name": "Tollhouse",
    "organization": {"id": "tollhouse", "name": "Tollhouse"},
    "metadata": {},
}

SIGNATURE = "Helicone-Signature"


def check_format(request: web.Request) -> None:
    """Raise Refusal 404 for an unknown format."""
    if request.match_info["format"] not in FORMAT_NAMES:
        advice = advice_for_path(request.match_info["format"], tuple(BY_NAME))
        known_formats = ", ".join(FORMAT_NAMES)
        message = f"This format is not known. {advice} Known formats: {known_formats}."
        raise Refusal(404, "unknown_format", message)


def find_key_in_header_of_format(request: web.Request) -> str | None:
    """Return the key from the header that senders of the named format use."""
    format = BY_NAME.get(request.match_info["format"])
    own_header = format.key_header if format else None
    own_key = request.headers.get(own_header) if own_header else None
    return own_key or authorization_header(request)


def error_in_form_of_sender(request: web.Request, error: Refusal, now: float) -> web.Response:
    """
    Return the error in the plain form. If the headers identify a product, return it in that product's form.
    """
    return answers.add_retry_after(
        _format_response(answer_to_refused_payload(request.headers, b"", error, now=now)), error
    )


def langfuse_error_response(_: web.Request, error: Refusal, __: float) -> web.Response:
    response = answers.json_response({"error": error.type, "message": error.message}, status=error.status)
    return answers.add_retry_after(response, error)


def _response_schemas(accepted_schema: Schema) -> Mapping[int, Content]:
    by_status: dict[int, list[Schema]] = {200: [accepted_schema]}
    for format in FORMATS:
        for status, schema in format.answer_schemas.items():
            by_status.setdefault(status, []).extend([] if schema is None else [schema])
    return {status: _json_content(schemas) for status, schemas in sorted(by_status.items())}


def _json_content(schemas: list[Schema]) -> Content:
    if not schemas:
        return {}
    return {JSON: schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}


_REJECT = closed_object_schema(
    {
        "item": schema_with_description(COUNT, "The number of the item in the payload."),
        "reason": schema_with_description(TEXT, "The type of the error."),
        "message": schema_with_description(TEXT, "What is wrong and what to do."),
    }
)
_TAKEN = closed_object_schema(
    {
        "format": schema_with_description(TEXT, "The detected format."),
        "accepted": schema_with_description(COUNT, "The number of accepted items."),
        "ignored": schema_with_description(COUNT, "The number of items that are no calls."),
        "rejected": schema_with_description(array_schema(_REJECT), "The rejected items with their reasons."),
    },
    {
        "warnings": schema_with_description(
            array_schema(TEXT), "What the sender should correct, although the items are stored."
        )
    },
)
_INGESTED: Mapping[int, Content] = _response_schemas(_TAKEN)
_OWN_REFUSALS = [format.refusal_schema for format in FORMATS if format.refusal_schema is not None]
_INGEST_ERRORS: Content = {JSON: {"anyOf": [ERROR, *_OWN_REFUSALS]}}
_LANGFUSE_ERRORS: Content = {
    JSON: closed_object_schema(
        {
            "error": schema_with_description(TEXT, "The type of the error."),
            "message": schema_with_description(TEXT, "What is wrong and what to do."),
        }
    )
}


@ApiAddress(
    methods=("POST", "PUT", "PATCH"),
    path="/v1/ai-telemetry",
    summary="Send a payload of any known format, which is detected",
    endpoint="ai-telemetry",
    scope=INGEST,
    takes={JSON: ANYTHING},
    gives=_INGESTED,
    errors=_INGEST_ERRORS,
    error_form=error_in_form_of_sender,
)
async def ingest_recognised(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    return await store_payload(request)


@ApiAddress(
    methods=("POST",),
    path="/v1/ai-telemetry/helicone/{hook}",
    checks_query=False,  # the parameters are not checked, because clients of other products choose them
    summary="Send a Helicone webhook; the last part of the URL is a key that may only send AI telemetry",
    endpoint="helicone",
    scope=INGEST,
    key=IN_PATH,
    sole_scope=True,
    takes={JSON: ANYTHING},
    gives={200: {JSON: _TAKEN}},
)
async def helicone_webhook(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    """
    Store a webhook's payload. If a signing secret is configured, the body must be signed, because other
    people may know the URL.
    """
    secret = request.receivers.signing_secret
    if secret is not None:
        signature = request.http.headers.get(SIGNATURE, "")
        body = request.body
        await run_on_thread_if_large(
            lambda: _check_signature(signature, body, secret), is_large=len(body) > LARGE
        )
    return await store_payload(request, format="helicone")


def _check_signature(signature: str, body: bytes, secret: SecretFile) -> None:
    secret.refresh()
    if is_signed_by_helicone(secret.value, body, signature):
        return
    problem = f"The {SIGNATURE} header is missing"
    if signature:
        problem = f"The {SIGNATURE} header does not match this body"
    message = f"{problem}. Put the webhook's signing key into the file that {secret.setting} names."
    raise Refusal(401, "bad_signature", message)


@ApiAddress(
    methods=("POST", "PUT", "PATCH"),
    path="/v1/ai-telemetry/{format:.+}",
    summary="Send a payload of the named format",
    endpoint="ai-telemetry",
    scope=INGEST,
    key=KeyCarriage(find_key_in_header_of_format, (KEY,)),
    check=check_format,
    takes={JSON: ANYTHING},
    gives=_INGESTED,
    errors=_INGEST_ERRORS,
    refusals=(*WRITE, 404),
    error_form=error_in_form_of_sender,
    choices={"format": FORMAT_NAMES},
)
async def ingest_format(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    return await store_payload(request, format=request.path_parameter("format"))


@ApiAddress(
    methods=("POST",),
    path="/api/public/ingestion",
    checks_query=False,
    summary="Send a Langfuse batch; the answer is 207 with the result of each event",
    endpoint="langfuse",
    scope=INGEST,
    key=AS_BASIC,
    takes={JSON: OBJECT},
    gives={207: _INGESTED[207]},
    errors=_LANGFUSE_ERRORS,
    error_form=langfuse_error_response,
)
async def langfuse_ingestion(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    return await store_payload(request, format="langfuse")


@otlp_address(
    "/api/public/otel/v1/traces", "traces", "OTLP/HTTP traces at Langfuse's address", JsonTraces, key=AS_BASIC
)
async def langfuse_traces(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    return await store_export("traces", request)


@otlp_address(
    "/api/otel/v1/traces", "traces", "OTLP/HTTP traces at LangWatch's address", JsonTraces, key=AS_BEARER
)
async def langwatch_traces(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    return await store_export("traces", request)


@otlp_address(
    "/opentelemetry/v1/traces", "traces", "OTLP/HTTP traces at HoneyHive's address", JsonTraces, key=AS_BEARER
)
async def honeyhive_traces(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    return await store_export("traces", request)


@otlp_address(
    "/api/v1/traces", "traces", "OTLP/HTTP traces at Keywords AI's address", JsonTraces, key=AS_BEARER
)
async def keywords_ai_traces(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    return await store_export("traces", request)


@ApiAddress(
    methods=("GET",),
    path="/api/public/health",
    checks_query=False,
    summary="Health check for Langfuse clients",
    endpoint="langfuse/health",
    gives={
        200: {
            JSON: closed_object_schema(
                {
                    "status": schema_with_description(TEXT, "Always `OK`."),
                    "version": schema_with_description(TEXT, "The version of Tollhouse."),
                }
            )
        }
    },
    errors=_LANGFUSE_ERRORS,
    refusals=(415, 500, 503),
    error_form=langfuse_error_response,
)
async def langfuse_health(request: KeyRequest[ReceiverServices, None]) -> Result:
    return {"status": "OK", "version": request.shared.version}


@ApiAddress(
    methods=("GET",),
    path="/api/public/projects",
    checks_query=False,
    summary="Key check for Langfuse clients; the answer is the same for every key",
    endpoint="langfuse/projects",
    scope=INGEST,
    key=AS_BASIC,
    gives={
        200: {
            JSON: closed_object_schema(
                {
                    "data": schema_with_description(
                        array_schema(OBJECT), "One project, the same for every key."
                    )
                }
            )
        }
    },
    errors=_LANGFUSE_ERRORS,
    refusals=(401, 403, 415, 429, 500, 503),
    error_form=langfuse_error_response,
)
async def langfuse_projects(_: KeyRequest[ReceiverServices, None]) -> Result:
    return {"data": [_PROJECT]}


@ApiAddress(
    methods=("POST",),
    path="/api/v1/events",
    checks_query=False,
    summary="Send OpenMeter CloudEvents, one or many",
    endpoint="openmeter",
    scope=INGEST,
    key=AS_BEARER,
    takes=dict.fromkeys(CLOUD_EVENTS, ANYTHING),
    gives={200: {JSON: OBJECT}, 204: {}},
)
async def openmeter_events(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    return await store_payload(request, format="openmeter")


async def store_payload(
    request: KeyRequest[ReceiverServices, bytes], *, format: str | None = None
) -> web.Response:
    """
    Store a payload in `format`, or in the detected format. The response has the form that its product expects.
    """
    receivers = request.receivers
    body = request.body
    size, how = len(body), "name it: POST /v1/ai-telemetry/{format}"
    if format is None:
        format = await run_on_thread_if_large(
            partial(recognise_format_or_refuse, body, how_to_name_format=how), is_large=size > LARGE
        )
    options = receivers.options
    outcome, reports = await run_in_slices(
        lambda hold: any_format.normalise_body(format, body, options=options, hold=hold),
        request.share.reserve_bytes,
        body_bytes=size,
    )
    outcome.set_sending_program(request.http.headers.get("User-Agent"))
    receipt = await receivers.intake.store_outcome(outcome, request.bearer, reports)
    outcome.warnings.extend(describe_misdated_items(outcome.misdated))
    answering = answer_to_payload(format, body, outcome, now=receivers.clock.now())
    answer = await run_in_slices(lambda _: answering, request.share.reserve_bytes, body_bytes=size)
    response = _format_response(answer)
    if answer.status < 300:
        response.headers[answers.RECEIPT] = answers.receipt_line(receipt)
    return response


def _format_response(answer: FormatAnswer) -> web.Response:
    return answers.bytes_response(answer.body, status=answer.status, content_type=answer.content_type)

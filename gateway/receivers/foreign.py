"""
Doors that speak another product's protocol: its paths, its way of carrying a key, its answers.

Langfuse sends Basic with our key as the password, OpenMeter sends Bearer, and Helicone can set no header at all, so the
key is the last part of the webhook's address. Addresses end up in other people's logs: that door takes only keys that
can send AI telemetry and nothing else, and its path is never logged here. Helicone also signs its bodies.
"""

from __future__ import annotations

import base64

from aiohttp import web

from gateway.configuration.secret_file import SecretFile
from gateway.errors import Refusal
from gateway.http import answers, operations
from gateway.http.boundary import Handler, admit, authorization, guarded
from gateway.http.operations import ANYTHING, BASIC, BEARER, KEY, OBJECT, TEXT, Operation, closed
from gateway.normalise.formats import answers as format_answers
from gateway.normalise.formats.helicone import helicone_signed
from gateway.receivers import otlp_http as otlp
from gateway.receivers.ai_telemetry import LANGFUSE_SAID, submit
from gateway.services import ReceiverServices
from spool.registry.scopes import INGEST

# What Langfuse's clients want to find behind a key. It is the same for everybody: a write-only key learns nothing.
_PROJECT = {
    "id": "tollhouse",
    "name": "Tollhouse",
    "organization": {"id": "tollhouse", "name": "Tollhouse"},
    "metadata": {},
}

SIGNATURE = "Helicone-Signature"

_SAID_BY_LANGFUSE = {answers.JSON: closed({"error": TEXT, "message": TEXT})}
_READ = (401, 403, 415, 429, 500, 503)

OPERATIONS = (
    Operation(
        method="POST",
        path="/api/public/ingestion",
        name="langfuse_ingestion",
        summary="Langfuse's batches: 207 with the fate of every event",
        scope=INGEST,
        carriers=(BASIC, KEY),
        takes={answers.JSON: OBJECT},
        gives={207: {answers.JSON: LANGFUSE_SAID}},
        errors=_SAID_BY_LANGFUSE,
    ),
    operations.otlp(
        "/api/public/otel/v1/traces", "langfuse_traces", "OTLP/HTTP traces under Langfuse's address",
        scope=INGEST, decoded=otlp.READ_AS["traces"], member=otlp.MEMBERS["traces"], carriers=(BASIC, KEY),
    ),
    Operation(
        method="GET",
        path="/api/public/health",
        name="langfuse_health",
        summary="What Langfuse's clients ask first",
        scope=None,
        gives={200: {answers.JSON: closed({"status": TEXT, "version": TEXT})}},
        errors=_SAID_BY_LANGFUSE,
        refusals=(415, 500, 503),
    ),
    Operation(
        method="GET",
        path="/api/public/projects",
        name="langfuse_projects",
        summary="How Langfuse's clients check a key: the same answer for everybody",
        scope=INGEST,
        carriers=(BASIC, KEY),
        gives={200: {answers.JSON: closed({"data": {"type": "array", "items": OBJECT}})}},
        errors=_SAID_BY_LANGFUSE,
        refusals=_READ,
    ),
    Operation(
        method="POST",
        path="/api/v1/events",
        name="openmeter_events",
        summary="OpenMeter's CloudEvents, one or many",
        scope=INGEST,
        carriers=(BEARER, KEY),
        takes={"application/cloudevents+json": ANYTHING, "application/cloudevents-batch+json": ANYTHING},
        gives={200: {answers.JSON: OBJECT}, 204: {}},
    ),
    Operation(
        method="POST",
        path="/v1/ai-telemetry/helicone/{hook}",
        name="helicone_webhook",
        summary="Helicone's webhook; the last part of the address is a key that opens this door and no other",
        scope=None,
        takes={answers.JSON: ANYTHING},
        gives={200: {answers.JSON: OBJECT}},
    ),
)  # fmt: skip


def langfuse_ingestion(services: ReceiverServices) -> Handler:
    """`POST /api/public/ingestion`: 207 with the fate of every event."""

    async def take(request: web.Request) -> web.Response:
        return await submit(request, services, admit(services, request, basic_password(request)), format="langfuse")

    return guarded("langfuse", take, services, dress=_dress_langfuse)


def langfuse_traces(services: ReceiverServices) -> Handler:
    """`POST /api/public/otel/v1/traces`: OTLP under a Langfuse address."""
    return otlp.door("traces", services, key=basic_password)


def langfuse_health(services: ReceiverServices, *, version: str) -> Handler:
    """`GET /api/public/health`: asked without a key."""

    async def tell(_: web.Request) -> web.Response:
        return answers.json_response({"status": "OK", "version": version})

    return guarded("langfuse/health", tell, services, methods="GET", dress=_dress_langfuse)


def langfuse_projects(services: ReceiverServices) -> Handler:
    """`GET /api/public/projects`: how Langfuse's clients check a key."""

    async def tell(request: web.Request) -> web.Response:
        admit(services, request, basic_password(request))
        return answers.json_response({"data": [_PROJECT]})

    return guarded("langfuse/projects", tell, services, methods="GET", dress=_dress_langfuse)


def openmeter(services: ReceiverServices) -> Handler:
    """`POST /api/v1/events`: CloudEvents, one or many; 204."""

    async def take(request: web.Request) -> web.Response:
        return await submit(request, services, admit(services, request, bearer_token(request)), format="openmeter")

    return guarded("openmeter", take, services)


def helicone(services: ReceiverServices) -> Handler:
    """
    `POST /v1/ai-telemetry/helicone/{hook}`: `hook` is a key that opens this door and no other.

    With a signing secret the body must be signed, too: others may have read the address.
    """

    async def take(request: web.Request) -> web.Response:
        bearer = admit(services, request, request.match_info["hook"])
        if bearer.scopes != {INGEST}:
            message = (
                f"A key in an address must have the scope {INGEST} alone, because addresses are logged on the way."
            )
            raise Refusal(403, "key_too_wide", message)

        def verify(body: bytes) -> None:
            if services.signing_secret is not None:
                _check_signature(request.headers.get(SIGNATURE, ""), body, services.signing_secret)

        return await submit(request, services, bearer, format="helicone", verify=verify)

    return guarded("helicone", take, services)


def _check_signature(signature: str, body: bytes, secret: SecretFile) -> None:
    secret.refresh()
    if helicone_signed(secret.value, body, signature):
        return
    found = f"The {SIGNATURE} header does not fit this body" if signature else f"There is no {SIGNATURE} header"
    message = f"{found}: put the webhook's own signing key into the file that {secret.setting} names."
    raise Refusal(401, "bad_signature", message)


def basic_password(request: web.Request) -> str | None:
    """The password of Basic, whatever the user; any other value as it is."""
    value = authorization(request)
    if value is None or value[:6].lower() != "basic ":
        return value
    try:
        _, colon, password = base64.b64decode(value[6:].strip(), validate=True).decode().partition(":")
    except ValueError as error:  # what is no base64, no ASCII, or no UTF-8 behind it
        raise Refusal(401, "bad_basic", "The Basic credentials cannot be read.") from error
    if not colon:
        raise Refusal(401, "bad_basic", "The Basic credentials have no password; send the key as the password.")
    return password


def bearer_token(request: web.Request) -> str | None:
    """The token of Bearer; any other value as it is."""
    value = authorization(request)
    return value[7:].strip() if value and value[:7].lower() == "bearer " else value


def _dress_langfuse(_: web.Request, error: Refusal) -> web.Response:
    said = format_answers.refusal_answer("langfuse", b"", error, now=0)
    response = answers.respond(said.body, status=said.status, content_type=said.content_type)
    return answers.with_retry_after(response, error)

"""
Helicone's webhook, which can set no header: the key is the last part of the address.

Addresses end up in other people's logs, so this one takes only keys that can send AI telemetry and nothing
else, and its path is never logged here. Helicone also signs its bodies.
"""

from __future__ import annotations

from aiohttp import web

from gateway.configuration.secret_file import SecretFile
from gateway.errors import Refusal
from gateway.http.holders.receivers import ReceiverServices
from gateway.http.requests import KeyRequest
from gateway.http.turns import LARGE, aside
from gateway.normalise.formats.helicone import helicone_signed
from gateway.receivers.ai_telemetry import ingest

SIGNATURE = "Helicone-Signature"


async def helicone_webhook(request: KeyRequest[ReceiverServices, bytes]) -> web.Response:
    """
    Take a webhook's payload. Where a signing secret is set, the body must be signed: others may know the address.
    """
    secret = request.receivers.signing_secret
    if secret is not None:
        signature = request.http.headers.get(SIGNATURE, "")
        body = request.body
        await aside(lambda: _check_signature(signature, body, secret), is_large=len(body) > LARGE)
    return await ingest(request, format="helicone")


def _check_signature(signature: str, body: bytes, secret: SecretFile) -> None:
    secret.refresh()
    if helicone_signed(secret.value, body, signature):
        return
    found = f"There is no {SIGNATURE} header"
    if signature:
        found = f"The {SIGNATURE} header does not fit this body"
    message = f"{found}: put the webhook's own signing key into the file that {secret.setting} names."
    raise Refusal(401, "bad_signature", message)

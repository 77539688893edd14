"""Where a request carries its key: alone in the Authorization header, or as another product's clients send it."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import NamedTuple

from aiohttp import web

from gateway.service.errors import Refusal

# Security schemes of the OpenAPI document.
KEY, BASIC, BEARER, API_KEY = "key", "basic", "bearer", "api_key"
SESSION, CSRF = "session", "csrf"  # of operators

API_KEY_HEADER = "X-Api-Key"
CSRF_HEADER = "X-CSRF-Token"


class KeyCarriage(NamedTuple):
    """`find` returns the key, None if there is none; `schemes` are the ways that the OpenAPI document names."""

    find: Callable[[web.Request], str | None]
    schemes: tuple[str, ...]


def authorization(request: web.Request) -> str | None:
    """The whole value of the Authorization header."""
    return request.headers.get("Authorization")


def basic_password(request: web.Request) -> str | None:
    """The password of Basic, whatever the user; any other value as it is."""
    value = authorization(request)
    if value is None or value[:6].lower() != "basic ":
        return value
    try:
        _, colon, password = base64.b64decode(value[6:].strip(), validate=True).decode().partition(":")
    except ValueError as error:  # what is not base64, no ASCII, or no UTF-8 behind it
        raise Refusal(401, "bad_basic", "The Basic credentials cannot be read.") from error
    if not colon:
        message = "The Basic credentials have no password; send the key as the password."
        raise Refusal(401, "bad_basic", message)
    return password


def bearer_token(request: web.Request) -> str | None:
    """The token of Bearer; any other value as it is."""
    value = authorization(request)
    return value[7:].strip() if value and value[:7].lower() == "bearer " else value


def api_key(request: web.Request) -> str | None:
    """The value of X-Api-Key, which counts before that of Authorization."""
    return request.headers.get(API_KEY_HEADER) or authorization(request)


IN_HEADER = KeyCarriage(authorization, (KEY,))
AS_BASIC = KeyCarriage(basic_password, (BASIC, KEY))
AS_API_KEY = KeyCarriage(api_key, (API_KEY, KEY))
AS_BEARER = KeyCarriage(bearer_token, (BEARER, KEY))
IN_PATH = KeyCarriage(lambda request: request.match_info["hook"], ())

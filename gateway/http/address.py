"""
The table of addresses. `@Address(...)` above a handler declares everything about one address, as a row of the
table.

The rows produce the router, the 405 answer with `Allow`, admission, body reading, error answers, metric
labels and `/openapi.json`. A row names the types that decode its bodies, so the documentation cannot differ
from the code.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import ModuleType
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from aiohttp import web

from gateway.core.errors import Refusal
from gateway.core.schemas import OBJECT, Schema
from gateway.http import answers
from gateway.http.answers import JSON
from gateway.http.lists import ListDefinition
from gateway.http.requests import AddressHandler, Result, body_type, check_json_content_type
from gateway.people.authentication.bearer import AuthenticatedKey

Content: TypeAlias = "Mapping[str, type | Schema]"
Check: TypeAlias = "Callable[[web.Request], None]"
# Any, because rows name services of their subject that the server does not know
Guard: TypeAlias = "Callable[[web.Request, Any], None]"
People: TypeAlias = "Callable[[web.Request, Any], Awaitable[AuthenticatedKey | None]]"
# encodes a refusal; the float is the current time
ErrorForm: TypeAlias = "Callable[[web.Request, Refusal, float], web.Response]"
Served = TypeVar("Served", bound=AddressHandler)

REFUSALS: Mapping[int, str] = {
    400: "The body or a parameter breaks a rule that the message states",
    401: "The key is missing, unknown, disabled or deleted",
    403: "The key lacks the scope that the message names",
    404: "The resource does not exist",
    409: "The state of the resource does not allow the request",
    410: "The device was revoked, or the data that the cursor refers to was replaced",
    413: "The body is larger than the limit that the message names",
    415: "This address does not accept the media type or the content coding",
    422: (
        "The definition has errors, which `errors` lists with value and path; or the query exceeds a "
        "limit, and the message says how to narrow it"
    ),
    429: "A rate or concurrency limit was exceeded; Retry-After gives the seconds until a retry",
    500: "An internal error of Tollhouse",
    503: "Tollhouse cannot complete the request now; Retry-After gives the seconds until a retry",
}
READ = (400, 401, 403, 415, 429, 500, 503)
WRITE = (400, 401, 403, 413, 415, 429, 500, 503)
KEY_REUSED = 422
READING = frozenset({"GET", "HEAD"})

ERROR: Schema = {"$ref": "#/components/schemas/Error"}

_PARAMETER = re.compile(r"{(\w+)(?::([^{}]*))?}")
_ROWS = "__address_rows__"

# security schemes for key holders in OpenAPI
KEY, BASIC, BEARER, API_KEY = "key", "basic", "bearer", "api_key"
SESSION, CSRF = "session", "csrf"  # security schemes for operators

API_KEY_HEADER = "X-Api-Key"
CSRF_HEADER = "X-CSRF-Token"


class KeyCarriage(NamedTuple):
    """
    How a request carries its key: in the Authorization header, or in the header that clients of another
    product use.

    `find` returns the key. `schemes` are the names of OpenAPI's security schemes.
    """

    find: Callable[[web.Request], str | None]
    schemes: tuple[str, ...]


def authorization_header(request: web.Request) -> str | None:
    return request.headers.get("Authorization")


def basic_password(request: web.Request) -> str | None:
    """
    Return the password of Basic credentials as the key, with any user name. Return any other Authorization
    value unchanged. Raises Refusal 401.
    """
    value = authorization_header(request)
    if value is None or value[:6].lower() != "basic ":
        return value
    try:
        _, colon, password = base64.b64decode(value[6:].strip(), validate=True).decode().partition(":")
    except ValueError as error:  # the header is not base64 or not UTF-8
        raise Refusal(401, "bad_basic", "The Basic credentials cannot be read.") from error
    if not colon:
        message = "The Basic credentials have no password. Send the key as the password."
        raise Refusal(401, "bad_basic", message)
    return password


def bearer_token(request: web.Request) -> str | None:
    """Return the token of a Bearer Authorization. Return any other Authorization value unchanged."""
    value = authorization_header(request)
    return value[7:].strip() if value and value[:7].lower() == "bearer " else value


def api_key(request: web.Request) -> str | None:
    return request.headers.get(API_KEY_HEADER) or authorization_header(request)


IN_HEADER = KeyCarriage(authorization_header, (KEY,))
AS_BASIC = KeyCarriage(basic_password, (BASIC, KEY))
AS_API_KEY = KeyCarriage(api_key, (API_KEY, KEY))
AS_BEARER = KeyCarriage(bearer_token, (BEARER, KEY))
IN_PATH = KeyCarriage(lambda request: request.match_info["hook"], ())


def plain_error_response(_: web.Request, error: Refusal, __: float) -> web.Response:
    return answers.refusal_response(error)


async def _refuse_without_handler(_: Any) -> Result:
    raise NotImplementedError("this address has no handler: write its row as a decorator of the handler")


class BodyLimit(NamedTuple):
    """
    The maximum size of a body, and the setting that states it, or "". `texts` is the maximum number of JSON texts in
    the body with the name of its setting. Bodies so small that their texts need no limit have None.
    """

    setting: str
    bytes: Callable[[Any], int]
    texts: tuple[str, Callable[[Any], int]] | None = None


# Bytes decoded in one call, which blocks the event loop.
WHOLE_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class ApiAddress:
    """
    The declaration of one address, a row of the table. Used as a decorator of its handler, it sets `handler`
    and `body`, and also `name` and `takes` if the row does not state them. `path` is in aiohttp's syntax.

    Checks run in this order: `guard`, method, key and `scope`, content coding, `check`, query, body size,
    bytes in flight, body. If `scope` is None, no key is required. Rows with the same path share the
    `endpoint` and `error_form` of the first row.
    """

    methods: tuple[str, ...]
    path: str
    summary: str
    name: str = ""  # name in OpenAPI; default: the handler's name
    handler: AddressHandler = _refuse_without_handler
    endpoint: str = ""  # label in metrics and log lines
    scope: str | None = None
    key: KeyCarriage = IN_HEADER
    sole_scope: bool = False  # the key must have this scope and no other
    # Rejects callers before the method is checked. The first row of a path decides.
    guard: Guard | None = None
    # admits people who send no key; None admits only keys
    people: People | None = None
    check: Check | None = None  # rejects media types and unknown formats
    body: type | None = None  # bytes, or the struct to decode; None reads no body
    takes: Content = field(default_factory=dict)
    may_be_empty: bool = False  # accepts an empty body as {}
    passes: tuple[str, ...] = ()  # content codings that a body stored as it arrives may keep
    # limit of a body; None means WHOLE_BYTES for a struct, server.max_body_bytes for bytes
    max_bytes: int | None = None
    limit: BodyLimit | None = None  # setting with another limit than max_bytes
    # Content of answers by status. A mapping that the handler returns is sent with the first status.
    gives: Mapping[int, Content] = field(default_factory=dict)
    errors: Content = field(default_factory=lambda: {JSON: ERROR})
    refusals: tuple[int, ...] = WRITE
    error_form: ErrorForm = plain_error_response
    # False for lists, which check their own parameters
    checks_query: bool = True
    required: tuple[str, ...] = ()  # query parameters
    optional: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()  # query parameters that may be repeated
    # values of path parameters whose pattern matches any text
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lists: ListDefinition[Any] | None = None  # the list whose page is the response
    item: type | Schema = field(default_factory=lambda: OBJECT)
    # whether the Idempotency-Key header is used; other addresses ignore it
    takes_idempotency_key: bool = False
    # whether a request waits for a turn because of its memory and processor time (see [answers])
    in_turn: bool = False
    # function that returns whether a body needs a turn; None means that each does
    asks_much: Callable[[Any], bool] | None = None

    def __call__(self, handler: Served) -> Served:
        """
        Register this address for a handler, which may have several. If the body of the handler is a struct,
        it is received as JSON unless this address states another media type.
        """
        body = body_type(handler)
        takes = {JSON: body} if body not in (None, bytes) and not self.takes else self.takes
        row = replace(self, handler=handler, name=self.name or handler.__name__, body=body, takes=takes)
        vars(handler)[_ROWS] = (row, *addresses_of_handler(handler))
        return handler

    @cached_property
    def status(self) -> int:
        return next(iter(self.gives), 200)

    @property
    def documented_path(self) -> str:
        """Return the path as OpenAPI shows it, without the patterns of parameters."""
        return _PARAMETER.sub(r"{\1}", self.path)

    @property
    def path_parameters(self) -> Mapping[str, tuple[str, ...]]:
        """
        Return the path's parameters with their allowed values, such as those of `{type:allocation|metric}`,
        or () for any.
        """
        parameters = {}
        for name, pattern in _PARAMETER.findall(self.path):
            fixed = tuple(pattern.split("|")) if re.fullmatch(r"\w+(\|\w+)+", pattern) else ()
            parameters[name] = self.choices.get(name, fixed)
        return parameters

    @property
    def documented_note(self) -> str:
        if self.takes_idempotency_key or READING.issuperset(self.methods):
            return ""
        return "The Idempotency-Key header is ignored."

    @property
    def documented_refusals(self) -> Mapping[int, str]:
        meanings = {status: REFUSALS[status] for status in self.refusal_statuses}
        if self.takes_idempotency_key:
            meanings[KEY_REUSED] = (
                "The Idempotency-Key belongs to another body; nothing of this body was stored"
            )
        return meanings

    @property
    def refusal_statuses(self) -> Sequence[int]:
        """
        Return the error statuses of the address. If its requests wait for a turn, 422 and 429 are added.
        """
        return sorted({*self.refusals, 422, 429}) if self.in_turn else self.refusals

    def needs_query_turn(self, body: object) -> bool:
        return self.in_turn and (self.asks_much is None or self.asks_much(body))

    @property
    def operation_ids_by_method(self) -> Mapping[str, str]:
        first, *other_methods = (method for method in self.methods if method != "HEAD")
        return {first: self.name, **{method: f"{self.name}_by_{method.lower()}" for method in other_methods}}

    @property
    def security(self) -> list[dict[str, list[str]]]:
        """Return OpenAPI's security requirements, empty if no key is required."""
        return [{scheme: [self.scope]} for scheme in self.key.schemes] if self.scope else []


def key_call(
    method: str,
    path: str,
    scope: str,
    summary: str,
    *,
    endpoint: str,
    name: str = "",
    gives: Content | None = None,
    lists: ListDefinition[Any] | None = None,
    item: type | Schema = OBJECT,
    may_be_empty: bool = False,
    required: tuple[str, ...] = (),
    repeated: tuple[str, ...] = (),
    in_turn: bool = False,
    refusals: tuple[int, ...] | None = None,
) -> Callable[[Served], Served]:
    """
    Return a decorator that registers an address for key holders, with JSON in both directions and the usual
    error statuses.
    """

    def register_address_of_handler(handler: Served) -> Served:
        has_body = body_type(handler) is not None
        row = ApiAddress(
            methods=("GET", "HEAD") if method == "GET" else (method,),
            path=path,
            name=name,
            summary=summary,
            endpoint=endpoint,
            scope=scope,
            check=check_json_content_type if has_body and not may_be_empty else None,
            may_be_empty=may_be_empty,
            gives={200: gives} if gives else {},
            lists=lists,
            item=item,
            required=required,
            repeated=repeated,
            in_turn=in_turn,
            refusals=refusals or (*(WRITE if has_body else READ), 404, 409),
        )
        return row(handler)

    return register_address_of_handler


def addresses_of_handler(handler: object) -> tuple[Any, ...]:
    rows: tuple[Any, ...] = getattr(handler, "__dict__", {}).get(_ROWS, ())
    return rows


def addresses_defined_in_module(
    module: ModuleType, addresses_of_definition: Callable[[Any], Iterable[Any]] = lambda _: ()
) -> Iterator[Any]:
    """
    Yield the addresses that a module defines, in its order: those in its ROWS, those of its handlers, and
    those that `addresses_of_definition` returns for its other definitions.
    """
    for name, value in vars(module).items():
        if name == "ROWS" and isinstance(value, tuple):
            yield from value
        elif getattr(value, "__module__", "") == module.__name__:
            yield from addresses_of_handler(value) or addresses_of_definition(value)

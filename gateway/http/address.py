"""
A row of the table of addresses: the whole declaration of one address. It stands above its handler: `@Address(...)`.

Router, 405 with Allow, admission, body reading, error answers, labels of metrics and `/openapi.json` are
made from it. Bodies are named by the types that decode them and lists by the lists themselves, so that
neither can drift.

A request carries its key in the Authorization header, or as another product's clients send it.
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

from gateway.http import answers
from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import AddressHandler, Result, check_json, named_body
from gateway.http.services import Services
from gateway.people.authentication.access import Bearer
from gateway.service.errors import Refusal
from gateway.service.schemas import OBJECT, Schema

Content: TypeAlias = "Mapping[str, type | Schema]"  # media type -> the type of the body, or its schema
Check: TypeAlias = "Callable[[web.Request], None]"
Guard: TypeAlias = "Callable[[web.Request, Services], None]"
People: TypeAlias = "Callable[[web.Request, Services], Awaitable[Bearer | None]]"
ErrorForm: TypeAlias = "Callable[[web.Request, Refusal, float], web.Response]"  # with the time
Served = TypeVar("Served", bound=AddressHandler)

REFUSALS: Mapping[int, str] = {
    400: "The body or a parameter breaks a rule that the message states",
    401: "No key, or one that is unknown, disabled or deleted",
    403: "The key lacks the scope that the message names",
    404: "There is no such thing",
    409: "The state of the thing does not allow it",
    410: "It is over: the device was revoked, or what the cursor is of was replaced",
    413: "The body is over the limit that the message names",
    415: "The media type or the content coding is not taken here",
    422: "The definition has faults: `errors` has each of them with its value and its path; or the question asks too "
    "much: the message says what to ask instead",
    429: "Over a limit; Retry-After says when to repeat",
    500: "Tollhouse made a mistake",
    503: "Nothing was kept; Retry-After says when to repeat",
}
READ = (400, 401, 403, 415, 429, 500, 503)
WRITE = (400, 401, 403, 413, 415, 429, 500, 503)
KEY_REUSED = 422
READING = frozenset({"GET", "HEAD"})

ERROR: Schema = {"$ref": "#/components/schemas/Error"}

_PARAMETER = re.compile(r"{(\w+)(?::([^{}]*))?}")
_ROWS = "__address_rows__"  # of a handler

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


def plain_error(_: web.Request, error: Refusal, __: float) -> web.Response:
    """Answer `{"error": {"type", "message"}}`."""
    return answers.refusal(error)


async def _no_handler(_: Any) -> Result:
    raise NotImplementedError("the row of an address stands above its handler")


@dataclass(frozen=True)
class BodyLimit:
    """The setting that bounds the bodies of an address, and its value now."""

    setting: str
    bytes: Callable[[Services], int]


WHOLE_BYTES: Final = 1024 * 1024  # of a body that is decoded in one go: the event loop waits for that


@dataclass(frozen=True, kw_only=True)
class Address:
    """
    One address: `methods` of one meaning (HEAD is answered as GET is) at one path in aiohttp's syntax. It decorates its
    handler, which gives it `handler`, `body` and, unless stated, `name` and `takes`; `collect` finds it there.

    The order of the checks: `guard`, method, key and `scope` (None: no key is required), content coding,
    `check`, query, size, bytes in flight, body. Rows of one path share `endpoint` and `error_form`; those of
    the first row count.
    """

    methods: tuple[str, ...]
    path: str
    summary: str
    name: str = ""  # of the operation in the OpenAPI document; the handler's, unless given
    handler: AddressHandler = _no_handler
    endpoint: str = ""  # the label in metrics and log lines
    scope: str | None = None
    key: KeyCarriage = IN_HEADER
    sole_scope: bool = False  # the key must have this scope and no other
    guard: Guard | None = None  # who may not ask at all, by any method; that of the first row counts
    people: People | None = (
        None  # who asks without a key, before anything of the request is judged; None: nobody
    )
    check: Check | None = None  # what is refused before the query is looked at: media types, unknown formats
    body: type | None = None  # bytes, or the struct that decodes it; None: no body is read
    takes: Content = field(default_factory=dict)
    may_be_empty: bool = False  # an empty body stands for {}
    passes: tuple[str, ...] = ()  # content codings of bodies that are kept as they come
    max_bytes: int | None = None  # None: WHOLE_BYTES of a struct, server.max_body_bytes of bytes
    limit: BodyLimit | None = None  # in place of either: another setting
    gives: Mapping[int, Content] = field(default_factory=dict)  # the first status is that of mappings
    errors: Content = field(default_factory=lambda: {JSON: ERROR})
    refusals: tuple[int, ...] = WRITE
    error_form: ErrorForm = plain_error
    checks_query: bool = True  # refuse parameters that are not named below; lists do so themselves
    required: tuple[str, ...] = ()  # query parameters that must be given
    optional: tuple[str, ...] = ()
    repeated: tuple[str, ...] = ()  # query parameters that may be given more than once
    choices: Mapping[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # of a parameter that matches any text
    lists: List[Any] | None = None  # the answer is a page of this list
    item: type | Schema = field(default_factory=lambda: OBJECT)  # a row of it
    takes_idempotency_key: bool = False  # the header, which everywhere else is ignored
    in_turn: bool = False  # it takes memory and processor time: answered in turn, within [answers]
    asks_much: Callable[[Any], bool] | None = None  # of the body: whether it takes a turn; None: each does

    def __call__(self, handler: Served) -> Served:
        """
        Give a handler this row, with the body that its request names: a struct comes as JSON, unless the row says more.

        A handler of several addresses has a row for each.
        """
        body = named_body(handler)
        takes = {JSON: body} if body not in (None, bytes) and not self.takes else self.takes
        row = replace(self, handler=handler, name=self.name or handler.__name__, body=body, takes=takes)
        vars(handler)[_ROWS] = (row, *rows_of(handler))
        return handler

    @cached_property
    def status(self) -> int:
        return next(iter(self.gives), 200)

    @property
    def documented_path(self) -> str:
        """The path without patterns."""
        return _PARAMETER.sub(r"{\1}", self.path)

    @property
    def path_parameters(self) -> Mapping[str, tuple[str, ...]]:
        """The parameters in the path, each with its values if they are fixed: `{type:allocation|metric}`."""
        found = {}
        for name, pattern in _PARAMETER.findall(self.path):
            fixed = tuple(pattern.split("|")) if re.fullmatch(r"\w+(\|\w+)+", pattern) else ()
            found[name] = self.choices.get(name, fixed)
        return found

    @property
    def note(self) -> str:
        """Return the note that the OpenAPI document adds to the summary; "" for none."""
        if self.takes_idempotency_key or READING.issuperset(self.methods):
            return ""
        return "An Idempotency-Key is ignored."

    @property
    def documented_refusals(self) -> Mapping[int, str]:
        """Return the meaning of each status in `refusals`."""
        found = {status: REFUSALS[status] for status in self.given_refusals}
        if self.takes_idempotency_key:
            found[KEY_REUSED] = "The Idempotency-Key stands for another body; nothing of this one was kept"
        return found

    @property
    def given_refusals(self) -> Sequence[int]:
        """`refusals`, with those of a question that asks too much."""
        return sorted({*self.refusals, 422, 429}) if self.in_turn else self.refusals

    def takes_turn(self, body: object) -> bool:
        return self.in_turn and (self.asks_much is None or self.asks_much(body))

    @property
    def operations(self) -> Mapping[str, str]:
        """The documented methods, each with the name of its operation."""
        first, *others = (method for method in self.methods if method != "HEAD")
        return {first: self.name, **{method: f"{self.name}_by_{method.lower()}" for method in others}}

    @property
    def security(self) -> list[dict[str, list[str]]]:
        """The `security` of the OpenAPI document: ways to be admitted; empty where no key is required."""
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
    lists: List[Any] | None = None,
    item: type | Schema = OBJECT,
    may_be_empty: bool = False,
    required: tuple[str, ...] = (),
    repeated: tuple[str, ...] = (),
    in_turn: bool = False,
    refusals: tuple[int, ...] | None = None,
) -> Callable[[Served], Served]:
    """Give a handler the row of one call of key holders: JSON in and out, with the refusals of such calls."""

    def give(handler: Served) -> Served:
        has_body = named_body(handler) is not None
        row = Address(
            methods=("GET", "HEAD") if method == "GET" else (method,),
            path=path,
            name=name,
            summary=summary,
            endpoint=endpoint,
            scope=scope,
            check=check_json if has_body and not may_be_empty else None,
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

    return give


def rows_of(handler: object) -> tuple[Any, ...]:
    """Return the rows of a handler in the order in which they stand above it; nothing of anything else."""
    found: tuple[Any, ...] = getattr(handler, "__dict__", {}).get(_ROWS, ())
    return found


def collect(module: ModuleType, more: Callable[[Any], Iterable[Any]] = lambda _: ()) -> Iterator[Any]:
    """
    Return the rows of a module in its order: those of the handlers that it defines, of its tuple ROWS, and by `more`
    those of anything else that it defines.
    """
    for name, value in vars(module).items():
        if name == "ROWS" and isinstance(value, tuple):
            yield from value
        elif getattr(value, "__module__", "") == module.__name__:
            yield from rows_of(value) or more(value)

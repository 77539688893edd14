"""Admitted requests of the operator API, their JSON bodies and their JSON errors."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any, Generic, TypeVar

import msgspec
from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.typedefs import Handler

from gateway.core.errors import Refusal
from gateway.core.faults import InvalidDefinition
from gateway.http.address import BodyLimit
from gateway.http.answers import uncached_json
from gateway.http.error_table import operator_refusal_for_error
from gateway.http.lists import ListDefinition, Rows
from gateway.http.requests import AdmittedRequest
from gateway.money.costs.reader import CostReader
from gateway.operations.holders.operators import InstallationServices, PeopleServices
from spool.errors import Invalid, SpoolError
from spool.ledger.ledger import Ledger
from spool.ledger.queries import LedgerDefinitions
from spool.ledger.slices import SlicedLedger
from spool.registry.operators import Actor, SignInSession
from spool.registry.registry import Registry
from spool.registry.roles import Rights, RoleHolder, session_holder
from spool.registry.texts import check_one_of

Services = TypeVar("Services")
Body = TypeVar("Body")
Row = TypeVar("Row")

_log = logging.getLogger(__name__)
T = TypeVar("T")

MAX_BODY_BYTES = 256 * 1024
JSON_LIMIT = BodyLimit("", lambda _: MAX_BODY_BYTES)
MAX_FILE_NAME = 100
FORMAT, FORMATS = "format", ("json", "csv")
CSV_PAGE_ROWS = 10_000  # rows that a CSV of a list reads at once
_PIECE = 256 * 1024  # bytes of a file written at once, or of a body searched at once


@dataclass(slots=True, kw_only=True)
class OperatorRequest(AdmittedRequest[Body], Generic[Services, Body]):
    """
    An admitted request of the operator API.

    `services` is the group of services that the handler's annotation names, as in
    `OperatorRequest[SpoolServices, None]`. Every handler may use `shared`. `whole_ledger` is the ledger with
    all people's calls; each use states above it why it may (`# whole: ...`).

    `session` and `asker` (the signed-in user as a role holder) are None on the operator socket and before a
    sign-in. `role` is the role of the account or of the console link. `rights` are the user's current rights,
    including those from roles stored as resources. A handler that reads the body itself calls `check_again`
    afterwards, because the rights may have changed while the body arrived.
    """

    services: Services
    shared: InstallationServices
    whole_ledger: Ledger
    actor: Actor
    role: str
    rights: Rights
    session: SignInSession | None = None
    asker: RoleHolder | None = None
    check_again: Callable[[], Awaitable[object]] | None = None

    def path_number(self, name: str) -> int:
        """Return a part of the path as a number. Raises Refusal 404 if it is not a number."""
        text = self.path_parameter(name)
        if not (text.isascii() and text.isdecimal() and len(text) < 19):
            raise Refusal(404, "not_found", f"{name} must be a whole number")
        return int(text)

    def now(self) -> float:
        return self.shared.clock.now()

    @property
    def cost_reader(self) -> CostReader:
        return CostReader(
            whole=self.whole_ledger, require_registry=self.shared.require_registry, rights=self.rights
        )

    @property
    def definitions(self) -> LedgerDefinitions:
        return self.whole_ledger

    @property
    def has_limited_data_access(self) -> bool:
        """Return whether the person may see only some calls, or none."""
        return self.cost_reader.has_limited_data_access

    @property
    def ledger(self) -> SlicedLedger:
        """Return the totals, limited to the calls that the person may see."""
        return self.cost_reader.ledger

    @property
    def registry(self) -> Registry:
        return self.shared.require_registry()

    @asynccontextmanager
    async def audited_change(
        self, action: str, target: str, after: Mapping[str, object]
    ) -> AsyncIterator[None]:
        """
        Write the audit row of a change to the spool before the block makes the change.

        The audit list and the spool are separate files. A crash in between may leave an audit row without a
        change, but never a change without an audit row. If the change fails, a second row records the failure.
        """
        registry = self.registry
        await registry.audit_change(self.actor, action, target, after=after)
        try:
            yield
        except Exception:
            await registry.audit_change(self.actor, f"{action}.failed", target)
            raise

    async def list_page(self, list_definition: ListDefinition[Row], rows: Rows[Row]) -> Mapping[str, object]:
        check_one_of(FORMAT, self.http.query.get(FORMAT, FORMATS[0]), FORMATS)
        if self.is_csv_requested:
            if "limit" in self.http.query:
                raise Invalid("format=csv returns all rows, so use it without limit")
            list_definition = replace(list_definition, default_limit=CSV_PAGE_ROWS, max_limit=CSV_PAGE_ROWS)
        url = self.http.rel_url.without_query_params(FORMAT)  # a list has no such filter
        request = replace(self, http=self.http.clone(rel_url=url)) if FORMAT in self.http.query else self
        return await request.read_list_page(list_definition, rows, self.shared)

    @property
    def is_csv_requested(self) -> bool:
        return self.http.query.get(FORMAT) == FORMATS[1]


def session_role_holder(people: PeopleServices, session: SignInSession) -> RoleHolder:
    role_holder = session_holder(session)
    return replace(
        role_holder, has_default_role=is_given_default_role(people, session.issuer, role_holder.groups)
    )


def is_given_default_role(people: PeopleServices, issuer: str, groups: Collection[str]) -> bool:
    """Return whether a provider's user with these groups gets the default role, by the current settings."""
    oidc = people.oidc
    if oidc is None or not issuer:
        return False
    from gateway.people.authentication.oidc.people import has_default_role

    return has_default_role(groups, oidc.settings)


MULTIPART = "multipart/form-data"


async def store_uploaded_files(
    request: OperatorRequest[Any, None], directory: Path, *, max_bytes: int, most_files: int, limit: str
) -> list[tuple[str, Path]]:
    """
    Store the files of a form in a directory. Return their names and paths, in the order of the form.

    Raises Refusal 413 if all files together have more than `max_bytes` bytes, which is the setting `limit`, and
    Invalid if the form has anything but 1 to `most_files` files. The request's rights are checked again.
    """
    if request.http.content_type != MULTIPART:
        raise Refusal(415, "unsupported_media_type", f"send the files as {MULTIPART}")
    files: list[tuple[str, Path]] = []
    size = 0
    try:
        async for part in await request.http.multipart():
            if not isinstance(part, BodyPartReader) or not part.filename or len(files) >= most_files:
                raise Invalid(f"the form must have 1 to {most_files} files and nothing else")
            path = directory / str(len(files))
            with path.open("wb") as file:
                while piece := await part.read_chunk(_PIECE):
                    size += len(piece)
                    if size > max_bytes:
                        raise Refusal(
                            413, "too_large", f"the files have more than {max_bytes} bytes ({limit})"
                        )
                    await asyncio.to_thread(file.write, piece)
            files.append((PurePath(part.filename).name[:MAX_FILE_NAME], path))
    # errors that aiohttp raises for malformed forms
    except (ValueError, AssertionError, BadHttpMessage) as error:
        raise Invalid("the form is damaged; send it again") from error
    if not files:
        raise Invalid("the form has no file")
    if request.check_again is not None:
        await request.check_again()
    return files


class RequestBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A JSON body that rejects unknown fields."""


async def read_json_body(request: web.Request, kind: type[T], limit: BodyLimit, services: object) -> T:
    """
    Decode the request's JSON body. Raises Refusal 400 that names the wrong field, or 413 above the limit.
    """
    if request.content_type != "application/json":
        raise Refusal(415, "unsupported_media_type", "send the body as application/json")
    body = await read_bounded_body(request, max_bytes=limit.bytes(services), setting=limit.setting)
    if limit.texts is not None:
        setting, max_texts = limit.texts[0], limit.texts[1](services)
        if await asyncio.to_thread(_count_texts, body) > max_texts:
            message = f"the body has more than {max_texts:,} names and texts: send fewer, or raise {setting}"
            raise Refusal(413, "too_large", message)
    decode = partial(msgspec.json.decode, body, type=kind)
    try:
        return decode() if len(body) <= MAX_BODY_BYTES else await asyncio.to_thread(decode)
    except UnicodeDecodeError:
        raise Refusal(
            400, "bad_payload", "the body does not match the schema of this address: it is not UTF-8"
        ) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Refusal(
            400, "bad_payload", f"the body does not match the schema of this address: {error}"
        ) from None


def _count_texts(body: bytes) -> int:
    """
    Return the number of JSON texts, names of members included. The decoder makes an object of each in one call, during
    which no other thread runs, so they are counted before, a piece in each call.
    """
    quotes = begin = 0
    while begin < len(body):
        piece = body[begin : begin + _PIECE]
        backslashes = len(piece) - len(piece.rstrip(b"\\"))
        if backslashes % 2 and len(piece) == _PIECE:
            piece = piece[:-1]  # it escapes the first character of the next piece
        begin += len(piece)
        quotes += piece.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"')
    return quotes // 2


async def read_bounded_body(
    request: web.Request, *, max_bytes: int = MAX_BODY_BYTES, setting: str = ""
) -> bytes:
    """
    Read the body. Raises Refusal 413, which names the `setting` of this limit, if the body exceeds `max_bytes`.
    """
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > max_bytes:
            message = f"the body is larger than {max_bytes // 1024} KiB{setting and f' ({setting})'}"
            raise Refusal(413, "too_large", message)
    return bytes(body)


@web.middleware
async def answer_errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """
    Answer every failure as {"error": {"type", "message"}}. An unexpected failure is logged and answered with 500.
    """
    try:
        return await handler(request)
    except Refusal as refusal:
        return _refusal_response(refusal)
    except InvalidDefinition as error:
        faults = [fault._asdict() for fault in error.faults]
        error_body = {"type": "invalid_definition", "message": f"the definition is not valid: {error}"}
        return uncached_json({"error": error_body, "errors": faults}, 422)
    except SpoolError as error:
        return _refusal_response(operator_refusal_for_error(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        type, message = _HTTP.get(error.status, ("refused", error.reason))
        return _error_response(error.status, type, message, None, {"Allow": error.headers.get("Allow", "")})
    except Exception:  # noqa: BLE001 - the request boundary: one request fails, the process goes on
        _log.exception("an operator request failed", extra={"action": "operator_request_failed"})
        return _error_response(500, "internal", "internal error of Tollhouse; the server log has the reason")


_HTTP = {
    404: ("not_found", "this path does not exist"),
    405: ("method_not_allowed", "this path does not accept this method"),
}


def _refusal_response(refusal: Refusal) -> web.Response:
    return _error_response(refusal.status, refusal.type, refusal.message, refusal.retry_after_s)


def _error_response(
    status: int,
    type: str,
    message: str,
    retry_after_s: int | None = None,
    headers: dict[str, Any] | None = None,
) -> web.Response:
    extra = {name: text for name, text in (headers or {}).items() if text}
    if retry_after_s is not None:
        extra["Retry-After"] = str(retry_after_s)
    return uncached_json({"error": {"type": type, "message": message}}, status, extra)

"""The operator API for enrolment tokens: list, create and revoke them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.devices.lifecycle import DeviceLifecycle
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.money.costs.times import parse_moment
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import MoneyCaller, ObjectFields, ObjectFileHandler
from gateway.operations.holders.operators import SenderServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.admission import missing_right_refusal
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid, NotAllowed
from spool.record import utc_iso
from spool.registry.enrolment_tokens import (
    PER_HOUR,
    STATES,
    EnrolmentToken,
    EnrolmentTokenTable,
    TokenDraft,
    new_token_text,
)
from spool.registry.field_notes import example, words
from spool.registry.file_owners import owner_document_id
from spool.registry.permission_sets import API_KEY_MANAGEMENT, OPERATE_SPOOL, VIEW_OPERATION
from spool.registry.registry import Registry

MAX_SERIALS = 5000  # with 50 characters each, they fit into a request of 256 KiB


class ListedToken(msgspec.Struct, frozen=True):
    """A token with its number of used uses and its state at the time of the request."""

    token: EnrolmentToken
    used: int
    state: str


class NewToken(RequestBody):
    """The fields of the tokens to create."""

    name: Annotated[str, words("The name of the token.")]
    expires_at: Annotated[str, words("When the token expires: a time or a day, which is included.")]
    uses: Annotated[int, words("The number of devices that the token may enrol.")] = 1
    per_hour: Annotated[
        int, words("The number of devices that the token may enrol within an hour, or 0 for no limit.")
    ] = PER_HOUR
    labels: Annotated[
        dict[str, str], words("Labels of the devices that enrol with the token, as name and value.")
    ] = msgspec.field(default_factory=dict)
    serials: Annotated[
        list[str], words("Serial numbers of machines. Each gets a token of its own for one use.")
    ] = msgspec.field(default_factory=list)


class Revocation(RequestBody):
    """A request to revoke enrolment tokens."""

    devices: Annotated[bool, words("Whether the devices that the token enrolled are revoked as well.")] = (
        False
    )


def describe_token(row: ListedToken) -> dict[str, object]:
    token = row.token
    return {
        "id": token.id,
        "name": token.name,
        "state": row.state,
        "used": row.used,
        "uses": token.uses,
        "per_hour": token.per_hour,
        "serial": token.serial or None,
        "labels": dict(token.labels),
        "created": utc_iso(token.created),
        "created_by": token.created_by,
        "expires_at": utc_iso(token.expires_at),
        "revoked_at": utc_iso(token.revoked_at),
    }


TOKENS: ListDefinition[ListedToken] = ListDefinition(
    root="tokens",
    show=describe_token,
    identity=Sort(value=lambda row: row.token.id),
    sorts={
        "name": Sort(value=lambda row: row.token.name),
        "state": Sort(value=lambda row: row.state),
        "used": Sort(value=lambda row: row.used),
        "created": Sort(value=lambda row: row.token.created),
        "expires_at": Sort(value=lambda row: row.token.expires_at),
    },
    default_sort=("created", "desc"),
    filters={
        "id": Filter(values=lambda row: (row.token.id,), is_open=True),
        "name": Filter(values=lambda row: (row.token.name,), is_open=True),
        "state": Filter(values=lambda row: (row.state,), valid_values=STATES),
        "serial": Filter(values=lambda row: (row.token.serial,), is_open=True),
    },
)


class TokenItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the token."), example("5f0c1b7a9e3d2846")]
    name: Annotated[str, words("The name of the token."), example("jamf-q1")]
    state: Annotated[str, words("The state of the token."), example("active")]
    used: Annotated[
        int, words("The number of devices that used the token, including deleted ones."), example(212)
    ]
    uses: Annotated[int, words("The number of devices that the token may enrol."), example(500)]
    per_hour: Annotated[
        int,
        words("The number of devices that the token may enrol within an hour, or 0 for no limit."),
        example(200),
    ]
    serial: Annotated[
        str | None,
        words("The serial number of the only machine that may use the token, or null."),
        example(None),
    ]
    labels: Annotated[dict[str, str], words("Labels as name and value."), example({"team": "search"})]
    created: Annotated[str, words("When the token was created."), example("2026-11-27T01:45:44.218Z")]
    created_by: Annotated[str, words("Who created the token."), example("ada@example.com")]
    expires_at: Annotated[str, words("When the token expires."), example("2026-12-11T01:45:44.000Z")]
    revoked_at: Annotated[str | None, words("When the token was revoked, or null."), example(None)]
    secret: Annotated[str | UnsetType, words("The token itself. Only the answer that creates it has it.")] = (
        UNSET
    )


class CreateTokensAnswer(msgspec.Struct, kw_only=True):
    tokens: Annotated[list[TokenItem], words("The enrolment tokens.")]


class RevokedTokens(msgspec.Struct, kw_only=True):
    tokens: Annotated[int, words("The number of revoked tokens."), example(1)]
    devices: Annotated[int, words("The number of devices that were revoked."), example(212)]


class RevokeTokensAnswer(msgspec.Struct, kw_only=True):
    revoked: Annotated[RevokedTokens, words("What was revoked.")]


@operator_call("GET", "/fleet/tokens", VIEW_OPERATION, "List enrolment tokens", lists=TOKENS, item=TokenItem)
async def list_tokens(request: OperatorRequest[SenderServices, None]) -> Result:
    rows = [_with_use_count(request, token) for token in _token_table(request).all()]
    return await request.list_page(TOKENS, MemoryRows(rows))


@operator_call(
    "POST",
    "/fleet/tokens",
    API_KEY_MANAGEMENT,
    "Create enrolment tokens",
    status=201,
    answers=CreateTokensAnswer,
)
async def create_tokens(request: OperatorRequest[SenderServices, NewToken]) -> Result:
    """Create a token, or one token per serial number. Their secrets are returned only here."""
    body = request.body
    serials = [serial.strip() for serial in body.serials]
    if len(serials) > MAX_SERIALS:
        raise Invalid(
            f"serials must have at most {MAX_SERIALS} serial numbers; send the others in another request"
        )
    if serials and body.uses != 1:
        raise Invalid("a token for a serial number has a single use: leave out `uses`")
    if "" in serials or len({serial.casefold() for serial in serials}) < len(serials):
        raise Invalid("each serial number must appear once and must not be empty")
    expires_at = parse_moment("expires_at", body.expires_at, end=True).timestamp()
    drafts = [
        TokenDraft(
            name=body.name,
            uses=body.uses,
            expires_at=expires_at,
            labels=body.labels,
            serial=serial,
            per_hour=body.per_hour,
        )
        for serial in serials or [""]
    ]
    made = await _token_table(request).create(drafts, actor=request.actor)
    return {
        "tokens": [
            {**describe_token(_with_use_count(request, token)), "secret": secret} for token, secret in made
        ]
    }


@operator_call(
    "POST",
    "/fleet/tokens/{id}/revoke",
    API_KEY_MANAGEMENT,
    "Revoke the tokens with this id or name",
    answers=RevokeTokensAnswer,
)
async def revoke_tokens(request: OperatorRequest[SenderServices, Revocation]) -> Result:
    if request.body.devices and OPERATE_SPOOL not in request.rights.permission_sets:
        raise missing_right_refusal(OPERATE_SPOOL, "revoking devices")
    tokens, devices = await _require_lifecycle(request).revoke_token(
        request.path_parameter("id"), request.actor, devices=request.body.devices
    )
    return {"revoked": {"tokens": tokens, "devices": devices}}


def _require_lifecycle(request: OperatorRequest[SenderServices, Any]) -> DeviceLifecycle:
    return request.services.require_devices()


def _token_table(request: OperatorRequest[SenderServices, Any]) -> EnrolmentTokenTable:
    return request.registry.enrolment_tokens


def _with_use_count(request: OperatorRequest[SenderServices, Any], token: EnrolmentToken) -> ListedToken:
    devices = _require_lifecycle(request).table.count_token_uses(token.id)
    return ListedToken(token, devices + token.spent, token.state(devices, request.now()))


class TokenInFile(RequestBody):
    """An enrolment token as a file states it. With a `serial`, it is for this machine only."""

    name: str
    expires_at: str
    uses: int = 1
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    serial: str = ""
    per_hour: int = PER_HOUR


class TokenFileHandler(ObjectFileHandler):
    """
    The enrolment tokens in files, without their secrets.

    A token that has ended appears only if a file states it. A token that leaves the files is revoked.
    """

    files = ResourceFiles(name="enrolment-tokens", key=("name", "serial"))
    noun = "enrolment token"
    action = EnrolmentTokenTable.action
    new = TokenInFile
    reads = VIEW_OPERATION
    changes = API_KEY_MANAGEMENT
    has_secret = makes_secrets = True

    async def rows_by_id(self, registry: Registry) -> Mapping[str, EnrolmentToken]:
        table, owners = registry.enrolment_tokens, registry.file_owners.all()
        live = {token.id for token in table.live_tokens()}
        stated = [
            token
            for token in table.all()
            if token.id in live or owner_document_id(self.action, token.id) in owners
        ]
        return {token.id: token for token in stated}

    async def find(self, registry: Registry, id: str) -> EnrolmentToken:
        return registry.enrolment_tokens.get(id)

    async def file_fields(self, registry: Registry, row: EnrolmentToken) -> ObjectFields:
        return {**await super().file_fields(registry, row), "expires_at": utc_iso(row.expires_at)}

    async def create(self, caller: MoneyCaller, new_values: TokenInFile, secret: str | None) -> str:
        table = caller.registry.enrolment_tokens
        [(token, _)] = await table.create(
            [_token_draft(new_values)], secret_text=secret or "", actor=caller.actor
        )
        return token.id

    async def change(
        self, caller: MoneyCaller, row: EnrolmentToken, new_values: TokenInFile, secret: str | None
    ) -> None:
        table = caller.registry.enrolment_tokens
        if secret is not None and not table.is_secret_of(row, secret):
            raise NotAllowed(
                "secret_file: the secret of a token cannot change; state a token with another name"
            )
        await table.edit(row.id, _token_draft(new_values), actor=caller.actor)

    async def delete(self, caller: MoneyCaller, row: EnrolmentToken) -> None:
        await caller.registry.enrolment_tokens.revoke(row.id, actor=caller.actor)

    def remark_in_apply_plan(self, row: EnrolmentToken) -> str:
        return "revoked, and stays revoked" if row.revoked_at is not None else ""

    def new_secret(self) -> str:
        return new_token_text()


def _token_draft(new_values: TokenInFile) -> TokenDraft:
    expires_at = parse_moment("expires_at", new_values.expires_at, end=True).timestamp()
    return TokenDraft(
        name=new_values.name,
        uses=new_values.uses,
        expires_at=expires_at,
        labels=new_values.labels,
        serial=new_values.serial,
        per_hour=new_values.per_hour,
    )


TOKEN_KIND = TokenFileHandler()

"""Operator API handlers for API keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, UnsetType

from gateway.core.fields import one_field_answer
from gateway.core.schemas import TEXT, array_schema, schema_with_description
from gateway.http.lists import Filter, ListDefinition, MemoryRows, SearchableObject, Sort, age_filter
from gateway.http.requests import Result
from gateway.money.costs.times import parse_moment
from gateway.operations.answers import DeletedItem
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import MoneyCaller, ObjectFields, ObjectFileHandler
from gateway.operations.holders.operators import SenderServices
from gateway.operations.people.scopes import scopes_without_operations
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.admission import missing_right_refusal
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from gateway.people.authentication.access import NOT_OPEN, ListedKey
from spool.errors import NotAllowed, NotThere
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.keys import DELETED, DISABLED, ENABLED, NOT_IN_USE, STATES, ApiKey
from spool.registry.permission_sets import API_KEY_MANAGEMENT, ORGANIZATION_ADMINISTRATION, VIEW_OPERATION
from spool.registry.registry import Registry
from spool.registry.scopes import SCOPES, USE_CASES
from spool.registry.tables.keys import KeyTable

DEFAULT_OVERLAP_S = 86400.0
_OF_ROLES = "access-control:"  # the group of scopes that manage roles


_Name = Annotated[str, words("The name of the key.")]
_Description = Annotated[str, words("The description of the key.")]
_Scopes = Annotated[tuple[str, ...], words("The scopes of the key.")]
_UseCases = Annotated[tuple[str, ...], words("The use cases of the key.")]
_Labels = Annotated[dict[str, str], words("Labels as name and value.")]
_ExpiresAt = Annotated[
    str | None, words("When the key expires: a time or a day, which is included. Null means never.")
]


class NewKey(RequestBody):
    name: _Name
    scopes: _Scopes = ()
    use_cases: _UseCases = ()
    description: _Description = ""
    labels: _Labels = msgspec.field(default_factory=dict)
    expires_at: _ExpiresAt = None


class KeyChanges(RequestBody):
    """
    Changes of a key. Omitted fields stay unchanged.
    """

    version: Annotated[
        str | None,
        words("The version of the key that you read. If the key has changed since, the change is refused."),
    ] = None
    name: _Name | None = None
    scopes: _Scopes | None = None
    use_cases: _UseCases | None = None
    description: _Description | None = None
    labels: _Labels | None = None
    expires_at: _ExpiresAt | UnsetType = UNSET


class KeySecret(RequestBody):
    secret: Annotated[str, words("The secret of the key to identify.")]


class Rotation(RequestBody):
    overlap_s: Annotated[float, words("The seconds for which the previous secret stays valid.")] = (
        DEFAULT_OVERLAP_S
    )


def describe_key(key: ApiKey, now: float) -> dict[str, object]:
    """
    Describe a key for lists and responses. `state` is the status, or Expired. `expires_at` is present only if
    the key expires. A ListedKey may have further fields, such as the time of its last record.
    """
    more: dict[str, object] = {} if key.expires_at is None else {"expires_at": utc_iso(key.expires_at)}
    if isinstance(key, ListedKey):
        more |= {} if key.last_test is None else {"last_test": utc_iso(key.last_test)}
        more |= {} if key.last_record is None else {"last_record": utc_iso(key.last_record)}
        more |= {"allowed_addresses": list(key.addresses)} if key.addresses else {}
        if tries := key.expired_tries:
            more |= {"refused_since_expiry": tries.count, "last_refused": utc_iso(tries.newest)}
    return {
        "name": key.name,
        "description": key.description,
        "status": key.status,
        "state": key.state(now),
        "scopes": list(key.scopes),
        "use_cases": list(key.use_cases),
        "scope_count": key.scope_count,
        "labels": dict(key.labels),
        "created_by": key.created_by,
        "updated_by": key.updated_by,
        "last_modified": utc_iso(key.last_modified),
        "last_accessed": NOT_IN_USE if key.last_accessed is None else utc_iso(key.last_accessed),
        **more,
        "version": key.version,
    }


KEYS: ListDefinition[ListedKey] = ListDefinition(
    root="keys",
    show=lambda key: describe_key(key, key.listed_at),
    identity=Sort(value=lambda key: key.id),
    sorts={
        "name": Sort(value=lambda key: key.name),
        "description": Sort(value=lambda key: key.description),
        "status": Sort(value=lambda key: key.status),
        "state": Sort(value=lambda key: key.state(key.listed_at)),
        "scope_count": Sort(value=lambda key: key.scope_count),
        "created_by": Sort(value=lambda key: key.created_by),
        "updated_by": Sort(value=lambda key: key.updated_by),
        "last_modified": Sort(value=lambda key: key.last_modified),
        "last_accessed": Sort(value=lambda key: key.last_accessed),
        "expires_at": Sort(value=lambda key: key.expires_at),
    },
    default_sort=("name", "asc"),
    filters={
        "name": Filter(values=lambda key: (key.name,)),
        "status": Filter(values=lambda key: (key.status,), valid_values=(ENABLED, DISABLED)),
        "state": Filter(values=lambda key: (key.state(key.listed_at),), valid_values=STATES),
        "scope": Filter(values=lambda key: tuple(key.current_scopes), valid_values=tuple(sorted(SCOPES))),
        "use_case": Filter(values=lambda key: key.use_cases, valid_values=tuple(USE_CASES)),
        "created_by": Filter(values=lambda key: (key.created_by,)),
        "updated_by": Filter(values=lambda key: (key.updated_by,)),
        # a key that nobody has used yet counts from its last change
        "unused_for": age_filter(lambda key: key.last_accessed or key.last_modified),
    },
    at_times={
        "not_open": schema_with_description(
            TEXT, "Why the key of `server.api_key_file` is not accepted; empty if it is."
        ),
        "unknown_names": schema_with_description(
            array_schema(TEXT), "Names in `server.key_addresses` that match no key, and so restrict nothing."
        ),
    },
)


class KeyItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the key."), example("checkout")]
    description: Annotated[
        str, words("The description of the key."), example("Calls of the checkout service")
    ]
    status: Annotated[str, words("`Enabled` or `Disabled`."), example("Enabled")]
    scopes: Annotated[list[str], words("The scopes of the key."), example([])]
    use_cases: Annotated[list[str], words("The use cases of the key."), example(["Send AI Telemetry"])]
    scope_count: Annotated[
        int, words("The number of scopes of the key, those of its use cases included."), example(1)
    ]
    labels: Annotated[dict[str, str], words("Labels as name and value."), example({"team": "search"})]
    created_by: Annotated[str, words("Who created the key."), example("ada@example.com")]
    updated_by: Annotated[str, words("Who changed the key last."), example("ada@example.com")]
    last_modified: Annotated[
        str, words("When the key was last changed."), example("2026-11-27T01:44:38.749Z")
    ]
    last_accessed: Annotated[
        str, words("When the key was last used, or `Not In Use`."), example("Not In Use")
    ]
    version: Annotated[
        str,
        words("The state of the key. A change with an older `version` is rejected."),
        example("859857eb426dd4a92ffeeaa1"),
    ]
    state: Annotated[str, words("The status, or `Expired`."), example("Enabled")]
    expires_at: Annotated[
        str | UnsetType, words("When the key expires. Omitted for a key that does not.")
    ] = UNSET
    last_test: Annotated[
        str | UnsetType, words("When a product last tested its export with the key. Omitted without a test.")
    ] = UNSET
    last_record: Annotated[
        str | UnsetType, words("When the newest record of the key arrived. Omitted before the first record.")
    ] = UNSET
    allowed_addresses: Annotated[
        list[str] | UnsetType,
        words("The networks from which the key may be used. Omitted if it may be used from everywhere."),
    ] = UNSET
    refused_since_expiry: Annotated[
        int | UnsetType, words("The number of requests since the key expired. Omitted if there are none.")
    ] = UNSET
    last_refused: Annotated[
        str | UnsetType,
        words("When the newest request since the key expired arrived. Omitted if there are none."),
    ] = UNSET


class CreateKeyAnswer(msgspec.Struct, kw_only=True):
    key: Annotated[KeyItem, words("The created key.")]
    secret: Annotated[str, words("The secret, which is shown only once."), example("th_...")]
    opens_nothing: Annotated[
        list[str] | UnsetType, words("Scopes that no operation requires. Omitted if there are none.")
    ] = UNSET


class IdentifyKeyAnswer(msgspec.Struct, kw_only=True):
    key: Annotated[KeyItem, words("The key that has this secret.")]
    granted: Annotated[
        list[str],
        words("The scopes that the key grants, those of its use cases included."),
        example(["ai-telemetry-ingest:ingest-ai-telemetry"]),
    ]
    may_chain: Annotated[
        bool,
        words("Whether `server.chain_keys` names the key, so that another gateway may send with it."),
        example(False),
    ]


class ShowKeyAnswer(msgspec.Struct, kw_only=True):
    key: Annotated[KeyItem, words("The key.")]
    previous_secret_until: Annotated[
        str | None, words("Until when the previous secret is accepted, or null."), example(None)
    ]


class OneKey(msgspec.Struct, kw_only=True):
    key: Annotated[KeyItem, words("The changed key.")]
    opens_nothing: Annotated[
        list[str] | UnsetType, words("Scopes that no operation requires. Omitted if there are none.")
    ] = UNSET


class RotateKeyAnswer(msgspec.Struct, kw_only=True):
    key: Annotated[KeyItem, words("The key with its new secret.")]
    secret: Annotated[str, words("The secret, which is shown only once."), example("th_...")]
    previous_secret_until: Annotated[
        str | None,
        words("Until when the previous secret is accepted, or null."),
        example("2026-11-27T02:44:39.172Z"),
    ]


async def _names_of_keys(request: OperatorRequest[SenderServices, None]) -> Iterator[SearchableObject]:
    request.shared.require_registry()
    keys = request.services.access.keys()
    return (SearchableObject(key.name, (key.name, key.description)) for key in keys)


@operator_call(
    "GET", "/keys", VIEW_OPERATION, "List API keys", lists=KEYS, item=KeyItem, names=_names_of_keys
)
async def list_keys(request: OperatorRequest[SenderServices, None]) -> Result:
    """
    List the keys. If the key in the file of `server.api_key_file` is not accepted, `not_open` is the reason.
    `unknown_names` are names in `server.key_addresses` that match no key.
    """
    # a damaged registry is an error, because an empty list would suggest that no keys exist
    request.shared.require_registry()
    access = request.services.access
    answer = await request.list_page(KEYS, MemoryRows(await access.listed_keys()))
    problems: dict[str, object] = {"not_open": access.legacy_key_problem} if access.legacy_key_problem else {}
    if unknown := access.unmatched_address_patterns():
        problems["unknown_names"] = unknown
    return {**answer, **problems}


@operator_call("POST", "/keys", API_KEY_MANAGEMENT, "Create an API key", status=201, answers=CreateKeyAnswer)
async def create_key(request: OperatorRequest[SenderServices, NewKey]) -> Result:
    body = request.body
    check_may_grant_scopes(request, body.scopes)
    key, secret = await _key_table(request).create(
        name=body.name,
        scopes=body.scopes,
        use_cases=body.use_cases,
        description=body.description,
        labels=body.labels,
        expires_at=_parse_expiry(body.expires_at),
        actor=request.actor,
    )
    return {
        "key": describe_key(key, request.now()),
        "secret": secret,
        **await _field_of_scopes_without_operations(request, key),
    }


@operator_call(
    "POST",
    "/keys/adopt",
    API_KEY_MANAGEMENT,
    "Accept the key of server.api_key_file again after it was deleted",
    answers=one_field_answer(
        "AdoptKeyAnswer",
        adopted=Annotated[
            bool, words("Whether the key of `server.api_key_file` works again."), example(True)
        ],
    ),
)
async def adopt_key(request: OperatorRequest[SenderServices, None]) -> Result:
    """
    Accept the key in the deployment's file again after it was deleted. Refusal 409 if the file still has
    the deleted secret.
    """
    outcome = await request.services.access.adopt_legacy_key(works_after_deletion=True, actor=request.actor)
    if outcome is None:
        raise NotAllowed("there is no key file to adopt; set server.api_key_file")
    if outcome == DELETED:
        raise NotAllowed(NOT_OPEN[DELETED])
    return {"adopted": True}


@operator_call(
    "POST", "/keys/identify", API_KEY_MANAGEMENT, "Find the API key with a secret", answers=IdentifyKeyAnswer
)
async def identify_key(request: OperatorRequest[SenderServices, KeySecret]) -> Result:
    """
    Return the key with this secret, the scopes that it grants, and whether `server.chain_keys` names it. Refusal 404
    if no key has the secret.
    """
    request.shared.require_registry()
    found = request.services.access.find_key_and_gateway_flag(request.body.secret)
    if found is None:
        raise NotThere("no API key has this secret")
    key, may_chain = found
    return {
        "key": describe_key(key, request.now()),
        "granted": sorted(key.current_scopes),
        "may_chain": may_chain,
    }


@operator_call("GET", "/keys/{name}", VIEW_OPERATION, "Show an API key", answers=ShowKeyAnswer)
async def show_key(request: OperatorRequest[SenderServices, None]) -> Result:
    request.shared.require_registry()
    key = await request.services.access.listed_key(request.path_parameter("name"))
    overlap_ends_at = key.overlap_ends_at
    over = overlap_ends_at is not None and overlap_ends_at <= request.now()
    return {
        "key": describe_key(key, request.now()),
        "previous_secret_until": None if over else utc_iso(overlap_ends_at),
    }


@operator_call("PATCH", "/keys/{name}", API_KEY_MANAGEMENT, "Edit an API key", answers=OneKey)
async def edit_key(request: OperatorRequest[SenderServices, KeyChanges]) -> Result:
    body = request.body
    check_may_grant_scopes(request, body.scopes or ())
    key = await _key_table(request).edit(
        _editable_key_name(request),
        new_name=body.name,
        description=body.description,
        scopes=body.scopes,
        use_cases=body.use_cases,
        labels=body.labels,
        expires_at=UNSET if body.expires_at is UNSET else _parse_expiry(body.expires_at),
        version=body.version,
        actor=request.actor,
    )
    return {**_key_answer(request, key), **await _field_of_scopes_without_operations(request, key)}


@operator_call(
    "POST", "/keys/{name}/rotate", API_KEY_MANAGEMENT, "Give a key a new secret", answers=RotateKeyAnswer
)
async def rotate_key(request: OperatorRequest[SenderServices, Rotation]) -> Result:
    body = request.body
    table = _key_table(request)
    name = _editable_key_name(request)
    access = request.services.access
    if access.has_key_file() and table.is_file_key(access.key(name)):
        raise NotAllowed(f"{name} comes from the deployment; change the file of server.api_key_file instead")
    key, secret = await table.rotate(name, overlap_s=body.overlap_s, actor=request.actor)
    return {
        "key": describe_key(key, request.now()),
        "secret": secret,
        "previous_secret_until": utc_iso(key.overlap_ends_at),
    }


@operator_call("POST", "/keys/{name}/enable", API_KEY_MANAGEMENT, "Enable an API key", answers=OneKey)
async def enable_key(request: OperatorRequest[SenderServices, None]) -> Result:
    return _key_answer(
        request, await _key_table(request).enable(_editable_key_name(request), actor=request.actor)
    )


@operator_call("POST", "/keys/{name}/disable", API_KEY_MANAGEMENT, "Disable an API key", answers=OneKey)
async def disable_key(request: OperatorRequest[SenderServices, None]) -> Result:
    return _key_answer(
        request, await _key_table(request).disable(_editable_key_name(request), actor=request.actor)
    )


@operator_call(
    "DELETE",
    "/keys/{name}",
    API_KEY_MANAGEMENT,
    "Delete an API key",
    required=("confirm",),
    answers=DeletedItem,
)
async def delete_key(request: OperatorRequest[SenderServices, None]) -> Result:
    confirm = request.http.query.get("confirm", "")
    name = _editable_key_name(request)
    await _key_table(request).delete(name, confirm=confirm, actor=request.actor)
    return {"deleted": name}


class KeyFileHandler(ObjectFileHandler):
    """API keys in files. A file never has the secret of a key."""

    files = ResourceFiles(name="keys")
    noun = action = "key"
    new = NewKey
    reads = VIEW_OPERATION
    changes = API_KEY_MANAGEMENT
    has_secret = makes_secrets = True

    async def rows_by_id(self, registry: Registry) -> Mapping[str, ApiKey]:
        table = registry.keys
        return {str(key.id): key for key in table.all() if not table.is_file_key(key)}

    async def find_visible(
        self, caller: MoneyCaller, id_or_name: str, *, has_limited_data_access: bool
    ) -> ApiKey:
        found = () if has_limited_data_access else caller.registry.keys.all()
        for key in found:
            if key.name == id_or_name:
                return key
        raise NotThere("there is no API key with this name")

    async def find(self, registry: Registry, id: str) -> ApiKey | None:
        return registry.keys.find_by_number(int(id))

    async def file_fields(self, registry: Registry, row: ApiKey) -> ObjectFields:
        return {**await super().file_fields(registry, row), "expires_at": utc_iso(row.expires_at)}

    async def create(self, caller: MoneyCaller, new_values: NewKey, secret: str | None) -> str:
        key, _ = await caller.registry.keys.create(
            **_key_fields(new_values), labels=new_values.labels, secret=secret, actor=caller.actor
        )
        return str(key.id)

    async def change(self, caller: MoneyCaller, row: ApiKey, new_values: NewKey, secret: str | None) -> None:
        stated = _key_fields(new_values)
        table = caller.registry.keys
        name = stated.pop("name")
        await table.edit(row.name, new_name=name, **stated, labels=new_values.labels, actor=caller.actor)
        if secret is not None and not table.is_newest_secret(row, secret):
            await table.replace_secret(name, secret, actor=caller.actor)

    async def delete(self, caller: MoneyCaller, row: ApiKey) -> None:
        await caller.registry.keys.delete(row.name, confirm=row.name, actor=caller.actor)

    def secret_version(self, row: ApiKey) -> object:
        return row.secrets[-1].digest

    def remark_in_apply_plan(self, row: ApiKey) -> str:
        return "disabled, and stays disabled" if row.status == DISABLED else ""


def _key_fields(new_values: NewKey) -> dict[str, Any]:
    return {
        "name": new_values.name,
        "scopes": new_values.scopes,
        "use_cases": new_values.use_cases,
        "description": new_values.description,
        "expires_at": _parse_expiry(new_values.expires_at),
    }


KEY_KIND = KeyFileHandler()


def _parse_expiry(text: str | None) -> float | None:
    """Return the epoch seconds of a time, or of the end of a day. Refusal 400 for any other text."""
    return None if text is None else parse_moment("expires_at", text, end=True).timestamp()


def _key_table(request: OperatorRequest[SenderServices, Any]) -> KeyTable:
    return request.registry.keys


def check_may_grant_scopes(request: OperatorRequest[Any, Any], scopes: Iterable[str]) -> None:
    if ORGANIZATION_ADMINISTRATION in request.rights.permission_sets:
        return
    if any(scope.startswith(_OF_ROLES) for scope in scopes):
        raise missing_right_refusal(
            ORGANIZATION_ADMINISTRATION, f"a key that can change roles (scope {_OF_ROLES}*)"
        )


def _editable_key_name(request: OperatorRequest[SenderServices, Any]) -> str:
    name = request.path_parameter("name")
    check_may_grant_scopes(request, request.services.access.key(name).current_scopes)
    return name


def _key_answer(request: OperatorRequest[SenderServices, Any], key: ApiKey) -> dict[str, object]:
    return {"key": describe_key(request.services.access.key(key.name), request.now())}


async def _field_of_scopes_without_operations(
    request: OperatorRequest[SenderServices, Any], key: ApiKey
) -> dict[str, object]:
    """Describe a key. If some of its scopes allow no operation, `opens_nothing` lists them."""
    empty = await scopes_without_operations(request, key.scopes)
    return {"opens_nothing": empty} if empty else {}

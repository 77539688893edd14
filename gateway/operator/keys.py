"""The calls of the operator API for API keys: the life of a key as the published interface says (parts 2.1 and 3.1)."""

from __future__ import annotations

import msgspec
from aiohttp import web

from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.operator.body import Body, answer, moment
from gateway.operator.calls import Asked, Call
from spool.errors import NotAllowed
from spool.registry.keys import DISABLED, ENABLED, LEGACY_NAME, NOT_IN_USE, Key
from spool.registry.operators import ADMIN, VIEWER
from spool.registry.scopes import SCOPES, USE_CASES
from spool.sqlite.registry.keys import KeyTable

DEFAULT_OVERLAP_S = 86400.0


class NewKey(Body):
    name: str
    scopes: tuple[str, ...] = ()
    use_cases: tuple[str, ...] = ()
    description: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class KeyChanges(Body):
    """What is left out stays as it is."""

    name: str | None = None
    scopes: list[str] | None = None
    use_cases: list[str] | None = None
    description: str | None = None
    labels: dict[str, str] | None = None


class Rotation(Body):
    overlap_s: float = DEFAULT_OVERLAP_S


def shown(key: Key) -> dict[str, object]:
    """A key as every list and answer shows it."""
    return {
        "name": key.name,
        "description": key.description,
        "status": key.status,
        "scopes": list(key.scopes),
        "use_cases": list(key.use_cases),
        "scope_count": key.scope_count,
        "labels": dict(key.labels),
        "created_by": key.created_by,
        "updated_by": key.updated_by,
        "last_modified": moment(key.last_modified),
        "last_accessed": NOT_IN_USE if key.last_accessed is None else moment(key.last_accessed),
    }


KEYS: List[Key] = List(
    root="keys",
    show=shown,
    identity=Sort(value=lambda key: key.id),
    sorts={
        "name": Sort(value=lambda key: key.name),
        "description": Sort(value=lambda key: key.description),
        "status": Sort(value=lambda key: key.status),
        "scope_count": Sort(value=lambda key: key.scope_count),
        "created_by": Sort(value=lambda key: key.created_by),
        "updated_by": Sort(value=lambda key: key.updated_by),
        "last_modified": Sort(value=lambda key: key.last_modified),
        "last_accessed": Sort(value=lambda key: key.last_accessed),
    },
    default_sort=("name", "asc"),
    filters={
        "name": Filter(values=lambda key: (key.name,)),
        "status": Filter(values=lambda key: (key.status,), valid_values=(ENABLED, DISABLED)),
        "scope": Filter(values=lambda key: tuple(key.granted), valid_values=tuple(sorted(SCOPES))),
        "use_case": Filter(values=lambda key: key.use_cases, valid_values=tuple(USE_CASES)),
        "created_by": Filter(values=lambda key: (key.created_by,)),
        "updated_by": Filter(values=lambda key: (key.updated_by,)),
    },
)


async def list_keys(asked: Asked) -> web.Response:
    asked.services.the_registry()  # a list without the keys of a damaged registry would look like the truth
    return await asked.list(KEYS, MemoryRows(asked.services.access.keys()))


async def show_key(asked: Asked) -> web.Response:
    asked.only()
    asked.services.the_registry()
    key = asked.services.access.key(asked.word("name"))
    overlap_ends_at = key.overlap_ends_at
    over = overlap_ends_at is not None and overlap_ends_at <= asked.services.clock.now()
    return answer({"key": shown(key), "previous_secret_until": None if over else moment(overlap_ends_at)})


async def create_key(asked: Asked) -> web.Response:
    given = await asked.body(NewKey)
    key, secret = await _table(asked).create(
        name=given.name,
        scopes=given.scopes,
        use_cases=given.use_cases,
        description=given.description,
        labels=given.labels,
        actor=asked.actor,
    )
    return answer({"key": shown(key), "secret": secret}, status=201)


async def edit_key(asked: Asked) -> web.Response:
    given = await asked.body(KeyChanges)
    key = await _table(asked).edit(
        _editable(asked),
        new_name=given.name,
        description=given.description,
        scopes=given.scopes,
        use_cases=given.use_cases,
        labels=given.labels,
        actor=asked.actor,
    )
    return _now(asked, key)


async def rotate_key(asked: Asked) -> web.Response:
    given = await asked.body(Rotation)
    key, secret = await _table(asked).rotate(_editable(asked), overlap_s=given.overlap_s, actor=asked.actor)
    return answer({"key": shown(key), "secret": secret, "previous_secret_until": moment(key.overlap_ends_at)})


async def enable_key(asked: Asked) -> web.Response:
    asked.only()
    return _now(asked, await _table(asked).enable(_editable(asked), actor=asked.actor))


async def disable_key(asked: Asked) -> web.Response:
    asked.only()
    return _now(asked, await _table(asked).disable(_editable(asked), actor=asked.actor))


async def delete_key(asked: Asked) -> web.Response:
    confirm = asked.only("confirm").get("confirm", "")
    name = _editable(asked)
    await _table(asked).delete(name, confirm=confirm, actor=asked.actor)
    return answer({"deleted": name})


def _table(asked: Asked) -> KeyTable:
    return asked.services.the_registry().keys


def _editable(asked: Asked) -> str:
    name = asked.word("name")
    if name == LEGACY_NAME and asked.services.access.has_legacy():
        raise NotAllowed(f"{LEGACY_NAME} comes from the deployment: change the file that server.api_key_file names")
    return name


def _now(asked: Asked, key: Key) -> web.Response:
    """The changed key, with its last access up to now."""
    return answer({"key": shown(asked.services.access.key(key.name))})


CALLS = (
    Call("GET", "/keys", VIEWER, list_keys, "List API keys", lists=KEYS),
    Call("POST", "/keys", ADMIN, create_key, "Create an API key", takes=NewKey),
    Call("GET", "/keys/{name}", VIEWER, show_key, "Show an API key"),
    Call("PATCH", "/keys/{name}", ADMIN, edit_key, "Edit an API key", takes=KeyChanges),
    Call("POST", "/keys/{name}/rotate", ADMIN, rotate_key, "Give a key a new secret", takes=Rotation),
    Call("POST", "/keys/{name}/enable", ADMIN, enable_key, "Enable an API key"),
    Call("POST", "/keys/{name}/disable", ADMIN, disable_key, "Disable an API key"),
    Call("DELETE", "/keys/{name}", ADMIN, delete_key, "Delete an API key", query=("confirm",)),
)

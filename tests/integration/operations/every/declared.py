"""
Every operation and every resource, from the table of addresses, and one server with an example of each resource.

Nothing here names an operation or a field. Bodies are those of the reference, which come from the examples of
fields. A new resource is included without a change; if its example cannot be created, its name is reported.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from itertools import combinations
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec
from aiohttp import ClientSession
from yarl import URL

from docs.generate.http_api import EXAMPLES
from gateway.core.paths import AS, OPERATOR_API
from gateway.http.address import ApiAddress
from gateway.http.answers import JSON
from gateway.http.lists import ListDefinition
from gateway.operations.managed import ManagedResource
from gateway.operations.requests.address import OperatorApiAddress
from gateway.service.addresses.areas import FOR_SENDERS as SENDER_AREAS
from gateway.service.addresses.areas import OPERATOR_AREAS
from gateway.service.addresses.table import ADDRESSES
from spool.registry.field_notes import example_id
from spool.registry.permission_sets import ALL, PERMISSION_SETS
from spool.registry.roles import FULL, NewRole, RoleLimits
from tests.integration.conftest import ACTOR, Serving

ADA = "ada@example.com"
NOTHING = "nothing-has-this-id"


class Answer(NamedTuple):
    status: int
    payload: Any

    @property
    def said(self) -> str:
        return json.dumps(self.payload)


class Operation(NamedTuple):
    method: str
    row: ApiAddress

    @property
    def name(self) -> str:
        return f"{self.method} {self.row.documented_path}"

    @property
    def example(self) -> Any:
        return EXAMPLES.get(self.name, {}).get("body")

    @property
    def has_fields(self) -> bool:
        """Return whether the body is a struct, so that its fields are declared."""
        body = self.row.body
        return isinstance(body, type) and issubclass(body, msgspec.Struct)

    @property
    def kind(self) -> type[msgspec.Struct]:
        """Return the struct of the body."""
        assert self.row.body is not None
        return self.row.body

    @property
    def is_for_people(self) -> bool:
        return isinstance(self.row, OperatorApiAddress)


def operations() -> Iterator[Operation]:
    for row in ADDRESSES:
        if row.scope is not None or isinstance(row, OperatorApiAddress):
            yield from (Operation(method, row) for method in row.operation_ids_by_method)


OPERATIONS = tuple(operations())
AT = {(each.method, each.row.path): each for each in OPERATIONS}


@dataclass(frozen=True)
class Resource:
    """A resource: objects that people, or keys, create, list and delete. Some can also be shown and changed."""

    list: Operation
    create: Operation
    delete: Operation

    @property
    def name(self) -> str:
        return self.list.row.documented_path

    @cached_property
    def lists(self) -> ListDefinition[Any]:
        assert self.list.row.lists is not None
        return self.list.row.lists

    @property
    def has_parent(self) -> bool:
        """Return whether each item belongs to an item of another resource."""
        return any(not fixed for fixed in self.list.row.path_parameters.values())

    def at(self, method: str) -> Operation | None:
        return AT.get((method, self.delete.row.path))

    def word(self, item: Mapping[str, Any]) -> str:
        """Return the word that names an item in a path: the field of the parameter's name, or the id."""
        *_, parameter = self.delete.row.path_parameters
        return str(item.get(parameter) or item["id"])


def resources() -> Iterator[Resource]:
    """Yield what is created from a body with fields, and can be listed and deleted."""
    for operation in OPERATIONS:
        path = operation.row.path
        if operation.method != "GET" or operation.row.lists is None:
            continue
        ones = [one for method, one in AT if method == "DELETE" and one.rpartition("/{")[0] == path]
        for one in ones:
            create = AT.get(("POST", path)) or AT.get(("POST", one))
            if create is not None and create.row.body not in (None, bytes):
                yield Resource(operation, create, AT["DELETE", one])


RESOURCES = tuple(resources())


def managed() -> Iterator[tuple[str, ManagedResource[Any, Any]]]:
    """Yield the declarations of resources, by the path of their list for people and for keys."""
    for area in (*SENDER_AREAS, *OPERATOR_AREAS):
        for value in (value for name in area.modules for value in vars(import_module(name)).values()):
            if isinstance(value, ManagedResource):
                if value.people is not None:
                    yield OPERATOR_API + value.people.path, value
                if value.keys is not None:
                    yield value.keys.path, value


MANAGED = dict(managed())

# Resources whose example does not suffice, each with the reason and the test of its claims.
ELSEWHERE = {"/console/api/sessions": "a sign-in does not return the session of the list: test_sign_in.py"}
COVERED = tuple(each for each in RESOURCES if each.name not in ELSEWHERE)
_SECRETS = {"whsec_...": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}  # the reference shortens secrets


def variants(body: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the body, then the body with one or two changed texts. The first accepted one is a further row."""
    texts = [name for name, value in body.items() if isinstance(value, str)]
    for many in (0, 1, 2):
        for names in combinations(texts, many):
            word = secrets.token_hex(3)
            yield {**body, **{name: f"{body[name]}-{word}" for name in names}}
            yield {**body, **{name: f"{word}{body[name]}" for name in names}}


def item_in(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object in an answer about a single resource. It may be in a list, or have no root key."""
    values = [value for value in payload.values() if isinstance(value, dict | list) and value]
    first = payload if "id" in payload or not values else values[0]
    item: Mapping[str, Any] = first[0] if isinstance(first, list) else first
    return item


class World:
    """A server, a person at its socket and a key with every scope. The server has an example of each resource."""

    def __init__(self, serving: Serving, key: str, socket: ClientSession) -> None:
        self.serving = serving
        self.key = key
        self._socket = socket
        self._words: dict[str, set[str]] = {}
        self.ids: dict[str, str] = {}  # the word of an item in a path, by the segment before it
        self._renamed = dict(_SECRETS)  # ids of the reference, with those of this server

    async def send(self, operation: Operation, path: str, body: object = None, **headers: str) -> Answer:
        """Send a request over the socket, or with the key if people have no such operation."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if operation.is_for_people:
            headers = {AS: ADA, "Content-Type": JSON, **headers}
            url = URL(f"http://tollhouse{path}", encoded=True)
            sent = self._socket.request(operation.method, url, data=data, headers=headers)
        else:
            headers = {"Authorization": self.key, "Content-Type": JSON, **headers}
            url = URL(f"{self.serving.url}{path}", encoded=True)
            sent = self.serving.client.request(operation.method, url, data=data, headers=headers)
        async with sent as answer:
            text = await answer.text()
            return Answer(answer.status, json.loads(text) if answer.content_type == JSON else text)

    async def over_http(self, operation: Operation, path: str, **headers: str) -> Answer:
        """Send a request of a browser, with a body that every operation refuses after it has checked the person."""
        data = b'{"unheard_of": 1}' if operation.row.takes else None
        headers = {"Content-Type": next(iter(operation.row.takes), JSON), **headers}
        url = URL(f"{self.serving.url}{path}", encoded=True)
        async with self.serving.client.request(operation.method, url, data=data, headers=headers) as answer:
            body = await answer.read()
            return Answer(
                answer.status, json.loads(body or b"{}") if answer.content_type == JSON else repr(body)
            )

    async def grant_the_rest(self) -> None:
        """Grant the person at the socket what only a role can grant."""
        registry = self.serving.app.services.operators.installation.require_registry()
        only_by_role = tuple(PERMISSION_SETS.keys() - ALL)
        draft = NewRole(name="the rest", data_access=FULL, permission_sets=only_by_role, members=(ADA,))
        await registry.roles.create(draft, known_dimensions=(), limits=RoleLimits(), actor=ACTOR)

    async def sign_in(self, permission_sets: Collection[str]) -> dict[str, str]:
        """Sign in a person with exactly these permission sets and all calls; return the headers."""
        registry = self.serving.app.services.operators.installation.require_registry()
        email = f"{secrets.token_hex(4)}@example.com"
        person = {"email": email, "password": secrets.token_hex(8)}
        await self.send(
            AT["POST", f"{OPERATOR_API}/operators"], f"{OPERATOR_API}/operators", {**person, "role": "none"}
        )
        draft = NewRole(
            name=email, data_access=FULL, permission_sets=tuple(permission_sets), members=(email,)
        )
        await registry.roles.create(draft, known_dimensions=(), limits=RoleLimits(), actor=ACTOR)
        url = f"{self.serving.url}{OPERATOR_API}/sessions"
        async with self.serving.client.post(url, json=person) as answer:
            assert answer.status == 201, await answer.text()
            token = json.loads(await answer.text())["session"]["csrf_token"]
            return {"Cookie": f"tollhouse={answer.cookies['tollhouse'].value}", "X-CSRF-Token": token}

    def path(self, operation: Operation, word: str = "") -> str:
        """Return a path with the words of existing items. `word` is for a parameter at its end."""
        *_, last = ("", *operation.row.path_parameters)
        is_last = bool(word) and operation.row.documented_path.endswith(f"/{{{last}}}")
        return self.path_of(
            operation,
            lambda name, before: word if is_last and name == last else self.ids.get(before, NOTHING),
        )

    def path_of(self, operation: Operation, word: Callable[[str, str], str]) -> str:
        """Return a path. `word` returns the value of a parameter of this name after this segment."""
        path = operation.row.documented_path
        for name, fixed in operation.row.path_parameters.items():
            before = path.partition(f"/{{{name}}}")[0].rpartition("/")[2]
            found = fixed[0] if fixed else word(name, before)
            path = path.replace(f"{{{name}}}", quote(found, safe=""))
        return path

    def body(self, operation: Operation) -> Any:
        """Return the body of the reference with ids of this server."""
        return self._with_own_ids(operation.example)

    def _with_own_ids(self, value: Any) -> Any:
        """Return a value of the reference. A field may have the name of an id, so only its value changes."""
        if isinstance(value, dict):
            return {name: self._with_own_ids(member) for name, member in value.items()}
        if isinstance(value, list):
            return [self._with_own_ids(member) for member in value]
        return self._renamed.get(value, value) if isinstance(value, str) else value

    async def create(self, resource: Resource) -> tuple[Answer, Mapping[str, Any]]:
        """Create one more. Return the answer, which is a refusal if no variant is accepted, and the body."""
        create, refused = resource.create, [Answer(300, "every variant is an item that exists already")]
        for body in variants(self.body(create)):
            path = self.path(create, f"made-{secrets.token_hex(4)}")
            answer = await self.send(create, path, body)
            if answer.status < 300 and self._is_new(resource, answer):
                return answer, body
            if answer.status >= refused[-1].status:  # a full table gives a 409, and a wrong text gives a 400
                refused.append(answer)
        return refused[-1], {}

    def _is_new(self, resource: Resource, answer: Answer) -> bool:
        words = self._words.setdefault(resource.name, set())
        count = len(words)
        words.add(resource.word(item_in(answer.payload)))
        return len(words) > count

    async def rows(self, resource: Resource) -> list[Mapping[str, Any]]:
        """Return the rows of the list of a resource."""
        path = f"{self.path(resource.list)}?limit={resource.lists.max_limit}"
        answer = await self.send(resource.list, path)
        assert answer.status == 200, answer.said
        found: list[Mapping[str, Any]] = answer.payload[resource.lists.root]
        return found

    async def fill(self) -> None:
        """Create an example of each resource. Those that need another one follow it."""
        waiting = list(COVERED)
        while waiting:
            refused = []
            for resource in waiting:
                answer, _ = await self.create(resource)
                if answer.status < 300:
                    self._note(resource, item_in(answer.payload))
                else:
                    refused.append((resource, answer))
            assert len(refused) < len(waiting), [(each.name, answer.said) for each, answer in refused]
            waiting = [each for each, _ in refused]

    def _note(self, resource: Resource, item: Mapping[str, Any]) -> None:
        segment, word = resource.name.rpartition("/")[2], resource.word(item)
        self.ids.setdefault(segment, word)
        shown = item_in(EXAMPLES[resource.create.name]["answer"])
        self._renamed[resource.word(shown)] = word
        self._renamed[example_id(segment.removesuffix("s").replace("-", "_"))] = word

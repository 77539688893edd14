"""Whole servers inside the test process: SQLite in a temporary directory, sockets on loopback port 0."""

from __future__ import annotations

import asyncio
import dataclasses
import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import orjson
import pytest
import pytest_asyncio
from aiohttp import ClientResponse, ClientSession, web
from aiohttp.web_app import _cached_build_middleware

from gateway.configuration.sections import Config
from gateway.configuration.server import ServerSettings
from gateway.http import answers
from gateway.http.address import ApiAddress
from gateway.http.answers import send_json
from gateway.http.turns import QueryTurnScheduler
from gateway.operations.requests import admission
from gateway.operations.requests.admission import answer_with_etag
from gateway.people.authentication.bearer import AuthenticatedKey
from gateway.service.addresses.table import ADDRESSES
from gateway.service.app import TollhouseApp
from gateway.service.assembly import background
from spool.clock import Clock
from spool.record import AI_TELEMETRY, Correction, Inference, UsageMetric
from spool.registry.connections import ConnectionDraft
from spool.registry.operators import Actor
from spool.registry.scopes import SEND_AI_TELEMETRY
from spool.settings import SpoolSettings
from tests import proved
from tests.declared_answers import answer_problems
from tests.integration.certificates import Certificates
from tests.made_files import made_files as made_files
from tests.spool.disks.flushing import flushed as flushed
from tests.spool.disks.flushing import unflushed as unflushed
from tests.tools import program

ACTOR = Actor("tests", "local")


class Answer:
    """A response that has been read completely."""

    def __init__(self, response: ClientResponse, body: bytes) -> None:
        self.status = response.status
        self.headers = response.headers
        self.body = body


@dataclass
class Serving:
    """A running server, with a key that may send AI telemetry."""

    app: TollhouseApp
    key: str
    client: ClientSession

    @property
    def url(self) -> str:
        return self.app.url

    @property
    def port(self) -> int:
        return int(self.app.url.rpartition(":")[2])

    async def send(
        self,
        path: str,
        body: bytes,
        content_type: str | None = "application/json",
        *,
        method: str = "POST",
        key: str | None = "",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Send a request with the server's key. `key=None` sends no key."""
        sent = dict(headers or {})
        if content_type is not None:
            sent["Content-Type"] = content_type
        if key is not None and "Authorization" not in sent:
            sent["Authorization"] = key or self.key
        async with self.client.request(
            method,
            self.url + path,
            data=io.BytesIO(body),
            headers=sent,
            allow_redirects=False,
            skip_auto_headers=["Content-Type"],
        ) as response:
            return Answer(response, await response.read())

    async def make_key(self, name: str, *, scopes: Sequence[str] = (), use_cases: Sequence[str] = ()) -> str:
        registry = self.app.services.storage.registry
        assert registry is not None
        _, secret = await registry.keys.create(name=name, scopes=scopes, use_cases=use_cases, actor=ACTOR)
        return secret

    async def make_connection(self, id: str = "connection-1", **given: Any) -> None:
        draft = ConnectionDraft(**{"name": f"bill of {id}", "cloud_provider": "MongoDB", **given})
        await self.app.services.single.billing_connections.create(draft, id=id, actor=ACTOR)

    async def records(self) -> list[Inference | UsageMetric]:
        """Return every closed record of a call or counter in order, without corrections."""
        log = self.app.services.storage.log
        entries = await log.read(AI_TELEMETRY, 1, log.lowest_open_number(AI_TELEMETRY) - 1)
        found: list[Inference | UsageMetric] = []
        for record in (record for entry in entries for record in entry.records if record is not None):
            assert isinstance(record, Inference | UsageMetric | Correction), record
            if not isinstance(record, Correction):
                found.append(record)
        return found


Serve = Callable[..., Awaitable[Serving]]


def file_contents(directory: Path) -> dict[str, bytes]:
    """Return file contents by name, without files that a running server renames or removes meanwhile."""
    found = {}
    for file in directory.iterdir():
        with suppress(FileNotFoundError):
            if file.is_file():
                found[file.name] = file.read_bytes()
    return found


@pytest.fixture(autouse=True)
def forgotten_servers() -> Iterator[None]:
    """
    Clear aiohttp's cache, which keeps the last 1,024 called handlers and their servers alive: up to 860 MB.
    """
    yield
    _cached_build_middleware.cache_clear()


@pytest.fixture(autouse=True)
def declared_answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compare each answer with the type that its operation declares."""
    found: list[str] = []

    def check(request: web.Request, value: object, status: int = 200) -> None:
        resource = request.match_info.route.resource
        row = _documented_rows().get((request.method, resource.canonical)) if resource else None
        is_json = not isinstance(value, (web.StreamResponse, answers.AnswerInPieces))
        if row is not None and status == row.status and is_json:
            found.extend(answer_problems(row, orjson.loads(orjson.dumps(value))))

    async def send(request: web.Request, value: object, **how: Any) -> web.StreamResponse:
        check(request, value, how.get("status", 200))
        return await send_json(request, value, **how)

    async def send_in_turn(
        self: QueryTurnScheduler,
        who: str,
        request: web.Request,
        work: Callable[[], Awaitable[Any]],
        **how: Any,
    ) -> web.StreamResponse:
        async def checked_work() -> Any:
            answer = await work()
            await asyncio.to_thread(check, request, answer, how["status"])
            return answer

        return await in_turn(self, who, request, checked_work, **how)

    async def with_etag(request: web.Request, answer: Mapping[str, object], **how: Any) -> Any:
        await asyncio.to_thread(check, request, answer)
        return await answer_with_etag(request, answer, **how)

    in_turn = QueryTurnScheduler.send_in_turn
    monkeypatch.setattr(answers, "send_json", send)
    monkeypatch.setattr(QueryTurnScheduler, "send_in_turn", send_in_turn)
    monkeypatch.setattr(admission, "answer_with_etag", with_etag)
    yield
    assert not found


@pytest.fixture(autouse=True, scope="session")
def recorded_answers() -> Iterator[None]:
    """Record the operation and the status of each answer that a server sends (tests/verdict.py)."""

    async def prepare(request: web.Request, response: web.StreamResponse) -> None:
        # a request that is not valid HTTP has no route
        match = request._match_info
        resource = None if match is None else match.route.resource
        row = _documented_rows().get((request.method, resource.canonical)) if resource else None
        if row is not None:
            proved.ANSWERS.add((row.operation_ids_by_method[request.method], response.status))
        await hook(request, response)

    hook = web.Request._prepare_hook
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(web.Request, "_prepare_hook", prepare)
        yield


@cache
def _documented_rows() -> Mapping[tuple[str, str], ApiAddress]:
    return {(method, row.documented_path): row for row in ADDRESSES for method in row.operation_ids_by_method}


@pytest.fixture(autouse=True, scope="session")
def looks_of_its_own() -> Iterator[None]:
    """Delay the servers' own inspections for insights and savings, so that only a test starts them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRST_INSPECTION_S", "FIRST_ADVICE_S"):
            patch.setattr(background, name, 3600.0)
        yield


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    program("openssl")
    return Certificates(tmp_path_factory.mktemp("certificates"))


@asynccontextmanager
async def servers(place: Path) -> AsyncIterator[Serve]:
    """
    Yield a function that starts servers with `[server]` settings and data under `place`. They stop at the end.
    """
    made: list[Serving] = []

    async def start(
        *,
        config: Config | None = None,
        key_name: str = "sender",
        clock: Clock | None = None,
        reread: Callable[[Config], Config] | None = None,
        local: AuthenticatedKey | None = None,
        **server: Any,
    ) -> Serving:
        directory = place / f"data-{len(made)}"
        base = config or Config(spool=SpoolSettings(hold=0, counter_wait=0))
        usual = {"listen": "127.0.0.1:0", "grpc_listen": ""}
        settings = dataclasses.replace(base, data_dir=directory, server=ServerSettings(**{**usual, **server}))
        again = None if reread is None else partial(reread, settings)
        app = TollhouseApp(settings, version="0", clock=clock, reread=again, local=local)
        await app.start()
        made.append(Serving(app=app, key="", client=ClientSession(auto_decompress=False)))
        made[-1].key = await made[-1].make_key(key_name, use_cases=[SEND_AI_TELEMETRY])
        return made[-1]

    yield start
    for serving in made:
        await serving.client.close()
        await serving.app.stop()


@pytest_asyncio.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Serve]:
    async with servers(tmp_path) as start:
        yield start


@pytest_asyncio.fixture
async def serving(serve: Serve) -> Serving:
    """Start one server with default settings."""
    return await serve()


# A server start costs 0.1 s of processor time. Use this mark for tests whose requests change nothing, or that
# count only the records that they add themselves.
ON_ONE_SERVER = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def one_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Serving]:
    async with servers(tmp_path_factory.mktemp("one-server")) as start:
        yield await start()

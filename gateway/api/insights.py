"""
`/v2/insights`: the published list operation (part 4.1), and one insight, its status and its comments beside it.

Each method has a scope of its own. Paths and bodies of all but the list are not published; they are told here by the
types that decode them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from gateway.api.insight_lists import COMMENTS, INSIGHTS, comment_rows, insight_rows, shown, shown_comment
from gateway.authentication.access import Bearer
from gateway.errors import BadPayload, Refusal
from gateway.http import answers, operations
from gateway.http.boundary import Handler, admit, authorization, guarded, read_body
from gateway.http.lists import List, Rows, envelope
from gateway.services import ReceiverServices
from spool.errors import Invalid, NotAllowed, NotThere, RegistryDamaged
from spool.registry.insights import Draft
from spool.registry.operators import Actor
from spool.sqlite.registry.registry import Registry

READ_ALL = "insights:read_insights"
READ_ONE = "insights:read_insight"
CREATE = "insights:create_insight"
UPDATE = "insights:update_insight"
DELETE = "insights:delete_insight"
READ_COMMENTS = "insights:read_insight_comments"
CREATE_COMMENT = "insights:create_insight_comment"
UPDATE_COMMENT = "insights:update_insight_comment"

Status = Literal["new", "in_progress", "on_hold", "addressed", "ignored"]
Effort = Literal["not_set", "low", "medium", "high"]
T = TypeVar("T")
Row = TypeVar("Row")


class NewInsight(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`cost_impact` is a decimal number of dollars, as text or as a number."""

    title: str
    description: str = ""
    category: str = ""
    link: str = ""
    status: Status = "new"
    effort: Effort = "not_set"
    cost_impact: str | float = "0"


class InsightChanges(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is left out stays as it is."""

    title: str | None = None
    description: str | None = None
    category: str | None = None
    link: str | None = None
    status: Status | None = None
    effort: Effort | None = None
    cost_impact: str | float | None = None


class NewComment(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    text: str


class InsightItem(msgspec.Struct, kw_only=True):
    """An insight as it is answered; times are epoch seconds as text."""

    id: str
    title: str
    description: str
    category: str
    link: str
    status: Status
    effort: Effort
    cost_impact: str
    created: str
    last_updated: str


class CommentItem(msgspec.Struct, kw_only=True):
    id: str
    insight_id: str
    text: str
    author: str
    created: str
    last_updated: str


class OneInsight(msgspec.Struct, kw_only=True):
    insight: InsightItem


class OneComment(msgspec.Struct, kw_only=True):
    comment: CommentItem


class Deleted(msgspec.Struct, kw_only=True):
    """The ids of what is gone."""

    insight_id: str
    comment_ids: list[str]


class Asked(NamedTuple):
    """A request that may be answered."""

    request: web.Request
    bearer: Bearer
    services: ReceiverServices
    registry: Registry
    secret: bytes

    @property
    def actor(self) -> Actor:
        return Actor(self.bearer.name, self.request.remote or "")

    def word(self, name: str) -> str:
        return self.request.match_info[name]

    async def body(self, kind: type[T]) -> T:
        with self.services.budget.lease() as lease:
            body = await read_body(self.services, self.request, lease, self.bearer)
            try:
                return msgspec.json.decode(body, type=kind)
            except msgspec.DecodeError as error:
                raise BadPayload(f"The body is not what this address takes: {error}.") from None

    async def list(self, listed: List[Row], rows: Rows[Row]) -> web.Response:
        query = list(self.request.query.items())
        return answers.json_response(await envelope(listed, rows, query, secret=self.secret))

    def nothing_else(self) -> None:
        """This call takes no parameters."""
        if self.request.query:
            raise Refusal(400, "invalid_parameter", "this address takes no parameters")


class Operation(NamedTuple):
    """One method of an address: its scope, what it takes and answers (a struct, or the list whose page it is)."""

    scope: str
    answer: Callable[[Asked], Awaitable[web.Response]]
    takes: type[msgspec.Struct] | None
    gives: type[msgspec.Struct] | List[Any]
    status: int = 200


async def read_all(asked: Asked) -> web.Response:
    return await asked.list(INSIGHTS, insight_rows(asked.registry))


async def create(asked: Asked) -> web.Response:
    asked.nothing_else()
    given = await asked.body(NewInsight)
    draft = Draft(
        title=given.title,
        description=given.description,
        category=given.category,
        link=given.link,
        effort=given.effort,
        cost_impact=str(given.cost_impact),
    )
    insight = await asked.registry.insights.create(draft, status=given.status, actor=asked.actor)
    return answers.json_response({"insight": shown(insight)}, status=201)


async def read_one(asked: Asked) -> web.Response:
    asked.nothing_else()
    return answers.json_response({"insight": shown(await asked.registry.insights.get(asked.word("id")))})


async def update(asked: Asked) -> web.Response:
    asked.nothing_else()
    given = await asked.body(InsightChanges)
    said = {name: str(value) for name, value in msgspec.structs.asdict(given).items() if value is not None}
    status = said.pop("status", None)
    insight = await asked.registry.insights.change(asked.word("id"), status=status, said=said, actor=asked.actor)
    return answers.json_response({"insight": shown(insight)})


async def delete(asked: Asked) -> web.Response:
    asked.nothing_else()
    id, comments = await asked.registry.insights.delete(asked.word("id"), actor=asked.actor)
    return answers.json_response({"insight_id": id, "comment_ids": [str(comment) for comment in comments]})


async def read_comments(asked: Asked) -> web.Response:
    return await asked.list(COMMENTS, await comment_rows(asked.registry, asked.word("id")))


async def create_comment(asked: Asked) -> web.Response:
    asked.nothing_else()
    given = await asked.body(NewComment)
    comment = await asked.registry.insights.comment(asked.word("id"), given.text, actor=asked.actor)
    return answers.json_response({"comment": shown_comment(comment)}, status=201)


async def update_comment(asked: Asked) -> web.Response:
    asked.nothing_else()
    given = await asked.body(NewComment)
    number = asked.word("comment")
    if not (number.isascii() and number.isdecimal() and len(number) < 19):
        raise NotThere("this insight has no comment with this id")
    comment = await asked.registry.insights.change_comment(asked.word("id"), int(number), given.text, actor=asked.actor)
    return answers.json_response({"comment": shown_comment(comment)})


# path -> method -> operation; HEAD is answered as GET is.
ADDRESSES: Mapping[str, Mapping[str, Operation]] = {
    "/v2/insights": {
        "GET": Operation(READ_ALL, read_all, None, INSIGHTS),
        "POST": Operation(CREATE, create, NewInsight, OneInsight, 201),
    },
    "/v2/insights/{id}": {
        "GET": Operation(READ_ONE, read_one, None, OneInsight),
        "PATCH": Operation(UPDATE, update, InsightChanges, OneInsight),
        "DELETE": Operation(DELETE, delete, None, Deleted),
    },
    "/v2/insights/{id}/comments": {
        "GET": Operation(READ_COMMENTS, read_comments, None, COMMENTS),
        "POST": Operation(CREATE_COMMENT, create_comment, NewComment, OneComment, 201),
    },
    "/v2/insights/{id}/comments/{comment}": {
        "PATCH": Operation(UPDATE_COMMENT, update_comment, NewComment, OneComment),
    },
}


def _described(path: str, method: str, operation: Operation) -> operations.Operation:
    lists = operation.gives if isinstance(operation.gives, List) else None
    gives = operation.gives if isinstance(operation.gives, type) else CommentItem if lists is COMMENTS else InsightItem
    return operations.Operation(
        method=method,
        path=path,
        name=f"insights_{operation.answer.__name__}",
        summary=operation.answer.__name__.replace("_", " ").capitalize(),
        scope=operation.scope,
        takes={answers.JSON: operation.takes} if operation.takes else {},
        gives={} if lists else {operation.status: {answers.JSON: gives}},
        lists=lists,
        item=gives,
        refusals=(*(operations.WRITE if operation.takes else operations.READ), 404, 409),
    )


OPERATIONS = tuple(
    _described(path, method, operation) for path, methods in ADDRESSES.items() for method, operation in methods.items()
)


def door(path: str, services: ReceiverServices, registry: Registry | None, *, secret: bytes) -> Handler:
    """The handler of one of ADDRESSES. `registry` is None while its file is damaged."""
    here = ADDRESSES[path]
    methods = [*here, "HEAD"] if "GET" in here else [*here]

    async def enter(request: web.Request) -> web.Response:
        operation = here["GET" if request.method == "HEAD" else request.method]
        if operation.takes is not None and request.content_type != answers.JSON:
            raise Refusal(415, "unsupported_media_type", "Send the body as application/json.")
        bearer = admit(services, request, authorization(request), scope=operation.scope)
        if registry is None:
            raise _registry_away()
        try:
            return await operation.answer(Asked(request, bearer, services, registry, secret))
        except NotThere as error:
            raise Refusal(404, "not_found", str(error)) from error
        except Invalid as error:
            raise Refusal(400, "invalid", str(error)) from error
        except NotAllowed as error:
            raise Refusal(409, "not_allowed", str(error)) from error
        except RegistryDamaged as error:
            raise _registry_away() from error

    return guarded("insights", enter, services, methods=", ".join(methods))


def _registry_away() -> Refusal:
    return Refusal(503, "unavailable", "Insights cannot be read now; repeat later.", retry_after_s=30)

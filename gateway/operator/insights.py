"""The calls of the operator API on insights: what was found, what became of it, and looking again now."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from aiohttp import web

from gateway.api.insight_lists import COMMENTS, INSIGHTS, comment_rows, insight_rows, shown, shown_comment
from gateway.insights.gathering import Sources
from gateway.insights.inspector import Inspector
from gateway.operator.body import Body, answer
from gateway.operator.calls import Asked, Call
from gateway.operator.services import OperatorServices
from gateway.rate_cards.card import CardUnreadable
from spool.errors import Invalid
from spool.registry.operators import OPERATOR, VIEWER


class InsightStatus(Body):
    """What is left out stays as it is."""

    status: str | None = None
    effort: str | None = None


class InsightComment(Body):
    text: str


class Inspection(Body):
    """Nothing to say."""


def inspector(services: OperatorServices) -> Inspector:
    """Over the whole house; Refusal 503 while the registry, where findings are kept, is damaged."""
    registry, devices = services.the_registry(), services.devices
    sources = Sources(
        ledger=services.ledger,
        log=services.log,
        deliveries=services.deliveries,
        keys=services.access.keys,
        devices=devices.table.all if devices else tuple,
        prices=services.prices,
    )
    return Inspector(sources, registry.insights, services.clock)


async def list_insights(asked: Asked) -> web.Response:
    return await asked.list(INSIGHTS, insight_rows(asked.services.the_registry()))


async def show_insight(asked: Asked) -> web.Response:
    asked.only()
    table, id = asked.services.the_registry().insights, asked.word("id")
    insight, comments = await table.get(id), await table.comments(id)
    return answer({"insight": shown(insight), "comments": [shown_comment(comment) for comment in comments]})


async def set_insight(asked: Asked) -> web.Response:
    given = await asked.body(InsightStatus)
    table = asked.services.the_registry().insights
    said: dict[str, Any] = {} if given.effort is None else {"effort": given.effort}
    insight = await table.change(asked.word("id"), status=given.status, said=said, actor=asked.actor)
    return answer({"insight": shown(insight)})


async def list_comments(asked: Asked) -> web.Response:
    return await asked.list(COMMENTS, await comment_rows(asked.services.the_registry(), asked.word("id")))


async def comment_insight(asked: Asked) -> web.Response:
    given = await asked.body(InsightComment)
    table = asked.services.the_registry().insights
    return answer({"comment": shown_comment(await table.comment(asked.word("id"), given.text, actor=asked.actor))})


async def inspect(asked: Asked) -> web.Response:
    """Looking is part of the answer, so that it is done when a command without a server ends."""
    await asked.body(Inspection)
    try:
        done = await inspector(asked.services).inspect()
    except CardUnreadable as error:
        raise Invalid(f"prices.file: {error}") from error
    return answer({"inspection": {**asdict(done.merged), "failed": list(done.failed)}})


CALLS = (
    Call("GET", "/insights", VIEWER, list_insights, "List insights", lists=INSIGHTS),
    Call("POST", "/insights/run", OPERATOR, inspect, "Look with every detector now", takes=Inspection),
    Call("GET", "/insights/{id}", VIEWER, show_insight, "Show an insight and its comments"),
    Call("PATCH", "/insights/{id}", OPERATOR, set_insight, "Set an insight's status", takes=InsightStatus),
    Call("GET", "/insights/{id}/comments", VIEWER, list_comments, "List the comments on an insight", lists=COMMENTS),
    Call("POST", "/insights/{id}/comments", OPERATOR, comment_insight, "Comment on an insight", takes=InsightComment),
)

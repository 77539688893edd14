"""
The spans of one payload as a family tree: what a span inherits from those around it, and which describe one call.

Keeps a light node for each span; knows nothing of dialects. All walks are loops: a chain of spans may be as long as a
payload is large.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

from gateway.normalise.otlp.calls import Call
from gateway.normalise.otlp.vocabulary import NOBODY, Who, nearest

Key = tuple[str, str]  # trace id, span id


class Above(NamedTuple):
    """What stands above a span: identity and agent by nearness, and the nearest enclosing call of each class."""

    who: Who = NOBODY
    agent: str | None = None
    calls: tuple[Call | None, Call | None, Call | None] = (None, None, None)


NOTHING = Above()


class Node(Struct, gc=False):
    parent: Key | None
    who: Who
    agent: str | None
    is_border: bool  # a tool or agent: calls below it are calls of their own
    call: Call | None
    below: Above | None = None  # what the spans under this one inherit, once it was asked for


class Family:
    """All spans of a payload, added to `nodes` one by one, asked when all are there."""

    def __init__(self) -> None:
        self.nodes: dict[Key, Node] = {}

    def above(self, parent: Key | None) -> Above:
        """What a span under `parent` inherits."""
        if parent is None or (node := self.nodes.get(parent)) is None:
            return NOTHING
        chain: list[Node] = []
        seen: set[int] = set()
        while node is not None and node.below is None and id(node) not in seen:  # a circle has no top
            chain.append(node)
            seen.add(id(node))
            node = self.nodes.get(node.parent) if node.parent is not None else None
        above = node.below if node is not None and node.below is not None else NOTHING
        for node in reversed(chain):
            above = node.below = _below(node, above)
        return above

    def drop_twins(self) -> set[int]:
        """Settle calls within calls; the places of those that describe a call another one describes better."""
        enclosing: list[Call] = []
        enclosed: set[int] = set()
        for node in self.nodes.values():
            call = node.call
            if call is None or node.parent is None or node.is_border:
                continue
            outer = self.above(node.parent).calls[call.kind]
            if outer is not None and outer is not call:
                if outer.inner is None:
                    outer.inner = []
                    enclosing.append(outer)
                outer.inner.append(call)
                enclosed.add(call.place)
        dropped: set[int] = set()
        for outer in enclosing:
            if outer.place not in enclosed:
                _settle(outer, dropped)
        for outer in enclosing:
            outer.inner = None
        return dropped


def _below(node: Node, above: Above) -> Above:
    calls = above.calls
    if node.is_border:
        calls = NOTHING.calls
    elif node.call is not None:
        a, b, c = calls
        kind = node.call.kind
        calls = (node.call if kind == 0 else a, node.call if kind == 1 else b, node.call if kind == 2 else c)
    elif node.who is NOBODY and node.agent is None:
        return above
    return Above(nearest(node.who, above.who), node.agent or above.agent, calls)


def _settle(outermost: Call, dropped: set[int]) -> None:
    """
    Keep the innermost call that has usage, with failed ones beside it; none below has usage: keep the outer, if it has.

    From a dropped twin, when it stands for exactly one kept call, come identity, cost and the fuller set of tokens.
    """
    kept_below: dict[int, list[Call]] = {}  # by place of the call
    for call in _inside_out(outermost):
        kept = _joined(kept_below.pop(inner.place) for inner in call.inner or ())
        with_usage = [inner for inner in kept if inner.has_usage]
        if call.has_usage and not with_usage:
            for inner in kept:
                if inner.record.status != "error":
                    dropped.add(inner.place)
                    _take_over(call, inner)
            kept_below[call.place] = [call, *(inner for inner in kept if inner.record.status == "error")]
        elif kept:
            dropped.add(call.place)
            counted = with_usage or kept
            if len(counted) == 1:
                _take_over(counted[0], call)
            kept_below[call.place] = kept
        else:
            kept_below[call.place] = [call]


def _inside_out(outermost: Call) -> list[Call]:
    order: list[Call] = []
    waiting = [outermost]
    while waiting:
        call = waiting.pop()
        order.append(call)
        waiting += call.inner or ()
    order.reverse()
    return order


def _joined(lists: Iterable[list[Call]]) -> list[Call]:
    joined: list[Call] = []
    for some in lists:
        if len(some) > len(joined):
            joined, some = some, joined  # the shorter one moves, so that long chains stay cheap
        joined += some
    return joined


def _take_over(kept: Call, twin: Call) -> None:
    if kept.record.cost is None:
        kept.record.cost = twin.record.cost
    if kept.has_usage and twin.tokens.reported() > kept.tokens.reported():
        kept.count_as(twin.tokens)
        if kept.why is not None and twin.why is not None:
            kept.why.update(
                {field: f"{text} (of a dropped twin)" for field, text in twin.why.items() if "tokens" in field}
            )
    kept.twin_who += (twin.who, *twin.twin_who)
    kept.agent = kept.agent or twin.agent

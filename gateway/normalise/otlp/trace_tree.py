"""
The spans of one payload as a family tree: what a span inherits from those around it, and which describe one call.

Keeps a light node for each span; knows nothing of dialects. All walks are loops: a chain of spans may be as long as a
payload is large.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import NamedTuple

from msgspec import Struct

from gateway.normalise.otlp.calls import Call
from gateway.normalise.otlp.who import NOBODY, Who, nearest

TURN = 4096  # nodes to settle without a pause

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

    def drop_twins(self) -> Generator[None, None, set[int]]:
        """Settle calls within calls; returns the places of those that describe a call another one describes better."""
        enclosing: list[Call] = []
        enclosed: set[int] = set()
        for number, node in enumerate(self.nodes.values(), start=1):
            if number % TURN == 0:
                yield
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


class Kept(NamedTuple):
    """Of the calls below one, those that stay, and of these those with usage."""

    kept: list[Call]
    counted: list[Call]


def _settle(outermost: Call, dropped: set[int]) -> None:
    """
    Keep the innermost call that has usage, with failed ones beside it; none below has usage: keep the outer, if it has.

    From a dropped twin, when it stands for exactly one kept call, come identity, cost and the fuller set of tokens.
    """
    below: dict[int, Kept] = {}  # by place of the call
    for call in _inside_out(outermost):
        kept, counted = _joined(below.pop(inner.place) for inner in call.inner or ())
        if call.has_usage and not counted:
            failed = [inner for inner in kept if inner.record.status == "error"]
            for inner in kept:
                if inner.record.status != "error":
                    dropped.add(inner.place)
                    _take_over(call, inner)
            below[call.place] = Kept([call, *failed], [call])
        elif kept:
            dropped.add(call.place)
            if len(counted or kept) == 1:
                _take_over((counted or kept)[0], call)
            below[call.place] = Kept(kept, counted)
        else:
            below[call.place] = Kept([call], [])


def _inside_out(outermost: Call) -> list[Call]:
    order: list[Call] = []
    waiting = [outermost]
    while waiting:
        call = waiting.pop()
        order.append(call)
        waiting += call.inner or ()
    order.reverse()
    return order


def _joined(branches: Iterable[Kept]) -> Kept:
    kept: list[Call] = []
    counted: list[Call] = []
    for branch in branches:  # the shorter list moves, so that long chains stay cheap
        kept = _longer(kept, branch.kept)
        counted = _longer(counted, branch.counted)
    return Kept(kept, counted)


def _longer(some: list[Call], others: list[Call]) -> list[Call]:
    if len(others) > len(some):
        some, others = others, some
    some += others
    return some


def _take_over(kept: Call, twin: Call) -> None:
    if kept.record.cost is None and twin.record.cost is not None:
        kept.record.cost = twin.record.cost
        _explain(kept, twin, "cost")
    if kept.has_usage and twin.tokens.reported() > kept.tokens.reported():
        kept.count_as(twin.tokens)
        _explain(kept, twin, "tokens")
    kept.twin_who = nearest(kept.twin_who, nearest(twin.who, twin.twin_who))
    kept.agent = kept.agent or twin.agent


def _explain(kept: Call, twin: Call, ending: str) -> None:
    if kept.why is not None and twin.why is not None:
        taken = {field: f"{why} (of a dropped twin)" for field, why in twin.why.items() if field.endswith(ending)}
        kept.why |= taken

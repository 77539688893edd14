"""Nested calls: which spans describe one call, and which values the kept span takes from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.normalise.otlp.decoding import pieces, wire
from gateway.normalise.otlp.spans import reader as spans_module
from gateway.normalise.payload import body_limits
from spool.identity import caller_and_server_link_keys
from tests.gateway.normalise.otlp.payloads import (
    ENCODINGS,
    in_protobuf,
    normalised,
    only,
    records,
    span,
    traces,
)
from tests.gateway.normalise.outcomes import inferences
from tests.rounds import part, reduced

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m"}
USED = {**CHAT, "gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 2}
EMBED = {**USED, "gen_ai.operation.name": "embeddings"}
FAILED = {**CHAT, "error.type": "timeout"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "planner"}
HTTP = {"http.request.method": "POST"}

# Per case: the spans as (attributes, number of the parent), numbered from 1, and the numbers of the spans
# that become records.
TREES: dict[str, tuple[list[tuple[dict[str, Any], int | None]], list[int]]] = {
    "innermost with usage": ([(USED, None), (USED, 1)], [2]),
    "three deep": ([(USED, None), (USED, 1), (USED, 2)], [3]),
    "through spans that are nothing": ([(USED, None), (HTTP, 1), (USED, 2)], [3]),
    "outer alone has usage": ([(USED, None), (CHAT, 1)], [1]),
    "middle alone has usage": ([(CHAT, None), (USED, 1), (CHAT, 2)], [2]),
    "failed attempt and a good one": ([(USED, None), (FAILED, 1), (USED, 1)], [2, 3]),
    "failed attempt under a call that was mended": ([(USED, None), (FAILED, 1)], [1, 2]),
    "all failed": ([(FAILED, None), (FAILED, 1)], [2]),
    "all failed, three deep": ([(FAILED, None), (FAILED, 1), (FAILED, 2)], [3]),
    "none has usage": ([(CHAT, None), (CHAT, 1)], [2]),
    "two good ones under one": ([(USED, None), (USED, 1), (USED, 1)], [2, 3]),
    "a good one without usage beside one with": ([(USED, None), (USED, 1), (CHAT, 1)], [2, 3]),
    "tool in between": ([(USED, None), (TOOL, 1), (USED, 2)], [1, 3]),
    "agent in between": ([(USED, None), (AGENT, 1), (USED, 2)], [1, 3]),
    "agent above": ([(AGENT, None), (USED, 1)], [2]),
    "another class": ([(USED, None), (EMBED, 1)], [1, 2]),
    "embeddings in embeddings": ([(EMBED, None), (EMBED, 1)], [2]),
    "siblings": ([(HTTP, None), (USED, 1), (USED, 1)], [2, 3]),
    "parent in another request": ([(USED, 9)], [1]),
    "its own parent": ([(USED, 1)], [1]),
    "a circle": ([(USED, 2), (USED, 1)], [1, 2]),
}


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("order", ["as written", "children first"])
@pytest.mark.parametrize("name", TREES)
def test_which_spans_are_calls(name: str, order: str, encoding: str) -> None:
    """The expected spans become records, in whichever order the spans are exported."""
    tree, expected = TREES[name]
    spans = [
        span(number, attributes, parent=parent) for number, (attributes, parent) in enumerate(tree, start=1)
    ]
    outcome = normalised(traces(*(spans if order == "as written" else reversed(spans))), encoding=encoding)
    found = sorted(int(record.span_id, 16) for record in outcome.records)  # type: ignore[arg-type, union-attr]
    assert expected == found


KINDS: dict[str, dict[str, Any]] = {
    "used": USED, "plain": CHAT, "failed": FAILED, "failed and used": {**USED, **FAILED}, "embed": EMBED,
    "tool": TOOL, "agent": {**AGENT, **USED, "gen_ai.operation.name": "invoke_agent"}, "http": HTTP,
}  # fmt: skip


def _described(kinds: list[str], parents: list[int | None]) -> set[int]:
    """Return the expected records (numbers from 0) by a direct, slow implementation of the rule."""

    def inner(number: int) -> list[int]:
        found, waiting = [], [child for child, parent in enumerate(parents) if parent == number]
        while waiting:
            child = waiting.pop()
            if kinds[child] in ("tool", "agent"):
                continue
            if kinds[child] != "http" and (kinds[child] == "embed") == (kinds[number] == "embed"):
                found.append(child)
            else:
                waiting += [below for below, parent in enumerate(parents) if parent == child]
        return found

    def kept(number: int) -> set[int]:
        below = set().union(*(kept(child) for child in inner(number)))
        if any("used" in kinds[child] or kinds[child] == "embed" for child in below):
            return below
        if "used" in kinds[number] or kinds[number] == "embed":
            return {number, *(child for child in below if kinds[child] == "failed")}
        if kinds[number] == "failed" and all(kinds[child] == "plain" for child in below):
            return {number}  # the spans below a failed call do not show the failure
        return below or {number}

    calls = {number for number, kind in enumerate(kinds) if kind not in ("tool", "agent", "http")}
    outermost = calls - {child for number in calls for child in inner(number)}
    return set().union(*(kept(number) for number in outermost))


@given(
    st.lists(st.tuples(st.sampled_from(sorted(KINDS)), st.none() | st.integers(0, 8)), max_size=9),
    st.randoms(),
)
def test_any_tree_of_spans_in_any_order(nodes: list[tuple[str, int | None]], chance: Random) -> None:
    """For random trees in random order, the result equals the direct implementation."""
    kinds = [kind for kind, _ in nodes]
    parents = [
        parent if parent is not None and parent < place else None for place, (_, parent) in enumerate(nodes)
    ]
    spans = [
        span(place, KINDS[kind], parent=None if parent is None else parent + 1)
        for place, (kind, parent) in enumerate(zip(kinds, parents, strict=True), start=1)
    ]
    chance.shuffle(spans)
    found = {int(record.span_id or "", 16) - 1 for record in records(traces(*spans))}
    assert _described(kinds, parents) == found


def test_a_dropped_twin_gives_cost_identity_and_the_fuller_tokens() -> None:
    """
    If an outer span is dropped for an inner one, its values are kept. Here the framework's span has user,
    cost and cached tokens, and the SDK's span below has the response id.
    """
    outer = {
        **USED, "gen_ai.usage.cache_read.input_tokens": 4, "operation.cost": 0.5, "user.id": "u", "team.id": "t",
        "session.id": "outer",
    }  # fmt: skip
    inner = {**USED, "gen_ai.usage.input_tokens": 9, "gen_ai.response.id": "resp-1", "session.id": "inner"}
    record = only(traces(span(1, outer), span(2, inner, parent=1)))
    assert record.request_id == "resp-1"
    assert record.input_tokens == 10
    assert record.cache_read_tokens == 4
    assert record.cost == "0.5"
    assert record.user == "u"
    assert record.team == "t"
    assert record.session == "inner"


def test_the_inner_figures_stay_when_the_twin_knows_no_more() -> None:
    """
    If both spans have the same number of fields, the counts of the innermost span stay, because it is closest
    to the call.
    """
    inner = {
        **USED,
        "gen_ai.usage.input_tokens": 9,
        "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cost": 0.1,
    }
    record = only(traces(span(1, {**USED, "gen_ai.usage.cost": 0.2}), span(2, inner, parent=1)))
    assert record.input_tokens == 9
    assert record.cost == "0.1"


@pytest.mark.parametrize("turned", [False, True])
def test_of_equally_full_twins_the_larger_input_holds_the_cache(turned: bool) -> None:
    """
    If two spans have equal outputs and different inputs, one of them excluded the cache. The larger input
    counts, whether the outer or the inner span has it.
    """
    with_cache = {**USED, "gen_ai.usage.input_tokens": 1320, "gen_ai.usage.cache_read.input_tokens": 200}
    without = {**with_cache, "gen_ai.usage.input_tokens": 1120}
    outer, inner = (without, with_cache) if turned else (with_cache, without)
    record = only(traces(span(1, outer), span(2, inner, parent=1)))
    assert record.input_tokens == 1320
    assert record.cache_read_tokens == 200
    assert record.output_tokens == 2


WRITTEN = "gen_ai.usage.cache_creation.input_tokens"


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "more", [{}, {"gen_ai.usage.cache_read.input_tokens": 0, "gen_ai.usage.reasoning_tokens": 0}]
)
@pytest.mark.parametrize("total", [400, 112])
def test_a_stated_zero_hides_no_count_of_a_twin(total: int, more: dict[str, Any], turned: bool) -> None:
    """
    A positive count has priority over a 0 of the other span. For example, OpenLLMetry writes 0 for a cache
    write that the SDK counts.
    """
    zero = {**USED, "gen_ai.usage.input_tokens": total, WRITTEN: 0, **more}
    counted = {**USED, "gen_ai.usage.input_tokens": 400, WRITTEN: 288}
    outer, inner = (zero, counted) if turned else (counted, zero)
    record = only(traces(span(1, outer), span(2, inner, parent=1)))
    assert record.input_tokens == 400
    assert record.cache_write_tokens == 288


def test_kept_call_without_model_gets_that_of_the_dropped_span() -> None:
    """Model and provider are copied only if the kept span has none."""
    inner = {"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 10}
    outer = {**CHAT, "gen_ai.response.model": "m-1"}
    record = only(traces(span(1, outer), span(2, inner, parent=1)))
    assert record.request_model == "m"
    assert record.response_model == "m-1"
    assert record.provider == "openai"
    named = only(traces(span(1, outer), span(2, {**inner, "gen_ai.request.model": "claude-x"}, parent=1)))
    assert named.request_model == "claude-x"
    assert named.response_model is None
    assert named.provider == "anthropic"


@pytest.mark.parametrize("turned", [False, True])
def test_kept_call_gets_id_and_tier_of_the_other_span(turned: bool) -> None:
    """
    A kept call gets the answer's id and tier from the other span. For example, AutoGen's span has the counts,
    and the OpenAI library's span below has the id. The reverse works as well.
    """
    answered = {
        **CHAT,
        "gen_ai.response.id": "chatcmpl-0123456789abcdef",
        "openai.response.service_tier": "flex",
    }
    outer, inner = (answered, USED) if turned else (USED, answered)
    record = only(traces(span(1, outer), span(2, inner, parent=1)))
    told = (record.request_id, record.tags["service_tier"], record.input_tokens)
    assert ("chatcmpl-0123456789abcdef", "flex", 10) == told
    theirs = only(
        traces(span(3, {**USED, "gen_ai.response.id": "chatcmpl-0123456789abcdef"}, traceId=f"{9:032x}"))
    )
    assert theirs.id == record.id


@pytest.mark.parametrize(
    "below",
    [
        [{**CHAT, "gen_ai.response.id": "chatcmpl-0123456789abcdef"}, CHAT],
        [{**FAILED, "gen_ai.response.id": "chatcmpl-0123456789abcdef"}],
    ],
)
def test_an_id_that_may_be_of_another_call_is_left(below: list[dict[str, Any]]) -> None:
    """
    If two answers are below a sum, neither id is copied. The id of a failed attempt is not copied to
    the good call.
    """
    inner = [span(number, attributes, parent=1) for number, attributes in enumerate(below, start=2)]
    (kept,) = [record for record in records(traces(span(1, USED), *inner)) if record.status == "ok"]
    assert kept.input_tokens == 10
    assert kept.request_id is None


def test_an_outer_call_over_two_gives_neither_its_sums() -> None:
    """Cost and tokens are copied from an outer call only if exactly one call is below it."""
    outer = {
        **USED,
        "gen_ai.usage.input_tokens": 20,
        "gen_ai.usage.cost": 0.2,
        "gen_ai.usage.reasoning_tokens": 1,
    }
    outcome = normalised(traces(span(1, outer), span(2, USED, parent=1), span(3, USED, parent=1)))
    assert [(10, None), (10, None)] == [(record.input_tokens, record.cost) for record in inferences(outcome)]
    assert {"merged": 1} == dict(outcome.ignored)


def test_failed_attempt_gets_no_cost_from_the_successful_call() -> None:
    """
    A failed attempt gets no cost from the outer call, because that cost belongs to the successful attempt.
    """
    outcome = normalised(
        traces(
            span(1, {**USED, "gen_ai.usage.cost": 0.2}), span(2, FAILED, parent=1), span(3, USED, parent=1)
        )
    )
    assert [("error", None), ("ok", "0.2")] == [
        (record.status, record.cost) for record in inferences(outcome)
    ]


def test_identity_is_inherited_from_nearest_ancestor_then_resource() -> None:
    """
    User, team, session and agent are each inherited from the nearest span above that has them, or else from
    the resource. Other tags are not inherited.
    """
    outcome = normalised(
        traces(
            span(1, {**HTTP, "user.id": "far", "team.id": "far", "department": "d"}),
            span(2, {**AGENT, "user.id": "near"}, parent=1),
            span(3, USED, parent=2),
            resource={"user.id": "r", "session.id": "r-session", "env": "prod"},
        )
    )
    (record,) = outcome.records
    assert record.user == "near"
    assert record.team == "far"
    assert record.session == "r-session"
    assert record.tags == {"agent": "planner", "environment": "prod"}


def test_a_span_names_its_user_and_the_run_its_agent() -> None:
    """The span's own user wins over all spans above. The name of the agent is that of the run."""
    own = {**USED, "user.id": "own", "gen_ai.agent.name": "helper"}
    record = only(traces(span(1, {**AGENT, "user.id": "above"}), span(2, own, parent=1)))
    assert record.user == "own"
    assert record.tags == {"agent": "planner"}


def test_a_span_sent_twice_in_one_payload_counts_once() -> None:
    """A span that is sent twice in one payload counts once, and its parent still finds exactly one child."""
    outer, inner = span(1, {**USED, "gen_ai.usage.cost": 0.5}), span(2, USED, parent=1)
    outcome = normalised(traces(outer, inner, inner))
    assert ["0.5"] == [record.cost for record in outcome.records]  # type: ignore[union-attr]
    assert {"merged": 1, "duplicate": 1} == dict(outcome.ignored)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_parent_and_child_are_found_across_slices(encoding: str) -> None:
    """Parent and child are found although they may be megabytes apart, in different slices."""
    filler = [
        span(number, {**HTTP, "note": "x" * 400}, name="GET", parent=1)
        for number in range(3, 3 + 3 * pieces.MAX_PIECE // 600)
    ]
    payload = traces(span(2, USED, parent=1), *filler, span(1, {**USED, "gen_ai.usage.cost": 0.5}))
    if encoding == "protobuf":
        assert len(list(wire.cut_request(in_protobuf(payload), (1, 2, 2)))) > 2
    outcome = normalised(payload, encoding=encoding)
    assert [(f"{2:016x}", "0.5")] == [(record.span_id, record.cost) for record in inferences(outcome)]
    assert {"merged": 1, "not_ai": len(filler)} == dict(outcome.ignored)


DEEP = reduced(20_000, by=4)


def _chain(number: int) -> dict[str, Any]:
    return span(number, {**USED, "user.id": "u"}, parent=number - 1 or None)


def _ladder(number: int) -> dict[str, Any]:
    """Create a chain of failed spans. Each has a failed sibling."""
    return span(
        number, FAILED, parent=(number - 1 if number % 2 == 0 else number - 2) if number > 1 else None
    )


def _fan(number: int) -> dict[str, Any]:
    return span(number, USED, parent=1 if number > 1 else None)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("tree", "expected"), part([(_chain, 1), (_ladder, DEEP // 2), (_fan, DEEP - 1)], every=3)
)
def test_long_chains_and_wide_families_are_settled_in_one_pass(
    tree: Callable[[int], dict[str, Any]], expected: int
) -> None:
    """
    Long chains and wide trees are processed in one pass, without recursion or quadratic work, so deliberate
    nesting costs no more than a normal payload.
    """
    outcome = normalised(traces(*(tree(number) for number in range(1, DEEP + 1))))
    assert expected == len(outcome.records)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("tree", part([_chain, _ladder, _fan], every=3))
def test_a_large_payload_is_settled_trace_by_trace_as_it_would_be_at_once(
    tree: Callable[[int], dict[str, Any]], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Complete traces of a large payload are finished while the rest of the body is read. The records are the
    same as if all were finished at the end.
    """
    spans = []
    for trace in range(1, 200):
        for number in range(1, 8):
            made = tree(number)
            made["traceId"] = f"{trace:032x}"
            spans.append(made)
    # this order interleaves the spans of twenty traces
    spans.sort(key=lambda made: (int(made["traceId"], 16) // 20, made["spanId"]))
    payload = traces(*spans)
    monkeypatch.setattr(wire.cut_request, "__defaults__", (4096,))
    monkeypatch.setattr(body_limits, "SLICE_BYTES", 8192)
    monkeypatch.setattr(spans_module, "PART", 100)
    at_once = normalised(payload, encoding=encoding)
    waiting: list[int] = []
    settle = spans_module.SpanReader.add_calls_of_ended_traces

    def watched(self: spans_module.SpanReader, ended: frozenset[str]) -> Iterator[None]:
        waiting.append(len(self._calls))
        return settle(self, ended)

    monkeypatch.setattr(spans_module.SpanReader, "add_calls_of_ended_traces", watched)
    monkeypatch.setattr(pieces, "LARGE_BODY", 10_000)
    by_trace = normalised(payload, encoding=encoding)
    assert len(waiting) > 10
    assert max(waiting) < len(spans) // 3
    assert sorted(map(repr, at_once.records)) == sorted(map(repr, by_trace.records))
    assert at_once.ignored == by_trace.ignored


def test_a_run_of_pydantic_ai_is_an_agent_whatever_its_version() -> None:
    """
    The span of a Pydantic AI run is an agent in every version, although the first version names neither
    operation nor kind. Calls below its tools are separate calls.
    """
    run = {"agent_name": "planner", "model_name": "m", "gen_ai.usage.input_tokens": 12}
    payload = traces(span(1, USED), span(2, run, parent=1), span(3, USED, parent=2), scope="pydantic-ai")
    assert 2 == len(normalised(payload).records)


def test_path_of_many_failures_is_walked_once() -> None:
    """
    Each failure is linked to the topmost span above it. With many failures under a long chain, the path up is
    walked only once.
    """
    depth = reduced(12_000, by=4)
    chain = [span(number, HTTP, parent=number + 1) for number in range(1, depth + 1)]
    failed = [span(depth + 10 + number, FAILED, parent=1) for number in range(depth)]
    began = process_time()
    normalised(traces(*chain))
    alone_s = process_time() - began
    began = process_time()
    outcome = normalised(traces(*failed, *chain))
    assert 15 * alone_s + 1 > process_time() - began
    linked = {identity.links[1] for identity in outcome.identities}
    made, answered = caller_and_server_link_keys(f"{1:032x}", f"{depth + 1:016x}", "error")
    assert {(answered, made)} == linked


@pytest.mark.parametrize("parents", [(2, 1), (1, None)])
def test_a_circle_of_spans_has_nothing_above(parents: tuple[int, int | None]) -> None:
    """If spans form a circle, nothing is above it. A failure below the circle is linked only to itself."""
    circle = [span(number, HTTP, parent=parent) for number, parent in enumerate(parents, start=1)]
    outcome = normalised(traces(*circle, span(3, FAILED, parent=1)))
    (identity,) = outcome.identities
    assert caller_and_server_link_keys(f"{1:032x}", f"{3:016x}", "error") == identity.links[0]
    assert 2 == len(identity.links)  # the second is the further name of a failure without a request id


@pytest.mark.parametrize(
    ("more", "links"),
    [
        ({}, 2),
        ({"gen_ai.response.id": "chatcmpl-0123456789abcdef0123"}, 0),
        ({"gen_ai.response.id": "resp_" + "a" * 91}, 0),
        ({"gen_ai.response.id": "resp_" + "a" * 92}, 2),
        ({"gen_ai.response.id": "chatcmpl-0123456789abcdef0123", "error.type": "timeout"}, 4),
        ({"anthropic.request.id": "req_0123456789abcdef0123", "error.type": "timeout"}, 2),
    ],
)
def test_which_calls_are_linked(more: dict[str, Any], links: int) -> None:
    """
    A call is linked to other reports by its trace if it shares no id with them: failures, answers without an
    id, and answers with an encrypted id. A failure without a request id has two names more.
    """
    (identity,) = normalised(traces(span(1, USED | more, parent=9))).identities
    assert links == len(identity.links)

"""
Metadata with names that senders choose. Values that may be content are dropped, even if their names are
in no list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import pytest

from gateway.normalise.events import read_events
from gateway.normalise.outcome import ReadOptions
from gateway.normalise.payload.body_limits import BodyReadLimits
from tests.gateway.normalise.formats.langfuse import events as langfuse
from tests.gateway.normalise.formats.payloads import case, read
from tests.gateway.normalise.otlp.payloads import normalised, span, traces

SENTENCE = "The customer asks us to cancel his order of May"
METADATA = {
    **dict.fromkeys(("diff", "code", "tool_result", "result", "sql", "stdout", "ground_truth", "turns"), "canary"),
    "whatever": SENTENCE, "mehr": "客户要求取消五月份的订单", "plan": "a\nb", "blob": "x" * 129, SENTENCE: "true",
    "tier": "gold", "turn": 7, "code_owner": "search-team", "error_code": "E17",
    "title": "Head of Customer Success EMEA", "path": "s3://bucket/" + "x" * 100,
}  # fmt: skip
KEPT = {"tier", "turn", "code_owner", "error_code", "title", "path"}


def of_spans(metadata: Mapping[str, object], options: ReadOptions) -> tuple[Mapping[str, str], int]:
    call = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "metadata": json.dumps(metadata)}
    outcome = normalised(traces(span(1, call)), options=options)
    (record,) = outcome.records
    return record.tags, outcome.left_out


def of_a_format(metadata: Mapping[str, object], options: ReadOptions) -> tuple[Mapping[str, str], int]:
    payload = case("litellm", "slp-batch-array")[0]
    payload["metadata"] = {"spend_logs_metadata": metadata}
    payload["request_tags"] = []
    outcome = read("litellm", payload, options=options)
    (record,) = outcome.records
    return record.tags, outcome.left_out


def of_langfuse(metadata: Mapping[str, object], options: ReadOptions) -> tuple[Mapping[str, str], int]:
    whole = langfuse.create(endTime="2026-11-20T07:15:07.352454Z", usageDetails={"input": 10, "output": 4})
    outcome = read(None, langfuse.batch(langfuse.trace(tags=[], metadata=metadata), whole), options=options)
    (record,) = outcome.records
    return record.tags, outcome.left_out


def of_events(metadata: Mapping[str, object], options: ReadOptions) -> tuple[Mapping[str, str], int]:
    steps = read_events(
        json.dumps({"type": "t", "data": metadata}).encode(),
        BodyReadLimits(9),
        accepts_assigned_ids=True,
        keep_tags=options.keep_tags,
    )
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            (record,) = stop.value.records
            return record.data, stop.value.left_out


DOORS = pytest.mark.parametrize("door", [of_spans, of_a_format, of_langfuse, of_events])
Door = Callable[[Mapping[str, object], ReadOptions], tuple[Mapping[str, str], int]]


@pytest.mark.proves("content under a free name")
@pytest.mark.proves("A prompt reaches the disk under an unexpected name")
@DOORS
def test_what_may_be_a_text_is_left_out_and_counted(door: Door) -> None:
    """
    Long values, values of many words, and names such as `diff` are dropped. Numbers, ids and labels stay.
    """
    kept, left_out = door(METADATA, ReadOptions())

    assert {*kept} & {*METADATA} == KEPT
    assert len(METADATA) - len(KEPT) == left_out


@DOORS
def test_configured_attribute_is_stored(door: Door) -> None:
    """
    A name in `privacy.keep_attributes` is kept, because the operator is responsible for it. Names of content
    are dropped in any case.
    """
    names = frozenset({"whatever", "diff", "prompt"})
    kept, left_out = door(
        {"whatever": SENTENCE, "diff": "canary", "prompt": "canary"}, ReadOptions(keep_tags=names)
    )

    assert {*kept} & names == {"whatever", "diff"}
    assert left_out == 1

"""Metric points: metric families, token types, costs, deltas and cumulative counters."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.normalise import otlp
from gateway.normalise.otlp.metric_rules import MAX_TOKENS
from gateway.normalise.otlp.metrics import UNCHANGED, SeriesKeys
from gateway.normalise.otlp.model import MetricPoint
from gateway.normalise.outcome import IMPLAUSIBLE, MERGED, NOT_AI, UNRECOGNISED_AI, ReadOptions, ReadOutcome
from spool.identity import dedup_key_of_metric_point
from spool.ledger.sums import HourlySums
from spool.log.values import CounterPoint, LogEntry
from spool.record import UsageMetric, decimal_text
from tests.exporters.test_metrics import metrics_request
from tests.gateway.normalise.otlp.items import NOW, SECOND, finished, picked, point, read_points

TOKENS = "gen_ai.client.token.usage"
MODELS = {"gen_ai.request.model": "gpt-4o", "gen_ai.response.model": "gpt-4o-2024-11-20"}


def typed(kind: str, value: Any = 7.0, **how: Any) -> MetricPoint:
    return point(TOKENS, value, MODELS | {"gen_ai.token.type": kind}, **how)


def metrics(outcome: ReadOutcome) -> list[UsageMetric]:
    return [record for record in outcome.records if isinstance(record, UsageMetric)]


def test_a_delta_is_a_record_over_its_time() -> None:
    """
    A delta point becomes a record over [start, time] with the complete sum of its histogram. Series, start
    and time are its dedup key.
    """
    given_point = typed("input", 1667.0)
    (record,) = metrics(outcome := read_points(given_point))
    assert {
        "name": TOKENS, "model": "gpt-4o-2024-11-20", "token_type": "input", "value": 1667, "unit": "{token}",
        "start_time": NOW, "end_time": NOW + 60 * SECOND, "source": "otel",
    } == picked(record, "name", "model", "token_type", "value", "unit", "start_time", "end_time", "source")  # fmt: skip
    assert (
        dedup_key_of_metric_point(SeriesKeys().series_key(given_point), NOW, NOW + 60 * SECOND)
        == record.id
        == outcome.identities[0].id
    )


def test_a_resent_delta_is_the_same_record() -> None:
    """A delta that is sent again has the same dedup key, whichever request it is in."""
    first, again, next_one = read_points(
        typed("input"), typed("input"), typed("input", time=NOW + 9)
    ).identities
    assert first == again
    assert first != next_one


def test_a_cumulative_point_is_the_logs_to_turn_into_a_delta() -> None:
    """
    A cumulative point is passed to the log unchanged, with a template for the record. The log
    computes the increase.
    """
    counter = typed("output", 359.0, cumulative=True, start_time=0, resource={"service.name": "shop"})
    (taken,) = (outcome := read_points(counter)).points
    assert isinstance(taken, CounterPoint)
    assert SeriesKeys().series_key(counter) == taken.series
    assert taken.start_time == 0
    assert taken.time == NOW + 60 * SECOND
    assert taken.value == 359
    assert {
        "name": TOKENS, "model": "gpt-4o-2024-11-20", "token_type": "output", "unit": "{token}", "source": "otel",
        "tags": {"service": "shop"},
    } == picked(taken.template, "name", "model", "token_type", "unit", "source", "tags")  # fmt: skip
    assert [] == outcome.records


def test_a_cumulative_zero_is_handed_over() -> None:
    """A cumulative zero is the base for later increases. A delta of zero means nothing."""
    outcome = read_points(
        typed("input", 0, cumulative=True), typed("input", 0.0), point("operation.cost", 0.0)
    )
    assert len(outcome.points) == 1
    assert outcome.ignored == {UNCHANGED: 2}


@pytest.mark.parametrize("value", [1e-13, 4.4e-16])
def test_money_below_a_trillionth_is_nothing(value: float) -> None:
    """Amounts below a trillionth count as 0, because sums of floats leave such remainders."""
    assert {UNCHANGED: 1} == read_points(point("operation.cost", value)).ignored


def test_envoys_types_are_parts_and_stay_apart() -> None:
    """
    Cached and reasoning tokens are included in input and output, so they are stored separately and never added.
    """
    kinds = ("input", "cached_input", "cache_creation_input", "output", "reasoning")
    how = {"scope": "envoyproxy/ai-gateway", "unit": "token"}
    records = metrics(read_points(*(typed(kind, **how) for kind in kinds)))
    assert ["input", "cache_read", "cache_write", "output", "reasoning"] == [r.token_type for r in records]
    assert {"envoy_ai_gateway"} == {r.source for r in records}


@pytest.mark.parametrize(
    ("how", "source"),
    [
        ({"scope": "io.micrometer", "unit": "tokens"}, "spring_ai"),
        ({"scope": "org.springframework.boot"}, "spring_ai"),
        ({"resource": {"telemetry.sdk.name": "io.micrometer", "service.name": "shop"}}, "spring_ai"),
        ({"resource": {"service.name": "kong"}}, "kong"),
    ],
)
def test_a_third_type_total_is_dropped(how: dict[str, str], source: str) -> None:
    """
    Spring's counter and Kong's sum write input, output and their total. The total is dropped, because it
    repeats the other two.
    """
    outcome = read_points(*(typed(kind, **how) for kind in ("input", "output", "total")))
    assert [(source, "input"), (source, "output")] == [(r.source, r.token_type) for r in metrics(outcome)]
    assert {MERGED: 1} == outcome.ignored


def test_kongs_points_are_known_by_their_attributes() -> None:
    """
    Kong's points are recognized by their attributes, because the operator chooses the service name. The
    consumer that Kong authenticated is the user.
    """
    attributes = MODELS | {
        "gen_ai.token.type": "input",
        "kong.auth.consumer.name": "search",
        "kong.route.name": "ai",
    }
    (record,) = metrics(read_points(point(TOKENS, 5, attributes, resource={"service.name": "edge"})))
    assert record.source == "kong"
    assert record.user == "search"


def test_kongs_cost_has_no_currency_and_is_dollars() -> None:
    """
    Kong's cost has the unit {cost} and no currency. It counts as dollars, because Kong's price settings are
    in dollars by convention.
    """
    outcome = read_points(point("kong.gen_ai.llm.cost", 0.0125, MODELS, unit="{cost}"))
    assert [("kong", "USD", "0.0125")] == [(r.source, r.unit, r.value) for r in metrics(outcome)]


def test_semantic_kernels_counters_have_their_kind_in_the_name() -> None:
    """
    Semantic Kernel's counters have the token type in their names: prompt, completion or total. They
    name no model.
    """
    names = [f"semantic_kernel.connectors.openai.tokens.{kind}" for kind in ("prompt", "completion", "total")]
    outcome = read_points(
        *(point(name, 5, cumulative=True, scope="Microsoft.SemanticKernel.X") for name in names)
    )
    assert [("semantic_kernel", "input", None), ("semantic_kernel", "output", None)] == [
        (p.template.source, p.template.token_type, p.template.model) for p in outcome.points
    ]
    assert {MERGED: 1} == outcome.ignored


def test_copilots_counters_have_their_kind_in_the_name() -> None:
    """
    Copilot's counters have the token type in their names. Copilot CLI 1.0.102 sends five counters with zero
    points, and histograms per call.
    """
    usage = "gen_ai.client.inference.usage."
    kinds = {
        "input_tokens": "input", "output_tokens": "output", "cache_read.input_tokens": "cache_read",
        "cache_write.input_tokens": "cache_write", "reasoning.output_tokens": "reasoning",
    }  # fmt: skip
    how = {"scope": "github.copilot", "cumulative": True}
    outcome = read_points(
        *(point(usage + name, value, MODELS, **how) for name in kinds for value in (0, 12)),
        point("gen_ai.client.inference.operation.input_tokens", 12.0, MODELS, scope="github.copilot"),
        point("github.copilot.cost", 1.0, scope="github.copilot", unit="{premium}"),
    )
    assert [("copilot_cli", kind, value) for kind in kinds.values() for value in (0, 12)] == [
        (p.template.source, p.template.token_type, p.value) for p in outcome.points
    ]
    assert outcome.ignored[MERGED] == 1
    assert outcome.records == []


USAGE = "gen_ai.client.inference.usage."


def test_old_and_new_metric_of_one_token_count_once() -> None:
    """
    If a sender writes each token type in an old and a new metric, as Envoy's successors do, only the
    first one counts.
    """
    how = {"scope": "envoyproxy/ai-gateway", "resource": {"service.name": "edge"}}
    old = [typed("input", 100, **how), typed("output", 20, **how), typed("cached_input", 30, **how)]
    new = [
        point(USAGE + name, value, MODELS | {"gen_ai.token.modality": "text"}, **how)
        for name, value in (("input_tokens", 100), ("output_tokens", 20), ("reasoning.output_tokens", 5))
    ]
    for points, names in (((*old, *new), {TOKENS, USAGE + "reasoning.output_tokens"}), ((*new, *old), None)):
        outcome = read_points(*points)
        kept = {(record.token_type, record.value) for record in metrics(outcome)}
        assert {("input", 100), ("output", 20), ("cache_read", 30), ("reasoning", 5)} == kept
        assert {MERGED: 2} == outcome.ignored
        assert names in (None, {record.name for record in metrics(outcome)})


OPERATION = "gen_ai.client.inference.operation."


@pytest.mark.parametrize("cumulative", [False, True])
@pytest.mark.parametrize("histograms_first", [False, True])
def test_histograms_of_calls_count_only_without_counters(cumulative: bool, histograms_first: bool) -> None:
    """In any order, a meter's counters count and its histograms do not. Another meter's histograms count."""
    how: dict[str, Any] = {"scope": "a", "cumulative": cumulative}
    text = MODELS | {"gen_ai.token.modality": "text"}
    image = MODELS | {"gen_ai.token.modality": "image"}
    counters = [
        point(f"{USAGE}input_tokens", 70, text, **how),
        point(f"{USAGE}input_tokens", 30, image, **how),
        point(f"{USAGE}output_tokens", 20, text, **how),
    ]
    histograms = [
        point(f"{OPERATION}input_tokens", 100.0, MODELS, **how),
        point(f"{OPERATION}output_tokens", 20.0, MODELS, **how),
    ]
    alone = [point(f"{OPERATION}output_tokens", 9.0, MODELS, **{**how, "scope": "b"})]
    both = [*histograms, *counters] if histograms_first else [*counters, *histograms]
    for order in ([*both, *alone], [*alone, *both]):
        outcome = read_points(*order)
        found = [
            *((record.name, record.value) for record in metrics(outcome)),
            *((counted.template.name, counted.value) for counted in outcome.points),
        ]
        assert sorted(found) == [
            (f"{OPERATION}output_tokens", 9),
            (f"{USAGE}input_tokens", 30),
            (f"{USAGE}input_tokens", 70),
            (f"{USAGE}output_tokens", 20),
        ]
        assert outcome.ignored == {MERGED: 2}


@pytest.mark.parametrize("other", [{"scope": "another"}, {"resource": {"service.name": "another"}}])
def test_two_instrumentations_may_use_a_family_each(other: dict[str, Any]) -> None:
    """
    Two instrumentations may each use one of the families. Both count, because they measure different calls.
    """
    how = {"scope": "one", "resource": {"service.name": "edge"}}
    outcome = read_points(typed("input", **how), point(USAGE + "input_tokens", 9, MODELS, **(how | other)))
    assert [7, 9] == [record.value for record in metrics(outcome)]


def test_modalities_are_series_of_their_own() -> None:
    """Text and audio tokens of one type add up."""
    name = "gen_ai.client.inference.usage.input_tokens"
    points = [
        point(name, 5, MODELS | {"gen_ai.token.modality": kind}, cumulative=True)
        for kind in ("text", "audio")
    ]
    assert 2 == len({p.series for p in read_points(*points).points})


def test_tokens_of_a_modality_are_a_meter() -> None:
    """
    Tokens of a modality, such as audio, are part of the total and also of a meter. The rest of the total is text.
    """
    name = "gen_ai.client.inference.usage."
    told = [
        ("input_tokens", "audio", 7), ("input_tokens", "text", 5), ("output_tokens", "image", 3),
        ("cache_read.input_tokens", "audio", 2), ("input_tokens", "smell", 1), ("reasoning.output_tokens", "audio", 1),
    ]  # fmt: skip
    records = metrics(
        read_points(*(point(name + of, n, MODELS | {"gen_ai.token.modality": kind}) for of, kind, n in told))
    )
    meters = ["input_audio_tokens", None, "output_image_tokens", "cache_audio_read_tokens", None, None]
    assert meters == [record.meter for record in records]
    sums = HourlySums()
    sums.add_entries([LogEntry(topic="ai-telemetry", first=1, committed_at=0, records=records)])
    [(_, _, row)] = sums.hourly_rows()
    assert (13, 3) == tuple(row[1:3])
    [(_, _, added)] = sums.meter_rows()
    assert {name: n * 10**6 for name, n in zip(filter(None, meters), (7, 3, 2), strict=True)} == added


@pytest.mark.parametrize(
    ("name", "how", "source"),
    [
        ("gen_ai.usage.cost", {"resource": {"telemetry.sdk.name": "openlit"}, "unit": "USD"}, "openlit"),
        ("gen_ai.client.token.cost", {"scope": "litellm", "unit": "USD"}, "litellm"),
        ("operation.cost", {"scope": "pydantic-ai", "unit": "{USD}"}, "pydantic_ai"),
    ],
)
@pytest.mark.parametrize("cumulative", [True, False])
def test_cost_histograms(name: str, how: dict[str, Any], source: str, cumulative: bool) -> None:
    """
    The cost is the sum of the histogram, as the shortest text of the double. A token type on a cost has no effect.
    """
    given_point = point(name, 0.00024839999999999997, MODELS | {"gen_ai.token.type": "input"}, **how)
    given_point.cumulative = cumulative
    outcome = read_points(given_point)
    record = outcome.points[0].template if cumulative else metrics(outcome)[0]
    assert record.unit == "USD"
    assert record.token_type is None
    assert record.source == source
    assert record.model == "gpt-4o-2024-11-20"
    value = outcome.points[0].value if cumulative else record.value
    assert (Decimal("0.00024839999999999997") if cumulative else "0.00024839999999999997") == value


def test_openlits_types() -> None:
    """OpenLIT's histogram has reasoning as a third type."""
    how = {"resource": {"telemetry.sdk.name": "openlit"}}
    records = metrics(read_points(*(typed(kind, **how) for kind in ("input", "output", "reasoning"))))
    assert [("openlit", kind) for kind in ("input", "output", "reasoning")] == [
        (r.source, r.token_type) for r in records
    ]


def test_a_subset_nobody_knows_keeps_its_name() -> None:
    """A token type that no rule knows is stored as a separate record, not as part of another type."""
    assert ["audio"] == [r.token_type for r in metrics(read_points(typed("audio")))]


def test_tokens_of_no_kind_are_shown_and_not_counted() -> None:
    """
    Tokens without a type are shown as unrecognized and not counted, because they may be input, output or both.
    """
    outcome = read_points(point(TOKENS, 5.0, MODELS))
    assert {UNRECOGNISED_AI: 1} == outcome.ignored
    assert [(TOKENS, "gen_ai.request.model", "gen_ai.response.model")] == outcome.unrecognised


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.client.operation.duration", "gen_ai.server.time_per_output_token", "claude_code.session.count",
        "claude_code.active_time.total", "http.server.request.duration", "claude_code.lines_of_code.count",
        "codex.api_request", "codex.turn.e2e_duration_ms", "vllm:time_to_first_token_seconds",
        "sglang:inter_token_latency_seconds", "llamacpp:prompt_tokens_seconds",
    ],
)  # fmt: skip
def test_durations_and_counts_are_no_usage(name: str) -> None:
    """Durations and call counts are not usage, even if they name a model."""
    assert {NOT_AI: 1} == read_points(point(name, 3.5, MODELS, unit="s")).ignored


@pytest.mark.parametrize(
    ("name", "attributes"), [("goose.session_tokens.tokens", MODELS), ("llm.openai.tokens", {})]
)
def test_counters_that_ought_to_be_known_are_shown(name: str, attributes: dict[str, str]) -> None:
    """A counter of an unknown metric family is shown by its name. Its tokens are not guessed."""
    outcome = read_points(point(name, 5, attributes))
    assert outcome.ignored == {UNRECOGNISED_AI: 1}
    assert outcome.unrecognised[0][0] == name


def test_a_token_of_another_trade_is_not_ai() -> None:
    """The word "token" also occurs in authentication, so such a metric is no AI usage."""
    assert {NOT_AI: 1} == read_points(point("auth.token.refreshed", 5, {"realm": "main"})).ignored


@pytest.mark.parametrize("value", [1.5, -1, -0.5, MAX_TOKENS * 10, float("inf"), float("nan")])
@pytest.mark.parametrize("cumulative", [True, False])
def test_implausible_token_counts_are_rejected(value: float, cumulative: bool) -> None:
    """A fractional, negative or huge count rejects only its point."""
    outcome = read_points(typed("input", value, cumulative=cumulative), typed("output"))
    assert [(0, IMPLAUSIBLE)] == [(reject.item, reject.reason) for reject in outcome.rejects]
    assert 1 == len(outcome.records)


@pytest.mark.parametrize("value", [-0.01, float("nan"), float("inf"), 1e300])
def test_implausible_money_is_rejected(value: float) -> None:
    assert [IMPLAUSIBLE] == [reject.reason for reject in read_points(point("operation.cost", value)).rejects]


def test_the_resource_is_the_last_place_for_session_and_user() -> None:
    """Session and user are read from the point first, and from the resource last."""
    resource = {"session.id": "resource", "user.id": "resource", "team.id": "core", "user": "root"}
    (record,) = metrics(
        read_points(point(TOKENS, 5, MODELS | {"gen_ai.token.type": "input"}, resource=resource))
    )
    assert record.session == "resource"
    assert record.user == "resource"
    assert record.team == "core"
    own = MODELS | {"gen_ai.token.type": "input", "session.id": "own", "user.id": "own", "team.id": "own"}
    (record,) = metrics(read_points(point(TOKENS, 5, own, resource=resource)))
    assert record.session == "own"
    assert record.user == "own"
    assert record.team == "own"


FORWARDED = {
    "tollhouse.id": "0f" * 16,
    "tollhouse.source": "claude_code",
    "tollhouse.user": "uuid-1",
    "tollhouse.team": "platform",
    "tollhouse.api_key": "laptop",
    "tollhouse.device": "device-1",
    "tollhouse.tag.service": "claude-code",
    "tollhouse.tag.gold.tier": "yes",
    "gen_ai.request.model": "claude-opus-4-5",
    "gen_ai.token.type": "input_uncached",
    "session.id": "session-1",
}


def forwarded(value: Any, changes: dict[str, Any] | None = None, **how: Any) -> ReadOutcome:
    return read_points(
        point("claude_code.token.usage", value, FORWARDED | (changes or {}), **({"unit": "{token}"} | how))
    )


def test_point_of_another_tollhouse_is_accepted_unchanged() -> None:
    """
    A point of another Tollhouse is accepted unchanged: id, source and all other fields are those of the
    sending server. No dialect and no series apply.
    """
    outcome = forwarded(106, resource={"service.name": "tollhouse"})
    assert [
        UsageMetric(
            id=bytes.fromhex("0f" * 16),
            source="claude_code",
            name="claude_code.token.usage",
            model="claude-opus-4-5",
            token_type="input_uncached",
            value=106,
            unit="{token}",
            start_time=NOW,
            end_time=NOW + 60 * SECOND,
            session="session-1",
            user="uuid-1",
            team="platform",
            api_key="laptop",
            device="device-1",
            tags={"service": "claude-code", "gold.tier": "yes"},
        )
    ] == outcome.records
    assert outcome.forwarded == {0}
    assert outcome.identities[0].certain is True


def test_forwarded_money_keeps_its_digits() -> None:
    """
    An amount of money that another Tollhouse forwards is read from its decimal text, because a double would round a
    long sum.
    """
    exact = {"tollhouse.value": "1234567.000000000000000001"}
    assert ["1234567.000000000000000001"] == [
        r.value for r in metrics(forwarded(1234567.0, exact, unit="USD"))
    ]
    assert ["0.1"] == [r.value for r in metrics(forwarded(0.1, unit="USD"))]


def test_a_sum_that_may_fall_counts_only_as_forwarded() -> None:
    """
    A sum that may fall counts only with a Tollhouse id. Without one it is not usage, even under Tollhouse's scope.
    """
    points = [typed("input"), typed("input", -5)]
    for one in points:
        one.may_fall, one.cannot_count = True, "a sum that may fall"
    assert {UNRECOGNISED_AI: 2} == read_points(*points).ignored


def test_placeholder_times_of_points_are_read_as_unknown() -> None:
    """
    If the sending server made up a time, it marks the time, and the receiver takes it as unknown. A time of 0
    is unknown as well.
    """
    (record,) = metrics(forwarded(5, {"tollhouse.times": "none"}))
    assert record.start_time is None
    assert record.end_time is None
    (record,) = metrics(forwarded(5, start_time=0))
    assert record.start_time is None
    assert record.end_time == NOW + 60 * SECOND


@pytest.mark.parametrize(
    ("changes", "how"),
    [
        ({"tollhouse.id": "xyz"}, {}),
        ({"tollhouse.id": "0f" * 15 + "  "}, {}),
        ({"tollhouse.id": 7}, {}),
        ({}, {"unit": "s"}),
    ],
)
def test_a_forwarded_point_that_is_none_is_malformed(changes: dict[str, Any], how: dict[str, str]) -> None:
    """
    A forwarded point with an invalid id or unit is malformed, because its record could not be recognized again.
    """
    assert ["malformed"] == [reject.reason for reject in forwarded(5, changes, **how).rejects]


@pytest.mark.parametrize(("value", "unit"), [(1.5, "{token}"), (-1, "{token}"), (-0.1, "USD")])
def test_a_forwarded_value_has_to_be_plausible(value: float, unit: str) -> None:
    """A forwarded value must be plausible, so that a mistake of the sending server is not billed."""
    assert [IMPLAUSIBLE] == [reject.reason for reject in forwarded(value, unit=unit).rejects]


@given(
    value=st.one_of(
        st.integers(1, 10**12), st.decimals("0.000000000001", 10**9, places=18).map(decimal_text)
    ),
    model=st.one_of(st.none(), st.text("abc-4.:/", min_size=1)),
    session=st.one_of(st.none(), st.text(min_size=1, max_size=20)),
    tags=st.dictionaries(st.sampled_from(["service", "agent", "gold.tier"]), st.text(min_size=1, max_size=9)),
    times=st.sampled_from([(None, None), (NOW, None), (None, NOW), (NOW, NOW + 5)]),
)
def test_what_one_tollhouse_sends_another_reads_back(
    value: int | str,
    model: str | None,
    session: str | None,
    tags: dict[str, str],
    times: tuple[int | None, int | None],
) -> None:
    """A record that one Tollhouse sends as OTLP and another one reads back has every field unchanged."""
    record = UsageMetric(
        id=b"\x0f" * 16, source="claude_code", name="claude_code.token.usage", model=model, token_type="output",
        value=value, unit="{token}" if isinstance(value, int) else "USD", start_time=times[0], end_time=times[1],
        session=session, user="uuid-1", team=None, api_key="laptop", device="device-1", tags=tags,
    )  # fmt: skip
    body = metrics_request([(record, NOW / SECOND)])
    outcome = finished(otlp.normalise_otlp("metrics", body, json=False, options=ReadOptions()))
    assert [record] == outcome.records


NAMES = st.sampled_from([
    TOKENS, "gen_ai.client.inference.usage.input_tokens", "claude_code.token.usage", "claude_code.cost.usage",
    "codex.turn.token_usage", "codex.turn.cost_microusd", "gemini_cli.token.usage", "cline.cost.total",
    "operation.cost", "semantic_kernel.connectors.openai.tokens.prompt", "strands.event_loop.input.tokens", "x.tokens",
])  # fmt: skip
ATTRIBUTES = st.dictionaries(
    st.sampled_from(
        ["gen_ai.token.type", "type", "token_type", "model", "session.id", "user.id", "tollhouse.id"]
    ),
    st.one_of(
        st.sampled_from(["input", "output", "total", "cacheRead", "", "0f" * 16]), st.integers(), st.floats()
    ),
    max_size=5,
)
POINTS = st.builds(
    lambda name, value, attributes, cumulative, start, unit: point(
        name, value, attributes, cumulative=cumulative, start_time=start, time=start + 5, unit=unit
    ),
    NAMES,
    st.one_of(st.integers(), st.integers(0, 10**6), st.floats(), st.floats(0, 1000)),
    ATTRIBUTES,
    st.booleans(),
    st.integers(0, NOW),
    st.sampled_from(["", "{token}", "USD", "s"]),
)


@given(st.lists(POINTS, max_size=6))
def test_any_point_is_accounted_without_negative_values(points: list[MetricPoint]) -> None:
    """
    For any point: no exception, balanced accounting (checked while reading), integer tokens, decimal costs,
    and nothing negative.
    """
    outcome = read_points(*points)
    for record in metrics(outcome):
        if record.unit == "{token}":
            assert type(record.value) is int and record.value >= 0
        else:
            assert isinstance(record.value, str) and Decimal(record.value) >= 0 and "E" not in record.value
    for counter in outcome.points:
        assert counter.value >= 0
        assert isinstance(counter.value, int if counter.template.unit == "{token}" else Decimal)

"""Prices of units other than text. Each unit is charged once, and text costs the same as without them."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.configuration.reader import load_config
from gateway.configuration.values import ConfigError
from gateway.intake import unit_prices
from gateway.intake.price_lines import itemise_estimate, unpriced_reason_of_record
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards import card as cards
from spool.ledger.repricing import token_sum
from spool.ledger.sums import HourlySums
from spool.log.values import LogEntry
from spool.meters import MODALITIES
from spool.record import AI_TELEMETRY, Inference
from tests.rounds import examples

BOOK = PriceBook.load()
TEXT = [
    (seller, model.id)
    for seller, of in sorted(cards.packaged_card().providers.items())
    for model in of.models
    if seller in ("anthropic", "openai", "google") and not model.apart and model.prices[0].input is not None
]


def call(model: str, *, provider: str | None = "openai", **fields: Any) -> Inference:
    return Inference(id=b"1" * 16, source="otel", provider=provider, request_model=model, **fields)


def realtime(**meters: int) -> Inference:
    return call("gpt-realtime", input_tokens=1200, output_tokens=300, cache_read_tokens=700, meters=meters)


def test_the_published_example_to_the_last_digit() -> None:
    """Cached audio is charged on its own line, not with cached text or with audio."""
    record = realtime(input_audio_tokens=1000, cache_audio_read_tokens=640, output_audio_tokens=260)
    assert "0.02964" == BOOK.estimate_record(record)
    lines = itemise_estimate(BOOK, record)
    assert lines is not None
    assert [
        ("input", 140, "4", "0.00056"),
        ("cache read", 60, "0.4", "0.000024"),
        ("input audio", 360, "32", "0.01152"),
        ("cache audio read", 640, "0.4", "0.000256"),
        ("output", 40, "16", "0.00064"),
        ("output audio", 260, "64", "0.01664"),
    ] == [line[:4] for line in lines]


@pytest.mark.parametrize(
    ("record", "cause"),
    [
        (realtime(input_audio_tokens=1000, output_audio_tokens=260), unit_prices.OVERLAP_UNKNOWN),
        (call("gpt-realtime", input_tokens=12, output_tokens=3), unit_prices.PARTS_UNKNOWN),
        # The report does not state the number of audio tokens in the input.
        (realtime(output_audio_tokens=260), unit_prices.PARTS_UNKNOWN),
        (call("gpt-4o-audio-preview", input_tokens=9, output_tokens=9,
              meters={"input_audio_tokens": 0, "output_audio_tokens": 9}), unit_prices.NO_PRICE),
        (call("claude-2", provider="anthropic", input_tokens=9, output_tokens=9, meters={"web_searches": 1}),
         unit_prices.NO_PRICE),
        (call("dall-e-3", meters={"output_images": 1}), None),  # the price list has no such model
    ],
)  # fmt: skip
def test_what_is_not_known_has_no_estimate_and_a_cause(record: Inference, cause: str | None) -> None:
    """If a price or a part is not known, there is no estimate. The price of text is never used instead."""
    assert BOOK.estimate_record(record) is None
    words = unpriced_reason_of_record(BOOK, record)
    assert (cause is None) == (words is None)
    assert cause is None or f"({cause})" in str(words)


def test_a_part_without_a_price_costs_what_its_whole_costs() -> None:
    """
    A part without a price of its own costs as much as the whole: for example, an image that a text model
    reads costs the same as other input. The number of images adds nothing.
    """
    plain = BOOK.estimate_record(call("gpt-4o-mini", input_tokens=1000, output_tokens=10))
    meters = {"input_image_tokens": 700, "input_images": 2}
    assert plain == BOOK.estimate_record(
        call("gpt-4o-mini", input_tokens=1000, output_tokens=10, meters=meters)
    )


def test_overlap_is_known_where_one_side_is_nothing() -> None:
    """Without cached tokens there can be no cached audio, so the estimate is exact."""
    record = call("gpt-realtime", input_tokens=1200, output_tokens=300, cache_read_tokens=0)
    record.meters = {"input_audio_tokens": 1000, "output_audio_tokens": 260}
    assert "0.05008" == BOOK.estimate_record(record)  # 200 * 4 + 1000 * 32 + 40 * 16 + 260 * 64 millionths


def test_seconds_are_charged_by_the_hour() -> None:
    """
    Seconds are charged by the price per hour, which becomes a price per second with 18 decimals. The sum is
    linear in seconds.
    """
    assert "0.00125" == BOOK.estimate_record(call("whisper-1", meters={"input_audio_seconds": "12.5"}))
    odd = PriceOverride(model="own", meters={"audio_seconds": Decimal("0.02")})
    book = PriceBook.load(PriceSettings(override=(odd,)))
    one, three = (call("own", meters={"audio_seconds": n}) for n in (1, 3))
    assert book.estimate_record(one) == "0.000005555555555556"
    assert book.estimate_record(three) == "0.000016666666666668"


def test_tokens_next_to_seconds_cost_nothing_where_seconds_alone_have_a_price() -> None:
    """
    If seconds have a price and tokens have none, tokens cost nothing. If both have prices, both are charged.
    If only a fee has a price, or the seconds are missing, there is no estimate.
    """
    told: dict[str, Any] = {"provider": "mistral_ai", "input_tokens": 4, "output_tokens": 635}
    heard = {"input_audio_seconds": 203}
    assert "0.01015" == BOOK.estimate_record(call("voxtral-mini-2602", **told, meters=heard))
    assert BOOK.estimate_record(call("voxtral-mini-2602", **told)) is None
    assert "0.013787733333333401" == BOOK.estimate_record(call("voxtral-small-2507", **told, meters=heard))
    fee = PriceBook.load(
        PriceSettings(override=(PriceOverride(model="own", meters={"web_searches": Decimal(8)}),))
    )
    assert (
        fee.estimate_record(call("own", input_tokens=4, output_tokens=5, meters={"web_searches": 1})) is None
    )


def test_an_override_may_price_a_meter() -> None:
    """An override of one meter's price replaces the price of the card, and the other prices stay."""
    own = PriceOverride(model="claude-opus-5", meters={"web_searches": Decimal(8)})
    book = PriceBook.load(PriceSettings(override=(own,)))
    record = call("claude-opus-5", provider="anthropic", input_tokens=1000, output_tokens=100)
    assert BOOK.estimate_record(record) == book.estimate_record(record)
    record.meters = {"web_searches": 3}
    assert BOOK.estimate_record(record) == "0.0375"
    assert book.estimate_record(record) == "0.0315"


@settings(max_examples=examples(200), deadline=None)
@given(
    st.sampled_from(TEXT),
    st.lists(st.integers(0, 10**6), min_size=6, max_size=6),
    st.sampled_from(["", "batch"]),
)
def test_text_alone_costs_the_same_both_ways(model: tuple[str, str], counts: list[int], mode: str) -> None:
    """Without meters, the rule for separate units gives the same result as the rule for text."""
    fresh, made, read, written, hour, thought = counts
    hour = min(hour, written)
    record = call(model[1], provider=model[0], input_tokens=fresh + read + written, output_tokens=made + thought,
                  cache_read_tokens=read, cache_write_tokens=written, cache_write_1h_tokens=hour,
                  reasoning_tokens=thought, tags={"processing": mode} if mode else {})  # fmt: skip
    told = call(model[1], provider=model[0])
    told = type(record)(**{name: getattr(record, name) for name in record.__struct_fields__})
    told.meters = {"input_audio_tokens": 0}  # a meter, even of 0 tokens, forces the rule for separate units
    assert BOOK.estimate_record(record) == BOOK.estimate_record(told)


@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_lines_add_up_and_no_token_is_in_two(data: st.DataObject) -> None:
    meters: dict[str, int | str] = {}
    input_tokens = output_tokens = cached = 0
    for kind in MODALITIES[:2]:
        heard, put_out, read = (data.draw(st.integers(0, 10**6)) for _ in range(3))
        meters |= {f"input_{kind}_tokens": heard + read, f"cache_{kind}_read_tokens": read}
        input_tokens, cached = input_tokens + heard + read, cached + read
        if kind == "audio":
            meters["output_audio_tokens"] = put_out
            output_tokens += put_out
    text_in, text_read, text_out = (data.draw(st.integers(0, 10**6)) for _ in range(3))
    record = call("gpt-realtime", input_tokens=input_tokens + text_in + text_read, meters=meters,
                  output_tokens=output_tokens + text_out, cache_read_tokens=cached + text_read)  # fmt: skip
    assume(record.input_tokens or record.output_tokens)
    lines = itemise_estimate(BOOK, record)
    assert lines is not None
    assert Decimal(BOOK.estimate_record(record) or "-1") == sum(Decimal(line.amount) for line in lines)
    assert (record.input_tokens or 0) + (record.output_tokens or 0) == sum(
        int(line.quantity) for line in lines
    )


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 10**6)] * 4, st.integers(0, 9)), min_size=1, max_size=8))
def test_a_sum_costs_what_its_calls_cost(counts: list[tuple[int, int, int, int, int]]) -> None:
    """
    The ledger adds up calls of one model and tier. The sum of text, audio and searches costs as much as its calls.
    """
    calls = []
    for heard, said, text, made, searches in counts:
        meters = {"input_audio_tokens": heard, "output_audio_tokens": said, "web_searches": searches}
        record = call("gpt-audio", input_tokens=heard + text, output_tokens=said + made, meters=meters)
        calls.append(record)
    own = PriceOverride(model="gpt-audio", meters={"web_searches": Decimal("9.99")})
    book = PriceBook.load(PriceSettings(override=(own,)))
    for record in calls:
        book.price_record(record)
    sums = HourlySums()
    sums.add_entries([LogEntry(topic=AI_TELEMETRY, first=1, committed_at=1.0, records=calls)])
    meters_of = {dimensions: found for _, dimensions, found in sums.meter_rows()}
    estimates = [
        book.estimate_sum(token_sum(hour, dimensions, measures, meters_of.get(dimensions, {})))
        for hour, dimensions, measures in sums.hourly_rows()
    ]
    assert sum(Decimal(one.estimated_cost or 0) for one in calls) == sum(
        Decimal(one or 0) for one in estimates
    )


def test_an_override_of_an_unknown_meter_is_refused(tmp_path: Path) -> None:
    """An override of an unknown meter is refused before anything is priced, and the error names the meter."""
    file = tmp_path / "tollhouse.toml"
    file.write_text('[[prices.override]]\nmodel = "a"\nmeters = {web_serches = "8"}\n')
    with pytest.raises(ConfigError, match=r"prices.override\[0\].meters.web_serches is not a meter"):
        load_config(file, env={})

"""Estimated costs, compared with the providers' price lists worked out by hand."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gateway.configuration.prices import PriceOverride, PriceSettings
from gateway.intake.price_lines import itemise_estimate
from gateway.intake.prices import PriceBook, missing_prices_in_book_name
from gateway.intake.rate_cards import card as cards
from gateway.intake.reasons import explanations_by_field
from spool.ledger.sums import HourlySums, input_size_and_is_output_known
from spool.ledger.token_sums import SIZES, TokenSum
from spool.log.values import LogEntry
from spool.record import NS, Inference, decimal_text
from tests.rounds import examples

BOOK = PriceBook.load()


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * NS


def call(
    model: str | None,
    *,
    provider: str | None = "openai",
    response: str | None = None,
    input: int | None = 1000,
    output: int | None = 100,
    read: int | None = None,
    write: int | None = None,
    one_hour: int | None = None,
    reasoning: int | None = None,
    time: str | None = "2026-11-01",
    tags: dict[str, str] | None = None,
    cost: str | None = None,
) -> Inference:
    return Inference(
        id=b"\0" * 16,
        source="test",
        provider=provider,
        request_model=model,
        response_model=response,
        input_tokens=input,
        output_tokens=output,
        cache_read_tokens=read,
        cache_write_tokens=write,
        cache_write_1h_tokens=one_hour,
        reasoning_tokens=reasoning,
        start_time=None if time is None else at(time),
        tags=tags or {},
        cost=cost,
    )


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(call("gpt-4o"), "0.0035", id="1000 x 2.5 + 100 x 10 per million"),
        pytest.param(call("gpt-4o", response="gpt-4o-2024-08-06"), "0.0035", id="dated response model"),
        pytest.param(
            call("gpt-4o", response="gpt-4o-2024-05-13"), "0.0065", id="a snapshot with a price of its own"
        ),
        pytest.param(call("gpt-4o", read=400), "0.003", id="600 x 2.5 + 400 x 1.25 + 100 x 10"),
        pytest.param(call("gpt-4o", output=100, reasoning=80), "0.0035", id="reasoning is inside the output"),
        pytest.param(
            call("gpt-4", read=400, output=0), "0.03", id="no cache price: cached input costs what input does"
        ),
        pytest.param(call("o3", time="2025-06-09 23:59"), "0.014", id="o3 on the last day at 10 and 40"),
        pytest.param(call("o3", time="2025-06-10"), "0.0028", id="o3 on the first day at 2 and 8"),
        pytest.param(call("o3", time=None), "0.0028", id="without a time the newest"),
        pytest.param(
            call("text-embedding-3-small", output=None), "0.00002", id="embeddings cost input alone"
        ),
        pytest.param(
            call("text-embedding-3-small", output=0), "0.00002", id="embeddings with an output of zero"
        ),
        pytest.param(
            call("claude-sonnet-4-5-20250929", provider="anthropic", input=10_000, read=6000, write=2000),
            "0.0168",
            id="Claude: 2000 x 3 + 6000 x 0.3 + 2000 x 3.75 + 100 x 15",
        ),
        pytest.param(
            call(
                "claude-sonnet-4-5", provider="anthropic", input=10_000, read=6000, write=2000, one_hour=500
            ),
            "0.017925",
            id="Claude with writes for an hour: 2000 x 3 + 6000 x 0.3 + 1500 x 3.75 + 500 x 6 + 100 x 15",
        ),
        pytest.param(
            call("claude-sonnet-4-5", provider="anthropic", input=10_000, write=2000, one_hour=0),
            "0.033",
            id="none for an hour: 8000 x 3 + 2000 x 3.75 + 100 x 15",
        ),
        pytest.param(
            call("gpt-4o", write=400, one_hour=400),
            "0.0035",
            id="no price for writes: they cost what input does",
        ),
        pytest.param(
            call("claude-sonnet-4-5", provider="anthropic", input=200_000),
            "0.6015",
            id="200,000 is not over 200,000",
        ),
        pytest.param(
            call("claude-sonnet-4-5", provider="anthropic", input=200_001),
            "1.202256",
            id="over 200,000 the whole request costs 6 and 22.5",
        ),
        pytest.param(
            call("gemini-2.5-pro", provider="gcp.gemini", input=300_000, read=100_000),
            "0.5265",
            id="Gemini over 200,000: 200,000 x 2.5 + 100,000 x 0.25 + 100 x 15",
        ),
        pytest.param(call("gemini-2.5-pro", provider="gcp.vertex_ai"), "0.00225", id="Gemini on Vertex"),
        pytest.param(
            call("claude-sonnet-4@20250514", provider="gcp.vertex_ai"), "0.0045", id="Claude on Vertex"
        ),
        pytest.param(
            call("us.anthropic.claude-sonnet-4-5-20250929-v1:0", provider="aws.bedrock"),
            "0.00495",
            id="Bedrock's regional ids cost a tenth more",
        ),
        pytest.param(
            call("global.anthropic.claude-sonnet-4-5-20250929-v1:0", provider="aws.bedrock"),
            "0.0045",
            id="Bedrock's global ids do not",
        ),
        pytest.param(
            call("us.anthropic.claude-haiku-4-5-20251001-v1:0", provider=None),
            "0.00165",
            id="a Bedrock id tells",
        ),
        pytest.param(call("amazon.nova-lite-v1:0", provider="aws.bedrock"), "0.000084", id="Nova"),
        pytest.param(call("gpt-35-turbo", provider="azure.ai.openai"), "0.00065", id="Azure's spelling"),
        pytest.param(
            call("my-deployment", provider="azure.ai.openai", response="gpt-4.1-mini-2025-04-14"),
            "0.00056",
            id="an Azure deployment's answer names the model",
        ),
        pytest.param(call("anthropic/claude-sonnet-4.5", provider="openrouter"), "0.0045", id="OpenRouter"),
        pytest.param(
            call("anthropic/claude-sonnet-4.5", provider=None), "0.0045", id="the name states the provider"
        ),
        pytest.param(
            call("claude-sonnet-4-5", provider="some-gateway"), "0.0045", id="unknown provider, known maker"
        ),
        pytest.param(
            call("claude-sonnet-4-5", provider="openai"), "0.0045", id="a closed model behind another API"
        ),
        pytest.param(call("grok-4.3", provider="x_ai"), "0.0015", id="x_ai"),
        pytest.param(call("grok-4.3", provider="xai.chat"), "0.0015", id="the AI SDK's x_ai"),
        pytest.param(
            call("llama-3.3-70b-versatile", provider="groq.chat"), "0.000669", id="an open model, by its host"
        ),
        pytest.param(
            call("claude-sonnet-4-5", provider="vertex.anthropic.messages"),
            "0.0045",
            id="its Claude on Vertex",
        ),
        pytest.param(call("mistral-large-2411", provider="mistral_ai"), "0.0026", id="mistral_ai"),
        pytest.param(
            call("priced-not", response="gpt-4o"), "0.0035", id="the response model when it is priced"
        ),
        pytest.param(call("gpt-4o", response="priced-not"), "0.0035", id="else the request model"),
        pytest.param(
            call("sonar", provider="perplexity"), "0.0131", id="a fee per request: 0.012 + 1100 x 1"
        ),
        pytest.param(
            call("sonar-deep-research", provider="perplexity", output=1000, reasoning=400),
            "0.008",
            id="reasoning at a price of its own: 1000 x 2 + 600 x 8 + 400 x 3",
        ),
        pytest.param(
            call("qwen3-coder-plus", provider=None, read=400), "0.00114", id="600 x 1 + 400 x 0.1 + 100 x 5"
        ),
        pytest.param(
            call("qwen3-coder-plus", provider="dashscope", input=40_000), "0.0729", id="40000 x 1.8 + 100 x 9"
        ),
        pytest.param(
            call("qwen3-coder-plus", provider="dashscope", input=32_000), "0.0325", id="32000 x 1 + 100 x 5"
        ),
        pytest.param(call("qwen3-max", provider="Alibaba Cloud"), "0.0018", id="1000 x 1.2 + 100 x 6"),
    ],
)
def test_known_prices(record: Inference, expected: str) -> None:
    assert expected == BOOK.estimate_record(record)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(call("sao10k/l3-stheno-8b", provider="infermatic"), id="unknown model"),
        pytest.param(call("gpt-4o-fail429"), id="a name that only begins like a model"),
        pytest.param(call(None), id="no model"),
        pytest.param(call("whisper-1"), id="sold by the hour, not by tokens"),
        pytest.param(call("gpt-4o-transcribe"), id="sound has another price than text"),
        pytest.param(call("gemini-2.5-flash-image", provider="gcp.gemini"), id="so have pictures"),
        pytest.param(call("deepseek-chat", provider="hosted_vllm"), id="own machines"),
        pytest.param(call("deepseek-chat", provider="openai"), id="an open model elsewhere"),
        pytest.param(call("gpt-4o", input=None), id="input unknown"),
        pytest.param(call("gpt-4o", output=None), id="output unknown"),
        pytest.param(call("text-embedding-3-small", output=5), id="output at a price nobody named"),
        pytest.param(
            call("claude-2", provider="anthropic", write=10), id="cache writes of Claude without a price"
        ),
        pytest.param(
            call("claude-sonnet-4-5", provider="anthropic", write=10, one_hour=11),
            id="more for an hour than written",
        ),
        pytest.param(call("gpt-4o", input=10, read=11), id="more cached than went in"),
        pytest.param(
            call("gpt-4o-mini-tts", input=0, output=0), id="no usage: a speech whose source writes 0"
        ),
        pytest.param(call("gpt-audio", input=10, output=5), id="tokens of an unknown kind"),
    ],
)
def test_unknown_is_none(record: Inference) -> None:
    """An unknown cost is None, never "0"."""
    assert BOOK.estimate_record(record) is None


@pytest.mark.parametrize("status", ["error", "cached"])
def test_without_usage_only_a_failure_or_a_cache_is_free(status: str) -> None:
    """A call that succeeded used something. A failure or a response from a cache without usage costs nothing."""
    for meters in ({}, {"output_audio_tokens": 0}):
        record = msgspec.structs.replace(call("gpt-4o", input=0, output=0), meters=meters)
        assert BOOK.estimate_record(record) is None
        record.status = status
        assert BOOK.estimate_record(record) == "0"


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, "0.0028"),
        ({"service_tier": "default"}, "0.0028"),
        ({"service_tier": "gold customers"}, "0.0028"),
        ({"openai.response.service_tier": "flex"}, "0.0014"),
        ({"service_tier": "priority"}, "0.0049"),
        ({"processing": "batch"}, "0.0014"),
        ({"service_tier": "batch"}, "0.0014"),
    ],
)
def test_processing_modes(tags: dict[str, str], expected: str) -> None:
    """A tag with a known processing mode selects its price. Other values have no effect."""
    assert expected == BOOK.estimate_record(call("o3", tags=tags))


@pytest.mark.parametrize("tier", ["batch", "flex", "priority", "fast"])
@pytest.mark.parametrize(
    ("provider", "model"),
    [
        ("openai", "chatgpt-4o-latest"), ("gcp.gemini", "gemini-1.5-pro"), ("gcp.vertex_ai", "gemini-1.0-pro"),
        ("aws.bedrock", "us.anthropic.claude-opus-4-1-20250805-v1:0"), ("azure", "phi-4"),
        ("x_ai", "grok-3"), ("cohere", "command-a-03-2025"), ("deepseek", "deepseek-v4-pro"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("input", [1000, 300_000])
def test_a_tier_without_a_price_has_the_standard_price(
    provider: str, model: str, tier: str, input: int
) -> None:
    """
    A call of a tier that the list lacks has the standard price of its size. Its price list and its reasons
    say so. The totals give the same cost.
    """
    standard = call(model, provider=provider, input=input)
    tiered = call(model, provider=provider, input=input, tags={"service_tier": tier})
    BOOK.price_record(standard)
    BOOK.price_record(tiered)
    assert standard.estimated_cost is not None
    assert (standard.estimated_cost, f"{BOOK.version}+{tier}-at-standard") == (
        tiered.estimated_cost, tiered.price_book,
    )  # fmt: skip
    assert BOOK.version == standard.price_book
    assert (
        f"no {tier} price for the model, so the standard price"
        in explanations_by_field(tiered, BOOK)["estimated_cost"]
    )
    assert "standard" not in explanations_by_field(standard, BOOK)["estimated_cost"]
    assert [tier] == missing_prices_in_book_name(tiered.price_book)


def test_an_own_price_applies_to_a_tier_without_a_price() -> None:
    override = PriceOverride(model="gpt-4-turbo", input=Decimal(1), output=Decimal(2))
    book = PriceBook.load(PriceSettings(override=(override,)))
    record = call("gpt-4-turbo", input=1000, output=100, tags={"service_tier": "flex"})
    book.price_record(record)
    assert "0.0012" == record.estimated_cost
    assert record.price_book == f"{book.version}+flex-at-standard"
    unknown = call("unheard-of", tags={"service_tier": "flex"})
    book.price_record(unknown)
    assert (None, None) == (unknown.estimated_cost, unknown.price_book)


def test_cache_writes_for_an_hour_without_a_price() -> None:
    """
    If a list has no price for Claude's cache writes for an hour, they cost as much as other writes, and the
    record says so. The rule is the same for calls that also report meters.
    """
    record = call(
        "anthropic/claude-sonnet-4.5", provider="openrouter", input=10, output=0, write=10, one_hour=5
    )
    BOOK.price_record(record)
    assert "0.0000375" == record.estimated_cost
    assert ["cache_write_1h"] == missing_prices_in_book_name(record.price_book)
    record.meters = {"input_image_tokens": 0, "web_searches": 1}
    other = call("anthropic/claude-sonnet-4.5", provider="openrouter", input=10, output=0, write=10)
    other.meters = record.meters
    assert BOOK.estimate_record(record) == BOOK.estimate_record(other)
    BOOK.price_record(other)
    assert not missing_prices_in_book_name(other.price_book)


@pytest.mark.parametrize(
    ("provider", "model", "region", "is_named"),
    [
        ("anthropic", "claude-opus-5", "us", True),
        ("anthropic", "claude-opus-5", "global", False),
        ("anthropic", "claude-opus-5", None, False),
        ("anthropic", "claude-3-5-haiku-latest", "us", False),
        ("openai", "gpt-5.6-terra", "eu", True),
        ("gcp.vertex_ai", "claude-sonnet-4-5@20250929", "europe-west4", True),
        ("gcp.vertex_ai", "claude-sonnet-4-5@20250929", "global", False),
        ("gcp.vertex_ai", "gemini-2.5-pro", "europe-west4", False),
        ("aws.bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "us-east-1", False),
    ],
)
def test_a_region_with_another_price_is_named(
    provider: str, model: str, region: str | None, is_named: bool
) -> None:
    """If the seller charges more in a region, the estimate has the price without a region, and the record says so."""
    record, other = call(model, provider=provider), call(model, provider=provider)
    record.region = region
    for each in (record, other):
        BOOK.price_record(each)
    assert record.estimated_cost == other.estimated_cost is not None
    assert ([region] if is_named else []) == missing_prices_in_book_name(record.price_book)
    assert is_named == (f"no {region} price" in explanations_by_field(record, BOOK)["estimated_cost"])


def test_tokens_of_capacity_that_is_paid_apart_cost_nothing() -> None:
    """
    If the capacity for tokens is paid separately, text, audio and large inputs cost nothing, and only
    searches cost money. A model without a price stays unknown.
    """
    tags = {"service_tier": "provisioned"}
    record = call("gemini-2.5-flash", provider="gcp.vertex_ai", input=10**6, output=50, read=10, tags=tags)
    assert "0" == BOOK.estimate_record(record)
    record.meters = {"input_audio_tokens": 400, "web_searches": 2}
    assert "0.07" == BOOK.estimate_record(record)
    [searches] = [line for line in itemise_estimate(BOOK, record) or () if line.price != "0"]
    assert ("web searches", 2, "35", "0.07") == searches[:4]
    assert BOOK.estimate_record(call("unheard-of", tags=tags)) is None


def test_hours_of_the_day() -> None:
    """A price for certain hours applies only in these hours, from the day of its introduction."""
    prices = [
        BOOK.estimate_record(call("deepseek-v4-flash", provider="deepseek", time=time))
        for time in ("2026-08-01 02:00", "2026-09-20 00:59", "2026-09-20 01:00", "2026-09-20 04:00")
    ]
    assert ["0.000168", "0.00021", "0.00042", "0.00021"] == prices


def test_memo_follows_the_time() -> None:
    """
    Results are remembered per time: calls before and after a price change have their own prices, in any order.
    """
    book = PriceBook.load()
    days = ["2025-06-09", "2025-06-10", "2025-06-09", "2026-01-01", "2024-01-01"]
    assert ["0.014", "0.0028", "0.014", "0.0028", "0.014"] == [
        book.estimate_record(call("o3", time=day)) for day in days
    ]


def test_exact_to_the_last_digit() -> None:
    record = call("gpt-4o-mini", input=123_456_789_013, output=98_765_432_107, read=1_000_000_007)
    expected = (
        Decimal(122_456_789_006) * Decimal("0.15")
        + Decimal(1_000_000_007) * Decimal("0.075")
        + Decimal(98_765_432_107) * Decimal("0.6")
    ) / 1_000_000
    assert f"{expected.normalize():f}" == BOOK.estimate_record(record)


def test_overrides_win() -> None:
    """An own price applies from its day. Values that it does not set are read from the card."""
    overrides = (
        PriceOverride(model="gpt-4o*", input=Decimal("2"), since="2026-01-01"),
        PriceOverride(model="server-model", input=Decimal("0.1"), output=Decimal("0.2")),
        PriceOverride(model="free-model", provider="server", input=Decimal(0), output=Decimal(0)),
    )
    book = PriceBook.load(PriceSettings(override=overrides))
    assert "0.003" == book.estimate_record(call("gpt-4o"))
    assert "0.0035" == book.estimate_record(call("gpt-4o", time="2025-12-31"))
    assert "0.00012" == book.estimate_record(call("server-model", provider="anything"))
    assert "0" == book.estimate_record(call("free-model", provider="server"))
    assert book.estimate_record(call("free-model", provider="other")) is None
    own = PriceOverride(model="claude-*", cache_write=Decimal(3), cache_write_1h=Decimal(5))
    book = PriceBook.load(PriceSettings(override=(own,)))
    written = call("claude-sonnet-4-5", provider="anthropic", output=0, write=1000, one_hour=400)
    assert "0.0038" == book.estimate_record(written)  # 600 x 3 + 400 x 5


def test_an_override_of_a_tier() -> None:
    """
    A price of a tier is for its calls only, and takes precedence over one without a tier, whichever is newer. Without
    a tier, a price is for the standard tier and tiers without a list price.
    """
    overrides = (
        PriceOverride(model="gpt-4o", tier="batch", input=Decimal(3), output=Decimal(4)),
        PriceOverride(model="gpt-4o", input=Decimal(1), output=Decimal(2), since="2026-01-02"),
        PriceOverride(
            model="gpt-4o", tier="standard", input=Decimal(7), output=Decimal(8), since="2026-03-01"
        ),
    )
    book = PriceBook.load(PriceSettings(override=overrides))

    def input_price(mode: str, month: int) -> tuple[str | None, str]:
        time = int(datetime(2026, month, 5, tzinfo=UTC).timestamp()) * 10**9
        tags = {"batch": {"processing": "batch"}, "flex": {"service_tier": "flex"}}.get(mode, {})
        record = Inference(
            id=b"\0" * 16, source="litellm", provider="openai", request_model="gpt-4o", response_model="gpt-4o",
            start_time=time, input_tokens=10**6, output_tokens=0, tags=tags,
        )  # fmt: skip
        book.price_record(record)
        return record.estimated_cost, (record.price_book or "").removeprefix(book.version)

    assert [("3", "")] * 2 == [input_price("batch", month) for month in (2, 4)]
    assert [("1", ""), ("7", "")] == [input_price("", month) for month in (2, 4)]
    assert [("1", "+flex-at-standard")] * 2 == [input_price("flex", month) for month in (2, 4)]
    assert ["prices.override.tier must be one of standard, batch, fast, flex, priority"] == [
        *PriceOverride(model="a", tier="cheap", input=Decimal(1)).problems("prices.override")
    ]


def test_overrides_show_in_the_version() -> None:
    """A price book with other own prices has another name."""
    one = PriceBook.load(PriceSettings(override=(PriceOverride(model="a", input=Decimal(1)),))).version
    two = PriceBook.load(PriceSettings(override=(PriceOverride(model="a", input=Decimal(2)),))).version
    assert one.startswith(BOOK.version + "+overrides-")
    assert len({BOOK.version, one, two}) == 3


def test_a_book_is_opened_again_from_its_texts() -> None:
    """A price book that a recalculation stored has the same name and prices when it is read later."""
    own = PriceOverride(model="gpt-4o*", input=Decimal("2"), meters={"web_searches": Decimal("8.5")})
    book = PriceBook.load(PriceSettings(override=(own,)))
    again = PriceBook.decode_rate_card_and_overrides(*book.encode_rate_card_and_overrides())
    assert (book.version, book.estimate_record(call("gpt-4o"))) == (
        again.version,
        again.estimate_record(call("gpt-4o")),
    )
    assert book.card == again.card
    assert book.encode_rate_card_and_overrides() == again.encode_rate_card_and_overrides()


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (call("gpt-4o", cost="1.5"), ("1.5", "0.0035", "reported", BOOK.version)),
        (call("gpt-4o"), (None, "0.0035", "estimated", BOOK.version)),
        (call("nobody-knows"), (None, None, "none", None)),
        (call("nobody-knows", cost="0"), ("0", None, "reported", None)),
    ],
)
def test_price_fills_in_place(record: Inference, expected: tuple[str | None, ...]) -> None:
    """A reported cost is never changed, and it counts. The estimate is stored next to it."""
    BOOK.price_record(record)
    assert expected == (record.cost, record.estimated_cost, record.cost_source, record.price_book)


def test_card_names_its_source() -> None:
    """The packaged price card states the sources of its prices, the licence and the date."""
    card = cards.read_card(cards.newest_packaged_file())
    assert {"name", "version", "date", "url", "licence", "also"} == set(card.source)
    assert f"genai-prices-{card.source['version']}-{card.source['date']}" == card.version


def test_the_packaged_card_is_read_once() -> None:
    """All price books of a process share the packaged card. An operator's card is read again each time."""
    assert cards.packaged_card() is cards.packaged_card()
    assert cards.read_card(cards.newest_packaged_file()) == cards.packaged_card()
    assert PriceBook.load().version == cards.packaged_card().version


def test_card_survives_its_own_writing() -> None:
    """Reading and writing a card preserves the bytes, so a new card differs only where prices changed."""
    path = cards.newest_packaged_file()
    assert path.read_bytes() == cards.encode_card(cards.read_card(path))


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2, "version": "x", "source": {}, "providers": {}}'])
def test_unreadable_card(tmp_path: Path, text: str) -> None:
    """The error for an unreadable price card names the file."""
    path = tmp_path / "card.json"
    path.write_text(text)
    with pytest.raises(cards.CardUnreadable, match=r"card\.json"):
        PriceBook.load(PriceSettings(file=path))


@settings(max_examples=examples(200), deadline=None)
@given(
    sold=st.sampled_from(
        [
            ("openai", "gpt-4o"),
            ("openai", "o3"),
            ("anthropic", "claude-sonnet-4-5"),
            ("gcp.gemini", "gemini-2.5-pro"),
            ("perplexity", "sonar-pro"),
            ("openai", "text-embedding-3-small"),
            ("openai", "nobody-knows"),
        ]
    ),
    tokens=st.lists(
        st.tuples(st.integers(0, 400_000), st.integers(0, 5000), st.floats(0, 1)), min_size=1, max_size=8
    ),
    time=st.sampled_from(["2025-06-09", "2026-11-01 13:20"]),
)
def test_sums_cost_what_their_calls_cost(
    sold: tuple[str, str], tokens: list[tuple[int, int, float]], time: str
) -> None:
    """Pricing a sum of the ledger equals the sum of the prices exactly, for any tiers. Each call has usage."""
    assume(all(given or made for given, made, _ in tokens))
    provider, model = sold
    calls = [
        call(
            model,
            provider=provider,
            input=given,
            output=made,
            read=int(given * cached),
            write=given - int(given * cached),
            one_hour=int((given - int(given * cached)) * cached),
            time=time,
        )
        for given, made, cached in tokens
    ]
    sums = HourlySums()
    sums.add_entries(
        [LogEntry(topic="ai-telemetry", first=1, committed_at=at("2026-11-01") / NS, records=calls)]
    )
    totals = []
    for hour, key, row in sums.hourly_rows():
        beyond, known = input_size_and_is_output_known(key.size)
        totals.append(
            BOOK.estimate_sum(
                TokenSum(
                    provider=key.provider, response_model=key.model, request_model=key.request_model, mode=key.mode,
                    time=hour * NS, beyond=beyond, calls=row[0], input_tokens=row[1],
                    output_tokens=row[2] if known else None, cache_read_tokens=row[3], cache_write_tokens=row[4],
                    reasoning_tokens=row[5], cache_write_1h_tokens=row[6],
                )
            )
        )  # fmt: skip
    each = [BOOK.estimate_record(one) for one in calls]
    for one, cost in zip(calls, each, strict=True):
        lines = itemise_estimate(BOOK, one)
        assert cost == (
            None if lines is None else decimal_text(sum((Decimal(line.amount) for line in lines), Decimal(0)))
        )
    assert (None in each) == (None in totals)
    if None not in each:
        assert sum(Decimal(cost or 0) for cost in each) == sum(Decimal(cost or 0) for cost in totals)


def test_most_tiers_can_be_priced_again() -> None:
    """
    The ledger groups calls by size. Its size classes match almost all sizes at which prices of the card
    change, so almost all sums can be priced again.
    """
    models = [
        model
        for seller in cards.read_card(cards.newest_packaged_file()).providers.values()
        for model in seller.models
    ]
    starts = [tier.above for model in models for price in model.prices for tier in price.tiers]
    apart = [above for above in starts if above in SIZES or above + 1 in SIZES]
    assert len(apart) >= 0.95 * len(starts)


MODELS = [
    (provider, model.id)
    for provider, seller in cards.read_card(cards.newest_packaged_file()).providers.items()
    for model in seller.models
]


@settings(max_examples=examples(300), deadline=None)
@given(
    sold=st.sampled_from(MODELS),
    given_tokens=st.integers(0, 2_000_000),
    made=st.integers(0, 200_000),
    more=st.integers(0, 300_000),
    cached=st.floats(0, 1),
)
def test_never_negative_and_monotone(
    sold: tuple[str, str], given_tokens: int, made: int, more: int, cached: float
) -> None:
    """For every model of the card, no cost is negative, and more tokens never cost less."""
    provider, model = sold
    read = int(given_tokens * cached)
    small = BOOK.estimate_record(call(model, provider=provider, input=given_tokens, output=made, read=read))
    wide = BOOK.estimate_record(
        call(model, provider=provider, input=given_tokens + more, output=made, read=read)
    )
    long = BOOK.estimate_record(
        call(model, provider=provider, input=given_tokens, output=made + more, read=read)
    )
    costs = [None if cost is None else Decimal(cost) for cost in (small, wide, long)]
    if costs[0] is not None:
        assert costs[0] >= 0
        assert costs[1] is not None and costs[1] >= costs[0]
        assert costs[2] is None or costs[2] >= costs[0]


@pytest.mark.proves("a price mode without a first price")
def test_every_mode_has_a_price_for_a_call_of_a_year_ago() -> None:
    """
    Every processing mode has a price for a call of a year ago. A price applies from the day on which the
    provider charged it, even if the price source listed it later.
    """
    tags = {
        "": {}, "batch": {"processing": "batch"}, "fast": {"speed": "fast"}, "flex": {"service_tier": "flex"},
        "priority": {"service_tier": "priority"},
    }  # fmt: skip
    without, looked_at = [], 0
    for provider, seller in cards.read_card(cards.newest_packaged_file()).providers.items():
        for model in seller.models:
            for mode in {price.mode for price in model.prices}:
                now, then = (
                    BOOK.estimate_record(call(model.id, provider=provider, tags=tags[mode], time=time))
                    for time in ("2026-11-20", "2025-11-20")
                )
                looked_at += bool(mode) and now is not None
                if now is not None and then is None:
                    without.append((provider, model.id, mode))
    assert not without
    assert looked_at > 100

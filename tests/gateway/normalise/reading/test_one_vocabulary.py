"""Providers, models and operations have the same meaning in every format, in prices and on bills."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from exporters.focus import charges as focus
from gateway.intake.prices import PriceBook
from gateway.intake.rate_cards import names
from gateway.normalise.reading.operations import BY_NAME
from spool import providers
from spool.record import Inference
from tests.gateway.normalise.formats.payloads import one
from tests.gateway.normalise.otlp.items import log, read_logs
from tests.gateway.normalise.otlp.payloads import only, span, traces

BOOK = PriceBook.load()
USAGE = {"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 100}
OTLP = ("span", "log event")

# In the two families of cases, `google` and unknown prefixes have different meanings
# (tests/cases/otlp/INDEX.md and tests/cases/README.md, section 5). In OTLP, `google` is any Google service,
# and any text before the slash of a model's name is a provider. In gateway formats, `google` is the Gemini
# API, and an unknown segment is ignored.
GOOGLE_IN_OTLP = "gcp.gen_ai"
UNKNOWN_SEGMENTS = {
    "sao10k/l3-stheno-8b": "sao10k",
    "meta-llama/Llama-3.1-8B": "meta-llama",
    "qwen/qwen3": "qwen",
}
# These call types have no name, because LiteLLM's list in tests/cases/README.md has none for reranking.
UNNAMED_IN_LITELLMS_LOG = {"rerank", "arerank"}

# LangChain (init_chat_model), LiteLLM and Genkit use these different names for one provider.
NAMED_BY_LIBRARIES = {
    "aws.bedrock": ("bedrock", "bedrock_converse", "amazon_bedrock", "aws.bedrock"),
    "azure.ai.inference": ("azure_ai", "az.ai.inference", "azure.ai.inference"),
    "azure.ai.openai": ("azure", "azure_openai", "azure_text", "az.ai.openai", "azure.ai.openai"),
    "gcp.gemini": ("gemini", "google_genai", "googleai", "gcp.gemini"),
    "gcp.vertex_ai": (
        "google_vertexai",
        "google_anthropic_vertex",
        "vertex_ai",
        "vertex_ai_beta",
        "gcp.vertex_ai",
    ),
    "mistral_ai": ("mistral", "mistralai", "mistral_ai"),
    "openai": ("openai", "text-completion-openai"),
    "x_ai": ("xai", "x_ai"),
}

Entrance = Callable[[str | None, str | None, str | None], Inference]


def in_span(provider: str | None, model: str | None, operation: str | None) -> Inference:
    return only(traces(span(1, semantic_attributes(provider, model, operation))))


def in_log_event(provider: str | None, model: str | None, operation: str | None) -> Inference:
    attributes = semantic_attributes(provider, model, operation)
    (record,) = read_logs(log(attributes, event_name="gen_ai.client.inference.operation.details")).records
    assert isinstance(record, Inference)
    return record


def semantic_attributes(provider: str | None, model: str | None, operation: str | None) -> dict[str, Any]:
    return {
        "gen_ai.operation.name": operation or "chat",
        **({} if provider is None else {"gen_ai.provider.name": provider}),
        **({} if model is None else {"gen_ai.request.model": model}),
        **USAGE,
    }


def in_litellms_log(provider: str | None, model: str | None, operation: str | None) -> Inference:
    event = {
        "id": "chatcmpl-1",
        "litellm_call_id": "1",
        "call_type": operation or "completion",
        "startTime": 1772442000,
    }
    figures = {"prompt_tokens": 1000, "completion_tokens": 100}
    return one("litellm", event | figures | {"custom_llm_provider": provider, "model": model})


def in_cloud_event(provider: str | None, model: str | None, operation: str | None) -> Inference:
    data = {
        "provider": provider,
        "model": model or "some-model",
        "prompt_tokens": 1000,
        "completion_tokens": 100,
    }
    return one("openmeter", {"specversion": "1.0", "id": "1", "source": "s", "type": "prompt", "data": data})


ENTRANCES: dict[str, Entrance] = {
    "span": in_span,
    "log event": in_log_event,
    "LiteLLM's log": in_litellms_log,
    "CloudEvent": in_cloud_event,
}


def written(row: providers.Provider) -> set[str]:
    """Return every accepted form of a provider's name."""
    spellings = {row.name, *row.spellings}
    changed = {spelling.replace("-", separator) for spelling in spellings for separator in "_. "}
    return (
        spellings
        | changed
        | {spelling.upper() for spelling in spellings}
        | {f"{name}.chat" for name in spellings}
    )


STANDARD = [row for row in providers.PROVIDERS if row.standard]
OTHERS = [row for row in providers.PROVIDERS if not row.standard]


def by_name(row: providers.Provider) -> str:
    return row.name


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("row", STANDARD, ids=by_name)
def test_every_spelling_of_a_provider_becomes_its_name(entrance: str, row: providers.Provider) -> None:
    """Every notation of a provider becomes OpenTelemetry's name, in every format."""
    expected = dict.fromkeys(written(row), row.name)
    if entrance in OTLP and "google" in expected:
        expected |= {"google": GOOGLE_IN_OTLP, "GOOGLE": GOOGLE_IN_OTLP}
    assert expected == {name: ENTRANCES[entrance](name, None, None).provider for name in expected}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(("name", "spellings"), NAMED_BY_LIBRARIES.items(), ids=NAMED_BY_LIBRARIES)
def test_names_of_libraries_are_one_provider(entrance: str, name: str, spellings: tuple[str, ...]) -> None:
    """A provider has one row in sums, whichever library reported its calls."""
    told = {ENTRANCES[entrance](spelling, "some-model", None).provider for spelling in spellings}
    assert {name} == told


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("row", OTHERS, ids=by_name)
def test_a_name_that_opentelemetry_does_not_have_stays(entrance: str, row: providers.Provider) -> None:
    """A name that OpenTelemetry does not have is kept, in lower case."""
    expected = {name: name.lower() for name in (*written(row), "hosted_vllm", "Some-Gateway")}
    assert expected == {name: ENTRANCES[entrance](name, None, None).provider for name in expected}


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("name", [None, "", "-", "None", "none", "undefined", "null", "default/route/rule/0"])
def test_word_for_nothing_states_no_provider(entrance: str, name: str | None) -> None:
    """
    A word for "nothing" states no provider, and neither does the path of a route. The model then decides.
    """
    assert "anthropic" == ENTRANCES[entrance](name, "claude-sonnet-4-5", None).provider


@pytest.mark.parametrize("row", providers.PROVIDERS, ids=by_name)
def test_every_spelling_has_one_price_and_one_name_on_bills(row: providers.Provider) -> None:
    """
    Every notation of a provider has the same price and the same name on bills, because some records keep
    the original notation.
    """
    spellings = written(row)
    assert {row.card} == {providers.provider_name_in_rate_cards(name) for name in spellings}
    assert {name: row.display or name for name in spellings} == {name: on_bill(name) for name in spellings}


def on_bill(provider: str) -> str:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    charge = focus.Charge(start=start, cost="1", list_cost=None, provider=provider, model=None, team=None)
    return focus.charge_row(charge, account="a")["ProviderName"]


def test_no_spelling_belongs_to_two_providers() -> None:
    """No notation belongs to two providers, because one provider would then hide the other."""
    spellings = [spelling for row in providers.PROVIDERS for spelling in {row.name, *row.spellings}]
    assert len(spellings) == len(set(spellings))
    assert all(providers.find_provider(spelling) is not None for spelling in spellings)


MODELS = {
    "gpt-4o": "openai", "ft:gpt-4o-mini:org::id": "openai", "chatgpt-4o-latest": "openai", "o1-preview": "openai",
    "o3-mini": "openai", "o4-mini": "openai", "text-embedding-3-small": "openai", "text-embedding-ada-002": "openai",
    "dall-e-3": "openai", "gpt-image-1": "openai", "whisper-1": "openai", "tts-1": "openai",
    "computer-use-preview": "openai", "codex-mini-latest": "openai", "davinci-002": "openai",
    "openai/gpt-4o": "openai",
    "claude-sonnet-4-5": "anthropic", "Claude-Opus-4-1": "anthropic", "anthropic/claude-haiku-4.5": "anthropic",
    "gemini-2.5-pro": "gcp.gen_ai", "models/gemini-2.5-flash": "gcp.gen_ai", "text-embedding-004": "gcp.gen_ai",
    "mistral-large-2411": "mistral_ai", "codestral-2": "mistral_ai", "magistral-small": "mistral_ai",
    "ministral-8b": "mistral_ai", "devstral-medium": "mistral_ai", "open-mistral-nemo": "mistral_ai",
    "mistralai/mistral-small": "mistral_ai",
    "command-r-plus": "cohere", "embed-v4.0": "cohere",
    "deepseek-chat": "deepseek", "grok-4": "x_ai", "x-ai/grok-4": "x_ai", "sonar-pro": "perplexity",
    "kimi-k2": "moonshot_ai", "moonshot-v1-8k": "moonshot_ai", "glm-4.5": "zhipuai", "minimax-m2": "minimax",
    "voyage-3": "voyageai",
    "anthropic.claude-3-haiku-20240307-v1:0": "aws.bedrock", "us-gov.anthropic.claude-x": "aws.bedrock",
    "jp.amazon.nova-lite-v1:0": "aws.bedrock", "apac.meta.llama3": "aws.bedrock", "moonshot.kimi-k2": "aws.bedrock",
    "moonshotai.kimi-k2.5": "aws.bedrock", "zai.glm-4.7": "aws.bedrock", "openai.gpt-oss-120b-1:0": "aws.bedrock",
    "bedrock/converse/us.meta.llama": "aws.bedrock",
    "arn:aws:bedrock:eu-west-1:1:inference-profile/eu.anthropic.claude": "aws.bedrock",
}  # fmt: skip


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("model", [*MODELS, "qwen-turbo", "llama-3.3-70b", "my-deployment"])
def test_every_format_finds_the_same_provider_of_a_model(entrance: str, model: str) -> None:
    """
    For a model without a stated provider, every format finds the same provider: by the segment before the
    slash, the form of a Bedrock id, or the maker. Otherwise it is None.
    """
    assert MODELS.get(model) == ENTRANCES[entrance](None, model, None).provider


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("model", UNKNOWN_SEGMENTS)
def test_an_unknown_segment_is_a_provider_in_otlp_alone(entrance: str, model: str) -> None:
    """
    An unknown segment before the slash is a provider only in OTLP, because the two families of shared cases
    have different rules.
    """
    expected = UNKNOWN_SEGMENTS[model] if entrance in OTLP else None
    assert expected == ENTRANCES[entrance](None, model, None).provider


@pytest.mark.parametrize(
    "model", [model for model in MODELS if not model.startswith(("arn:", "models/", "ft:"))]
)
def test_rate_cards_know_the_same_maker(model: str) -> None:
    """Estimates use the price card of the provider that a record would name."""
    name = model.lower()
    assert providers.provider_name_in_rate_cards(MODELS[model]) == (
        names.provider_in_name(name) or names.maker_name_in_price_lists(name)
    )


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    ("provider", "model", "cost"),
    [
        ("grok", "grok-4.3", "0.0015"),
        ("XAI", "grok-4.3", "0.0015"),
        ("google", "gemini-2.5-pro", "0.00225"),
        ("vertex-ai", "gemini-2.5-pro", "0.00225"),
        ("Mistral AI", "mistral-large-2411", "0.0026"),
        (None, "us.anthropic.claude-haiku-4-5-20251001-v1:0", "0.00165"),
        (None, "gpt-4o", "0.0035"),
    ],
)
def test_a_call_costs_the_same_wherever_it_came_in(
    entrance: str, provider: str | None, model: str, cost: str
) -> None:
    """
    A call costs the same in every format. The test covers the way from the written name to the estimate.
    """
    assert cost == BOOK.estimate_record(ENTRANCES[entrance](provider, model, None))


def test_open_models_of_a_closed_maker_have_no_price_of_their_own() -> None:
    """
    Open models have no price of their own, because the operator of the model sets it. Their names only
    start like OpenAI's.
    """
    assert {"openai"} == {entrance(None, "gpt-oss-120b", None).provider for entrance in ENTRANCES.values()}
    assert names.maker_name_in_price_lists("gpt-oss-120b") is None


@pytest.mark.parametrize("entrance", ["span", "log event", "LiteLLM's log"])
@pytest.mark.parametrize("name", BY_NAME)
def test_an_operation_has_one_name(entrance: str, name: str) -> None:
    expected = None if entrance == "LiteLLM's log" and name in UNNAMED_IN_LITELLMS_LOG else BY_NAME[name]
    assert expected == ENTRANCES[entrance](None, "gpt-4o", name).operation

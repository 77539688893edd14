"""
Attribute names by field: names of the semantic conventions, and names that several products share. For each
field, the name that takes precedence is first.

A name that only one product writes belongs in the product's module. `gateway.normalise.reading` reads the
values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from functools import lru_cache
from typing import Any, TypeVar

from gateway.normalise.otlp.model import Attributes
from gateway.normalise.outcome import MALFORMED
from gateway.normalise.reading import models, regions, repositories, values
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.values import (
    ABSENT,
    MAX_TEXT,
    MAX_TOKENS,
    BadValue,
    first_machine_readable,
    text_or_none,
)
from spool import meters
from spool.caches import cache_by_text
from spool.meters import MODALITIES
from spool.providers import FRAMEWORKS

T = TypeVar("T")

OPERATION_NAME = "gen_ai.operation.name"
OPERATION = (OPERATION_NAME, "llm.request.type")

# --- Tokens: the first name with a value counts; names are never added up ------------------------------------

_USAGE = "gen_ai.usage."

INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens")
OUTPUT = ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens")
CACHE_READ = tuple(
    _USAGE + name
    for name in (
        "cache_read.input_tokens",
        "cache_read_input_tokens",
        "details.cache_read_tokens",
        "details.cache_read_input_tokens",
        "input_tokens.cached",
        "prompt_tokens_details.cached_tokens",
        "prompt_token_details.cached_read_tokens",
        "cached_tokens",
        "input_tokens_details.cached_tokens",
        "cache_read_tokens",
        "details.cached_tokens",
        "details.cached_content_tokens",
        "cached_prompt_tokens",
    )
)
CACHE_WRITE = tuple(
    _USAGE + name
    for name in (
        "cache_write.input_tokens",
        "cache_creation.input_tokens",
        "cache_creation_input_tokens",
        "cache_write_input_tokens",
        "details.cache_write_tokens",
        "details.cache_creation_input_tokens",
        "input_tokens.cache_write",
        "prompt_token_details.cached_write_tokens",
        "cache_write_tokens",
        "cache_creation_tokens",
        "prompt_tokens_details.cache_creation_tokens",
        "cached_creation_tokens",
    )
)
REASONING = tuple(
    _USAGE + name
    for name in (
        "reasoning.output_tokens",
        "reasoning_tokens",
        "output_tokens.reasoning",
        "completion_tokens_details.reasoning_tokens",
        "completion_token_details.reasoning_tokens",
        "details.reasoning_tokens",
        "experimental.reasoning_tokens",
        "output_tokens_details.reasoning_tokens",
        "details.thoughts_tokens",
        "thinking_tokens",
        "thoughts_tokens",
        "output_tokens_details.thinking_tokens",
    )
)
TOTAL = ("gen_ai.usage.total_tokens",)


def _meter_by_attribute() -> dict[str, str]:
    """
    Return the meter (such as `web_searches`) that each attribute counts. Attributes that take precedence come
    first.
    """
    meter_names: dict[str, str] = {}
    for kind in MODALITIES:
        meter_names |= {
            f"{_USAGE}{kind}.input_tokens": f"input_{kind}_tokens",
            f"{_USAGE}{kind}.output_tokens": f"output_{kind}_tokens",
            f"{_USAGE}{kind}.cache_read.input_tokens": f"cache_{kind}_read_tokens",
            f"{_USAGE}prompt_tokens_details.{kind}_tokens": f"input_{kind}_tokens",
            f"{_USAGE}completion_tokens_details.{kind}_tokens": f"output_{kind}_tokens",
            # names that OpenInference writes
            f"llm.token_count.prompt_details.{kind}": f"input_{kind}_tokens",
            f"llm.token_count.completion_details.{kind}": f"output_{kind}_tokens",
        }
    # names that pydantic-ai writes
    meter_names |= {f"{_USAGE}details.{name}": name for name in meters.METERS}
    meter_names |= {
        f"{_USAGE}web_search_requests": "web_searches",
        f"{_USAGE}server_tool_use.web_search_requests": "web_searches",
        "anthropic.usage.server_tool_use.web_search_requests": "web_searches",
    }
    return meter_names | {f"tollhouse.meter.{name}": name for name in meters.METERS}


METERS: dict[str, str] = _meter_by_attribute()
_OF_TOLLHOUSE = re.compile(
    rf"{re.escape(_USAGE)}\w+\.(?:cache_read\.)?(?:input|output)_tokens|tollhouse\.meter\.\w+"
)


def is_meter_of_tollhouse(name: str) -> bool:
    return _OF_TOLLHOUSE.fullmatch(name) is not None


# --- Other fields -------------------------------------------------------------------------------------------

REQUEST_MODEL = ("gen_ai.request.model",)
RESPONSE_MODEL = ("gen_ai.response.model",)
# attribute names used only if a call has none of the names above
PLAIN_MODEL = ("model", "llm.model", "ai.model", "model_name", "model_id")
PROVIDER = ("gen_ai.provider.name", "llm.provider", "gen_ai.system", "llm.system")
REQUEST_ID = (
    "gen_ai.response.id",
    "ai.response.id",
    "llm.response.id",
    "request_id",
    "response_id",
    "gen_ai.request.id",
    "client_request_id",
)
# RESPONSE_ID has the names for ids that the provider gave. SHARED_ID has the names for ids that a caller or
# proxy gave, which several calls may share.
RESPONSE_ID = ("gen_ai.response.id", "ai.response.id", "llm.response.id", "response_id")
SHARED_ID = ("request_id", "gen_ai.request.id", "client_request_id")
# Ids that the provider gave to one HTTP request. No caller or proxy chooses them, and attempts do not share them.
PROVIDER_REQUEST_ID = (
    "anthropic.request.id",
    "aws.request_id",
    "aws.request.id",
    "azure.service.request.id",
    "az.service_request_id",
)
# AWS SDKs write this attribute. Without it, the id is often that of a Lambda function's run.
_AWS_OPERATION = "rpc.method"
_OF_AWS_SDKS = frozenset({"aws.request_id", "aws.request.id"})
COST = (
    "cost_usd",
    "cost_usd_micros",
    "gen_ai.usage.cost",
    "gen_ai.usage.cost.amount",
    "gen_ai.usage.cost_usd",
    "gen_ai.usage.total_cost",
    "gen_ai.cost.total_cost",
    "gen_ai.cost.amount",
    # names that Sentry writes for costs, in dollars
    "gen_ai.cost.total_tokens",
    "gen_ai.cost.input_tokens",
    "gen_ai.cost.output_tokens",
)
# Attributes of the served region, read only from spans and events. On a resource, they state where the sender
# runs.
REGION = ("aws.region", "cloud.region")
CLOUD = "cloud.provider"
ADDRESS = ("server.address", "gen_ai.openai.api_base", "llm.openai.api_base", "net.peer.name")
ERROR_TYPE = ("error.type", "gen_ai.error.type")
FINISH_REASONS = ("gen_ai.response.finish_reasons", "ai.response.finishReason")
HTTP_STATUS = ("status_code", "http.response.status_code")

# --- Identity -----------------------------------------------------------------------------------------------

END_USER = "metadata.user_api_key_end_user_id"
PRINCIPAL = "metadata.user_api_key_user_id"
PRINCIPAL_EMAIL = "metadata.user_api_key_user_email"
USER = (
    "user.id",
    "enduser.id",
    "langfuse.user.id",
    "langwatch.user.id",
    "traceloop.association.properties.user_id",
    "ai.telemetry.metadata.userId",
    PRINCIPAL,
    PRINCIPAL_EMAIL,
    "llm.user",
    END_USER,
    "user.account_id",
    "kong.auth.consumer.name",
    "jwt.sub",
    "user",
)
# Attributes with the address of the user. The address of a principal counts only if the principal is the
# user.
USER_EMAIL = "user.email"
EMAIL = (USER_EMAIL, PRINCIPAL_EMAIL)
TEAM = ("team.id", "team")
SESSION = (
    "session.id",
    "anthropic.session.id",  # id of a session, which may have several conversations
    "gen_ai.conversation.id",
    "conversation.id",
    "traceloop.association.properties.session_id",
    "ai.telemetry.metadata.sessionId",
    "gcp.vertex.agent.session_id",
    "langfuse.session.id",
    "langwatch.thread.id",
    "langsmith.metadata.thread_id",
    "spring.ai.chat.client.conversation.id",
    "gen_ai.thread.id",
    "gen_ai.realtime_session.id",
    "gen_ai.live_session.id",
)
# Attributes of a resource, read last. Only names that apply to everything that the process sends are in this
# list.
RESOURCE_USER = ("user.id", "enduser.id")
RESOURCE_EMAIL = (USER_EMAIL,)
RESOURCE_TEAM = ("team.id", "team")
RESOURCE_SESSION = ("session.id",)
RESOURCE_DEVICE = ("device.id",)
# resource attributes that state the version of the sender
SENDER_VERSION = ("service.version", "app.version")
RESOURCE_DEVICE_OR_HOST = ("device.id", "host.id")

# --- Tags ---------------------------------------------------------------------------------------------------

NAMED_TAGS: dict[str, tuple[str, ...]] = {
    "environment": ("langfuse.environment", "deployment.environment.name", "deployment.environment", "env"),
    "agent": ("gen_ai.agent.name", "agent.name"),
    "organization": ("organization.id", "anthropic.organization.id"),
    "workspace": ("anthropic.workspace.id",),
    "department": ("department",),
    "cost_center": ("cost_center",),
    "cost_origin": ("gen_ai.usage.cost.source",),
    "effort": ("gen_ai.request.reasoning.level",),
    "device": ("device.id", "host.id", "installation.id"),
    "repository": (*repositories.URL_NAMES, repositories.NAME, repositories.OWNER),
    "branch": ("vcs.ref.head.name", "github.copilot.git.branch", "copilot_chat.repo.head_branch_name"),
    "commit": (
        "vcs.ref.head.revision",
        "github.copilot.git.commit_sha",
        "copilot_chat.repo.head_commit_hash",
    ),
    "pull_request": ("vcs.change.id",),
    "ticket": ("ticket", "ticket.id"),
}
# Tags of the work for which calls are made. Calls take them from the agent's span above them.
WORK_TAGS = ("repository", "branch", "commit", "pull_request", "ticket")
# Attribute that becomes a tag only if its value is a mode with its own prices (see spool.processing).
SERVICE_TIER = "service_tier"
NAMED_TAGS[SERVICE_TIER] = (
    "openai.response.service_tier",
    "gen_ai.openai.response.service_tier",
    "gen_ai.response.service_tier",
    "gen_ai.usage.service_tier",
    "anthropic.response.service_tier",
)
METADATA_JSON = "metadata"  # attribute with a JSON object as text, which OpenInference writes
IDENTITY_KEYS = frozenset(
    {
        "user",
        "user_id",
        "userId",
        "user_name",
        "userName",
        "username",
        "session",
        "session_id",
        "sessionId",
        "thread_id",
        "threadId",
    }
)
FIELDS: dict[str, tuple[str, ...]] = {
    "input": INPUT,
    "output": OUTPUT,
    "cache_read": CACHE_READ,
    "cache_write": CACHE_WRITE,
    "reasoning": REASONING,
    "total": TOTAL,
    "request_model": REQUEST_MODEL,
    "response_model": RESPONSE_MODEL,
    "provider": PROVIDER,
    "request_id": REQUEST_ID,
    "provider_request_id": PROVIDER_REQUEST_ID,
    "cost": COST,
    "region": REGION,
    "address": ADDRESS,
    "error": ERROR_TYPE,
    "finish": FINISH_REASONS,
    "user": USER,
    "email": EMAIL,
    "team": TEAM,
    "session": SESSION,
    "api_key": (),
    "agent": NAMED_TAGS["agent"],
    "run": ("tollhouse.run",),
    "parent_run": ("tollhouse.parent_run",),
}
# Operations of steps around calls. Some of these steps repeat the sums of their calls.
NO_CALLS = frozenset({
    "invoke_agent", "create_agent", "agent_step", "execute_tool", "execute_event_loop_cycle", "invoke_workflow",
    "plan", "retrieval", "framework", "fetch_response", "chain", "agent", "tool", "retriever", "prompt", "parser",
    "llm_call", "handle_conversation_turn",
})  # fmt: skip

_ERROR = "error"
CURRENCY = "gen_ai.usage.cost.currency"
_CURRENCIES = {
    **dict.fromkeys(("gen_ai.usage.cost.amount", "gen_ai.usage.cost", "gen_ai.usage.total_cost"), CURRENCY),
    "gen_ai.cost.amount": "gen_ai.cost.currency",
}
_COST_PARTS = ("gen_ai.cost.input_tokens", "gen_ai.cost.output_tokens")
_ONE_WORD = re.compile(r"[^\s{}\[\]\"]{1,128}")
# Prefix of a provider's name -> its cloud. These providers have regions; the Gemini API itself has none.
_CLOUDS = {"aws.": "aws", "azure.": "azure", "gcp.vertex": "gcp"}
_STATED_BY = {"aws": ("aws.region", "cloud.region"), "azure": ("cloud.region",), "gcp": ("cloud.region",)}
_GEMINI = frozenset({"gcp.gemini", "gcp.gen_ai"})


def first_value(attributes: Attributes, names: Iterable[str]) -> Any:
    """
    Return the value of the first name that has a value, or None. Placeholders such as "none" count as no value.
    """
    for name in names:
        value = attributes.get(name)
        if value is not None and not (type(value) is str and value in ABSENT):
            return value
    return None


def first_text(attributes: Attributes, names: Iterable[str]) -> str | None:
    for name in names:
        value = attributes.get(name)
        if type(value) is str:
            if value not in ABSENT and len(value) <= MAX_TEXT:
                return value
        elif value is not None and (number_text := tag_rules.tag_text(value)) is not None:
            return number_text
    return None


def first_text_of_each(attributes: Attributes, fields: Iterable[tuple[str, ...]]) -> list[str | None]:
    """
    Return `first_text` for each field, in half the time of single calls. Each name in `fields` must be in the
    attributes.
    """
    texts = []
    for names in fields:
        value = attributes[names[0]] if names else None
        if type(value) is not str or value in ABSENT or len(value) > MAX_TEXT:
            value = first_text(attributes, names) if names else None
        texts.append(value)
    return texts


def first_count_of_each(
    attributes: Attributes, fields: Iterable[tuple[int, tuple[str, ...]]], size: int
) -> list[Any]:
    """
    Return a list of `size` token counts. `fields`: a list index, and names of attributes of which the first
    with a value gives the count. The first name must be an attribute.

    This takes half the time of single calls of `first_count`. Raises BadValue.
    """
    counts: list[Any] = [None] * size
    for place, names in fields:
        value = attributes[names[0]]
        is_plain = type(value) is int and 0 <= value <= MAX_TOKENS
        counts[place] = value if is_plain else first_count(attributes, names)
    return counts


def model_in_unprefixed_attribute(attributes: Attributes) -> str | None:
    """
    Return the model under a name such as `model`, which means a model only on calls. Return None for a
    sentence or an object.
    """
    for name in PLAIN_MODEL:
        model = text_or_none(values.decode_if_json_text(attributes.get(name)))
        if model is not None and _ONE_WORD.fullmatch(model):
            return model
    return None


def response_id_or_id_of_several_calls(
    attributes: Attributes,
    response_id_names: Iterable[str] = RESPONSE_ID,
    shared_id_names: Iterable[str] = SHARED_ID,
) -> tuple[str | None, str | None]:
    """
    Return the provider's id of a call and None. Without such an id, return None and an id that several calls
    may share.
    """
    response_id = first_text(attributes, response_id_names)
    return (None, first_text(attributes, shared_id_names)) if response_id is None else (response_id, None)


def first_provider_request_id(attributes: Attributes, names: Iterable[str]) -> str | None:
    if _AWS_OPERATION not in attributes:
        names = [name for name in names if name not in _OF_AWS_SDKS]
    return first_text(attributes, names)


def name_of_first_value(attributes: Attributes, names: Iterable[str]) -> str | None:
    return next((name for name in names if first_value(attributes, (name,)) is not None), None)


def first_count(attributes: Attributes, names: Iterable[str]) -> int | None:
    """Return the token count of the first name that has a value, or None. Raises BadValue."""
    for name in names:
        value = attributes.get(name)
        if type(value) is int and 0 <= value <= MAX_TOKENS:
            return value
        if value is not None and not (type(value) is str and value in ABSENT):
            return parse_count_if_number(value, name)
    return None


def parse_count_if_number(value: Any, name: str) -> int | None:
    """
    Return a token count. Return None for text that is not a number, because other programs use the same
    names. Raises BadValue if the number is impossible.
    """
    if value is None:
        return None
    if type(value) is int and 0 <= value <= MAX_TOKENS:
        return value
    return _none_if_malformed(values.parse_count, value, name)


def parse_amount_if_number(value: Any, name: str) -> str | None:
    """Return an amount as decimal text. Return None for text that is not a number. Raises BadValue."""
    if value is None:
        return None
    return _none_if_malformed(values.parse_amount, value, name)


def _none_if_malformed(read: Callable[[Any, str], T], value: Any, name: str) -> T | None:
    try:
        return read(value, name)
    except BadValue as error:
        if error.reason == MALFORMED:
            return None
        raise


def reported_cost(attributes: Attributes, names: Iterable[str]) -> str | None:
    for name in names:
        amount = parse_amount_if_number(attributes.get(name), name)
        if amount is None or not _is_in_dollars(attributes, name):
            continue
        if name in _COST_PARTS:
            parts = [parse_amount_if_number(attributes.get(part), part) for part in _COST_PARTS]
            return parse_amount_if_number(sum(Decimal(part) for part in parts if part is not None), name)
        return (
            parse_amount_if_number(Decimal(amount).scaleb(-6), name) if name == "cost_usd_micros" else amount
        )
    return None


def _is_in_dollars(attributes: Attributes, name: str) -> bool:
    stated = attributes.get(_CURRENCIES.get(name, ""))
    return stated is None or stated == "USD" or (type(stated) is str and stated.strip().upper() == "USD")


def is_known_currency_code(stated: str) -> bool:
    from spool.currencies import DECIMALS  # imported late, because few payloads state a currency

    return stated in DECIMALS


def reported_charges(attributes: Attributes, names: Iterable[str]) -> dict[str, str]:
    """
    Return the reported cost of a call in a currency other than dollars: one amount by currency, or nothing.
    """
    for name in names:
        if _CURRENCIES.get(name, "") in attributes:
            from spool.currencies import (
                read_currency_code,  # imported late, because few payloads state a currency
            )

            currency = read_currency_code(attributes[_CURRENCIES[name]])
            amount = parse_amount_if_number(attributes.get(name), name)
            if currency is not None and currency != "USD" and amount is not None:
                return {currency: amount}
    return {}


def processing_region(
    attributes: Attributes,
    names: Iterable[str],
    addresses: Iterable[str],
    *,
    provider: str | None,
    model: str | None,
    answered: str | None = None,
) -> str | None:
    region_attribute = name_of_region_attribute(attributes, names, addresses, provider=provider)
    if region_attribute is None:
        return regions.region_of_call(answered, model=model)
    value = attributes[region_attribute]
    return regions.region_of_call(
        answered, regions.region_of_address(value) if region_attribute in ADDRESS else value, model=model
    )


def name_of_region_attribute(
    attributes: Attributes, names: Iterable[str], addresses: Iterable[str], *, provider: str | None
) -> str | None:
    """
    Return the name of the attribute that states the region of a call. Addresses take precedence.

    A stated region counts only if it has the form of a region of the provider's own cloud, because any other
    value is the region of the caller. A collector may copy even a valid region from the resource, so an
    address is more reliable.
    """
    for name in addresses:
        if regions.region_of_address(attributes.get(name)) is not None:
            return name
    cloud = _cloud_of_provider(provider)
    if cloud is None or attributes.get(CLOUD) not in (None, cloud):
        return None
    for name in names:
        if name in _STATED_BY[cloud] and regions.is_region_of_cloud(attributes.get(name), cloud):
            return name
    return None


@lru_cache(maxsize=1024)
def _cloud_of_provider(provider: str | None) -> str | None:
    clouds = (
        cloud for begin, cloud in _CLOUDS.items() if provider is not None and provider.startswith(begin)
    )
    return next(clouds, None)


def machine_readable_error(attributes: Attributes, exception: str | None = None) -> str:
    """
    Return the machine-readable type of a failure, never a message. `exception` is the type of the
    span's exception event.
    """
    # "" stands for the event, because no attribute has this name; most failures state the first name
    names = (*ERROR_TYPE, "", "exception.type", "error_type", *HTTP_STATUS)
    stated = (text_or_none(attributes.get(name)) if name else exception for name in names)
    return first_machine_readable(stated)


def has_error_finish(attributes: Attributes, names: Iterable[str], outputs: Iterable[str]) -> bool:
    """
    Return whether `error` is the only finish reason (in a list or its JSON text) and no response is stated.

    LangChain writes `error` for reasons that it does not know. So `error` is not a failure if output or a
    response id is stated.
    """
    for name in names:
        reasons = attributes.get(name)
        if type(reasons) is str:
            is_error = reasons.strip('[]" ') == _ERROR
        elif type(reasons) is list:
            is_error = bool(reasons) and reasons.count(_ERROR) == len(reasons)
        else:
            continue
        return is_error and not _has_output_or_id(attributes, outputs)
    return False


def _has_output_or_id(attributes: Attributes, outputs: Iterable[str]) -> bool:
    try:
        return bool(first_count(attributes, outputs)) or first_value(attributes, RESPONSE_ID) is not None
    except BadValue:
        return False


def first_provider(attributes: Attributes, names: Iterable[str]) -> str | None:
    for name in names:
        written = text_or_none(attributes.get(name))
        stated = None if written is None else normal_provider_name(written)
        if stated is not None and stated not in FRAMEWORKS:
            return stated
    return None


@cache_by_text(1024)
def normal_provider_name(written: str) -> str | None:
    """
    Return a stated provider as records name it. In spans, `google` may be any of Google's services, so
    it becomes `gcp.gen_ai`.
    """
    return "gcp.gen_ai" if written.lower() == "google" else models.stated_provider(written)


@cache_by_text(2048)
def provider_by_model_name(model: str) -> str | None:
    """Return the provider of a model by the model name. In spans, any text before the slash is a provider."""
    segment, slash, _ = model.lower().removeprefix("models/").partition("/")
    if slash and segment == "google":
        return "gcp.gen_ai"
    known = models.provider_of_model(model)
    return segment if known is None and slash and segment else known


@lru_cache(maxsize=2048)
def is_gemini(provider: str | None, model: str | None) -> bool:
    """
    Return whether a Google model answered the call. The rules for Gemini then apply, because some reports on
    Google models omit reasoning tokens.
    """
    if model is None:
        return provider in _GEMINI
    return model.lower().rpartition("/")[2].startswith("gemini")


def is_email_attribute(name: str) -> bool:
    """
    Return whether an attribute may hold an e-mail address by its name. Of such attributes, only those in
    `EMAIL` are read.
    """
    return "email" in name.lower()

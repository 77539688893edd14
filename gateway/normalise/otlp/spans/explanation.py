"""
Reasons for the fields of a record (`--why`): the attribute from which each field was read, and the rule
applied to the value.
"""

from __future__ import annotations

from msgspec.structs import asdict

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import Caller, SpanCall
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.product import AttributeNamesByField, SpanDialect, TelemetryProduct
from gateway.normalise.otlp.shapes import CONTAINERS, FIELD_NAMES
from gateway.normalise.otlp.span_rules import has_bedrock_input_count_excluding_cache, operation_by_span_name
from gateway.normalise.reading.regions import region_of_call
from gateway.normalise.reading.tokens import Tokens

_NAMES = {  # record field -> field of `FIELD_NAMES` that has its attribute names
    "request_model": "request_model",
    "response_model": "response_model",
    "request_id": "request_id",
    "provider": "provider",
    "cost": "cost",
    "user": "user",
    "team": "team",
    "session": "session",
    "api_key": "api_key",
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "reasoning_tokens": "reasoning",
}
_CONTAINED = {
    "input_tokens": "input",
    "output_tokens": "output",
    "cache_read_tokens": "cache_read",
    "cache_write_tokens": "cache_write",
    "reasoning_tokens": "reasoning",
    "cache_write_1h_tokens": "cache_write_1h",
    "cost": "cost",
    "request_model": "model",
    "provider": "provider",
    "request_id": "response_id",
    "region": "region",
}


def origins_of_fields(
    span: Span, attribute_names: AttributeNamesByField, call: SpanCall, product: TelemetryProduct
) -> dict[str, str]:
    attributes, dialect, record = span.attributes, product.spans, call.record
    names = {**FIELD_NAMES, **product.own_names}
    tables = {field: names[name] for field, name in _NAMES.items()}
    tables["region"] = _region_attribute_names(attributes, attribute_names, call)
    names_by_field = {
        field: semconv.name_of_first_value(attributes, names) for field, names in tables.items()
    }
    why = {field: name for field, name in names_by_field.items() if name is not None}
    if not {"request_model", "response_model"} & set(why):
        why |= _origin_of_plain_model(attributes, call)
    for field, contained in _CONTAINED.items():
        if (
            field not in why
            and (container := _name_of_attribute_containing_field(attributes, contained)) is not None
        ):
            why[field] = f"{contained} in {container}"
        elif field not in why and field != "provider" and getattr(record, field) is not None:
            why[field] = f"several attributes, combined by dialect {product.source}"
    if record.provider is not None and "provider" not in why:
        model = record.request_model or record.response_model
        is_of_model = model is not None and record.provider == semconv.provider_by_model_name(model)
        why["provider"] = "derived from the model name" if is_of_model else f"set by dialect {product.source}"
    if record.meters:
        why["meters"] = (
            ", ".join(dict.fromkeys(name for _, name in attribute_names.meters)) or "a usage object"
        )
    if record.region is not None and record.region == region_of_call(
        model=record.request_model or record.response_model
    ):
        why["region"] = "derived from the model name"
    why["operation"] = _explanation_of_operation(span, attribute_names, product)
    why["source"] = f"read by dialect {product.source}"
    _add_token_count_explanations(why, attributes, call, dialect, span)
    total_name = semconv.name_of_first_value(attributes, names["total"])
    if total_name is not None:
        _explain_rest_of_total(why, attributes, call.tokens, total_name)
    return why


def add_origins_of_caller(why: dict[str, str], caller: Caller) -> None:
    for field, value in asdict(caller).items():
        if value is not None:
            why.setdefault(
                field, "inherited from a dropped duplicate span, an enclosing span or the resource"
            )


def _region_attribute_names(
    attributes: Attributes, attribute_names: AttributeNamesByField, call: SpanCall
) -> tuple[str, ...]:
    name = semconv.name_of_region_attribute(
        attributes, attribute_names.region, attribute_names.address, provider=call.record.provider
    )
    return () if name is None else (name,)


def _origin_of_plain_model(attributes: Attributes, call: SpanCall) -> dict[str, str]:
    model = semconv.model_in_unprefixed_attribute(attributes)
    name = semconv.name_of_first_value(attributes, semconv.PLAIN_MODEL)
    return {"request_model": name} if name is not None and model == call.record.request_model else {}


def _name_of_attribute_containing_field(attributes: Attributes, field: str) -> str | None:
    for name, read in CONTAINERS.items():
        if name in attributes and field in read(attributes[name]):
            return name
    return None


def _explanation_of_operation(
    span: Span, attribute_names: AttributeNamesByField, product: TelemetryProduct
) -> str:
    deciding, own_rule = attribute_names.deciding_kind, product.spans.operation
    decided_by = (deciding.attribute,) if deciding is not None else ()
    kinds = [kind.attribute for kind in product.kinds]
    name = semconv.name_of_first_value(span.attributes, (*decided_by, *semconv.OPERATION, *kinds))
    if own_rule is None or (deciding is not None and deciding.operation is not None):
        return name or "the span has a model or provider, and usage or an error"
    if name is None:
        return f"set by dialect {product.source}"
    is_own = own_rule(span, attribute_names) != operation_by_span_name(span, attribute_names)
    return f"{name}, by dialect {product.source}" if is_own else name


def _add_token_count_explanations(
    explanations: dict[str, str], attributes: Attributes, call: SpanCall, dialect: SpanDialect, span: Span
) -> None:
    tokens, model = call.tokens, call.record.request_model or call.record.response_model
    cache = (tokens.cache_read or 0) + (tokens.cache_write or 0)
    if (
        "input_tokens" in explanations
        and cache
        and tokens.input != _stated_count(attributes, explanations["input_tokens"])
    ):
        if (dialect.without_cache or has_bedrock_input_count_excluding_cache)(
            span, call.record.provider, model
        ):
            explanations["input_tokens"] += " + cache (by dialect, input excludes cache)"
        else:
            explanations["input_tokens"] += (
                " + cache (input excludes cache, because the total or a cache count above input shows it)"
            )
    counts_reasoning = "output_tokens" in explanations and tokens.reasoning
    if counts_reasoning and tokens.output != _stated_count(attributes, explanations["output_tokens"]):
        explanations["output_tokens"] += " + reasoning (output excludes reasoning)"


def _explain_rest_of_total(
    explanations: dict[str, str], attributes: Attributes, tokens: Tokens, total_name: str
) -> None:
    """Explain counts that only the total states. `total_name` is the attribute with the total."""
    total = _stated_count(attributes, total_name)
    if total is None or total == 0:
        return
    if tokens.input == total and tokens.output is None:
        explanations["input_tokens"] = (
            f"{total_name} (the only count: its split into input and output is unknown)"
        )
    elif total == (tokens.input or 0) + (tokens.output or 0):
        for field, count, other in (("input", tokens.input, "output"), ("output", tokens.output, "input")):
            stated = explanations.get(f"{field}_tokens", "")
            if " + " not in stated and count != _stated_count(attributes, stated):
                explanations[f"{field}_tokens"] = (
                    f"{total_name} - {other} (the total is larger than the stated sum)"
                )


def _stated_count(attributes: Attributes, name: str) -> int | None:
    return semconv.parse_count_if_number(attributes.get(name), name)

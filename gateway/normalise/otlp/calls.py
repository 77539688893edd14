"""One span that is an AI call, as an inference record and what is needed to settle it among its neighbours."""

from __future__ import annotations

from msgspec import Struct

from gateway.normalise.otlp import containers
from gateway.normalise.otlp import marks as m
from gateway.normalise.otlp import vocabulary as words
from gateway.normalise.otlp.dialect import Dialect, TokenNames, failed
from gateway.normalise.otlp.model import Attributes, Span
from gateway.normalise.otlp.tokens import Tokens, settle
from gateway.normalise.otlp.vocabulary import Who
from spool.record import Inference

EMBEDDINGS, RERANK, EVERYTHING_ELSE = 0, 1, 2  # calls of one class may describe the same call
_CLASSES = {words.EMBEDDINGS: EMBEDDINGS, words.RERANK: RERANK}

NOBODY = Who()


class Call(Struct):
    """Built when the span is read, settled when the whole payload was."""

    place: int
    record: Inference
    kind: int
    tokens: Tokens
    who: Who
    response_id: str | None
    shared_id: str | None
    run_id: str | None = None
    resource_who: Who = NOBODY
    inner: list[Call] = []  # the nearest calls of the same class below
    twin_who: tuple[Who, ...] = ()  # of dropped twins, nearest first
    agent: str | None = None
    why: dict[str, str] | None = None

    @property
    def has_usage(self) -> bool:
        return self.tokens != NO_TOKENS


NO_TOKENS = Tokens()


def call_of(place: int, span: Span, marks: int, dialect: Dialect, operation: str) -> Call:
    """The call that a span describes by itself. Implausible when its figures cannot be."""
    attributes = span.attributes
    more = _contained(attributes, marks, dialect)
    names = dialect.model
    request_model = (
        words.first_text(attributes, names) if marks & m.REQUEST_MODEL or names is not words.REQUEST_MODEL else None
    ) or more.get("model")
    response_model = words.first_text(attributes, words.RESPONSE_MODEL) if marks & m.RESPONSE_MODEL else None
    provider = _provider(attributes, marks, dialect, request_model or response_model, more)
    tokens = _tokens(span, marks, dialect, provider, request_model or response_model, more)
    cost = words.cost_of(attributes) if marks & m.COST else None
    if cost is None and "cost" in more:
        cost = words.money(more["cost"])
    status, error_type = "ok", None
    if failed(span, marks):
        status, error_type = "error", words.error_type(attributes, _exception_type(span))
    elif cost == "0" and dialect.zero_cost_is_unknown and (tokens.input or tokens.output):
        cost = None
    record = Inference(
        id=b"",
        source=dialect.source,
        request_id=words.first_text(attributes, words.REQUEST_ID) if marks & m.REQUEST_ID else None,
        trace_id=span.trace_id,
        span_id=span.span_id,
        start_time=span.start_time,
        end_time=span.end_time,
        provider=provider,
        operation=operation,
        request_model=request_model,
        response_model=response_model,
        cost=cost,
        status=status,
        error_type=error_type,
    )
    response_id, shared_id = _ids(attributes, dialect) if record.request_id is not None else (None, None)
    return Call(
        place,
        record,
        _CLASSES.get(operation, EVERYTHING_ELSE),
        tokens,
        who_of(attributes, marks, dialect.user),
        response_id,
        shared_id,
        words.text(attributes.get(dialect.run_id)) if dialect.run_id else None,
    )


def who_of(attributes: Attributes, marks: int, user_names: tuple[str, ...] = words.USER) -> Who:
    """The identity that a span states itself, as far as its marks promise one."""
    if not marks & m.WHO and user_names is words.USER:
        return NOBODY
    return Who(
        words.first_text(attributes, user_names) if marks & m.USER or user_names is not words.USER else None,
        words.first_text(attributes, words.TEAM) if marks & m.TEAM else None,
        words.first_text(attributes, words.SESSION) if marks & m.SESSION else None,
        words.first_text(attributes, words.API_KEY) if marks & m.API_KEY else None,
    )


_NOTHING: containers.Fields = {}


def _contained(attributes: Attributes, marks: int, dialect: Dialect) -> containers.Fields:
    if dialect.more is not None:
        return {**dialect.more(attributes), **_read_containers(attributes, marks)}
    return _read_containers(attributes, marks) if marks & m.CONTAINER else _NOTHING


def _read_containers(attributes: Attributes, marks: int) -> containers.Fields:
    fields: dict[str, object] = {}
    for name, read in containers.READERS.items():
        if name in attributes:
            for field_name, value in read(attributes[name]).items():
                fields.setdefault(field_name, value)
    return fields


def _provider(
    attributes: Attributes, marks: int, dialect: Dialect, model: str | None, more: containers.Fields
) -> str | None:
    stated = words.provider_of(attributes, None) if marks & m.PROVIDER else None
    if dialect.model_names_provider and model is not None:
        stated = words.model_provider(model) or stated
    if stated is None and "provider" in more:
        stated = words.provider(more["provider"])
    return stated or dialect.provider or (words.model_provider(model) if model is not None else None)


def _tokens(
    span: Span, marks: int, dialect: Dialect, provider: str | None, model: str | None, more: containers.Fields
) -> Tokens:
    attributes = span.attributes
    said = _said(attributes, marks) if dialect.tokens is None else _named(attributes, dialect.tokens)
    if more:
        said = Tokens(
            *(
                words.count(more.get(name)) if value is None else value
                for name, value in zip(Tokens._fields, said, strict=True)
            )
        )
    if said.cache_read is None and said.cache_write is None and said.reasoning is None:
        return said
    total = words.count(words.first(attributes, words.TOTAL)) if marks & m.TOTAL else None
    return settle(
        said,
        total=words.count(more.get("total")) if total is None else total,
        without_cache=dialect.without_cache(span, provider, model),
        without_reasoning=any(name in attributes for name in dialect.without_reasoning),
    )


def _said(attributes: Attributes, marks: int) -> Tokens:
    """The counts under the names of the vocabulary."""
    count, first = words.count, words.first
    return Tokens(
        count(first(attributes, words.INPUT)) if marks & m.INPUT else None,
        count(first(attributes, words.OUTPUT)) if marks & m.OUTPUT else None,
        count(first(attributes, words.CACHE_READ)) if marks & m.CACHE_READ else None,
        count(first(attributes, words.CACHE_WRITE)) if marks & m.CACHE_WRITE else None,
        count(first(attributes, words.REASONING)) if marks & m.REASONING else None,
    )


def _named(attributes: Attributes, names: TokenNames) -> Tokens:
    """The counts under a dialect's own names."""
    fields = (names.input, names.output, names.cache_read, names.cache_write, names.reasoning)
    return Tokens(*(words.count(words.first(attributes, field_names)) for field_names in fields))


def _ids(attributes: Attributes, dialect: Dialect) -> tuple[str | None, str | None]:
    """The provider's id of the call, and an id that others may share."""
    response_id = words.first_text(attributes, dialect.response_id)
    if response_id is None:
        return None, words.first_text(attributes, dialect.shared_id)
    if dialect.not_unique is not None and attributes.get(dialect.not_unique) == response_id:
        return None, response_id
    return response_id, None


def _exception_type(span: Span) -> str | None:
    return next((kind for event in span.events if (kind := words.text(event.attributes.get("exception.type")))), None)

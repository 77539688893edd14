"""
Classes with which each format declares itself completely in its own file, and the calls of one item of a declared
format. An item of OTLP may be a row of a gateway's own table or log, so these do not need the list of formats.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from time import time_ns
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec

from gateway.core.errors import Refusal
from gateway.core.schemas import Schema
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import BodyReadLimits
from gateway.normalise.payload.items import NestedPayloadUnpacker
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.metadata import CallMetadata
from gateway.normalise.reading.models import provider_of_model
from gateway.normalise.reading.tokens import COUNT_CACHE_APART, Tokens, normalise_counts, set_token_counts
from gateway.normalise.reading.values import BadValue, first_machine_readable, status_code, text_or_none
from spool.identity import AS_GATEWAY, RecordIdentity, build_relayed_report
from spool.processing import MODES
from spool.record import AiRecord, Inference, UsageMetric

RawMembers = Mapping[str, payload.Raw]
# items of a body; an empty item only gives the event loop a turn
Items: TypeAlias = "Iterator[payload.Raw | Unreadable]"

OTLP_SIGNALS: Final = {
    "otlp/traces": ("resourceSpans", "resource_spans"),
    "otlp/metrics": ("resourceMetrics", "resource_metrics"),
    "otlp/logs": ("resourceLogs", "resource_logs"),
}
# maximum items that are inspected to recognize a format. APISIX sends 1,000 items at once.
MAX_LOOKED_AT: Final = 4096
_METADATA: Final = "metadata."


class ReadCall(NamedTuple):
    record: Inference
    identity: RecordIdentity
    left_out: int = 0  # number of metadata values that may not become tags
    # True if the gateway reports only calls, so that an item without model and tokens is a call as well
    is_certain: bool = False
    names_request: bool = False  # True if a further dedup key is from the provider's id of the request


class ReadTokenCount(NamedTuple):
    """
    A number of tokens that belong to no known call, as a record with its dedup key. `left_out` counts dropped
    tags.
    """

    record: UsageMetric
    identity: RecordIdentity
    left_out: int = 0


class Unreadable(NamedTuple):
    message: str

    def __len__(self) -> int:
        return len(self.message)


class CallReport(NamedTuple):
    """
    A report on an incomplete call, or on a call that later batches may add to. Only the format that created
    the report reads `facts`, which are packed bytes, so that they can be stored and passed between processes.
    """

    kind: str
    key: str  # key of the report that the source itself chose
    facts: bytes


class NormalisedBody(NamedTuple):
    """
    The result of reading a body: its outcome, and reports on incomplete calls. The outcome includes the items
    of these reports only in the number of received items.
    """

    outcome: ReadOutcome
    reports: Sequence[CallReport] = ()


class FormatAnswer(NamedTuple):
    status: int
    body: bytes
    content_type: str = "application/json"


# generator that encodes a long response in steps; the event loop gets a turn after each step
Answering: TypeAlias = Generator[None, None, FormatAnswer]


@dataclass(frozen=True, kw_only=True)
class Format:
    """
    Recognition, example and responses of a format. The subclasses ItemFormat and BatchFormat add how it is
    read.

    `has_sign` returns whether an item's top-level members are typical of the format. `answer` builds the
    response to a body that has been stored. `refuse` builds the response to a refused request from its
    headers and body. Both return None if Tollhouse's standard response is right.
    """

    name: str
    has_sign: Callable[[RawMembers], bool]
    # function that returns an example call as the gateway reports it today
    example: Callable[[ExampleCall], Any]
    origins: Mapping[str, str]  # record field -> payload field, for `explain --why`
    key_header: str | None = None  # header in which a sender that cannot set Authorization sends its key
    answer: Callable[[bytes, ReadOutcome, float], FormatAnswer | Answering | None] | None = None
    # Schema of the response by status. None means a response without a body.
    answer_schemas: Mapping[int, Schema | None] = field(default_factory=dict)
    # whether each item gets a result in the response, even if all items of the body are malformed
    answers_each_item: bool = False
    refuse: Callable[[Mapping[str, str], bytes, Refusal, float], FormatAnswer | None] | None = None
    refusal_schema: Schema | None = None


@dataclass(frozen=True, kw_only=True)
class ItemFormat(Format):
    """
    A format whose items are read one by one.

    `calls` reads one item, decoded as `event`. If the item is not a call, `calls` yields nothing, or a call
    without model and tokens. For tokens that belong to no call, it yields a `ReadTokenCount`. For an impossible
    figure, `calls` raises `BadValue`, or yields the `BadValue` if other calls of the item are valid. `unwrap`
    removes the wrappers of an item, and `NestedPayloadUnpacker` opens packed wrappers.
    """

    event: type[msgspec.Struct]
    calls: Callable[[Any], Iterable[ReadCall | ReadTokenCount | BadValue]]
    unwrap: Callable[[payload.Raw, NestedPayloadUnpacker], Items] | None = None
    # Bytes of which a packed body contains at least one. Without any of them, `unwrap` is not called.
    signs_of_packing: Sequence[bytes] = ()
    # Reason for ignoring an item, or None. Then the item is unrecognized if it names a model or tokens.
    ignored_as: Callable[[Any], str | None] | None = None


@dataclass(frozen=True, kw_only=True)
class BatchFormat(Format):
    """A format that reads a body as a whole, because several of its items together make one record."""

    read: Callable[[bytes, ReadOptions, BodyReadLimits], Generator[None, None, NormalisedBody]]


def origins_of_known_fields(origins: Mapping[str, str], record: AiRecord) -> dict[str, str]:
    why = {name: origin for name, origin in origins.items() if getattr(record, name, None) is not None}
    why.pop("meters", None)
    if getattr(record, "meters", None):
        why["meters"] = origins.get(
            "meters", f"details next to {origins.get('input_tokens', 'the counts')}, by kind"
        )
    if getattr(record, "cache_write_1h_tokens", None) is not None:
        why.setdefault(
            "cache_write_1h_tokens",
            f"details next to {origins['cache_write_tokens']}, by lifetime of the cache write",
        )
    return why


def build_json_answer(status: int, value: Any) -> FormatAnswer:
    return FormatAnswer(status, msgspec.json.encode(value))


def has_any_member(*names: str) -> Callable[[RawMembers], bool]:
    return lambda members: any(name in members for name in names)


def has_all_members(*names: str) -> Callable[[RawMembers], bool]:
    return lambda members: all(name in members for name in names)


def inner_objects(members: RawMembers, name: str) -> Iterator[RawMembers]:
    if name in members:
        yield from map(
            payload.undecoded_members, islice(payload.array_elements(members[name]), MAX_LOOKED_AT)
        )


def has_object_with(members: RawMembers, name: str, *inner: str) -> bool:
    return any(inner_object.keys() >= {*inner} for inner_object in inner_objects(members, name))


@dataclass(frozen=True, kw_only=True)
class ExampleCall:
    """
    The invented values of a call, from which each format builds its example payload. Every instance has new
    ids.
    """

    end_ns: int = field(default_factory=time_ns)
    uuid: str = field(default_factory=lambda: str(uuid4()))
    trace_id: str = field(default_factory=lambda: secrets.token_hex(16))
    span_id: str = field(default_factory=lambda: secrets.token_hex(8))
    model: str = "gpt-4o-mini"
    response_model: str = "gpt-4o-mini-2024-07-18"
    input_tokens: int = 1320
    output_tokens: int = 212
    cached_tokens: int = 1024
    cost: float = 0.0002484
    duration_ms: int = 1200

    @property
    def start_ns(self) -> int:
        return self.end_ns - self.duration_ms * 1_000_000

    @property
    def start_text(self) -> str:
        return _format_utc_time(self.start_ns)

    @property
    def end_text(self) -> str:
        return _format_utc_time(self.end_ns)

    @property
    def response_id(self) -> str:
        return f"chatcmpl-{self.uuid}"

    @property
    def usage(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.input_tokens,
            "completion_tokens": self.output_tokens,
            "total_tokens": self.input_tokens + self.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
            "completion_tokens_details": {"reasoning_tokens": 0},
        }


def _format_utc_time(time_ns: int) -> str:
    moment = datetime.fromtimestamp(time_ns / 1e9, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


_TIERS = tuple(MODES)  # a tier may be any JSON value, even one that cannot be hashed


def declare_field_with_payload_name(payload_name: str) -> Any:
    """Declare a field whose name in the payload is not a Python name."""
    return msgspec.field(name=payload_name, default=None)


def set_normalised_counts(record: Inference, reported: Tokens, *, without_cache: bool = False) -> None:
    set_token_counts(record, normalise_counts(reported, without_cache=without_cache))


def input_excludes_cache(path: Any, *models: Any) -> bool:
    """
    Return whether the reported input tokens exclude cached tokens. That is the case for Anthropic's messages
    API and Bedrock Converse, recognized by the request path.
    """
    bare = "/" + (text_or_none(path) or "").partition("?")[0].rstrip("/")
    if bare.endswith("/converse"):
        return True
    makers = (
        provider_of_model(model_name) for model in models if (model_name := text_or_none(model)) is not None
    )
    return bare.endswith("/messages") and not COUNT_CACHE_APART.isdisjoint(makers)


def add_tier_tag(metadata: CallMetadata, *stated: Any) -> None:
    """
    Add the first stated service tier that has prices of its own as a tag. Add none if there is no such tier.
    """
    for value in stated:
        if value is not None and value in _TIERS:
            metadata.add_tag("service_tier", value)
            return


def mark_as_failed(record: Inference, *types: Any) -> None:
    record.status = "error"
    record.error_type = first_machine_readable(text_or_none(value) for value in types)


def mark_as_failed_if_http_error(record: Inference, status: Any) -> bool:
    code = status_code(status)
    if code is None or code < 400:
        return False
    mark_as_failed(record, code)
    return True


def is_model_call(record: Inference) -> bool:
    return bool(record.request_model or record.response_model or record.input_tokens or record.output_tokens)


def read_event_calls(format: ItemFormat, event: Any) -> list[ReadCall | ReadTokenCount | BadValue]:
    """
    Return the calls of one item, its token counts without a call, and the errors of its values that cannot be
    counted. An item without model and tokens is not a call.
    """
    try:
        return [
            call
            for call in format.calls(event)
            if not isinstance(call, ReadCall) or call.is_certain or is_model_call(call.record)
        ]
    except BadValue as error:
        return [error]


def identity_with_relay(call: ReadCall | ReadTokenCount) -> RecordIdentity:
    """
    Return the dedup key of a call. If the call names a session, the key gets a second id for the session's
    request, because the assistant that sent the call through the gateway may report it as well.
    """
    identity = call.identity
    if isinstance(call, ReadTokenCount) or call.record.session is None or identity.relay is not None:
        return identity
    record, session = call.record, call.record.session
    relay = build_relayed_report(
        record, session, report_kind=AS_GATEWAY, states_request_id=call.names_request
    )
    return identity._replace(relay=relay)


def add_calls_of_gateway_row(
    format: ItemFormat,
    item_index: int,
    item: Any,
    outcome: ReadOutcome,
    *,
    tags: Mapping[str, str],
    device: str | None,
    version: str,
) -> bool:
    """
    Add the calls of an OTLP item that is a row of a gateway's own table or log. Each attribute of the item
    is a column.

    Return False if the item is not a call. `tags` and `device` come from the resource of the item.
    """
    calls = read_event_calls(format, _event_from_attributes(format.event, item.attributes))
    for call in calls:
        if isinstance(call, BadValue):
            outcome.reject_item(item_index, call.reason, f"item {item_index}: {call.message}")
            continue
        record = call.record
        own = dict(record.tags)
        outcome.left_out += call.left_out + tag_rules.remove_unknown_long_tags(own, outcome.keep_tags)
        for name, value in tags.items():
            outcome.left_out += name not in own and not tag_rules.put_tag_if_allowed(own, name, value)
        record.tags = own
        why = None if outcome.why is None else origins_of_known_fields(format.origins, record)
        outcome.add_record(record, identity_with_relay(call), why, device=device, version=version)
    return bool(calls)


def _event_from_attributes(type: type[msgspec.Struct], attributes: Mapping[str, Any]) -> msgspec.Struct:
    fields = _fields_with_encoded_names(type)
    columns = {field: attributes[column] for field, column in fields if column in attributes}
    if "metadata" in type.__struct_fields__:
        metadata_names = [name for name in attributes if name.startswith(_METADATA)]
        metadata = {name.removeprefix(_METADATA): attributes[name] for name in metadata_names}
        if metadata:
            columns["metadata"] = metadata
    return type(**columns)


@cache
def _fields_with_encoded_names(type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    fields = msgspec.structs.fields(type)
    return tuple((field.name, field.encode_name) for field in fields if field.name != "metadata")

"""
Usage events: a JSON object, an array or lines of JSON, and CloudEvents 1.0 in its structured, batched
and binary modes.

Event data is limited like tags: only scalars are stored, and never under a name that may mean content.
Dropped values are counted. A bad event is rejected, and the other events still count.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from gateway.normalise.outcome import MALFORMED, RejectedPayloadItem
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import BodyReadLimits, refuse_too_many_items
from gateway.normalise.payload.large_items import LARGE, SmallValues
from gateway.normalise.reading import tags
from gateway.normalise.reading.content import is_content
from gateway.normalise.reading.times import parse_instant
from spool.identity import RecordIdentity, dedup_key_of_cloud_event, random_identity
from spool.record import Scalar, UsageEvent

# A longer id or source is rejected, because cutting it would change the dedup key.
MAX_ID: Final = 1024
MAX_NAME: Final = 256  # maximum characters of an event's type or subject
# extension attribute that has the id that another Tollhouse assigned
TOLLHOUSE_ID: Final = "tollhouseid"
BINARY: Final = "ce-"
# type of an event that links units of work (gateway.operations.money.work_links)
LINK_EVENT: Final = "tollhouse.work.link"

# All other attributes are extensions and become tags.
_OWN = frozenset(
    {
        "specversion",
        "id",
        "source",
        "type",
        "subject",
        "time",
        "data",
        "data_base64",
        "datacontenttype",
        "dataschema",
        TOLLHOUSE_ID,
    }
)
_INT64 = 2**63
_HEX_ID = re.compile(r"[0-9a-f]{32}")
_object = msgspec.json.Decoder(dict[str, Any])
_anything = msgspec.json.Decoder()


class BadEvent(Exception):
    """Raised for a usage event that cannot be counted. The message names a field, never a value."""


@dataclass(slots=True)
class UsageEventBatch:
    """
    Usage events of one body, with their dedup keys. `received` equals records plus rejects, and `left_out`
    counts dropped values.

    `takes_ids`: ids that another Tollhouse assigned are accepted.
    """

    takes_ids: bool = True
    received: int = 0
    records: list[UsageEvent] = field(default_factory=list)
    identities: list[RecordIdentity] = field(default_factory=list)
    rejects: list[RejectedPayloadItem] = field(default_factory=list)
    left_out: int = 0
    keep_tags: frozenset[str] = frozenset()

    def read_event_and_add(self, attributes: Mapping[str, Any]) -> None:
        index = self.received
        self.received += 1
        try:
            record, identity, left_out = _read_event(
                attributes, takes_id=self.takes_ids, kept_names=self.keep_tags
            )
        except BadEvent as error:
            self.rejects.append(RejectedPayloadItem(index, MALFORMED, str(error)))
            return
        self.records.append(record)
        self.identities.append(identity)
        self.left_out += left_out

    def reject_unreadable_item(self, message: str) -> None:
        self.rejects.append(RejectedPayloadItem(self.received, MALFORMED, message))
        self.received += 1


def is_binary_cloud_event(headers: Mapping[str, str]) -> bool:
    """
    Return whether a request is a CloudEvent in binary mode: its headers have the attributes, and its body has
    only the event's data.
    """
    return any(name.lower() == "ce-specversion" for name in headers)


def read_binary_cloud_event(
    body: bytes,
    headers: Mapping[str, str],
    *,
    accepts_assigned_ids: bool,
    keep_tags: frozenset[str] = frozenset(),
) -> UsageEventBatch:
    events = UsageEventBatch(accepts_assigned_ids, keep_tags=keep_tags)
    headers_by_name = {name.lower(): value for name, value in headers.items()}
    attributes: dict[str, Any] = {
        name.removeprefix(BINARY): unquote(value)
        for name, value in headers_by_name.items()
        if name.startswith(BINARY)
    }
    attributes["datacontenttype"] = headers_by_name.get("content-type", "")
    if body:
        attributes["data"] = _decode_data_if_json(body, attributes["datacontenttype"])
    events.read_event_and_add(attributes)
    return events


def read_events(
    body: bytes,
    read_limits: BodyReadLimits,
    *,
    accepts_assigned_ids: bool,
    keep_tags: frozenset[str] = frozenset(),
) -> Generator[None, None, UsageEventBatch]:
    """
    Read the usage events of a body. Yields so that the event loop can run. Raises BadPayload if the body is
    not JSON.
    """
    events = UsageEventBatch(accepts_assigned_ids, keep_tags=keep_tags)
    yield from refuse_too_many_items(body, partial(payload.items_of_body, body), read_limits)
    for item in payload.items_of_body(body):
        if not len(item):
            yield
            continue
        read_limits.count_items(1, len(item))
        if read_limits.count_work_and_check_turn(len(item)):
            yield
        try:
            attributes = _decode_usage_event(item)
        except payload.UNREADABLE as error:
            events.reject_unreadable_item(payload.describe_decoding_error(error))
            continue
        events.read_event_and_add(attributes)
    return events


def _decode_usage_event(item: payload.Raw) -> dict[str, Any]:
    if len(item) < LARGE:
        return payload.decode_or_clean(item, _object)
    attributes = SmallValues().read_small_values(item, 2)
    if not isinstance(attributes, dict):
        raise msgspec.ValidationError("Expected `object`")
    return attributes


def _read_event(
    attributes: Mapping[str, Any], *, takes_id: bool, kept_names: frozenset[str]
) -> tuple[UsageEvent, RecordIdentity, int]:
    is_cloud_event = "specversion" in attributes
    if is_cloud_event and attributes["specversion"] != "1.0":
        raise BadEvent("specversion must be 1.0")
    source = _read_text_attribute(attributes, "source", MAX_ID, required=is_cloud_event)
    event_id = _read_text_attribute(attributes, "id", MAX_ID, required=is_cloud_event)
    event_type = _read_text_attribute(attributes, "type", MAX_NAME, required=True)
    subject = attributes.get("subject")
    fits = isinstance(subject, str) and 0 < len(subject) <= MAX_NAME
    bounded = _BoundedEventValues(kept_names)
    bounded.add_data(_event_data(attributes))
    for name, value in attributes.items():
        if name not in _OWN and value is not None:
            bounded.add_tag_if_brief(name, value)
    record = UsageEvent(
        id=b"",
        source=source or "unknown",
        event_id=event_id,
        event_type=event_type or "",
        subject=subject if fits else None,
        start_time=parse_instant(attributes.get("time")),
        data=bounded.data,
        tags=bounded.tags,
    )
    identity = _event_dedup_key(source, event_id, attributes.get(TOLLHOUSE_ID) if takes_id else None)
    record.id = identity.id
    return record, identity, bounded.left_out + (subject is not None and not fits)


def _event_dedup_key(source: str | None, event_id: str | None, stated_id: Any) -> RecordIdentity:
    if isinstance(stated_id, str) and _HEX_ID.fullmatch(stated_id):
        return RecordIdentity(bytes.fromhex(stated_id))
    if source and event_id:
        return RecordIdentity(dedup_key_of_cloud_event(source, event_id))
    return random_identity()


def _read_text_attribute(
    attributes: Mapping[str, Any], name: str, max_length: int, *, required: bool
) -> str | None:
    value = attributes.get(name)
    if isinstance(value, int) and not isinstance(value, bool) and name == "id":
        value = str(value)
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value.strip():
        raise BadEvent(f"{name} is required and must be non-empty text")
    if len(value) > max_length:
        raise BadEvent(f"{name} has more than {max_length} characters")
    return value


def _event_data(attributes: Mapping[str, Any]) -> Any:
    packed = attributes.get("data_base64")
    if packed is None:
        data = attributes.get("data")
        # some clients send JSON data as a text
        return (
            _decode_data_if_json(data.encode(), "json") if isinstance(data, str) and data[:1] == "{" else data
        )
    if not isinstance(packed, str):
        raise BadEvent("data_base64 must be text")
    try:
        return _decode_data_if_json(
            b64decode(packed, validate=True), str(attributes.get("datacontenttype", ""))
        )
    except (binascii.Error, ValueError) as error:
        raise BadEvent("data_base64 is not valid base64") from error


def _decode_data_if_json(body: bytes, content_type: str) -> Any:
    """Return decoded data if they are JSON. Otherwise return the body's bytes, which are never stored."""
    media = content_type.partition(";")[0].strip().lower()
    if media and not media.endswith("json"):
        return body
    try:
        return _anything.decode(body) if len(body) < LARGE else SmallValues().read_small_values(body, 1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body


class _BoundedEventValues:
    def __init__(self, kept_names: frozenset[str]) -> None:
        self._keep = kept_names
        self.data: dict[str, Scalar] = {}
        self.tags: dict[str, str] = {}
        self.left_out = 0
        self._texts: dict[str, str] = {}

    def add_tag_if_brief(self, name: str, value: Any) -> None:
        self.left_out += not tags.put_tag_if_brief(self.tags, name, value, self._keep)

    def add_data(self, data: Any) -> None:
        """
        Add event data. Members of nested objects get dotted names, and a single number the name `value`.
        """
        if data is None:
            return
        if not isinstance(data, dict):
            is_number = isinstance(data, int | float) and not isinstance(data, bool)
            if is_number:
                self._put_value_if_brief("value", data)
            else:
                self.left_out += 1
            return
        for name, value in data.items():
            if isinstance(value, dict) and not is_content(name):
                for inner, inner_value in value.items():
                    self._put_value_if_brief(f"{name}.{inner}", inner_value)
            else:
                self._put_value_if_brief(name, value)

    def _put_value_if_brief(self, name: str, value: Any) -> None:
        if value is None:
            return
        if isinstance(value, float) and not isfinite(value):
            self.left_out += 1
        elif tags.put_tag_if_brief(self._texts, name, value, self._keep):
            is_small = not isinstance(value, int) or -_INT64 <= value < _INT64
            self.data[name] = value if is_small else str(value)
        else:
            self.left_out += 1

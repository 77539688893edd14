"""The tags of an item: named ones, what the sender's own people attached, and extra attributes that are to be kept."""

from __future__ import annotations

from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.decoding.model import Attributes
from gateway.normalise.otlp.shapes import Shape, shape_of
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading import vocabulary as words
from gateway.normalise.reading.values import ABSENT

NONE_KEPT: frozenset[str] = frozenset()


def resource_tags(attributes: Attributes, keep: frozenset[str] = NONE_KEPT) -> dict[str, str]:
    """Tags that a resource gives to everything it sends; the item's own win over them."""
    tags: dict[str, str] = {}
    service = words.text(attributes.get("service.name"))
    if service is not None and not service.startswith("unknown_service"):
        tag_rules.put(tags, "service", service)
    add_tags(tags, attributes, shape_of(attributes), keep)
    return tags


def add_tags(tags: dict[str, str], attributes: Attributes, shape: Shape, keep: frozenset[str] = NONE_KEPT) -> int:
    """Put an item's tags over those that are there; the number of those that a bound left out."""
    left_out = 0
    for tag, names in shape.named_tags:
        if (value := semconv.first_text(attributes, names)) is not None:
            left_out += not tag_rules.put(tags, tag, value)
    for name, key in shape.metadata:
        if name in keep:
            continue
        if key is not None:
            value = attributes[name]
            left_out += _add_one(tags, key, words.unquoted(value) if name.startswith("langfuse.") else value)
        elif name == semconv.METADATA_JSON:
            left_out += sum(_add_one(tags, key, part) for key, part in words.json_object(attributes[name]).items())
        elif (joined := _joined(attributes[name])) is not None:
            left_out += not tag_rules.put(tags, "tags", joined)
    if keep:
        for name in keep.intersection(attributes):
            left_out += not tag_rules.put(tags, name, attributes[name])
    return left_out


def _add_one(tags: dict[str, str], key: str, value: Any) -> int:
    if type(value) is not str:
        value = words.text(value)  # None for what is nested
    if value is None or value in ABSENT or key in semconv.IDENTITY_KEYS or semconv.is_email(key):
        return 0
    if len(key) > tag_rules.MAX_NAME or tag_rules.names_secret(key) or tag_rules.is_secret(value):
        return 1
    return not tag_rules.put(tags, key, value)


def _joined(value: Any) -> str | None:
    """A list of words as one text, joined by commas."""
    if isinstance(value, str) and value.startswith("["):
        value = words.unquoted(value)
    if isinstance(value, list):
        return ",".join([text for part in value if (text := words.text(part)) is not None]) or None
    return words.text(value)

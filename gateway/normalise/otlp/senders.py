"""Who called, and tags: by the item itself, then by its resource."""

from __future__ import annotations

from typing import Any

from gateway.normalise.options import Options
from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.callers import NO_CALLER, caller_of, caller_of_resource, end_user_of, nearest
from gateway.normalise.otlp.model import Attributes, Resource
from gateway.normalise.otlp.names import QUOTED_METADATA
from gateway.normalise.otlp.product import AttributeShape, Product
from gateway.normalise.otlp.shapes import shape_of
from gateway.normalise.outcome import Outcome
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading import values
from gateway.normalise.reading.values import ABSENT
from spool.processing import MODES
from spool.record import AiRecord


class Senders:
    """Signs the records of one payload; what a resource says is read once for neighbours."""

    def __init__(self, outcome: Outcome, options: Options) -> None:
        self._outcome = outcome
        self._keep = options.keep_attributes
        self._keep_tags = options.keep_tags
        # `service.instance.id` is a process and never a device.
        self._device_names = semconv.RESOURCE_DEVICE_OR_HOST if options.host_id else semconv.RESOURCE_DEVICE
        self._resource: Resource | None = None
        # Of the resource that was entered last:
        self.caller = NO_CALLER
        self.device: str | None = None
        self.tags: dict[str, str] = {}

    def enter(self, resource: Resource) -> None:
        """Read what a resource says of everything it sends."""
        if resource is self._resource:
            return
        self._resource = resource
        attributes = resource.attributes
        shape = shape_of(attributes)
        self.caller = caller_of_resource(attributes, shape)
        self.device = semconv.first_text(attributes, self._device_names) if shape.named_tags else None
        self.tags = {}
        service = values.text(attributes.get("service.name"))
        if service is not None and not service.startswith("unknown_service"):
            tag_rules.put(self.tags, "service", service)
        if shape.named_tags or shape.metadata or self._keep:
            self._outcome.left_out += _add_tags(self.tags, attributes, shape, self._keep, self._keep_tags)

    def sign(self, record: AiRecord, product: Product, resource: Resource, attributes: Attributes) -> None:
        """Fill user, team, session, api_key and tags of a log's or a metric's record."""
        self.enter(resource)
        shape = shape_of(attributes)
        caller = nearest(caller_of(attributes, shape, product), self.caller)
        record.user, record.team, record.session = caller.user, caller.team, caller.session
        if record.user is None and product.user is not None:
            record.user = semconv.first_text(resource.attributes, product.user)
        record.api_key = caller.api_key
        record.tags = self.tags_of(product, record.user, attributes, shape)

    def tags_of(
        self, product: Product, user: str | None, attributes: Attributes, shape: AttributeShape
    ) -> dict[str, str]:
        """The tags of an item: its resource's, its product's, those of every product; later ones win."""
        tags = self.tags.copy()
        if product.tags or product.installation is not None:
            of_resource = {} if self._resource is None else self._resource.attributes
            self._outcome.left_out += _add_product_tags(tags, product, user, attributes, of_resource)
        if shape.named_tags or shape.metadata or self._keep:
            self._outcome.left_out += _add_tags(tags, attributes, shape, self._keep, self._keep_tags)
        if shape.names_end_user and (end_user := end_user_of(attributes, user)) is not None:
            self._outcome.left_out += not tag_rules.put(tags, "end_user", end_user)
        return tags


def _add_product_tags(
    tags: dict[str, str],
    product: Product,
    user: str | None,
    attributes: Attributes,
    of_resource: Attributes,
) -> int:
    left_out = 0
    for tag, names in product.tags.items():
        value = semconv.first_text(attributes, names)
        if value is None:
            value = semconv.first_text(of_resource, names)
        if value is not None and value not in product.no_tags:
            left_out += not tag_rules.put(tags, tag, value)
    if product.installation is not None:
        installation = values.text(attributes.get(product.installation))
        if installation is not None and installation != user:
            left_out += not tag_rules.put(tags, "device", installation)
    return left_out


def _add_tags(
    tags: dict[str, str],
    attributes: Attributes,
    shape: AttributeShape,
    keep: frozenset[str],
    keep_tags: frozenset[str],
) -> int:
    """Put an item's tags over those that are there; returns the number of those that a bound left out."""
    left_out = 0
    for tag, names in shape.named_tags:
        value = semconv.first_text(attributes, names)
        if value is not None and (tag != semconv.SERVICE_TIER or value in MODES):
            left_out += not tag_rules.put(tags, tag, value)
    for name, key in shape.metadata:
        if name in keep:
            continue
        if key is not None:
            value = attributes[name]
            if name.startswith(QUOTED_METADATA):
                value = values.unquoted(value)
            left_out += _add_one(tags, key, value, keep_tags)
        elif name == semconv.METADATA_JSON:
            for member, part in values.mapping(attributes[name]).items():
                left_out += _add_one(tags, member, part, keep_tags)
        else:
            left_out += _add_list(tags, attributes[name])
    for name in keep.intersection(attributes) if keep else ():
        left_out += not tag_rules.put(tags, name, attributes[name])
    return left_out


def _add_one(tags: dict[str, str], key: str, value: Any, keep: frozenset[str]) -> int:
    if type(value) is not str:
        value = tag_rules.text_of(value)  # None for what is nested
    if value is None or value in ABSENT or key in semconv.IDENTITY_KEYS or semconv.is_email(key):
        return 0
    if len(key) > tag_rules.MAX_NAME or tag_rules.names_secret(key) or tag_rules.is_secret(value):
        return 1
    return not tag_rules.put_free(tags, key, value, keep)


def _add_list(tags: dict[str, str], value: Any) -> int:
    """
    Put a list of words as one tag, joined by commas; returns how many were no words, or 1 if it was over a bound.
    """
    if isinstance(value, str) and value.startswith("["):
        value = values.unquoted(value)
    if not isinstance(value, list):
        value = (values.text(value) or "").split(",")
    texts = [text for part in value if (text := tag_rules.text_of(part)) is not None and text not in ABSENT]
    words = [text for text in texts if tag_rules.is_brief(text)]
    left_out = len(texts) - len(words)
    return left_out + bool(words and not tag_rules.put(tags, "tags", ",".join(words)))

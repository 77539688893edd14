"""
The sending product, the caller and the tags of an item. Item attributes take precedence over resource attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.normalise.otlp import semconv
from gateway.normalise.otlp.call import NO_CALLER, Caller, fill_caller, merge_callers
from gateway.normalise.otlp.conventions import OTEL
from gateway.normalise.otlp.model import Attributes, Resource, Scope
from gateway.normalise.otlp.product import AttributeNamesByField, Names, TelemetryProduct
from gateway.normalise.otlp.products import PRODUCTS
from gateway.normalise.otlp.shapes import (
    QUOTED_METADATA,
    attributes_with_tags,
    find_or_build_shape,
    shape_with_product_names,
)
from gateway.normalise.outcome import ReadOptions, ReadOutcome, join_program_and_version
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading import values
from gateway.normalise.reading.repositories import repository_in_attributes
from gateway.normalise.reading.values import ABSENT
from spool.caches import cache_by_text
from spool.identity import OF_SERVICE
from spool.people import is_address
from spool.processing import MODES
from spool.record import AiRecord, Inference

_SDKS = {sdk: product for product in PRODUCTS for sdk in product.sdks}
_SCOPES = {scope: product for product in PRODUCTS for scope in product.scopes}
_SCOPE_BEGINNINGS = tuple(
    [(beginning, product) for product in PRODUCTS for beginning in product.scope_beginnings]
)
_SERVICES = {service: product for product in PRODUCTS for service in product.services}
_LANGUAGES = {language: product for product in PRODUCTS for language in product.languages}
# beginning of the service name that SDKs give to a program without a name
UNKNOWN_SERVICE = "unknown_service"
# Resource attributes that identify a process. The id of an instance is unique within its service.
_INSTANCE = ("service.namespace", "service.name", "service.instance.id")
_PROCESS = (
    *_INSTANCE[:2],
    "host.id",
    "host.name",
    "container.id",
    "k8s.pod.uid",
    "k8s.namespace.name",
    "k8s.pod.name",
    "process.pid",
)
_NO_NAMES: tuple[Names, ...] = ((), (), ())
_LONGEST = 64  # maximum characters of a scope or service name; no name above is longer


def product_of_sender(resource: Resource, scope: Scope) -> TelemetryProduct:
    """
    Return the product by SDK, scope, language or service name. Return OTEL (unknown sender) if none of these
    is known.
    """
    sdk = resource.attributes.get("telemetry.sdk.name")
    if isinstance(sdk, str) and sdk in _SDKS:
        return _SDKS[sdk]
    if (product := _product_by_scope_name(scope.name[:_LONGEST])) is not None:
        return product
    service = resource.attributes.get("service.name")
    if not isinstance(service, str):
        return OTEL
    if (
        scope.name == service
        and (language := resource.attributes.get("telemetry.sdk.language")) in _LANGUAGES
    ):
        return _LANGUAGES[language]
    return _SERVICES.get(service, OTEL)


def version_of_sender(resource: Resource, scope: Scope) -> str:
    """
    Return the version of a sender, after the name of the program whose version it is. Two services behind one collector
    are two programs, and so are two instrumentations in one service. A product's service is named by its source.
    """
    stated = semconv.first_text(resource.attributes, semconv.SENDER_VERSION)
    if stated is None:
        return join_program_and_version(scope.name, scope.version)
    service = semconv.first_text(resource.attributes, ("service.name",)) or ""
    is_program = not is_known_product_service_name(service) and not service.startswith(UNKNOWN_SERVICE)
    return join_program_and_version(service if is_program else "", stated)


def process_identity(resource: Resource) -> str:
    """
    Return a text that identifies the process of a resource, as precisely as its attributes allow. Many SDKs
    state only the service.
    """
    is_instance = "service.instance.id" in resource.attributes
    beginning, names = ("process ", _INSTANCE) if is_instance else (OF_SERVICE, _PROCESS)
    return beginning + "\0".join([str(resource.attributes.get(name, "")) for name in names])


def is_known_product_service_name(service: str) -> bool:
    return service in _SERVICES


@cache_by_text(1024)
def _product_by_scope_name(name: str) -> TelemetryProduct | None:
    if (product := _SCOPES.get(name)) is not None:
        return product
    return next((product for beginning, product in _SCOPE_BEGINNINGS if name.startswith(beginning)), None)


class Senders:
    """
    Reads the caller, the tags and the device of the items of one payload. A resource that consecutive items
    share is read once.
    """

    def __init__(self, outcome: ReadOutcome, options: ReadOptions) -> None:
        self._outcome = outcome
        self._keep = options.keep_attributes
        self._keep_tags = options.keep_tags
        # Resource attributes that name a device. `service.instance.id` is not among them, because it
        # identifies a process.
        self._device_names = semconv.RESOURCE_DEVICE_OR_HOST if options.host_id else semconv.RESOURCE_DEVICE
        self._resource: Resource | None = None
        # The following facts describe the resource that was read last.
        self.caller = NO_CALLER
        self.device: str | None = None
        self.tags: dict[str, str] = {}
        self._versioned: tuple[Resource | None, Scope | None] = (None, None)
        self._version = ""

    def sender_version(self, resource: Resource | None, scope: Scope | None) -> str:
        """Return the version of a sender. Consecutive items of one sender are read once."""
        read_resource, read_scope = self._versioned
        if resource is not read_resource or scope is not read_scope:
            self._versioned = (resource, scope)
            self._version = "" if resource is None or scope is None else version_of_sender(resource, scope)
        return self._version

    def set_current_resource(self, resource: Resource) -> None:
        if resource is self._resource:
            return
        self._resource = resource
        attributes = resource.attributes
        shape = find_or_build_shape(attributes)
        self.caller = _caller_of_resource(attributes, shape)
        self.device = semconv.first_text(attributes, self._device_names) if shape.named_tags else None
        self.tags = {}
        service = values.text_or_none(attributes.get("service.name"))
        if service is not None and not service.startswith(UNKNOWN_SERVICE):
            tag_rules.put_tag_if_allowed(self.tags, "service", service)
        if shape.named_tags or shape.has_metadata or self._keep:
            self._outcome.left_out += _add_tags_and_count_left_out(
                self.tags, attributes, shape, self._keep, self._keep_tags
            )

    def fill_caller_and_tags(
        self, record: AiRecord, product: TelemetryProduct, resource: Resource, attributes: Attributes
    ) -> None:
        """Fill user, team, session, api_key and tags of a record from a log or a metric."""
        self.set_current_resource(resource)
        shape = find_or_build_shape(attributes)
        own_names = product.own_names
        if own_names:
            shape = shape_with_product_names(shape, product, attributes)
        caller = merge_callers(stated_caller(attributes, shape), self.caller)
        if caller.user is None and "user" in own_names:
            caller = merge_callers(Caller(semconv.first_text(resource.attributes, own_names["user"])), caller)
        if shape.run and isinstance(record, Inference):
            record.run, record.parent_run = run_and_parent_run(attributes, shape)
        record.tags = self.tags_of_item(product, caller.user, attributes, shape)
        self._outcome.left_out += not fill_caller(record, caller)

    def tags_of_item(
        self,
        product: TelemetryProduct,
        user: str | None,
        attributes: Attributes,
        attribute_names: AttributeNamesByField,
    ) -> dict[str, str]:
        """
        Return an item's tags. Tags from general attributes, which any product may use, override the product's
        tags, and both override the resource's tags.
        """
        tags = self.tags.copy()
        if product.tags or product.more_tags is not None:
            of_resource = {} if self._resource is None else self._resource.attributes
            self._outcome.left_out += _add_product_tags_and_count_left_out(
                tags, product, user, attributes, of_resource
            )
        if attribute_names.named_tags or attribute_names.has_metadata or self._keep:
            self._outcome.left_out += _add_tags_and_count_left_out(
                tags, attributes, attribute_names, self._keep, self._keep_tags
            )
        if attribute_names.names_end_user and (end_user := _stated_end_user(attributes, user)) is not None:
            self._outcome.left_out += not tag_rules.put_tag_if_allowed(tags, "end_user", end_user)
        return tags


def _add_product_tags_and_count_left_out(
    tags: dict[str, str],
    product: TelemetryProduct,
    user: str | None,
    attributes: Attributes,
    resource_attributes: Attributes,
) -> int:
    left_out = 0
    for tag, names in product.tags.items():
        value = semconv.first_text(attributes, names)
        if value is None:
            value = semconv.first_text(resource_attributes, names)
        if value is not None:
            left_out += not tag_rules.put_tag_if_allowed(tags, tag, value)
    if product.more_tags is not None:
        for tag, value in product.more_tags(attributes, user).items():
            left_out += not tag_rules.put_tag_if_allowed(tags, tag, value)
    return left_out


def _add_tags_and_count_left_out(
    tags: dict[str, str],
    attributes: Attributes,
    attribute_names: AttributeNamesByField,
    names_kept_apart_from_tags: frozenset[str],
    allowed_tag_names: frozenset[str],
) -> int:
    """
    Add an item's tags, which override existing ones. Return the number of tags left out because of a limit.
    """
    left_out = 0
    for tag, names in attribute_names.named_tags:
        value = text_of_named_tag(attributes, tag, names)
        if value is not None and (tag != semconv.SERVICE_TIER or value in MODES):
            left_out += not tag_rules.put_tag_if_allowed(tags, tag, value)
    for name, key in attributes_with_tags(attributes) if attribute_names.has_metadata else ():
        if name in names_kept_apart_from_tags:
            continue
        if key is not None:
            value = attributes[name]
            if name.startswith(QUOTED_METADATA):
                value = values.decode_if_json_text(value)
            left_out += _add_metadata_value(tags, key, value, allowed_tag_names)
        elif name == semconv.METADATA_JSON:
            for member, part in values.dict_or_empty(attributes[name]).items():
                left_out += _add_metadata_value(tags, member, part, allowed_tag_names)
        else:
            left_out += _add_list_as_tag(tags, attributes[name])
    for name in [name for name in names_kept_apart_from_tags if name in attributes]:
        left_out += not tag_rules.put_tag_if_allowed(tags, name, attributes[name])
    return left_out


def text_of_named_tag(attributes: Attributes, tag: str, names: Names) -> str | None:
    return (
        repository_in_attributes(attributes) if tag == "repository" else semconv.first_text(attributes, names)
    )


def run_and_parent_run(
    attributes: Attributes, attribute_names: AttributeNamesByField
) -> tuple[str | None, str | None]:
    return semconv.first_text(attributes, attribute_names.run), semconv.first_text(
        attributes, attribute_names.parent_run
    )


def work_tags_of_span(attributes: Attributes, attribute_names: AttributeNamesByField) -> Mapping[str, str]:
    """
    Return the work tags of a span, such as its repository. Calls below a span that is not a call inherit
    them.
    """
    stated = {
        tag: text_of_named_tag(attributes, tag, names)
        for tag, names in attribute_names.named_tags
        if tag in semconv.WORK_TAGS
    }
    return {tag: value for tag, value in stated.items() if value is not None}


def _add_metadata_value(tags: dict[str, str], key: str, value: Any, kept_names: frozenset[str]) -> int:
    if type(value) is not str:
        value = tag_rules.tag_text(value)  # tag_text returns None for a nested value
    if value is None or value in ABSENT or key in semconv.IDENTITY_KEYS or semconv.is_email_attribute(key):
        return 0
    if len(key) > tag_rules.MAX_NAME or tag_rules.is_name_of_secret(key) or tag_rules.is_credential(value):
        return 1
    return not tag_rules.put_tag_if_brief(tags, key, value, kept_names)


def _add_list_as_tag(tags: dict[str, str], value: Any) -> int:
    if isinstance(value, str) and value.startswith("["):
        value = values.decode_if_json_text(value)
    if not isinstance(value, list):
        value = (values.text_or_none(value) or "").split(",")
    texts = [text for part in value if (text := tag_rules.tag_text(part)) is not None and text not in ABSENT]
    brief_texts = [text for text in texts if tag_rules.is_brief_text(text)]
    left_out = len(texts) - len(brief_texts)
    return left_out + bool(
        brief_texts and not tag_rules.put_tag_if_allowed(tags, "tags", ",".join(brief_texts))
    )


def stated_caller(attributes: Attributes, attribute_names: AttributeNamesByField) -> Caller:
    fields = (attribute_names.user, attribute_names.team, attribute_names.session)
    if fields == _NO_NAMES and not attribute_names.api_key and not attribute_names.email:
        return NO_CALLER
    user, team, session = semconv.first_text_of_each(attributes, fields)
    api_key = (
        _key_name_unless_secret(attributes, attribute_names.api_key) if attribute_names.api_key else None
    )
    if not attribute_names.email:
        return Caller(user, team, session, api_key)
    user, email = _user_and_email(user, attributes, attribute_names.email)
    return Caller(user, team, session, api_key, email)


def _user_and_email(user: str | None, attributes: Attributes, names: Names) -> tuple[str | None, str | None]:
    names_principal = user is not None and semconv.PRINCIPAL_EMAIL in names
    if names_principal and user != values.text_or_none(attributes.get(semconv.PRINCIPAL)):
        names = tuple([name for name in names if name != semconv.PRINCIPAL_EMAIL])
    stated = semconv.first_text(attributes, names)
    email = stated if stated is not None and is_address(stated) and stated != user else None
    return (email, None) if user is None else (user, email)


def _caller_of_resource(attributes: Attributes, attribute_names: AttributeNamesByField) -> Caller:
    if not (attribute_names.user or attribute_names.team or attribute_names.session or attribute_names.email):
        return NO_CALLER
    named = semconv.first_text(attributes, semconv.RESOURCE_USER)
    user, email = _user_and_email(named, attributes, semconv.RESOURCE_EMAIL)
    team = semconv.first_text(attributes, semconv.RESOURCE_TEAM)
    session = semconv.first_text(attributes, semconv.RESOURCE_SESSION)
    caller = Caller(user, team, session, email=email)
    return NO_CALLER if caller == NO_CALLER else caller


def _stated_end_user(attributes: Attributes, user: str | None) -> str | None:
    stated = values.text_or_none(attributes.get(semconv.END_USER))
    if stated is None and semconv.PRINCIPAL in attributes:
        stated = values.text_or_none(attributes.get("llm.user"))
    return stated if stated is not None and stated != user else None


def _key_name_unless_secret(attributes: Attributes, names: Names) -> str | None:
    alias = semconv.first_text(attributes, names)
    return None if tag_rules.is_credential(alias) else alias

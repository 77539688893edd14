"""The description and health in an OpAMP message, without I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from gateway.devices.fleet.heartbeat_facts import COMPONENTS
from gateway.normalise.reading.content import may_be_name_of_content
from spool.errors import Invalid
from spool.registry.keys import MAX_LABELS, check_labels

MAX_TEXT = 256
ATTRIBUTES = 128  # attributes read of each of the two lists; reading more would block other requests
HOST_ID, SERVICE = "host.id", "service.name"
# Attributes that become fields of a device, and the id that changes with each start of a collector.
_NO_LABELS = frozenset({"service.version", "service.instance.id", "host.name", "host.arch", "os.type"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OpampAgentDescription:
    """The attributes with which an OpAMP agent describes itself. An empty text is unknown."""

    service: str = ""
    version: str = ""
    host_id: str = ""
    hostname: str = ""
    platform: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def host_id_or_name(self) -> str:
        """Return the host's id, or its name, because the collector's own extension sends only the name."""
        return self.host_id or self.hostname

    @property
    def agent_version(self) -> str:
        return f"{self.service} {self.version}".strip()[:MAX_TEXT]


def read_agent_description(described: Any) -> OpampAgentDescription:
    """
    Return the facts of an AgentDescription. An attribute that is no valid label is left out, because a client
    cannot choose its attributes.
    """
    texts: dict[str, str] = {}
    for attributes in (described.non_identifying_attributes, described.identifying_attributes):
        for attribute in islice(attributes, ATTRIBUTES):
            texts[attribute.key] = _text_of_scalar(attribute.value)
    platform = "/".join(filter(None, (texts.get("os.type"), texts.get("host.arch"))))
    return OpampAgentDescription(
        service=texts.get(SERVICE, ""),
        version=texts.get("service.version", ""),
        host_id=texts.get(HOST_ID, ""),
        hostname=texts.get("host.name", ""),
        platform=platform[:MAX_TEXT],
        labels=dict(islice(_valid_labels(texts), MAX_LABELS)),
    )


def _text_of_scalar(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind is None:
        return ""
    scalar = getattr(value, kind)
    text = str(scalar).lower() if kind == "bool_value" else str(scalar)
    return _single_word_or_empty(text)


def _single_word_or_empty(text: str) -> str:
    """Return a text of one word, and "" for any other, because several words may be content."""
    word = "".join(filter(str.isprintable, text))[:MAX_TEXT]
    return word if len(word.split()) == 1 else ""


def _valid_labels(texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    # The two attributes that recognize a restarted collector come first, so that the limit does not drop them.
    for name in sorted(texts, key=lambda name: (name not in (HOST_ID, SERVICE), name)):
        if name in _NO_LABELS or may_be_name_of_content(name):
            continue
        try:
            check_labels({name: texts[name]})
        except Invalid:
            continue
        yield name, texts[name]


def read_health(health: Any) -> dict[str, object]:
    """
    Return the health that may be stored. An error is noted without its text, which may quote a request or an address.
    """
    components = dict(islice(_health_by_component(health, ""), COMPONENTS))
    return {**_health_fields(health), "components": components} if components else _health_fields(health)


def _health_by_component(health: Any, prefix: str) -> Iterator[tuple[str, dict[str, object]]]:
    entries = [
        (word, entry.value)
        for entry in health.component_health_map
        if (word := _single_word_or_empty(entry.key))
    ]
    for word, component in entries:
        yield f"{prefix}{word}", _health_fields(component)
    if not prefix:
        for word, component in entries:
            yield from _health_by_component(component, f"{word}/")


def _health_fields(health: Any) -> dict[str, object]:
    state: dict[str, object] = {"healthy": health.healthy}
    if status := _single_word_or_empty(health.status):
        state["status"] = status
    if health.last_error:
        state["error"] = True
    return state

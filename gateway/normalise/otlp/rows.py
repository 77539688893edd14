"""
Items that are rows of a gateway's own table or log, each column an attribute under its own name: read by the format.

Portkey pushes its analytics as spans: their status is always good, and their span id may be one that the caller gave
to several attempts, so the row's own id tells calls apart. Envoy sends its access log as log records.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import msgspec

from gateway.normalise.formats import envoy_ai_gateway, portkey
from gateway.normalise.formats.call import Format
from gateway.normalise.formats.driver import calls_of, explained
from gateway.normalise.otlp.decoding.model import Attributes
from gateway.normalise.outcome import Outcome
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading.values import BadValue

PORTKEY, ENVOY = portkey.FORMAT, envoy_ai_gateway.FORMAT
ENVOYS_COLUMNS = ("x-envoy-origin-path", "gen_ai.request.model_override")
_METADATA = "metadata."


def take(
    format: Format, place: int, attributes: Attributes, outcome: Outcome, *, tags: Mapping[str, str], device: str | None
) -> bool:
    """False for an item that is no row of a call; `tags` and `device` are those of its resource."""
    found = calls_of(format, _event(format.event, attributes))
    for call in found:
        if isinstance(call, BadValue):
            outcome.reject(place, call.reason, f"item {place}: {call.message}")
            continue
        record, identity, left_out = call
        outcome.left_out += left_out
        for name, value in tags.items():
            outcome.left_out += name not in record.tags and not tag_rules.put(record.tags, name, value)
        why = None if outcome.why is None else explained(format.origins, record)
        outcome.add(record, identity, why, device=device)
    return bool(found)


def _event(type: type[msgspec.Struct], attributes: Attributes) -> msgspec.Struct:
    columns = {field: attributes[column] for field, column in _columns(type) if column in attributes}
    metadata = {name.removeprefix(_METADATA): attributes[name] for name in attributes if name.startswith(_METADATA)}
    return type(**columns, **({"metadata": metadata} if metadata and "metadata" in type.__struct_fields__ else {}))


@cache
def _columns(type: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    fields = msgspec.structs.fields(type)
    return tuple((field.name, field.encode_name) for field in fields if field.name != "metadata")

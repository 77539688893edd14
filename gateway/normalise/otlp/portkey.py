"""
Portkey's push of its analytics: each span is a row, each column an attribute under its own name.

It is read as the row that it is, by the format: the status of the span is always good, and its span id may be one that
the caller gave to several attempts, so the row's own id tells calls apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from gateway.normalise import tags as tag_rules
from gateway.normalise.formats import portkey as rows
from gateway.normalise.formats.driver import explained
from gateway.normalise.formats.values import BadValue
from gateway.normalise.otlp.model import Span
from gateway.normalise.outcome import Outcome

_METADATA = "metadata."
_COLUMNS = tuple((field.name, field.encode_name) for field in msgspec.structs.fields(rows.Event))


def take(place: int, span: Span, outcome: Outcome, *, tags: Mapping[str, str], device: str | None) -> bool:
    """False for a span that is no row of a call; `tags` and `device` are those of its resource."""
    attributes = span.attributes
    event = rows.Event(**{field: attributes[column] for field, column in _COLUMNS if column in attributes})
    event.metadata = {
        name.removeprefix(_METADATA): value for name, value in attributes.items() if name.startswith(_METADATA)
    }
    try:
        found = list(rows.calls(event))
    except BadValue as error:
        outcome.reject(place, error.reason, f"span {place}: {error.message}")
        return True
    for record, identity, left_out in found:
        outcome.left_out += left_out
        for name, value in tags.items():
            outcome.left_out += name not in record.tags and not tag_rules.put(record.tags, name, value)
        why = None if outcome.why is None else explained(rows.FORMAT.origins, record)
        outcome.add(record, identity, why, device=device)
    return bool(found)

"""
Cursor's export from its servers: one event per request, further events about the same request, and counters.

Events may arrive hours after the counters. The counters name no call, so they are always treated as repeats
of the events.
"""

from __future__ import annotations

from gateway.normalise.otlp.metric_rules import CACHE_READ, CACHE_WRITE, INPUT_UNCACHED
from gateway.normalise.otlp.model import Attributes, LogRecord
from gateway.normalise.otlp.product import (
    MONEY_UNIT,
    LogDialect,
    LogEvent,
    MetricFamily,
    TelemetryProduct,
    TokenNames,
    accept_everything,
)
from spool.record import Inference

SOURCE = "cursor"
_PREFIX = "cursor."
_REQUEST, _ERROR, _CORRECTION = "cursor.api.request", "cursor.api.error", "cursor.api.correction"
_MODEL = ("cursor.model.name",)
_BODIES = {"api_request": _REQUEST, "api_error": _ERROR}
_CORRECTED = "api_correction_"  # start of the body of a correction event, before the kind of the correction


def _event_name_with_prefix(record: LogRecord, name: str, source: str) -> str:
    """Return the full name of an event. Older exports state it only in the body."""
    if source != SOURCE:
        return name
    return _CORRECTION if name.startswith(_CORRECTED) else _BODIES.get(name, name)


def _set_cost_if_not_billable(attributes: Attributes, call: Inference) -> None:
    if attributes.get("cursor.api.billable") in (False, "false"):
        call.cost = "0"


def _set_cost_of_unbilled_call_to_zero(attributes: Attributes, call: Inference) -> None:
    """Set the cost to 0, because this event reports that Cursor did not bill the call after all."""
    call.cost = "0"


_LOGGED = LogDialect(
    model=_MODEL,
    tokens=TokenNames(
        input=(f"{_REQUEST}.input_tokens",),
        output=(f"{_REQUEST}.output_tokens",),
        cache_read=(f"{_REQUEST}.cache_read_tokens",),
        cache_write=(f"{_REQUEST}.cache_creation_tokens",),
    ),
    without_cache=accept_everything,
    own_id=("cursor.event.id",),
    call_id=("cursor.usage_event.id",),
)

PRODUCT = TelemetryProduct(
    source=SOURCE,
    scopes=("cursor.telemetry",),
    services=("cursor",),
    own_names={"user": ("cursor.user.id",), "session": ("cursor.conversation.id",)},
    tags={"surface": ("cursor.surface",), "entrypoint": ("cursor.entrypoint",)},
    names_spans=False,
    events={
        _REQUEST: LogEvent(dialect=_LOGGED, refine=_set_cost_if_not_billable),
        _ERROR: LogEvent(dialect=_LOGGED, failed=True, adds_to_call=True, refine=_set_cost_if_not_billable),
        _CORRECTION: LogEvent(
            dialect=_LOGGED, adds_to_call=True, is_final=True, refine=_set_cost_of_unbilled_call_to_zero
        ),
    },
    event_beginnings=(_PREFIX,),
    event_name=_event_name_with_prefix,
    metrics={
        "cursor.token.usage": MetricFamily(
            type_keys=("cursor.token.type",),
            types={"input": INPUT_UNCACHED, "cache_creation": CACHE_WRITE, "cache_read": CACHE_READ},
            model=_MODEL,
            repeats_calls=True,
        ),
        "cursor.cost.usage": MetricFamily(unit=MONEY_UNIT, model=_MODEL, repeats_calls=True),
    },
)

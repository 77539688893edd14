"""Unit-cost streams, usage events and unconfirmed deliveries."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.kept.events import EVENTS, TYPES
from gateway.operator import events, streams
from gateway.receivers import unit_cost
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_STREAM_SETTINGS

ROWS = (
    call("GET", "/streams", VIEW_STREAM_SETTINGS, streams.list_streams, "List unit-cost streams",
         lists=unit_cost.STREAMS),
    call("GET", "/events", VIEW_STREAM_SETTINGS, events.list_events, "List the newest usage events",
         lists=EVENTS),
    call("GET", "/event-types", VIEW_STREAM_SETTINGS, events.list_event_types, "List types of usage events",
         lists=TYPES),
    call("GET", "/unknown", VIEW_STREAM_SETTINGS, streams.list_unknown, "List unconfirmed deliveries",
         lists=streams.UNKNOWN),
    call("POST", "/unknown/{id}/resolve", OPERATE_SPOOL, streams.resolve, "Settle an unconfirmed delivery",
         takes=streams.Resolution),
)  # fmt: skip

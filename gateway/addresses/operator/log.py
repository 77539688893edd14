"""Records: lists of them, and streams of what changes."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.http.event_streams import EVENT_STREAM
from gateway.operator.address import NOTHING, SIGNED_IN, SLICED
from gateway.operator.log import listing, live, newest, record, served
from gateway.schemas import TEXT
from spool.registry.permission_sets import VIEW_RECORDS

ROWS = (
    call("GET", "/changes", SIGNED_IN, live.changes, "Hear what changes", gives={EVENT_STREAM: TEXT}, shows=NOTHING),
    call("GET", "/records", VIEW_RECORDS, listing.list_records,
         "List the newest records, those of dates, or the dearest of a span, open ones too",
         lists=listing.LISTED, shows=SLICED, in_turn=True),
    call("GET", "/served", VIEW_RECORDS, served.show_served,
         "What servers of models served on a day, less the calls that were reported of these models",
         optional=("date",), in_turn=True),
    call("GET", "/rates", VIEW_RECORDS, newest.show_rates, "Records of each source in the last minute", shows=SLICED),
    call("GET", "/tail", VIEW_RECORDS, live.tail, "Hear of records as they are committed",
         repeated=tuple(newest.RECORDS.filters), gives={EVENT_STREAM: TEXT}, shows=SLICED),
    call("GET", "/records/{id}", VIEW_RECORDS, record.show_record, "What is kept of one record, and why",
         optional=("since",), shows=SLICED),
)  # fmt: skip

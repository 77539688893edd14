"""The destination type ndjson: a file with one canonical record per line."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import orjson

from exporters import batch as batches
from exporters.batch import map_with_pauses
from exporters.destinations.declaration import DestinationType
from exporters.probe import Probe, probe_file
from exporters.record_file import FileExporter
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.deliveries.values import Delivery, Settlement
from spool.log.values import LogEntry
from spool.record import Record, record_to_json


async def encode_delivery(delivery: Delivery, entries: Sequence[LogEntry]) -> tuple[list[bytes], Settlement]:
    batch = batches.build_batch_with_duplicates(delivery, entries)
    lines = await map_with_pauses(batch.records, _encode_records)
    return list(chain.from_iterable(lines)), batch.settlement_unless_all_rejected()


def _encode_records(records: Sequence[tuple[Record, float]]) -> list[bytes]:
    return [orjson.dumps(record_to_json(record), option=orjson.OPT_APPEND_NEWLINE) for record, _ in records]


def build_exporter(settings: DestinationSettings, secret: SecretSource | None, clock: Clock) -> FileExporter:
    return FileExporter(Path(settings.path or ""), write=encode_delivery, shared=settings.shared)


async def probe_destination(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock
) -> Probe:
    return probe_file(Path(settings.path or ""))


TYPE = DestinationType(name="ndjson", needs="path", build=build_exporter, probe=probe_destination)

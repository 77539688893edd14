"""The destination type focus: a CSV file of charges by hour, in the FOCUS format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from exporters import batch as batches
from exporters.batch import map_with_pauses
from exporters.destinations.declaration import DestinationType
from exporters.focus import charges
from exporters.focus.charges import Charge
from exporters.probe import Probe, probe_file
from exporters.record_file import FileExporter, Write
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.deliveries.values import Delivery, Settlement
from spool.ledger.repricing import LinesOf
from spool.log.values import LogEntry
from spool.record import AI_TELEMETRY


async def encode_delivery(
    delivery: Delivery, entries: Sequence[LogEntry], *, price_lines: LinesOf | None = None
) -> tuple[list[bytes], Settlement]:
    """
    Encode a delivery as CSV lines, and return its outcome. Each line ends with the delivery's record numbers.
    """
    numbers = f"{delivery.first}-{delivery.last}"

    def encode_charges(part: Sequence[Charge]) -> list[bytes]:
        return [charges.charge_lines([replace(charge, numbers=numbers)]) for charge in part]

    lines = await map_with_pauses(await charges.sum_charges(entries, price_lines), encode_charges)
    return list(chain.from_iterable(lines)), batches.build_batch_without_duplicates(
        delivery, entries
    ).settlement_unless_all_rejected()


def line_suffix_with_record_range(delivery: Delivery) -> bytes:
    return f",{delivery.first}-{delivery.last}\n".encode()


def build_exporter(settings: DestinationSettings, secret: SecretSource | None, clock: Clock) -> FileExporter:
    return _build_file_exporter(settings, encode_delivery)


def build_exporter_with_prices(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, price_lines: LinesOf
) -> FileExporter:
    return _build_file_exporter(settings, partial(encode_delivery, price_lines=price_lines))


def _build_file_exporter(settings: DestinationSettings, write: Write) -> FileExporter:
    path = Path(settings.path or "")
    head = charges.csv_header()
    shared = settings.shared
    return FileExporter(path, write=write, head=head, shared=shared, ending=line_suffix_with_record_range)


async def probe_destination(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock
) -> Probe:
    return probe_file(Path(settings.path or ""))


TYPE = DestinationType(
    name="focus",
    needs="path",
    build=build_exporter,
    build_with_price_lines=build_exporter_with_prices,
    probe=probe_destination,
    topics=(AI_TELEMETRY,),
)

"""A destination of type focus: a CSV file to which each delivery appends its charges by hour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from exporters import batch as batches
from exporters.batch import in_turns
from exporters.destinations.declaration import DestinationType
from exporters.focus import charges
from exporters.focus.charges import Charge
from exporters.probe import Probe, try_file
from exporters.record_file import FileExporter, Write
from exporters.secret_source import SecretSource
from exporters.settings import DestinationSettings
from spool.clock import Clock
from spool.deliveries.values import Delivery, Settlement
from spool.ledger.repricing import LinesOf
from spool.log.values import Entry
from spool.record import AI_TELEMETRY


async def lines_of(
    delivery: Delivery, entries: Sequence[Entry], *, price_lines: LinesOf | None = None
) -> tuple[list[bytes], Settlement]:
    """
    Return the lines that a delivery appends to the file. Each line ends with the delivery's record numbers.
    """
    numbers = f"{delivery.first}-{delivery.last}"

    def lines_of_some(part: Sequence[Charge]) -> list[bytes]:
        return [charges.lines([replace(charge, numbers=numbers)]) for charge in part]

    lines = await in_turns(await charges.of_entries(entries, price_lines), lines_of_some)
    return list(chain.from_iterable(lines)), batches.without_shadows(delivery, entries).settlement()


def ending_of(delivery: Delivery) -> bytes:
    """Return the text that ends each line of a delivery: its record numbers, which are the last column."""
    return f",{delivery.first}-{delivery.last}\n".encode()


def build(settings: DestinationSettings, secret: SecretSource | None, clock: Clock) -> FileExporter:
    return _exporter(settings, lines_of)


def build_by_lines(
    settings: DestinationSettings, secret: SecretSource | None, clock: Clock, price_lines: LinesOf
) -> FileExporter:
    return _exporter(settings, partial(lines_of, price_lines=price_lines))


def _exporter(settings: DestinationSettings, write: Write) -> FileExporter:
    path = Path(settings.path or "")
    head = charges.header()
    shared = settings.shared
    return FileExporter(path, write=write, head=head, shared=shared, ending=ending_of)


async def probe(settings: DestinationSettings, secret: SecretSource | None, clock: Clock) -> Probe:
    return try_file(Path(settings.path or ""))


TYPE = DestinationType(
    name="focus",
    needs="path",
    build=build,
    build_by_lines=build_by_lines,
    probe=probe,
    topics=(AI_TELEMETRY,),
)

"""
Names of the objects in a data lake. Pure.

Names contain the edition and the record numbers of a delivery, which are stored before any record is read. So
a repeat writes the same names, and no two deliveries share one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from exporters.lake.columns import TABLE, VERSION

_DAY_S: Final = 24 * 3600
DATA: Final = f"{TABLE}/v{VERSION}/"
MANIFESTS: Final = f"_manifest/{TABLE}/"  # `_` hides the folder from Hive, Spark and Athena
_MANIFEST: Final = re.compile(r"_manifest/[a-z_]+/([0-9a-f]{8})/([0-9]{12})-([0-9]{12})(?:-r([0-9]+))?\.json")
_IMPORT: Final = re.compile(r"_manifest/[a-z_]+/import/([0-9a-f]{64})-([0-9]{6})\.json")
_ADOPTED: Final = re.compile(r"_manifest/[a-z_]+/adopted/([0-9a-f]{8})-([0-9]{12})-([0-9]{12})\.json")
_DATE: Final = re.compile(rf"[a-z_]+/v{VERSION}/date=" + r"([0-9]{4}-[0-9]{2}-[0-9]{2})/")
_DATA_NUMBERS: Final = re.compile(r".*-([0-9a-f]{8})-([0-9]{12})-([0-9]{12})\.[a-z.]+")


class DeliveryRange(NamedTuple):
    """
    A range of record numbers of a route, in one life of the log (`edition`). `destination`: the first part of
    the route's name.
    """

    destination: str
    edition: str
    first: int
    last: int


def format_date(day: int) -> str:
    return datetime.fromtimestamp(day * _DAY_S, UTC).strftime("%Y-%m-%d")


def file_stem(delivery_range: DeliveryRange) -> str:
    numbers = f"{delivery_range.first:012d}-{delivery_range.last:012d}"
    return f"{delivery_range.destination}-{delivery_range.edition}-{numbers}"


def import_stem(sha256: str, part: int) -> str:
    return f"import-{sha256}-{part:06d}"


def data_prefix(table: str) -> str:
    return f"{table}/v{VERSION}/"


def manifests_prefix(table: str) -> str:
    return f"_manifest/{table}/"


def data_file_name(stem: str, date: str, ending: str, *, table: str = TABLE) -> str:
    return f"{data_prefix(table)}date={date}/{stem}.{ending}"


def import_manifest_name(sha256: str, part: int, *, table: str = TABLE) -> str:
    return f"{manifests_prefix(table)}import/{sha256}-{part:06d}.json"


def parse_import_manifest_name(manifest_name: str) -> tuple[str, int] | None:
    """Return the SHA-256 and the part of an import, or None, from a manifest's name."""
    match = _IMPORT.fullmatch(manifest_name)
    return None if match is None else (match[1], int(match[2]))


def adoption_name(log_edition: str, first_number: int, last_number: int, *, table: str = TABLE) -> str:
    """
    Return the object name for the description of an adoption, which adds the lake's newer records to a
    restored log. `first_number`: the first number that the log's backup lacked.
    """
    return f"{manifests_prefix(table)}adopted/{log_edition}-{first_number:012d}-{last_number:012d}.json"


def parse_adoption_range(name: str) -> tuple[str, int, int] | None:
    match = _ADOPTED.fullmatch(name)
    return None if match is None else (match[1], int(match[2]), int(match[3]))


def manifest_name(
    log_edition: str, first_number: int, last_number: int, *, repair: int = 0, table: str = TABLE
) -> str:
    """
    Return a manifest's name. `log_edition`: the life of the log. `repair`: number of the repair that wrote
    the manifest, 0 for the delivery itself.
    """
    repair_suffix = f"-r{repair}" if repair else ""
    return (
        f"{manifests_prefix(table)}{log_edition}/{first_number:012d}-{last_number:012d}{repair_suffix}.json"
    )


def strip_repair_number(name: str) -> str:
    return re.sub(r"-r[0-9]+\.json$", ".json", name)


def parse_repair_number(name: str) -> int:
    """Return the number of the repair that wrote a manifest, 0 for the delivery itself."""
    match = _MANIFEST.fullmatch(name)
    return int(match[4] or 0) if match else 0


def parse_record_range(name: str) -> tuple[str, int, int] | None:
    """Return edition, first and last number from the name of a manifest or file, or None."""
    pattern = _MANIFEST if name.startswith("_manifest/") else _DATA_NUMBERS
    match = pattern.fullmatch(name)
    return None if match is None else (match[1], int(match[2]), int(match[3]))


def parse_date(name: str) -> str | None:
    match = _DATE.match(name)
    return None if match is None else match[1]

"""
Names of what a lake holds. Pure.

A name is made of the edition and the range of numbers of a delivery, which are stored before anything is read. So
whoever sends a delivery again writes under the same names, and no two deliveries have one name.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from exporters.lake.columns import TABLE, VERSION

_DAY_S: Final = 24 * 3600
DATA: Final = f"{TABLE}/v{VERSION}/"
MANIFESTS: Final = f"_manifest/{TABLE}/"  # `_` hides it from Hive, Spark and Athena
_MANIFEST: Final = re.compile(r"_manifest/[a-z_]+/([0-9a-f]{8})/([0-9]{12})-([0-9]{12})(?:-r([0-9]+))?\.json")
_IMPORT: Final = re.compile(r"_manifest/[a-z_]+/import/([0-9a-f]{64})-([0-9]{6})\.json")
_ADOPTED: Final = re.compile(r"_manifest/[a-z_]+/adopted/([0-9a-f]{8})-([0-9]{12})-([0-9]{12})\.json")
_DATE: Final = re.compile(rf"[a-z_]+/v{VERSION}/date=" + r"([0-9]{4}-[0-9]{2}-[0-9]{2})/")
_DATA_NUMBERS: Final = re.compile(r".*-([0-9a-f]{8})-([0-9]{12})-([0-9]{12})\.[a-z.]+")


class Series(NamedTuple):
    """The numbers of a route's delivery: `destination` is the first part of the route's name."""

    destination: str
    edition: str
    first: int
    last: int


def date_of(day: int) -> str:
    """The date of a day that is counted from 1970."""
    return datetime.fromtimestamp(day * _DAY_S, UTC).strftime("%Y-%m-%d")


def stem_of(series: Series) -> str:
    """Return the beginning of the names of the files of a delivery."""
    return f"{series.destination}-{series.edition}-{series.first:012d}-{series.last:012d}"


def import_stem(sha256: str, part: int) -> str:
    """Return the beginning of the names of files that are made of a part of another file."""
    return f"import-{sha256}-{part:06d}"


def data_of(table: str) -> str:
    """The beginning of the names of the files of a table."""
    return f"{table}/v{VERSION}/"


def manifests_of(table: str) -> str:
    """The beginning of the names of the manifests of a table."""
    return f"_manifest/{table}/"


def data_name(stem: str, date: str, ending: str, *, table: str = TABLE) -> str:
    return f"{data_of(table)}date={date}/{stem}.{ending}"


def import_manifest(sha256: str, part: int, *, table: str = TABLE) -> str:
    return f"{manifests_of(table)}import/{sha256}-{part:06d}.json"


def import_in(name: str) -> tuple[str, int] | None:
    """The SHA-256 and the part of the source of an import, by the name of its manifest; else None."""
    found = _IMPORT.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


def adoption_name(edition: str, first: int, last: int, *, table: str = TABLE) -> str:
    """Name the note on numbers of a delivery that a restored copy never had; `first` is the first."""
    return f"{manifests_of(table)}adopted/{edition}-{first:012d}-{last:012d}.json"


def adopted_in(name: str) -> tuple[str, int, int] | None:
    """The edition and the numbers of an adoption, by its name; None if it is none."""
    found = _ADOPTED.fullmatch(name)
    return None if found is None else (found[1], int(found[2]), int(found[3]))


def manifest_name(edition: str, first: int, last: int, *, repair: int = 0, table: str = TABLE) -> str:
    """`repair` counts the manifests of files that were put again, beside the first one of a delivery."""
    again = f"-r{repair}" if repair else ""
    return f"{manifests_of(table)}{edition}/{first:012d}-{last:012d}{again}.json"


def repaired(name: str) -> str:
    """The name of the delivery's own manifest, by that of a repair."""
    return re.sub(r"-r[0-9]+\.json$", ".json", name)


def repair_in(name: str) -> int:
    """Which of the manifests of files that were put again it is, by its name; 0 of the delivery's own."""
    found = _MANIFEST.fullmatch(name)
    return int(found[4] or 0) if found else 0


def range_of(name: str) -> tuple[str, int, int] | None:
    """The edition and the numbers of a manifest or a file, by its name; None if it is neither."""
    pattern = _MANIFEST if name.startswith("_manifest/") else _DATA_NUMBERS
    found = pattern.fullmatch(name)
    return None if found is None else (found[1], int(found[2]), int(found[3]))


def date_in(name: str) -> str | None:
    """The date of a file, by its name; None if it has none."""
    found = _DATE.match(name)
    return None if found is None else found[1]

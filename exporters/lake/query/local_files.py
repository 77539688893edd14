"""Puts the files of some dates where DuckDB reads them: copies, or links to those of a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from exporters.lake import names
from exporters.lake.file_checks import format_of
from exporters.lake.stores import Store, StoredObject
from exporters.lake.verification import Dates
from exporters.settings import DestinationSettings
from spool.directories import make_directory

MIB: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class LocalFiles:
    """`directory` has the names of the lake; the files themselves may lie in another one."""

    directory: Path
    opened: tuple[Path, ...]  # the directories that are read
    tables: frozenset[str]  # of which there are files
    files: int
    bytes: int


async def bring_here(
    store: Store,
    settings: DestinationSettings,
    tables: frozenset[str],
    dates: Dates,
    *,
    directory: Path,
    most_bytes: int,
) -> LocalFiles:
    """ValueError if they have more bytes than may be copied. Raises what the store raises."""
    found = {table: await _listed(store, settings, table, dates) for table in tables}
    wanted = [each for listed in found.values() for each in listed]
    size = sum(each.size for each in wanted)
    is_folder = settings.path is not None
    if size > most_bytes and not is_folder:
        raise ValueError(
            f"the files of these dates have {size / MIB:,.1f} MiB, and {most_bytes / MIB:,.1f} MiB may be copied: "
            "ask for fewer dates with --from and --to, or allow more with --max-download"
        )
    for each in wanted:
        path = directory / each.name
        make_directory(path.parent)
        if settings.path is None:
            await store.fetch(each.name, path)
        else:
            path.symlink_to((settings.path / each.name).resolve())
    places = (directory,) if settings.path is None else (directory, settings.path.resolve())
    return LocalFiles(
        directory=directory,
        opened=places,
        tables=frozenset(table for table, listed in found.items() if listed),
        files=len(wanted),
        bytes=size,
    )


async def _listed(
    store: Store, settings: DestinationSettings, table: str, dates: Dates
) -> list[StoredObject]:
    after = f"{names.data_of(table)}date={dates.first}" if dates.first else ""
    listed = store.names(names.data_of(table), after=after)
    return [each async for each in listed if _is_asked(each.name, settings, dates)]


def _is_asked(name: str, settings: DestinationSettings, dates: Dates) -> bool:
    format = format_of(name)
    return format is not None and format.name == settings.format and dates.have(names.date_in(name))

"""
The price list of an installation: the file that `[prices]` names, else a list in the data directory, else the
packaged list.

`tollhouse prices update` stores lists in the data directory, one file each. The newest one applies, unless the
packaged list is newer. Files are complete before they get their name, so a reader never sees a part.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from gateway.configuration.prices import PriceSettings
from gateway.intake.rate_cards import card as cards
from gateway.intake.rate_cards import litellm
from gateway.intake.rate_cards.card import CardUnreadable, RateCard
from spool.disks import flush_directory

DIRECTORY: Final = "prices"
_KEPT: Final = 5  # number of stored price lists; older ones are deleted


def read_price_list_in_use(section: PriceSettings, data_dir: Path | None) -> RateCard:
    """Return the list in use. Raises CardUnreadable with the file and the problem."""
    if section.file is not None:
        try:
            return read_price_list(section.file, max_bytes=section.max_file_bytes)
        except CardUnreadable as error:
            raise CardUnreadable(f"prices.file: {error}") from error
    packaged = cards.packaged_card()
    stored = [] if data_dir is None else stored_price_list_paths(data_dir)
    if not stored:
        return packaged
    try:
        card = cards.read_card(stored[-1])
    except CardUnreadable as error:
        raise CardUnreadable(f"list prices: {error}; tollhouse prices undo deletes this list") from error
    return card if card.source["date"] >= packaged.source["date"] else packaged


def read_price_list(path: Path, *, max_bytes: int) -> RateCard:
    """Read a price list in Tollhouse's or LiteLLM's format. Raises CardUnreadable with the problem."""
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
            day = datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC).date().isoformat()
    except OSError as error:
        raise CardUnreadable(f"{path}: {error.strerror}") from error
    try:
        return decode_price_list(content, day=day, max_bytes=max_bytes)
    except CardUnreadable as error:
        raise CardUnreadable(f"{path}: {error}") from error


def decode_price_list(content: bytes, *, day: str, max_bytes: int) -> RateCard:
    """Decode a price list. `day` is used if the list states no day."""
    if len(content) > max_bytes:
        raise CardUnreadable(f"the list is larger than prices.max_file_bytes ({max_bytes} bytes)")
    document = litellm.parse_price_list_json(content)
    if not litellm.is_litellm_list(document):
        return cards.decode_card(content)
    digest = blake2b(content, digest_size=4).hexdigest()
    card = litellm.convert_list(document, day=day, version=f"{litellm.NAME}-{day}-{digest}")
    try:
        # encode and decode the list, so that the result is the same as when it is read from disk
        return cards.decode_card(cards.encode_card(card))
    except UnicodeEncodeError as error:
        raise CardUnreadable(f"a name of the list is not text: {error}") from error


def with_source_of_newer_list(merged_list: RateCard, newer_list: RateCard) -> RateCard:
    """
    Return a merged price list with the name and the source of the newer list. The source also names the older
    list.
    """
    source: Mapping[str, Any] = {**newer_list.source, "merged_with": merged_list.version}
    return replace(merged_list, version=newer_list.version, source=source)


def stored_price_list_paths(data_dir: Path) -> list[Path]:
    files = (data_dir / DIRECTORY).glob("*.json")
    return sorted(file for file in files if file.stem.isdigit())


def store_and_trim_price_lists(data_dir: Path, card: RateCard) -> Path:
    """
    Store a price list as the newest one, and delete the oldest lists.

    The file is flushed to disk before it gets its name, so a crash leaves no incomplete list.
    """
    directory = data_dir / DIRECTORY
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _give_file_to_owner(data_dir, directory)
    existing = stored_price_list_paths(data_dir)
    number = int(existing[-1].stem) + 1 if existing else 1
    path = directory / f"{number:06}.json"
    handle, draft = tempfile.mkstemp(dir=directory, suffix=".draft")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(cards.encode_card(card))
            file.flush()
            os.fsync(file.fileno())
        _give_file_to_owner(data_dir, Path(draft))
        os.link(draft, path)  # os.link fails if another command has stored a list in the meantime
    finally:
        Path(draft).unlink()
    flush_directory(directory)
    for old in existing[: -_KEPT + 1]:
        old.unlink(missing_ok=True)
    return path


def delete_newest_price_list(data_dir: Path) -> Path | None:
    existing = stored_price_list_paths(data_dir)
    if not existing:
        return None
    existing[-1].unlink()
    flush_directory(existing[-1].parent)
    return existing[-1]


def _give_file_to_owner(data_dir: Path, path: Path) -> None:
    """Let the server read what root stored, because it runs as the owner of the data directory."""
    if sys.platform != "win32" and os.geteuid() == 0:
        owner = data_dir.stat()
        os.chown(path, owner.st_uid, owner.st_gid)

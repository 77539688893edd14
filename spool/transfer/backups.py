"""
Backups: files with checksums in a manifest.

A backup, and a restored directory, has a temporary name until complete.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import file_digest, sha256
from pathlib import Path

from spool.disks import create_flushed_file, flush_directory
from spool.errors import AlreadyThere, NotAllowed, SpoolDamaged

MANIFEST = "manifest.json"
FORMAT = 1
UNFINISHED = ".unfinished"


@dataclass(frozen=True, kw_only=True)
class BackedUpFile:
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The manifest of a backup. `made_at`: RFC 3339. `records`: the highest record number by topic."""

    version: str
    made_at: str
    records: Mapping[str, int]
    files: Mapping[str, BackedUpFile]
    format: int = FORMAT

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())


async def back_up(
    copy: Callable[[Path], Awaitable[None]],
    target: Path,
    *,
    version: str,
    made_at: str,
    records: Mapping[str, int],
) -> Manifest:
    """
    Make a backup in the new directory `target`. `copy`: fills an empty directory with the data.

    Files of a killed run are deleted. Raises AlreadyThere, or NotAllowed if `target` cannot be written.
    """
    draft = _draft_path(target)

    def write_manifest() -> Manifest:
        paths = sorted(path for path in draft.rglob("*") if path.is_file())
        files = {path.relative_to(draft).as_posix(): _describe_file(path) for path in paths}
        manifest = Manifest(version=version, made_at=made_at, records=records, files=files)
        with create_flushed_file(draft / MANIFEST) as file:
            file.write(_encode_manifest(manifest))
        flush_and_rename_draft(draft, target)
        return manifest

    try:
        await asyncio.to_thread(_make_draft, draft, target)
        await copy(draft)
        return await asyncio.to_thread(write_manifest)
    except OSError as error:
        delete_draft(draft)
        raise NotAllowed(f"{target} cannot be written: {error.strerror}") from error
    except BaseException:
        delete_draft(draft)
        raise


def _make_draft(draft: Path, target: Path) -> None:
    if target.exists():
        raise AlreadyThere(f"{target} already exists: choose a new directory for the backup")
    delete_draft(draft)
    draft.mkdir(mode=0o700)


def read_checked_manifest(backup: Path) -> Manifest:
    """
    Check a backup and return its manifest.

    Raises NotAllowed if the directory is no backup, SpoolDamaged for a missing or changed file.
    """
    try:
        contents = json.loads((backup / MANIFEST).read_bytes())
        seal = contents.pop("seal")
        files = {name: BackedUpFile(**file) for name, file in contents.pop("files").items()}
        manifest = Manifest(**contents, files=files)
    except OSError as error:
        raise NotAllowed(f"{backup} is not a backup: {MANIFEST} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise SpoolDamaged(f"{backup / MANIFEST} is damaged or has an unknown version") from error
    if seal != _manifest_digest(manifest) or manifest.format != FORMAT:
        raise SpoolDamaged(f"{backup / MANIFEST} is damaged or has an unknown version")
    for name, file in files.items():
        if not (backup / name).is_file() or _describe_file(backup / name) != file:
            raise SpoolDamaged(f"{backup / name} has changed since the backup was made")
    return manifest


def unpack_backup(backup: Path, manifest: Manifest, directory: Path) -> Path:
    """
    Unpack a backup into a temporary directory, which `flush_and_rename_draft` renames. Return its path.

    Raises NotAllowed if `directory` is not empty.
    """
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise NotAllowed(f"{directory} is not empty: restore into a new directory")
    draft = _draft_path(directory)
    delete_draft(draft)
    draft.mkdir(mode=0o700)
    for name in manifest.files:
        (draft / name).parent.mkdir(mode=0o700, exist_ok=True)
        shutil.copyfile(backup / name, draft / name)
        (draft / name).chmod(0o600)
    return draft


def flush_and_rename_draft(draft: Path, directory: Path) -> None:
    for place in (draft, *filter(Path.is_dir, draft.iterdir())):
        flush_directory(place)
    draft.rename(directory)
    flush_directory(directory.parent)


def delete_draft(draft: Path) -> None:
    shutil.rmtree(draft, ignore_errors=True)


def _draft_path(path: Path) -> Path:
    if path.name in ("", ".."):
        raise NotAllowed(f"{path} cannot be the name of a new directory")
    if not path.parent.is_dir():
        raise NotAllowed(f"{path.parent} does not exist")
    return path.with_name(f"{path.name}{UNFINISHED}")


def _describe_file(path: Path) -> BackedUpFile:
    with path.open("rb") as file:
        return BackedUpFile(bytes=path.stat().st_size, sha256=file_digest(file, "sha256").hexdigest())


def _manifest_digest(manifest: Manifest) -> str:
    return sha256(json.dumps(asdict(manifest), sort_keys=True).encode()).hexdigest()


def _encode_manifest(manifest: Manifest) -> bytes:
    return json.dumps(
        {**asdict(manifest), "seal": _manifest_digest(manifest)}, indent=2, sort_keys=True
    ).encode()

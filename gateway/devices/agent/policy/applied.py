"""
Check a policy bundle, write its files on this device, and delete them again.

A file is written only if the signature covers it and its path is in the table of `targets`. A file that
Tollhouse did not write is never replaced or deleted. No path leads through a symbolic link.
"""

from __future__ import annotations

import errno
import os
import plistlib
import stat
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import msgspec

from gateway.devices.agent.policy.bundle import MANIFEST, SIGNATURE, BundleFile, PolicyManifest
from gateway.devices.agent.policy.signatures import PublicKey
from gateway.devices.agent.policy.targets import (
    MACOS,
    MANAGED,
    PREFERENCES,
    RECORDS,
    paths_a_bundle_may_write,
)

MOST_BYTES: Final = 1024 * 1024  # size limit of one file
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class BadBundle(Exception):
    """Raised if a bundle is damaged, is not signed by the expected key, or does not fit this device."""


@dataclass(frozen=True, slots=True)
class CheckedBundle:
    """A verified manifest of a policy bundle, with the contents that were verified."""

    manifest: PolicyManifest
    contents: Mapping[str, bytes]
    sha256: str


class _AppliedPolicyRecord(msgspec.Struct):
    """
    The record of what Tollhouse wrote on this device: digests of files by path, and the folders that it
    created.

    A path has two digests while the file is replaced, so that both contents are known after a crash.
    `manifest` is the digest of the bundle's manifest, `number` its number, and `error` why a file was not
    written; the probe reports them.
    """

    files: dict[str, list[str]] = msgspec.field(default_factory=dict)
    folders: list[str] = msgspec.field(default_factory=list)
    manifest: str = ""
    number: int = 0
    error: str = ""


@dataclass(slots=True)
class PolicyChanges:
    """
    The result of applying or removing a policy: paths of written and deleted files. `foreign` are paths with
    a file that Tollhouse did not write, each with the bundle's file for this path.
    """

    written: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    foreign: dict[str, BundleFile | None] = field(default_factory=dict)
    # assistant -> the source with precedence that hides one of its settings
    hidden: dict[str, str] = field(default_factory=dict)


# -- check ---------------------------------------------------------------------------------------------------


def verify_bundle(directory: Path, public_key: PublicKey) -> CheckedBundle:
    """Read and check a whole bundle. Raises BadBundle, or OSError if a file cannot be read."""
    signed = _read_file(directory / MANIFEST)
    if not public_key.is_valid_signature(_read_file(directory / SIGNATURE), signed):
        raise BadBundle(f"{MANIFEST} is not signed by this key")
    try:
        manifest = msgspec.json.decode(signed, type=PolicyManifest)
    except msgspec.DecodeError as error:
        raise BadBundle(f"{MANIFEST} is not readable by this version of Tollhouse: {error}") from error
    found = set(_list_files(directory))
    expected = {file.path for file in manifest.files}
    for problem, names in (("is missing", expected - found), ("is not in the manifest", found - expected)):
        if names:
            raise BadBundle(f"{min(names)} {problem}")
    contents = {}
    for file in manifest.files:
        content = _read_file(directory / file.path)
        if _digest_content(content) != file.sha256:
            raise BadBundle(f"{file.path} was changed")
        _require_valid_syntax(file.path, content)
        contents[file.path] = content
    return CheckedBundle(manifest, contents, _digest_content(signed))


def _list_files(directory: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(directory):
        for name in folders + names:
            path = Path(folder) / name
            if path.is_symlink():
                raise BadBundle(f"{path.relative_to(directory)} is a link")
            if name in names and path not in (directory / MANIFEST, directory / SIGNATURE):
                yield path.relative_to(directory).as_posix()


def _read_file(path: Path) -> bytes:
    with os.fdopen(os.open(path, _FILE), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadBundle(f"{path.name} is not a file")
        content = file.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise BadBundle(f"{path.name} is larger than {MOST_BYTES} bytes")
    return content


def _require_valid_syntax(path: str, content: bytes) -> None:
    try:
        match Path(path).suffix:
            case ".json":
                msgspec.json.decode(content)
            case ".toml":
                tomllib.loads(content.decode())
            case ".mobileconfig" | ".plist":
                plistlib.loads(content)
            case ".admx" | ".adml":
                ET.fromstring(content)
    except (ValueError, ET.ParseError, plistlib.InvalidFileException) as error:
        raise BadBundle(f"{path} is malformed: {error}") from error


def _digest_content(content: bytes) -> str:
    return sha256(content).hexdigest()


# -- write and delete ----------------------------------------------------------------------------------------


def apply_bundle(
    checked: CheckedBundle, system: str, root: Path, *, allows_older: bool = False
) -> PolicyChanges:
    """
    Write the bundle's files for this system below `root`. Files of an earlier bundle that this bundle lacks
    are deleted. Unless `allows_older`, raises BadBundle if a newer bundle was applied before, even if it was removed.
    """
    wanted = {file.target: file for file in checked.manifest.files if file.system == system}
    if strange := wanted.keys() - paths_a_bundle_may_write(system):
        raise BadBundle(f"{min(strange)} is not a path of managed settings on {system}")
    tree = _FileTree(root)
    record = _read_policy_record(tree, system)
    if not allows_older:
        _require_same_or_newer_policy_bundle(checked, record)
    outcome = PolicyChanges(hidden=dict(_overriding_mdm_profiles(tree, system)))
    for target in record.files.keys() - wanted.keys():
        _remove_target_unless_foreign(tree, record, target, outcome)
    for target, file in sorted(wanted.items()):
        if file.assistant in outcome.hidden:
            continue
        present, digests = tree.read_file(target), record.files.get(target, [])
        if present is not None and _digest_content(present) == file.sha256:
            if digests:
                record.files[target] = [file.sha256]
            continue
        if present is not None and _digest_content(present) not in digests:
            outcome.foreign[target] = file
            continue
        record.files[target] = sorted({*digests, file.sha256})
        record.folders = sorted({*record.folders, *tree.missing_folders(target)})
        _write_policy_record(tree, system, record)
        tree.write_file(target, checked.contents[file.path])
        record.files[target] = [file.sha256]
        outcome.written.append(target)
    record.manifest, record.number = checked.sha256, checked.manifest.number
    record.error = "foreign_file" if outcome.foreign else "mdm_policy" if outcome.hidden else ""
    _write_policy_record(tree, system, record)
    return outcome


def _require_same_or_newer_policy_bundle(checked: CheckedBundle, record: _AppliedPolicyRecord) -> None:
    number = checked.manifest.number
    if number < record.number:
        raise BadBundle(
            f"the bundle has the number {number}, and a bundle with {record.number} was applied before; to apply the "
            "older bundle, add --older"
        )
    if number == record.number and checked.sha256 != record.manifest:
        raise BadBundle(
            f"another bundle with the number {number} was applied before; to apply this bundle, add --older"
        )


def remove_policy(system: str, root: Path) -> PolicyChanges:
    """
    Delete the files that `apply_bundle` wrote and nobody has changed since. Its record keeps only the number of the
    bundle, so that no older bundle is applied later.
    """
    tree = _FileTree(root)
    record, outcome = _read_policy_record(tree, system), PolicyChanges()
    for target in list(record.files):
        _remove_target_unless_foreign(tree, record, target, outcome)
    for folder in sorted(record.folders, key=len, reverse=True):
        tree.remove_folder(folder)
    if tree.read_file(RECORDS[system]) is not None:
        _write_policy_record(
            tree, system, _AppliedPolicyRecord(manifest=record.manifest, number=record.number)
        )
    return outcome


def _remove_target_unless_foreign(
    tree: _FileTree, record: _AppliedPolicyRecord, target: str, outcome: PolicyChanges
) -> None:
    present = tree.read_file(target)
    if present is not None and _digest_content(present) not in record.files[target]:
        outcome.foreign[target] = None
    elif present is not None:
        tree.unlink(target)
        outcome.removed.append(target)
    del record.files[target]


def _overriding_mdm_profiles(tree: _FileTree, system: str) -> Iterator[tuple[str, str]]:
    if system != MACOS:
        return
    for assistant in MANAGED.values():
        path = f"{PREFERENCES}/{assistant.domain}.plist"
        if assistant.domain and tree.read_file(path) is not None:
            yield assistant.name, path


def _read_policy_record(tree: _FileTree, system: str) -> _AppliedPolicyRecord:
    content = tree.read_file(RECORDS[system])
    if content is None:
        return _AppliedPolicyRecord()
    try:
        record = msgspec.json.decode(content, type=_AppliedPolicyRecord)
    except msgspec.DecodeError as error:
        raise BadBundle(
            f"{RECORDS[system]}, the list of files that Tollhouse wrote, is damaged: delete it and these files"
        ) from error
    # the record may be of another release, so paths that this release does not write are ignored
    allowed = paths_a_bundle_may_write(system)
    record.files = {target: digests for target, digests in record.files.items() if target in allowed}
    folders = {str(folder) for target in allowed for folder in Path(target).parents}
    record.folders = [folder for folder in record.folders if folder in folders]
    return record


def _write_policy_record(tree: _FileTree, system: str, record: _AppliedPolicyRecord) -> None:
    tree.write_file(RECORDS[system], msgspec.json.encode(record))


class _FileTree:
    """
    Files below a root, by absolute paths. Every folder on the way is opened without following links.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def read_file(self, path: str) -> bytes | None:
        """Return the content, or None if the file does not exist. Raises BadBundle for a link or a large file."""
        with self._open_folder_of_file(path) as (folder, name):
            if folder is None:
                return None
            try:
                descriptor = os.open(name, _FILE, dir_fd=folder)
            except FileNotFoundError:
                return None
            except OSError as error:
                if error.errno == errno.ELOOP:
                    raise BadBundle(f"{path} is a link") from error
                raise
            with os.fdopen(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise BadBundle(f"{path} is not a file")
                return file.read(MOST_BYTES + 1)

    def write_file(self, path: str, content: bytes) -> None:
        """Replace the file by renaming a draft, readable by all and writable by its owner."""
        with self._open_folder_of_file(path, creates=True) as (folder, name):
            draft = f".{name}.tollhouse-new"
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(draft, flags, 0o644, dir_fd=folder), "wb") as file:
                os.fchmod(file.fileno(), 0o644)
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
            assert folder is not None
            os.fsync(folder)

    def unlink(self, path: str) -> None:
        with self._open_folder_of_file(path) as (folder, name), suppress(FileNotFoundError):
            if folder is not None:
                os.unlink(name, dir_fd=folder)

    def remove_folder(self, path: str) -> None:
        with self._open_folder_of_file(path) as (folder, name), suppress(OSError):
            if folder is not None:
                os.rmdir(name, dir_fd=folder)

    def missing_folders(self, path: str) -> list[str]:
        parents = list(Path(path).parents)[:-1]
        return [str(parent) for parent in parents if not os.path.lexists(self._root / str(parent)[1:])]

    @contextmanager
    def _open_folder_of_file(self, path: str, *, creates: bool = False) -> Iterator[tuple[int | None, str]]:
        """Open the folder of a path (None if it does not exist), and yield it with the file's name."""
        *folders, name = Path(path).parts[1:]
        with ExitStack() as stack, _with_whole_path_in_errors(path):
            current = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, current)
            for folder in folders:
                found = _open_folder_without_links(current, folder, path, creates=creates)
                if found is None:
                    yield None, name
                    return
                current = found
                stack.callback(os.close, current)
            yield current, name


@contextmanager
def _with_whole_path_in_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        error.filename = path
        raise


def _open_folder_without_links(parent: int, folder: str, path: str, *, creates: bool) -> int | None:
    try:
        return os.open(folder, _FOLDER, dir_fd=parent)
    except FileNotFoundError:
        if not creates:
            return None
        os.mkdir(folder, dir_fd=parent)
        created = os.open(folder, _FOLDER, dir_fd=parent)
        os.fchmod(created, 0o755)
        return created
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise BadBundle(f"{folder} on the way to {path} is a link or a file") from error
        raise

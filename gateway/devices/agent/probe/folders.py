"""
Reading of known files below a folder, such as a home directory, and writing of one file, by a process that
may be root.

The files of a user are opened with the user's ids, so root is never led to a file that the user cannot read.
No link is followed, and no file is read that is not a regular file or has more than MOST_BYTES. Only folders of
sessions may be links, because their files are listed and never opened.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Final

from gateway.devices.agent.identity import write_private_file
from gateway.devices.fleet.uses import SessionFile

MOST_BYTES: Final = 256 * 1024
MOST_ENTRIES: Final = 20_000  # entries of folders that one search for sessions visits
MOST_NAMES: Final = 64
Owner = tuple[int, int]  # ids of the user and the group that own a file


class UnreadableFile(Exception):
    """Raised for a file that exists but is a link, not a regular file, too large, or not permitted."""


if sys.platform == "win32":
    _FILE: Final = os.O_RDONLY | os.O_BINARY
    _FOLDER: Final = -1

    @contextmanager
    def _open_inside_root(root: Path, relative_path: str, flags: int) -> Iterator[int | Path]:
        """Open a file, or yield a folder's path. A link that appears after the check is not noticed."""
        path = root
        for part in relative_path.split("/"):
            path /= part
            if path.is_symlink() or path.resolve() != path.absolute():
                raise OSError(errno.ELOOP, "the path contains a link", str(path))
        if flags == _FOLDER:
            yield path
            return
        descriptor = os.open(path, flags)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def _acting_as_owner(owner: Owner | None) -> Iterator[None]:
        yield

    def replace_file(folder: Path, name: str, text: str) -> None:
        write_private_file(folder / name, text)

    def _path_exists(root: Path, folder: str, name: str) -> bool:
        return os.path.lexists(root / folder / name)

else:
    _FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    _FOLDER: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY | os.O_CLOEXEC

    @contextmanager
    def _open_inside_root(root: Path, relative_path: str, flags: int) -> Iterator[int | Path]:
        """Open a file or folder. Each folder on the way is opened without following a link."""
        current = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            parts = [part for part in relative_path.split("/") if part]
            for at, part in enumerate(parts, start=1):
                below = os.open(part, flags if at == len(parts) else _FOLDER, dir_fd=current)
                os.close(current)
                current = below
            yield current
        finally:
            os.close(current)

    @contextmanager
    def _acting_as_owner(owner: Owner | None) -> Iterator[None]:
        """As root, use the owner's ids while the block runs. The process has one thread."""
        if owner is None or os.geteuid() != 0 or owner[0] == 0:
            yield
            return
        groups, own_group = os.getgroups(), os.getegid()
        os.setgroups([])
        os.setegid(owner[1])
        os.seteuid(owner[0])
        try:
            yield
        finally:
            os.seteuid(0)
            os.setegid(own_group)
            os.setgroups(groups)

    def replace_file(folder: Path, name: str, text: str) -> None:
        """
        Replace a file in a folder, by renaming a draft. Root writes as the folder's owner, who alone can read the file.
        """
        with _open_inside_root(folder, "", _FOLDER) as opened:
            assert isinstance(opened, int)
            status = os.fstat(opened)
            with _acting_as_owner((status.st_uid, status.st_gid)):
                draft = f"{name}.new"
                with suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=opened)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                with os.fdopen(os.open(draft, flags, 0o600, dir_fd=opened), "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(draft, name, src_dir_fd=opened, dst_dir_fd=opened)

    def _path_exists(root: Path, folder: str, name: str) -> bool:
        with _open_inside_root(root, folder, _FOLDER) as descriptor:
            assert isinstance(descriptor, int)
            os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        return True


class GuardedFolder:
    """
    A folder with its owner. Its files are opened with the owner's ids. Without an owner, the process uses its
    own ids.
    """

    def __init__(self, path: Path, owner: Owner | None = None) -> None:
        self.path = path
        self._owner = owner

    def at_path(self, path: str) -> GuardedFolder:
        """Return a folder below this one, or at an absolute path, whose files are opened with the same ids."""
        return GuardedFolder(self.path / path, self._owner)

    def as_read_by_owner_of_home(self, home: GuardedFolder) -> GuardedFolder:
        return GuardedFolder(self.path, home._owner)

    def read_file(self, name: str, most_bytes: int = MOST_BYTES) -> tuple[bytes, float] | None:
        """Return the content and the time of the last change, or None if the file does not exist."""
        try:
            with _acting_as_owner(self._owner), _open_inside_root(self.path, name, _FILE) as descriptor:
                assert isinstance(descriptor, int)
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or status.st_size > most_bytes:
                    raise UnreadableFile(name)
                with os.fdopen(os.dup(descriptor), "rb") as file:
                    content = file.read(most_bytes + 1)
        except FileNotFoundError:
            return None
        except OSError as error:  # open() also fails with this error if a folder in the path is a link
            raise UnreadableFile(name) from error
        if len(content) > most_bytes:
            raise UnreadableFile(name)
        return content, status.st_mtime

    def exists(self, name: str) -> bool:
        """Return whether there is a file, folder or link of this name."""
        folder, _, last = name.rpartition("/")
        with _acting_as_owner(self._owner), suppress(OSError):
            return _path_exists(self.path, folder, last)
        return False

    def names_in_folder(self, name: str, prefix: str = "") -> list[str]:
        """Return up to MOST_NAMES names in a folder that begin with the prefix, the last ones first."""
        found: list[str] = []
        with (
            _acting_as_owner(self._owner),
            suppress(OSError),
            _open_inside_root(self.path, name, _FOLDER) as folder,
            os.scandir(folder) as entries,
        ):
            names = (entry.name for entry in islice(entries, MOST_ENTRIES))
            found = [each for each in names if each.startswith(prefix)]
        return sorted(found, reverse=True)[:MOST_NAMES]

    def session_files(self, folder: str, shapes: Sequence[Sequence[str]]) -> dict[str, SessionFile]:
        """
        Return the files of each session below a folder, by the session's id. `shapes` are the paths of the files, one
        pattern per level; a group of a pattern has the id. Files are listed, never opened.

        Links are followed with the owner's ids, and their targets must belong to the owner. Raises UnreadableFile if
        not all files can be seen.
        """
        found: dict[str, SessionFile] = {}
        path = self.path / folder
        with _acting_as_owner(self._owner):
            try:
                if path.resolve() != self.path.resolve() / folder:
                    self._require_own_target(path.stat())
                self._collect_session_files(path, [(shape, "") for shape in shapes], 0, found, [MOST_ENTRIES])
            except FileNotFoundError:
                return {}
            except (OSError, RuntimeError) as error:  # a link that leads to itself raises either of them
                raise UnreadableFile(folder) from error
        return found

    def _collect_session_files(
        self,
        path: Path,
        shapes: Sequence[tuple[Sequence[str], str]],
        level: int,
        found: dict[str, SessionFile],
        remaining_entries: list[int],
    ) -> None:
        with os.scandir(path) as entries:
            for entry in entries:
                remaining_entries[0] -= 1
                if remaining_entries[0] < 0:
                    raise UnreadableFile(str(path))
                matches = [
                    (shape, "".join(match.groups()) or id)
                    for shape, id in shapes
                    if (match := re.fullmatch(shape[level], entry.name))
                ]
                if not matches:
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:  # deleted since, or a link without a target
                    continue
                if entry.is_symlink():
                    self._require_own_target(status)
                if stat.S_ISDIR(status.st_mode):
                    if below := [each for each in matches if len(each[0]) > level + 1]:
                        self._collect_session_files(
                            path / entry.name, below, level + 1, found, remaining_entries
                        )
                elif ended := [id for shape, id in matches if len(shape) == level + 1]:
                    size, changed_at = found.get(ended[0], (0, 0.0))
                    found[ended[0]] = SessionFile(size + status.st_size, max(changed_at, status.st_mtime))

    def _require_own_target(self, status: os.stat_result) -> None:
        """Raise UnreadableFile if the target of a link belongs to another user. Windows does not state its owner."""
        if sys.platform == "win32" or status.st_uid != (self._owner[0] if self._owner else os.geteuid()):
            raise UnreadableFile("a link leads to a file of another user")

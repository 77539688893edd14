"""
Settings files of assistants: show a change, make it with a backup, and undo it byte for byte.

If a file was not edited since the change, it is restored as a whole. In an edited file, a telemetry key is
restored only if it still has the value that Tollhouse wrote. All other edits stay.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from gateway.devices.agent.assistants import Assistant
from gateway.devices.agent.edits import MISSING, NotEditable
from gateway.devices.agent.hook_settings import hooks_without_entries, own_hook_entries, with_hook_entry
from gateway.devices.agent.identity import write_private_file
from spool.disks import replace_file

__all__ = ["EditedSettings", "NotEditable", "edit_settings", "undo_settings", "write_settings"]

BACKUP = ".tollhouse-backup"
FOLDER = "setup"
NEW_FILE_MODE = 0o600


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedSettings:
    """A settings file before and after a change. None means that the file does not exist."""

    path: Path
    before: bytes | None
    after: bytes | None
    backup: Path | None = None

    @property
    def has_changes(self) -> bool:
        return self.before != self.after

    def unified_diff(self) -> str:
        return "".join(_diff_lines(self))


class _EditRecord(msgspec.Struct):
    """
    The information for undoing a settings change. `exact`: nobody edited the file between Tollhouse's
    changes.
    """

    path: str
    existed: bool
    written: str  # digest of the last content that Tollhouse wrote
    # paths of the telemetry settings, with the values that Tollhouse wrote last
    values: list[tuple[list[str], Any]]
    exact: bool = True


def edit_settings(assistant: Assistant, path: Path, endpoint: str, *, hook: str = "") -> EditedSettings:
    """
    Return the change of a settings file without writing it. With `hook`, a command, the hooks of the
    assistant are added as well. Raises NotEditable if the file cannot be changed.
    """
    path = path.resolve()  # if the file is a symbolic link, write to its target, so that the link stays
    before = _read_file(path)
    text = _decode_text(before)
    for key, value in assistant.keys(endpoint.rstrip("/")).items():
        if assistant.editor.get_value(text, key) != value:
            text = assistant.editor.put_value(text, key, value)
    for event in assistant.hook_paths if hook else ():
        present = assistant.editor.get_value(text, event)
        entries = with_hook_entry(present, hook)
        if entries != present:
            text = assistant.editor.put_value(text, event, entries)
    after = text.encode()
    return EditedSettings(path=path, before=before, after=before if (before or b"") == after else after)


def write_settings(directory: Path, assistant: Assistant, edited: EditedSettings) -> EditedSettings:
    """Change the file. The first change stores the original next to it."""
    if not edited.has_changes or edited.after is None:
        return edited
    record_path = _path_of_edit_record(directory, assistant, edited.path)
    record, backup = _read_edit_record(record_path), edited.path.with_name(edited.path.name + BACKUP)
    if record is None:
        # A backup without a record comes from an earlier run, and is closer to the original than the present file.
        is_kept = backup.exists()
        if edited.before is not None and not is_kept:
            _replace_file(backup, edited.before, _file_mode(edited.path))
        existed = is_kept or edited.before is not None
        record = _EditRecord(path=str(edited.path), existed=existed, written="", values=[], exact=not is_kept)
    elif edited.before is None or _digest_data(edited.before) != record.written:
        record.exact = False
    record.written, record.values = (
        _digest_data(edited.after),
        _telemetry_and_hook_values(assistant, edited.after),
    )
    record_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_private_file(record_path, msgspec.json.encode(record).decode())
    try:
        edited.path.parent.mkdir(parents=True, exist_ok=True)
        _replace_file(edited.path, edited.after, _file_mode(edited.path))
    except OSError:
        # the file did not exist and was not created, so a file that appears later belongs to the user
        if not record.existed:
            record_path.unlink()
        raise
    return replace(edited, backup=backup if record.existed else None)


def undo_settings(directory: Path, assistant: Assistant, path: Path) -> EditedSettings:
    """Restore the file as it was before the first `write`. Raises NotEditable if there was no `write`."""
    path = path.resolve()
    record_path = _path_of_edit_record(directory, assistant, path)
    record = _read_edit_record(record_path)
    if record is None:
        raise NotEditable(f"{path} was not changed by --write, so there is nothing to undo")
    backup = path.with_name(path.name + BACKUP)
    original = _read_file(backup) if record.existed else None
    before = _read_file(path)
    untouched = before is not None and record.exact and _digest_data(before) == record.written
    if untouched and (original is not None or not record.existed):
        after = original
    else:
        after = _without_own_values(assistant, before, original, record.values)
    if after is None:
        path.unlink(missing_ok=True)
    else:
        _replace_file(path, after, _file_mode(path))
    backup.unlink(missing_ok=True)
    record_path.unlink()
    return EditedSettings(path=path, before=before, after=after)


def _telemetry_and_hook_values(assistant: Assistant, data: bytes) -> list[tuple[list[str], Any]]:
    editor, text = assistant.editor, _decode_text(data)
    hooks = [(event, own_hook_entries(editor.get_value(text, event))) for event in assistant.hook_paths]
    values = [*((key, editor.get_value(text, key)) for key in assistant.keys("")), *hooks]
    return [(list(key), value) for key, value in values]


def _without_own_values(
    assistant: Assistant, present: bytes | None, original: bytes | None, values: list[tuple[list[str], Any]]
) -> bytes | None:
    """
    Restore each telemetry key that still has the value that Tollhouse wrote, and remove empty tables
    that it created.

    If the backup was deleted, the keys are removed, and their original values are not restored.
    """
    if present is None:
        return None
    editor, text, old = assistant.editor, _decode_text(present), _decode_text(original)
    for key, written in values:
        old_value, present_value = editor.get_value(old, key), editor.get_value(text, key)
        if tuple(key) in assistant.hook_paths:  # only the entry of Tollhouse is removed from a list of hooks
            old_value, written = hooks_without_entries(present_value, written), present_value
        if present_value != written:
            continue  # the user has changed this key since Tollhouse wrote it
        if old_value is MISSING:
            text = editor.remove_value(text, key)
            if (
                len(key) > 1
                and editor.get_value(text, key[:-1]) == {}
                and editor.get_value(old, key[:-1]) is MISSING
            ):
                text = editor.remove_value(text, key[:-1])
        elif old_value != written:
            text = editor.put_value(text, key, old_value)
    return text.encode()


def _read_file(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _decode_text(data: bytes | None) -> str:
    try:
        return (data or b"").decode("utf-8")
    except UnicodeDecodeError:
        raise NotEditable("it is not UTF-8") from None


def _file_mode(path: Path) -> int:
    try:
        return path.stat().st_mode & 0o777
    except FileNotFoundError:
        return NEW_FILE_MODE


def _replace_file(path: Path, data: bytes, mode: int) -> None:
    """Replace the file by renaming a draft, so that a reader sees either the old or the new file."""
    draft = path.with_name(f"{path.name}.tollhouse-new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        if sys.platform != "win32":
            os.fchmod(file.fileno(), mode)  # the mode at creation is without the bits of umask
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    replace_file(draft, path)


def _path_of_edit_record(directory: Path, assistant: Assistant, path: Path) -> Path:
    return directory / FOLDER / f"{assistant.name}-{_digest_data(str(path).encode())[:12]}.json"


def _read_edit_record(record_path: Path) -> _EditRecord | None:
    try:
        return msgspec.json.decode(record_path.read_bytes(), type=_EditRecord)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise NotEditable(
            f"{record_path} is damaged: restore the file by hand from its backup next to it"
        ) from error


def _digest_data(data: bytes) -> str:
    return sha256(data).hexdigest()


def _diff_lines(edited: EditedSettings) -> Iterator[str]:
    old_lines, new_lines = (
        _decode_text(data).splitlines(keepends=True) for data in (edited.before, edited.after)
    )
    old_name, new_name = (
        str(edited.path) if data is not None else "/dev/null" for data in (edited.before, edited.after)
    )
    for line in difflib.unified_diff(old_lines, new_lines, old_name, new_name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"

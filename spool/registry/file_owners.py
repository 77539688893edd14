"""
The files that manage objects. Such an object is changed only by applying its file.

People or keys created the objects that are not listed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spool.errors import Managed
from spool.registry.changes import RegistryChangeWriter
from spool.registry.documents import DocumentCollection
from spool.registry.following import ChangedRowId
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaringFile:
    """
    Where a set of files declares an object. `id`: the kind and the id of the object. `secret_file`: the file
    with the object's secret.
    """

    id: str
    set: str
    file: str
    line: int
    secret_file: str = ""

    @property
    def set_name_file_and_line(self) -> str:
        return f"{self.set}, {self.file}:{self.line}"

    def managed_by_file_error(self) -> Managed:
        return Managed(
            f"managed by {self.set_name_file_and_line}. Change that file and apply it, or take the object out with "
            "`tollhouse apply --release`"
        )


FILE_OWNERS = DocumentCollection("file_owner", DeclaringFile, "owner of an object")


def owner_document_id(action_prefix: str, id: str) -> str:
    """
    Return the id under which the owner of an object is stored. `action_prefix`: the part of its audit actions before
    the dot.
    """
    return f"{action_prefix} {id}"


def check_unmanaged(
    change_writer: RegistryChangeWriter, registry_rows: RegistryRows, action_prefix: str, id: str
) -> None:
    """Raise Managed if a file manages the object. In a draft, which applies files, do nothing."""
    if change_writer.is_draft:
        return
    owner = FILE_OWNERS.find(registry_rows, owner_document_id(action_prefix, id))
    if owner is not None:
        raise owner.managed_by_file_error()


class FileOwnerTable:
    """
    The objects that files manage, all in memory. Changes here have no audit rows, because the objects have
    them.
    """

    announced_subjects: tuple[ChangedRowId, ...] = (FILE_OWNERS.announced_subject,)

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self._owners: Mapping[str, DeclaringFile] = {}

    async def load(self) -> None:
        self._owners = await self._changes.read(FILE_OWNERS.all)

    def all(self) -> Mapping[str, DeclaringFile]:
        """Return the owners by id. Every change creates a new mapping."""
        return self._owners

    def check_unmanaged(self, action_prefix: str, id: str) -> None:
        """
        Raise Managed if a file of configuration manages the object, as far as this process knows. In an
        uncommitted draft of changes, do nothing.
        """
        owner = self._owners.get(owner_document_id(action_prefix, id))
        if owner is not None and not self._changes.is_draft:
            raise owner.managed_by_file_error()

    async def store_owner(self, declaring_file: DeclaringFile) -> None:
        await self._changes.change_rows(
            lambda rows: FILE_OWNERS.store_row(rows, declaring_file),
            lambda _: self._set_owners({**self._owners, declaring_file.id: declaring_file}),
        )

    async def release_object(self, declaring_file: DeclaringFile, *, actor: Actor) -> None:
        """Let people change the object again."""
        now = self._changes.now()
        left = {id: other for id, other in self._owners.items() if id != declaring_file.id}

        def delete_owner(registry_rows: RegistryRows) -> None:
            FILE_OWNERS.delete(registry_rows, declaring_file.id)
            registry_rows.add_audit(
                now,
                actor,
                "files.release",
                declaring_file.id,
                before={"file": declaring_file.set_name_file_and_line},
            )

        await self._changes.change_rows(delete_owner, lambda _: self._set_owners(left))

    async def delete_owner(self, id: str) -> None:
        left = {other: owner for other, owner in self._owners.items() if other != id}
        await self._changes.change_rows(
            lambda rows: FILE_OWNERS.delete(rows, id), lambda _: self._set_owners(left)
        )

    def _set_owners(self, owners: Mapping[str, DeclaringFile]) -> None:
        self._owners = owners

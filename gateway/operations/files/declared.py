"""How files name the objects of a resource. Everything else about its file follows from its fields and its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

FOLDERS = ("allocation",)  # kinds of settings with a folder, which has one file for each object


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceFiles:
    """
    The file of a resource, `NAME.yaml`, or its folder of files, `NAME/KEY.yaml`.

    `key` are the fields that identify an object. `refers` maps a field to the file with the objects that the field
    names. A field of a field is written as `connections.notify`. With `ignores_case`, two keys that differ only in
    case are the same. With `keeps_order`, the order of creation matters, so the file has that order. The lists in
    `unordered` are equal in any order.
    """

    name: str
    key: tuple[str, ...] = ("name",)
    refers: Mapping[str, str] = field(default_factory=dict)
    ignores_case: bool = True
    keeps_order: bool = False
    unordered: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        return self.name in FOLDERS

    def has_objects_in_file(self, file: str) -> bool:
        """Return whether a file contains objects of this kind, by its name or its folder."""
        if self.is_folder:
            return file.startswith(f"{self.name}/")
        return file == f"{self.name}.yaml"


@dataclass(frozen=True, slots=True)
class NoResourceFiles:
    """A resource that is in no file, with the reason."""

    reason: str

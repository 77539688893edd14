"""
The least that a document of each kind has since the first release, in `kept_documents.json`.

`python -m tests.spool.registry.kept_documents` adds the kinds that the file lacks, from the required fields of their
rows. It never changes a kind that the file has.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Annotated, Any, get_args, get_origin

import msgspec

import spool.registry
from gateway.operations.list import RESOURCES
from spool.registry.documents import DocumentCollection, StoredForm
from spool.registry.field_notes import Example

FILE = Path(__file__).with_name("kept_documents.json")
KEPT: Mapping[str, Mapping[str, Any]] = json.loads(FILE.read_text())


def kinds() -> Iterator[DocumentCollection[Any]]:
    """Yield every kind of document that a module of the registry or a resource declares."""
    packages = walk_packages(spool.registry.__path__, "spool.registry.")
    own = [found.name for found in packages if not found.ispkg]
    for module in (*own, *(each.fields for each in RESOURCES.values())):
        yield from kinds_in(module)


def kinds_in(module: str) -> Iterator[DocumentCollection[Any]]:
    for value in vars(import_module(module)).values():
        kind = getattr(value, "kind", value)
        if isinstance(kind, DocumentCollection):
            yield kind


def least_document(row: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the required fields of a row with their examples, or with a value of their type."""
    made: dict[str, Any] = {}
    for field in msgspec.structs.fields(row):
        kind, *notes = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
        examples = [note.value for note in notes if isinstance(note, Example)]
        value = examples[0] if examples else {str: "x", float: 1.0, int: 1, bool: False}.get(kind, [])
        forms = [
            note for note in notes if isinstance(note, StoredForm)
        ]  # a document always has their members
        if forms:
            made |= forms[0].to(value)
        elif field.required:
            made[field.encode_name] = value
    return made


def missing_kinds() -> dict[str, dict[str, Any]]:
    return {kind.name: least_document(kind.row) for kind in kinds() if kind.name not in KEPT}


if __name__ == "__main__":
    rows = {**KEPT, **missing_kinds()}
    lines = [f"  {json.dumps(name)}: {json.dumps(rows[name])}" for name in sorted(rows)]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")

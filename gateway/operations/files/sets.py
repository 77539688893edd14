"""
A set of files: its objects, each with its place, before they are compared with the stored ones.

All faults are collected, so that they are reported together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain
from typing import Any
from urllib.parse import quote

import msgspec

from gateway.configuration.sections import FileSetLimits
from gateway.core.faults import DefinitionFaults, InvalidDefinition, Path
from gateway.core.yaml_text import Places, YamlNode, read_yaml
from gateway.operations.files.kinds import Key, ObjectFileHandler, file_kinds, object_label
from gateway.operations.files.text import (
    convert_fields,
    format_fields,
    format_objects,
    inspect_struct_type,
    suggestion,
    without_defaults,
)
from spool.errors import Invalid
from spool.registry.file_owners import DeclaringFile, owner_document_id
from spool.registry.registry import Registry
from spool.registry.texts import check_text

HEAD = "tollhouse.yaml"  # name of the file that states the name of the set of settings files
FORMAT = "1"
MAX_SET = 64
SECRET_FILE = "secret_file"
DEFAULT_SET = "tollhouse"
MAX_TEXT = 300  # maximum characters of a file name or a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A problem at a place of a file. Line and column count from 1. `object` is "" if it could not be read."""

    file: str
    line: int = 1
    column: int = 1
    object: str = ""
    message: str

    @property
    def text(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSetObject:
    """
    An object as a file states it. `places` has the line and column of each field, by its path within the
    object.
    """

    kind: ObjectFileHandler
    key: Key
    fields: Mapping[str, Any]
    places: Mapping[Path, tuple[int, int]]
    secret_file: str
    file: str

    @property
    def first_line_number(self) -> int:
        return self.places[()][0]

    def problem_at(self, message: str, path: Path = ()) -> Problem:
        label = f"{self.kind.noun} {object_label(self.key)}".rstrip()[:MAX_TEXT]
        return replace(_problem_at(self.file, self.places, path, message), object=label)


class Problems:
    """The problems of a set within its limits: the first `max_problems`, and the number of the others."""

    def __init__(self, limits: FileSetLimits) -> None:
        self.limits = limits
        self.first: list[Problem] = []
        self.left_out = 0

    def append(self, problem: Problem) -> None:
        if len(self.first) < self.limits.max_problems:
            file, message = problem.file[:MAX_TEXT], problem.message[:MAX_TEXT]
            self.first.append(replace(problem, file=file, message=message))
        else:
            self.left_out += 1

    def extend(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            self.append(problem)

    @property
    def texts(self) -> list[str]:
        more = [f"and {self.left_out:,} more problems"] if self.left_out else []
        return [*(problem.text for problem in self.first), *more]

    def __bool__(self) -> bool:
        return bool(self.first)


@dataclass(frozen=True, kw_only=True)
class FileSet:
    problems: Problems
    digest: str = ""
    name: str = ""
    objects: list[FileSetObject] = field(default_factory=list)


def read_file_set(files: Mapping[str, str], limits: FileSetLimits) -> FileSet:
    """
    Read a set of files by name. Faults are in `problems` of the result. This is slow, so call it outside the event
    loop.
    """
    problems = Problems(limits)
    if len(files) > limits.max_objects:
        problems.append(_too_many(limits, "files", len(files)))
        return FileSet(problems=problems)
    name = _read_name_of_file_set(files, problems)
    digest = sha256(msgspec.json.encode(files, order="deterministic")).hexdigest()
    found = FileSet(name=name, problems=problems, digest=digest)
    named = sorted(file for file in files if len(file) <= MAX_TEXT)
    for file in files.keys() - set(named):
        message = f"a file name may have at most {MAX_TEXT} characters"
        problems.append(Problem(file=file, message=message))
    of_kinds = {
        kind: [file for file in named if kind.files.has_objects_in_file(file)]
        for kind in file_kinds().values()
    }
    for file in sorted(set(named) - {HEAD, *chain(*of_kinds.values())}):
        known = [f"{kind}.yaml" for kind in file_kinds()]
        message = f"no such kind of objects{suggestion(file, known)}"
        problems.append(Problem(file=file, message=message))
    for kind, names in of_kinds.items():
        read_objects = _read_file_as_one_object if kind.files.is_folder else _read_objects
        for file in names:
            found.objects.extend(read_objects(kind, file, files[file], problems))
    if len(found.objects) > limits.max_objects:
        problems.append(_too_many(limits, "objects", len(found.objects)))
        found.objects.clear()
    return found


def _too_many(limits: FileSetLimits, noun: str, count: int) -> Problem:
    message = f"a set may have at most {limits.max_objects:,} {noun} (files.max_objects), but this one has {count:,}"
    return Problem(file=HEAD, message=message)


def _read_file_as_one_object(
    file_handler: ObjectFileHandler, file: str, text: str, _: Problems
) -> Iterator[FileSetObject]:
    places: Places = {(): (1, 1)}
    # only positions are needed here, because the text is checked as an object of its kind
    with suppress(InvalidDefinition):
        read_yaml(text.encode(), DefinitionFaults(), places)
    name = file.removeprefix(f"{file_handler.files.name}/").removesuffix(".yaml")
    fields = dict(zip(file_handler.field_names, (name, text), strict=True))
    yield FileSetObject(
        kind=file_handler, key=(name,), fields=fields, places=places, secret_file="", file=file
    )


def _read_name_of_file_set(files: Mapping[str, str], problems: Problems) -> str:
    if HEAD not in files:
        message = f"this file is missing; write `set: NAME` and `format: {FORMAT}` to it"
        problems.append(Problem(file=HEAD, message=message))
        return ""
    node, places = _read_yaml(HEAD, files[HEAD], problems)
    head = node if isinstance(node, dict) else {}
    fields = ("set", "format")
    for name in [name for name in head if name not in fields]:
        problems.append(
            _problem_at(HEAD, places, (name,), f"unknown field {name[:60]!r}{suggestion(name, fields)}")
        )
    if head.get("format") != FORMAT:
        problems.append(_problem_at(HEAD, places, ("format",), f"format must be {FORMAT}"))
    try:
        return check_text("set", str(head.get("set") or ""), MAX_SET)
    except Invalid as error:
        problems.append(_problem_at(HEAD, places, ("set",), str(error)))
        return ""


def _read_objects(
    file_handler: ObjectFileHandler, file: str, text: str, problems: Problems
) -> Iterator[FileSetObject]:
    node, places = _read_yaml(file, text, problems)
    if node is not None and not isinstance(node, list):
        problems.append(_problem_at(file, places, (), f"this must be a list of {file_handler.noun}s"))
    lines: dict[Key, int] = {}
    own_places: dict[str | int, Places] = defaultdict(dict)
    for path, place in places.items():
        if path:
            own_places[path[0]][path[1:]] = place
    for index, item in enumerate(node if isinstance(node, list) else ()):
        one = _read_object(file_handler, file, item, own_places[index], problems)
        if one is None:
            continue
        before = lines.setdefault(file_handler.normalized_key(one.key), one.first_line_number)
        if before != one.first_line_number:
            problems.append(
                one.problem_at(
                    f"the {file_handler.noun} {object_label(one.key)!r} already stands in line {before}"
                )
            )
        else:
            yield one


def _read_object(
    file_handler: ObjectFileHandler, file: str, item: YamlNode, object_places: Places, problems: Problems
) -> FileSetObject | None:
    faults = DefinitionFaults()
    known = (*file_handler.field_names, *((SECRET_FILE,) if file_handler.has_secret else ()))
    fields = dict(convert_fields(item, file_handler.file_struct, faults, known_names=known))
    required = [each.name for each in inspect_struct_type(file_handler.file_struct).fields if each.required]
    for name in required:
        if isinstance(item, dict) and name not in item:
            faults.add_fault(f"the field {name} is missing", "", ())
    secret_file = fields.pop(SECRET_FILE, "")
    if not isinstance(secret_file, str):
        faults.add_fault(f"{SECRET_FILE} must be a text", "", (SECRET_FILE,))
    elif isinstance(item, dict) and SECRET_FILE in item and not secret_file:
        faults.add_fault(f"{SECRET_FILE} is empty; name a file, or remove the line", "", (SECRET_FILE,))
    for error, _, path in faults.found_faults:
        problems.append(_problem_at(file, object_places, tuple(path), error))
    if faults.found_faults:
        return None
    key = file_handler.object_key_of_fields(fields)
    return FileSetObject(
        kind=file_handler,
        key=key,
        fields=fields,
        places=object_places,
        secret_file=str(secret_file),
        file=file,
    )


def _read_yaml(file: str, text: str, problems: Problems) -> tuple[YamlNode, Places]:
    faults = DefinitionFaults()
    places: Places = {}
    try:
        node = read_yaml(
            text.encode(), faults, places, marks_unquoted_values=True, max_items=problems.limits.max_objects
        )
    except InvalidDefinition as error:
        line, column = error.place
        message = str(error).partition(" (line ")[0]
        problems.append(Problem(file=file, line=line, column=column, message=message))
        return None, places
    for error_text, _, path in faults.found_faults:
        problems.append(_problem_at(file, places, tuple(path), error_text))
    return node, places


def _problem_at(file: str, places: Mapping[Path, tuple[int, int]], path: Path, message: str) -> Problem:
    found = next((places[path[:end]] for end in range(len(path), -1, -1) if path[:end] in places), (1, 1))
    return Problem(file=file, line=found[0], column=found[1], message=message)


def secret_path(file_handler: ObjectFileHandler, key: Key) -> str:
    """
    Return the path below the directory of secrets for the secret of an object that names no secret file.
    """
    name = quote(object_label(key), safe=" @")
    return f"{file_handler.files.name}/{'%2E' + name[1:] if name.startswith('.') else name}"


async def files_from_registry(registry: Registry) -> Mapping[str, str]:
    """Write all objects of a registry as files. A kind without objects has no file."""
    owners = registry.file_owners.all()
    sets = {owner.set for owner in owners.values()}
    name = sets.pop() if len(sets) == 1 else DEFAULT_SET
    files = {HEAD: format_fields({"set": name, "format": int(FORMAT)})}
    for file, kind in file_kinds().items():
        objects: dict[Key, Mapping[str, Any]] = {}
        for id, row in (await kind.rows_by_id(registry)).items():
            fields = await kind.file_fields(registry, row)
            owner = owners.get(owner_document_id(kind.action, id))
            objects[kind.object_key_of_fields(fields)] = _fields_without_defaults(
                registry, kind, row, fields, owner
            )
        if kind.files.is_folder:
            files |= {
                f"{file}/{object_label(key)}.yaml": _file_text_of_folder_object(kind, objects[key])
                for key in sorted(objects)
            }
        elif objects:
            keys = objects if kind.files.keeps_order else sorted(objects)
            files[f"{file}.yaml"] = format_objects([objects[key] for key in keys])
    return files


async def notes_about_broken_objects(registry: Registry, known_dimensions: Collection[str]) -> list[str]:
    notes = []
    for kind in file_kinds().values():
        for row in (await kind.rows_by_id(registry)).values():
            if reason := kind.broken_reason(row, known_dimensions):
                label = object_label(kind.object_key_of_fields(await kind.file_fields(registry, row)))
                notes.append(f"{kind.noun} {label} is broken: {reason}")
    return notes


async def object_text(registry: Registry, file_handler: ObjectFileHandler, row: Any) -> str:
    fields = await file_handler.file_fields(registry, row)
    if file_handler.files.is_folder:
        return _file_text_of_folder_object(file_handler, fields)
    return format_objects(
        [
            _fields_without_defaults(
                registry, file_handler, row, fields, find_owner(registry, file_handler, row)
            )
        ]
    )


def find_owner(registry: Registry, file_handler: ObjectFileHandler, row: Any) -> DeclaringFile | None:
    return registry.file_owners.all().get(owner_document_id(file_handler.action, file_handler.id_of(row)))


def _file_text_of_folder_object(file_handler: ObjectFileHandler, fields: Mapping[str, Any]) -> str:
    return str(fields[file_handler.field_names[-1]])


def _fields_without_defaults(
    registry: Registry,
    file_handler: ObjectFileHandler,
    row: Any,
    fields: Mapping[str, Any],
    declaring_file: DeclaringFile | None,
) -> Mapping[str, Any]:
    short = {
        name: without_defaults(value, file_handler.types[name])
        for name, value in fields.items()
        if not file_handler.has_only_default_values(registry, row, {name: value})
    }
    secret_file = declaring_file.secret_file if declaring_file is not None else ""
    if not secret_file and file_handler.needs_secret(row):
        secret_file = secret_path(file_handler, file_handler.object_key_of_fields(fields))
    return {**short, SECRET_FILE: secret_file} if secret_file else short

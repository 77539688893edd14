"""
Apply a set of files to a draft of the registry, and state each difference in words.

An object that files state and that does not exist is created; an object of this set that no file states any more is
deleted. Objects of other sets, or made by hand, are never changed unless they are adopted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from msgspec import ValidationError
from multidict import MultiDict

from gateway.core.errors import Refusal
from gateway.core.faults import InvalidDefinition, Path
from gateway.money.allocation.declared import AllocationTable
from gateway.money.allocation.definition import PREFIX
from gateway.operations.files.kinds import (
    Key,
    MoneyCaller,
    ObjectFields,
    ObjectFileHandler,
    file_kinds,
    object_label,
)
from gateway.operations.files.sets import FileSet, FileSetObject, Problem, Problems, secret_path
from gateway.operations.files.text import suggestion
from gateway.operations.managed import OperationCaller
from gateway.operations.services import OperatorServices
from spool.engines import empty_registry_store
from spool.errors import NotAllowed, NotThere
from spool.registry.audit import AuditedChange
from spool.registry.file_owners import DeclaringFile, owner_document_id
from spool.registry.operators import Actor
from spool.registry.registry import Registry

CREATED, CHANGED, DELETED, ADOPTED = "create", "change", "delete", "adopt"
NOTED, CONFLICT = "note", "conflict"
OWN_DIMENSIONS = (PREFIX, "tag:")  # prefixes of the dimensions that each installation has for itself
SIGNS = {CREATED: "+", CHANGED: "~", DELETED: "-", ADOPTED: "~", NOTED: ".", CONFLICT: "!"}
Rights: TypeAlias = set[str]  # permission sets
_REFUSED = (NotAllowed, NotThere, Refusal, ValidationError)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDifference:
    """A difference between the files and the registry, with a text (`words`) about the change."""

    action: str
    kind: str
    name: str
    words: str = ""

    @property
    def text(self) -> str:
        named = f"{SIGNS[self.action]} {self.kind} {self.name}".rstrip()
        return f"{named}: {self.words}" if self.words else named


@dataclass(kw_only=True)
class ApplyOutcome:
    """
    The result of applying a set of resource files. `conflicts` are resources that the set may not change.
    `new_secrets` are the files to which new secrets are to be written. `rights` are the permission sets that the
    changes need, and `missing_rights` those that the person lacks.
    """

    set: str
    problems: Problems
    differences: list[FileDifference] = field(default_factory=list)
    conflicts: list[FileDifference] = field(default_factory=list)
    new_secrets: list[str] = field(default_factory=list)
    rights: Rights = field(default_factory=Rights)
    missing_rights: Rights = field(default_factory=Rights)

    @property
    def is_valid(self) -> bool:
        return not self.problems and not self.conflicts and not self.missing_rights

    @property
    def changes(self) -> list[FileDifference]:
        return [difference for difference in self.differences if difference.action != NOTED]


@dataclass(frozen=True, kw_only=True)
class ApplyOptions:
    """
    The options of applying a set. `secrets` maps the secret files that objects name to their contents. `rights` are
    the permission sets of the person; None means all, for the start of a server. `on_empty`: compare with an
    installation without objects, in a dry run. Then each named secret counts as present, because no export has it.
    """

    dry_run: bool = False
    on_empty: bool = False
    adopt: bool = False
    secrets: Mapping[str, str] = field(default_factory=dict)
    rights: Collection[str] | None = None


async def apply_file_set(
    services: OperatorServices, files: FileSet, options: ApplyOptions, *, actor: Actor
) -> ApplyOutcome:
    """
    Apply a set in one transaction. If something is wrong, or in a dry run, nothing is changed.

    Raises Refusal 503 while the registry cannot be read.
    """
    registry = services.installation.require_registry()
    in_force = set(_dimensions_in_force(registry))
    known = [name for name in services.money.ledger.dimensions() if name not in in_force]

    async def apply_files_to_draft(draft: Registry) -> ApplyOutcome:
        draft.kept_channels.be_draft_of(registry.kept_channels, keeps_secrets=options.on_empty)
        lost: set[str] = set()
        caller = _caller_that_writes_to_draft(services, draft, actor, known, lost)
        outcome = await _ApplyRun(caller, files, options, lost).run()
        if options.rights is not None:
            outcome.missing_rights = outcome.rights - set(options.rights)
        if outcome.changes and outcome.is_valid:
            counts = {action: sum(each.action == action for each in outcome.changes) for action in SIGNS}
            after = {"digest": files.digest, **{action: count for action, count in counts.items() if count}}
            await draft.audit_changes(
                [AuditedChange(actor=actor, action="files.apply", target=files.name, after=after)]
            )
        return outcome

    if options.on_empty:
        return await registry.run_on_empty_draft(apply_files_to_draft, empty_registry_store())
    return await registry.run_on_draft(
        apply_files_to_draft, lambda outcome: outcome.is_valid and not options.dry_run
    )


def _caller_that_writes_to_draft(
    services: OperatorServices,
    draft: Registry,
    actor: Actor,
    known_names: Collection[str],
    lost_names: Collection[str],
) -> MoneyCaller:
    """Return a caller. `lost_names`: dimensions that objects may name although they no longer exist."""
    money, shared = copy(services.money), copy(services.installation)
    money.registry = shared.registry = draft
    money.billing_connections = money.billing_connections.with_registry(draft)

    async def known_dimensions() -> Collection[str]:
        return [*known_names, *_dimensions_in_force(draft), *lost_names]

    return OperationCaller(
        services=money, shared=shared, actor=actor, query=MultiDict(), known=known_dimensions
    )


def _dimensions_in_force(registry: Registry) -> list[str]:
    versions = registry.declared_table(AllocationTable).versions_in_force().values()
    return [id for version in versions for id in version.dimensions]


class _ApplyRun:
    def __init__(
        self, caller: MoneyCaller, files: FileSet, options: ApplyOptions, lost_names: set[str]
    ) -> None:
        self._asking = caller
        self._lost_names = lost_names
        self._draft = caller.registry
        self._files = files
        self._how = options
        self._outcome = ApplyOutcome(set=files.name, problems=files.problems)
        self._ids: dict[str, dict[Key, str]] = {}  # file -> key -> id of an object
        self._stated: dict[str, dict[Key, FileSetObject]] = {name: {} for name in file_kinds()}
        for one in files.objects:
            self._stated[one.kind.files.name][one.kind.normalized_key(one.key)] = one

    async def run(self) -> ApplyOutcome:
        """
        Apply the set. Objects are deleted first, because this makes room for others and frees what no second
        object may have, such as its secret. An object that others refer to is deleted last.
        """
        named = [each for each in await self._objects_without_file() if await self._delete_object(*each)]
        deleted, self._outcome.differences = self._outcome.differences, []
        for name, kind in file_kinds().items():
            await self._apply_kind(name, kind)
        self._outcome.differences += deleted
        for each in named:
            self._outcome.problems.extend(await self._delete_object(*each))
        await self._note_problems_of_kinds()
        return self._outcome

    async def _objects_without_file(self) -> Sequence[tuple[ObjectFileHandler, str, DeclaringFile]]:
        """Return the objects of this set that no file states any more, those that refer to others first."""
        owners = self._draft.file_owners.all()
        found = []
        for name, kind in reversed(tuple(file_kinds().items())):
            for id, row in (await kind.rows_by_id(self._draft)).items():
                owner = owners.get(owner_document_id(kind.action, id))
                if owner is None or owner.set != self._files.name:
                    continue
                key = kind.normalized_key(kind.object_key_of_fields(await kind.file_fields(self._draft, row)))
                if key not in self._stated[name]:
                    found.append((kind, id, owner))
        return found

    async def _apply_kind(self, name: str, file_handler: ObjectFileHandler) -> None:
        """
        Make all objects of a kind equal to their files. A refused object is tried again after the others,
        because it may need one of them.
        """
        rows = await file_handler.rows_by_id(self._draft)
        written = {id: await file_handler.file_fields(self._draft, row) for id, row in rows.items()}
        self._ids[name] = {
            file_handler.normalized_key(file_handler.object_key_of_fields(fields)): id
            for id, fields in written.items()
        }
        waiting, tried = self._stated[name], 0
        problems: list[Problem] = []
        while len(waiting) != tried:
            tried, problems, refused = len(waiting), [], {}
            for key, one in waiting.items():
                id = self._ids[name].get(key)
                if found := await self._apply_object(one, id, written.get(id or "", {})):
                    problems += found
                    refused[key] = one
            waiting = refused
        self._outcome.problems.extend(problems)

    async def _note_problems_of_kinds(self) -> None:
        for name, kind in file_kinds().items():
            try:
                await kind.check_objects_agree(self._asking)
            except InvalidDefinition as error:
                where = next(iter(self._stated[name].values()), None)
                file = f"{name}.yaml" if where is None else where.file
                message = "; ".join(fault.error for fault in error.faults)
                self._outcome.problems.append(Problem(file=file, message=message))

    async def _apply_object(
        self, file_set_object: FileSetObject, id: str | None, were: ObjectFields
    ) -> Sequence[Problem]:
        unknown = list(self._problems_of_unknown_references(file_set_object))
        if unknown or self._needs_refused_object(file_set_object):
            return unknown
        known = set(await self._asking.known())
        try:
            named = _own_dimensions_named_in(file_set_object.kind.named_values(file_set_object.fields))
            self._lost_names.update(named - known)
            await (
                self._create_object(file_set_object)
                if id is None
                else self._change_object(file_set_object, id, were)
            )
            await self._note_if_broken(file_set_object, known)
        except InvalidDefinition as error:
            return [file_set_object.problem_at(fault.error, tuple(fault.path)) for fault in error.faults]
        except _REFUSED as error:
            return [file_set_object.problem_at(str(error), _path_of_named_field(file_set_object, str(error)))]
        finally:
            self._lost_names.clear()
        return ()

    async def _note_if_broken(self, file_set_object: FileSetObject, known: Collection[str]) -> None:
        kind, key = file_set_object.kind, file_set_object.key
        id = self._ids[kind.files.name].get(kind.normalized_key(key))
        if not self._lost_names or id is None:
            return
        if reason := kind.broken_reason(await kind.find(self._draft, id), known):
            self._add_difference(NOTED, kind, key, f"is broken: {reason}")

    def _problems_of_unknown_references(self, file_set_object: FileSetObject) -> Iterator[Problem]:
        for path, file in file_set_object.kind.files.refers.items():
            target = file_kinds()[file]
            for place, name in _texts_at_path(file_set_object.fields, tuple(path.split("."))):
                known = target.known_names(self._draft)
                key = target.normalized_key((name,))
                if name in known or key in self._ids[file] or key in self._stated[file]:
                    continue
                found = {
                    target.object_key_of_fields(stated.fields)[0] for stated in self._stated[file].values()
                }
                message = f'{target.noun} "{name[:60]}" does not exist{suggestion(name, [*known, *found])}'
                yield file_set_object.problem_at(message, place)

    def _needs_refused_object(self, file_set_object: FileSetObject) -> bool:
        for path, file in file_set_object.kind.files.refers.items():
            for _, name in _texts_at_path(file_set_object.fields, tuple(path.split("."))):
                key = file_kinds()[file].normalized_key((name,))
                if key in self._stated[file] and key not in self._ids[file]:
                    return True
        return False

    async def _create_object(self, file_set_object: FileSetObject) -> None:
        kind = file_set_object.kind
        secret = self._find_secret(file_set_object, is_new=True)
        id = await kind.create(
            self._asking, kind.creation_body(file_set_object.fields, self._find_id), secret
        )
        self._ids[kind.files.name][kind.normalized_key(file_set_object.key)] = id
        await self._store_owner(file_set_object, id)
        self._add_difference(CREATED, kind, file_set_object.key)

    async def _change_object(self, file_set_object: FileSetObject, id: str, were: ObjectFields) -> None:
        """Make an object equal to its file. `were` are all of its fields now."""
        kind, key = file_set_object.kind, file_set_object.key
        owner = self._draft.file_owners.all().get(owner_document_id(kind.action, id))
        is_own = owner is not None and owner.set == self._files.name
        if not is_own and not self._how.adopt:
            made = "made by hand" if owner is None else f"managed by {owner.set_name_file_and_line}"
            self._outcome.conflicts.append(_conflict_difference(kind, key, made))
            return
        before = await kind.find(self._draft, id)
        if not file_set_object.secret_file and kind.needs_secret(before):
            raise NotAllowed(f"secret_file is missing, because the {kind.noun} has a secret")
        keeps_secret = kind.needs_secret(before) and (
            not is_own or owner is None or owner.secret_file == file_set_object.secret_file
        )
        secret = self._find_secret(file_set_object, is_new=False, keeps_secret=keeps_secret)
        after, changes = before, []
        if secret is not None or not self._is_equal_to_file(file_set_object, before, were):
            await kind.change(
                self._asking, before, kind.creation_body(file_set_object.fields, self._find_id), secret
            )
            after = await kind.find(self._draft, id)
            changes = list(_describe_changes(were, await kind.file_fields(self._draft, after)))
        if kind.secret_version(after) != kind.secret_version(before):
            changes.append("another secret")
        await self._store_owner(file_set_object, id)
        if changes or not is_own:
            words = "; ".join(changes)
            self._add_difference(
                CHANGED if is_own else ADOPTED,
                kind,
                key,
                words if is_own else f"taken over; {words}".strip("; "),
            )
        if remark := kind.remark_in_apply_plan(after):
            self._add_difference(NOTED, kind, key, remark)

    def _is_equal_to_file(self, file_set_object: FileSetObject, row: Any, were: ObjectFields) -> bool:
        """Return whether an object equals its file. Such an object is not checked again."""
        left_out = {name: value for name, value in were.items() if name not in file_set_object.fields}
        kind = file_set_object.kind
        is_equal = all(
            kind.normalized_setting_value(name, were[name]) == kind.normalized_setting_value(name, value)
            for name, value in file_set_object.fields.items()
        )
        return is_equal and kind.has_only_default_values(self._draft, row, left_out)

    async def _delete_object(
        self, file_handler: ObjectFileHandler, id: str, declaring_file: DeclaringFile
    ) -> Sequence[Problem]:
        row = await file_handler.find(self._draft, id)
        key = file_handler.object_key_of_fields(await file_handler.file_fields(self._draft, row))
        try:
            await file_handler.delete(self._asking, row)
        except _REFUSED as error:
            label = f"{file_handler.noun} {object_label(key)!r}"
            message = f"the {label} is no longer in the files, but cannot be deleted: {error}"
            return [Problem(file=declaring_file.file, line=declaring_file.line, message=message)]
        await self._draft.file_owners.delete_owner(declaring_file.id)
        self._add_difference(DELETED, file_handler, key)
        return ()

    def _add_difference(
        self, action: str, file_handler: ObjectFileHandler, key: Key, description: str = ""
    ) -> None:
        if action != NOTED:
            self._outcome.rights.add(file_handler.changes)
        self._outcome.differences.append(
            FileDifference(action=action, kind=file_handler.noun, name=object_label(key), words=description)
        )

    def _find_id(self, file: str, name: str) -> str:
        return self._ids[file].get(file_kinds()[file].normalized_key((name,)), "")

    def _find_secret(
        self, file_set_object: FileSetObject, *, is_new: bool, keeps_secret: bool = False
    ) -> str | None:
        """
        Return the secret to set, or None if the object has none or keeps it. Raises NotAllowed if the secret
        is missing or empty. `keeps_secret`: the object has a secret, which stays while the file is missing.
        """
        kind, path = file_set_object.kind, file_set_object.secret_file
        if not path and is_new and kind.makes_secrets:
            path = secret_path(kind, file_set_object.key)
        if not path:
            return None
        if path in self._how.secrets:
            secret = self._how.secrets[path].strip("\r\n")
            if not secret.strip():
                raise NotAllowed(f"secret_file: {path!r} is empty")
            return secret
        if self._how.on_empty:
            return kind.new_secret() if kind.makes_secrets else None
        if file_set_object.secret_file:
            if keeps_secret and not self._how.dry_run:
                remark = f"keeps its secret, because there is no file {path!r}"
                self._add_difference(NOTED, kind, file_set_object.key, remark)
            elif is_new or not self._how.dry_run:
                raise NotAllowed(f"secret_file: {path!r} was not found")
            return None
        if path not in self._outcome.new_secrets:
            self._outcome.new_secrets.append(path)
        if self._how.dry_run:
            return kind.new_secret()
        raise NotAllowed(
            f"a new {kind.noun} needs `secret_file`, or a directory for its new secret with --secrets"
        )

    async def _store_owner(self, file_set_object: FileSetObject, id: str) -> None:
        owners = self._draft.file_owners
        owner = owner_document_id(file_set_object.kind.action, id)
        after = DeclaringFile(
            id=owner,
            set=self._files.name,
            file=file_set_object.file,
            line=file_set_object.first_line_number,
            secret_file=file_set_object.secret_file,
        )
        if after != owners.all().get(owner):
            await owners.store_owner(after)


def _conflict_difference(file_handler: ObjectFileHandler, key: Key, origin: str) -> FileDifference:
    return FileDifference(
        action=CONFLICT,
        kind=file_handler.noun,
        name=object_label(key),
        words=f"exists, {origin}; --adopt takes it over",
    )


def _own_dimensions_named_in(value: Any) -> set[str]:
    """
    Return the names of tags and of own dimensions in the fields of an object. If such a dimension no longer exists,
    the object is stored as broken, as it is on the server that exported it.
    """
    if isinstance(value, str):
        name = value.removeprefix("!")
        return {name} if name.startswith(OWN_DIMENSIONS) else set()
    if isinstance(value, dict):
        value = [*value.keys(), *value.values()]
    names: set[str] = set()
    for item in value if isinstance(value, list) else ():
        names |= _own_dimensions_named_in(item)
    return names


def _path_of_named_field(file_set_object: FileSetObject, message: str) -> Path:
    words = message.replace(":", " ").replace(".", " ").split()
    return (words[0],) if words and (words[0],) in file_set_object.places else ()


def _texts_at_path(fields: Any, path: Path) -> Iterator[tuple[Path, str]]:
    value = fields
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield (*path, index), item


def _describe_changes(before: Any, after: Any, field_path: str = "") -> Iterator[str]:
    if before == after:
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in dict.fromkeys((*before, *after)):
            place = f"{field_path}.{name}" if field_path else name
            if name not in after:
                yield f"{place} removed"
            elif name not in before:
                yield f"{place} {_format_value(after[name])} added"
            else:
                yield from _describe_changes(before[name], after[name], place)
    elif isinstance(before, list) and isinstance(after, list):
        yield from (f"{field_path} {_format_value(item)} removed" for item in before if item not in after)
        yield from (f"{field_path} {_format_value(item)} added" for item in after if item not in before)
        if sorted(map(str, before)) == sorted(map(str, after)):
            yield f"{field_path} in another order"
    else:
        yield f"{field_path} {_format_value(before)} -> {_format_value(after)}"


def _format_value(value: Any) -> str:
    if isinstance(value, str):
        return value if value and value.isprintable() else repr(value)
    if isinstance(value, dict):
        return " ".join(f"{name}={_format_value(item)}" for name, item in value.items()) or "{}"
    return "none" if value is None else str(value)

"""
Operator API of settings as files: show all of them, plan and apply a set, and release objects from their files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec

from gateway.core.errors import Refusal
from gateway.core.fields import build_answer, one_field_answer
from gateway.http.address import BodyLimit
from gateway.http.answers import JSON
from gateway.http.requests import Result
from gateway.operations.files.applying import ApplyOptions, ApplyOutcome, FileDifference, apply_file_set
from gateway.operations.files.kinds import ObjectFileHandler, file_kinds, object_label
from gateway.operations.files.sets import (
    MAX_TEXT,
    files_from_registry,
    find_owner,
    notes_about_broken_objects,
    object_text,
    read_file_set,
)
from gateway.operations.holders.operators import InstallationServices, MoneyServices
from gateway.operations.people.managed import operation_caller_for_person
from gateway.operations.requests.address import SIGNED_IN, SLICED, operator_call
from gateway.operations.requests.admission import missing_right_refusal
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from gateway.operations.services import OperatorServices
from spool.errors import Invalid, NotThere
from spool.registry.field_notes import example, words
from spool.registry.operators import Actor
from spool.registry.permission_sets import MODIFY_VIEWS_AND_BUDGETS, ORGANIZATION_ADMINISTRATION

_FILES_LIMIT = BodyLimit(
    "files.max_bytes",
    lambda services: services.installation.config().files.max_bytes,
    ("files.max_objects", lambda services: _max_texts(services.installation.config().files.max_objects)),
)


class FilesToApply(RequestBody):
    """A request to apply a set of files."""

    files: Annotated[
        dict[str, str],
        words("The text of each file, by its name."),
        example({"tollhouse.yaml": "set: platform\nformat: 1\n"}),
    ]
    dry_run: Annotated[bool, words("Only compare; change nothing."), example(True)] = False
    adopt: Annotated[
        bool, words("Take over objects of other sets, and objects made by hand."), example(False)
    ] = False
    on_empty: Annotated[
        bool,
        words(
            "Compare with an installation that has this configuration and no objects. Needs `dry_run`. The secrets "
            "that the files name count as present."
        ),
        example(False),
    ] = False
    secrets: Annotated[
        dict[str, str],
        words("The content of each file with a secret, by the path that the files name."),
        example({}),
    ] = msgspec.field(default_factory=dict)


def _max_texts(max_objects: int) -> int:
    """Return how many texts a request has if each object has a file and a secret of its own, each with a name."""
    return 4 * max_objects + len(FilesToApply.__struct_fields__)


class DifferenceItem(msgspec.Struct, kw_only=True):
    action: Annotated[
        str, words("`create`, `change`, `delete`, `adopt`, `note` or `conflict`."), example("create")
    ]
    kind: Annotated[str, words("The kind of the object."), example("view")]
    name: Annotated[str, words("The name of the object."), example("Search")]
    words: Annotated[
        str, words("Which fields change, or a note about the object. May be empty."), example("")
    ]
    text: Annotated[str, words("The line that `tollhouse plan` prints."), example("+ view Search")]


class ProblemItem(msgspec.Struct, kw_only=True):
    file: Annotated[str, words("The name of the file with the problem."), example("budgets.yaml")]
    line: Annotated[int, words("The line, from 1."), example(12)]
    column: Annotated[int, words("The column, from 1."), example(3)]
    object: Annotated[
        str,
        words("The kind and the name of the object with the problem, or empty."),
        example("budget Monthly"),
    ]
    message: Annotated[str, words("The problem."), example('view "Serch" does not exist')]


class LeftOutItems(msgspec.Struct, kw_only=True):
    differences: Annotated[int, words("The number of further differences."), example(0)]
    conflicts: Annotated[int, words("The number of further conflicts."), example(0)]
    problems: Annotated[int, words("The number of further problems."), example(0)]


class AppliedFiles(msgspec.Struct, kw_only=True):
    set: Annotated[str, words("The name of the set."), example("platform")]
    applied: Annotated[bool, words("Whether the changes are stored."), example(False)]
    differences: Annotated[list[DifferenceItem], words("What differs from the files."), example([])]
    conflicts: Annotated[list[DifferenceItem], words("Objects that the set may not change."), example([])]
    problems: Annotated[list[ProblemItem], words("What is wrong in the files."), example([])]
    left_out: Annotated[LeftOutItems, words("How many items the lists leave out, because they are too many.")]
    new_secrets: Annotated[list[str], words("The files that new secrets are to be written to."), example([])]
    permission_sets: Annotated[
        list[str],
        words("The permission sets that the changes need: those that people need to make them by hand."),
        example([MODIFY_VIEWS_AND_BUDGETS]),
    ]
    missing_permission_sets: Annotated[
        list[str], words("Those of them that you lack, so that nothing is applied."), example([])
    ]


class WrittenFiles(msgspec.Struct, kw_only=True):
    files: Annotated[
        dict[str, str],
        words("The text of each file, by its name."),
        example({"tollhouse.yaml": "set: tollhouse\nformat: 1\n"}),
    ]
    notes: Annotated[
        list[str],
        words("Objects that are broken, and are broken on another installation as well."),
        example(["view Search is broken: the dimension User:Defined:Owner is unknown"]),
    ]


class ObjectInFile(msgspec.Struct, kw_only=True):
    yaml: Annotated[str, words("The object as its file has it."), example("- name: Search\n")]
    managed: Annotated[
        str | None,
        words("The set, file and line that manage the object; null if people do."),
        example("platform, views.yaml:1"),
    ]


class ObjectToRelease(RequestBody):
    kind: Annotated[str, words("The file of the object, without `.yaml`."), example("views")]
    name: Annotated[str, words("The name of the object, as a plan prints it."), example("Search")]


@operator_call(
    "GET", "/files", ORGANIZATION_ADMINISTRATION, "Show all settings as files", gives={JSON: WrittenFiles}
)
async def show_files(request: OperatorRequest[MoneyServices, None]) -> Result:
    """Show all objects as the files that would create them, without secrets."""
    known = request.services.ledger.dimensions()
    return {
        "files": await files_from_registry(request.registry),
        "notes": await notes_about_broken_objects(request.registry, known),
    }


@operator_call(
    "GET",
    "/files/{kind}/{id}",
    SIGNED_IN,
    "Show an object as its file has it",
    gives={JSON: one_field_answer("OneObject", object=Annotated[ObjectInFile, words("The object.")])},
    shows=SLICED,
)
async def show_object(request: OperatorRequest[MoneyServices, None]) -> Result:
    """Show an object as YAML, without secrets, and the place of the file that manages it, or null."""
    kind = _require_kind(request.path_parameter("kind"))
    if kind.reads not in request.rights.permission_sets:
        raise missing_right_refusal(kind.reads)
    row = await kind.find_visible(
        operation_caller_for_person(request),
        request.path_parameter("id"),
        has_limited_data_access=request.has_limited_data_access,
    )
    owner = find_owner(request.registry, kind, row)
    managed = None if owner is None else owner.set_name_file_and_line
    return {"object": {"yaml": await object_text(request.registry, kind, row), "managed": managed}}


def _require_kind(kind_word: str) -> ObjectFileHandler:
    kind = file_kinds().get(kind_word)
    if kind is None:
        raise NotThere(f"no file has this kind of objects; use one of {', '.join(sorted(file_kinds()))}")
    return kind


@operator_call(
    "POST",
    "/apply",
    ORGANIZATION_ADMINISTRATION,
    "Apply settings from files",
    gives={JSON: one_field_answer("ApplyAnswer", apply=Annotated[AppliedFiles, words("The result.")])},
    limit=_FILES_LIMIT,
)
async def apply_files(request: OperatorRequest[OperatorServices, FilesToApply]) -> Result:
    """
    Apply a set of files: all of it or nothing. Refusal 422 lists every problem, one per line.

    A dry run answers with the problems instead. Each change needs the permission set that the change by hand needs.
    """
    body = request.body
    if body.on_empty and not body.dry_run:
        raise Invalid(
            "on_empty needs dry_run: true, because it compares with an installation that does not exist"
        )
    how = ApplyOptions(
        dry_run=body.dry_run,
        on_empty=body.on_empty,
        adopt=body.adopt,
        secrets=body.secrets,
        rights=request.rights.permission_sets,
    )
    outcome = await apply_and_activate(request.services, body.files, how, actor=request.actor)
    if not body.dry_run and not outcome.is_valid:
        if reasons := reasons_not_applied(outcome):
            raise Refusal(422, "invalid_files", "\n".join(reasons))
        raise missing_right_refusal(min(outcome.missing_rights), "a change of this set")
    return {"apply": _describe_outcome(outcome, is_applied=not body.dry_run)}


async def apply_and_activate(
    services: OperatorServices, files: Mapping[str, str], options: ApplyOptions, *, actor: Actor
) -> ApplyOutcome:
    """Apply a set of files, and make the services that depend on the changed objects use them."""
    file_set = await asyncio.to_thread(read_file_set, files, services.installation.config().files)
    outcome = await apply_file_set(services, file_set, options, actor=actor)
    await asyncio.to_thread(file_set.objects.clear)  # freeing thousands of objects would delay other requests
    if outcome.changes and outcome.is_valid and not options.dry_run:
        await services.money.billing_connections.delete_orphaned_rows()
        if services.money.publishing is not None:
            await services.money.publishing.load_versions_in_force()
        services.money.request_budget_evaluation()
    return outcome


def reasons_not_applied(outcome: ApplyOutcome) -> list[str]:
    limits = outcome.problems.limits
    conflicts, left_out = _bounded_differences(outcome.conflicts, limits.max_difference_bytes)
    more = [f"and {left_out:,} more conflicts"] if left_out else []
    return [*outcome.problems.texts, *(each["text"] for each in conflicts), *more]


@operator_call(
    "POST",
    "/release",
    ORGANIZATION_ADMINISTRATION,
    "Release an object from its file",
    gives={
        JSON: one_field_answer(
            "ReleasedObject", released=Annotated[str, words("The name of the object."), example("Search")]
        )
    },
)
async def release_object(request: OperatorRequest[InstallationServices, ObjectToRelease]) -> Result:
    """End the management of an object by its file, so that people may change it. The next apply of the file
    reports a conflict."""
    registry, body = request.registry, request.body
    kind = _require_kind(body.kind)
    for row in (await kind.rows_by_id(registry)).values():
        owner = find_owner(registry, kind, row)
        if (
            owner is not None
            and object_label(kind.object_key_of_fields(await kind.file_fields(registry, row))) == body.name
        ):
            await registry.file_owners.release_object(owner, actor=request.actor)
            return {"released": body.name}
    raise NotThere(f"no file manages a {kind.noun} with this name")


def _describe_outcome(outcome: ApplyOutcome, *, is_applied: bool) -> dict[str, Any]:
    left = outcome.problems.limits.max_difference_bytes
    conflicts, more_conflicts = _bounded_differences(outcome.conflicts, left)
    left -= len(msgspec.json.encode(conflicts))
    differences, more_differences = _bounded_differences(outcome.differences, left)
    return {
        "set": outcome.set,
        "applied": is_applied,
        "differences": differences,
        "conflicts": conflicts,
        "problems": [msgspec.to_builtins(problem) for problem in outcome.problems.first],
        "left_out": {
            "differences": more_differences,
            "conflicts": more_conflicts,
            "problems": outcome.problems.left_out,
        },
        "new_secrets": outcome.new_secrets if outcome.is_valid else [],
        "permission_sets": sorted(outcome.rights),
        "missing_permission_sets": sorted(outcome.missing_rights),
    }


def _bounded_differences(
    differences: Sequence[FileDifference], max_bytes: int
) -> tuple[list[dict[str, str]], int]:
    """Return the first differences that fit, with shortened texts, and the number of the others."""
    shown: list[dict[str, str]] = []
    for each in differences:
        fields = {
            name: value if len(value) <= MAX_TEXT else f"{value[:MAX_TEXT]}..."
            for name, value in build_answer(DifferenceItem, each).items()
        }
        max_bytes -= len(msgspec.json.encode(fields))
        if max_bytes < 0:
            break
        shown.append(fields)
    return shown, len(differences) - len(shown)

"""
Namespaces of definitions, their versions, and the jobs that publish them.

This module treats a definition as opaque text. All other fields are also held in memory. A new version and
the end of its job are stored in one transaction, so after a crash either both are stored or neither.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Annotated, Any

import msgspec

from gateway.core.fields import KEPT_IN_SECONDS, changes_struct, item_struct, one_item_answer_struct
from spool.errors import Invalid, NotAllowed, NotThere
from spool.registry.changes import RegistryChangeWriter
from spool.registry.document_table import ManagedTable
from spool.registry.documents import DocumentCollection, replace_fields, with_change_fields_if_changed
from spool.registry.field_notes import example, words
from spool.registry.file_owners import check_unmanaged
from spool.registry.following import ChangedRowId
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.texts import check_optional_text, check_text
from spool.shares import UsedAmountByOwner, entries_to_remove, is_within_share

# Texts of definitions are stored as separate documents, because the server loads all other documents into memory.
VERSION_TEXT_KIND, JOB_TEXT_KIND = "allocation-version-text", "allocation-job-text"

JOBS_LIMIT = "allocation.max_jobs"

DEFINITION = "allocation"  # first part of the audit log's action names for definitions, before the dot
DEFAULT = ""  # id of the default namespace, which always exists
# name of the default namespace in addresses and output; no other namespace may have this id
DEFAULT_WORD = "default"
MAX_NAME = 200
MAX_DESCRIPTION = 1000

QUEUED, VALIDATING, PUBLISHING, DONE, FAILED, CANCELLED = (
    "queued",
    "validating",
    "publishing",
    "done",
    "failed",
    "cancelled",
)
STATES = (QUEUED, VALIDATING, PUBLISHING, DONE, FAILED, CANCELLED)
WAITING = frozenset((QUEUED, VALIDATING))  # states of a job in which it can be cancelled
OVER = frozenset((DONE, FAILED, CANCELLED))

_ID = re.compile(r"[a-z][a-z0-9_-]{0,63}")


class NewNamespace(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of a namespace to create."""

    name: Annotated[
        str | None,
        words(f"The displayed name, 1 to {MAX_NAME} characters. Default: the id."),
        example("Models"),
    ] = None
    description: Annotated[
        str,
        words(f"The purpose of the namespace, at most {MAX_DESCRIPTION} printable characters."),
        example("Groups of models", changed="Model families by team"),
    ] = ""


class Namespace(NewNamespace, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """A namespace, which owns the dimensions of its definition. Times are epoch seconds."""

    name: str
    id: str
    created: float
    last_updated: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinitionVersion:
    """
    A published version of a namespace's definition, without its text. `number` counts from 1 within the
    namespace. `bytes` is the length of the text.
    """

    namespace: str
    number: int
    dimensions: tuple[str, ...]  # ids of the dimensions
    bytes: int
    created: float
    created_by: str

    @property
    def id(self) -> str:
        return version_id(self.namespace, self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFault:
    """A fault that made a publish job fail, as it is stored with the job. `path` leads to the faulty node."""

    error: str
    value: str
    path: tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishJob:
    """
    A job that publishes a definition.

    `base` is the version that the job replaces, or 0 for none. `version` is the resulting version. `number`
    orders all jobs. `border` states since when the totals have the values that the rules read.
    """

    id: str
    number: int
    namespace: str
    base: int
    state: str
    submitted: float
    submitted_by: str
    submitted_from: str
    last_updated: float
    version: int | None = None
    error: str = ""
    faults: tuple[JobFault, ...] = ()
    border: Mapping[str, Any] = field(default_factory=dict)
    is_of_key: bool = False  # True if `submitted_by` names a key instead of a person

    @property
    def submitter_name_and_is_key(self) -> tuple[str, bool]:
        """
        Return the submitter's name and whether it is a key, because a key and a person may have the same name.
        """
        return self.submitted_by, self.is_of_key


NAMESPACES = DocumentCollection("allocation-namespace", Namespace, "namespace")
VERSIONS = DocumentCollection("allocation-version", DefinitionVersion, "version of a definition")
JOBS = DocumentCollection("allocation-job", PublishJob, "publish job")


def version_id(namespace: str, version_number: int) -> str:
    return f"{namespace}/{version_number}"


def check_namespace_id(id: str) -> str:
    if not _ID.fullmatch(id) or id == DEFAULT_WORD:
        raise Invalid(
            "a namespace id has 1 to 64 lowercase letters, digits, _ and -, begins with a letter, "
            f"and is not {DEFAULT_WORD!r}"
        )
    return id


def check_namespace(draft: NewNamespace) -> NewNamespace:
    """Return the draft in its stored form. Raises Invalid."""
    return replace_fields(
        draft,
        name=check_text("name", draft.name or "", MAX_NAME),
        description=check_optional_text("description", draft.description, MAX_DESCRIPTION),
    )


def newest_by_namespace(versions: Sequence[DefinitionVersion]) -> Mapping[str, DefinitionVersion]:
    """Return the newest version of each namespace, sorted by namespace. The default namespace "" is first."""
    newest: dict[str, DefinitionVersion] = {}
    for version in versions:
        if version.namespace not in newest or newest[version.namespace].number < version.number:
            newest[version.namespace] = version
    return {name: newest[name] for name in sorted(newest)}


class NewNamespaceOfId(NewNamespace, frozen=True):
    id: Annotated[
        str,
        words("1 to 64 lowercase letters, digits, _ and -, beginning with a letter. Not `default`."),
        example("models"),
    ]


NamespaceChanges = changes_struct(
    NewNamespace, "Omitted fields stay as they are.", types_by_field={"name": str}, has_version=False
)
NamespaceItem = item_struct(
    NewNamespace,
    "A namespace in a response. `version` is the newest version; `broken` is the reason why that "
    "version is not in force.",
    types_by_field={"id": Annotated[str, words("The id of the namespace."), example("models")], "name": str},
    answer_only_fields={
        "version": Annotated[str | None, words("The newest version of its definition."), example(None)],
        "dimensions": Annotated[list[str], words("The dimensions of the namespace."), example([])],
        "broken": Annotated[str | None, words("Why its newest version is not in force."), example(None)],
        "created": KEPT_IN_SECONDS["created"],
        "last_updated": KEPT_IN_SECONDS["last_updated"],
        "definition": Annotated[
            str | msgspec.UnsetType | None, words("The text of the newest version, if one namespace is read.")
        ],
    },
)
OneNamespace = one_item_answer_struct(NewNamespace, NamespaceItem)


@dataclass(frozen=True)
class _AllocationDocuments:
    """
    The copy of the stored documents in memory, each by its id. The texts of the definitions are not in
    memory.
    """

    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    versions: Mapping[str, DefinitionVersion] = field(default_factory=dict)
    jobs: Mapping[str, PublishJob] = field(default_factory=dict)


class AllocationTable(ManagedTable[Namespace]):
    """
    Namespaces with their versions and publish jobs.

    A method that raises changes nothing. The namespace `DEFAULT` always exists.
    """

    kind = NAMESPACES
    draft = NewNamespace
    limit = "allocation.max_namespaces"
    action = "allocation_namespace"

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        super().__init__(change_writer)
        self.people = change_writer.people
        self._kept = _AllocationDocuments()
        self._news = asyncio.Event()

    @property
    def announced_subjects(self) -> tuple[ChangedRowId, ...]:
        return (NAMESPACES.announced_subject, VERSIONS.announced_subject, JOBS.announced_subject)

    async def load(self) -> None:
        self._remember_all(await self._changes.read(_read_documents))

    async def wait_for_change(self) -> None:
        """
        Wait until this or another process has changed the table since the last call. Supports only
        one waiting reader.
        """
        await self._news.wait()
        self._news.clear()

    def signal_change_again(self) -> None:
        """Make `wait_for_change` return once more, even without a change."""
        self._news.set()

    # -- namespaces ------------------------------------------------------------------------------------------

    def require_namespace(self, id: str) -> None:
        """Raise NotThere if the namespace does not exist."""
        if id != DEFAULT:
            self.get(id)

    def check_draft(self, draft: NewNamespace) -> NewNamespace:
        return check_namespace(draft)

    async def create(self, draft: NewNamespace, *, id: str | None = None, **options: Any) -> Namespace:
        return await super().create(draft, id=check_namespace_id(id or ""), **options)

    def check_deletion(self, registry_rows: RegistryRows, row: Namespace) -> None:
        """
        Delete the versions of the namespace. Raises NotAllowed while its dimensions are in force or a
        job is unfinished.
        """
        documents = _read_documents(registry_rows)
        newest = newest_by_namespace(list(documents.versions.values())).get(row.id)
        if newest is not None and newest.dimensions:
            keys = ", ".join(newest.dimensions)
            raise NotAllowed(
                f"{row.id} defines {keys}; publish a definition without dimensions (Dimensions: {{}}) first"
            )
        if any(job.namespace == row.id and job.state not in OVER for job in documents.jobs.values()):
            raise NotAllowed(f"a definition of {row.id} is being published; wait for its job or cancel it")
        _forget_versions(
            registry_rows, (version for version in documents.versions.values() if version.namespace == row.id)
        )

    # -- versions --------------------------------------------------------------------------------------------

    def versions(self, namespace: str | None = None) -> list[DefinitionVersion]:
        all_versions = self._kept.versions.values()
        return [version for version in all_versions if namespace is None or version.namespace == namespace]

    def versions_in_force(self) -> Mapping[str, DefinitionVersion]:
        """
        Return the version in force of each namespace. The result has no entry for a namespace without a version.
        """
        return newest_by_namespace(self.versions())

    def latest_version_number(self, namespace: str) -> int:
        """Return the number of the version in force, or 0."""
        newest = self.versions_in_force().get(namespace)
        return 0 if newest is None else newest.number

    def version(self, namespace: str, version_number: int) -> DefinitionVersion:
        version = self._kept.versions.get(version_id(namespace, version_number))
        if version is None:
            raise NotThere("this definition has no such version; old versions may have been deleted")
        return version

    async def version_text(self, version: DefinitionVersion) -> str:
        return await self._read_text(VERSION_TEXT_KIND, version.id)

    # -- jobs ------------------------------------------------------------------------------------------------

    def jobs(self) -> list[PublishJob]:
        return list(self._kept.jobs.values())

    def find_job(self, id: str) -> PublishJob:
        return _require_job(self._kept, id)

    def unfinished_jobs(self) -> Sequence[PublishJob]:
        return sorted((job for job in self.jobs() if job.state not in OVER), key=lambda job: job.number)

    def item_counts_by_limit_and_key(self) -> Mapping[str, Mapping[str, int]]:
        return {
            JOBS_LIMIT: Counter(job.submitted_by if job.is_of_key else "" for job in self.unfinished_jobs())
        }

    async def definition_text_of_publish_job(self, id: str) -> str:
        return await self._read_text(JOB_TEXT_KIND, id)

    async def submit_job(
        self, text: str, *, namespace: str, base: int | None, most: int, actor: Actor
    ) -> PublishJob:
        """
        Add a publish job to the queue.

        `base` is the number of the version that the job replaces. None means the version in force. Raises
        NotAllowed if another version is in force, or if `most` jobs are waiting. Also raises NotAllowed if
        the submitter would have more waiting jobs than the queue has free places. At most `most` jobs are
        stored, so finished jobs are deleted. The oldest job of the submitter with the most finished jobs is
        deleted first.
        """
        now = self._changes.now()
        id = secrets.token_hex(16)

        def add_job_row(registry_rows: RegistryRows) -> _AllocationDocuments:
            documents = _read_documents(registry_rows)
            if namespace != DEFAULT:
                self._require_row(documents.namespaces, namespace)
            check_unmanaged(self._changes, registry_rows, DEFINITION, namespace)
            latest = _latest_number(documents, namespace)
            _check_base_is_latest(latest if base is None else base, latest)
            _make_room_for_job(registry_rows, documents.jobs.values(), most, actor)
            number = max((job.number for job in documents.jobs.values()), default=0) + 1
            job = PublishJob(
                id=id,
                number=number,
                namespace=namespace,
                base=latest,
                state=QUEUED,
                submitted=now,
                submitted_by=actor.name,
                submitted_from=actor.address,
                last_updated=now,
                is_of_key=actor.is_key,
            )
            JOBS.store_row(registry_rows, job)
            registry_rows.put_document(JOB_TEXT_KIND, id, {"text": text})
            registry_rows.add_audit(
                now, actor, "publish_job.create", id, after={"namespace": namespace, "base": latest}
            )
            return _read_documents(registry_rows)

        return _require_job(await self._changes.change_rows(add_job_row, self._remember_all), id)

    async def advance_job(self, id: str, state: str) -> PublishJob:
        """Advance a job's state, never backwards. Raises NotAllowed if the job is finished."""
        return await self._change_job(
            id,
            lambda job: replace(job, state=max(job.state, state, key=(QUEUED, VALIDATING, PUBLISHING).index)),
        )

    async def fail_job(self, id: str, error: str, faults: Sequence[JobFault] = ()) -> PublishJob:
        return await self._change_job(
            id, lambda job: replace(job, state=FAILED, error=error, faults=tuple(faults))
        )

    async def cancel_job(self, id: str, *, actor: Actor) -> PublishJob:
        """Cancel a job. Raises NotAllowed unless it is queued or validating."""
        now = self._changes.now()

        def cancel_job_row(registry_rows: RegistryRows) -> _AllocationDocuments:
            job = _require_job(_read_documents(registry_rows), id)
            if job.state not in WAITING:
                raise NotAllowed(
                    f"this job is {job.state}; only jobs in the state {QUEUED} or {VALIDATING} can be "
                    "cancelled"
                )
            JOBS.store_row(registry_rows, replace(job, state=CANCELLED, last_updated=now))
            registry_rows.delete_document(JOB_TEXT_KIND, id)
            registry_rows.add_audit(now, actor, "publish_job.cancel", id, before={"state": job.state})
            return _read_documents(registry_rows)

        return _require_job(await self._changes.change_rows(cancel_job_row, self._remember_all), id)

    async def publish_job_version(
        self, id: str, *, dimensions: Sequence[str], values_known_since: Mapping[str, Any], max_versions: int
    ) -> DefinitionVersion:
        """
        Store the definitions of a publishing job as the newest version, in force, and return it. Raises
        NotAllowed if other definitions were published since those that the job is based on.

        The oldest versions of the namespace are deleted, so that at most `max_versions` are stored.
        """
        now = self._changes.now()

        def store_job_version(registry_rows: RegistryRows) -> _AllocationDocuments:
            documents = _read_documents(registry_rows)
            job = _require_job(documents, id)
            if job.state != PUBLISHING:
                return documents
            latest = _latest_number(documents, job.namespace)
            _check_base_is_latest(job.base, latest)
            text = _require_text(registry_rows, JOB_TEXT_KIND, id)
            actor = Actor(job.submitted_by, job.submitted_from)
            number = self._store_version(
                registry_rows,
                documents,
                job.namespace,
                text,
                dimensions,
                max_versions=max_versions,
                actor=actor,
            )
            JOBS.store_row(
                registry_rows,
                replace(job, state=DONE, version=number, border=values_known_since, last_updated=now),
            )
            registry_rows.delete_document(JOB_TEXT_KIND, id)
            return _read_documents(registry_rows)

        documents = await self._changes.change_rows(store_job_version, self._remember_all)
        job = _require_job(documents, id)
        if job.state != DONE:
            raise NotAllowed(f"this job is {job.state}")
        return documents.versions[version_id(job.namespace, job.version or 0)]

    async def publish_now(
        self, text: str, *, namespace: str, dimensions: Sequence[str], max_versions: int, actor: Actor
    ) -> None:
        """Store a checked definition as a new version without a job. At most `max_versions` versions are stored."""

        def store_new_version(registry_rows: RegistryRows) -> _AllocationDocuments:
            self._store_version(
                registry_rows,
                _read_documents(registry_rows),
                namespace,
                text,
                dimensions,
                max_versions=max_versions,
                actor=actor,
            )
            return _read_documents(registry_rows)

        await self._changes.change_rows(store_new_version, self._remember_all)

    def _store_version(
        self,
        registry_rows: RegistryRows,
        documents: _AllocationDocuments,
        namespace: str,
        text: str,
        dimensions: Sequence[str],
        *,
        max_versions: int,
        actor: Actor,
    ) -> int:
        check_unmanaged(self._changes, registry_rows, DEFINITION, namespace)
        now = self._changes.now()
        earlier = _versions_of_namespace(documents, namespace)
        version = DefinitionVersion(
            namespace=namespace,
            number=_latest_number(documents, namespace) + 1,
            dimensions=tuple(dimensions),
            bytes=len(text.encode()),
            created=now,
            created_by=actor.name,
        )
        VERSIONS.store_row(registry_rows, version)
        registry_rows.put_document(VERSION_TEXT_KIND, version.id, {"text": text})
        _forget_versions(registry_rows, earlier[: max(0, len(earlier) + 1 - max_versions)])
        after = {"version": version.number, "dimensions": list(dimensions)}
        registry_rows.add_audit(now, actor, "allocation.publish", namespace or DEFAULT_WORD, after=after)
        return version.number

    async def _change_job(self, id: str, change: Callable[[PublishJob], PublishJob]) -> PublishJob:
        now = self._changes.now()
        was_over = False

        def change_job_row(registry_rows: RegistryRows) -> _AllocationDocuments:
            nonlocal was_over
            documents = _read_documents(registry_rows)
            job = _require_job(documents, id)
            was_over = job.state in OVER
            if was_over:
                return documents  # another process has already finished the job, so nothing changes
            after = with_change_fields_if_changed(job, change(job), last_updated=now)
            if after is job:
                return documents
            JOBS.store_row(registry_rows, after)
            if after.state in OVER:
                registry_rows.delete_document(JOB_TEXT_KIND, id)
            return _read_documents(registry_rows)

        job = _require_job(await self._changes.change_rows(change_job_row, self._remember_all), id)
        if was_over:
            raise NotAllowed(f"this job is {job.state}")
        return job

    async def _read_text(self, kind: str, id: str) -> str:
        return await self._changes.read(lambda rows: _require_text(rows, kind, id))

    def _remember_all(self, documents: _AllocationDocuments) -> None:
        self._kept = documents
        self._set_rows(dict(documents.namespaces))

    def _set_rows(self, rows: dict[str, Namespace]) -> None:
        super()._set_rows(rows)
        self._news.set()

    def _forget_row(self, id: str) -> None:
        versions = {key: version for key, version in self._kept.versions.items() if version.namespace != id}
        self._kept = replace(self._kept, versions=versions)
        super()._forget_row(id)


def _read_documents(registry_rows: RegistryRows) -> _AllocationDocuments:
    return _AllocationDocuments(
        namespaces=NAMESPACES.all(registry_rows),
        versions=VERSIONS.all(registry_rows),
        jobs=JOBS.all(registry_rows),
    )


def _require_job(documents: _AllocationDocuments, id: str) -> PublishJob:
    stored_job = documents.jobs.get(id)
    if stored_job is None:
        raise NotThere("there is no publish job with this id")
    return stored_job


def _versions_of_namespace(documents: _AllocationDocuments, namespace: str) -> list[DefinitionVersion]:
    matching = (version for version in documents.versions.values() if version.namespace == namespace)
    return sorted(matching, key=lambda version: version.number)


def _latest_number(documents: _AllocationDocuments, namespace: str) -> int:
    return max((version.number for version in _versions_of_namespace(documents, namespace)), default=0)


def _check_base_is_latest(base: int, latest: int) -> None:
    if base != latest:
        now = f"version {latest} is in force" if latest else "nothing is published yet"
        raise NotAllowed(f"this definition is based on version {base}, but {now}; merge the changes first")


def _make_room_for_job(
    registry_rows: RegistryRows, jobs: Iterable[PublishJob], max_jobs: int, actor: Actor
) -> None:
    sorted_jobs = sorted(jobs, key=lambda job: job.number)
    waiting = [job.submitter_name_and_is_key for job in sorted_jobs if job.state not in OVER]
    own_waiting = waiting.count((actor.name, actor.is_key))
    if not is_within_share(own_waiting, len(waiting), 1, max_jobs):
        wait = f"{len(waiting)} publish jobs are waiting (limit: allocation.max_jobs)"
        if len(waiting) < max_jobs:
            wait = (
                f"{own_waiting} of {wait} are yours, and one submitter may not have more waiting jobs than there "
                "are free places"
            )
        raise NotAllowed(f"{wait}; wait until a job has finished, or cancel one")
    finished_ids: defaultdict[tuple[str, bool], list[str]] = defaultdict(list)
    for job in sorted_jobs:
        if job.state in OVER:
            finished_ids[job.submitter_name_and_is_key].append(job.id)
    held = UsedAmountByOwner({submitter: len(ids) for submitter, ids in finished_ids.items()})
    for id in islice(
        entries_to_remove(held, finished_ids.__getitem__, lambda _: 1),
        max(0, len(sorted_jobs) + 1 - max_jobs),
    ):
        JOBS.delete(registry_rows, id)


def _forget_versions(registry_rows: RegistryRows, versions: Iterable[DefinitionVersion]) -> None:
    for version in versions:
        VERSIONS.delete(registry_rows, version.id)
        registry_rows.delete_document(VERSION_TEXT_KIND, version.id)


def _require_text(registry_rows: RegistryRows, kind: str, id: str) -> str:
    body = registry_rows.document(kind, id)
    if body is None:
        raise NotThere("this definition is no longer stored")
    return str(body["text"])

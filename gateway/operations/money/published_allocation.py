"""
API of definitions for keys: versions, namespaces and publish jobs. Each call has its own scope. The module
also defines the lists that people see.

A definition is sent as YAML in the body, or as the only file of a form. Faults are answered with 422, each
with its value and its path. The fields `version`, `last_updated`, `last_updated_by` and `uri` of a version
belong to the published interface. The other fields are Tollhouse's own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesParser
from functools import partial, wraps
from typing import Annotated, Any

import msgspec
from aiohttp import web
from msgspec import UNSET, UnsetType

from gateway.core.errors import Refusal
from gateway.core.faults import DefinitionFaults, InvalidDefinition
from gateway.core.fields import build_answer, given_fields
from gateway.core.schemas import TEXT
from gateway.http.address import WRITE, ApiAddress, BodyLimit, Served, key_call
from gateway.http.answers import JSON, bytes_response, json_response
from gateway.http.lists import Filter, ListDefinition, MemoryRows, Sort, yes_no_filter
from gateway.http.requests import Result
from gateway.money.allocation.declared import (
    DEFAULT,
    DEFAULT_WORD,
    DEFINITION,
    STATES,
    AllocationTable,
    DefinitionVersion,
    Namespace,
    NamespaceChanges,
    NamespaceItem,
    NewNamespace,
    NewNamespaceOfId,
    OneNamespace,
    PublishJob,
)
from gateway.money.allocation.difference import sources_read_by
from gateway.money.allocation.language import join_definitions, parse_definition
from gateway.money.allocation.published import describe_first_value_times, find_first_value_times
from gateway.money.allocation.publishing import ANY_SIZE, definition_with_rules_removed
from gateway.money.costs.times import format_seconds
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import MoneyCaller, ObjectFileHandler, ResourceFileHandler
from gateway.operations.holders.operators import MoneyServices
from gateway.operations.managed import (
    CREATE,
    DELETE,
    LIST,
    SHOW,
    ByKeys,
    ByPeople,
    JsonAnswer,
    ManagedResource,
    OperationCaller,
)
from gateway.operations.people.managed import asker_for_key
from gateway.operations.requests.key_requests import KeyRequest
from gateway.operations.requests.operation_requests import OperationKeyRequest
from gateway.operations.requests.requests import RequestBody
from gateway.operations.services import AllServices
from spool.errors import NotThere
from spool.registry.field_notes import example, words
from spool.registry.file_owners import owner_document_id
from spool.registry.operators import Actor
from spool.registry.permission_sets import MODIFY_DIMENSIONS, VIEW_COSTS
from spool.registry.registry import Registry

LATEST = "latest"
FORM = "multipart/form-data"
YAML = ("text/plain", "application/yaml", "application/x-yaml", "text/yaml")
# Bytes that a body may have above the text limit. They leave space for the envelope of a form, and a text
# slightly over the limit gets its own error.
SLACK_BYTES = 16 * 1024
_MOST_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownVersion:
    """A version in a list. `uri` is its text's address, or None if the text has no address of its own."""

    version: DefinitionVersion
    uri: str | None
    is_in_force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownNamespace:
    """A namespace in a list. `broken` says why that version is not in force."""

    namespace: Namespace
    newest: DefinitionVersion | None
    broken: str | None


def describe_version(row: ShownVersion) -> dict[str, object]:
    version = row.version
    return {
        "version": str(version.number),
        "namespace": version.namespace or None,
        "last_updated": format_seconds(version.created),
        "last_updated_by": version.created_by,
        "uri": row.uri,
        "dimensions": list(version.dimensions),
        "bytes": version.bytes,
        "is_in_force": row.is_in_force,
    }


def describe_namespace(row: ShownNamespace) -> dict[str, object]:
    namespace = row.namespace
    newest = row.newest
    return build_answer(
        NamespaceItem,
        namespace,
        version=None if newest is None else str(newest.number),
        dimensions=() if newest is None else newest.dimensions,
        broken=row.broken,
        created=format_seconds(namespace.created),
        last_updated=format_seconds(namespace.last_updated),
    )


def describe_job(job: PublishJob) -> dict[str, object]:
    return {
        "id": job.id,
        "namespace": job.namespace or None,
        "state": job.state,
        "base_version": str(job.base) if job.base else None,
        "version": None if job.version is None else str(job.version),
        "error": job.error or None,
        "errors": [
            {"error": fault.error, "value": fault.value, "path": list(fault.path)} for fault in job.faults
        ],
        "border": dict(job.border) or None,
        "submitted": format_seconds(job.submitted),
        "submitted_by": job.submitted_by,
        "last_updated": format_seconds(job.last_updated),
    }


_VERSION_SORTS: Mapping[str, Sort[ShownVersion]] = {
    "version": Sort(value=lambda row: row.version.number),
    "last_updated": Sort(value=lambda row: row.version.created),
    "last_updated_by": Sort(value=lambda row: row.version.created_by),
}

_LAST_UPDATED_BY: Filter[ShownVersion] = Filter(values=lambda row: (row.version.created_by,))

VERSIONS: ListDefinition[ShownVersion] = ListDefinition(
    root="versions",
    show=describe_version,
    identity=Sort(value=lambda row: row.version.number),
    sorts=_VERSION_SORTS,
    default_sort=("version", "desc"),
    filters={"last_updated_by": _LAST_UPDATED_BY},
)

ALL_VERSIONS: ListDefinition[ShownVersion] = ListDefinition(
    root="versions",
    show=describe_version,
    identity=Sort(value=lambda row: row.version.id),
    sorts={**_VERSION_SORTS, "namespace": Sort(value=lambda row: row.version.namespace)},
    default_sort=("last_updated", "desc"),
    filters={
        "namespace": Filter(values=lambda row: (row.version.namespace,)),
        "last_updated_by": _LAST_UPDATED_BY,
        "is_in_force": yes_no_filter(lambda row: row.is_in_force),
    },
)

NAMESPACES: ListDefinition[ShownNamespace] = ListDefinition(
    root="namespaces",
    show=describe_namespace,
    identity=Sort(value=lambda row: row.namespace.id),
    sorts={
        "id": Sort(value=lambda row: row.namespace.id),
        "name": Sort(value=lambda row: row.namespace.name),
        "created": Sort(value=lambda row: row.namespace.created),
        "last_updated": Sort(value=lambda row: row.namespace.last_updated),
    },
    default_sort=("id", "asc"),
    filters={
        "id": Filter(values=lambda row: (row.namespace.id,)),
        "name": Filter(values=lambda row: (row.namespace.name,)),
    },
)

PUBLISH_JOBS: ListDefinition[PublishJob] = ListDefinition(
    root="publish_jobs",
    show=describe_job,
    identity=Sort(value=lambda job: job.number),
    sorts={
        "submitted": Sort(value=lambda job: job.submitted),
        "last_updated": Sort(value=lambda job: job.last_updated),
        "state": Sort(value=lambda job: job.state),
        "namespace": Sort(value=lambda job: job.namespace),
    },
    default_sort=("submitted", "desc"),
    filters={
        "state": Filter(values=lambda job: (job.state,), valid_values=STATES),
        "namespace": Filter(values=lambda job: (job.namespace,)),
        "submitted_by": Filter(values=lambda job: (job.submitted_by,)),
    },
)


def shown_definition_version(
    money: MoneyServices, version: DefinitionVersion, uri: str | None = None
) -> ShownVersion:
    return ShownVersion(version=version, uri=uri, is_in_force=_is_version_in_force(money, version))


def version_rows(
    money: MoneyServices, namespace: str | None = DEFAULT, *, parent_path: str | None = None
) -> MemoryRows[ShownVersion]:
    """
    Return the versions of a namespace, or of all namespaces if it is None. `parent_path` begins their texts'
    addresses.
    """
    versions = money.require_registry().declared_table(AllocationTable).versions(namespace)
    return MemoryRows(
        [
            shown_definition_version(
                money, version, parent_path and f"{parent_path}/{version.number}/definition"
            )
            for version in versions
        ]
    )


def namespace_with_state(money: MoneyServices, namespace: Namespace) -> ShownNamespace:
    newest = money.require_registry().declared_table(AllocationTable).versions_in_force().get(namespace.id)
    return ShownNamespace(
        namespace=namespace,
        newest=newest,
        broken=money.require_definition_publisher().broken_reason(namespace.id),
    )


def job_rows(money: MoneyServices) -> MemoryRows[PublishJob]:
    return MemoryRows(money.require_registry().declared_table(AllocationTable).jobs())


def _is_version_in_force(money: MoneyServices, version: DefinitionVersion) -> bool:
    newest = (
        money.require_registry().declared_table(AllocationTable).versions_in_force().get(version.namespace)
    )
    return newest == version and money.require_definition_publisher().broken_reason(version.namespace) is None


class VersionItem(msgspec.Struct, kw_only=True):
    version: Annotated[str, words("The number of the version."), example("4")]
    namespace: Annotated[
        str | None, words("The id of the namespace, or null for the default definition."), example(None)
    ]
    last_updated: Annotated[
        str, words("When the version was published, in epoch seconds as text."), example("1795743931.781")
    ]
    last_updated_by: Annotated[str, words("Who published the version."), example("ada@example.com")]
    uri: Annotated[str | None, words("The address of the definition, or null."), example(None)]
    dimensions: Annotated[
        list[str], words("The dimensions of the definition."), example(["User:Defined:Owner"])
    ]
    bytes: Annotated[int, words("The size of the definition in bytes."), example(119)]
    is_in_force: Annotated[bool, words("Whether the version is in force."), example(False)]
    border: Annotated[
        dict[str, Any] | UnsetType,
        words("The time from which totals and tags of the definition have values."),
        example({"kept_since": "2026-10-28T01:00:00+00:00", "tags": {}}),
    ] = UNSET
    definition: Annotated[
        str | UnsetType, words("The definition as YAML. Only the answer for one version has it.")
    ] = UNSET


class OneVersion(msgspec.Struct, kw_only=True):
    version: Annotated[VersionItem, words("The version, with the fields below.")]


class JobFaultItem(msgspec.Struct, kw_only=True):
    error: Annotated[str, words("What is wrong in the definition.")]
    value: Annotated[str, words("The value that has the error.")]
    path: Annotated[list[str | int], words("The place of the error in the definition.")]


class PublishJobItem(msgspec.Struct, kw_only=True):
    id: Annotated[str, words("The id of the job."), example("c1f35c7120df3813fe5eb7d72746b838")]
    namespace: Annotated[
        str | None, words("The id of the namespace, or null for the default definition."), example(None)
    ]
    state: Annotated[str, words("The state of the job."), example("done")]
    base_version: Annotated[str | None, words("The version that the new one changes, or null."), example("3")]
    version: Annotated[str | None, words("The version that the job published."), example("4")]
    error: Annotated[str | None, words("Why the job failed, or null."), example(None)]
    errors: Annotated[list[JobFaultItem], words("What is wrong in the definition."), example([])]
    border: Annotated[
        dict[str, Any] | None,
        words("The time from which totals and tags of the definition have values."),
        example({"kept_since": "2026-10-28T01:00:00+00:00", "tags": {}}),
    ]
    submitted: Annotated[
        str, words("When the job was submitted, in epoch seconds as text."), example("1795743931.905")
    ]
    submitted_by: Annotated[str, words("Who submitted the job."), example("ada@example.com")]
    last_updated: Annotated[
        str, words("When the job was last changed, in epoch seconds as text."), example("1795743931.92")
    ]


class OnePublishJob(msgspec.Struct, kw_only=True):
    publish_job: Annotated[PublishJobItem, words("The job that publishes a version.")]


def _faults_as_422(
    handler: Callable[[KeyRequest[MoneyServices, Any]], Awaitable[Result]],
) -> Callable[[KeyRequest[MoneyServices, Any]], Awaitable[Result]]:
    @wraps(handler)
    async def answer_with_faults_as_422(request: KeyRequest[MoneyServices, Any]) -> Result:
        try:
            return await handler(request)
        except InvalidDefinition as error:
            error_body = {"type": "invalid_definition", "message": f"The definition is not valid: {error}."}
            return json_response(
                {"error": error_body, "errors": [fault._asdict() for fault in error.faults]}, status=422
            )

    return answer_with_faults_as_422


# -- versions ------------------------------------------------------------------------------------------------


# -- namespaces ----------------------------------------------------------------------------------------------


# Clients of the cost service use `costformation`, the older name of the group.
_BASE = "/v2/{group:allocation|costformation}"
_VERSIONS = _BASE + "/definition/versions"
_VERSION = _VERSIONS + "/{version}"
_NAMESPACE = _BASE + "/namespaces/{namespace}"
_JOBS = _BASE + "/publish_jobs"
_JOB = _JOBS + "/{job}"
_call = partial(key_call, endpoint="allocation")


def check_definition_media_type(request: web.Request) -> None:
    """Raise Refusal 415 if the body is neither text nor a form."""
    if request.content_type not in (*YAML, FORM):
        raise Refusal(415, "unsupported_media_type", f"Send the definition as {', '.join((*YAML, FORM))}.")


def _publish_call(
    path: str, summary: str, status: int, gives: type, *optional: str
) -> Callable[[Served], Served]:
    """Register a handler that publishes a definition. Its scope has the handler's name."""

    def register_address_of_handler(handler: Served) -> Served:
        row = ApiAddress(
            methods=("POST",),
            path=path,
            summary=summary,
            endpoint="allocation",
            scope=f"allocation:{handler.__name__}",
            check=check_definition_media_type,
            limit=BodyLimit(
                setting="allocation.max_definition_bytes and the envelope",
                bytes=_max_definition_request_bytes,
            ),
            takes=dict.fromkeys((*YAML, FORM), TEXT),
            gives={status: {JSON: gives}},
            refusals=(*WRITE, 404, 409, 422),
            optional=("base_version", *optional),
        )
        return row(handler)

    return register_address_of_handler


def _max_definition_request_bytes(services: AllServices) -> int:
    return services.operators.money.allocation().max_definition_bytes + SLACK_BYTES


@_call(
    "GET",
    _VERSIONS,
    "allocation:read_definition_versions",
    "List the versions of the definition in the default namespace",
    lists=VERSIONS,
    item=VersionItem,
)
async def read_definition_versions(request: KeyRequest[MoneyServices, None]) -> Result:
    return await request.list_page(VERSIONS, version_rows(request.services, parent_path=request.http.path))


@_publish_call(
    _VERSIONS,
    "Publish the definition of the default namespace, or only validate it",
    200,
    OneVersion,
    "validate_only",
)
@_faults_as_422
async def create_definition_version(request: KeyRequest[MoneyServices, bytes]) -> Result:
    """Publish a definition. With `validate_only`, only return the version that it would become."""
    money = request.services
    parameters = request.http.query
    is_dry, base, text = (
        _parse_flag(parameters.get("validate_only", "false")),
        parse_base_version(parameters.get("base_version")),
        _definition_text(request),
    )
    if is_dry:
        return {"version": await preview_version(money, text, DEFAULT, request.actor)}
    job, version = await money.require_definition_publisher().publish(
        text, namespace=DEFAULT, base=base, actor=request.actor
    )
    shown = describe_version(
        shown_definition_version(money, version, _definition_uri(request.http.path, version))
    )
    return {"version": {**shown, "border": dict(job.border)}}


@_call(
    "GET",
    _VERSION,
    "allocation:read_definition_version",
    "Show a version of the definition in the default namespace, or the latest",
    gives={JSON: OneVersion},
)
async def read_definition_version(request: KeyRequest[MoneyServices, None]) -> Result:
    money = request.services
    version = find_version(money, DEFAULT, request.path_parameter("version"))
    parent_path = request.http.path.rpartition("/")[0]
    return {"version": await describe_with_text(money, version, uri=_definition_uri(parent_path, version))}


@_call(
    "GET",
    _VERSION + "/definition",
    "allocation:read_definition_version",
    "Show the text of a version as it was sent",
    gives={"text/plain": TEXT},
)
async def read_definition_text(request: KeyRequest[MoneyServices, None]) -> Result:
    money = request.services
    version = find_version(money, DEFAULT, request.path_parameter("version"))
    text = await money.require_registry().declared_table(AllocationTable).version_text(version)
    return bytes_response(text.encode(), content_type="text/plain; charset=utf-8")


@_publish_call(
    _BASE + "/definitions", "Publish the definition of the default namespace with a job", 202, OnePublishJob
)
@_faults_as_422
async def create_definition_async(request: KeyRequest[MoneyServices, bytes]) -> Result:
    return await _submit_definition(request, DEFAULT)


class NamespaceResource(ManagedResource[Namespace, MoneyServices]):
    noun = "namespace"
    table = AllocationTable
    lists = NAMESPACES
    new = NewNamespaceOfId
    changes = NamespaceChanges
    item = NamespaceItem
    one = OneNamespace
    files = ResourceFiles(name="namespaces", key=("id",))
    keys = ByKeys(
        # clients of the cost service also use the older name, costformation
        path="/v2/{group:allocation|costformation}/namespaces",
        id="namespace",
        group="allocation",
        endpoint="allocation",
        names={LIST: "read_all_namespaces"},
        words={SHOW: "Show a namespace and its definition", DELETE: "Delete a namespace without dimensions"},
        by_hand=(CREATE,),
    )
    people = ByPeople(
        path="/allocation/namespaces",
        reads=VIEW_COSTS,
        changes=MODIFY_DIMENSIONS,
        words={
            LIST: "List namespaces of definitions",
            SHOW: "Show a namespace and its definition",
            DELETE: "Delete a namespace without dimensions",
        },
    )

    async def convert_row_for_lists(
        self, caller: OperationCaller[MoneyServices], row: Namespace
    ) -> ShownNamespace:
        return namespace_with_state(caller.services, row)

    async def draft_fields(self, caller: OperationCaller[MoneyServices], new_values: Any) -> dict[str, Any]:
        stated_fields = given_fields(new_values)
        id = stated_fields.pop("id", None)
        return {**stated_fields, "name": id} if stated_fields.get("name", "") is None else stated_fields

    def fields_set_by_server(
        self, caller: OperationCaller[MoneyServices], new_values: Any
    ) -> Mapping[str, Any]:
        return {"id": new_values.id}

    async def show(self, caller: OperationCaller[MoneyServices], id_or_name: str) -> JsonAnswer:
        row = namespace_with_state(caller.services, await self.find(caller, id_or_name))
        text = (
            await caller.registry.declared_table(AllocationTable).version_text(row.newest)
            if row.newest is not None
            else None
        )
        return {"namespace": {**describe_namespace(row), "definition": text}}


NAMESPACE = NamespaceResource()


class AllocationNamespaceFileHandler(ResourceFileHandler):
    def __init__(self) -> None:
        super().__init__(NAMESPACE, NAMESPACE.files)
        self.action = AllocationTable.action

    def has_only_default_values(self, registry: Registry, row: Namespace, values: Mapping[str, Any]) -> bool:
        others = {name: value for name, value in values.items() if (name, value) != ("name", row.id)}
        return super().has_only_default_values(registry, row, others)

    def known_names(self, registry: Registry) -> Collection[str]:
        return (DEFAULT_WORD,)


NAMESPACE_KIND = AllocationNamespaceFileHandler()


class DefinitionInFile(RequestBody):
    namespace: str
    definition: str


class AllocationDefinitionFileHandler(ObjectFileHandler):
    """
    The definition in force of each namespace, as one file each. A definition without dimensions appears only
    if a file states it.

    Applying a set of files publishes it directly, so it needs no job.
    """

    files = ResourceFiles(
        name="allocation", key=("namespace",), refers={"namespace": "namespaces"}, ignores_case=False
    )
    noun = "definition"
    action = DEFINITION
    new = DefinitionInFile
    reads = VIEW_COSTS
    changes = MODIFY_DIMENSIONS
    defines_dimensions = True

    def id_of(self, row: DefinitionInFile) -> str:
        return DEFAULT if row.namespace == DEFAULT_WORD else row.namespace

    async def rows_by_id(self, registry: Registry) -> Mapping[str, DefinitionInFile]:
        table, owners = registry.declared_table(AllocationTable), registry.file_owners.all()
        return {
            namespace: await self.find(registry, namespace)
            for namespace, version in table.versions_in_force().items()
            if version.dimensions or owner_document_id(self.action, namespace) in owners
        }

    async def find(self, registry: Registry, id: str) -> DefinitionInFile:
        table = registry.declared_table(AllocationTable)
        text = await table.version_text(table.versions_in_force()[id])
        return DefinitionInFile(namespace=id or DEFAULT_WORD, definition=text)

    async def create(self, caller: MoneyCaller, new_values: DefinitionInFile, secret: str | None) -> str:
        namespace = self.id_of(new_values)
        checked = caller.services.require_definition_publisher().parse_and_check(
            new_values.definition.encode(), await caller.known()
        )
        await caller.registry.declared_table(AllocationTable).publish_now(
            new_values.definition,
            namespace=namespace,
            dimensions=[dimension.id for dimension in checked.dimensions],
            max_versions=caller.services.allocation().max_versions,
            actor=caller.actor,
        )
        return namespace

    async def change(
        self, caller: MoneyCaller, row: DefinitionInFile, new_values: DefinitionInFile, secret: str | None
    ) -> None:
        if new_values != row:
            await self.create(caller, new_values, secret)

    def named_values(self, fields: Mapping[str, Any]) -> Any:
        from gateway.core.yaml_text import read_yaml  # imported late, because it loads the YAML library

        return read_yaml(fields["definition"].encode(), DefinitionFaults())

    def broken_reason(self, row: DefinitionInFile, known_dimensions: Collection[str]) -> str:
        try:
            parse_definition(row.definition.encode(), known_dimensions, ANY_SIZE)
        except InvalidDefinition as error:
            return str(error)
        return ""

    async def delete(self, caller: MoneyCaller, row: DefinitionInFile) -> None:
        await self.create(
            caller, DefinitionInFile(namespace=row.namespace, definition="Dimensions: {}\n"), None
        )

    async def check_objects_agree(self, caller: MoneyCaller) -> None:
        versions = caller.registry.declared_table(AllocationTable).versions_in_force()
        named = {namespace: definition_with_rules_removed(version) for namespace, version in versions.items()}
        join_definitions(named, caller.services.allocation_limits())


DEFINITION_KIND = AllocationDefinitionFileHandler()


@_call(
    "POST",
    _NAMESPACE,
    "allocation:create_namespace",
    "Create a namespace",
    gives={JSON: OneNamespace},
    may_be_empty=True,
)
async def create_namespace(request: OperationKeyRequest[MoneyServices, NewNamespace]) -> Result:
    new_namespace = NewNamespaceOfId(
        id=request.path_parameter("namespace"), **msgspec.structs.asdict(request.body)
    )
    return await NAMESPACE.create(asker_for_key(request), new_namespace)


@_publish_call(
    _NAMESPACE + "/definitions", "Publish the definition of a namespace with a job", 202, OnePublishJob
)
@_faults_as_422
async def create_namespaced_definition_async(request: KeyRequest[MoneyServices, bytes]) -> Result:
    return await _submit_definition(request, request.path_parameter("namespace"))


# -- publish jobs --------------------------------------------------------------------------------------------


@_call(
    "GET", _JOBS, "allocation:list_publish_jobs", "List publish jobs", lists=PUBLISH_JOBS, item=PublishJobItem
)
async def list_publish_jobs(request: KeyRequest[MoneyServices, None]) -> Result:
    return await request.list_page(PUBLISH_JOBS, job_rows(request.services))


@_call("GET", _JOB, "allocation:read_publish_job", "Show a publish job", gives={JSON: OnePublishJob})
async def read_publish_job(request: KeyRequest[MoneyServices, None]) -> Result:
    table = request.services.require_registry().declared_table(AllocationTable)
    return {"publish_job": describe_job(table.find_job(request.path_parameter("job")))}


@_call(
    "POST",
    _JOB + "/cancel",
    "allocation:cancel_publish_job",
    "Cancel a publish job that has not started publishing",
    gives={JSON: OnePublishJob},
)
async def cancel_publish_job(request: KeyRequest[MoneyServices, None]) -> Result:
    table = request.services.require_registry().declared_table(AllocationTable)
    return {
        "publish_job": describe_job(
            await table.cancel_job(request.path_parameter("job"), actor=request.actor)
        )
    }


# -- shared with the operator API ----------------------------------------------------------------------------


def find_version(money: MoneyServices, namespace: str, id_or_name: str) -> DefinitionVersion:
    """
    Return the version that `id_or_name` names: a number, or LATEST. Raises NotThere if there is no such version.
    """
    table = money.require_registry().declared_table(AllocationTable)
    table.require_namespace(namespace)
    if id_or_name == LATEST:
        newest = table.versions_in_force().get(namespace)
        if newest is None:
            raise NotThere("no definition is published yet")
        return newest
    is_number = id_or_name.isascii() and id_or_name.isdecimal() and len(id_or_name) <= _MOST_DIGITS
    return table.version(namespace, int(id_or_name) if is_number else 0)


async def describe_with_text(
    money: MoneyServices, version: DefinitionVersion, uri: str | None = None
) -> dict[str, Any]:
    text = await money.require_registry().declared_table(AllocationTable).version_text(version)
    return {**describe_version(shown_definition_version(money, version, uri)), "definition": text}


async def preview_version(
    money: MoneyServices, text: bytes, namespace: str, actor: Actor
) -> Mapping[str, object]:
    """
    Return the version that a definition would become. Nothing is stored. Raises InvalidDefinition with every fault.
    """
    table = money.require_registry().declared_table(AllocationTable)
    table.require_namespace(namespace)
    definition = await money.require_definition_publisher().validate_text(text, namespace)
    would_be = DefinitionVersion(
        namespace=namespace,
        number=table.latest_version_number(namespace) + 1,
        dimensions=tuple(dimension.id for dimension in definition.dimensions),
        bytes=len(text),
        created=money.clock.now(),
        created_by=actor.name,
    )
    source_border = describe_first_value_times(
        await find_first_value_times(money.ledger, sources_read_by(definition))
    )
    return {**describe_version(shown_definition_version(money, would_be)), "border": source_border}


def parse_base_version(text: str | None) -> int | None:
    """Parse the base version: None for the version in force, 0 if there was none. Raises Refusal 400."""
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise Refusal(400, "invalid_parameter", "base_version must be the number of a version, or 0 for none")
    return int(text)


async def _submit_definition(request: KeyRequest[MoneyServices, bytes], namespace: str) -> Result:
    base = parse_base_version(request.http.query.get("base_version"))
    text = _definition_text(request)
    publishing = request.services.require_definition_publisher()
    return {
        "publish_job": describe_job(
            await publishing.submit(text, namespace=namespace, base=base, actor=request.actor)
        )
    }


def _definition_uri(parent_path: str, version: DefinitionVersion) -> str:
    return f"{parent_path}/{version.number}/definition"


def _parse_flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise Refusal(400, "invalid_parameter", "validate_only must be true or false")
    return text == "true"


def _definition_text(request: KeyRequest[MoneyServices, bytes]) -> bytes:
    """
    Return the definition in the body. Raises Refusal 400 if a form does not hold exactly one definition.
    """
    if request.http.content_type != FORM:
        return request.body
    head = f"Content-Type: {request.http.headers.get('Content-Type', '')}\r\n\r\n"
    form = BytesParser().parsebytes(head.encode("latin-1", "replace") + request.body)
    parts = form.get_payload()
    if (
        not isinstance(parts, list)
        or len(parts) != 1
        or not isinstance(parts[0], Message)
        or parts[0].is_multipart()
    ):
        raise Refusal(400, "bad_payload", f"A form of {FORM} must hold the definition as its only part.")
    text = parts[0].get_payload(decode=True)
    return text if isinstance(text, bytes) else b""

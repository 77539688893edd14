"""
Publishing of definitions. Jobs run one after the other. A job validates its definition and then puts it in force.

A job is stored before it starts. If a process ends during a job, the next process that may run jobs finishes it. If
several gateways share a storage, only one of them runs jobs at a time, and all put the published definitions in
force.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from gateway.core.faults import Fault, InvalidDefinition
from gateway.money.allocation.declared import (
    OVER,
    PUBLISHING,
    VALIDATING,
    AllocationTable,
    DefinitionVersion,
    JobFault,
    PublishJob,
)
from gateway.money.allocation.definition import PREFIX, AllocationDefinition, Dimension
from gateway.money.allocation.language import Limits, join_definitions, parse_definition
from gateway.money.allocation.published import (
    AllocationDefinitionHolder,
    describe_first_value_times,
    find_first_value_times,
)
from spool.errors import Invalid, NotAllowed, NotThere, SpoolError
from spool.ledger.ledger import Ledger
from spool.loops import failure_logger, failure_reason, for_each_item, repeat
from spool.registry.operators import Actor

_log = logging.getLogger(__name__)

_Version = tuple[int, float]  # version of a definition: its number, and the time when it was created

RETRY_S = 5.0  # seconds until a retry if the registry could not be written
# Published definitions are read without limits, because they stay in force even if the configured limits shrink.
ANY_SIZE = Limits(max_bytes=1 << 40, max_dimensions=1 << 40, max_rules=1 << 40)


class DefinitionPublisher:
    """
    Puts published definitions in force, and runs publish jobs.

    Call `load_versions_in_force` before the first query. `follow_publications` then applies changes that any
    process makes, and `run` runs queued jobs.
    """

    def __init__(
        self,
        table: AllocationTable,
        ledger: Ledger,
        published: AllocationDefinitionHolder,
        *,
        limits: Callable[[], Limits],
        max_versions: Callable[[], int],
        max_jobs: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        """Initialize. `changed` is called when the dimensions in force have changed."""
        self._table = table
        self._ledger = ledger
        self._published = published
        self._limits = limits
        self._max_versions = max_versions
        self._max_jobs = max_jobs
        self._changed = changed
        self._definitions: dict[str, AllocationDefinition] = {}  # namespace -> definition in force
        self._broken: dict[str, InvalidDefinition] = {}
        # by namespace: the version last put in force, or last found to be damaged
        self._taken: dict[str, _Version] = {}
        self._turn = asyncio.Lock()
        self._woken = asyncio.Event()

    async def load_versions_in_force(self) -> None:
        """
        Put the published definitions in force. A definition that cannot be read is logged and not put in force. Raises
        SpoolError, after all others are in force, if the storage failed.
        """
        async with self._turn:
            versions = self._table.versions_in_force()
            current = {
                namespace: (version.number, version.created) for namespace, version in versions.items()
            }
            deleted = self._taken.keys() - current.keys()
            changed = [namespace for namespace in current if current[namespace] != self._taken.get(namespace)]
            for namespace in deleted:
                self._forget_namespace(namespace)
            storage_errors: list[SpoolError] = []

            async def load_namespace(namespace: str) -> None:
                await self._load_version(versions[namespace])
                self._taken[namespace] = current[namespace]

            async def note_failure(namespace: str, error: Exception) -> None:
                if isinstance(error, SpoolError):
                    storage_errors.append(error)
                    return
                self._note_broken_version(versions[namespace], error)
                self._taken[namespace] = current[namespace]

            await for_each_item(changed, load_namespace, note_failure)
            if changed or deleted:
                self._publish_definitions()
            if storage_errors:
                raise storage_errors[0]

    async def follow_publications(self) -> None:
        """Put in force the definitions that any process publishes, and wake `run`. Runs until cancelled."""

        async def put_next_change_in_force() -> None:
            await self._table.wait_for_change()
            self._woken.set()
            try:
                await self.load_versions_in_force()
            except Exception:
                self._table.signal_change_again()
                raise

        await repeat(
            put_next_change_in_force,
            every_s=0.0,
            failed="a published definition could not be put in force yet; trying again",
            action="definition_waits",
            retry_s=RETRY_S,
        )

    def broken_reason(self, namespace: str) -> str | None:
        """Return why the newest version of a namespace is not in force, or None."""
        error = self._broken.get(namespace)
        return None if error is None else f"its newest version is not in force: {error}"

    async def parse_version(self, version: DefinitionVersion) -> AllocationDefinition:
        """
        Parse the definition of a version. Raises InvalidDefinition if it names dimensions that no longer exist.
        """
        if (
            self._table.latest_version_number(version.namespace) == version.number
            and version.namespace in self._definitions
        ):
            return self._definitions[version.namespace]
        return await self._parse_stored_text(version)

    async def _parse_stored_text(self, version: DefinitionVersion) -> AllocationDefinition:
        text = await self._table.version_text(version)
        return await asyncio.to_thread(
            parse_definition, text.encode(), self._ledger.builtin_and_tag_dimensions(), ANY_SIZE
        )

    async def validate_text(self, text: bytes, namespace: str) -> AllocationDefinition:
        """Parse and check a text that is to be published. Raises InvalidDefinition with every fault."""
        limits = self._limits()
        known = self._ledger.builtin_and_tag_dimensions()
        drafted = await asyncio.to_thread(self.parse_and_check, text, known)
        other_definitions = {
            name: definition
            for name, definition in self._definitions_by_namespace().items()
            if name != namespace
        }
        join_definitions({**other_definitions, namespace: drafted}, limits)
        return drafted

    def parse_and_check(self, text: bytes, known_names: Collection[str]) -> AllocationDefinition:
        """
        Parse and check a text without the definitions of other namespaces. Raises InvalidDefinition with
        every fault.
        """
        drafted = parse_definition(text, known_names, self._limits())
        try:
            self._table.people.reject_dropped_names(drafted.exact_match_values)
        except Invalid as error:
            raise InvalidDefinition([Fault(str(error), "", [])]) from None
        return drafted

    async def submit(self, text: bytes, *, namespace: str, base: int | None, actor: Actor) -> PublishJob:
        """
        Queue a job for `run`. Raises InvalidDefinition if the text is too large, and NotAllowed if another
        version is in force than `base`.
        """
        job = await self._table.submit_job(
            self._check_storable(text), namespace=namespace, base=base, most=self._max_jobs(), actor=actor
        )
        self._woken.set()
        return job

    async def publish(
        self, text: bytes, *, namespace: str, base: int | None, actor: Actor
    ) -> tuple[PublishJob, DefinitionVersion]:
        """
        Publish a definition now, after the jobs that are already waiting.

        Raises InvalidDefinition. Raises NotAllowed if another version is in force than `base`, or if the job
        was cancelled. Faults are found before a job is created, so an invalid definition creates no job.
        """
        self._table.require_namespace(namespace)
        await self.validate_text(text, namespace)
        limit = self._max_jobs()
        new_job = await self._table.submit_job(
            self._check_storable(text), namespace=namespace, base=base, most=limit, actor=actor
        )
        for unfinished_job in self._table.unfinished_jobs():
            if unfinished_job.number < new_job.number:
                await self._run_if_unfinished(unfinished_job.id)
        job = await self._run_if_unfinished(new_job.id)
        if job.version is None:
            if job.faults:
                raise InvalidDefinition(
                    [Fault(fault.error, fault.value, list(fault.path)) for fault in job.faults]
                )
            raise NotAllowed(job.error or f"the publish job was {job.state}")
        return job, self._table.version(namespace, job.version)

    async def run(self) -> None:
        """Run all waiting jobs, now and after each wake-up. Runs until cancelled."""
        log = failure_logger("a publish job could not be run; trying again", action="publish_jobs_wait")

        async def run_waiting_jobs() -> None:
            self._woken.clear()
            ids = [job.id for job in self._table.unfinished_jobs()]
            if await for_each_item(ids, self._run_if_unfinished, log):
                await asyncio.sleep(RETRY_S)
            else:
                await self._woken.wait()

        await repeat(
            run_waiting_jobs,
            every_s=0.0,
            failed="publish jobs could not be run; trying again",
            action="publish_jobs_wait",
            retry_s=RETRY_S,
        )

    async def _run_if_unfinished(self, id: str) -> PublishJob:
        """
        Run a job if it is unfinished, and return it. Only one job runs at a time. Raises SpoolError if the
        registry is not writable.
        """
        async with self._turn:
            if (job := self._table.find_job(id)).state in OVER:
                return job
            try:
                return await self._run_job(job)
            except InvalidDefinition as error:
                faults = [
                    JobFault(error=fault.error, value=fault.value, path=tuple(fault.path))
                    for fault in error.faults
                ]
                return await self._fail_job(id, f"the definition is not valid: {error}", faults)
            except (NotAllowed, NotThere) as error:
                return await self._fail_job(id, str(error))
            except (SpoolError, OSError):
                raise
            except Exception:  # noqa: BLE001 - the supervised loop: one job fails, the others go on
                _log.exception(
                    "a publish job failed because of a bug", extra={"action": "publish_job_failed", "job": id}
                )
                return await self._fail_job(id, "this is a bug in Tollhouse; the log has the details")

    async def _run_job(self, job: PublishJob) -> PublishJob:
        await self._table.advance_job(job.id, VALIDATING)
        text = await self._table.definition_text_of_publish_job(job.id)
        definition = await self.validate_text(text.encode(), job.namespace)
        from gateway.money.allocation.difference import (
            sources_read_by,  # imported late to keep the start fast
        )

        border_fields = describe_first_value_times(
            await find_first_value_times(self._ledger, sources_read_by(definition))
        )
        await self._table.advance_job(job.id, PUBLISHING)
        keys = [dimension.id for dimension in definition.dimensions]
        new_version = await self._table.publish_job_version(
            job.id, dimensions=keys, values_known_since=border_fields, max_versions=self._max_versions()
        )
        self._definitions[job.namespace] = definition
        self._broken.pop(job.namespace, None)
        self._taken[job.namespace] = new_version.number, new_version.created
        self._publish_definitions()
        return self._table.find_job(job.id)

    async def _load_version(self, version: DefinitionVersion) -> None:
        drafted = await self._parse_stored_text(version)
        self._forget_namespace(version.namespace)
        self._definitions[version.namespace] = drafted

    def _note_broken_version(self, version: DefinitionVersion, error: Exception) -> None:
        self._forget_namespace(version.namespace)
        extra = {"action": "definition_broken", "namespace": version.namespace, "version": version.number}
        if isinstance(error, InvalidDefinition):
            self._broken[version.namespace] = error
            _log.error("a published definition is not in force: %s", error, extra=extra)
        else:
            self._broken[version.namespace] = InvalidDefinition([Fault(failure_reason(error), "", [])])
            _log.error("a published definition is not in force", exc_info=error, extra=extra)

    def _forget_namespace(self, namespace: str) -> None:
        self._definitions.pop(namespace, None)
        self._broken.pop(namespace, None)
        self._taken.pop(namespace, None)

    async def _fail_job(self, id: str, error: str, faults: Sequence[JobFault] = ()) -> PublishJob:
        """Mark a job as failed, unless it is already finished."""
        if (job := self._table.find_job(id)).state in OVER:
            return job
        try:
            return await self._table.fail_job(id, error, faults)
        except NotAllowed:  # another process has already finished the job
            return self._table.find_job(id)

    def _publish_definitions(self) -> None:
        versions = self._table.versions_in_force()
        names = [name for name in sorted(self._definitions) if name in versions]
        labels = (f"{name} {versions[name].number}".strip() for name in names)
        together = join_definitions({name: self._definitions[name] for name in names}, ANY_SIZE)
        self._published.put_in_force(together, version=", ".join(labels))
        self._changed()

    def _definitions_by_namespace(self) -> Mapping[str, AllocationDefinition]:
        versions = self._table.versions_in_force()
        waiting = {
            name: definition_with_rules_removed(versions[name]) for name in self._broken if name in versions
        }
        return {
            **{name: definition for name, definition in self._definitions.items() if name in versions},
            **waiting,
        }

    def _check_storable(self, text: bytes) -> str:
        limit = self._limits().max_bytes
        if len(text) > limit:
            error = (
                f"a definition may have at most {limit} bytes (allocation.max_definition_bytes), but "
                f"this one has {len(text)}"
            )
            raise InvalidDefinition([Fault(error, "", [])])
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise InvalidDefinition(
                [Fault(f"the text must be UTF-8, but byte {error.start} is not", "", [])]
            ) from None


def definition_with_rules_removed(version: DefinitionVersion) -> AllocationDefinition:
    """
    Return the dimensions of a version without their rules. This is enough to find the namespace that
    owns each dimension.
    """
    return AllocationDefinition(
        [Dimension(id=id, name=id.removeprefix(PREFIX), rules=()) for id in version.dimensions]
    )

"""
Publishing definitions: jobs one after the other, each validated and then put in force, and what is in force already.

A job is kept before it is begun. One that was under way when a process ended is carried out by the next that may:
of several on one storage one carries out jobs at a time, and each puts in force what any of them published.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence

from gateway.money.allocation.declared import (
    OVER,
    PUBLISHING,
    VALIDATING,
    AllocationTable,
    DefinitionVersion,
    JobFault,
    PublishJob,
)
from gateway.money.allocation.definition import PREFIX, Definition, Dimension
from gateway.money.allocation.faults import Fault, InvalidDefinition
from gateway.money.allocation.language import Limits, joined, parse
from gateway.money.allocation.published import Published, border, describe
from spool.errors import Invalid, NotAllowed, NotThere, SpoolError
from spool.ledger.ledger import Ledger
from spool.registry.operators import Actor

_log = logging.getLogger(__name__)

_Version = tuple[int, float]  # a version's number, and when it was published

RETRY_S = 5.0  # after the registry could not be written
# What was published stays in force when the limits are made smaller.
_ANY_SIZE = Limits(max_bytes=1 << 40, max_dimensions=1 << 40, max_rules=1 << 40)


class Publishing:
    """`load` it before anything is asked; `follow` keeps it so, and `run` carries out jobs that nobody waits for."""

    def __init__(
        self,
        table: AllocationTable,
        ledger: Ledger,
        published: Published,
        *,
        limits: Callable[[], Limits],
        max_versions: Callable[[], int],
        max_jobs: Callable[[], int],
        changed: Callable[[], None],
    ) -> None:
        """`changed` is called when other dimensions are in force."""
        self._table = table
        self._ledger = ledger
        self._published = published
        self._limits = limits
        self._max_versions = max_versions
        self._max_jobs = max_jobs
        self._changed = changed
        self._definitions: dict[str, Definition] = {}  # in force, by namespace
        self._broken: dict[str, InvalidDefinition] = {}
        self._taken: dict[
            str, _Version
        ] = {}  # of each namespace, the version that was put in force or is broken
        self._turn = asyncio.Lock()
        self._woken = asyncio.Event()

    async def load(self) -> None:
        """
        Put in force what was published, here before or by another process. What the ledger cannot carry out
        any more is left out, and logged.
        """
        async with self._turn:
            versions = self._table.in_force()
            found = {namespace: (each.number, each.created) for namespace, each in versions.items()}
            gone = self._taken.keys() - found.keys()
            changed = [namespace for namespace in found if found[namespace] != self._taken.get(namespace)]
            for namespace in gone:
                self._leave(namespace)
            for namespace in changed:
                await self._take(versions[namespace])
                self._taken[namespace] = found[namespace]
            if changed or gone:
                self._put()

    async def follow(self) -> None:
        """Put in force what any process publishes, and have `run` look for jobs. Runs until cancelled."""
        while True:
            await self._table.changes()
            self._woken.set()
            try:
                await self.load()
            except (SpoolError, InvalidDefinition) as error:
                _log.error("a published definition waits: %s", error, extra={"action": "definition_waits"})
                await asyncio.sleep(RETRY_S)
                self._table.look_again()

    def broken(self, namespace: str) -> str | None:
        """Why the newest version of a namespace is not in force; None if it is, or if there is none."""
        error = self._broken.get(namespace)
        return None if error is None else f"its newest version is not in force: {error}"

    async def definition_of(self, version: DefinitionVersion) -> Definition:
        """Return the definition of a version; InvalidDefinition if the ledger could not carry it out any more."""
        if self._table.latest(version.namespace) == version.number and version.namespace in self._definitions:
            return self._definitions[version.namespace]
        text = await self._table.text(version)
        return await asyncio.to_thread(parse, text.encode(), self._ledger.own_dimensions(), _ANY_SIZE)

    async def validated(self, text: bytes, namespace: str) -> Definition:
        """The definition of a text that could be published now; InvalidDefinition with every fault."""
        limits = self._limits()
        drafted = await asyncio.to_thread(parse, text, self._ledger.own_dimensions(), limits)
        try:
            self._table.people.check(drafted.equal_values)
        except Invalid as error:
            raise InvalidDefinition([Fault(str(error), "", [])]) from None
        others = {name: each for name, each in self._owned().items() if name != namespace}
        joined({**others, namespace: drafted}, limits)
        return drafted

    async def submit(self, text: bytes, *, namespace: str, base: int | None, actor: Actor) -> PublishJob:
        """
        A job that `run` carries out. InvalidDefinition for a text that cannot be kept; NotAllowed for a stale base.
        """
        job = await self._table.submit(
            self._storable(text), namespace=namespace, base=base, most=self._max_jobs(), actor=actor
        )
        self._woken.set()
        return job

    async def publish(
        self, text: bytes, *, namespace: str, base: int | None, actor: Actor
    ) -> tuple[PublishJob, DefinitionVersion]:
        """
        Publish now, after the jobs that wait. InvalidDefinition, NotAllowed for a stale base or a cancelled job.

        Faults are found before a job is made: a definition that cannot be published leaves none.
        """
        self._table.check_namespace(namespace)
        await self.validated(text, namespace)
        most = self._max_jobs()
        made = await self._table.submit(
            self._storable(text), namespace=namespace, base=base, most=most, actor=actor
        )
        for each in self._table.unfinished():
            if each.number < made.number:
                await self._carry_out(each.id)
        job = await self._carry_out(made.id)
        if job.version is None:
            if job.faults:
                raise InvalidDefinition(
                    [Fault(each.error, each.value, list(each.path)) for each in job.faults]
                )
            raise NotAllowed(job.error or f"the publish job was {job.state}")
        return job, self._table.version(namespace, job.version)

    async def run(self) -> None:
        """Carry out what waits, now and whenever a job comes. Runs until cancelled."""
        while True:
            self._woken.clear()
            try:
                for job in self._table.unfinished():
                    await self._carry_out(job.id)
            except (SpoolError, OSError):
                _log.exception("publish jobs wait", extra={"action": "publish_jobs_wait"})
                await asyncio.sleep(RETRY_S)
                continue
            await self._woken.wait()

    async def _carry_out(self, id: str) -> PublishJob:
        """The job when it is over; one at a time. SpoolError while the registry cannot be written."""
        async with self._turn:
            if (job := self._table.job(id)).state in OVER:
                return job
            try:
                return await self._steps(job)
            except InvalidDefinition as error:
                faults = [
                    JobFault(error=each.error, value=each.value, path=tuple(each.path))
                    for each in error.faults
                ]
                return await self._end(id, f"the definition is not valid: {error}", faults)
            except (NotAllowed, NotThere) as error:
                return await self._end(id, str(error))
            except (SpoolError, OSError):
                raise
            except Exception:  # noqa: BLE001 - the supervised loop: one job fails, the others go on
                _log.exception("a publish job failed", extra={"action": "publish_job_failed", "job": id})
                return await self._end(id, "Tollhouse made a mistake; its log says why")

    async def _steps(self, job: PublishJob) -> PublishJob:
        await self._table.advance(job.id, VALIDATING)
        text = await self._table.job_text(job.id)
        definition = await self.validated(text.encode(), job.namespace)
        from gateway.money.allocation.difference import sources_of  # no start needs it

        found = describe(await border(self._ledger, sources_of(definition)))
        await self._table.advance(job.id, PUBLISHING)
        keys = [each.id for each in definition.dimensions]
        made = await self._table.publish(job.id, dimensions=keys, border=found, most=self._max_versions())
        self._definitions[job.namespace] = definition
        self._broken.pop(job.namespace, None)
        self._taken[job.namespace] = made.number, made.created
        self._put()
        return self._table.job(job.id)

    async def _take(self, version: DefinitionVersion) -> None:
        text = await self._table.text(version)
        try:
            drafted = await asyncio.to_thread(parse, text.encode(), self._ledger.own_dimensions(), _ANY_SIZE)
        except InvalidDefinition as error:
            self._leave(version.namespace)
            self._broken[version.namespace] = error
            extra = {"action": "definition_broken", "namespace": version.namespace, "version": version.number}
            _log.error("a published definition is not in force: %s", error, extra=extra)
        else:
            self._leave(version.namespace)
            self._definitions[version.namespace] = drafted

    def _leave(self, namespace: str) -> None:
        self._definitions.pop(namespace, None)
        self._broken.pop(namespace, None)
        self._taken.pop(namespace, None)

    async def _end(self, id: str, error: str, faults: Sequence[JobFault] = ()) -> PublishJob:
        """End a job without a version, unless it was cancelled."""
        if (job := self._table.job(id)).state in OVER:
            return job
        try:
            return await self._table.fail(id, error, faults)
        except NotAllowed:  # another process ended it meanwhile
            return self._table.job(id)

    def _put(self) -> None:
        versions = self._table.in_force()
        names = [name for name in sorted(self._definitions) if name in versions]
        words = (f"{name} {versions[name].number}".strip() for name in names)
        together = joined({name: self._definitions[name] for name in names}, _ANY_SIZE)
        self._published.put(together, version=", ".join(words))
        self._changed()

    def _owned(self) -> Mapping[str, Definition]:
        """Return the dimensions of each namespace, also of those that are not in force."""
        versions = self._table.in_force()
        waiting = {
            name: Definition(
                [Dimension(id=id, name=id.removeprefix(PREFIX), rules=()) for id in versions[name].dimensions]
            )
            for name in self._broken
            if name in versions
        }
        return {**{name: each for name, each in self._definitions.items() if name in versions}, **waiting}

    def _storable(self, text: bytes) -> str:
        most = self._limits().max_bytes
        if len(text) > most:
            error = (
                f"a definition may have {most} bytes (allocation.max_definition_bytes), this has {len(text)}"
            )
            raise InvalidDefinition([Fault(error, "", [])])
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise InvalidDefinition(
                [Fault(f"the text must be UTF-8; byte {error.start} is not", "", [])]
            ) from None


def _names_of(version: DefinitionVersion) -> Definition:
    """The dimensions of a version without their rules: enough to see whose they are."""
    return Definition([Dimension(id=id, name=id.removeprefix(PREFIX), rules=()) for id in version.dimensions])

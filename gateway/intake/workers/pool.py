"""
The workers of a server: assignment of jobs, and repetition of jobs when a worker dies.

The server stores every job until it is done, so a dead worker loses nothing. If a worker dies during a job,
only another worker repeats the job, never the server itself. After three deaths, the body is refused. Jobs
that waited in the same worker are not affected.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, Protocol

from gateway.intake.workers import jobs
from gateway.intake.workers.jobs import NotDone
from gateway.intake.workers.messages import ArrivingResult, MessageKind, WorkerMessage
from gateway.intake.workers.process import StartChild, WorkerProcess
from gateway.normalise.formats.engine.declaration import Normalised
from gateway.normalise.outcome import Options
from gateway.normalise.payload.body_limits import Hold
from gateway.service.errors import Refusal
from spool.turns.fair_turns import Party, current_work

# Limit in bytes for the jobs that one worker holds. Further jobs would only wait in the worker's memory,
# after jobs that may take long.
WINDOW: Final = 1024 * 1024
# A body is refused after this number of worker deaths. Fewer deaths may have another cause, such as `kill -9`.
MOST_KILLS: Final = 3
# delay in seconds before a worker is started again; it doubles after each further death
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0  # if a worker has run for this number of seconds, its death counts as a new problem
NO_WORKER_S: Final = 30.0  # seconds that a job waits for a worker if only a worker may do it
DIED, SILENT, NOT_STARTED = "died", "silent", "not_started"
DEATHS = (DIED, SILENT, NOT_STARTED)

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class PendingJob:
    """A job. The server stores it until it is done, and passes its result to the waiting caller."""

    kind: MessageKind
    payload: bytes
    done: asyncio.Future[Any]
    reader: str | None = None
    options: Options | None = None
    hold: Hold | None = None
    result: ArrivingResult = field(default_factory=ArrivingResult)
    number: int = 0
    kills: int = 0
    party: Party | None = None  # party of the body, or None if the job belongs to the server itself
    given_at: float = 0.0

    @property
    def used(self) -> float:
        """
        Return the worker time that the party of the job has used. The job with the smallest value runs first.
        Repeated jobs have a value below all others, so they run before all others.
        """
        if self.kills:
            return -1.0
        return 0.0 if self.party is None else self.party.used

    def holds(self, size: int) -> bool:
        """
        Reserve memory for the job. If that raises an error, the error becomes the job's result, and
        False is returned.
        """
        if self.hold is None:
            return True
        try:
            self.hold(size)
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self.fail(error)
            return False
        return True

    def fail(self, error: Exception) -> None:
        with suppress(asyncio.InvalidStateError):
            self.done.set_exception(error)

    def refuse(self) -> None:
        why = "Three processes ended while they read this body, so it is rejected"
        self.fail(Refusal(400, "undecodable", f"{why}. Send its items in smaller batches."))


class WorkerObserver(Protocol):
    """An observer of the workers. Every method must return at once."""

    def worker_died(self, reason: str) -> None: ...

    def body_decoded(self, by: str) -> None: ...


class _Worker:
    """A slot for one worker process at a time."""

    def __init__(self) -> None:
        self.process: WorkerProcess | None = None
        self.jobs: dict[int, PendingJob] = {}  # pending jobs, in the order in which they were sent
        self.bytes = 0
        self.is_ready = False
        self.options: Options | None = None  # options that were sent last
        self.reader: str | None = None  # name of the reader that was sent last
        self.heard_at = 0.0
        self.free_at = 0.0  # time when the job before the first pending job was done
        self.watched: WorkerProcess | None = None  # the process that is checked for silence after `silent_s`
        self.why_ended = DIED

    @property
    def has_room(self) -> bool:
        return self.is_ready and (self.bytes < WINDOW or not self.jobs)


class WorkerPool:
    """
    A pool of worker processes. Call `start`, then `decode` and `encode` from the same event loop, then `close`.
    """

    def __init__(self, count: int, start: StartChild, *, silent_s: float, observer: WorkerObserver) -> None:
        """Prepare the pool. A worker with jobs that sends nothing for `silent_s` is replaced."""
        self._start_child = start
        self._silent_s = silent_s
        self._observer = observer
        self._workers = [_Worker() for _ in range(count)]
        self._waiting: deque[PendingJob] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        self._numbers = 0
        self._closed = False
        self._complete = asyncio.Event()

    def start(self) -> None:
        """Start every worker. Until one is ready, the server does all jobs itself."""
        self._tasks = [
            asyncio.create_task(self._keep_alive(worker), name=f"worker {number}")
            for number, worker in enumerate(self._workers, start=1)
        ]

    async def complete(self) -> None:
        """Wait until every worker accepts jobs."""
        await self._complete.wait()

    async def close(self) -> None:
        """End the workers. Pending jobs raise NotDone."""
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for job in self._waiting:
            job.fail(NotDone())
        self._waiting.clear()

    @property
    def ready(self) -> int:
        """Return the number of workers that accept jobs now."""
        return sum(worker.is_ready for worker in self._workers)

    @property
    def pids(self) -> Sequence[int]:
        return [
            worker.process.pid for worker in self._workers if worker.process is not None and worker.is_ready
        ]

    @property
    def has_room(self) -> bool:
        """Return whether a worker would begin a job soon."""
        return not self._waiting and any(worker.has_room for worker in self._workers)

    async def decode(self, body: jobs.SentBody, options: Options, hold: Hold) -> Normalised:
        """
        Decode a body in a worker, as `SentBody.normalise` does. `hold` is called with the memory that the
        items need, and may raise.

        Raises NotDone if no worker did the job and the caller may do it. Raises Refusal 400 if the body
        ended several workers.
        """
        job = self._job(MessageKind.DECODE, body.content)
        job.reader, job.options, job.hold = body.reader, options, hold
        normalised: Normalised = await self._do(job)
        self._observer.body_decoded("worker")
        return normalised

    async def encode(self, payload: bytes) -> bytes | None:
        """Encode a payload in a worker. Return None if the caller must do it."""
        if not self.has_room:
            return None
        try:
            result: bytes = await self._do(self._job(MessageKind.ENCODE, payload))
        except (NotDone, Refusal):  # no sender waits for this job, so nobody could receive a refusal
            return None
        return result

    def _job(self, kind: MessageKind, payload: bytes) -> PendingJob:
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        work = current_work()
        return PendingJob(kind=kind, payload=payload, done=done, party=None if work is None else work.party)

    async def _do(self, job: PendingJob) -> Any:
        if not self._closed and self.ready:
            self._waiting.append(job)
            self._assign()
            try:
                return await job.done
            finally:
                if job in self._waiting:  # a job that still waits here belongs to a cancelled caller
                    self._waiting.remove(job)
        raise NotDone

    # -- assigning jobs -------------------------------------------------------------------------------------------

    def _assign(self) -> None:
        """
        Assign waiting jobs to the workers with the fewest pending bytes. The job of the party that used the
        least worker time is first.
        """
        while self._waiting:
            worker = min(
                (free for free in self._workers if free.has_room),
                key=lambda free: free.bytes,
                default=None,
            )
            if worker is None:
                return
            job = min(self._waiting, key=attrgetter("used"))
            self._waiting.remove(job)
            if not job.done.done():
                self._give(worker, job)

    def _give(self, worker: _Worker, job: PendingJob) -> None:
        process = worker.process
        assert process is not None
        if job.options is not None and job.options is not worker.options:
            process.send(MessageKind.OPTIONS, 0, jobs.packed_options(job.options))
            worker.options = job.options
        if job.reader is not None and job.reader != worker.reader:
            process.send(MessageKind.READER, 0, job.reader.encode())
            worker.reader = job.reader
        if not worker.jobs:
            self._listen(worker)
        self._numbers = (self._numbers + 1) % (1 << 32)
        job.number, job.result = self._numbers, ArrivingResult()
        job.given_at = time.perf_counter()
        worker.jobs[job.number] = job
        worker.bytes += len(job.payload)
        process.send(job.kind, job.number, job.payload)

    def _listen(self, worker: _Worker) -> None:
        """Watch the worker: while it has jobs, it must send something within `silent_s`."""
        loop = asyncio.get_running_loop()
        process = worker.process
        worker.heard_at = loop.time()
        if worker.watched is process:
            return
        worker.watched = process

        def look() -> None:
            if worker.process is not process or process is None:
                return
            if not worker.jobs:
                worker.watched = None
                return
            remaining_s = worker.heard_at + self._silent_s - loop.time()
            if remaining_s > 0:
                loop.call_later(remaining_s, look)
            else:
                worker.why_ended = SILENT
                process.kill()

        loop.call_later(self._silent_s, look)

    def _take(self, worker: _Worker, message: WorkerMessage) -> None:
        worker.heard_at = asyncio.get_running_loop().time()
        if message.kind == MessageKind.READY:
            worker.is_ready = True
            if self.ready == len(self._workers):
                self._complete.set()
            self._assign()
            return
        job = worker.jobs.get(message.job)
        # an earlier part of this job's result could not be decoded, so the further parts are ignored
        if job is None:
            return
        try:
            self._take_of(worker, job, message)
        except Exception as error:  # noqa: BLE001 - a worker of another version: its jobs must not wait for ever
            extra = {"action": "worker_not_understood", "error": type(error).__name__}
            _log.error("a worker is replaced because its message cannot be decoded", extra=extra)
            worker.jobs.pop(message.job, None)
            job.fail(NotDone())
            if worker.process is not None:
                worker.process.kill()

    def _take_of(self, worker: _Worker, job: PendingJob, message: WorkerMessage) -> None:
        match message.kind:
            case MessageKind.PART:
                job.result.add_part(message.payload)
            case MessageKind.ROWS:
                job.result.add_rows(message.payload)
            case MessageKind.HOLD:
                self._answer_hold(worker, job, int.from_bytes(message.payload, "little"))
            case MessageKind.DONE | MessageKind.REFUSED | MessageKind.FAILED | MessageKind.GIVEN_UP:
                del worker.jobs[message.job]
                worker.bytes -= len(job.payload)
                _charge(worker, job)
                self._finish(job, message)
                self._assign()

    def _answer_hold(self, worker: _Worker, job: PendingJob, size: int) -> None:
        assert worker.process is not None
        if not job.done.done() and job.holds(size):
            worker.process.send(MessageKind.GO_ON, job.number)
        else:
            worker.process.send(MessageKind.GIVE_UP, job.number)

    def _finish(self, job: PendingJob, message: WorkerMessage) -> None:
        if job.done.done():
            return
        match message.kind:
            case MessageKind.DONE if job.kind == MessageKind.ENCODE:
                job.done.set_result(message.payload)
            case MessageKind.DONE:
                held_bytes, normalised = job.result.finish(message.payload)
                if not held_bytes or job.holds(held_bytes):
                    job.done.set_result(normalised)
            case MessageKind.REFUSED:
                job.done.set_exception(jobs.unpacked_refusal(message.payload))
            case _:
                job.done.set_exception(NotDone())

    # -- lifetime of workers --------------------------------------------------------------------------------------

    async def _keep_alive(self, worker: _Worker) -> None:
        """Run one worker process after another, until cancelled."""
        loop = asyncio.get_running_loop()
        pause_s = FIRST_PAUSE_S
        while True:
            began = loop.time()
            try:
                worker.process = WorkerProcess(self._start_child, lambda message: self._take(worker, message))
            except OSError as error:
                self._observer.worker_died(NOT_STARTED)
                _log.error("a worker could not be started: %s", error, extra={"action": "worker_not_started"})
            else:
                await self._await_end(worker, worker.process)
            if loop.time() - began > STEADY_S:
                pause_s = FIRST_PAUSE_S
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _await_end(self, worker: _Worker, process: WorkerProcess) -> None:
        """Wait until the process ends, then reassign its jobs."""
        try:
            await process.ended.wait()
        except asyncio.CancelledError:
            await self._end(worker, process)
            raise
        was_ready = worker.is_ready
        await self._end(worker, process)
        reason = worker.why_ended if was_ready else NOT_STARTED
        worker.why_ended = DIED
        self._observer.worker_died(reason)
        extra = {
            "action": "worker_died",
            "reason": reason,
            "pid": process.pid,
            "exit_code": process.exit_code,
        }
        _log.error("a worker ended; its jobs are repeated, and another worker is started", extra=extra)

    async def _end(self, worker: _Worker, process: WorkerProcess) -> None:
        pending_jobs = list(worker.jobs.values())
        worker.is_ready, worker.process = False, None
        worker.options, worker.reader = None, None
        self._complete.clear()
        worker.jobs.clear()
        worker.bytes = 0
        if self._closed:
            for job in pending_jobs:
                job.fail(NotDone())
        else:
            self._repeat(pending_jobs)
        await process.close()

    def _repeat(self, pending_jobs: Sequence[PendingJob]) -> None:
        """
        Repeat the jobs of a dead worker. The worker was running the first of these jobs, so the server never
        does that job itself.
        """
        for position, job in enumerate(pending_jobs):
            if job.done.done():
                continue
            if position > 0:
                job.fail(NotDone())
                continue
            job.kills += 1
            if job.kills >= MOST_KILLS:
                _log.error(
                    "a body is refused because several workers died while reading it",
                    extra={"action": "body_refused"},
                )
                job.refuse()
                continue
            self._waiting.appendleft(job)
            asyncio.get_running_loop().call_later(NO_WORKER_S, self._give_up_waiting, job)
        if not self.ready:  # if no worker is ready, the callers do the jobs that did not end a worker
            faultless = [job for job in self._waiting if not job.kills]
            self._waiting = deque(job for job in self._waiting if job.kills)
            for job in faultless:
                job.fail(NotDone())
        self._assign()

    def _give_up_waiting(self, job: PendingJob) -> None:
        """Refuse a job that only a worker may do, because no worker became ready."""
        if job in self._waiting:
            self._waiting.remove(job)
            message = "No worker process can be started to read this body. Send it again shortly."
            job.fail(Refusal(503, "no_worker", message, retry_after_s=30))


def _charge(worker: _Worker, job: PendingJob) -> None:
    """Count the worker's time for the party of the job. A worker's jobs run one after the other."""
    now = time.perf_counter()
    if job.party is not None:
        job.party.spend(now - max(job.given_at, worker.free_at))
    worker.free_at = now

"""A job of a worker: it stays with the server until it is done, and its result goes to who waits for it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from gateway.errors import Refusal
from gateway.normalise.options import Options
from gateway.normalise.payload.body_limits import Hold
from gateway.workers.messages import MessageKind
from gateway.workers.results import ArrivingResult
from spool.turns.fair_turns import Party


class NotDone(Exception):
    """No worker has done the job, and none of them died of it: the server may do it itself."""


@dataclass(slots=True, eq=False)
class PendingJob:
    kind: MessageKind
    payload: bytes
    done: asyncio.Future[Any]
    reader: str | None = None
    options: Options | None = None
    hold: Hold | None = None
    result: ArrivingResult = field(default_factory=ArrivingResult)
    number: int = 0
    kills: int = 0
    party: Party | None = None  # whose body it is; None: the server's own
    given_at: float = 0.0

    @property
    def used(self) -> float:
        """Return what its party used: the least is first; a job that is done again precedes all."""
        if self.kills:
            return -1.0
        return 0.0 if self.party is None else self.party.used

    def holds(self, size: int) -> bool:
        """Take memory for the job; what is raised becomes its result."""
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
        why = "Three processes ended while they read this body, so it is not taken"
        self.fail(Refusal(400, "undecodable", f"{why}; send its items in smaller batches."))

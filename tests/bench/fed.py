"""
`python -m tests.bench.fed serve ...` runs the server with workers that decode nothing, to measure the limit
of the server process itself.

A worker decodes one body of each size. It answers every other body of that size at once with the same records
under new ids. So the server never waits for workers, as on a machine with many cores. Workers still encode
deliveries, and all other work is unchanged.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator

from gateway.cli import main
from gateway.intake.workers.jobs import SentBody
from gateway.intake.workers.process import StartChild, starter
from gateway.normalise.formats.engine.declaration import Normalised
from gateway.normalise.outcome import Options
from gateway.normalise.payload.body_limits import Hold
from gateway.service.assembly import parts, worker_process

WORKER = "worker"

_known: dict[tuple[str, int], Normalised] = {}
_normalise = SentBody.normalise


def repeated(body: SentBody, options: Options, hold: Hold) -> Generator[None, None, Normalised]:
    """Return the records of the first body of this size under new ids."""
    key = body.reader, len(body.content)
    if key not in _known:
        _known[key] = yield from _normalise(body, options, hold)
    outcome = _known[key].outcome
    ids = os.urandom(16 * len(outcome.records))
    for place, record in enumerate(outcome.records):
        record.id = ids[16 * place : 16 * place + 16]
        outcome.identities[place] = outcome.identities[place]._replace(id=record.id)
    return _known[key]


def fed(*command: str) -> StartChild:
    """Start this module instead of a worker."""
    return starter("-m", "tests.bench.fed", WORKER, *command[2:])


if __name__ == "__main__":
    if sys.argv[1] == WORKER:
        del sys.argv[1]
        SentBody.normalise = repeated  # type: ignore[method-assign,assignment]
        worker_process.main()
    else:
        parts.starter = fed  # type: ignore[attr-defined]
        main()

"""
Who decodes a body: a worker process or this one. The outcome is the same, whoever it is.

Small bodies are not worth the way to a worker, and this process decodes when every worker has enough pending jobs.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from gateway.http.holders.receivers import ReceiverServices
from gateway.http.inflight_bytes import Share
from gateway.http.turns import LARGE, drive, drive_aside
from gateway.intake.workers.jobs import NotDone, SentBody
from gateway.normalise.formats.engine.declaration import Normalised
from gateway.service.first_use import imported

# Bytes of a body that is worth the way to a worker. Where single spans leave together it saves half of their
# decoding, but they come back one after the other: fewer of them share a commit, which costs as much.
WORTH_A_WAY: Final = 4 * 1024


async def decoded(
    receivers: ReceiverServices, body: SentBody, share: Share, *, aside_above: int = LARGE
) -> Normalised:
    """
    Normalise a body. What its items take is held by the share of the request.
    BadPayload and Refusal as of the normaliser.

    In this process one of more than `aside_above` bytes is read on the thread, unless the memory of spans knows it.
    """
    workers = receivers.workers
    size = len(body.content)
    if workers is not None and size >= WORTH_A_WAY and (workers.has_room or size > LARGE):
        with suppress(NotDone):
            return await workers.decode(body, receivers.options, share.take)
    options = receivers.options
    receivers.metrics.body_decoded("server")
    if receivers.memory is not None and body.is_spans:
        if receivers.memory.made is None:
            await imported("gateway.normalise.memory.spans")
        memory = receivers.memory()
        asked = memory.asked(body.content, options)
        remembered = None if asked is None else await drive(memory.read(asked))
        if remembered is not None:
            return Normalised(remembered)
    if size <= aside_above:
        return await drive(body.normalise(options, share.take))

    return await drive_aside(lambda hold: body.normalise(options, hold), share.take, size=size)

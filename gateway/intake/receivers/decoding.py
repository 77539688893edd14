"""
The choice whether a worker process or this process decodes a body. The outcome is the same.

Small bodies are decoded in this process, because sending them to a worker costs more time. If all workers are
busy, this process decodes as well.
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

# Minimum size in bytes of a body for a worker. For smaller bodies with single spans, a worker would save half
# of the decoding time. But the spans would then return one by one, so fewer of them would share a commit, and
# that costs as much.
WORTH_A_WAY: Final = 4 * 1024


async def decoded(
    receivers: ReceiverServices, body: SentBody, share: Share, *, aside_above: int = LARGE
) -> Normalised:
    """
    Normalise a body. Its items count in the request's share of bytes in flight.

    Raises BadPayload and Refusal as the normaliser does. If this process decodes a body above `aside_above`
    bytes, it does so on the thread, unless the memory of spans knows the body.
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
        selected = memory.select(body.content, options)
        remembered = None if selected is None else await drive(memory.read(selected))
        if remembered is not None:
            return Normalised(remembered)
    if size <= aside_above:
        return await drive(body.normalise(options, share.take))

    return await drive_aside(lambda hold: body.normalise(options, hold), share.take, size=size)

"""Unpacks what senders put into a body as base64 and gzip, within a bound a piece and one a body."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from gateway.errors import Refusal
from gateway.normalise.payload import items as payload
from gateway.normalise.payload.body_limits import TURN, Allowance

MAX_PIECE: Final = 64 * 1024 * 1024  # what a body that comes as it is may hold
MAX_WHOLE: Final = 256 * 1024 * 1024  # log lines repeat themselves, and pack to a twentieth


class Unfolding:
    """One for each body."""

    def __init__(self, allowance: Allowance) -> None:
        self._hold = allowance.hold
        self._allowance = allowance.again()
        self._left = MAX_WHOLE

    def take_off(self, wrapper: payload.Raw) -> Iterator[bytes]:
        """Count a wrapper, which is work even if nothing is in it; TURN when the event loop is due its own."""
        self._allowance.count(1, len(wrapper))
        if self._allowance.is_due(len(wrapper)):
            yield TURN

    def unfold(self, packed: str) -> Generator[bytes, None, bytes]:
        """
        Base64, of gzip or of plain bytes; TURN now and then.

        ValueError if it is neither, payload.TooBig for a piece that can never pass, Refusal for a body
        with too many.
        """
        body = yield from payload.base64(packed)
        if body.startswith(payload.GZIP_MAGIC):
            body = yield from self._inflated(body)
        self._count(len(body))
        self._hold(len(body))
        return body

    def _inflated(self, packed: bytes) -> Generator[bytes, None, bytes]:
        try:
            return (yield from payload.inflate(packed, MAX_PIECE))
        except payload.TooBig:
            self._count(MAX_PIECE)
            raise

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            unfolded = f"What is packed in the body unfolds to more than {MAX_WHOLE} bytes"
            raise Refusal(413, "body_too_large", f"{unfolded}; send smaller batches.")

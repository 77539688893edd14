"""Unpacks what senders put into a body as base64 and gzip, within a bound a piece and one a body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.errors import Refusal
from gateway.normalise.payload import items as payload

MAX_PIECE: Final = 64 * 1024 * 1024  # what a body that comes as it is may hold
MAX_WHOLE: Final = 256 * 1024 * 1024  # log lines repeat themselves, and pack to a twentieth

Hold = Callable[[int], None]  # takes memory for so many bytes beside the body; Refusal if there is none


class Unfolding:
    """One for each body."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._left = MAX_WHOLE

    def unfold(self, packed: str) -> bytes:
        """
        Base64, of gzip or of plain bytes.

        ValueError if it is neither, payload.TooBig for a piece that can never pass, Refusal for a body with
        too many.
        """
        body = payload.base64(packed)
        if body.startswith(payload.GZIP_MAGIC):
            body = self._inflated(body)
        self._count(len(body))
        self._hold(len(body))
        return body

    def _inflated(self, packed: bytes) -> bytes:
        try:
            return payload.inflate(packed, MAX_PIECE)
        except payload.TooBig:
            self._count(MAX_PIECE)
            raise

    def _count(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            unfolded = f"What is packed in the body unfolds to more than {MAX_WHOLE} bytes"
            raise Refusal(413, "body_too_large", f"{unfolded}; send smaller batches.")

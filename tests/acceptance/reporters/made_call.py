"""One call of a model of Anthropic, with everything that any of its reporters may state."""

from __future__ import annotations

import random
import uuid
from dataclasses import dataclass
from decimal import Decimal

MODEL = "claude-sonnet-4-5"
RESPONSE_MODEL = "claude-sonnet-4-5-20250929"
MS = 1_000_000
# Anthropic's prices for the model, in dollars per million tokens
FRESH, READ, WRITTEN, OUTPUT = Decimal(3), Decimal("0.3"), Decimal("3.75"), Decimal(15)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCall:
    """Token counts and times of one call. Input includes cached tokens, output includes thinking."""

    failed: bool
    message_id: str
    request_id: str
    session: str
    start_ns: int
    end_ns: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    thinking: int

    @property
    def fresh(self) -> int:
        return self.input - self.cache_read - self.cache_write

    @property
    def cost(self) -> Decimal:
        millionths = (
            self.fresh * FRESH + self.cache_read * READ + self.cache_write * WRITTEN + self.output * OUTPUT
        )
        return millionths / 1_000_000

    def moment(self, share: float) -> int:
        """Return a time within the call. 0 is its start, 1 is its end."""
        return self.start_ns + int((self.end_ns - self.start_ns) * share)


def made_call(dice: random.Random, start_ns: int, *, failed: bool) -> MadeCall:
    read, written = dice.randrange(50_000), dice.randrange(20_000)
    output = dice.randrange(200, 9_000)
    return MadeCall(
        failed=failed,
        message_id=f"msg_{hex_of(dice, 12)}",
        request_id=f"req_{hex_of(dice, 12)}",
        session=uuid_of(dice),
        start_ns=start_ns,
        end_ns=start_ns + dice.randrange(900, 20_000) * MS,
        input=read + written + dice.randrange(1, 30_000),
        output=output,
        cache_read=read,
        cache_write=written,
        thinking=dice.randrange(output),
    )


def hex_of(dice: random.Random, size: int) -> str:
    return dice.randbytes(size).hex()


def uuid_of(dice: random.Random) -> str:
    return str(uuid.UUID(bytes=dice.randbytes(16), version=4))

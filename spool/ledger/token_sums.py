"""Sums of calls that a price book can price like one call."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

# Input tokens at which prices change. Each size has its own sums, so that these can be priced again.
SIZES = (0, 100_000, 128_000, 200_000, 256_000, 272_000, 512_000)


class TokenSum(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    Calls of one hour, model, processing mode and price tier, as one sum.

    `beyond`: the largest of SIZES (input tokens) that every call's input exceeds, or -1 if unknown.
    """

    provider: str | None
    response_model: str | None
    request_model: str | None
    mode: str
    time: int  # start of the hour, in nanoseconds since the epoch
    beyond: int
    calls: int
    input_tokens: int
    output_tokens: int | None
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cache_write_1h_tokens: int
    meters: Mapping[str, int] = msgspec.field(default_factory=dict)  # quantity by meter, in millionths
    # end of the calls' times in nanoseconds, if all of them must have one price; else 0
    until: int = 0

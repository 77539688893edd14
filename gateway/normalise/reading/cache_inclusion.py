"""
Whether a reported input already holds the cached tokens, and a reported output the reasoning ones.

The record's input and output hold both; senders differ, and only some of them say how they count.
"""

from __future__ import annotations

from typing import NamedTuple


class Tokens(NamedTuple):
    """Token counts of one call, as reported or as settled; None is unknown."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None

    def reported(self) -> int:
        """How many of the fields say something: the fuller of two reports of one call wins."""
        return sum(field is not None for field in self)


def settle(
    said: Tokens, *, total: int | None = None, without_cache: bool = False, without_reasoning: bool = False
) -> Tokens:
    """
    Counts with the cache inside the input and the reasoning inside the output.

    A dialect that is known to leave them out says so (`without_...`). Else a reported total decides, and without one
    the rule that a part cannot be larger than the whole.
    """
    cache = (said.cache_read or 0) + (said.cache_write or 0)
    reasoning = said.reasoning or 0
    given = (said.input or 0) + (said.output or 0)
    if total is not None:
        outside = total - given
        without_cache = without_cache or (cache > 0 and outside in (cache, cache + reasoning))
        rest = outside - cache if without_cache else outside
        without_reasoning = without_reasoning or (reasoning > 0 and rest == reasoning)
    input_tokens, output_tokens = said.input, said.output
    if input_tokens is not None and (without_cache or cache > input_tokens):
        input_tokens += cache
    if output_tokens is not None and (without_reasoning or reasoning > output_tokens):
        output_tokens += reasoning
    if input_tokens == said.input and output_tokens == said.output:
        return said
    return said._replace(input=input_tokens, output=output_tokens)

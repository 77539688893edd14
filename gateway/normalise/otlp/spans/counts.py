"""Which counts of one call are its counts: several sets in one span, or those of two spans that describe it."""

from __future__ import annotations

from gateway.normalise.reading.tokens import Tokens

_PARTS = ("cache_read", "cache_write", "reasoning")


def fuller(kept: Tokens, twin: Tokens) -> Tokens:
    """
    The fuller of two sets; of equally full ones with the same output the one with the larger input.

    A part that it leaves out or says to be 0 is taken from the other where both agree on the sums.
    """
    first, second = (twin, kept) if _is_fuller(twin, kept) else (kept, twin)
    if (first.input, first.output) != (second.input, second.output):
        return first
    missing = {part: getattr(second, part) for part in _PARTS if not getattr(first, part)}
    return _fitting(first, {part: number for part, number in missing.items() if number is not None})


def _is_fuller(tokens: Tokens, other: Tokens) -> bool:
    fullness, other_fullness = _fullness(tokens), _fullness(other)
    is_larger = tokens.output == other.output and (tokens.input or 0) > (other.input or 0)
    return fullness > other_fullness or (fullness == other_fullness and is_larger)


def _fullness(tokens: Tokens) -> tuple[int, int]:
    """How many counts say something, then how many are there: a 0 may stand for what its sender does not know."""
    return sum(map(bool, tokens)), tokens.reported()


def _fitting(tokens: Tokens, parts: dict[str, int]) -> Tokens:
    """With these parts, unless they are more than the whole."""
    found = tokens._replace(**parts) if parts else tokens
    cache = (found.cache_read or 0) + (found.cache_write or 0)
    fits = cache <= (found.input or 0) and (found.reasoning or 0) <= (found.output or 0)
    return found if fits else tokens

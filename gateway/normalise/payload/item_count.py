"""Counts the items of a body before one is read: to refuse too many costs no more than to cut them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from typing import Final

from gateway.errors import BadPayload
from gateway.normalise.payload.body_limits import Allowance

_WINDOW: Final = 4 * 1024 * 1024  # bytes that are looked through without a pause
# A value of a body is its first one, or behind one of these, or the first one in an object of its own.
_SIGNS: Final = (b",", b"\n", b"{")


def check_count(
    body: bytes, items: Callable[[], Iterable[Sized]], allowance: Allowance, *, is_packed: bool = False
) -> Generator[None, None, bool]:
    """
    Refusal 413 if there are more than the allowance has room for; each step is the event loop's turn.

    What is wrong with the body otherwise is left for whoever reads it to say. `items` yields something empty
    where the loop is due its turn. `is_packed`: it finds more than stands in the body as it is. Returns
    whether they were counted one by one, as they need not be in a body that cannot hold so many.
    """
    if not is_packed and not (yield from may_hold_more(body, allowance.max_items)):
        return False
    counted = allowance.ahead()
    try:
        for item in items():
            if not len(item):
                yield
                continue
            counted.count(1, len(item))
            if counted.is_due(len(item)):
                yield
    except BadPayload:
        pass
    return True


def has_any(body: bytes, signs: Sequence[bytes]) -> Generator[None, None, bool]:
    """True if any of the signs stands in a body; each step is the event loop's turn."""
    looked_through = 0
    for start in range(0, len(body), _WINDOW):
        for sign in signs:
            if looked_through >= _WINDOW:
                looked_through = 0
                yield
            if body.find(sign, start, start + _WINDOW + len(sign) - 1) >= 0:
                return True
            looked_through += min(_WINDOW, len(body) - start)
    return False


def may_hold_more(body: bytes, most: int) -> Generator[None, None, bool]:
    """True if a JSON body may hold more than so many values."""
    found = 1
    for start in range(0, len(body), _WINDOW):
        if start:
            yield
        found += sum(body.count(sign, start, start + _WINDOW) for sign in _SIGNS)
        if found > most:
            return True
    return False

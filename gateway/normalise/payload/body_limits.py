"""
What one body may cost: how many items it holds, the memory for them, and the turns of the event loop in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from itertools import islice
from typing import Any, Final

import msgspec

from gateway.service.errors import BadPayload, Refusal

SLICE_BYTES: Final = 256 * 1024
SLICE_S: Final = 0.0005  # whichever comes first: items that must be cleaned take ten times as long as others
ITEM_BYTES: Final = 256  # the least that an item counts for: one of two bytes is work and takes memory, too
PART_BYTES: Final = 64  # the same for a part of an item: an attribute, an event, a field on the wire
MAX_ITEMS: Final = 250_000  # server.max_items; 64 MiB of real calls are about 100,000
LARGEST_VALUE: Final = 8 * 1024 * 1024  # no value that is larger is read, under any name
TURN: Final = b""  # holds nothing: what cuts a body yields it now and then, and it is the loop's turn

Hold = Callable[[int], None]  # takes memory for so many bytes beside the body; Refusal if there is none


def unbounded(_: int) -> None:
    """Accept any size: the memory is not shared."""


class SliceClock:
    """How long a slice has taken, for work that is not counted in bytes."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """The next slice begins."""
        self._until = time.monotonic() + SLICE_S

    def is_over(self) -> bool:
        return time.monotonic() > self._until


class Allowance:
    """
    What one walk over a body may cost: every decoder counts here, so that they all have the same bounds.

    `hold` is called with the memory that items take beyond the bytes of the body.
    """

    def __init__(self, max_items: int = MAX_ITEMS, hold: Hold = unbounded) -> None:
        self.max_items = max_items
        self.hold = hold
        self._items = 0
        self._beyond = 0
        self._worked = 0
        self._began: float | None = None  # when the running slice was first asked about

    def again(self) -> Allowance:
        """
        Make an allowance for one more walk over the same body: its items are counted anew, and their memory
        is held already.
        """
        return Allowance(self.max_items)

    def ahead(self) -> Allowance:
        """
        Make an allowance for a walk ahead of the reading, from here on: its items are counted for the bound alone.
        """
        walk = self.again()
        walk._items = self._items
        return walk

    def count(self, items: int, size: int) -> None:
        """Count items that have so many bytes together. Refusal 413 for too many, 503 where there is no memory."""
        self._items += items
        if self._items > self.max_items:
            many = f"The body holds more than {self.max_items} items (server.max_items)"
            raise Refusal(413, "too_many_items", f"{many}; send smaller batches.")
        beyond = items * ITEM_BYTES - size
        if beyond > 0:
            self._beyond += beyond
            if self._beyond >= SLICE_BYTES:
                self.hold(self._beyond)
                self._beyond = 0

    def is_due(self, size: int, parts: int = 0) -> bool:
        """
        Count an item of so many bytes and parts as done; True if the event loop is due its turn.

        On a thread, too, it needs one: a thread that lets go of the interpreter's lock for a moment, as for
        random numbers, is not asked to hand it over, and takes it again before the loop is awake.
        """
        self._worked += (size if size > ITEM_BYTES else ITEM_BYTES) + parts * PART_BYTES
        now = time.monotonic()
        if self._began is None:
            self._began = now
        if self._worked < SLICE_BYTES and now - self._began < SLICE_S:
            return False
        self._worked, self._began = 0, None  # not now: the next slice may have to wait
        return True


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


AT_ONCE: Final = 2048  # entries that are encoded without a pause


def encoded_list(entries: Iterable[Any]) -> Generator[None, None, bytes]:
    """The JSON of a list whose entries are made as they are taken; each step is the event loop's turn."""
    left, parts = iter(entries), []
    while some := list(islice(left, AT_ONCE)):
        parts.append(msgspec.json.encode(some)[1:-1])
        if len(some) == AT_ONCE:
            yield
    return b"[" + b",".join(parts) + b"]"

"""
Limits for one body: the number of its items and their memory, and how long it is read before the event loop
runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence, Sized
from itertools import islice
from typing import Any, Final

import msgspec

from gateway.core.errors import BadPayload, Refusal

SLICE_BYTES: Final = 256 * 1024
# Seconds per slice, in addition to the limit in bytes, because some items take ten times as long as others.
SLICE_S: Final = 0.0005
# Minimum size at which an item counts, because even an item of two bytes takes time and memory.
ITEM_BYTES: Final = 256
# Minimum size at which an attribute, an event or a protobuf field counts.
PART_BYTES: Final = 64
MAX_ITEMS: Final = 250_000  # default of server.max_items; 64 MiB of real calls are about 100,000 items
LARGEST_VALUE: Final = 8 * 1024 * 1024  # maximum bytes of a value that is read
TURN: Final = b""  # value that readers yield so that the event loop gets a turn

# function that reserves memory beyond the body, and raises Refusal if there is none
Hold = Callable[[int], None]


def reserve_nothing(_: int) -> None: ...


class TimeSliceClock:
    """Measures when work must pause for the event loop, for work whose size in bytes is unknown."""

    def __init__(self) -> None:
        self.begin_slice()

    def begin_slice(self) -> None:
        self._until = time.monotonic() + SLICE_S

    def is_over(self) -> bool:
        return time.monotonic() > self._until


class BodyReadLimits:
    """
    Limits for one pass over a body. Every decoder counts its items here, so the limits are the same for all
    decoders.

    `hold` is called with the memory that items need beyond the bytes of the body.
    """

    def __init__(self, max_items: int = MAX_ITEMS, hold: Hold = reserve_nothing) -> None:
        self.max_items = max_items
        self.hold = hold
        self._items = 0
        self._beyond = 0
        self._worked = 0
        self._began: float | None = None  # start time of the current slice

    def limits_for_next_pass(self) -> BodyReadLimits:
        """
        Return the allowance for reading the same body again. The memory of its items is not reserved again.
        """
        return BodyReadLimits(self.max_items)

    def limits_for_counting_pass(self) -> BodyReadLimits:
        """
        Return an allowance for a pass that only counts the rest of the body before decoding. It limits the
        number of items and reserves no memory.
        """
        walk = self.limits_for_next_pass()
        walk._items = self._items
        return walk

    def count_items(self, items: int, size: int) -> None:
        """
        Count items that have `size` bytes together. Raises Refusal 413 if there are too many, and 503 if
        there is no memory.
        """
        self._items += items
        if self._items > self.max_items:
            many = f"The body holds more than {self.max_items} items (server.max_items)"
            raise Refusal(413, "too_many_items", f"{many}; send smaller batches.")
        excess_bytes = items * ITEM_BYTES - size
        if excess_bytes > 0:
            self._beyond += excess_bytes
            if self._beyond >= SLICE_BYTES:
                self.hold(self._beyond)
                self._beyond = 0

    def count_work_and_check_turn(self, size: int, parts: int = 0) -> bool:
        """
        Count work on `size` bytes and `parts`. Return whether the caller must now pause, so that the event
        loop can run.

        Threads must pause as well. If a thread only releases the interpreter lock for a moment, it takes the
        lock back before the event loop wakes.
        """
        self._worked += (size if size > ITEM_BYTES else ITEM_BYTES) + parts * PART_BYTES
        now = time.monotonic()
        if self._began is None:
            self._began = now
        if self._worked < SLICE_BYTES and now - self._began < SLICE_S:
            return False
        # end the slice here, because the next one may start later
        self._worked, self._began = 0, None
        return True


_WINDOW: Final = 4 * 1024 * 1024  # bytes searched before the event loop gets a turn
# one of these signs precedes each value of a body except the first
_SIGNS: Final = (b",", b"\n", b"{")


def refuse_too_many_items(
    body: bytes, items: Callable[[], Iterable[Sized]], read_limits: BodyReadLimits, *, is_packed: bool = False
) -> Generator[None, None, bool]:
    """
    Raise Refusal 413 if a body holds more items than allowed.

    Other errors in the body are ignored here, because the decoder reports them. `items` yields an empty item
    when the event loop may run. `is_packed` means that `items` may yield more items than the text of the body
    shows. Return False if the body is too small to hold too many items. In that case, no items were counted.
    """
    if not is_packed and not (yield from may_exceed_items(body, read_limits.max_items)):
        return False
    counted = read_limits.limits_for_counting_pass()
    try:
        for item in items():
            if not len(item):
                yield
                continue
            counted.count_items(1, len(item))
            if counted.count_work_and_check_turn(len(item)):
                yield
    except BadPayload:
        pass
    return True


def has_any_of_byte_strings(body: bytes, byte_strings: Sequence[bytes]) -> Generator[None, None, bool]:
    """Return whether a body contains any of some byte strings. Yields after each step."""
    looked_through = 0
    for start in range(0, len(body), _WINDOW):
        for sign in byte_strings:
            if looked_through >= _WINDOW:
                looked_through = 0
                yield
            if body.find(sign, start, start + _WINDOW + len(sign) - 1) >= 0:
                return True
            looked_through += min(_WINDOW, len(body) - start)
    return False


def may_exceed_items(body: bytes, max_items: int) -> Generator[None, None, bool]:
    sign_count = 1
    for start in range(0, len(body), _WINDOW):
        if start:
            yield
        # finding that a sign is missing takes a tenth of the time of counting it
        found = [sign for sign in _SIGNS if body.find(sign, start, start + _WINDOW) >= 0]
        sign_count += sum(body.count(sign, start, start + _WINDOW) for sign in found)
        if sign_count > max_items:
            return True
    return False


AT_ONCE: Final = 2048  # entries encoded before the event loop gets a turn


def encode_list_in_turns(entries: Iterable[Any]) -> Generator[None, None, bytes]:
    """Encode a list as JSON. Yields after each chunk of entries."""
    remaining, parts = iter(entries), []
    while chunk := list(islice(remaining, AT_ONCE)):
        parts.append(msgspec.json.encode(chunk)[1:-1])
        if len(chunk) == AT_ONCE:
            yield
    return b"[" + b",".join(parts) + b"]"

"""
Cuts a large JSON value at the elements of its arrays, in one pass: no object is made for what is not yet read.

Arrays are parsed a window at a time, and what is kept of them is where the windows are. Objects are walked through
member by member. Knows no names and no types but those that it is given.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from gateway.errors import BadPayload
from gateway.normalise.otlp.decoding.slices import MAX_SLICE
from gateway.normalise.payload.items import error_offset
from gateway.normalise.payload.slices import TURN, Allowance

T = TypeVar("T")
JsonItem = msgspec.Raw | memoryview
Read = Generator[bytes, None, tuple[T, int]]  # TURN now and then; what was read, and where it ends
Reader = Callable[[int], Read[Any]]  # of the value that begins there

WINDOW = MAX_SLICE  # bytes that the parser passes over without a pause
_DEPTH = 32  # of containers that are larger than a window
_HEAD = 12  # bytes by which the next element is known
_TRIES = 4  # places at which a window may end
_MOST_SINGLE = 1024  # elements that are parsed one by one before a window is tried again

_document = msgspec.json.Decoder(msgspec.Raw)
_array = msgspec.json.Decoder(list[msgspec.Raw])
_BLANK = re.compile(rb"[ \t\n\r]*+")
_NAME = re.compile(rb'"((?:[^"\\]++|\\.)*+)"[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_NUMBER = re.compile(rb"[-+.\deE]*+")


class Stretches(Sequence[JsonItem]):
    """The elements of an array, parsed again a window at a time whenever they are gone through."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._windows = array("Q")  # begin, end, and how many elements
        self._count = 0

    def add(self, begin: int, end: int, count: int) -> None:
        self._windows.extend((begin, end, count))
        self._count += count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[JsonItem]:
        windows = self._windows
        for begin, end, count in zip(windows[::3], windows[1::3], windows[2::3], strict=True):
            if count == 1:
                yield self._body[begin:end]
            else:
                yield from _array.decode(b"[%b]" % bytes(self._body[begin:end]))

    def __getitem__(self, number: Any) -> Any:
        return list(self)[number]


class JsonCut:
    """One value. What reads it yields TURN now and then; BadPayload where it is no JSON, or of a wrong type."""

    def __init__(self, body: bytes, allowance: Allowance) -> None:
        self.body = body
        self._view = memoryview(body)
        self._allowance = allowance

    def whole(self, read: Reader) -> Generator[bytes, None, Any]:
        """What is read of the whole."""
        found, end = yield from read(self._after(_BLANK, 0))
        end = self._after(_BLANK, end)
        if end != len(self.body):
            raise self._broken(end)
        return found

    def members(
        self, at: int, read: Mapping[bytes, Reader], where: str = "", *, depth: int = 0
    ) -> Read[dict[bytes, Any]]:
        """
        An object's members by their readers, the text of the others; of a repeated one the last. Null has none.

        Those of an object that is passed over (`depth`) are not kept.
        """
        if self._is_null(at):
            return {}, at + 4
        self._check(at, b"{", where)
        found: dict[bytes, Any] = {}
        at = self._after(_BLANK, at + 1)
        if self._sign(at) == b"}":
            return found, at + 1
        while True:
            named = _NAME.match(self.body, at)
            if named is None:
                raise self._broken(at)
            begin = named.end()
            reader = read.get(named[1])
            if reader is not None:
                found[named[1]], at = yield from reader(begin)
            else:
                at = yield from self._end(begin, depth)
                if not depth:
                    found[named[1]] = self._view[begin:at]
            self._allowance.count(1, at - begin)
            if self._allowance.is_due(at - begin):
                yield TURN
            at = self._after(_BLANK, at)
            sign = self._sign(at)
            if sign == b"}":
                return found, at + 1
            if sign != b",":
                raise self._broken(at)
            at = self._after(_BLANK, at + 1)

    def each(self, at: int, read: Reader, where: str = "") -> Read[list[Any]]:
        """An array's elements by one reader."""
        found: list[Any] = []
        if self._is_null(at):
            return found, at + 4
        self._check(at, b"[", where)
        at = self._after(_BLANK, at + 1)
        if self._sign(at) == b"]":
            return found, at + 1
        while True:
            begin = at
            one, at = yield from read(at)
            found.append(one)
            self._allowance.count(1, at - begin)
            if self._allowance.is_due(at - begin):
                yield TURN
            end = self._after(_BLANK, at)
            if self._sign(end) == b"]":
                return found, end + 1
            if self._sign(end) != b",":
                raise self._broken(end)
            at = self._after(_BLANK, end + 1)

    def elements(self, at: int, where: str = "", depth: int = 0) -> Read[Stretches]:
        """An array's elements, to be gone through later; null has none. Those that are passed over are not kept."""
        found = Stretches(self._view)
        if self._is_null(at):
            return found, at + 4
        self._check(at, b"[", where)
        at = self._after(_BLANK, at + 1)
        if self._sign(at) == b"]":
            return found, at + 1
        alone, next_alone = 2, 2  # the first two show what stands between elements
        border = b""
        while True:
            begin = at
            count = 0
            if alone == 0:
                at, count = self._window(begin, border)
            if count == 0:
                if alone == 0:
                    alone, next_alone = next_alone, min(2 * next_alone, _MOST_SINGLE)
                at, count = (yield from self._end(begin, depth)), 1
                alone -= 1
            if not depth:
                found.add(begin, at, count)
            if not depth or count == 1:  # what is passed over a window at a time costs nothing
                self._allowance.count(count, at - begin)
            if self._allowance.is_due(at - begin, count):
                yield TURN
            end = self._after(_BLANK, at)
            if self._sign(end) == b"]":
                return found, end + 1
            if self._sign(end) != b",":
                raise self._broken(end)
            behind = self._after(_BLANK, end + 1)
            border = self.body[at - 1 : behind + _HEAD]
            at = behind

    def _window(self, begin: int, border: bytes) -> tuple[int, int]:
        """Where the last whole element of a window ends, and how many end before it; 0 if that is not seen."""
        end = begin + WINDOW
        for _ in range(_TRIES):
            end = self.body.rfind(border, begin, end)
            if end < 0:
                break
            try:
                return end + 1, len(_array.decode(b"[%b]" % self.body[begin : end + 1]))
            except (msgspec.DecodeError, RecursionError):
                continue
        return begin, 0

    def _end(self, begin: int, depth: int) -> Generator[bytes, None, int]:
        window = self._view[begin : begin + WINDOW]
        is_cut = begin + WINDOW < len(self.body)
        try:
            _document.decode(window)
        except RecursionError:
            raise BadPayload("body: nested too deeply") from None
        except msgspec.DecodeError as error:
            offset = error_offset(error)
            if offset is not None and "trailing" in str(error):
                return begin + offset - 1
            if not is_cut:
                raise self._broken(begin + (offset or len(window))) from None
            # Else the window may be all that is wrong: what is broken in it is found further down.
        else:
            return self._after(_NUMBER, begin + len(window)) if is_cut else begin + len(window)
        yield TURN
        if depth == _DEPTH:
            raise BadPayload("body: nested too deeply")
        match self._sign(begin):
            case b'"':
                return (yield from self._end_of_text(begin))
            case b"[":
                _, end = yield from self.elements(begin, depth=depth + 1)
                return end
            case b"{":
                _, end = yield from self.members(begin, {}, depth=depth + 1)
                return end
        raise self._broken(begin)

    def _end_of_text(self, begin: int) -> Generator[bytes, None, int]:
        at = begin + 1
        while at < len(self.body):
            found = _TEXT.match(self.body, at, at + WINDOW)
            assert found is not None
            if self._sign(found.end()) == b'"':
                return found.end() + 1
            if found.end() == at:
                break
            at = found.end()
            yield TURN
        raise BadPayload("body: no JSON (it ends too early)")

    def _check(self, at: int, bracket: bytes, where: str) -> None:
        if self._sign(at) != bracket:
            raise BadPayload(f"{where or 'body'}: not of the type that OTLP gives it")

    def _is_null(self, at: int) -> bool:
        return self.body[at : at + 4] == b"null"

    def _sign(self, at: int) -> bytes:
        return self.body[at : at + 1]

    def _after(self, what: re.Pattern[bytes], at: int) -> int:
        found = what.match(self.body, at)
        assert found is not None
        return found.end()

    @staticmethod
    def _broken(at: int) -> BadPayload:
        return BadPayload(f"body: no JSON (byte {at})")

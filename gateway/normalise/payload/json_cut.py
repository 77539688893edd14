"""
Splitting of a large JSON value at the elements of its arrays and the members of its objects, in one pass and
without decoding the elements.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from gateway.core.errors import BadPayload
from gateway.normalise.payload.body_limits import TURN, BodyReadLimits

T = TypeVar("T")
JsonItem = msgspec.Raw | memoryview
# generator that yields TURN where other tasks may run, and returns a value and the position after it
Read = Generator[bytes, None, tuple[T, int]]
# function that reads the value at a position
Reader = Callable[[int], Read[Any]]

# Bytes per window. Copies of larger windows do not fit into the processor cache.
WINDOW = 256 * 1024
LONGEST_NAME = 64 * 1024  # maximum characters of a name, with the whitespace before its colon
_DEPTH = 32  # maximum nested containers that are each larger than a window
# largest number of bytes that are valid only together, such as a surrogate pair or a keyword
_LONGEST_TOKEN = 16
_HEAD = 12  # bytes that identify the start of the next element in a window
_TRIES = 4  # number of positions that are tried as the end of a window
_MOST_SINGLE = 1024  # elements parsed one by one before a window is tried again

_document = msgspec.json.Decoder(msgspec.Raw)
_array = msgspec.json.Decoder(list[msgspec.Raw])
_BLANK = re.compile(rb"[ \t\n\r]*+")
_NAME = re.compile(rb'"((?:[^"\\]++|\\.)*+)"[ \t\n\r]*+:[ \t\n\r]*+', re.DOTALL)
_TEXT = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_NUMBER = re.compile(rb"[-+.\deE]*+")
_OFFSET = re.compile(r"\(byte (\d+)\)")


class LazyJsonArray(Sequence[JsonItem]):
    """
    The undecoded elements of a large array, stored as positions in the body. Each iteration parses them
    again, one window at a time.
    """

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._windows = array("Q")  # start, end and number of elements of each window, one after the other
        self._count = 0

    def add_window(self, begin: int, end: int, element_count: int) -> None:
        self._windows.extend((begin, end, element_count))
        self._count += element_count

    def __len__(self) -> int:
        return self._count

    def window_texts_and_counts(self) -> Iterator[tuple[memoryview, int]]:
        """
        Yield each window, a part of the value with whole elements: its text, in which commas separate the
        elements, and the number of elements.
        """
        windows = self._windows
        for begin, end, count in zip(windows[::3], windows[1::3], windows[2::3], strict=True):
            yield self._body[begin:end], count

    def __iter__(self) -> Iterator[JsonItem]:
        for text, count in self.window_texts_and_counts():
            if count == 1:
                yield text
            else:
                yield from _array.decode(b"[%b]" % bytes(text))

    def __getitem__(self, number: Any) -> Any:
        return list(self)[number]


class JsonScanner:
    """
    A large JSON value that is read piece by piece. Its readers yield TURN when the event loop may run, and
    raise BadPayload for invalid JSON or a wrong type.
    """

    def __init__(self, body: bytes, read_limits: BodyReadLimits) -> None:
        self.body = body
        self._view = memoryview(body)
        self._allowance = read_limits

    def read_document(self, read: Reader) -> Generator[bytes, None, Any]:
        value, end = yield from read(self._skip_matching(_BLANK, 0))
        end = self._skip_matching(_BLANK, end)
        if end != len(self.body):
            raise self._syntax_error(end)
        return value

    def end_of_skipped_value(self, position: int) -> Generator[bytes, None, int]:
        return self._value_end(position, 1)

    def read_members(
        self, position: int, read: Mapping[bytes, Reader], where: str = "", *, depth: int = 0
    ) -> Read[dict[bytes, Any]]:
        """
        Read an object: members in `read` with their readers, and all other members as text. If a member is
        repeated, the last one counts. Null counts as an empty object.

        If `depth` is above 0, the object is only skipped, and its members are not kept.
        """
        if self._is_null(position):
            return {}, position + 4
        self._require_bracket(position, b"{", where)
        values: dict[bytes, Any] = {}
        position = self._skip_matching(_BLANK, position + 1)
        if self._byte_at(position) == b"}":
            return values, position + 1
        alone, next_alone, border = 2, 2, b""
        while True:
            if depth and alone == 0:  # members to skip are passed one window at a time
                begin, position, alone = position, self._last_member_in_window(position, border), 1
                if begin == position:
                    alone, next_alone = next_alone, min(2 * next_alone, _MOST_SINGLE)
                yield TURN
            alone -= 1
            name_match = _NAME.match(self.body, position, position + LONGEST_NAME)
            if name_match is None:
                raise self._syntax_error(position)
            begin = self._skip_matching(_BLANK, name_match.end())
            reader = read.get(name_match[1])
            if reader is not None:
                values[name_match[1]], position = yield from reader(begin)
            else:
                position = yield from self._value_end(begin, depth)
                if not depth:
                    values[name_match[1]] = self._view[begin:position]
            self._allowance.count_items(1, position - begin)
            if self._allowance.count_work_and_check_turn(position - begin):
                yield TURN
            end = position
            position, is_last = self._next_place_or_end(end, b"}")
            if is_last:
                return values, position
            border = self.body[end : position + 1]

    def read_elements(self, position: int, read: Reader, where: str = "") -> Read[list[Any]]:
        values: list[Any] = []
        if self._is_null(position):
            return values, position + 4
        self._require_bracket(position, b"[", where)
        position = self._skip_matching(_BLANK, position + 1)
        if self._byte_at(position) == b"]":
            return values, position + 1
        while True:
            begin = position
            value, position = yield from read(position)
            values.append(value)
            self._allowance.count_items(1, position - begin)
            if self._allowance.count_work_and_check_turn(position - begin):
                yield TURN
            position, is_last = self._next_place_or_end(position, b"]")
            if is_last:
                return values, position

    def locate_array_elements(
        self, position: int, place_in_message: str = "", depth: int = 0
    ) -> Read[LazyJsonArray]:
        """
        Return the elements of an array for later reading. Null counts as an empty array. If `depth` is above
        0, the elements are only skipped.
        """
        stretches = LazyJsonArray(self._view)
        if self._is_null(position):
            return stretches, position + 4
        self._require_bracket(position, b"[", place_in_message)
        position = self._skip_matching(_BLANK, position + 1)
        if self._byte_at(position) == b"]":
            return stretches, position + 1
        alone, next_alone = 2, 2  # parse the first two elements one by one, because they show the separator
        border = b""
        while True:
            begin = position
            count = 0
            if alone == 0:
                position, count = self._window_end_and_element_count(begin, border, is_kept=not depth)
            if count == 0:
                if alone == 0:
                    alone, next_alone = next_alone, min(2 * next_alone, _MOST_SINGLE)
                position, count = (yield from self._value_end(begin, depth)), 1
                alone -= 1
            if not depth:
                stretches.add_window(begin, position, count)
            # skipped elements are not counted, because they take no memory
            if not depth or count == 1:
                self._allowance.count_items(count, position - begin)
            if self._allowance.count_work_and_check_turn(position - begin, count):
                yield TURN
            end = position
            position, is_last = self._next_place_or_end(end, b"]")
            if is_last:
                return stretches, position
            border = self.body[end - 1 : position + _HEAD]

    def _next_place_or_end(self, end: int, bracket: bytes) -> tuple[int, bool]:
        at = self._skip_matching(_BLANK, end)
        sign = self._byte_at(at)
        if sign == bracket:
            return at + 1, True
        if sign != b",":
            raise self._syntax_error(at)
        return self._skip_matching(_BLANK, at + 1), False

    def _window_end_and_element_count(
        self, begin: int, separator: bytes, *, is_kept: bool
    ) -> tuple[int, int]:
        end = begin + WINDOW
        for _ in range(_TRIES):
            end = self.body.rfind(separator, begin, end)
            if end < 0:
                break
            text = b"[%b]" % self.body[begin : end + 1]
            try:
                if is_kept:
                    return end + 1, len(_array.decode(text))
                _document.decode(text)  # for skipped elements, the exact number is not needed
                return end + 1, _MOST_SINGLE
            except (msgspec.DecodeError, RecursionError):
                continue
        return begin, 0

    def _last_member_in_window(self, position: int, separator: bytes) -> int:
        """
        Return the start of the last member in the WINDOW bytes from `position`, if the members before it are
        complete. Otherwise return `position`.
        """
        end = position + WINDOW
        for _ in range(_TRIES):
            end = self.body.rfind(separator, position, end)
            if end < 0:
                break
            try:
                _document.decode(b"{%b}" % self.body[position:end])
            except (msgspec.DecodeError, RecursionError):
                continue
            return end + len(separator) - 1
        return position

    def _value_end(self, begin: int, depth: int) -> Generator[bytes, None, int]:
        window = self._view[begin : begin + WINDOW]
        is_cut = begin + WINDOW < len(self.body)
        try:
            _document.decode(window)
        except RecursionError:
            raise BadPayload("body: nested too deeply") from None
        except msgspec.DecodeError as error:
            offset = error_offset(error)
            # The message "trailing characters" proves that the text before the offset is valid. With any
            # other message, parse that text again.
            if offset is not None and ("trailing" in str(error) or is_valid_json(window[: offset - 1])):
                return begin + offset - 1
            if not is_cut or (offset is not None and offset < len(window) - _LONGEST_TOKEN):
                raise self._syntax_error(begin + (offset or len(window))) from None
            # The text is incomplete only at the end of the window. Errors after the window are found later.
        else:
            return self._skip_matching(_NUMBER, begin + len(window)) if is_cut else begin + len(window)
        yield TURN
        if depth == _DEPTH:
            raise BadPayload("body: nested too deeply")
        match self._byte_at(begin):
            case b'"':
                return (yield from self._end_of_text(begin))
            case b"[":
                _, end = yield from self.locate_array_elements(begin, depth=depth + 1)
                return end
            case b"{":
                _, end = yield from self.read_members(begin, {}, depth=depth + 1)
                return end
        raise self._syntax_error(begin)

    def _end_of_text(self, begin: int) -> Generator[bytes, None, int]:
        end = yield from _find_end_of_text(self.body, begin)
        if end is None:
            raise BadPayload("body: not valid JSON (it ends too early)")
        return end

    def _require_bracket(self, position: int, bracket: bytes, where: str) -> None:
        if self._byte_at(position) != bracket:
            raise BadPayload(f"{where or 'body'}: has the wrong type")

    def _is_null(self, position: int) -> bool:
        return self.body[position : position + 4] == b"null"

    def _byte_at(self, position: int) -> bytes:
        return self.body[position : position + 1]

    def _skip_matching(self, what: re.Pattern[bytes], position: int) -> int:
        return skip_matching(what, self.body, position)

    @staticmethod
    def _syntax_error(position: int) -> BadPayload:
        return BadPayload(f"body: not valid JSON (byte {position})")


def skip_matching(what: re.Pattern[bytes], text: bytes, position: int) -> int:
    """
    Return the position after the text that a repeating pattern matches from `position`. Each call of the pattern
    matches at most WINDOW bytes.
    """
    while True:
        match = what.match(text, position, position + WINDOW)
        assert match is not None
        if match.end() < position + WINDOW:
            return match.end()
        position = match.end()


def find_bytes_in_windows(text: bytes, sign: bytes, begin: int = 0) -> int:
    """
    Return the position of the first occurrence of `sign`, or -1. The text is searched in steps of WINDOW
    bytes.
    """
    while True:
        stop = begin + WINDOW
        offset = text.find(sign, begin, stop + len(sign) - 1)
        if offset >= 0 or stop >= len(text):
            return offset
        begin = stop


def end_of_json_text(text: bytes, begin: int) -> int | None:
    """Return the end of the JSON string that begins at `begin`, or None if the string never ends."""
    return run_generator_to_end(_find_end_of_text(text, begin))


def _find_end_of_text(text: bytes, begin: int) -> Generator[bytes, None, int | None]:
    at = begin + 1
    while at < len(text):
        stop = at + WINDOW
        quote = text.find(b'"', at, stop)
        # a string without an escape needs no regular expression, so its search is ten times as fast
        escape = text.find(b"\\", at, stop if quote < 0 else quote)
        match = None if escape < 0 else _TEXT.match(text, escape, stop)
        end = (stop if quote < 0 else quote) if match is None else match.end()
        if text[end : end + 1] == b'"':
            return end + 1
        if end == at:
            break
        at = end
        yield TURN
    return None


def run_generator_to_end(work: Generator[bytes, None, T]) -> T:
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


def error_offset(error: msgspec.DecodeError) -> int | None:
    """
    Return the position that a decoding error names, in bytes from 1. Return None if it names none, because
    the text ends too early.
    """
    match = _OFFSET.search(str(error))
    return None if match is None else int(match[1])


def is_valid_json(text: bytes | memoryview | msgspec.Raw) -> bool:
    try:
        _document.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True

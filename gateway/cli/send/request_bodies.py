"""
Splits files into request bodies of at most 512 items and 4 MiB, at the same places in every run.

Lines and the elements of an array are streamed, however long the file; any other document is read whole.
Items are not parsed beyond finding where they end. What a gateway has acknowledged already is recognised.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from errno import ENOENT
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import IO, Final, NamedTuple, cast

from gateway.normalise.formats.list import format_of
from gateway.normalise.payload import items as payload
from gateway.service.errors import BadPayload

MAX_ITEMS: Final = 512
MAX_BYTES: Final = 4 * 1024 * 1024
MAX_DOCUMENT: Final = 64 * 1024 * 1024  # what a gateway takes in one request by default

SUFFIXES: Final = (".json", ".ndjson", ".jsonl", ".log", ".json.gz", ".ndjson.gz", ".jsonl.gz", ".log.gz")
UNREADABLE: Final = (OSError, EOFError, zlib.error, BadPayload)
_UNKNOWN: Final = 0
_PEEK: Final = 64 * 1024
_CHUNK: Final = 1024 * 1024
# A string that ends with what was read so far, closed or not, or a bracket or a comma outside of strings.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:(")|\\?\Z)|[\[\]{},]', re.DOTALL)
MOST_MARKS: Final = 250_000  # of 512 lines each; beyond it the oldest are forgotten
_DIGEST_BYTES: Final = 16
_MARK: Final = re.compile(f"[0-9a-f]{{{2 * _DIGEST_BYTES}}}")


@dataclass(frozen=True, kw_only=True)
class UploadBody:
    """One request: lines, or the elements of an array."""

    items: Sequence[bytes]
    places: Sequence[str] = ()  # of each item in its file, such as `line 7`
    is_array: bool = False
    mark: bytes = b""  # names these items and all before them in the file
    known: bool = False  # the gateway has acknowledged them already

    @property
    def content(self) -> bytes:
        if self.is_array:
            return b"[" + b",".join(self.items) + b"]"
        return b"\n".join(self.items[number] for number in self.order)

    @property
    def order(self) -> Sequence[int]:
        """
        Return the order in which items are sent: the format is recognised by the first byte, so malformed
        lines come last.
        """
        numbers = range(len(self.items))
        return (
            numbers if self.is_array else sorted(numbers, key=lambda number: self.items[number][:1] != b"{")
        )

    def place(self, sent: int | None) -> str:
        """Return the place in the file of the item that was sent as this one; with None, the places of all."""
        if sent is not None and sent < len(self.places):
            return self.places[self.order[sent]]
        if not self.places:
            return "what was sent"
        first = self.places[0]
        last = self.places[-1]
        return first if first == last else f"{first} to {last.rpartition(' ')[2]}"

    def halves(self) -> tuple[UploadBody, UploadBody]:
        """Returns two bodies with half of the items each, for a gateway that refuses larger ones."""
        middle = len(self.items) // 2
        first = slice(middle)
        second = slice(middle, None)
        return self._part(first), self._part(second)

    def _part(self, part: slice) -> UploadBody:
        return replace(self, items=self.items[part], places=self.places[part])


class _Item(NamedTuple):
    content: bytes
    place: str
    is_element: bool = False


def files(named: Iterable[str], complain: Callable[[str], None]) -> Iterator[str]:
    """Returns the named files, and the data files of named directories in order; `-` is standard input."""
    for name in named:
        if name == "-" or not stat.S_ISDIR(looked_up(name).mode):
            yield name
            continue
        found = sorted(_inside(name, complain))
        if not found:
            complain(f"{name}: holds no file that ends in {', '.join(SUFFIXES[:4])}, gzipped or not")
        yield from found


@contextmanager
def opened(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """Opens a file or a pipe that may be gzipped, which is recognised by its first bytes."""
    buffered = io.BufferedReader(cast(io.RawIOBase, raw))
    try:
        is_gzip = buffered.peek(2)[:2] == payload.GZIP_MAGIC
        yield cast(IO[bytes], gzip.GzipFile(fileobj=buffered)) if is_gzip else buffered
    finally:
        buffered.detach()


def bodies(content: IO[bytes], digest: RunningDigest) -> Iterator[UploadBody]:
    """
    The request bodies of one file.

    Raises one of UNREADABLE after the bodies that could be read; BadPayload if it is not JSON.
    """
    return _packed(_items(content), digest)


def _inside(directory: str, complain: Callable[[str], None]) -> Iterator[str]:
    """Returns the data files that are not hidden. Links to directories are not followed: they may form a loop."""

    def report(error: OSError) -> None:
        complain(unreadable(directory, error))

    for place, directories, names in os.walk(directory, onerror=report):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            path = str(Path(place, name))
            is_named = name.endswith(SUFFIXES) and not name.startswith(".")
            if is_named and looked_up(path).mode in (_UNKNOWN, stat.S_IFREG):
                yield path


class FileStatus(NamedTuple):
    mode: int  # the type of the file, or _UNKNOWN if it cannot be read
    size: int


def looked_up(name: str) -> FileStatus:
    """Returns type and size; _UNKNOWN if they cannot be read, because opening the file will say why."""
    try:
        status = Path(name).stat()
    except OSError:
        return FileStatus(_UNKNOWN, 0)
    return FileStatus(stat.S_IFMT(status.st_mode), status.st_size)


def unreadable(name: str, error: Exception) -> str:
    """Return one line on why a file cannot be read, or not to its end."""
    if isinstance(error, BadPayload):
        return f"{name}: {error.message}"
    return f"{getattr(error, 'filename', None) or name}: {getattr(error, 'strerror', None) or error}"


def _items(content: IO[bytes]) -> Iterator[_Item]:
    """Reads lines if the first is whole; else an array, a document, or lines that begin with broken ones."""
    number, first = _first_line(content)
    if first[:1] == b"[":
        is_line = first.endswith(b"\n") and _array(first) is not None
        return _of_lines(number, chain((first,), _lines(content))) if is_line else _elements(first, content)
    if first[:1] == b"{":
        first += b"" if first.endswith(b"\n") else content.readline(MAX_DOCUMENT - len(first))
        if payload.peek(first):
            return _of_lines(number, chain((first,), _lines(content)))
    whole = first + content.read(MAX_DOCUMENT + 1 - len(first))
    fits = len(whole) <= MAX_DOCUMENT
    if first[:1] == b"{" and fits:
        documents = map(bytes, filter(len, payload.items(whole)))
        return (_Item(each, f"document {place}") for place, each in enumerate(documents, start=1))
    if any(line[:1] == b"{" and payload.peek(line) for line in io.BytesIO(whole)):
        return _of_lines(number, _lines(io.BytesIO(whole + content.readline(MAX_DOCUMENT)), content))
    if fits:
        raise BadPayload("it is neither a JSON object, nor an array, nor JSON lines")
    raise BadPayload("one document of more than 64 MiB cannot be sent: cut it into lines")


def _first_line(content: IO[bytes]) -> tuple[int, bytes]:
    """The first that is not blank, or as much of it as a body may have, with its number."""
    number = 1
    while line := content.readline(MAX_BYTES):
        stripped = payload.unmarked(line).lstrip()
        if stripped:
            return number, stripped
        number += line.count(b"\n")
    return number, b""


def _lines(*contents: IO[bytes]) -> Iterator[bytes]:
    """Each without space around it, or empty; BadPayload behind the last when one was too long to be sent."""
    left_out = 0
    for content in contents:
        while line := content.readline(MAX_DOCUMENT + 1):
            if len(line) > MAX_DOCUMENT:
                left_out += 1
                while line and not line.endswith(b"\n"):
                    line = content.readline(_CHUNK)
                yield b""
            else:
                yield line.strip()
    if left_out:
        raise BadPayload(f"{left_out} of its lines are longer than 64 MiB and were left out")


def _of_lines(first: int, lines: Iterable[bytes]) -> Iterator[_Item]:
    """Yield the items of lines, the first of which has this number."""
    for number, line in enumerate(lines, start=first):
        if not line:
            continue
        if line[:1] == b"[" and len(line) > MAX_BYTES:  # cut without a list of all its elements
            yield from _elements(line, io.BytesIO())
            continue
        elements = _array(line) if line[:1] == b"[" else None
        if elements is None:
            yield _Item(line.strip(), f"line {number}")
        else:
            yield from (_Item(bytes(element), f"line {number}", True) for element in elements)


def _array(line: bytes) -> list[payload.Raw] | None:
    """The elements of an array on one line; None when it is broken, or goes on."""
    try:
        return list(filter(len, payload.items(line)))
    except BadPayload:
        return None


def _elements(text: bytes, content: IO[bytes]) -> Iterator[_Item]:
    """The elements of an array, or of several one behind the other, cut at the commas between them."""
    begin = place = depth = number = 0
    while text:
        for token in _TOKEN.finditer(text, place):
            sign = token[0]
            place = token.end()
            if sign[:1] == b'"':
                if token[1] is None:  # it goes on in what was not read yet
                    place = token.start()
                continue
            if depth == 0 and (sign != b"[" or text[begin : token.start()].strip()):
                raise BadPayload("there is more behind the JSON array")
            depth += (sign in b"[{") - (sign in b"]}")
            if depth == 0 or (depth == 1 and sign == b","):
                element = text[begin : token.start()].strip()
                if element:
                    number += 1
                    yield _Item(element, f"element {number}", True)
                begin = place
            elif depth == 1 and sign == b"[":
                begin = place
        text, place, begin = text[begin:], place - begin, 0
        if len(text) > MAX_DOCUMENT:
            raise BadPayload("one of its elements is longer than 64 MiB")
        more = content.read(_CHUNK)
        if not more:
            break
        text += more
    if depth or text.strip():
        raise BadPayload("the JSON array breaks off" if depth else "there is more behind the JSON array")


def _packed(items: Iterator[_Item], digest: RunningDigest) -> Iterator[UploadBody]:
    """Items in as few bodies as the bounds allow; an OTLP request is a body of its own."""
    filling = _OpenBody(digest)
    failure: Exception | None = None
    while True:
        try:
            item = next(items, None)
        except UNREADABLE as error:  # what was read until then is sent
            failure = error
            break
        if item is None:
            break
        alone = _is_otlp(item.content)
        if filling.items and (alone or not filling.has_room(item)):
            yield filling.body()
        known = filling.add(item, alone=alone)
        if alone or known:  # a file that grew is cut where it ended before
            yield filling.body(known=known)
    if filling.items:
        yield filling.body()
    if failure is not None:
        raise failure


class _OpenBody:
    """The body that is being filled."""

    def __init__(self, digest: RunningDigest) -> None:
        self.items: list[bytes] = []
        self._places: list[str] = []
        self._size = 0
        self._is_array = False
        self._digest = digest

    def has_room(self, item: _Item) -> bool:
        fits = len(self.items) < MAX_ITEMS and self._size + len(item.content) <= MAX_BYTES
        return fits and item.is_element == self._is_array

    def add(self, item: _Item, *, alone: bool) -> bool:
        """Add an item; True if a body that was accepted earlier ended with it."""
        self.items.append(item.content)
        self._places.append(item.place)
        self._size += len(item.content) + 1
        self._is_array = item.is_element and not alone
        return self._digest.add(item.content)

    def body(self, *, known: bool = False) -> UploadBody:
        body = UploadBody(
            items=self.items,
            places=self._places,
            is_array=self._is_array,
            mark=self._digest.mark,
            known=known,
        )
        self._digest.end_body()
        self.items, self._places, self._size = [], [], 0
        return body


def _is_otlp(content: bytes) -> bool:
    if b'"resource' not in content[:_PEEK]:
        return False
    return (format_of(payload.peek(content)) or "").startswith("otlp/")


class Acknowledged:
    """
    The bodies that one address has acknowledged under one key, so that a repeat continues where the last run stopped.

    One small file holds their digests, and none of their content. Losing it costs only time: the gateway recognises
    calls that it has.
    """

    def __init__(self, *, url: str, key: str | None) -> None:
        """Another key may belong to another installation at the same address."""
        name = blake2b(f"{url}\0{key or ''}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
        try:
            self._path: Path | None = _state_directory() / name
        except RuntimeError:  # a user without a home
            self._path = None
        self._marks = _load(self._path) if self._path else set()

    def __contains__(self, mark: object) -> bool:
        return mark in self._marks

    def add(self, mark: bytes) -> None:
        """Keeps the digest of an acknowledged body, before the next one is sent. OSError if it cannot."""
        self._marks.add(mark)
        if self._path is None:
            raise FileNotFoundError(ENOENT, "there is no home directory", "~")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.open("a", encoding="ascii") as file:
            file.write(f"{mark.hex()}\n")


class RunningDigest:
    """
    The digest of a file's items so far, chained over its request bodies.

    So a body is recognised only after the same items in the same bodies, whatever the file is called, however
    it is compressed, and whatever was appended.
    """

    def __init__(self, taken: Container[bytes]) -> None:
        self._taken = taken
        self._since = blake2b(digest_size=_DIGEST_BYTES)
        self.mark = b""

    def add(self, item: bytes) -> bool:
        """Adds an item; returns whether an acknowledged body ended with it."""
        self._since.update(len(item).to_bytes(8, "big"))
        self._since.update(item)
        self.mark = self._since.digest()
        return self.mark in self._taken

    def end_body(self) -> None:
        """Ends the current body."""
        self._since = blake2b(self.mark, digest_size=_DIGEST_BYTES)


def _state_directory() -> Path:
    """Returns the user's directory for state (XDG)."""
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "tollhouse/sent"


def _load(path: Path) -> set[bytes]:
    """Returns the digests in the file; skips malformed lines, which a full disk may leave."""
    try:
        lines = [line for line in path.read_text("ascii", "replace").split() if _MARK.fullmatch(line)]
        if len(lines) > 2 * MOST_MARKS:
            lines = lines[-MOST_MARKS:]
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text("".join(f"{line}\n" for line in lines), "ascii")
            draft.replace(path)
        return {bytes.fromhex(line) for line in lines}
    except OSError:  # none yet
        return set()

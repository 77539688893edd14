"""
Splits files into request bodies of at most 512 items and 4 MiB, at the same positions in every run.

Lines and array elements are streamed, so files may be of any length. Other documents are read into memory.
Items are parsed only to find where they end. Bodies that the gateway acknowledged earlier are recognized.
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

from gateway.core.errors import BadPayload
from gateway.normalise.payload import items as payload

MAX_ITEMS: Final = 512
MAX_BYTES: Final = 4 * 1024 * 1024
# maximum bytes of one document; by default, a gateway accepts requests of this size
MAX_DOCUMENT: Final = 64 * 1024 * 1024

SUFFIXES: Final = (".json", ".ndjson", ".jsonl", ".log", ".json.gz", ".ndjson.gz", ".jsonl.gz", ".log.gz")
UNREADABLE: Final = (OSError, EOFError, zlib.error, BadPayload)
_UNKNOWN: Final = 0
_PEEK: Final = 64 * 1024
_CHUNK: Final = 1024 * 1024
# A string, which may be closed or reach the end of the buffer, or a bracket or comma outside of strings.
_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:(")|\\?\Z)|[\[\]{},]', re.DOTALL)
# Number of digests that remain when the file of digests is shortened: the newest. Each digest is for up
# to 512 items.
MOST_MARKS: Final = 250_000
_DIGEST_BYTES: Final = 16
_MARK: Final = re.compile(f"[0-9a-f]{{{2 * _DIGEST_BYTES}}}")


@dataclass(frozen=True, kw_only=True)
class UploadBody:
    """One request of `tollhouse send`: JSON lines, or the elements of an array."""

    items: Sequence[bytes]
    places: Sequence[str] = ()  # position of each item in its file, such as `line 7`
    is_array: bool = False
    mark: bytes = b""  # digest of these items and of all earlier items in the file
    known: bool = False  # whether the gateway has already acknowledged these items

    @property
    def content(self) -> bytes:
        if self.is_array:
            return b"[" + b",".join(self.items) + b"]"
        return b"\n".join(self.items[number] for number in self.item_indexes_in_sending_order)

    @property
    def item_indexes_in_sending_order(self) -> Sequence[int]:
        """
        Return the order in which to send the items.

        Malformed lines come last, because the gateway detects the format from the first byte.
        """
        numbers = range(len(self.items))
        return (
            numbers if self.is_array else sorted(numbers, key=lambda number: self.items[number][:1] != b"{")
        )

    def position_in_file(self, request_item_index: int | None) -> str:
        """
        Return the position in the file of the item with this index in the request. None means all items.
        """
        if request_item_index is not None and request_item_index < len(self.places):
            return self.places[self.item_indexes_in_sending_order[request_item_index]]
        if not self.places:
            return "the payload"
        first = self.places[0]
        last = self.places[-1]
        return first if first == last else f"{first} to {last.rpartition(' ')[2]}"

    def split_in_halves(self) -> tuple[UploadBody, UploadBody]:
        middle = len(self.items) // 2
        first = slice(middle)
        second = slice(middle, None)
        return self._body_of_items(first), self._body_of_items(second)

    def _body_of_items(self, part: slice) -> UploadBody:
        return replace(self, items=self.items[part], places=self.places[part])


class _UploadItem(NamedTuple):
    content: bytes
    place: str
    is_element: bool = False


def files_to_send(file_names: Iterable[str], report_problem: Callable[[str], None]) -> Iterator[str]:
    """Yield the named files, and the data files of named directories in order. `-` is standard input."""
    for name in file_names:
        if name == "-" or not stat.S_ISDIR(file_type_and_size(name).mode):
            yield name
            continue
        paths = sorted(_data_files_in(name, report_problem))
        if not paths:
            report_problem(f"{name}: contains no file that ends in {', '.join(SUFFIXES[:4])}, gzipped or not")
        yield from paths


@contextmanager
def open_ungzipped(raw: IO[bytes]) -> Iterator[IO[bytes]]:
    """Open a file or pipe. Gzip is detected by the first bytes."""
    buffered = io.BufferedReader(cast(io.RawIOBase, raw))
    try:
        is_gzip = buffered.peek(2)[:2] == payload.GZIP_MAGIC
        yield cast(IO[bytes], gzip.GzipFile(fileobj=buffered)) if is_gzip else buffered
    finally:
        buffered.detach()


def read_bodies(content: IO[bytes], digest: RunningDigest) -> Iterator[UploadBody]:
    """
    Yield the request bodies of one file.

    Raises an UNREADABLE error after the bodies that could be read, or BadPayload if the file is not JSON.
    """
    return _pack_bodies(_read_upload_items(content), digest)


def _data_files_in(directory: str, report_problem: Callable[[str], None]) -> Iterator[str]:
    """
    Yield the data files that are not hidden. Links to directories are not followed: they may form a loop.
    """

    def report_unreadable_directory(error: OSError) -> None:
        report_problem(unreadable_message(directory, error))

    for folder, directories, names in os.walk(directory, onerror=report_unreadable_directory):
        directories[:] = [name for name in directories if not name.startswith(".")]
        for name in names:
            path = str(Path(folder, name))
            is_named = name.endswith(SUFFIXES) and not name.startswith(".")
            if is_named and file_type_and_size(path).mode in (_UNKNOWN, stat.S_IFREG):
                yield path


class FileStatus(NamedTuple):
    mode: int  # file type from its mode, or _UNKNOWN if it cannot be read
    size: int


def file_type_and_size(file_path: str) -> FileStatus:
    """Return type and size of a file, or _UNKNOWN. Opening the file later reports the error."""
    try:
        status = Path(file_path).stat()
    except OSError:
        return FileStatus(_UNKNOWN, 0)
    return FileStatus(stat.S_IFMT(status.st_mode), status.st_size)


def unreadable_message(name: str, error: Exception) -> str:
    if isinstance(error, BadPayload):
        return f"{name}: {error.message}"
    return f"{getattr(error, 'filename', None) or name}: {getattr(error, 'strerror', None) or error}"


def _read_upload_items(content: IO[bytes]) -> Iterator[_UploadItem]:
    """Yield the items of a file of lines, an array or a document. The first lines may be malformed."""
    number, first = _read_first_nonblank_line_with_number(content)
    if first[:1] == b"[":
        is_line = first.endswith(b"\n") and _array_items(first) is not None
        return (
            _items_of_lines(number, chain((first,), _read_lines(content)))
            if is_line
            else _items_of_array_text(first, content)
        )
    if first[:1] == b"{":
        first += b"" if first.endswith(b"\n") else content.readline(MAX_DOCUMENT - len(first))
        if payload.undecoded_members(first):
            return _items_of_lines(number, chain((first,), _read_lines(content)))
    whole = first + content.read(MAX_DOCUMENT + 1 - len(first))
    fits = len(whole) <= MAX_DOCUMENT
    if first[:1] == b"{" and fits:
        documents = map(bytes, filter(len, payload.items_of_body(whole)))
        return (
            _UploadItem(document, f"document {index}") for index, document in enumerate(documents, start=1)
        )
    if any(line[:1] == b"{" and payload.undecoded_members(line) for line in io.BytesIO(whole)):
        return _items_of_lines(
            number, _read_lines(io.BytesIO(whole + content.readline(MAX_DOCUMENT)), content)
        )
    if fits:
        raise BadPayload("it is neither a JSON object, nor an array, nor JSON lines")
    raise BadPayload("a single document of more than 64 MiB cannot be sent; split it into lines")


def _read_first_nonblank_line_with_number(content: IO[bytes]) -> tuple[int, bytes]:
    number = 1
    while line := content.readline(MAX_BYTES):
        stripped = payload.remove_byte_order_mark(line).lstrip()
        if stripped:
            return number, stripped
        number += line.count(b"\n")
    return number, b""


def _read_lines(*contents: IO[bytes]) -> Iterator[bytes]:
    """Yield stripped lines, even empty ones. Raises BadPayload at the end if lines were too long to send."""
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


def _items_of_lines(first_line_number: int, lines: Iterable[bytes]) -> Iterator[_UploadItem]:
    for number, line in enumerate(lines, start=first_line_number):
        if not line:
            continue
        # This line is parsed as a stream, so that memory never holds a list of all its elements.
        if line[:1] == b"[" and len(line) > MAX_BYTES:
            yield from _items_of_array_text(line, io.BytesIO())
            continue
        elements = _array_items(line) if line[:1] == b"[" else None
        if elements is None:
            yield _UploadItem(line.strip(), f"line {number}")
        else:
            yield from (_UploadItem(bytes(element), f"line {number}", True) for element in elements)


def _array_items(line: bytes) -> list[payload.Raw] | None:
    try:
        return list(filter(len, payload.items_of_body(line)))
    except BadPayload:
        return None


def _items_of_array_text(text: bytes, content: IO[bytes]) -> Iterator[_UploadItem]:
    begin = offset = depth = number = 0
    while text:
        for token in _TOKEN.finditer(text, offset):
            sign = token[0]
            offset = token.end()
            if sign[:1] == b'"':
                if token[1] is None:  # the string continues in the next chunk
                    offset = token.start()
                continue
            if depth == 0 and (sign != b"[" or text[begin : token.start()].strip()):
                raise BadPayload("there is more text after the JSON array")
            depth += (sign in b"[{") - (sign in b"]}")
            if depth == 0 or (depth == 1 and sign == b","):
                element = text[begin : token.start()].strip()
                if element:
                    number += 1
                    yield _UploadItem(element, f"element {number}", True)
                begin = offset
            elif depth == 1 and sign == b"[":
                begin = offset
        text, offset, begin = text[begin:], offset - begin, 0
        if len(text) > MAX_DOCUMENT:
            raise BadPayload("one of its elements is longer than 64 MiB")
        chunk = content.read(_CHUNK)
        if not chunk:
            break
        text += chunk
    if depth or text.strip():
        raise BadPayload(
            "the JSON array is not complete" if depth else "there is more text after the JSON array"
        )


def _pack_bodies(items: Iterator[_UploadItem], digest: RunningDigest) -> Iterator[UploadBody]:
    """Pack items into as few bodies as the limits allow. Each OTLP request gets its own body."""
    filling = _OpenBody(digest)
    failure: Exception | None = None
    while True:
        try:
            item = next(items, None)
        except UNREADABLE as error:  # items read before the error are still sent
            failure = error
            break
        if item is None:
            break
        alone = _is_otlp_request(item.content)
        if filling.items and (alone or not filling.has_room(item)):
            yield filling.finish_body()
        known = filling.add_item(item, is_alone_in_body=alone)
        # `known`: an earlier run sent a body up to this item, perhaps because the file ended here.
        if alone or known:
            yield filling.finish_body(was_acknowledged=known)
    if filling.items:
        yield filling.finish_body()
    if failure is not None:
        raise failure


class _OpenBody:
    def __init__(self, digest: RunningDigest) -> None:
        self.items: list[bytes] = []
        self._places: list[str] = []
        self._size = 0
        self._is_array = False
        self._digest = digest

    def has_room(self, item: _UploadItem) -> bool:
        fits = len(self.items) < MAX_ITEMS and self._size + len(item.content) <= MAX_BYTES
        return fits and item.is_element == self._is_array

    def add_item(self, item: _UploadItem, *, is_alone_in_body: bool) -> bool:
        """Add an item. Return whether it is the last item of a body that the gateway acknowledged earlier."""
        self.items.append(item.content)
        self._places.append(item.place)
        self._size += len(item.content) + 1
        self._is_array = item.is_element and not is_alone_in_body
        return self._digest.add_item(item.content)

    def finish_body(self, *, was_acknowledged: bool = False) -> UploadBody:
        body = UploadBody(
            items=self.items,
            places=self._places,
            is_array=self._is_array,
            mark=self._digest.mark,
            known=was_acknowledged,
        )
        self._digest.end_body()
        self.items, self._places, self._size = [], [], 0
        return body


def _is_otlp_request(content: bytes) -> bool:
    if b'"resource' not in content[:_PEEK]:
        return False
    # loaded late, because usage events need no formats
    from gateway.normalise.formats.list import recognise_item_format

    return (recognise_item_format(payload.undecoded_members(content)) or "").startswith("otlp/")


class AcknowledgedBodies:
    """
    The bodies that an address acknowledged for a key, so that a repeated run continues where the last one stopped.

    A small file stores their digests and no content. If it is lost, bodies are sent again, and the gateway
    recognizes the calls as duplicates.
    """

    def __init__(self, *, url: str, key: str | None) -> None:
        """
        Load the digests of acknowledged bodies. The key is part of the file name, because the same address
        may lead to another installation.
        """
        name = blake2b(f"{url}\0{key or ''}".encode(), digest_size=_DIGEST_BYTES).hexdigest()
        try:
            self._path: Path | None = _state_directory() / name
        except RuntimeError:  # the user has no home directory
            self._path = None
        self._marks = _load_and_trim_body_digests(self._path) if self._path else set()

    def __contains__(self, mark: object) -> bool:
        return mark in self._marks

    def store_body_digest(self, body_digest: bytes) -> None:
        """Store the digest of an acknowledged body, before the next body is sent. Raises OSError."""
        self._marks.add(body_digest)
        if self._path is None:
            raise FileNotFoundError(ENOENT, "there is no home directory", "~")
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._path.open("a", encoding="ascii") as file:
            file.write(f"{body_digest.hex()}\n")


class RunningDigest:
    """
    The digest of all items of a file up to the current one.

    So a body counts as acknowledged only if all earlier items of the file are the same as well. The file
    name, the compression and appended items do not matter.
    """

    def __init__(self, acknowledged_digests: Container[bytes]) -> None:
        self._taken = acknowledged_digests
        self._since = blake2b(digest_size=_DIGEST_BYTES)
        self.mark = b""

    def add_item(self, item: bytes) -> bool:
        """Add an item. Return whether it is the last item of an acknowledged body."""
        self._since.update(len(item).to_bytes(8, "big"))
        self._since.update(item)
        self.mark = self._since.digest()
        return self.mark in self._taken

    def end_body(self) -> None:
        self._since = blake2b(self.mark, digest_size=_DIGEST_BYTES)


def _state_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local/state") / "tollhouse/sent"


def _load_and_trim_body_digests(path: Path) -> set[bytes]:
    try:
        lines = [line for line in path.read_text("ascii", "replace").split() if _MARK.fullmatch(line)]
        if len(lines) > 2 * MOST_MARKS:
            lines = lines[-MOST_MARKS:]
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text("".join(f"{line}\n" for line in lines), "ascii")
            draft.replace(path)
        return {bytes.fromhex(line) for line in lines}
    except OSError:  # the file of digests does not exist yet
        return set()

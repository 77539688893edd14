"""Splitting files into request bodies, and remembering which bodies the gateway has accepted."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.send import request_bodies
from gateway.cli.send.request_bodies import MOST_MARKS, AcknowledgedBodies, RunningDigest
from gateway.core.errors import BadPayload


def cut(content: bytes, taken: Container[bytes] = ()) -> list[request_bodies.UploadBody]:
    with request_bodies.open_ungzipped(io.BytesIO(content)) as opened:
        return list(request_bodies.read_bodies(opened, RunningDigest(taken)))


def nobody(complaint: str) -> None:
    raise AssertionError(complaint)


def test_lines_are_cut_by_their_number() -> None:
    """A body has at most 512 lines."""
    lines = [json.dumps({"n": n}).encode() for n in range(1100)]
    found = cut(b"\n".join(lines) + b"\n\n")
    assert [512, 512, 76] == [len(body.items) for body in found]
    assert lines == b"\n".join(body.content for body in found).split(b"\n")


def test_lines_of_a_long_file_keep_their_numbers() -> None:
    """
    Invalid lines are sent at the end of their body, and each keeps its line number. The last of 20,001 lines
    is one of them.
    """
    lines = [b'{"n": 1}'] * 20_001
    for number in (2, 10_000, 20_001):
        lines[number - 1] = b"nonsense"
    places = [
        body.position_in_file(sent)
        for body in cut(b"\n".join(lines))
        for sent, line in enumerate(body.content.splitlines())
        if line == b"nonsense"
    ]
    assert ["line 2", "line 10000", "line 20001"] == places


def test_arrays_are_cut_by_their_size() -> None:
    """A body has at most 4 MiB and is an array. If an item is larger, it is sent in a body of its own."""
    items = ["x" * 1_500_000, "y" * 1_500_000, "z" * 1_500_000, "w" * 5_000_000, "v"]
    found = cut(json.dumps(items).encode())
    assert [2, 1, 1, 1] == [len(body.items) for body in found]
    assert items == [item for body in found for item in json.loads(body.content)]


@pytest.mark.parametrize("document", [b'{"batch": []}', b'{\n "result": [\n {}, {} ]\n}\n', b'\n\n{"a": 1}'])
def test_a_document_stays_whole(document: bytes) -> None:
    """A JSON document is one body, whether it has one line or several."""
    assert [json.loads(document)] == [json.loads(body.content) for body in cut(document)]


def test_a_broken_line_does_not_stop_the_others() -> None:
    """A broken line of a file is sent as well, and the gateway rejects only this line."""
    assert [3] == [len(body.items) for body in cut(b'{"a": \n{"b": 1}\n{"c": 2}')]
    assert [3] == [len(body.items) for body in cut(b'{"b": 1}\n{"a": \n{"c": 2}')]


def test_otlp_requests_are_bodies_of_their_own() -> None:
    """A collector's file exporter writes one OTLP request per line."""
    otlp = b'{"resourceSpans": []}'
    assert [otlp, b'{"a": 1}\n{"b": 2}', otlp] == [
        body.content for body in cut(b"\n".join([otlp, b'{"a": 1}', b'{"b": 2}', otlp]))
    ]


def test_gzip_is_recognized_by_its_first_bytes() -> None:
    """Gzip is recognized by the first bytes of a file, whatever the file's name is."""
    assert [b'{"a": 1}\n{"b": 2}'] == [body.content for body in cut(gzip.compress(b'{"a": 1}\n{"b": 2}\n'))]


@pytest.mark.parametrize("content", [b"", b"  \n", b"a,b\n1,2", b'{"a": '])
def test_what_is_no_json_is_said_so(content: bytes) -> None:
    """A file that is no JSON gives an error before anything is sent."""
    with pytest.raises(BadPayload):
        cut(content)


def test_directories_are_walked_in_order(tmp_path: Path) -> None:
    """Files of a directory are sent in order. Only data files that are not hidden are sent."""
    for name in ("b.ndjson", "a/x.json.gz", "a/.hidden.json", ".git/y.json", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    named = [str(tmp_path / name) for name in ("a/x.json.gz", "b.ndjson")]
    assert [*named, "-"] == list(request_bodies.files_to_send([str(tmp_path), "-"], nobody))


def test_a_directory_without_data_is_complained_of(tmp_path: Path) -> None:
    """
    A directory without data is an error, so nothing is skipped silently. Circular links are not followed, and
    a broken link is named.
    """
    said: list[str] = []
    (tmp_path / "notes.txt").touch()
    (tmp_path / "loop").symlink_to(tmp_path)
    assert [] == list(request_bodies.files_to_send([str(tmp_path)], said.append))
    assert [f"{tmp_path}: contains no file that ends in .json, .ndjson, .jsonl, .log, gzipped or not"] == said
    (tmp_path / "gone.json").symlink_to(tmp_path / "nowhere")
    assert [str(tmp_path / "gone.json")] == list(request_bodies.files_to_send([str(tmp_path)], nobody))


def test_a_body_of_lines_begins_with_an_object() -> None:
    """
    Each body of lines begins with a JSON object. The gateway recognizes a body by its first byte, so a
    leading line of text would make it reject the other lines.
    """
    lines = [b'{"n": 0}'] * 512 + [b"plain text", b'{"n": 1}', b"more", b'{"n": 2}']
    assert [b'{"n": 1}', b'{"n": 2}', b"plain text", b"more"] == cut(b"\n".join(lines))[1].content.split(
        b"\n"
    )
    assert [3] == [len(body.items) for body in cut(b'started\n{"n": 1}\n{"n": 2}')]


def test_arrays_on_lines_are_arrays() -> None:
    """A capture of several requests has one array per line. The gateway rejects only the broken array."""
    found = cut(b'[{"n": 1}, null]\n{"n": 2}\n[{"n": 3}]\n[{"n": \n')
    assert [b'[{"n": 1},null]', b'{"n": 2}', b'[{"n": 3}]', b'[{"n":'] == [body.content for body in found]


def test_array_is_split_correctly_across_read_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An array is split correctly if the read buffer ends inside a string, after a backslash, or between two elements.
    """
    items: list[Any] = [{"a": ['x]"\\', {"b": "}, ["}]}, None, -1.5, "ü\\", [], {"c": {}}] * 3
    for content in (json.dumps(items, indent=1, ensure_ascii=False), json.dumps(items)):
        for size in range(1, 40):
            monkeypatch.setattr(request_bodies, "_CHUNK", size)
            (body,) = cut(content.encode())
            assert items == json.loads(body.content)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b'[\n {"a": 1},\n {"b"', "is not complete"), (b'[\n {"a": 1}]\n, 5', "more text after")],
)
def test_complete_items_are_returned_before_the_error(content: bytes, words: str) -> None:
    """If a file breaks off, its complete items are returned first, and then the error is raised."""
    found = request_bodies.read_bodies(io.BytesIO(content), RunningDigest(()))
    assert b'[{"a": 1}]' == next(found).content
    with pytest.raises(BadPayload, match=words):
        next(found)


def test_gzip_that_breaks_off_gives_what_it_holds() -> None:
    """
    If a gzip file breaks off, its truncated last line is sent as a broken line. Then the error is raised.
    """
    content = b"".join(json.dumps({"n": n, "id": f"{n * 7919:x}"}).encode() + b"\n" for n in range(2000))
    with request_bodies.open_ungzipped(io.BytesIO(gzip.compress(content)[:-2000])) as opened:
        found = request_bodies.read_bodies(opened, RunningDigest(()))
        assert 512 == len(next(found).items)
        with pytest.raises(EOFError):
            list(found)


def test_what_is_longer_than_a_document_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A line that is longer than a document may be is skipped with a note. After a document or element that is
    too long, the rest of the file is skipped as well.
    """
    for bound, n in (("MAX_DOCUMENT", 100), ("MAX_BYTES", 100), ("_CHUNK", 50)):
        monkeypatch.setattr(request_bodies, bound, n)
    long = b'{"a": "' + b"x" * 200 + b'"}'
    found = request_bodies.read_bodies(io.BytesIO(b'{"n": 1}\n' + long + b'\n{"n": 2}\n'), RunningDigest(()))
    assert b'{"n": 1}\n{"n": 2}' == next(found).content
    with pytest.raises(BadPayload, match="1 of its lines"):
        next(found)
    with pytest.raises(BadPayload, match="a single document"):
        cut(long)
    with pytest.raises(BadPayload, match="one of its elements"):
        cut(b"[\n" + long + b"]")
    with pytest.raises(BadPayload, match="neither"):
        cut(b"\n" * 1000)
    lines = [b'{"n": %d}' % n for n in range(50)]
    # the lines together are longer than the limit of a document
    sent = cut(b"\n".join([b'{"broken":', *lines]))
    assert [b'{"broken":', *lines] == [line for body in sent for line in body.items]


def test_a_body_can_be_halved() -> None:
    """
    If the gateway accepts less per request, the body is sent in two halves. Every item is in exactly one half.
    """
    (body,) = cut(b"[1, 2, 3]")
    assert [b"[1]", b"[2,3]"] == [half.content for half in body.split_in_halves()]


def test_accepted_content_is_recognized_after_compression_and_appending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Content that the gateway has accepted is recognized after compression, and after lines are appended. The
    same lines after other lines are not recognized.
    """
    monkeypatch.setattr(request_bodies, "MAX_ITEMS", 2)
    lines = [b'{"n": %d}' % n for n in range(5)]
    first = cut(b"\n".join(lines))
    taken = {first[0].mark, first[2].mark}
    assert [True, False, True] == [body.known for body in cut(gzip.compress(b"\n\n".join(lines)), taken)]
    grown = cut(b"\n".join([*lines, b'{"n": 5}', b'{"n": 6}']), taken)
    assert [(2, True), (2, False), (1, True), (2, False)] == [(len(body.items), body.known) for body in grown]
    assert not any(body.known for body in cut(b"\n".join([b"{}", *lines]), taken))
    repeated = cut(b"\n".join(lines[:2] * 2), {first[0].mark})
    assert [True, False] == [body.known for body in repeated]


def test_a_body_is_known_only_with_the_same_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    A longer body that ends where the gateway has accepted a body is not recognized. The items before that body
    may have been rejected.
    """
    lines = b'{"n": 0}\n{"n": 1}'
    monkeypatch.setattr(request_bodies, "MAX_ITEMS", 1)
    taken = {cut(lines)[1].mark}
    assert [False, True] == [body.known for body in cut(lines, taken)]
    monkeypatch.setattr(request_bodies, "MAX_ITEMS", 2)
    assert [(2, False)] == [(len(body.items), body.known) for body in cut(lines, taken)]


def test_accepted_content_is_remembered_per_address_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Marks of accepted content are stored per address and key. A damaged file of marks counts as empty."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    one, two, three = (bytes([n]) * 16 for n in range(3))
    AcknowledgedBodies(url="http://a", key="k").store_body_digest(one)
    AcknowledgedBodies(url="http://a", key="k").store_body_digest(two)
    assert [True, True, False] == [
        mark in AcknowledgedBodies(url="http://a", key="k") for mark in (one, two, three)
    ]
    assert one not in AcknowledgedBodies(url="http://b", key="k")
    assert one not in AcknowledgedBodies(url="http://a", key="l")
    (state,) = (tmp_path / "tollhouse/sent").iterdir()
    state.write_text("{damaged")
    assert one not in AcknowledgedBodies(url="http://a", key="k")


def test_without_a_home_directory_nothing_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("could not determine home directory")

    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    taken = AcknowledgedBodies(url="http://a", key=None)
    with pytest.raises(FileNotFoundError, match="no home directory"):
        taken.store_body_digest(b"o" * 16)
    assert b"o" * 16 in taken


def test_half_a_line_costs_no_other_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a line and noise in the file of marks, as a full disk may leave them, cost no other mark."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    marks = [bytes([n]) * 16 for n in range(4)]
    AcknowledgedBodies(url="http://a", key=None).store_body_digest(marks[0])
    (state,) = (tmp_path / "tollhouse/sent").iterdir()
    for mark, noise in zip(marks[1:], (b"", b"0a1b2", b"\xff\x00\n"), strict=True):
        with state.open("ab") as file:
            file.write(noise)
        AcknowledgedBodies(url="http://a", key=None).store_body_digest(mark)
    again = AcknowledgedBodies(url="http://a", key=None)
    assert [True, True, False, True] == [mark in again for mark in marks]


def test_the_oldest_marks_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest marks of accepted content are deleted, so their file does not grow without limit."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    taken = AcknowledgedBodies(url="http://a", key=None)
    old = b"o" * 16
    taken.store_body_digest(old)
    (state,) = (tmp_path / "tollhouse/sent").iterdir()
    with state.open("a") as file:
        file.writelines(f"{n:032x}\n" for n in range(2 * MOST_MARKS))
    again = AcknowledgedBodies(url="http://a", key=None)
    assert old not in again
    assert (2 * MOST_MARKS - 1).to_bytes(16, "big") in again
    assert MOST_MARKS == len(state.read_text().split())

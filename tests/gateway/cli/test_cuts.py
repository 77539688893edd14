"""Files into request bodies, and the memory of what was taken."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from gateway.cli import cuts
from gateway.cli.acknowledged import Acknowledged
from gateway.errors import BadPayload


def cut(content: bytes) -> list[cuts.Body]:
    return list(cuts.bodies(cuts.opened(io.BytesIO(content))))


def test_lines_are_cut_by_their_number():
    """512 a body, joined as they were."""
    lines = [json.dumps({"n": n}).encode() for n in range(1100)]
    found = cut(b"\n".join(lines) + b"\n\n")
    assert [512, 512, 76] == [body.items for body in found]
    assert lines == b"\n".join(body.content for body in found).split(b"\n")


def test_arrays_are_cut_by_their_size():
    """4 MiB a body, each an array of its own; an item larger than that goes alone."""
    items = ["x" * 1_500_000, "y" * 1_500_000, "z" * 1_500_000, "w" * 5_000_000, "v"]
    found = cut(json.dumps(items).encode())
    assert [2, 1, 1, 1] == [body.items for body in found]
    assert items == [item for body in found for item in json.loads(body.content)]


@pytest.mark.parametrize("document", [b'{"batch": []}', b'{\n "result": [\n {}, {} ]\n}\n', b'\n\n{"a": 1}'])
def test_a_document_stays_whole(document: bytes):
    """Over several lines or on one."""
    assert [json.loads(document)] == [json.loads(body.content) for body in cut(document)]


def test_a_broken_line_does_not_stop_the_others():
    """It goes along, and the gateway rejects it by itself."""
    assert [3] == [body.items for body in cut(b'{"a": \n{"b": 1}\n{"c": 2}')]
    assert [3] == [body.items for body in cut(b'{"b": 1}\n{"a": \n{"c": 2}')]


def test_otlp_requests_are_bodies_of_their_own():
    """As a collector's file exporter writes them, one a line."""
    otlp = b'{"resourceSpans": []}'
    assert [otlp, b'{"a": 1}\n{"b": 2}', otlp] == [
        body.content for body in cut(b"\n".join([otlp, b'{"a": 1}', b'{"b": 2}', otlp]))
    ]


def test_gzip_is_told_by_its_first_bytes():
    """Whatever the name."""
    assert [b'{"a": 1}\n{"b": 2}'] == [body.content for body in cut(gzip.compress(b'{"a": 1}\n{"b": 2}\n'))]


@pytest.mark.parametrize("content", [b"", b"  \n", b"a,b\n1,2", b'{"a": '])
def test_what_is_no_json_is_said_so(content: bytes):
    """Before anything is sent."""
    with pytest.raises(BadPayload):
        cut(content)


def test_directories_are_walked_in_order(tmp_path: Path):
    """Files of data only, and none that is hidden."""
    for name in ("b.ndjson", "a/x.json.gz", "a/.hidden.json", ".git/y.json", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    named = [str(tmp_path / name) for name in ("a/x.json.gz", "b.ndjson")]
    assert [*named, "-"] == list(cuts.files([str(tmp_path), "-"]))


def test_what_was_taken_is_known_by_content_and_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another address, another format or another content has taken nothing yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def of(content: bytes, url: str = "http://a", format: str | None = None) -> Acknowledged:
        return Acknowledged.of(io.BytesIO(content), url=url, format=format)

    first = of(b"one")
    first.add(0)
    first.add(2)
    assert [True, False, True] == [number in of(b"one") for number in range(3)]
    assert 0 not in of(b"two")
    assert 0 not in of(b"one", url="http://b")
    assert 0 not in of(b"one", format="kong")
    (state,) = (tmp_path / "tollhouse/sent").iterdir()
    assert {"bodies": [0, 2]} == json.loads(state.read_text())
    state.write_text("{damaged")
    assert 0 not in of(b"one")

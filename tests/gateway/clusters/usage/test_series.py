"""Input formats of agents: Snappy blocks, both versions of remote write, and JSON files."""

from __future__ import annotations

import gzip
import json
from typing import Any

import msgspec
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.clusters.usage.series import NAME, MetricSeries, parse_series, unpack_snappy
from spool.container_files.values import FILE, REMOTE_WRITE, ContainerFile
from spool.errors import Invalid
from tests.gateway.clusters.usage.remote_write import field, first, second, varint
from tests.rounds import examples

LABELS = {NAME: "kube_node_info", "node": "n-1"}
METRIC = {
    "metric_name": "kube_node_info",
    "node_name": "n-1",
    "timestamp": "1500",
    "value": "2.5",
    "labels": {},
}
EXPECTED = [MetricSeries(LABELS, [(1500, 2.5)])]


def file(kind: str = FILE, **more: Any) -> ContainerFile:
    return ContainerFile(
        id="1",
        kind=kind,
        account="a",
        region="r",
        cluster="c",
        reference="f",
        key="k",
        announced_at=0.0,
        **more,
    )


def literal(data: bytes) -> bytes:
    """Return a Snappy block of the text."""
    size = len(data)
    head = bytes([size & 0x7F | 0x80, size >> 7]) if size > 127 else bytes([size])
    return head + bytes([61 << 2]) + (size - 1).to_bytes(2, "little") + data


@given(st.binary(min_size=1, max_size=3000), st.integers(1, 40))
@settings(max_examples=examples(30), deadline=None)
def test_snappy_block_with_repeated_text_decodes_unchanged(data: bytes, often: int) -> None:
    """Repeated text makes the Snappy encoder use the copy elements of the block format."""
    text = data * often
    block = pyarrow.compress(text, codec="snappy", asbytes=True)
    assert text == unpack_snappy(block, len(text))
    with pytest.raises(Invalid, match="more than"):
        unpack_snappy(block, len(text) - 1)


@given(st.binary(max_size=60))
@settings(max_examples=examples(100), deadline=None)
def test_what_is_no_block_is_refused(data: bytes) -> None:
    """Any bytes either decode or raise `Invalid`."""
    try:
        unpack_snappy(data, 1000)
    except Invalid:
        return


SECOND = json.dumps({"Content-Type": "application/x-protobuf;proto=io.prometheus.write.v2.Request"})


def test_both_forms_of_remote_write_are_read() -> None:
    """
    In version 2, labels are indexes into symbols, which may follow the series. Unknown fields are skipped.
    """
    told = [(LABELS, [(1500, 2.5)])]
    other = varint(9 << 3) + varint(2**40) + field(3, b"metadata") + varint(8 << 3 | 1) + bytes(8)
    assert EXPECTED == list(parse_series(file(REMOTE_WRITE), literal(other + first(told) + other)))
    for body in (second(told), second(told, symbols_last=True)):
        assert EXPECTED == list(parse_series(file(REMOTE_WRITE, request=SECOND), literal(body + other)))


@given(st.binary(min_size=1, max_size=80), st.sampled_from(["", SECOND]))
@settings(max_examples=examples(100), deadline=None)
def test_a_body_that_is_none_is_refused(data: bytes, request: str) -> None:
    """Any bytes either decode or raise `Invalid`. A truncated body is invalid."""
    for body in (data, first([(LABELS, [(1500, 2.5)])]) + data):
        try:
            list(parse_series(file(REMOTE_WRITE, request=request), literal(body)))
        except Invalid:
            continue
    cut = first([(LABELS, [(1500, 2.5)])])[:-1]
    with pytest.raises(Invalid):
        list(parse_series(file(REMOTE_WRITE), literal(cut)))


@pytest.mark.parametrize(
    "pack", [bytes, gzip.compress, lambda data: pyarrow.compress(data, "brotli", asbytes=True)]
)
def test_files_of_json_are_read(pack: Any) -> None:
    """A file is one array or one metric per line, plain or compressed. Invalid rows are skipped."""
    lines = b"\n".join([msgspec.json.encode(METRIC), b'{"value": "x"}', b"7"])
    assert EXPECTED == list(parse_series(file(), pack(lines)))
    assert EXPECTED == list(parse_series(file(), pack(msgspec.json.encode([METRIC, {}, None]))))


@pytest.mark.parametrize("content", [b"", b"{", b"[1", b"\x1f\x8bno", b"\x00\xff\x07", b"PAR1PAR1"])
def test_a_file_that_cannot_be_read_is_refused(content: bytes) -> None:
    """A corrupt file raises `Invalid`, and an empty file has no series."""
    with pytest.raises(Invalid):
        found = list(parse_series(file(), content))
        raise Invalid(f"nothing: {found}")
    with pytest.raises(Invalid):
        list(parse_series(file(REMOTE_WRITE), content))

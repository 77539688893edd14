"""
Splitting of bodies into items. The first bytes decide about the form, and a bad item affects no other item.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import tracemalloc
from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from gateway.core.errors import BadPayload, Refusal
from gateway.normalise.payload import items as payload
from gateway.normalise.payload import json_cut, json_pieces
from gateway.normalise.payload.json_pieces import replace_undecodable_json_parts
from tests.rounds import reduced


def whole(work: Generator[bytes, None, bytes]) -> bytes:
    """Run a job that yields turns to the event loop; return its result."""
    while True:
        try:
            assert next(work) == b""
        except StopIteration as done:
            found: bytes = done.value
            return found


def texts(body: bytes) -> list[str]:
    return [bytes(item).decode() for item in payload.items_of_body(body)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"a": 1}', ['{"a": 1}']),
        (b' \n [{"a": 1}, null, 3] ', ['{"a": 1}', "null", "3"]),
        (b"[]", []),
        (b'{"a": 1}\n{"b": 2}', ['{"a": 1}', '{"b": 2}']),
        (b'{"a": 1}\r\n\r\n{"b": 2}\r\n', ['{"a": 1}', '{"b": 2}']),
        (b'[{"a": 1}]\n[{"b": 2}]\n', ['{"a": 1}', '{"b": 2}']),
        (b'{\n "a": 1\n}', ['{\n "a": 1\n}']),
        (b'\xef\xbb\xbf{"a": 1}', ['{"a": 1}']),
    ],
)
def test_a_body_is_a_document_an_array_or_lines(body: bytes, expected: list[str]) -> None:
    """A body is a document, an array or lines, as its content shows. The content type is ignored."""
    assert expected == texts(body)


@pytest.mark.parametrize(
    "body", [b"", b"  ", b"a=1", b"\x0a\x12", b'"text"', b'{"a": ', b'{"a": }', b'[{"a": 1}', b"[1] 2"]
)
def test_what_is_no_json_is_refused_whole(body: bytes) -> None:
    """
    A body that is no JSON is refused as a whole. So is a truncated array, because its sender did not finish it.
    """
    with pytest.raises(BadPayload):
        texts(body)


def test_a_broken_member_is_cut_out_and_its_neighbours_stay() -> None:
    """
    Only the broken element of an array is bad. Brackets and commas inside strings do not affect the split.
    """
    body = b'[{"a": "]},{\\""}, {"b": NaN}, {"c": }, {"d": [1, {"e": 2}]}]'
    assert ['{"a": "]},{\\""}', '{"b": NaN}', '{"c": }', '{"d": [1, {"e": 2}]}'] == texts(body)


def test_a_broken_line_stays_in_its_place() -> None:
    """An invalid line is an item, and its format rejects it."""
    assert ['{"a": 1}', '{"b":', '{"c": 3}'] == texts(b'{"a": 1}\n{"b": \n{"c": 3}')


@pytest.mark.parametrize("first", [b"null", b"3", b"listening on :1975", b'odel": "m"}', b'"', b"\xff"])
def test_the_first_line_may_be_the_broken_one(first: bytes) -> None:
    """
    The first line may be broken, such as a truncated line or a greeting. The following lines are still read.
    """
    items = [bytes(item) for item in payload.items_of_body(first + b'\n{"a": 1}\r\n\n{"b": 2}')]
    assert [first, b'{"a": 1}', b'{"b": 2}'] == items


def test_lines_of_which_each_must_be_cleaned_are_lines() -> None:
    """
    A body of lines is recognized even if no line is valid JSON before cleaning, because a gateway writes NaN
    for an unknown price.
    """
    assert ['{"a": null}', '{"b": null}'] == texts(b'{"a": NaN}\n{"b": NaN}\n')
    assert ['{"a": null}', '{"b": null}'] == texts(b'{"a": NaN}{"b": NaN}')


def test_an_array_with_something_wrong_in_each_element_is_cleaned_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """
    If every element of an array needs cleaning, the array is cleaned once. Before cleaning, the end of an
    invalid element cannot be found.
    """
    calls = 0

    def count(raw: bytes) -> bytes:
        nonlocal calls
        calls += 1
        return replace_undecodable_json_parts(raw)

    monkeypatch.setattr(json_pieces, "replace_undecodable_json_parts", count)
    assert ['{"a":1}', *['{"b":null}'] * 1000] == texts(b'[{"a":1}' + b',{"b":NaN}' * 1000 + b"]")
    assert 1 == calls


def test_text_of_a_neighbour_is_not_cleaned_where_a_quote_is_lost() -> None:
    """
    A lost quote swaps strings and the text between them. An element is cleaned only if the result is valid
    JSON. Otherwise it stays unchanged.
    """
    assert ['{"a":NaN}', '{"b":"x},{"c":"is NaN"}'] == texts(b'[{"a":NaN},{"b":"x},{"c":"is NaN"}]')


def test_what_is_broken_is_seen_by_the_place_of_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The place of the error shows whether an element is broken. An element is examined further only if a window
    may have cut it.
    """
    tries = 0

    class Counting(Reworded):
        def decode(self, text: bytes) -> Any:
            nonlocal tries
            tries += 1
            return super().decode(text)

    monkeypatch.setattr(json_cut, "_document", Counting(json_cut._document))
    body = b"[" + b'{"a":[{"b":tru}],"c":1},' * 1000 + b"1" * 600_000 + b"]"
    assert 1001 == len(list(payload.items_of_body(body)))
    assert tries < 2.5 * 1000


@pytest.mark.parametrize("many", [1, 1000])
def test_elements_of_a_nested_array_are_split_in_place(many: int) -> None:
    """
    The elements of an array inside an object are split in place, and no large element is copied. If several
    members have the name, the last one counts.
    """
    batch = [{"a": "x" * 2000, "b": "]},{"}] * many
    document = (
        json.dumps({"batch": [0], "z": ["]"], "batch ": batch, "end": {}})
        .encode()
        .replace(b"batch ", b"batch")
    )
    assert batch == [json.loads(bytes(item)) for item in payload.array_elements_of_member(document, "batch")]
    large = b'{"batch":[{"a":"' + b"x" * 4_000_000 + b'"} ,2]}'
    tracemalloc.start()
    items = list(payload.array_elements_of_member(large, "batch"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(json.loads(bytes(items[0]))["a"]) == 4_000_000
    assert bytes(items[1]) == b"2"
    assert peak < len(large) // 2


def test_a_line_that_is_a_broken_array_stays_in_its_place() -> None:
    """
    A line with an invalid array affects no other line, and the elements before the error are still read.
    """
    assert ["1", "[2", '{"c": 3}'] == texts(b'[1]\n[2\n{"c": 3}')
    assert ['{"a": 1}', '[{"a": 1}, {"b":', '{"c": 3}'] == texts(b'[{"a": 1}]\n[{"a": 1}, {"b":\n{"c": 3}')[
        1:
    ]


def test_documents_without_a_separator_are_split() -> None:
    """
    Documents without a separator are split, in a body and in a line of it. Text that is not a sequence of
    documents stays one piece.
    """
    assert ['{"a": "}{"}', '{"b": 2}'] == texts(b'{"a": "}{"}{"b": 2}')
    assert ['{"a": 1}', '{"b": 2}', '{"c": 3}'] == texts(b'{"a": 1}{"b": 2}\n{"c": 3}')
    assert ['{"a": 1}', '{"b":', '{"c": 3}'] == texts(b'{"a": 1}{"b": \n{"c": 3}')
    assert ['{"a": 1}', '{"b":'] == texts(b'{"a": 1}{"b": ')


def test_cleaning_keeps_every_digit_and_every_good_character() -> None:
    """
    Cleaning replaces only NaN and lone surrogates. Digits, surrogate pairs, escaped backslashes and words
    in strings stay.
    """
    dirty = (
        b'{"n": NaN, "i": -Infinity, "c": 1.80e-07, "s": "\\ud800 \\ud83d\\ude00 \\\\ud800 NaN", "u": "\xff"}'
    )
    cleaned = b'{"n": null, "i": null, "c": 1.80e-07, "s": "\\ufffd \\ud83d\\ude00 \\\\ud800 NaN", "u": "\xef\xbf\xbd"}'
    assert cleaned == replace_undecodable_json_parts(dirty)


def test_deep_nesting_costs_one_item() -> None:
    """An item that is nested deeper than the parser allows is rejected without affecting other items."""
    deep = b"[" * 5000 + b"]" * 5000
    assert [b'{"a":1}', deep, b'{"b":2}'] == [
        bytes(item) for item in payload.items_of_body(b'[{"a":1},' + deep + b',{"b":2}]')
    ]


@pytest.mark.parametrize("layout", [{}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}])
def test_the_members_of_a_large_item_are_those_of_a_small_one(layout: Any) -> None:
    """A large item is read like a small one, whatever its layout and the content of its names and values."""
    members = {"a": 1, "b": {"c": [1, 2, {"d": '"}{,\\":'}]}, 'é"\\': None, "": [], "n": 1.5e-7, "z": "end"}
    small = payload.undecoded_members(json.dumps(members, **layout).encode())
    large = payload.undecoded_members(
        json.dumps({"pad": "x" * 2**20, **members, "more": ["x" * 2**20]}, **layout).encode()
    )
    assert {"pad", "more"} == large.keys() - small.keys()
    assert {name: json.loads(bytes(value)) for name, value in small.items()} == members
    assert all(bytes(value).split() == bytes(large[name]).split() for name, value in small.items())


def test_an_item_of_millions_of_members_shows_the_first() -> None:
    """
    Of an item with millions of members, only the first members are indexed. An index of all would take twenty
    times the size, and no format has that many.
    """
    item = b'{"records":null,' + b",".join(b'"a%d":1' % n for n in range(200_000)) + b"}"
    tracemalloc.start()
    assert b"null" == bytes(payload.undecoded_members(item)["records"])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 3 * len(item)


def test_inflating_is_bounded() -> None:
    """The size after inflating is limited. A bomb is refused before it inflates."""
    with pytest.raises(payload.TooBig):
        whole(payload.inflate_gzip_yielding_turns(gzip.compress(bytes(10_000_000)), 1_000_000))


def test_gzip_of_several_members_is_one_text() -> None:
    """Firehose may concatenate gzip members."""
    assert b"onetwo" == whole(
        payload.inflate_gzip_yielding_turns(gzip.compress(b"one") + gzip.compress(b"two"), 100)
    )


@pytest.mark.timeout(120)
def test_gzip_of_very_many_members_costs_no_more_than_its_bytes() -> None:
    """
    Many gzip members cost no more than their bytes. Copying the rest after each member would take a minute
    here, and hours for larger bodies.
    """
    long = random.Random(0).randbytes(1_000_000)
    packed = gzip.compress(b"") * reduced(400_000, by=16) + gzip.compress(long)
    assert long == whole(payload.inflate_gzip_yielding_turns(packed, len(long)))
    with pytest.raises(payload.TooBig):
        whole(payload.inflate_gzip_yielding_turns(packed, len(long) - 1))


@pytest.mark.parametrize("packed", [b"plain", gzip.compress(b"x" * 1000, mtime=0)[:-4], b"\x1f\x8b"])
def test_what_is_no_gzip_is_said_so(packed: bytes) -> None:
    """The error says that the bytes are no gzip, or that they are truncated."""
    with pytest.raises(ValueError, match="gzip"):
        whole(payload.inflate_gzip_yielding_turns(packed, 1000))


def test_base64_is_strict() -> None:
    """Base64 text is decoded strictly: characters outside the alphabet are an error, and are not skipped."""
    assert b"abc" == whole(payload.decode_base64(base64.b64encode(b"abc").decode()))
    with pytest.raises(ValueError, match="not base64"):
        whole(payload.decode_base64("a*b="))


def test_large_array_is_split_as_it_is_read() -> None:
    """
    Elements of a large array are split as they are read, so they take no memory before their turn. An error
    is found when it is reached.
    """
    elements = [{"text": '],"[{' * 20_000}, 1, "x", [], {}, None, [[{"a": "]"}]], {"b": 1.50}] * 12
    body = json.dumps(elements, indent=1).encode()
    assert elements == [json.loads(bytes(item)) for item in payload.items_of_body(body)]
    broken = payload.items_of_body(body[:-2])
    assert elements[0] == json.loads(bytes(next(broken)))
    with pytest.raises(BadPayload, match="is incomplete"):
        list(broken)


def test_arrays_of_large_lines_are_lines() -> None:
    """If each line of a body is a large array, the first array is not mistaken for the whole body."""
    line = json.dumps([{"a": "x" * 2_000_000}, 1]).encode()
    assert [line[1:-4], b"1", line[1:-4], b"1", b"2"] == [
        bytes(item) for item in payload.items_of_body(line + b"\n" + line + b"\n[2]\n")
    ]


def test_gzip_that_does_not_say_so_is_refused_with_the_reason() -> None:
    """
    A gzip body without the header Content-Encoding is refused with the reason, because users may send a file
    from a bucket unchanged.
    """
    with pytest.raises(BadPayload, match="Content-Encoding: gzip"):
        payload.items_of_body(gzip.compress(b"{}"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "body",
    [b'["' + b'\\"' * 500_000, b'{"answer": NaN, "prompt": "' + b'\\"' * 500_000, b"[" + b"\n" * 1_000_000],
    ids=["array", "document", "blank lines"],
)
def test_what_breaks_off_is_found_in_one_pass(body: bytes) -> None:
    """
    A body that breaks off is scanned once. An unfinished string is not scanned again from each quote, and
    blank lines are not scanned again.
    """
    with pytest.raises(BadPayload):
        list(payload.items_of_body(body))


@pytest.mark.timeout(120)
def test_an_item_that_lost_a_quote_costs_no_neighbour() -> None:
    """
    If an item lost a quote, the other items are unaffected, whatever the number of commas and quotes after it.
    """
    many = reduced(200_000, by=8)
    items = list(payload.items_of_body(b'[{"a":1},{"b":"x},' + b'2\\",' * many + b"{}]"))
    assert bytes(items[0]) == b'{"a":1}'
    assert bytes(items[1]) == b'{"b":"x}'
    assert len(items) == many + 3


@pytest.mark.timeout(120)
def test_a_body_that_was_cut_is_cleaned_in_one_pass() -> None:
    """Gateways truncate bodies at a fixed length, often inside a prompt."""
    body = b'{"prompt": "' + b"\\ud83d\\ude00" + b'\\"' * 500_000
    assert body == replace_undecodable_json_parts(body)


class Reworded:
    """A JSON decoder that uses other error texts."""

    def __init__(self, decoder: msgspec.json.Decoder[Any]) -> None:
        self._decoder = decoder

    def decode(self, text: bytes) -> Any:
        try:
            return self._decoder.decode(text)
        except msgspec.DecodeError as error:
            raise msgspec.DecodeError(
                f"(byte {json_cut.error_offset(error)}) is not what was expected"
            ) from error


@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "}{"}{"b": 2}',
        b'{"a": 1}{"b": 2}\n{"c": 3}',
        json.dumps([{"text": '],"[{' * 200_000}, 1, "x", [], {"b": 1.50}], indent=1).encode(),
        b'[{"a":1},{"b": },{"c":"' + b"x" * 2**20 + b'"}]',
    ],
    ids=["run", "run in lines", "large array", "large array with a bad element"],
)
def test_cuts_do_not_depend_on_the_words_of_the_decoder(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The end of an item does not depend on the decoder's error texts: it is found by position, and checked by
    decoding the text before it.
    """
    expected = [bytes(item) for item in payload.items_of_body(body)]
    monkeypatch.setattr(json_cut, "_document", Reworded(json_cut._document))
    assert expected == [bytes(item) for item in payload.items_of_body(body)]
    assert len(expected) > 1


def test_a_body_that_breaks_off_in_brackets_is_left_in_turns() -> None:
    """Counting a million opened brackets takes half a second."""
    turns = 0
    with pytest.raises(BadPayload):
        for item in payload.items_of_body(b"[" * reduced(1_000_000, by=4)):
            turns += not len(item)
    assert turns > reduced(10, by=4)


def test_lists_and_objects_are_bounded_before_they_are_made() -> None:
    """
    The number of elements is limited before lists and objects are created. The test checks the limit and
    one above it.
    """
    payload.refuse_too_many_containers(b'{"a":[]}', 2)
    with pytest.raises(Refusal, match="more than 2 lists and objects") as refused:
        payload.refuse_too_many_containers(b'{"a":[[]]}', 2)
    assert 413 == refused.value.status

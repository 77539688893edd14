"""Repair of invalid JSON in texts of any size."""

from __future__ import annotations

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.normalise.payload.json_pieces import replace_undecodable_json_parts
from tests.rounds import reduced

TEXTS = st.text(st.sampled_from(list('aN"\\\ud800\ud83d\ude00\né-I{}[],')), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from(["NaN", "-Infinity", '"NaN'])
    | st.lists(st.just(float("nan"))),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)  # fmt: skip


def as_expected(value: object) -> object:
    """Return the repaired value: null for NaN and infinity, U+FFFD for a lone surrogate."""
    match value:
        case float() if json.dumps(value) in ("NaN", "Infinity", "-Infinity"):
            return None
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [as_expected(one) for one in value]
        case dict():
            return {as_expected(name): as_expected(one) for name, one in value.items()}
    return value


@given(VALUES, st.integers(0, 300))
def test_what_python_writes_becomes_json_of_the_same_meaning(value: object, behind: int) -> None:
    """
    Text that Python writes becomes JSON with the same meaning, wherever it is in a long text. The expressions
    match only some hundred bytes at a time.
    """
    written = json.dumps(["x" * behind, value]).encode()
    cleaned = replace_undecodable_json_parts(written)
    assert as_expected(["x" * behind, value]) == json.loads(cleaned.decode(), parse_constant=pytest.fail)


@pytest.mark.parametrize("behind", [*range(250, 270), *range(4090, 4100), *range(262_130, 262_150)])
@pytest.mark.parametrize(
    ("dirty", "cleaned"),
    [
        (b"-Infinity,NaN", b"null,null"),
        (b'"NaN\\\\",NaN', b'"NaN\\\\",null'),
        (b'"\\ud83d\\ude00\\ud83d"', b'"\\ud83d\\ude00\\ufffd"'),
        (b'"\\\\ud83d\\"NaN\\ude00"', b'"\\\\ud83d\\"NaN\\ufffd"'),
    ],
)
def test_result_of_cleaning_does_not_depend_on_the_step_size(
    behind: int, dirty: bytes, cleaned: bytes
) -> None:
    """The result of cleaning does not depend on the size of the steps, inside and outside of strings."""
    assert b" " * behind + cleaned == replace_undecodable_json_parts(b" " * behind + dirty)
    if dirty.startswith(b'"'):
        assert b'"' + b"x" * behind + cleaned[1:] == replace_undecodable_json_parts(
            b'"' + b"x" * behind + dirty[1:]
        )


def test_a_million_words_cost_no_more_memory_than_the_text() -> None:
    """
    Cleaning a million words needs no more memory than the text. A list of the parts took forty times that.
    """
    words = reduced(1_000_000, by=8)
    text, expected = b"[" + b"NaN," * words + b"0]", b"[" + b"null," * words + b"0]"
    tracemalloc.start()
    cleaned = replace_undecodable_json_parts(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert expected == cleaned
    assert peak < 4 * len(text)


def test_words_are_replaced_only_as_a_whole() -> None:
    """Only whole words are replaced. Other invalid text stays, so that the parser refuses it."""
    assert b"[null,null,NaNs,aNaN,null]" == replace_undecodable_json_parts(
        b"[NaN,-Infinity,NaNs,aNaN,Infinity]"
    )
    assert b'{"NaN":"-Infinity"}' == replace_undecodable_json_parts(b'{"NaN":"-Infinity"}')
    assert b'{"a":null,"b":"NaN' == replace_undecodable_json_parts(b'{"a":NaN,"b":"NaN')

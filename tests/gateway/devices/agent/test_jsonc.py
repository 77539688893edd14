"""Text edits of JSON with comments change only the requested path."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.devices.agent import jsonc
from gateway.devices.agent.edits import MISSING, NotEditable

CLAUDE = """{
  // what I like
  "model": "opus",   // the big one
  "permissions": {
      "allow": ["Bash(ls:*)", "Read"], /* odd
      indentation */
  },
    "env": { "FOO": "1" },
  "theme": "dark" // no comma
}
"""


def test_into_a_file_that_says_nothing() -> None:
    """An empty file becomes an object. Comments in a file without an object stay above the new object."""
    assert '{\n  "a": {\n    "b": 1\n  }\n}\n' == jsonc.put_value("", ("a", "b"), 1)
    assert '// mine\n{\n  "a": 1\n}\n' == jsonc.put_value("// mine", ("a",), 1)


def test_a_new_member_after_a_comment() -> None:
    """
    If a comment follows the last member, the comma is inserted after the value, and the comment stays
    on its line.
    """
    expected = CLAUDE.replace('"dark" // no comma\n', '"dark", // no comma\n  "x": true\n')
    assert expected == jsonc.put_value(CLAUDE, ("x",), True)


def test_a_new_member_on_a_line_that_holds_all() -> None:
    assert '{ "FOO": "1", "BAR": "2" }' in jsonc.put_value(CLAUDE, ("env", "BAR"), "2")


def test_a_trailing_comma_stays_a_habit() -> None:
    """If the last member had a trailing comma, the new last member has one as well."""
    assert '{\n\t"a": 1, // one\n\t"b": {\n\t\t"c": 2\n\t},\n}' == jsonc.put_value(
        '{\n\t"a": 1, // one\n}', ("b", "c"), 2
    )
    assert '{"a": 1, "b": 2,}' == jsonc.put_value('{"a": 1,}', ("b",), 2)


def test_empty_braces_open() -> None:
    """
    An object with empty braces gets the new member with the file's own indentation. Comments inside the
    braces stay above the member.
    """
    assert '{\n    "a": {\n        "b": 1\n    }\n}' == jsonc.put_value('{\n    "a": {}\n}', ("a", "b"), 1)
    assert '{ // none\n  "a": 1\n}' == jsonc.put_value("{ // none\n}", ("a",), 1)


def test_an_existing_value_alone_changes() -> None:
    """If a name is repeated, the last value changes, because it counts."""
    assert '{"a": 1, "a" : /* why */ 3 }' == jsonc.put_value('{"a": 1, "a" : /* why */ 2 }', ("a",), 3)


def test_line_ends_and_marks_of_windows() -> None:
    """CRLF line ends and a byte order mark are preserved."""
    text = '\ufeff{\r\n  "a": 1\r\n}\r\n'
    changed = jsonc.put_value(text, ("b", "c"), 2)
    assert '\ufeff{\r\n  "a": 1,\r\n  "b": {\r\n    "c": 2\r\n  }\r\n}\r\n' == changed
    assert text == jsonc.remove_value(changed, ("b",))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1, 2",
        '{"a" 1}',
        '{"a": 1 "b": 2}',
        "{'a': 1}",
        '{"a": tru}',
        "{} {}",
        '{"a": "\n"}',
        "x",
        "[" * 200,
    ],
)
def test_what_is_no_json(text: str) -> None:
    """Text that is not JSON is refused with an error that names the line."""
    with pytest.raises(NotEditable, match="line"):
        jsonc.put_value(text, ("a",), 1)


def test_a_path_through_something_else() -> None:
    """If `env` is a string, it is not replaced by an object."""
    with pytest.raises(NotEditable, match="env is not an object"):
        jsonc.put_value('{"env": "x"}', ("env", "A"), 1)
    with pytest.raises(NotEditable, match="the file is not an object"):
        jsonc.put_value("[]", ("a",), 1)


names = st.sampled_from(["a", "b", "env", "telemetry", "x.y", "ü", 'q"', "\\"])
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=6)
    | st.lists(st.integers(0, 3), max_size=2)
)
trees = st.dictionaries(
    names, st.recursive(leaves, lambda inner: st.dictionaries(names, inner, max_size=3)), max_size=4
)
space = st.sampled_from(["", " ", "\n", "\n    ", "\t", " // why\n", ' /* a, "b": { */ ', "\r\n"])


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Draw a tree and one of many ways to write it."""
    tree: dict[str, Any] = draw(trees)

    def written(value: Any) -> str:
        if not isinstance(value, dict):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        parts: list[str] = [
            f"{draw(space)}{json.dumps(name)}{draw(space)}:{draw(space)}{written(each)}{draw(space)}"
            for name, each in value.items()
        ]
        has_comma: bool = bool(parts) and draw(st.booleans())
        trailing = "," if has_comma else ""
        return "{" + ",".join(parts) + trailing + draw(space) + "}"

    return draw(space) + written(tree) + draw(space), tree


def with_value(tree: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    if len(path) == 1:
        return {**tree, path[0]: value}
    inner = tree.get(path[0], {})
    return {**tree, path[0]: with_value(inner, path[1:], value)}


def is_within(text: str, longer: str) -> bool:
    """Return whether all characters of `text` appear in `longer` in the same order."""
    rest = iter(longer)
    return all(mark in rest for mark in text)


@given(documents(), st.lists(names, min_size=1, max_size=3), leaves)
def test_only_the_path_changes(document: tuple[str, dict[str, Any]], path: list[str], value: Any) -> None:
    """An edit of any tree sets the new value. All other text is preserved, except the old value."""
    text, tree = document
    assert tree == jsonc.parse_settings(text)
    place = tuple(path)
    try:
        changed = jsonc.put_value(text, place, value)
    except NotEditable:
        return
    assert with_value(tree, place, value) == jsonc.parse_settings(changed)
    assert value == jsonc.get_value(changed, place)
    if jsonc.get_value(text, place) is MISSING:
        # compare without spaces, because empty braces may be spread over lines
        assert is_within("".join(text.split()), changed)
        gone = jsonc.remove_value(changed, place)
        assert jsonc.get_value(gone, place) is MISSING
        if len(place) == 1:
            assert tree == jsonc.parse_settings(gone)


@given(documents(), names)
def test_removing_a_member_changes_no_other(document: tuple[str, dict[str, Any]], name: str) -> None:
    text, tree = document
    assert {key: value for key, value in tree.items() if key != name} == jsonc.parse_settings(
        jsonc.remove_value(text, (name,))
    )

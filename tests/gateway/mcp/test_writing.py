"""Names from senders are safe in answers that a client may render as Markdown."""

from __future__ import annotations

import re

import pytest

from gateway.mcp.writing import did_you_mean, format_cell, markdown_table
from tests.hostile_names import HOSTILE_NAMES, UNPRINTABLE


@pytest.mark.proves("names as Markdown")
@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpt-4.1_mini (eu)", "gpt-4.1_mini (eu)"),
        ("claude_code", "claude_code"),
        ("[click](https://bad.example)", r"\[click\]\(https\://bad.example)"),
        ("![x](http://bad.example/a.png)", r"\!\[x\]\(http\://bad.example/a.png)"),
        ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
        ("&lt;b&gt; a & b", "&amp;lt;b&amp;gt; a & b"),
        ("`rm -rf`", r"\`rm -rf\`"),
        ("*a* ~b~ $c$", r"\*a\* \~b\~ \$c\$"),
        ("_a_", r"\_a\_"),
        ("a | b", r"a \| b"),
        (r"\| \<", r"\\\| \\&lt;"),
        ("www.bad.example @all", r"www\.bad.example \@all"),
        ("a\u202eb\r\nc", "abc"),
    ],
)
def test_a_name_is_text(name: str, expected: str) -> None:
    """A plain name stays unchanged in a cell and in a suggestion."""
    assert expected == format_cell(name)
    assert f"; did you mean {expected}?" == did_you_mean(name, [name])


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_name_leaves_its_cell(name: str) -> None:
    """For any name, the table keeps one row, without markup, tags or hidden characters."""
    *lines, _, _ = markdown_table(["model"], [[format_cell(name)]]).split("\n")
    assert 3 == len(lines)
    shown = re.sub(r"\\.", "", lines[2].removeprefix("| ").removesuffix(" |"))
    assert not UNPRINTABLE.search(shown) and not re.search(r"[<>|\[\]`*~]|://|www\.", shown)

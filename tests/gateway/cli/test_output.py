"""Tables in a terminal."""

from __future__ import annotations

import pytest

from gateway.cli.output import show_table

ESCAPE = "\x1b]0;title\x07"


def test_no_cell_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a text, a list nor an object: a space stands for what is not printable."""
    name = f"a{ESCAPE}\r\n\u2028\u202eb"
    show_table([{"one": name, "two": [name], "three": {name: name}}], ("one", "two", "three"), {"two": name})
    printed = capsys.readouterr().out
    assert 2 == printed.count("\n")
    assert printed.replace("\n", "").isprintable()

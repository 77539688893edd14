from __future__ import annotations

import json

import pytest

from gateway.cli import fail
from gateway.cli.output import show_fields, show_json, show_table
from tests.hostile_names import HOSTILE_NAMES, UNPRINTABLE

ESCAPE = "\x1b]0;title\x07"


def test_no_cell_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """In strings, lists and objects, a space replaces each unprintable character."""
    name = f"a{ESCAPE}\r\n\u2028\u202eb"
    show_table([{"one": name, "two": [name], "three": {name: name}}], ("one", "two", "three"), {"two": name})
    printed = capsys.readouterr().out
    assert 2 == printed.count("\n")
    assert printed.replace("\n", "").isprintable()


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_name_reaches_a_terminal_as_more_than_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Names are escaped in tables, single objects, JSON and error messages."""
    show_table([{"one": name}], ("one",))
    show_fields({"one": name})
    show_json({name: [name]})
    with pytest.raises(SystemExit):
        fail(f"the server answers {name}")
    for printed in capsys.readouterr():
        for line in printed.split("\n"):
            assert not UNPRINTABLE.search(line)


def test_json_for_people_is_the_same_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = {name: [name] for name in HOSTILE_NAMES}
    show_json(document)
    assert document == json.loads(capsys.readouterr().out)

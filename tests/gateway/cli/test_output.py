from __future__ import annotations

import json

import pytest

from gateway.cli import exit_with_message
from gateway.cli.output import JsonObject, show_fields, show_json, show_list, show_table
from tests.hostile_names import HOSTILE_NAMES, UNPRINTABLE

ESCAPE = "\x1b]0;title\x07"


def test_no_cell_moves_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    """In strings, lists and objects, a space replaces each unprintable character."""
    name = f"a{ESCAPE}\r\n\u2028\u202eb"
    show_table([{"one": name, "two": [name], "three": {name: name}}], ("one", "two", "three"), {"two": name})
    printed = capsys.readouterr().out
    assert 2 == printed.count("\n")
    assert printed.replace("\n", "").isprintable()


@pytest.mark.proves(
    "A team's or a model's name adds mail headers, mentions people in a chat, or controls a terminal"
)
@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_no_name_reaches_a_terminal_as_more_than_text(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Names are escaped in tables, single objects, JSON and error messages."""
    show_table([{"one": name}], ("one",))
    show_fields({"one": name})
    show_json({name: [name]})
    with pytest.raises(SystemExit):
        exit_with_message(f"the server answers {name}")
    for printed in capsys.readouterr():
        for line in printed.split("\n"):
            assert not UNPRINTABLE.search(line)


def test_json_for_people_is_the_same_json(capsys: pytest.CaptureFixture[str]) -> None:
    document = {name: [name] for name in HOSTILE_NAMES}
    show_json(document)
    assert document == json.loads(capsys.readouterr().out)


def test_a_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """Truth, times in epoch seconds, conditions and dollars are written as people write them; CSV keeps them."""
    rows: list[JsonObject] = [
        {
            "is_open": True,
            "created": "1795944300.57",
            "filter": {"team": ["search", None]},
            "cost": "77.333333333",
        },
        {"is_open": False, "created": "1795944300", "filter": {}, "cost": "0.66666666666"},
    ]
    columns = ("is_open", "created", "filter", "cost")
    show_list(None, {}, rows, columns, money=("cost",))
    assert capsys.readouterr().out.splitlines() == [
        "IS OPEN  CREATED                   FILTER            COST",
        "yes      2026-11-29T09:25:00.570Z  team=search, -  $77.33",
        "no       2026-11-29T09:25:00.000Z  -                $0.67",
    ]
    show_list("csv", {}, rows, columns, money=("cost",))
    assert "true,1795944300.57" in capsys.readouterr().out


def test_parts_of_an_amount_add_up_in_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """
    Parts of a sum are rounded so that they add up: 74.668 and 2.666 make 77.334, so the parts make 77.33 and not
    77.34.
    """
    rows: list[JsonObject] = [{"cost": "74.668"}, {"cost": "2.666"}, {"cost": None}]
    show_list(None, {}, rows, ("cost",), money=("cost",), currency="EUR")
    assert capsys.readouterr().out.split("\n")[1:4] == ["EUR 74.67", " EUR 2.66", "        -"]

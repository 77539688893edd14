"""Declared operator commands: one request from arguments and options, and the printed answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from gateway.cli.operator.client import OperatorClient
from gateway.cli.operator.commands import add_commands, confirm_option, list_command, request_command

SENT: list[tuple[str, str, object, list[tuple[str, str]]]] = []
LAST_PAGE = {"cursor": {"has_next": False, "next_cursor": None}, "item_count": 1, "total_count": 1}


class Answering(OperatorClient):
    """Records each request and always returns the same resource, a crate."""

    def request(self, method: str, path: str, *, body: object = None, query: Any = ()) -> dict[str, Any]:
        SENT.append((method, path, body, list(query)))
        return {"crate": {"id": "1", "place": "the\thall"}}


class Listing(OperatorClient):
    def request(self, method: str, path: str, *, body: object = None, query: Any = ()) -> dict[str, Any]:
        SENT.append((method, path, body, list(query)))
        return {"seals": [{"id": "1"}], "pagination": LAST_PAGE}


@pytest.fixture(autouse=True)
def _answering(monkeypatch: pytest.MonkeyPatch) -> None:
    SENT.clear()
    monkeypatch.setattr("gateway.cli.operator.client.OperatorClient", Answering)


def run(tmp_path: Path, *words: str) -> Result:
    crates = click.Group("crates")
    add_commands(
        crates,
        request_command("show ID", "GET /crates/{id}", "Show one."),
        request_command("move ID PLACE", "POST /crates/{id}/move", "Move one.", click.option("--by", type=int)),
        request_command("seal ID", "PATCH /crates/{id}", "Seal one.", request_body={"is_sealed": True}),
        request_command("sort", "POST /crates/sort", "Sort all.", click.option("--label", multiple=True),
                request_body=lambda label: {"by": "-".join(label)}, show_response="sorted to {crate[place]}"),
        request_command("delete ID", "DELETE /crates/{id}", "Delete one.", confirm_option("ID", "Once more."),
                show_response="crate {id} deleted"),
    )  # fmt: skip
    list_command(crates, "seals ID", root="seals", path="/crates/{id}/seals", columns=("id",),
                 filters={"state": "whole or broken."}, help="List the seals of one.")  # fmt: skip
    return CliRunner().invoke(crates, [*words, "--data", str(tmp_path)])


def test_path_arguments_are_quoted(tmp_path: Path) -> None:
    """Arguments are quoted, so a slash does not split the path. The only object of the answer is shown."""
    shown = run(tmp_path, "show", "a/b")
    assert [("GET", "/crates/a%2Fb", None, [])] == SENT
    assert ["FIELD  VALUE", "id     1", "place  the hall"] == shown.stdout.splitlines()


def test_other_values_are_the_body(tmp_path: Path) -> None:
    """Options that were not given are left out of the body."""
    run(tmp_path, "move", "1", "attic", "--by", "2")
    run(tmp_path, "move", "1", "attic")
    bodies = [body for _, _, body, _ in SENT]
    assert [{"place": "attic", "by": 2}, {"place": "attic"}] == bodies


def test_a_delete_repeats_its_confirmation_in_the_query(tmp_path: Path) -> None:
    assert "crate 1 deleted\n" == run(tmp_path, "delete", "1", "--confirm", "1").stdout
    assert [("DELETE", "/crates/1", None, [("confirm", "1")])] == SENT
    assert 2 == run(tmp_path, "delete", "1").exit_code


def test_a_row_says_what_it_sends(tmp_path: Path) -> None:
    """
    The body has the fixed fields of the command's declaration, or the result of its function. Printed text
    contains no control characters.
    """
    run(tmp_path, "seal", "1")
    said = run(tmp_path, "sort", "--label", "a", "--label", "b").stdout
    assert [{"is_sealed": True}, {"by": "a-b"}] == [body for _, _, body, _ in SENT]
    assert "sorted to the hall\n" == said


def test_the_answer_is_printed_as_json(tmp_path: Path) -> None:
    assert '"place": "the\\thall"' in run(tmp_path, "delete", "1", "--confirm", "1", "--json").output


def test_a_list_has_its_arguments_in_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.cli.operator.client.OperatorClient", Listing)
    shown = run(tmp_path, "seals", "a b", "--state", "whole", "--state", "broken", "--limit", "5")
    query = [("limit", "5"), ("state", "whole"), ("state", "broken")]
    assert [("GET", "/crates/a%20b/seals", None, query)] == SENT
    assert ["ID", " 1"] == shown.stdout.splitlines()

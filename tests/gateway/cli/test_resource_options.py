"""Options for creating and editing a resource follow from the declared fields."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import click
import msgspec
import pytest
from click.testing import CliRunner

from gateway.cli.operator.client import OperatorClient
from gateway.cli.operator.resources import add_resource_commands, add_resource_options, request_body
from spool.registry.field_notes import Option, words


class NewCrate(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("Unique.")]
    size: Literal["small", "large"] | None = None
    max_weight: Annotated[str | int | None, Option("--weight", "KG")] = None
    labels: Annotated[list[str], words("Where it goes."), Option("--label")] = []
    is_sealed: bool = False
    place: Annotated[str, Option(choices=("hall", "attic"))] = "hall"
    parts: dict[str, str] = {}
    seals: Annotated[int, Option(is_by_hand=True)] = 0


class Asked(OperatorClient):
    """Records the requests of a command."""

    def request(self, method: str, path: str, *, body: object = None, query: Any = ()) -> dict[str, Any]:
        ASKED.append((method, path, body))
        return {"crate": {"id": "1", "name": "one"}}


ASKED: list[tuple[str, str, object]] = []


def run(*arguments: str) -> tuple[dict[str, Any] | None, str]:
    """Return the body that a command would send, and its output."""
    sent: list[dict[str, Any]] = []

    @click.command()
    @add_resource_options(NewCrate, required=("name",))
    def create(**given: Any) -> None:
        sent.append(request_body(NewCrate, given))

    printed = CliRunner().invoke(create, arguments).output
    return (sent[0] if sent else None), printed


def test_what_is_given_is_the_body() -> None:
    """Each plain field has an option. A field that is not given keeps its default or its current value."""
    assert {"name": "one"} == run("--name", "one")[0]
    given = (
        "--size",
        "large",
        "--weight",
        "7",
        "--label",
        "a",
        "--label",
        "b",
        "--no-is-sealed",
        "--place",
        "attic",
    )
    assert {
        "name": "one",
        "size": "large",
        "max_weight": "7",
        "labels": ["a", "b"],
        "is_sealed": False,
        "place": "attic",
    } == run("--name", "one", *given)[0]


def test_the_words_of_a_field_are_the_help_of_its_option() -> None:
    """
    An option's help is the description of its field, and says if the field is required. Mappings, and fields
    that commands fill themselves, have no option.
    """
    _, help = run("--help")
    for line in ("--name TEXT", "Unique.  [required]", "--weight KG", "Where it goes; may repeat."):
        assert line in help, help
    assert "parts" not in help
    assert "seals" not in help
    assert "did you mean 'large'" in run("--name", "one", "--size", "larg")[1]


def test_a_plain_resource_has_its_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """
    Only verbs with a help text become commands. An empty change, or a new resource without a required field, is
    refused before a request is sent.
    """
    monkeypatch.setattr("gateway.cli.operator.client.OperatorClient", Asked)
    group = click.Group("crates")
    help = {"create": "Create one.", "show": "Show one.", "edit": "Change one.", "delete": "Delete one."}
    add_resource_commands(group, NewCrate, noun="crate", path="/crates", help=help)

    def asks(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(group, [*words, "--data", str(tmp_path)])
        return done.exit_code, done.output

    ASKED.clear()
    assert (
        0
        == asks("create", "--name", "one")[0]
        == asks("show", "a b")[0]
        == asks("edit", "1", "--weight", "2")[0]
    )
    assert "crate 1 deleted" in asks("delete", "1")[1]
    assert [
        ("POST", "/crates", {"name": "one"}),
        ("GET", "/crates/a%20b", None),
        ("PATCH", "/crates/1", {"max_weight": "2"}),
        ("DELETE", "/crates/1", None),
    ] == ASKED
    assert "Missing option '--name'" in asks("create")[1]
    code, output = asks("edit", "1")
    assert code == 2
    assert "tollhouse crates edit --help" in output
    few = click.Group("crates")
    add_resource_commands(few, NewCrate, noun="crate", path="/crates", help={"delete": "Delete one."})
    assert ["delete"] == list(few.commands)

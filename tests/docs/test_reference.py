"""The pages in docs/reference match the code."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import click
import msgspec
import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from docs.generate.__main__ import reference
from docs.generate.api_tables import FieldContext, table
from docs.generate.configuration import tables
from docs.generate.field_examples import composed
from docs.generate.http_api import EXAMPLES
from docs.generate.repeats import FieldRow, ShownAt, ShownTable
from gateway.cli import main
from gateway.configuration.reader import load_config
from gateway.configuration.settings_in_effect import ConfigurationKey
from gateway.http.openapi import openapi_document
from gateway.money.budgets.declared import BudgetItem
from gateway.service.addresses.table import ADDRESSES
from spool.registry.field_notes import words
from tests.documents import blocks
from tests.gateway.cli.test_command_list import walked

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REFERENCE = reference(DOCS)
KEYS = [(table.header, key) for table in tables() for key in table.keys]
API = openapi_document(ADDRESSES, version="")
COMMANDS = dict(walked(main))
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, operations in API["paths"].items()
    for method, operation in operations.items()
}
SCHEMA = Draft7Validator(json.loads((DOCS / "reference/tollhouse.schema.json").read_text()))


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_is_not_stale(name: str) -> None:
    """After a change of settings, commands or addresses, `make docs-reference` writes these files again."""
    assert REFERENCE[name] == (DOCS / name).read_text(), "run make docs-reference"


@pytest.mark.parametrize(("header", "key"), KEYS)
def test_every_key_has_words(header: str, key: ConfigurationKey) -> None:
    """The help of a setting has no full stop at the end, because it is inserted into sentences."""
    assert key.setting.words and not key.setting.words.endswith("."), (header, key.name)


def test_defaults_in_the_page_are_read_as_the_defaults(tmp_path: Path) -> None:
    """A configuration file with every default from the reference page changes nothing."""
    lines = []
    for part in (DOCS / "reference/configuration.md").read_text().split("\n## `")[1:]:
        header = part.partition("`")[0]
        if header.startswith(("[[", "[attribution")) or "NAME" in header:
            continue  # skip tables that have no default
        lines.append(header)
        for name, kind, default in re.findall(r"^\| `(\w+)` \| ([\w ]+) \| `([^|]+)` \|", part, re.MULTILINE):
            lines.append(f"{name} = {json.dumps(default) if kind in ('size', 'duration') else default}")
    file, empty = tmp_path / "tollhouse.toml", tmp_path / "empty.toml"
    file.write_text("\n".join(lines))
    empty.touch()
    assert load_config(empty, env={}) == load_config(file, env={})
    assert 40 < len(lines)


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("", 0),
        ('[spool]\nhold = "5s"\nmax_bytes = "20GiB"\nretention = 86400', 0),
        ('[[upstream.keys]]\nname = "a"\nsecret_env = "A"\nuse_cases = ["Send AI Telemetry"]', 0),
        (
            '[sources.claude_code]\ncount = false\n[[prices.override]]\nmodel = "a"\ninput = "2.0"\noutput = '
            "8",
            0,
        ),
        ('[spol]\nhold = "5s"', 1),
        ('[spool]\nhold = "5 fortnights"\nmax_bytes = 1', 2),
        ('[[destinations]]\nname = "a"\ntype = "fax"\n[devices]\npolicy = "open"', 2),
        ('[[upstream.keys]]\nuse_cases = ["Send everything"]', 1),
    ],
)
def test_the_schema_finds_what_the_reader_finds(text: str, faults: int) -> None:
    """
    With the schema of the configuration, an editor marks unknown keys, invalid values and values below the minimum.
    """
    found: Any = list(SCHEMA.iter_errors(tomllib.loads(text)))
    assert faults == len(found), found


def test_the_schema_accepts_the_examples() -> None:
    found = [
        block.text
        for name in ("README.md", "docs/operations/index.md")
        for block in blocks((ROOT / name).read_text())
        if block.language == "toml"
    ]
    assert found
    for text in found:
        assert [] == list(SCHEMA.iter_errors(tomllib.loads(text)))


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_names_each_of_its_options(path: str) -> None:
    """
    On the command reference, options that many commands share, or that another command explains, are named with a
    link, alone or as a set.
    """
    section = _section_of_commands(f"tollhouse {path}")
    for title in re.findall(r"\[(Options of \w+)\]\(#", section):
        section += _section_of_commands(title)
    options = [each for each in COMMANDS[path].params if isinstance(each, click.Option)]
    named = {name for each in options if not each.hidden for name in each.opts if name.startswith("--")}
    assert named <= {*re.findall(r"--[\w-]+", section)}


def _section_of_commands(title: str) -> str:
    page = REFERENCE["reference/commands.md"]
    section: str
    (section,) = re.findall(rf"^#+ {title}\n(.*?)(?=^#+ |\Z)", page, re.MULTILINE | re.DOTALL)
    return section


FIELDS = [FieldRow(name, "text", "", f"The {name}.") for name in ("id", "name", "since", "until")]
FIRST, SECOND = ShownAt("views", "GET /views", "get-views"), ShownAt("roles", "GET /roles", "get-roles")


def test_an_object_is_explained_once() -> None:
    """
    In the API reference, the second object with the same fields has a link to the first one, in lists as well.
    """
    shown = ShownTable()

    def rows(name: str) -> list[FieldRow]:
        head = FieldRow(name.removesuffix("[]"), "object", "", "The view.")
        return [
            head,
            *(row._replace(name=f"{name}.{row.name}") for row in FIELDS),
            FieldRow("left", "", "", ""),
        ]

    assert rows("views[]") == list(shown.fold_objects(rows("views[]"), FIRST))
    link = "The view. Its fields: `views` of [GET /views](views.md#get-views)."
    assert [FieldRow("view", "object", "", link), FieldRow("left", "", "", "")] == list(
        shown.fold_objects(rows("view"), SECOND)
    )


def test_a_change_names_the_fields_of_the_creation() -> None:
    """In the API reference, fields that a change requires stay in the table of the change."""
    shown = ShownTable()
    required = [row._replace(notes="required") for row in FIELDS]
    assert (required, "") == shown.fold_table(required, FIRST)
    assert ([], "As in [GET /views](#get-views), all optional here: `id`, `name`, `since`, `until`.") == (
        shown.fold_table(FIELDS, FIRST)
    )
    assert (required, "") == shown.fold_table(required, SECOND)


def test_an_example_is_shown_once() -> None:
    """In the API reference, a list of one object and the object have the same form, whatever the values are."""
    shown = ShownTable()
    assert shown.example_like({"views": [{"id": "a", "rows": [1]}]}, FIRST) is None
    assert FIRST == shown.example_like({"view": {"id": "b", "rows": [2]}}, SECOND)
    assert shown.example_like({"view": {"id": "b", "rows": []}}, SECOND) is None


def test_every_operation_has_an_example() -> None:
    """The fields of a new operation have examples, or docs/generate/examples.json has its request and response."""
    assert OPERATIONS.keys() == EXAMPLES.keys()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_matches_the_schemas(name: str) -> None:
    """The example's address, request body and response body match the OpenAPI document."""
    example, operation = EXAMPLES[name], OPERATIONS[name]
    path = re.sub(r"\\{\w+\\}", "[^/?]+", re.escape(name.partition(" ")[2]))
    assert re.fullmatch(path + r"(\?.*)?", example["path"])
    if "answer" in example:
        assert [] == _faults(operation["responses"][str(example["status"])], example["answer"])
    if "body" in example and "requestBody" in operation:
        assert [] == _faults(operation["requestBody"], example["body"])


def _faults(content: Any, value: Any) -> list[str]:
    """Return the errors of a body by its JSON schema. A text is a body of another media type."""
    media = content["content"].get("application/json")
    if media is None or isinstance(value, str):
        return []
    schema = {**media["schema"], "components": API["components"]}
    return [error.message for error in Draft202012Validator(schema).iter_errors(value)]


def with_a_field(kind: Any, **field: Any) -> Any:
    """Return a copy of a type of a resource, with one more field."""
    return msgspec.defstruct(kind.__name__, list(field.items()), bases=(kind,), kw_only=True)


def test_a_field_without_words_is_named() -> None:
    """
    If a field has no description, the generator fails with the name of the field, and takes no words from another
    field of the same name.
    """
    longer = with_a_field(BudgetItem, time_span=str)
    listed = next(row for row in ADDRESSES if row.item is BudgetItem)
    schemas = openapi_document([replace(listed, item=longer)], version="")["components"]["schemas"]
    context = FieldContext(schemas, ShownTable(), ShownAt("budgets"))
    with pytest.raises(ValueError, match=r"BudgetItem\.time_span has no words"):
        table("answer (200)", {"$ref": "#/components/schemas/BudgetItem"}, context, is_body=False)


def test_a_field_without_an_example_is_named() -> None:
    longer = with_a_field(BudgetItem, time_span=Annotated[str, words("The span.")])
    listed = next(row for row in ADDRESSES if row.item is BudgetItem)
    with pytest.raises(ValueError, match=r"BudgetItem\.time_span has no example"):
        dict(composed([replace(listed, item=longer)], stored={}))


def test_examples_have_no_secrets_and_nothing_of_a_machine() -> None:
    """In the reference, long keys are shortened, and only default ports appear."""
    text = json.dumps(EXAMPLES)
    assert [] == re.findall(r"thd?_[\w-]{8,}|whsec_\w+|/tmp/\S*|(?<!/console/api)/work/\S*|/root\S*", text)
    assert {"4318", "4319"} >= set(re.findall(r"(?:127\.0\.0\.1|localhost):(\d+)", text))

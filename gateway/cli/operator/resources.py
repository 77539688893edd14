"""
Options for commands that create or change a resource, made from the declaration of its fields.

A field of a simple type becomes an option with its name and description. Fields that need another notation on
the command line, such as filters and plans, have options that the command defines by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
import msgspec

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import list_command
from gateway.cli.output import JsonObject, as_json, show_fields, show_json
from gateway.cli.parameters import Choice
from gateway.operations.managed import (
    CHANGE,
    CREATE,
    DELETE,
    LIST,
    SHOW,
    ManagedResource,
    operation_summaries,
)
from spool.registry.field_notes import Option

Command = Callable[..., None]
_PLAIN = (str, int, float)
_LINK = re.compile(r"\[([^]]+)\]\([^)]*\)")  # links in descriptions, which only the reference page can show


def add_options(options: Sequence[Callable[[Command], Command]]) -> Callable[[Command], Command]:
    def add_options_to_command(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add_options_to_command


def add_resource_options(
    new: type[msgspec.Struct], *, required: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[Command], Command]:
    """Add options for the fields of a resource. Omitted options are None, or () if they may repeat."""

    def add_options_to_command(command: Command) -> Command:
        for field in reversed(msgspec.structs.fields(new)):
            option = (
                None
                if field.name in without
                else _option_for_field(field.name, field.type, field.name in required)
            )
            command = command if option is None else option(command)
        return command

    return add_options_to_command


def request_body(new: type[msgspec.Struct], given: JsonObject) -> JsonObject:
    stated = {field: given[field] for field in new.__struct_fields__ if field in given}
    return {
        field: list(value) if isinstance(value, tuple) else value
        for field, value in stated.items()
        if value is not None and value != ()
    }


def add_resource_commands(
    group: click.Group,
    new: type[msgspec.Struct],
    *,
    noun: str,
    path: str,
    help: Mapping[str, str],
    shown: Callable[[JsonObject], JsonObject] = lambda row: row,
    options: Sequence[Callable[[Command], Command]] = (),
    body: Callable[..., JsonObject] | None = None,
) -> None:
    """
    Add commands for a resource: those of `create`, `show`, `edit` and `delete` that `help` names.

    Fields without a default are required. `options` are for fields that get no option of their own, and
    `body` makes the request body from all options. `shown` changes an object for people.
    """

    def resource_fields(given: JsonObject) -> JsonObject:
        return request_body(new, given) if body is None else body(**given)

    @add_resource_options(
        new, required=[attribute.name for attribute in msgspec.structs.fields(new) if attribute.required]
    )
    @add_options(options)
    @as_json
    @with_client
    def create(client: OperatorClient, as_json: bool, **given: Any) -> None:
        show_resource_fields(client.request("POST", path, body=resource_fields(given)), as_json)

    @click.argument(noun)
    @as_json
    @with_client
    def show(client: OperatorClient, as_json: bool, **named: str) -> None:
        show_resource_fields(client.request("GET", f"{path}/{quote_segment(named[noun])}"), as_json)

    @click.argument(noun)
    @add_resource_options(new)
    @add_options(options)
    @as_json
    @with_client
    def edit(client: OperatorClient, as_json: bool, **given: Any) -> None:
        name = given.pop(noun)
        changed = resource_fields(given)
        if not changed:
            exit_with_message(f"nothing to change; `tollhouse {group.name} edit --help` lists the options", 2)
        show_resource_fields(client.request("PATCH", f"{path}/{quote_segment(name)}", body=changed), as_json)

    @click.argument(noun)
    @as_json
    @with_client
    def delete(client: OperatorClient, as_json: bool, **named: str) -> None:
        payload = client.request("DELETE", f"{path}/{quote_segment(named[noun])}")
        show_json(payload) if as_json else click.echo(f"{noun.replace('_', ' ')} {named[noun]} deleted")

    def show_resource_fields(payload: JsonObject, as_json: bool) -> None:
        show_json(payload) if as_json else show_fields(shown(payload[noun]))

    for command in (create, show, edit, delete):
        text = help.get(command.__name__)
        if text is not None:
            group.command(command.__name__, help=text)(command)


def resource_of_module(module: ModuleType) -> ManagedResource[Any, Any]:
    """Return the resource that a module declares. It must declare exactly one."""
    [resource] = [value for value in vars(module).values() if isinstance(value, ManagedResource)]
    return resource


def build_resource_group(name: str, resource: ManagedResource[Any, Any]) -> click.Group:
    commands, by_people = resource.commands, resource.people
    assert commands is not None and by_people is not None
    help = {operation: f"{summary}." for operation, summary in operation_summaries(resource.noun).items()}
    help[CHANGE] += " Given options replace the present values."
    help |= commands.words
    group = click.Group(name, help=commands.help)
    list_command(
        group,
        "list",
        root=resource.lists.root,
        path=by_people.path,
        columns=commands.columns,
        filters={each: commands.filters.get(each, "") for each in resource.lists.filters},
        help=help[LIST],
    )
    add_resource_commands(
        group,
        resource.new,
        noun=resource.noun,
        path=by_people.path,
        help={"create": help[CREATE], "show": help[SHOW], "edit": help[CHANGE], "delete": help[DELETE]},
    )
    return group


def _option_for_field(field: str, kind: Any, is_required: bool) -> Callable[[Command], Command] | None:
    kind, notes = _type_and_annotated_metadata(kind)
    declared = next((note for note in notes if isinstance(note, Option)), Option())
    if declared.is_by_hand:
        return None
    text = declared.help or next((note.description for note in notes if isinstance(note, msgspec.Meta)), None)
    text = _LINK.sub(r"\1", text or "")
    name = declared.name or f"--{field.replace('_', '-')}"
    settings: dict[str, Any] = {"help": text, "metavar": declared.metavar or None, "required": is_required}
    if get_origin(kind) in (list, tuple) and get_args(kind)[0] is str:
        settings |= {"multiple": True, "help": f"{text.removesuffix('.')}; may repeat.", "type": str}
        kind = str
    if kind is bool:
        return click.option(f"{name}/--no-{name.removeprefix('--')}", field, default=None, help=text)
    choices = declared.choices or (get_args(kind) if get_origin(kind) is Literal else ())
    if not choices and kind not in _PLAIN:
        return None
    return click.option(name, field, **{**settings, "type": Choice(choices) if choices else kind})


def _type_and_annotated_metadata(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    notes: tuple[Any, ...] = ()
    if get_origin(kind) is Annotated:
        kind, *further_notes = get_args(kind)
        notes = tuple(further_notes)
    if get_origin(kind) in (Union, UnionType):
        kinds = [argument for argument in get_args(kind) if argument is not NoneType]
        kind = str if str in kinds else kinds[0]
    return kind, notes

"""`tollhouse roles`: what people may do, and which calls they may see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click

from gateway.cli import exit_with_message
from gateway.cli.operator.client import OperatorClient, quote_segment, with_client
from gateway.cli.operator.commands import list_command
from gateway.cli.operator.people import KNOWN, ROLE_NAMES, AccountRole, warn_about_account_role
from gateway.cli.operator.resources import add_resource_commands, add_resource_options, request_body
from gateway.cli.output import JsonObject, as_json, show_fields, show_json, show_table
from gateway.cli.parameters import parse_conditions
from spool.printable import replace_unprintable
from spool.registry.roles import EXCEPT, FULL, IS, LIMITED, NO_DATA, NewRole

COLUMNS = ("id", "name", "data_access", "permission_sets", "members", "groups")

_where = click.option(
    "--where",
    multiple=True,
    metavar="NAME=VALUE",
    help=(
        "Calls that the role shows, such as team=search, or team!=search for all other calls. NAME= "
        "means calls without a value. May repeat."
    ),
)


@click.group()
def roles() -> None:
    """Manage roles: what people may do and see."""


list_command(
    roles,
    "list",
    root="roles",
    columns=COLUMNS,
    filters={
        "name": "Filter by the exact name.",
        "data_access": "Filter by the calls that the role shows: full, limited or none.",
        "permission_set": "",
        "member": "Filter by the e-mail address of a member; may repeat.",
        "group": "",
        "is_builtin": "true: only built-in roles. false: only your own roles.",
    },
    help="List all roles, including the built-in ones.",
)

list_command(
    roles,
    "permission-sets",
    root="permission_sets",
    columns=("id", "name", "includes", "description"),
    filters={"id": ""},
    help="List the permission sets that a role can include.",
)


@roles.command("show")
@click.argument("role")
@as_json
@with_client
def show_role(client: OperatorClient, role: str, as_json: bool) -> None:
    """Show a role by its id or name."""
    _show_role(client.request("GET", f"/roles/{quote_segment(role)}"), as_json)


@roles.command("create")
@add_resource_options(NewRole, required=("name",))
@_where
@as_json
@with_client
def create_role(client: OperatorClient, as_json: bool, **given: Any) -> None:
    """
    Create a role with --where, --data-access or --permission-set.

    The role shows the calls that match --where, or all or no calls with --data-access full or none. With only
    --permission-set it shows no calls.
    """
    created = client.request("POST", "/roles", body=_new_role_request_body(**given))
    show_json(created) if as_json else click.echo(
        replace_unprintable(f"created {_describe_role(created['role'])}")
    )
    _warn_about_wider_accounts(client, created["role"])


@roles.command("edit")
@click.argument("role")
@click.option("--nobody", is_flag=True, help="Remove the role from all members and groups.")
@add_resource_options(NewRole)
@_where
@as_json
@with_client
def edit_role(client: OperatorClient, role: str, as_json: bool, nobody: bool, **given: Any) -> None:
    """Change a role. New filters, permission sets or members replace all the old ones."""
    body = _role_request_body(**given)
    if nobody:
        if "members" in body or "groups" in body:
            exit_with_message("use either --nobody, or --member and --group, not both", 2)
        body |= {"members": [], "groups": []}
    if not body:
        exit_with_message("nothing to change; `tollhouse roles edit --help` lists the options", 2)
    changed = client.request("PATCH", f"/roles/{quote_segment(role)}", body=body)
    show_json(changed) if as_json else click.echo(
        replace_unprintable(f"changed {_describe_role(changed['role'])}")
    )
    _warn_about_wider_accounts(client, changed["role"])


add_resource_commands(
    roles, NewRole, noun="role", path="/roles", help={"delete": "Delete a role that no one has."}
)


@roles.command("preview")
@click.argument("person", metavar="[EMAIL]", required=False)
@click.option(
    "--in-group",
    "in_groups",
    multiple=True,
    metavar="GROUP",
    help="Group to assume for the person, instead of the groups at the last sign-in; may repeat.",
)
@click.option(
    "--account-role",
    type=AccountRole(),
    metavar="ROLE",
    help=f"Account role to assume: {KNOWN}; default: the role of the account.",
)
@click.option("--replaces", metavar="ROLE", help="Existing role that the draft replaces, by id or name.")
@add_resource_options(NewRole, without=("name",))
@_where
@as_json
@with_client
def preview_access(
    client: OperatorClient,
    person: str | None,
    in_groups: Sequence[str],
    account_role: str | None,
    replaces: str | None,
    as_json: bool,
    **given: Any,
) -> None:
    """
    Preview what a person may do and see, now or with a draft of a role.

    --data-access, --where and --permission-set describe the draft. Nothing is saved. Costs are those of the
    last 30 days.
    """
    if given["members"] or given["groups"]:
        exit_with_message(
            "use the argument EMAIL for the person and --in-group for groups, not --member or --group", 2
        )
    body: dict[str, Any] = {"person": person, "groups": list(in_groups) or None, "account_role": account_role}
    if any(given.values()):
        body["role"] = _new_role_request_body(name="", **given)
    body["replaces"] = replaces
    payload = client.request("POST", "/roles/preview", body=body)
    if as_json:
        show_json(payload)
        return
    _show_access_preview(payload["preview"])


def _new_role_request_body(**given: Any) -> JsonObject:
    body = _role_request_body(**given)
    if "data_access" not in body:
        if not body.get("permission_sets"):
            exit_with_message(
                "state which calls the role shows: use --where, or --data-access full or none", 2
            )
        body["data_access"] = NO_DATA
    return body


def _role_request_body(*, where: Sequence[str], **given: Any) -> JsonObject:
    body = request_body(NewRole, given)
    data_access = body.get("data_access")
    if where:
        if data_access not in (None, LIMITED):
            exit_with_message("--where needs --data-access limited", 2)
        body |= {"filters": _parse_filters(where), "data_access": LIMITED}
    elif data_access in (FULL, NO_DATA):
        body["filters"] = []
    return body


def _parse_filters(terms: Iterable[str]) -> list[JsonObject]:
    values_by_filter: dict[tuple[str, str], list[str | None]] = {}
    for name, is_excluded, value in parse_conditions(terms):
        values_by_filter.setdefault((name, EXCEPT if is_excluded else IS), []).append(value)
    return [
        {"dimension": name, "mode": mode, "values": values}
        for (name, mode), values in values_by_filter.items()
    ]


def _filter_texts(filters: Iterable[JsonObject]) -> list[str]:
    return [
        f"{condition['dimension']}{'!' * (condition['mode'] == EXCEPT)}={value or ''}"
        for condition in filters
        for value in condition["values"]
    ]


def _warn_about_wider_accounts(client: OperatorClient, role: JsonObject) -> None:
    if role["data_access"] == LIMITED or role["cost_types"]:
        wider = client.request(
            "GET", f"/roles/{quote_segment(role['id'])}/wider-operators", query=[("limit", "1000")]
        )
        for account in wider["operators"]:
            warn_about_account_role(account)


def _describe_role(role: JsonObject) -> str:
    calls = {FULL: "all calls", NO_DATA: "no calls"}.get(role["data_access"])
    parts = [f"shows {calls or 'calls with ' + ', '.join(_filter_texts(role['filters']))}"]
    for name, title in (
        ("cost_types", "only the costs"),
        ("permission_sets", "permission sets"),
        ("members", "members"),
        ("groups", "groups"),
    ):
        if role[name]:
            parts.append(f"{title} {', '.join(role[name])}")
    if not role["members"] and not role["groups"]:
        parts.append("nobody has it yet")
    return f"role {role['name']} (id {role['id']}): {'; '.join(parts)}"


def _show_role(payload: JsonObject, as_json: bool) -> None:
    show_json(payload) if as_json else show_fields(
        {**payload["role"], "filters": _filter_texts(payload["role"]["filters"])}
    )


def _show_access_preview(seen: JsonObject) -> None:
    total = seen["total"]
    show_fields(
        {
            "person": seen["person"],
            "account role": ROLE_NAMES.get(seen["account_role"], seen["account_role"]),
            "roles": seen["roles"],
            "permission sets": [permission_set["name"] for permission_set in seen["permission_sets"]],
            "data access": seen["data_access"],
            "cost types": seen["cost_types"],
            "shows": [" and ".join(_filter_texts(part)) for part in seen["filters"]],
            "open calls": len(seen["calls"]),
            "last 30 days": f"{total['cost']} {total['currency']}, {total['calls']} calls",
        }
    )
    rows = [
        {
            "dimension": dimension["dimension"],
            "value": line["value"] or "(unknown)",
            "cost": line["cost"],
            "calls": line["calls"],
        }
        for dimension in seen["dimensions"]
        for line in dimension["values"]
    ]
    if rows:
        click.echo()
        show_table(rows, ("dimension", "value", "cost", "calls"))
    for dimension in seen["dimensions"]:
        if dimension["left_out"]:
            click.echo(f"{dimension['left_out']} more values of {dimension['dimension']} are not shown")

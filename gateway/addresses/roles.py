"""Addresses of roles and permission sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.api import roles
from gateway.api.role_lists import PERMISSION_SET_LIST, ROLES
from gateway.http.address import READ, WRITE, Address, Content
from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import AddressHandler, check_json
from gateway.schemas import TEXT, closed

_ALL = "/v2/access-control/roles"
_ONE = _ALL + "/{role_id}"


def _role(
    method: str,
    path: str,
    handler: AddressHandler,
    summary: str,
    *,
    takes: type | None = None,
    gives: Content | None = None,
    lists: List[Any] | None = None,
    item: type = roles.RoleItem,
) -> Address:
    """A handler is named as its scope is."""
    answers: Mapping[int, Content] = {200: gives} if gives else {}
    return Address(
        methods=("GET", "HEAD") if method == "GET" else (method,),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint="roles",
        scope=f"access-control:{handler.__name__}",
        check=check_json if takes else None,
        body=takes,
        takes={JSON: takes} if takes else {},
        gives=answers,
        lists=lists,
        item=item,
        refusals=(*(WRITE if takes else READ), 404, 409),
    )


ROLE_ROWS = (
    _role("GET", _ALL, roles.read_roles, "List roles", lists=ROLES),
    _role("POST", _ALL, roles.create_role, "Create a role", takes=roles.NewRole, gives={JSON: roles.OneRole}),
    _role("GET", _ONE, roles.read_role, "A role", gives={JSON: roles.OneRole}),
    _role("PATCH", _ONE, roles.update_role, "Change a role", takes=roles.RoleChanges, gives={JSON: roles.OneRole}),
    _role("DELETE", _ONE, roles.delete_role, "Delete a role", gives={JSON: closed({"role": closed({"id": TEXT})})}),
    _role("GET", "/v2/access-control/permission_sets", roles.read_permission_sets, "List permission sets",
          lists=PERMISSION_SET_LIST, item=roles.PermissionSetItem),
)  # fmt: skip

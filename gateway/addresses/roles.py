"""Addresses of roles and permission sets."""

from __future__ import annotations

from functools import partial

from gateway.addresses.managing import managing
from gateway.api import roles
from gateway.api.role_lists import PERMISSION_SET_LIST, ROLES
from gateway.http.answers import JSON
from gateway.schemas import TEXT, closed

_ALL = "/v2/access-control/roles"
_ONE = _ALL + "/{role_id}"


_role = partial(managing, group="access-control", endpoint="roles")

ROLE_ROWS = (
    _role("GET", _ALL, roles.read_roles, "List roles", lists=ROLES, item=roles.RoleItem),
    _role("POST", _ALL, roles.create_role, "Create a role", takes=roles.NewRole, gives={JSON: roles.OneRole}),
    _role("GET", _ONE, roles.read_role, "A role", gives={JSON: roles.OneRole}),
    _role("PATCH", _ONE, roles.update_role, "Change a role", takes=roles.RoleChanges, gives={JSON: roles.OneRole}),
    _role("DELETE", _ONE, roles.delete_role, "Delete a role", gives={JSON: closed({"role": closed({"id": TEXT})})}),
    _role("GET", "/v2/access-control/permission_sets", roles.read_permission_sets, "List permission sets",
          lists=PERMISSION_SET_LIST, item=roles.PermissionSetItem),
)  # fmt: skip

"""Addresses of roles and permission sets."""

from __future__ import annotations

from gateway.api import roles
from gateway.api.managed import managing
from gateway.resources.roles import PermissionSetItem

_ROLES = "/v2/access-control/roles"
_SETS = "/v2/access-control/permission_sets"

ROWS = (
    managing(
        "GET",
        _SETS,
        roles.read_permission_sets,
        "List permission sets",
        group="access-control",
        endpoint="roles",
        lists=roles.PERMISSION_SET_LIST,
        item=PermissionSetItem,
    ),
)

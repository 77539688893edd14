"""Operators, roles and the audit list."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.api.managed import DELETE, SHOW
from gateway.api.roles import PERMISSION_SET_LIST, ROLE
from gateway.operator.address import NOTHING
from gateway.operator.managed import managed_by_people
from gateway.operator.people import accounts, names, role_preview, roles
from spool.registry.permission_sets import ORGANIZATION_ADMINISTRATION, VIEW_NAMES

ROWS = (
    call("GET", "/operators", ORGANIZATION_ADMINISTRATION, accounts.list_operators, "List operators",
         lists=accounts.OPERATORS),
    call("POST", "/operators", ORGANIZATION_ADMINISTRATION, accounts.add_operator, "Add an operator",
         takes=accounts.NewOperator, status=201),
    call("PATCH", "/operators/{email}", ORGANIZATION_ADMINISTRATION, accounts.edit_operator,
         "Change an operator's role or password",
         takes=accounts.OperatorChanges),
    call("DELETE", "/operators/{email}", ORGANIZATION_ADMINISTRATION, accounts.remove_operator, "Remove an operator"),
    *managed_by_people(ROLE, "/roles", reads=ORGANIZATION_ADMINISTRATION, changes=ORGANIZATION_ADMINISTRATION,
                       words={SHOW: "Show a role, by its id or its name",
                             DELETE: "Delete a role that nobody has any more"}),
    call("GET", "/roles/{role}/wider-operators", ORGANIZATION_ADMINISTRATION, accounts.list_wider_operators,
         "List those who have a limited role and whose account shows more", lists=accounts.OPERATORS),
    call("POST", "/roles/preview", ORGANIZATION_ADMINISTRATION, role_preview.preview_role,
         "What a person or a draft of a role may do and see", takes=role_preview.RoleToPreview, in_turn=True),
    call("GET", "/people-names", VIEW_NAMES, names.list_people_names, "List names behind hashed people",
         lists=names.NAMES),
    call("POST", "/people-names", ORGANIZATION_ADMINISTRATION, names.keep_people_names,
         "Name people behind hashes", takes=names.NamesOfPeople),
    call("POST", "/people-names/forget", ORGANIZATION_ADMINISTRATION, names.forget_people_names,
         "Forget names of people", takes=names.ForgottenNames),
    call("GET", "/permission-sets", ORGANIZATION_ADMINISTRATION, roles.list_permission_sets,
         "List the permission sets of roles", lists=PERMISSION_SET_LIST, shows=NOTHING),
    call("GET", "/audit", ORGANIZATION_ADMINISTRATION, accounts.list_audit, "List every change", lists=accounts.AUDIT),
)  # fmt: skip

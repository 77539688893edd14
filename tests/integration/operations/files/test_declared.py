"""What is in files follows from the declarations of resources, and the page about files lists it."""

from __future__ import annotations

from pathlib import Path

from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import ResourceFileHandler, file_kinds
from tests.integration.operations.every.declared import MANAGED
from tests.integration.operations.server import operator_server

RESOURCES = {resource.noun: resource for resource in MANAGED.values()}
WITH_TABLE = [each for each in RESOURCES.values() if hasattr(each, "table")]
# Tables of the registry, with their file, or with the row of the page that says why they are in none. The declaration
# of a resource says it for its own table.
IN_FILES = {
    "assistant_tools": "assistant-tools",
    "cluster_settings": "clusters",
    "connections": "connections",
    "connections_in_costs": "connections",
    "enrolment_tokens": "enrolment-tokens",
    "kept_channels": "channels",
    "keys": "keys",
    "org_context": "organization",
    "recommendations": "recommendation-types",
    "roles": "roles",
    "views": "views",
}
PEOPLE, WORK, DATA = "accounts, sessions", "annotations, links", "statements, closed months"
NOT_IN_FILES = {
    **dict.fromkeys(("operators", "persons"), PEOPLE),
    "insights": WORK,
    **dict.fromkeys(
        (
            "billed_invoices", "closed_months", "cluster_configs", "enforcers", "expired_tries", "export_tests",
            "frozen_rates", "group_costs", "inventory", "late_reports", "notices", "sender_fields", "sender_hours",
            "statements", "tool_calls", "verdicts", "viewings",
        ),
        DATA,
    ),
}  # fmt: skip
PAGE = Path(__file__).parents[4] / "docs/operations/settings-as-files.md"


def test_every_declared_resource_states_whether_it_is_in_files() -> None:
    """
    Every declared resource states whether it is in files: either it is one of the kinds, or it gives the reason why
    not.
    """
    nouns = {kind.resource.noun for kind in file_kinds().values() if isinstance(kind, ResourceFileHandler)}
    assert nouns == {noun for noun, one in RESOURCES.items() if isinstance(one.files, ResourceFiles)}
    assert all(isinstance(one.files, ResourceFiles) or one.files.reason for one in RESOURCES.values())


async def test_kinds_find_their_audit_entries(tmp_path: Path) -> None:
    """
    Each kind of object finds its audit entries: it is the part of the audit action's name before the dot. Owners
    are stored under the kind.
    """
    async with operator_server(tmp_path) as server:
        for kind in file_kinds().values():
            if isinstance(kind, ResourceFileHandler):
                assert kind.action == kind.resource.table_in(server.registry).action


def test_a_kind_follows_the_kinds_that_it_names() -> None:
    order = list(file_kinds())
    for name, kind in file_kinds().items():
        assert all(order.index(target) < order.index(name) for target in kind.files.refers.values())


async def test_every_table_is_in_files_or_the_page_says_why(tmp_path: Path) -> None:
    """
    Every table is in files, or the page about files says why not. The owners of objects are no objects, so they are
    in neither list.
    """
    async with operator_server(tmp_path) as server:
        registry = server.registry
        tables = {
            name
            for name, value in vars(registry).items()
            if not name.startswith("_") and hasattr(value, "_changes")
        }
        declared = {type(table).__name__ for table in registry._declared.values()}
    assert {*IN_FILES, *NOT_IN_FILES, "file_owners"} == (tables | declared) - {
        each.table.__name__ for each in WITH_TABLE
    }
    files = {each.files.name for each in WITH_TABLE if isinstance(each.files, ResourceFiles)}
    # definitions are in the table of namespaces
    assert set(file_kinds()) == {*IN_FILES.values(), *files, "allocation"}
    for row in set(NOT_IN_FILES.values()):
        assert f"| {row}" in PAGE.read_text()

"""Built-in roles grant the same operator calls as before permission sets existed."""

from __future__ import annotations

import pytest

from gateway.core.paths import OPERATOR_API
from gateway.http.error_table import SAFE_METHODS
from gateway.operations.requests.address import NOTHING, SIGNED_IN
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool.registry.operators import ADMIN, OPERATOR, VIEWER
from spool.registry.permission_sets import PERMISSION_SETS
from spool.registry.roles import Roles

# Every call that existed when there were only three roles, and some later calls. A new call needs no line here.
CALLS = {
    VIEWER: """
    GET /session
    DELETE /session
    GET /changes
    GET /keys
    GET /keys/{name}
    GET /scopes
    GET /devices
    GET /unenrolled
    GET /devices/{id}
    GET /clusters
    GET /clusters/{id}
    GET /container-metrics
    GET /container-files
    GET /status
    GET /routes
    GET /deliveries
    GET /clock
    GET /records
    GET /rates
    GET /tail
    GET /receipts/{id}
    GET /records/{id}
    GET /books
    GET /verify
    GET /streams
    GET /events
    GET /event-types
    GET /unknown
    GET /billing
    GET /connections
    GET /connections/{id}
    GET /connections/{id}/drops
    GET /connections/{id}/drops/{month}
    POST /mcp
    GET /views
    GET /views/{id}
    GET /budgets
    GET /budgets/{id}
    GET /budgets/{id}/owners
    GET /budgets/{id}/alerts
    GET /dead
    GET /dead/{id}
    GET /partial-refusals
    GET /ignored
    GET /conflicts
    GET /ledger
    GET /report
    GET /comparison
    GET /forecast
    GET /overview
    GET /what-if
    POST /allocation/diff
    POST /allocation/validate
    GET /allocation/versions
    GET /allocation/versions/{version}
    GET /allocation/namespaces
    GET /allocation/namespaces/{id}
    GET /allocation/jobs
    GET /allocation/jobs/{id}
    GET /statements
    GET /statement-pulls
    GET /reconciliation
    GET /attention
    GET /insights
    GET /insights/{id}
    GET /insights/{id}/comments
    GET /annotations
    GET /annotations/{id}
    GET /marks
    GET /plans
    GET /plans/{id}
    GET /plan-costs
    GET /contracts
    GET /contracts/{id}
    GET /contract-costs
    GET /scheduled-reports
    GET /scheduled-reports/{id}
    GET /scheduled-reports/{id}/preview
    GET /recommendations
    GET /recommendations/{id}
    GET /recommendations/{id}/comments
    GET /recommendation-types
    GET /recommendation-types/{type}
    GET /recommendation-dimensions
    GET /recommendation-check
    GET /notifications
    GET /notifications/{id}
    GET /notification-channels
    GET /notification-channels/{name}
    GET /channel-names
    """,
    OPERATOR: """
    POST /devices
    DELETE /devices/{id}
    POST /devices/{id}/approve
    POST /devices/{id}/revoke
    POST /devices/{id}/reset
    PATCH /devices/{id}
    PATCH /clusters/{id}
    DELETE /clusters/{id}
    POST /container-files/{id}/discard
    DELETE /routes/{destination}/{topic}
    POST /replay
    GET /configuration
    POST /clock/accept
    POST /unknown/{id}/resolve
    POST /billing/push
    POST /connections
    PATCH /connections/{id}
    DELETE /connections/{id}
    POST /views
    PATCH /views/{id}
    DELETE /views/{id}
    POST /annotations
    PATCH /annotations/{id}
    DELETE /annotations/{id}
    POST /plans
    PATCH /plans/{id}
    DELETE /plans/{id}
    POST /scheduled-reports
    PATCH /scheduled-reports/{id}
    DELETE /scheduled-reports/{id}
    POST /scheduled-reports/{id}/send
    POST /budgets
    POST /budgets/evaluate
    PATCH /budgets/{id}
    DELETE /budgets/{id}
    PATCH /dead/{id}
    POST /dead/retry
    POST /dead/discard
    POST /allocation/publish
    POST /allocation/namespaces
    PATCH /allocation/namespaces/{id}
    DELETE /allocation/namespaces/{id}
    POST /allocation/jobs/{id}/cancel
    POST /statements
    POST /statement-imports/{id}/undo
    POST /statement-pulls
    POST /statement-uploads
    POST /billed-invoices
    DELETE /billed-invoices/{id}
    POST /closed-months
    DELETE /closed-months/{provider}/{month}
    POST /ledger/rebuild
    POST /ledger/groups
    POST /ledger/rates
    DELETE /ledger/rates/{month}
    POST /ledger/reprice
    POST /insights/run
    PATCH /insights/{id}
    POST /insights/{id}/comments
    PATCH /recommendations
    POST /recommendations/run
    POST /recommendations/{id}/comments
    PATCH /recommendations/{id}/comments/{comment}
    DELETE /recommendations/{id}/comments/{comment}
    PATCH /recommendation-types/{type}
    POST /notifications/retry
    POST /notifications/discard
    POST /notification-channels/{name}/test
    """,
    ADMIN: """
    GET /sessions
    DELETE /sessions/{id}
    POST /console-links
    POST /keys
    PATCH /keys/{name}
    POST /keys/{name}/rotate
    POST /keys/{name}/enable
    POST /keys/{name}/disable
    DELETE /keys/{name}
    POST /reload
    GET /people
    POST /people
    POST /people/split
    GET /people/stated
    POST /people/link-stated
    POST /people/forget
    POST /notification-channels
    PATCH /notification-channels/{name}
    DELETE /notification-channels/{name}
    POST /backup
    GET /operators
    POST /operators
    PATCH /operators/{email}
    DELETE /operators/{email}
    GET /audit
    """,
}
OPENED_BY = {VIEWER: (VIEWER,), OPERATOR: (VIEWER, OPERATOR), ADMIN: (VIEWER, OPERATOR, ADMIN)}
NEEDS = {
    f"{method} {row.path.removeprefix(OPERATOR_API)}": row.needs
    for row in OPERATOR_ADDRESSES
    for method in row.methods
}


def calls_of(*roles: str) -> set[str]:
    return {line.strip() for role in roles for line in CALLS[role].strip().splitlines()}


@pytest.mark.proves("A Member changes something")
@pytest.mark.parametrize("role", OPENED_BY)
def test_a_role_of_an_account_opens_what_it_opened_before(role: str) -> None:
    """Accounts that had a role before permission sets keep exactly the same calls."""
    permission_sets = Roles(()).person_rights("ada@example.com", base=role).permission_sets
    opened = {call for call, needs in NEEDS.items() if needs == SIGNED_IN or needs in permission_sets}
    assert calls_of(*OPENED_BY[role]) == opened & calls_of(*CALLS)


def test_every_call_of_before_is_still_there() -> None:
    """
    Every call of before permission sets still exists. The comparison above would silently skip a missing call.
    """
    assert set() == calls_of(*CALLS) - set(NEEDS)


def test_every_permission_set_opens_something() -> None:
    """Every set is required by a call, and no call requires an unknown set."""
    assert set(PERMISSION_SETS) == set(NEEDS.values()) - {None, SIGNED_IN}


def test_what_is_for_all_is_not_changed_by_who_sees_some_calls_alone() -> None:
    """
    A person with restricted access must not change global settings, because their effect would reveal hidden
    calls. An example is the minimum saving of recommendations.
    """
    open_to_all = {
        row.name
        for row in OPERATOR_ADDRESSES
        if row.shows == NOTHING and not set(row.methods) <= set(SAFE_METHODS)
    }
    assert {"sign_in", "sign_out", "end_provider_sessions"} == open_to_all

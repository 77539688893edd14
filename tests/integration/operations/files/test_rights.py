"""A set of files needs the permission sets that its changes by hand need. Without them, nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from aiohttp import ClientSession, DummyCookieJar

from gateway.core.paths import OPERATOR_API
from gateway.operations.files.kinds import file_kinds
from spool.registry.permission_sets import (
    API_KEY_MANAGEMENT,
    INSTALLATION_ADMINISTRATION,
    MODIFY_BILLING,
    MODIFY_DIMENSIONS,
    MODIFY_VIEWS_AND_BUDGETS,
    OPERATE_SPOOL,
    ORGANIZATION_ADMINISTRATION,
    PERMISSION_SETS,
    WORK_ON_INSIGHTS,
)
from tests.integration.operations.files.objects import (
    CLUSTER,
    CONNECTION,
    CONTRACT,
    HOOK,
    KEY,
    NOTES,
    PRICE,
    ROLE,
    SECRETS,
    TOKEN,
    TOOL,
    TYPE,
    files_of,
)
from tests.integration.operations.files.server import NEW_SECRET, Api, api
from tests.integration.operations.people.test_roles import BOB, PASSWORD

VIEW = {"name": "no", "filter": {}, "principal_dimension": "model"}
BUDGET = {"name": "calls", "view": "no", "default_amount": "5"}
PLAN = {"name": "plan", "view": "no", "fee": "25"}
REPORT = {"name": "weekly", "view": "no", "channels": ["hook"], "every": "month", "day": 3}
OWNED = "Dimensions: {Owner: {Rules: [{Type: GroupBy, Source: team}]}}\n"
# for each kind: the permission set of its operations, an object, and the objects that it needs
KINDS: dict[str, tuple[str, dict[str, Any], dict[str, list[dict[str, Any]]]]] = {
    "views": (MODIFY_VIEWS_AND_BUDGETS, VIEW, {}),
    "budgets": (MODIFY_VIEWS_AND_BUDGETS, BUDGET, {"views": [VIEW]}),
    "plans": (MODIFY_VIEWS_AND_BUDGETS, PLAN, {"views": [VIEW]}),
    "scheduled-reports": (MODIFY_VIEWS_AND_BUDGETS, REPORT, {"views": [VIEW], "channels": [HOOK]}),
    "contracts": (MODIFY_BILLING, CONTRACT, {}),
    "prices": (MODIFY_BILLING, PRICE, {}),
    "connections": (MODIFY_BILLING, CONNECTION, {}),
    "channels": (INSTALLATION_ADMINISTRATION, HOOK, {}),
    "namespaces": (MODIFY_DIMENSIONS, {"id": "team"}, {}),
    "allocation": (MODIFY_DIMENSIONS, {"namespace": "default", "definition": OWNED}, {}),
    "roles": (ORGANIZATION_ADMINISTRATION, {**ROLE, "members": [], "groups": []}, {}),
    "assistant-tools": (ORGANIZATION_ADMINISTRATION, TOOL, {}),
    "recommendation-types": (WORK_ON_INSIGHTS, TYPE, {}),
    "organization": (WORK_ON_INSIGHTS, NOTES, {}),
    "keys": (API_KEY_MANAGEMENT, KEY, {}),
    "enrolment-tokens": (API_KEY_MANAGEMENT, TOKEN, {}),
    "clusters": (OPERATE_SPOOL, CLUSTER, {}),
}


def test_every_kind_is_listed() -> None:
    assert KINDS.keys() == file_kinds().keys()


async def test_each_kind_needs_the_right_of_its_operations(tmp_path: Path) -> None:
    """A plan names the right, and without it an apply is refused and changes nothing."""
    async with api(tmp_path) as admin, ClientSession(cookie_jar=DummyCookieJar()) as browser:
        bob = await Bob(admin, browser).sign_in()
        for name, (needed, stated, others) in KINDS.items():
            await admin.apply(files_of(others))
            files = files_of({**others, name: [stated]})
            await bob.receive_rights({ORGANIZATION_ADMINISTRATION})
            missing = [needed] if needed != ORGANIZATION_ADMINISTRATION else []
            planned = (await bob.apply(files, dry_run=True))["apply"]
            assert ([needed], missing) == (planned["permission_sets"], planned["missing_permission_sets"]), (
                name
            )
            if missing:
                before = await admin.files()
                await bob.is_refused(files, needed)
                assert before == await admin.files(), name
                await bob.receive_rights({ORGANIZATION_ADMINISTRATION, needed})
            applied = await bob.apply(files)
            assert "apply" in applied, (name, applied)
            if missing:  # a deletion needs the same right
                await bob.receive_rights({ORGANIZATION_ADMINISTRATION})
                await bob.is_refused(files_of(others), needed)


class Bob:
    """A person without a right except those of the role Files, in a browser."""

    def __init__(self, admin: Api, browser: ClientSession) -> None:
        self._admin = admin
        self._browser = browser
        self._headers: dict[str, str] = {}

    async def sign_in(self) -> Bob:
        account = {"email": BOB, "password": PASSWORD, "role": "none"}
        assert 201 == (await self._admin.ask("POST", "/operators", account))[0]
        url = f"{self._admin.serving.url}{OPERATOR_API}/sessions"
        async with self._browser.post(url, json={"email": BOB, "password": PASSWORD}) as answer:
            self._headers = {
                "Cookie": f"tollhouse={answer.cookies['tollhouse'].value}",
                "X-CSRF-Token": (await answer.json())["session"]["csrf_token"],
            }
        return self

    async def receive_rights(self, rights: set[str]) -> None:
        role = {"data_access": "full", "permission_sets": sorted(rights), "members": [BOB]}
        status, answer = await self._admin.ask("POST", "/roles", {"name": "Files", **role})
        if status == 409:
            status, answer = await self._admin.ask("PATCH", "/roles/Files", role)
        assert status in (200, 201), answer

    async def apply(self, files: dict[str, str], **how: Any) -> Any:
        body = {"files": files, "secrets": {**SECRETS, **NEW_SECRET}, **how}
        url = f"{self._admin.serving.url}{OPERATOR_API}/apply"
        async with self._browser.post(url, json=body, headers=self._headers) as answer:
            return await answer.json()

    async def is_refused(self, files: dict[str, str], needed: str) -> None:
        error = (await self.apply(files))["error"]
        assert "permission_set" == error["type"], (files, error)
        assert PERMISSION_SETS[needed].title in error["message"]

"""The page of a person: what the person has, and the end of it in four clicks."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole
from tests.browser.test_layout import badly_laid_out
from tests.browser.test_pages import look

BEN, HANA = "ben.adler@example.com", "hana@example.com"
HOSTILE = '"><img src=x onerror=alert(1)> Ben/Adler?x=1'


def test_a_person_leaves_in_four_clicks(house: Tollhouse, open_console: OpenConsole) -> None:
    """
    From Overview, four clicks end what a person has. The receipt names each thing, another person keeps hers, and
    afterwards the page has nothing left to end.
    """
    for user in (BEN, HANA):
        house.key(f"ci-{user[:3]}", "--label", f"user={user}", "--use-case", "Send AI Telemetry")
    house.run("roles", "create", "--name", "Search", "--data-access", "none", "--permission-set", "view_costs",
              "--member", BEN, "--member", HANA)  # fmt: skip
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/")
    page.get_by_role("link", name="People", exact=True).click()
    page.get_by_role("textbox", name="Person").fill(BEN)
    page.keyboard.press("Enter")
    belongings = page.get_by_role("table", name="Belongings")
    expect(belongings.get_by_role("row")).to_have_count(3)
    expect(belongings).to_contain_text("ci-ben")
    assert [] == console.audit()
    assert [] == badly_laid_out(console)
    look(console, "person")
    page.get_by_role("button", name="This person leaves").click()
    dialog.get_by_role("button", name="End these").click()
    receipt = dialog.get_by_role("table", name="Receipt")
    expect(receipt.get_by_role("row")).to_have_count(3)
    expect(receipt.get_by_text("done")).to_have_count(2)
    assert console.clicks() <= 4
    assert [] == console.audit()
    dialog.get_by_role("button", name="Close").click()
    expect(page.get_by_role("main")).to_contain_text("This person has no seat, device, key, role or account.")
    keys = {key["name"]: key["status"] for key in console.ask("/keys")["keys"]}
    assert ("Disabled", "Enabled") == (keys["ci-ben"], keys["ci-han"])
    [role] = [each for each in console.ask("/roles?limit=100")["roles"] if not each["is_builtin"]]
    assert [HANA] == role["members"]


def test_only_checked_steps_are_taken_and_a_name_is_only_text(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """A step whose box is not checked stays. A name with markup and signs of an address is shown as it is."""
    house.key("ci-ben", "--label", f"user={HOSTILE}", "--use-case", "Send AI Telemetry")
    house.key("ci-two", "--label", f"user={HOSTILE}", "--use-case", "Send AI Telemetry")
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    console.open("/people")
    page.get_by_role("textbox", name="Person").fill(HOSTILE)
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_role("heading", name="Adler")).to_have_text(HOSTILE)
    assert [] == badly_laid_out(console)
    page.get_by_role("button", name="This person leaves").click()
    dialog.get_by_role("checkbox").uncheck()
    dialog.get_by_role("button", name="End these").click()
    expect(dialog.get_by_role("table", name="Receipt")).to_be_visible()
    assert {"Enabled"} == {key["status"] for key in console.ask("/keys")["keys"]}
    console.open("/people/50%")  # an address with a wrong escape, as typed
    expect(page.get_by_role("textbox", name="Person")).to_have_value("50%")


def test_a_person_joins_in_six_clicks_and_joins_again_after_leaving(
    house: Tollhouse, open_console: OpenConsole
) -> None:
    """
    From Overview, six clicks give a new person a seat with a team and a role. After the person left, joining again adds
    a second seat that begins when the first ends, and enables the account.
    """
    console = open_console(house)
    page, dialog = console.page, console.page.get_by_role("dialog")
    token = console.ask("/session")["session"]["csrf_token"]
    view = {"name": "All", "filter": {"source": ["otel"]}, "principal_dimension": "model"}
    api, headers = f"{console.url}/console/api", {"X-CSRF-Token": token}

    def post(path: str, body: object) -> Any:
        answer = console.context.request.post(f"{api}{path}", data=body, headers=headers)
        assert answer.ok, answer.text()
        return answer.json()

    made = post("/views", view)["view"]["id"]
    post("/plans", {"name": "Assistants", "view": made, "fee": "20", "seats": []})
    post("/roles", {"name": "Leads", "data_access": "none", "permission_sets": ["view_costs"], "members": []})
    post("/operators", {"email": BEN, "role": "none", "password": "correct horse battery"})

    def joins() -> None:
        page.get_by_role("button", name="This person joins").click()
        dialog.get_by_role("group", name="Seat").get_by_role("radio", name="Assistants").check()
        dialog.get_by_label("Team that pays for the seat").fill("learning")
        dialog.get_by_role("group", name="Role").get_by_role("radio", name="Leads").check()
        dialog.get_by_role("button", name="Give these").click()
        expect(dialog.get_by_role("table", name="Receipt")).to_be_visible()

    def seats() -> list[tuple[str, str, str]]:
        [plan] = console.ask("/plans")["plans"]
        return [(seat["user"], seat["team"], seat["until"]) for seat in plan["seats"]]

    console.open("/")
    page.keyboard.press("/")
    page.keyboard.type(f"{BEN}")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=BEN)).to_be_visible()
    joins()
    assert console.clicks() <= 6
    assert [] == console.audit()
    assert [(BEN, "learning", "")] == seats()
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="This person leaves").click()
    dialog.get_by_role("button", name="End these").click()
    expect(dialog.get_by_role("table", name="Receipt").get_by_text("done")).to_have_count(3)
    dialog.get_by_role("button", name="Close").click()
    joins()
    expect(dialog.get_by_role("table", name="Receipt").get_by_text("done")).to_have_count(3)
    assert [(BEN, "learning", False), (BEN, "learning", True)] == [
        (*each[:2], not each[2]) for each in seats()
    ]
    assert ["Enabled"] == [
        each["status"] for each in console.ask("/operators")["operators"] if each["email"] == BEN
    ]

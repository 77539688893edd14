"""
Reconciliation: billed and counted cost of a month, the causes of differences, and links to the costs of a row.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Route, expect

from gateway.bills.months import CalendarMonth
from gateway.bills.reconciliation.accuracy import month_accuracy
from gateway.operations.list import declared_tables
from spool.clock import SystemClock
from spool.engines import SQLITE, open_storage
from spool.identity import RecordIdentity
from spool.record import NS, Inference, UsageMetric
from spool.registry.operators import Actor
from spool.settings import SpoolSettings
from spool.statements import Statement, StatementRow
from spool.storage import StorageOptions
from tests.acceptance.conftest import Tollhouse
from tests.browser.conftest import OpenConsole, SignedIn
from tests.browser.console import NARROW, WIDE, Console, filled
from tests.spool.contract.examples import add, call

MODEL = "model <b>of nobody"
PROVIDER = "cohere"  # the demo has no calls or bills of this provider
OURS = "command-r-plus-08-2024"
IN_EUROPE = (1, 4)  # on these days the provider processed its call in Europe, at 10 % more
ADA = Actor("ada@example.com", "command")


def last() -> CalendarMonth:
    """Return the previous month."""
    return CalendarMonth.at(datetime.now(UTC).timestamp()).previous


def called() -> Sequence[int]:
    """Return the days of that month with a call."""
    return last().days[:6]


def bill() -> Statement:
    """
    Make a bill of two models with tokens and money: one without calls, billed on every day of last month, and
    one billed on the days of its calls.
    """
    dollars = [(MODEL, day, "2.5") for day in last().days]
    dollars += [(OURS, day, "2.75" if place in IN_EUROPE else "2.5") for place, day in enumerate(called())]
    rows = [
        StatementRow(
            source="focus", provider=PROVIDER, account=None, key=None, model=model, start=day, end=day + 86400,
            unit=unit, kind="input", amount=Decimal(amount), currency=currency, tier=None, region=None, batch=None,
            settled=True,
        )
        for model, day, paid in dollars
        for unit, amount, currency in (("tokens", "1000000", None), ("usd", paid, "USD"))
    ]  # fmt: skip
    now = datetime.now(UTC).timestamp()
    return Statement(
        source="focus", account="", start=last().start, end=last().end, rows=tuple(rows), read_at=now,
        settled_until=now, name="costs.json",
    )  # fmt: skip


def calls() -> Iterator[tuple[Inference, RecordIdentity]]:
    """Make one call of a million tokens on each of some days of last month, reported today."""
    for place, day in enumerate(called()):
        yield call(
            900 + place, at=day + 3600, provider=PROVIDER, request_model=OURS, input_tokens=1_000_000, output_tokens=0,
            estimated_cost="2.5", cost_source="estimated", region="eu" if place in IN_EUROPE else None,
        )  # fmt: skip


def served() -> tuple[UsageMetric, RecordIdentity]:
    """
    Report a server counter for the first of these days, with 1.5 times the tokens of the day's one call.
    """
    id = (990).to_bytes(16)
    metric = UsageMetric(
        id=id, source="vllm", name="vllm:prompt_tokens_total", model=OURS, token_type="input", value=1_500_000,
        unit="{token}", start_time=(called()[0] + 3600) * NS, shadow=True, tags={"service": "gpu-3"},
    )  # fmt: skip
    return metric, RecordIdentity(id)


async def put(directory: Path) -> None:
    options = StorageOptions(
        declared=declared_tables(), directory=directory, settings=SpoolSettings(), clock=SystemClock()
    )
    storage = await open_storage(options, engine=SQLITE)
    assert storage.registry is not None
    statements = storage.registry.statements
    for each in await statements.imports():  # undo the demo's bills, so that the page has none
        await statements.undo(each.id, actor=ADA)
    await statements.import_statement(bill(), actor=ADA)
    await add(storage.log, *calls(), served())
    await storage.close()


@pytest.fixture(scope="module")
def billed(tmp_path_factory: pytest.TempPathFactory, signed_in: SignedIn) -> Iterator[Tollhouse]:
    """A running Tollhouse with two months of traffic and a bill of last month. Tests must not change it."""
    tollhouse = filled(tmp_path_factory.mktemp("billed"), "--days", "62", "--records", "1500")
    with ThreadPoolExecutor(
        1
    ) as thread:  # a separate thread, because the browser's event loop occupies this thread
        thread.submit(lambda: asyncio.run(put(tollhouse.directory / "tollhouse-data"))).result()
    tollhouse.start()
    signed_in[tollhouse] = {}
    yield tollhouse
    tollhouse.stop()


async def close(directory: Path) -> None:
    """Store an invoice and close its month, as the operator API does."""
    options = StorageOptions(
        declared=declared_tables(), directory=directory, settings=SpoolSettings(), clock=SystemClock()
    )
    storage = await open_storage(options, engine=SQLITE)
    assert storage.registry is not None
    whole = {"provider": PROVIDER, "month": last().name}
    invoice = {**whole, "number": "A-117", "total": "93.50", "tax": "0", "issued": None}
    closed = {
        **whole,
        "billed": "93.5",
        "invoiced": "93.50",
        "rounding": "0",
        "difference": "0",
        "closed_by": "ada",
        **month_accuracy(last().name, None),
        "sentence": "billed, and counted ± $0.20",
        "failed_calls": 3,
    }
    await storage.registry.billed_invoices.add("1", invoice, actor=ADA, action="add")
    id = f"{PROVIDER}:{last().name}"
    await storage.registry.closed_months.add(id, closed, actor=ADA, action="close")
    await storage.close()


@pytest.mark.proof
def test_invoices_and_closed_months_are_shown(tmp_path: Path, open_console: OpenConsole) -> None:
    """The page shows invoices and closed months only for their own month."""
    tollhouse = filled(tmp_path / "closed", "--days", "35", "--records", "50")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(lambda: asyncio.run(close(tollhouse.directory / "tollhouse-data"))).result()
    tollhouse.start()
    try:
        console = open_console(tollhouse, role="viewer")
        console.open(f"/reconciliation?month={last().name}")
        expect(console.page.get_by_role("region", name="Invoices")).to_contain_text("A-117")
        expect(console.page.get_by_role("region", name="Closed")).to_contain_text("ada")
        expect(console.page.get_by_text("billed, and counted ± $0.20.")).to_contain_text(
            "3 failed, 0 aborted"
        )
        link = console.page.get_by_role("link", name="restated")
        expect(link).to_have_attribute("href", re.compile("cost_type=billed_cost"))
        assert [] == console.audit()
        console.open("/reconciliation?month=2020-01")
        expect(console.page.get_by_text("No provider bill for this month")).to_be_visible()
        expect(console.page.get_by_role("region", name="Invoices")).to_have_count(0)
    finally:
        tollhouse.stop()


def test_a_demo_has_bills(console: Console) -> None:
    page = console.page
    console.open(f"/reconciliation?month={last().name}&by=model")
    expect(page.get_by_role("region", name="Causes of openai")).to_contain_text("not tokens")
    expect(page.get_by_role("region", name="anthropic", exact=True)).to_be_visible()
    assert [] == console.audit()


def test_a_month_is_read(billed: Tollhouse, open_console: OpenConsole) -> None:
    """
    The page Reconciliation has totals, causes with evidence, and a row per model with a link to its costs. It
    reports a month without a bill.
    """
    console = open_console(billed, role="viewer")
    page = console.page
    console.open(f"/reconciliation?month={last().name}&by=model")
    by_model = page.get_by_role("region", name=f"{PROVIDER} by model")
    # wait until the calls are closed and counted
    expect(by_model.get_by_role("link", name=OURS, exact=True)).to_be_visible()
    answer = console.ask(f"/reconciliation?month={last().name}&by=model")
    [found] = [each for each in answer["providers"] if each["provider"] == PROVIDER]
    assert "unreported_traffic" in [each["cause"] for each in found["causes"]]
    section = page.get_by_role("region", name=PROVIDER, exact=True)
    bars = section.locator(".fall")
    expect(bars.locator(".number").last).to_have_attribute("title", f"${found['total']['billed']}")
    expect(bars.locator("rect")).to_have_count(2 + len(found["total"]["causes"]))
    causes = page.get_by_role("region", name=f"Causes of {PROVIDER}")
    expect(causes).to_contain_text("unreported traffic")
    expect(causes).to_contain_text(MODEL)
    rows = by_model.locator("tbody tr")
    expect(rows).to_have_count(len(found["rows"]))
    assert [] == console.audit()
    console.screenshot("reconciliation")
    page.get_by_label("Rows").select_option("day")
    by_day = page.get_by_role("region", name=f"{PROVIDER} by day").locator("tbody tr")
    explained = len(last().days) - len(IN_EUROPE)
    expect(by_day).to_have_count(2)  # the two days have one more cause than the others
    expect(by_day.filter(has_text=f"{explained} days like this")).to_contain_text("explained")
    section.get_by_role("button", name="Show each day").click()
    expect(by_day).to_have_count(len(last().days))
    console.resize(NARROW)
    assert console.overhang() <= 0
    console.resize(WIDE)
    page.get_by_role("link", name=f"Costs of {PROVIDER}, {last().name}-01", exact=True).click()
    expect(page).to_have_url(re.compile(rf"/costs\?from={last().name}-01&.*provider={PROVIDER}"))
    console.open("/reconciliation?month=2020-01")
    expect(page.get_by_role("heading", name="No provider bill for this month")).to_be_visible()
    assert [] == console.audit()


@pytest.mark.proof
def test_causes_of_one_kind_are_one_row(billed: Tollhouse, open_console: OpenConsole) -> None:
    """
    Several causes of one kind share a row, which shows their sum and opens into each cause. The bars have one step
    for them.
    """
    console = open_console(billed, role="viewer")
    page = console.page

    def alike(route: Route) -> None:
        answer = route.fetch().json()
        [found] = [each for each in answer["providers"] if each["provider"] == PROVIDER]
        found["total"] |= {"billed": "46.30", "counted": "40.00", "difference": "6.30"}
        if "causes" in found:
            cause = {
                **found["causes"][0],
                "cause": "another_key",
                "advice": "Look at `tollhouse keys list`.",
                "where": {},
            }
            found["causes"] = [
                {**cause, "amount": f"{n}.10", "tokens": n, "evidence": f"the key {n}"} for n in (1, 2, 3)
            ]
            found["total"] |= {"causes": {"another_key": "6.30"}, "unexplained": "0"}
        route.fulfill(json=answer)

    page.route(re.compile(r"/console/api/reconciliation\?"), alike)
    console.open(f"/reconciliation?month={last().name}&by=day")
    rows = page.get_by_role("region", name=f"Causes of {PROVIDER}").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.last).to_contain_text("unexplained$0.00")
    expect(rows.first).to_contain_text("$6.30")
    expect(rows.locator("code")).to_have_text("tollhouse keys list")
    rows.get_by_text("3 causes").click()
    expect(rows.get_by_role("listitem")).to_have_text(
        ["$1.10: the key 1", "$2.10: the key 2", "$3.10: the key 3"]
    )
    bars = page.get_by_role("region", name=PROVIDER, exact=True).locator(".fall span")
    expect(bars).to_have_text(["counted", "$40.00", "another key", "+$6.30", "billed", "$46.30"])
    assert [] == console.audit()


def shown(text: str) -> Decimal:
    return Decimal(text.replace("$", "").replace(",", ""))


def amounts(row: Locator, *titles: str) -> list[Decimal]:
    """Return the shown amounts of a row in the columns with these titles."""
    return [shown(text) for text in texts(row, *titles)]


def texts(row: Locator, *titles: str) -> list[str]:
    """Return the texts of a row in the columns with these titles."""
    heads = row.locator("xpath=ancestor::table").locator("thead th").all_inner_texts()
    cells = row.locator("th, td").all_inner_texts()
    return [cells[heads.index(title)] for title in titles]


def test_rows_add_up_by_eye(billed: Tollhouse, open_console: OpenConsole) -> None:
    """
    In each row of each level, and in each total, the shown amounts add up: billed - counted = difference = causes +
    unexplained. The causes and the steps from counted to billed have the same amounts, which add up to the difference.
    """
    console = open_console(billed, role="viewer")
    page = console.page
    for by in ("day", "model"):
        console.open(f"/reconciliation?month={last().name}&by={by}")
        section = page.get_by_role("region", name=PROVIDER, exact=True)
        table = page.get_by_role("region", name=f"{PROVIDER} by {by}")
        expect(table.locator("tfoot tr")).to_be_visible()
        for row in [*table.locator("tbody tr").all(), *table.locator("tfoot tr").all()]:
            one, other, difference, unexplained = amounts(
                row, "Billed", "Counted", "Difference", "Unexplained"
            )
            heads = table.locator("thead th").all_inner_texts()
            causes = row.locator("th, td").nth(heads.index("Causes")).inner_text()
            explained = sum(map(shown, re.findall(r"-?\$[0-9,.]*[0-9]", causes)), Decimal(0))
            assert one - other == difference == explained + unexplained
        of_causes = page.get_by_role("region", name=f"Causes of {PROVIDER}")
        steps = section.locator(".fall .number").all_inner_texts()
        listed = [amounts(row, "Billed − counted")[0] for row in of_causes.locator("tbody tr").all()]
        assert [sum(listed)] == amounts(of_causes.locator("tfoot tr"), "Billed − counted")
        other, *between, one = [shown(each.replace("+", "")) for each in steps]
        assert other + sum(between) == one == other + sum(listed)
        assert sorted(each for each in listed if each) == sorted(between)
        difference, unexplained = one - other, listed[-1]
        words = section.locator(".why").inner_text()
        rest = unexplained or difference
        assert [one, other, rest] == [shown(each) for each in re.findall(r"-?\$[0-9,]+\.[0-9]+", words)]
        assert words.endswith("is explained.") == (unexplained == 0)


def test_totals_come_before_causes(billed: Tollhouse, open_console: OpenConsole) -> None:
    """
    The page Reconciliation shows the totals while the search for causes still runs. If the search fails, the totals
    stay.
    """
    console = open_console(billed, role="viewer")
    page = console.page
    held: list[Route] = []
    page.route(re.compile(r"/console/api/reconciliation\?.*by=day"), lambda route: held.append(route))
    console.page.goto(f"{console.url}/console/#/reconciliation?month={last().name}")
    section = page.get_by_role("region", name=PROVIDER, exact=True)
    expect(section).to_contain_text("Searching for the causes")
    expect(section.locator(".why")).to_contain_text("$")
    expect(page.get_by_role("region", name=f"Causes of {PROVIDER}")).to_have_count(0)
    console.expects("503")
    held.pop().fulfill(status=503, json={"error": {"type": "busy", "message": "Too much to do."}})
    expect(page.get_by_role("alert")).to_contain_text("Too much to do.")
    expect(section.locator(".why")).to_contain_text("$")
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("region", name=f"Causes of {PROVIDER}")).to_be_visible()


@pytest.mark.proof
def test_days_that_agree_are_one_row(console: Console) -> None:
    """The days of the demo agree, so they are one row with their sum. A button shows each day."""
    page = console.page
    console.open(f"/reconciliation?month={last().name}")
    answer = console.ask(f"/reconciliation?month={last().name}")
    [found] = [each for each in answer["providers"] if each["provider"] == "anthropic"]
    same = [row for row in found["rows"] if row["state"] == "agrees"]
    other = [row for row in found["rows"] if row["state"] == "differs"]
    like = {",".join(row["causes"]) for row in other}
    rows = page.get_by_role("region", name="anthropic by day").locator("tbody tr")
    expect(rows).to_have_count(len(like) + 1)
    expect(rows.last).to_contain_text(f"{len(same)} days agree")
    [together] = amounts(rows.last, "Billed")
    assert abs(together - sum(Decimal(row["billed"]) for row in same)) <= Decimal("0.005")
    section = page.get_by_role("region", name="anthropic", exact=True)
    button = section.get_by_role("button", name="Show each day")
    button.click()
    expect(rows).to_have_count(len(found["rows"]))
    section.get_by_role("button", name="Fold days").click()
    expect(rows).to_have_count(len(like) + 1)
    for size in (WIDE, NARROW):
        console.resize(size)
        assert console.overhang() <= 0
    assert [] == console.audit()


def test_an_open_day_shows_no_amount(console: Console) -> None:
    """
    The amounts of a day that is not compared yet are unknown. They are not zero.

    The month is that of yesterday, because no bill has the first day of a month yet. Two days are not folded.
    """
    page = console.page
    console.open(f"/reconciliation?month={datetime.now(UTC) - timedelta(days=1):%Y-%m}")
    section = page.get_by_role("region", name="openai", exact=True)
    expect(page.get_by_role("region", name="openai by day").locator("tbody tr").first).to_be_visible()
    if (unfold := section.get_by_role("button", name="Show each day")).count():
        unfold.click()
    today = page.get_by_role("region", name="openai by day").locator("tbody tr", has_text="open").last
    assert ["–", "–", "–"] == texts(today, "Billed", "Counted", "Difference")


def test_hints_have_no_amount_and_a_claim_is_downloaded(billed: Tollhouse, open_console: OpenConsole) -> None:
    """
    A cause that is only likely is shown as a sentence without an amount. If the provider owes a discount, the claim
    can be downloaded as text or CSV. Without such causes and claims, there is neither.
    """
    console = open_console(billed, role="viewer")
    page = console.page

    def owing(route: Route) -> None:
        answer = route.fetch().json()
        for found in answer["providers"]:
            if "hints" in found and found["provider"] == PROVIDER:
                hint = {
                    name: value
                    for name, value in found["causes"][0].items()
                    if name not in ("amount", "moved")
                }
                found["hints"] = [{**hint, "cause": "batch_unreported", "evidence": "a <b>third</b> lacks"}]
                found["owed"] = "12.345"
        route.fulfill(json=answer)

    console.open(f"/reconciliation?month={last().name}")
    section = page.get_by_role("region", name=PROVIDER, exact=True)
    expect(page.get_by_role("region", name=f"Causes of {PROVIDER}")).to_be_visible()
    expect(section.get_by_role("heading", name="Likely causes")).to_have_count(0)
    expect(section.get_by_role("link", name="Download claim")).to_have_count(0)
    page.route(re.compile(r"/console/api/reconciliation\?"), owing)
    console.open("/costs")
    console.open(f"/reconciliation?month={last().name}")
    hints = page.get_by_role("list", name=f"Likely causes of {PROVIDER}").get_by_role("listitem")
    expect(hints).to_have_count(1)
    expect(hints).to_contain_text("batch unreported: a <b>third</b> lacks.")
    assert "$" not in hints.inner_text()
    expect(section).to_contain_text(f"{PROVIDER} owes $12.35.")
    for name, words in (("Download claim", f"Provider: {PROVIDER}"), ("Download claim as CSV", "provider,")):
        with page.expect_download() as event:
            section.get_by_role("link", name=name, exact=True).click()
        assert event.value.path().read_text().startswith(words)
    assert [] == console.audit()


def test_a_bill_is_imported_from_the_console(tmp_path: Path, open_console: OpenConsole) -> None:
    """
    The dialog for a bill shows provider, months, rows, total, known days and unreadable rows before it stores
    anything. An unknown file, a file over the limit and a reader without the right are refused.
    """
    tollhouse = filled(tmp_path / "importing", "--days", "2", "--records", "50")
    settings = tollhouse.directory / "tollhouse.toml"
    settings.write_text(f'{settings.read_text()}\n[reconciliation]\nmax_upload_bytes = "4KiB"\n')
    tollhouse.start()
    report = Path(__file__).parents[2] / "statements/openai_costs/page.json"
    notes, large = tmp_path / "notes.txt", tmp_path / "large.json"
    notes.write_text("hello")
    large.write_text(report.read_text() + " " * 4096)
    try:
        console = open_console(tollhouse)
        page = console.page
        console.open("/reconciliation?month=2026-08")
        page.get_by_role("button", name="Import a bill").click()
        dialog = page.get_by_role("dialog", name="Import a bill")
        console.expects("400", "413")
        for file, words in ((notes, "neither JSON nor CSV"), (large, "reconciliation.max_upload_bytes")):
            dialog.locator("input[type=file]").set_input_files(file)
            expect(dialog.get_by_role("alert")).to_contain_text(words)
        assert [] == console.audit()
        dialog.get_by_label("Source").select_option("openai_costs")
        dialog.locator("input[type=file]").set_input_files(report)
        row = dialog.get_by_role("region", name="Preview").locator("tbody tr")
        expect(row).to_have_count(1)
        for words in ("openai", "openai_costs", "2026-08", "$5.82", "2 new"):
            expect(row).to_contain_text(words)
        expect(dialog).to_contain_text("page.json: 1 row cannot be read")
        expect(dialog).to_contain_text("page 1, bucket 1, result 7: value is not a number")
        assert [] == console.audit()
        console.screenshot("reconciliation-import")
        assert [] == console.ask("/statements?month=2026-08")["statements"]
        dialog.get_by_role("button", name="Import", exact=True).click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("region", name="openai", exact=True)).to_contain_text("$5.82")
        assert 1 == len(console.ask("/statements?month=2026-08")["statements"])
        page.get_by_role("button", name="Import a bill").click()
        dialog.locator("input[type=file]").set_input_files(report)
        expect(row).to_contain_text("2 already known")
        viewer = open_console(tollhouse, role="viewer")
        viewer.open("/reconciliation?month=2026-08")
        expect(viewer.page.get_by_role("region", name="openai", exact=True)).to_be_visible()
        expect(viewer.page.get_by_role("button", name="Import a bill")).to_have_count(0)
    finally:
        tollhouse.stop()


@pytest.mark.proof
def test_what_is_cut_is_said(billed: Tollhouse, open_console: OpenConsole) -> None:
    """
    If a table of bills or costs is cut, it shows how many rows it has of how many, and says that (other) adds up
    the rest.
    """
    console = open_console(billed, role="viewer")
    page = console.page

    def cut(route: Route) -> None:
        answer = route.fetch()
        payload = answer.json()
        if "report" in payload:
            payload["report"] |= {"truncated": True, "row_count": 20_000}
        for provider in payload.get("providers", ()):
            provider |= {"truncated": True, "row_count": 20_000}
        route.fulfill(response=answer, json=payload)

    page.route(re.compile("/console/api/(report|reconciliation)"), cut)
    for path in (f"/reconciliation?month={last().name}&by=model", "/costs?by=model"):
        console.open(path)
        expect(page.get_by_role("note").first).to_contain_text(
            "of 20,000 rows. The row (other) adds up the rest"
        )
        assert [] == console.audit()


@pytest.mark.proof
def test_a_row_leads_to_its_calls(billed: Tollhouse, open_console: OpenConsole) -> None:
    """
    The links of a model, a day and a cause list exactly the counted calls. The link of the cause `region` lists the
    calls of the region that made them more expensive.
    """
    console = open_console(billed, role="viewer")
    page = console.page
    console.open(f"/reconciliation?month={last().name}&by=model")
    page.get_by_role("region", name=f"{PROVIDER} by model").get_by_role("link", name=OURS, exact=True).click()
    records = page.get_by_role("region", name="records")
    expect(records.locator("tbody tr")).to_have_count(len(called()))
    expect(page.get_by_text(f"{last().name} (UTC): Tollhouse searched")).to_be_visible()
    assert [] == console.audit()
    answer = console.ask(f"/reconciliation?month={last().name}&by=model")
    [found] = [each for each in answer["providers"] if each["provider"] == PROVIDER]
    [row] = [each for each in found["rows"] if each["name"] == OURS]
    assert len(called()) == row["counted_calls"]
    assert row["causes"]["region"] == "0.5"
    console.open(f"/reconciliation?month={last().name}")
    causes = page.get_by_role("region", name=f"Causes of {PROVIDER}")
    causes.get_by_role("link", name="region", exact=True).click()
    expect(records.locator("tbody tr")).to_have_count(len(IN_EUROPE))
    expect(page.get_by_role("link", name="region: eu")).to_be_visible()
    records.locator("tbody a").first.click()
    expect(page.get_by_role("dialog")).to_contain_text("1,000,000")
    console.open(f"/reconciliation?month={last().name}&by=day")
    page.get_by_role("region", name=PROVIDER, exact=True).get_by_role("button", name="Show each day").click()
    page.get_by_role("region", name=f"{PROVIDER} by day").get_by_role(
        "link", name=f"{last().name}-02", exact=True
    ).click()
    expect(page.get_by_text(f"{last().name}-02 (UTC): Tollhouse searched")).to_be_visible()
    expect(records.locator("tbody tr").filter(has_text=OURS)).to_have_count(1)


@pytest.mark.proof
def test_server_counters_are_compared_with_reported_calls(
    billed: Tollhouse, open_console: OpenConsole
) -> None:
    """
    The page compares server counters with reported calls per day and model. It reports a day without a counter.
    """
    console = open_console(billed, role="viewer")
    page = console.page
    console.open(f"/reconciliation?month={last().name}&served={last().name}-01")
    row = page.get_by_role("region", name="Served and reported").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("vllm gpu-3")
    [answered] = console.ask(f"/served?date={last().name}-01")["models"]
    assert answered["untold"] == {"input_tokens": 500_000, "output_tokens": 0}
    assert answered["calls"] == 1
    assert [] == console.audit()
    page.get_by_role("navigation", name="Day of model servers").get_by_role("link").first.click()
    expect(page.get_by_text("No server sent counters on this day.")).to_be_visible()
    assert [] == console.audit()

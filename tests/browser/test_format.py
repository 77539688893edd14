"""Money as people read it: two decimals, four below a cent, and one number of decimals per column."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from playwright.sync_api import expect

from tests.browser.console import Console

FORMAT = """async ([name, values]) => {
  const {$lib_format: format} = await import(document.querySelector("script[type=module]").src);
  return values.map((given) => format[name](...given));
}"""


def written(console: Console, name: str, *values: Sequence[object]) -> list[object]:
    found: list[object] = console.page.evaluate(FORMAT, [name, values])
    return found


def test_one_amount(console: Console) -> None:
    """
    Amounts below one cent have four decimals. Amounts that four decimals cannot show are marked, with either sign.
    """
    console.open("/keys")
    amounts = [
        "1234567.891",
        "0.8165",
        "0.01",
        "0.0099",
        "-0.0049",
        "0.00004",
        "-0.00004",
        "0",
        "0.995",
        "-12.345",
    ]
    assert ["$1,234,567.89", "$0.82", "$0.01", "$0.0099", "-$0.0049", "<$0.0001", "-<$0.0001", "$0.00", "$1.00",
            "-$12.35", "unknown"] == written(console, "money", *([each] for each in amounts), [None])  # fmt: skip


def test_a_column(console: Console) -> None:
    """A column of amounts has two decimals, or four if all its amounts are below ten cents."""
    console.open("/keys")
    cases: list[tuple[list[str], int]] = [
        (["324.12", "0.0001"], 2), (["0.1"], 2), (["-0.5", "0.01"], 2), (["0.0999", "0.0001"], 4), (["0", "0.00"], 2),
        ([], 2),
    ]  # fmt: skip
    assert [places for _, places in cases] == written(console, "placesOf", *([texts] for texts, _ in cases))
    fixed: list[list[object]] = [
        ["0.0049", 2],
        ["-0.0049", 2],
        ["0.005", 2],
        ["0", 2],
        ["1000", 4],
        ["0.00001", 4],
        [None, 2],
    ]
    assert ["<$0.01", "-<$0.01", "$0.01", "$0.00", "$1,000.0000", "<$0.0001", "unknown"] == written(
        console, "fixed", *fixed
    )


def test_amounts_of_a_page_line_up(console: Console) -> None:
    """In the list of calls and in reconciliation, all amounts of a column have the same decimals."""
    last_month = datetime.now(UTC).replace(day=1) - timedelta(days=1)
    for address in ("/calls", f"/reconciliation?month={last_month:%Y-%m}"):
        console.open(address)
        expect(console.page.locator("main tbody tr").nth(5)).to_be_visible()
        tables = console.page.evaluate("""() => [...document.querySelectorAll("main table")].map((table) =>
          [...table.rows].map((row) => [...row.cells].map((cell) => cell.innerText)))""")
        for rows in tables:
            for column in zip(*rows, strict=True):
                places = {len(found) for text in column for found in re.findall(r"\$[\d,]+\.(\d+)", text)}
                assert len(places) <= 1, (address, column)


def test_a_change(console: Console) -> None:
    """
    A percentage of change is rounded and at most +999 %. Without an earlier amount, or with a very small one, there
    is none.
    """
    console.open("/keys")
    cases: list[tuple[list[object], dict[str, str]]] = [
        (["11", "10"], {"percent": "+10 %", "amount": "+$1.00"}),
        (["5", "0.02"], {"percent": ">+999 %", "amount": "+$4.98"}),
        (["5", "0"], {"percent": "new", "amount": ""}),
        (["0", "0"], {"percent": "–", "amount": ""}),
    ]
    change = FORMAT.replace("format[name](...given)", "format[name](...given, format.money, 0)")
    found = console.page.evaluate(change, ["change", [given for given, _ in cases]])
    assert [shown for _, shown in cases] == found
    assert [{"percent": "–", "amount": "+$1.00"}] == written(console, "change", ["1.5", "0.5"])


def test_texts_have_one_form(console: Console) -> None:
    """
    An axis has equal decimals, days are not in ISO form, a count of one is singular, and a bound without meaning is
    left out.
    """
    console.open("/keys")
    assert ["$0.00025", "$0.00020", "$0"] == written(
        console, "shortMoney", [0.00025, 0.00005], [0.0002, 0.00005], [0, 0.00005]
    )
    assert ["$1.50", "$1.00", "$1.5k", "$1.0k", "$500", "$2M"] == written(
        console, "shortMoney", [1.5, 0.5], [1, 0.5], [1500, 500], [1000, 500], [500, 500], [2e6, 1e6]
    )
    now = datetime.now(UTC).year
    days = [[f"{now}-11-26"], [f"{now}-09-01 04:00"], ["2019-01-02T00:00Z"]]
    assert ["26 Nov", "1 Sep", "2 Jan 2019"] == written(console, "dayText", *days)
    assert ["1 Sep 04:00"] == written(console, "timeText", days[1])
    assert ["1 call", "0 calls", "1,000 calls"] == written(
        console, "counted", [1, "call"], [0, "call"], [1000, "call"]
    )
    forecasts = [[{"total": total, "low": low, "high": high}] for total, low, high in (
        ("2", "1", "3"), ("3", "1", "3"), ("1", "1", "3"), ("3", "3", "3.001"))]  # fmt: skip
    assert ["$1.00 to $3.00", "at least $1.00", "at most $3.00", ""] == written(console, "bounds", *forecasts)

"""The day up to which reports have arrived, by kind and account."""

from __future__ import annotations

from typing import Any

from gateway.bills.statements.arrivals import report_arrivals
from gateway.bills.statements.puller import DONE, FAILED, PullState
from spool.statements import DAY_S, StatementInfo

FIRST = 1_785_542_400  # 2026-08-01


def info(source: str = "openai_costs", account: str = "", days: int = 10, **fields: Any) -> StatementInfo:
    values: dict[str, Any] = {"provider": "openai", "start": FIRST, "end": FIRST + days * DAY_S, "settled": True,
                              "imported_at": 0.0, "rows": 1, "used_from": FIRST,
                              "used_until": FIRST + days * DAY_S}  # fmt: skip
    return StatementInfo(source=source, account=account, **{**values, **fields})


def pull(**fields: Any) -> PullState:
    values: dict[str, Any] = {
        "name": "costs", "source": "openai_costs", "account": "", "every": 3600.0, "state": DONE, "reason": "",
        "pulled_to": None, "last_success": None, "next_at": None,
    }  # fmt: skip
    return PullState(**{**values, **fields})


def test_successful_pull_covers_up_to_its_requested_day() -> None:
    """
    If a pull succeeds, reports have arrived up to the day that it requested, even if the provider had no
    data. Before the first pull, the stored rows of the source decide.
    """
    assert [FIRST + 10 * DAY_S] == [arrival.until for arrival in report_arrivals([info()], [pull()])]
    [pull_arrival] = report_arrivals([info()], [pull(pulled_to="2026-08-20")])
    assert pull_arrival.until == FIRST + 20 * DAY_S
    assert pull_arrival.pull == "costs"
    assert pull_arrival.settle_s == 2 * DAY_S
    [never] = report_arrivals([], [pull(state=FAILED, reason="401")])
    assert never.until is None
    assert never.failure == "401"
    assert [""] == [
        arrival.failure for arrival in report_arrivals([], [pull(reason="3 rows cannot be read")])
    ]


def test_an_account_is_pulled_or_imported() -> None:
    """
    If a pull names an account, it covers only that account. Other accounts of the source count as imported.
    """
    infos = [info(account="acme"), info(account="other", days=40), info("aws_cur", days=3)]
    arrivals_by_key = {
        (arrival.source, arrival.account, arrival.pull): arrival
        for arrival in report_arrivals(infos, [pull(account="acme")])
    }
    assert {("openai_costs", "acme", "costs"), ("openai_costs", "other", ""), ("aws_cur", "", "")} == set(
        arrivals_by_key
    )
    assert ["2026-08", "2026-09"] == arrivals_by_key["openai_costs", "other", ""].months
    assert 3 * DAY_S == arrivals_by_key["aws_cur", "", ""].settle_s
    assert {7 * DAY_S} == {
        arrival.settle_s for arrival in report_arrivals(infos, [pull()], settle_s=7 * DAY_S)
    }

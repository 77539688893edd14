"""Bills over the operator API and with commands: imported, listed, restated, undone and refused."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest_asyncio

from gateway.configuration.sections import ReconciliationSettings
from tests.integration.operations.server import OperatorServer, operator_server

CASES = Path(__file__).parents[3] / "statements"
PAGE = CASES / "openai_costs/page.json"


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as server:
        yield server


async def test_a_report_is_imported_once(server: OperatorServer) -> None:
    """The second import of a bill changes nothing, and a dry run stores nothing. Invalid rows are named."""
    for dry_run, new, id, already in (
        (True, 2, None, None),
        (False, 2, "imp_1", None),
        (False, 0, None, "imp_1"),
    ):
        answer = await server.ask("POST", "/statements", {"files": [str(PAGE)], "dry_run": dry_run})
        [done] = answer.payload["imports"]
        assert (id, already) == (done["id"], done["already"])
        told = (
            done["source"],
            done["from"],
            done["to"],
            done["days_new"],
            done["days_changed"],
            done["damaged"],
        )
        assert ("openai_costs", "2026-08-01", "2026-08-02", new, 0, 1) == told
        assert ["page 1, bucket 1, result 7: value is not a number"] == done["damaged_rows"]
    [month] = (await server.ask("GET", "/statements")).payload["statements"]
    assert ("2026-08", ["openai"], 2, "5.8234569090123456789") == tuple(
        month[name] for name in ("month", "providers", "days", "billed")
    )


async def test_restated_day_has_the_amounts_before_and_after(server: OperatorServer, tmp_path: Path) -> None:
    """For a restated day, the answer states the amounts before and after, to the last digit."""
    await server.ask("POST", "/statements", {"files": [str(PAGE)]})
    restated = tmp_path / "again.json"
    restated.write_text(PAGE.read_text().replace('"value":5,', '"value":4.5,'))
    [done] = (await server.ask("POST", "/statements", {"files": [str(restated)]})).payload["imports"]
    [revision] = done["revisions"]
    assert revision["day"] == "2026-08-01"
    assert revision["billed_before"] == "5.8234569090123456789"
    assert revision["billed"] == "5.3234569090123456789"


async def test_statements_are_listed_and_undone(server: OperatorServer) -> None:
    """
    Bills are listed by source, account, month and provider, and imports by source, state and way. The bills of an
    import that is undone disappear, and a second undo is refused.
    """
    files = [str(path) for path in CASES.glob("*/*") if not path.name.endswith(".expected.json")]
    assert 200 == (await server.ask("POST", "/statements", {"files": files})).status
    listed = (await server.ask("GET", "/statements", provider="aws.bedrock")).payload["statements"]
    assert {"aws_cur", "aws_cost_explorer", "focus"} == {row["source"] for row in listed}
    months = await server.ask("GET", "/statements", source="aws_cur", month="2026-08")
    assert 1 == len(months.payload["statements"])
    found = (await server.ask("GET", "/statement-imports", source="aws_cur", way="file")).payload[
        "statement_imports"
    ]
    for each in found:
        undone = await server.ask("POST", f"/statement-imports/{each['id']}/undo", {})
        assert 200 == undone.status, undone.payload
        shown = undone.payload["statement_import"]
        assert ("undone", "ada@example.com") == (shown["state"], shown["undone_by"])
        assert {"undone"} == {day["state"] for day in undone.payload["import_days"]}
        assert undone.payload == (await server.ask("GET", f"/statement-imports/{each['id']}")).payload
        status, _, message = (await server.ask("POST", f"/statement-imports/{each['id']}/undo", {})).error
        assert (409, f"{each['id']} is already undone") == (status, message)
    assert [] == (await server.ask("GET", "/statements", source="aws_cur")).payload["statements"]
    counting = await server.ask("GET", "/statement-imports", source="aws_cur", state="counts")
    assert [] == counting.payload["statement_imports"]
    for method, path in (("GET", "/statement-imports/imp_999"), ("POST", "/statement-imports/x/undo")):
        assert 404 == (await server.ask(method, path, {} if method == "POST" else None)).status


async def test_a_second_part_is_added(server: OperatorServer, tmp_path: Path) -> None:
    """A part that is added replaces nothing, counts once, and needs an import that counts."""
    head, *rows = (CASES / "focus/export.csv").read_text().splitlines(keepends=True)
    whole, first, second = tmp_path / "whole.csv", tmp_path / "first.csv", tmp_path / "second.csv"
    whole.write_text(head + "".join(rows))
    first.write_text(head + "".join(rows[:2]))
    second.write_text(head + "".join(rows[2:]))

    async def put(file: Path, **more: object) -> Any:
        answer = await server.ask("POST", "/statements", {"files": [str(file)], "replace": True, **more})
        return answer.payload["imports"][0] if answer.status == 200 else answer.error

    async def billed() -> dict[str, str]:
        months = (await server.ask("GET", "/statements")).payload["statements"]
        return {f"{each['month']} {each['account']}": each["billed"] for each in months}

    assert "imp_1" == (await put(whole, account="a"))["id"]
    expected = await billed()
    await server.ask("POST", "/statement-imports/imp_1/undo", {})
    assert "imp_2" == (await put(first, account="a"))["id"]
    assert "imp_3" == (await put(second, account="a", add_to="imp_2"))["id"]
    assert expected == await billed()
    assert "imp_2" == (await put(first, account="a", add_to="imp_2"))["already"]
    assert expected == await billed()
    assert 404 == (await put(second, account="b", add_to="imp_2"))[0]
    await server.ask("POST", "/statement-imports/imp_2/undo", {})
    status, _, message = await put(whole, account="a", add_to="imp_2")
    assert (409, True) == (status, "imp_2 no longer counts" in message)


REFUSED: Sequence[tuple[object, str]] = [
    ({"files": []}, "files"),
    ({"files": ["page.json"]}, "absolute path"),
    ({"files": ["/nowhere/page.json"]}, "cannot be read"),
    ({"files": [str(PAGE)], "source": "nobody"}, "use one of: openai_usage"),
    ({"files": [str(PAGE)], "source": "aws_cur"}, "does not come as JSON"),
    ({"files": [str(PAGE.parent)]}, "cannot be read"),
]


async def test_what_cannot_be_imported_is_refused(server: OperatorServer) -> None:
    """An invalid import gets an error that says what to do, and nothing is stored."""
    for body, words in REFUSED:
        status, type, message = (await server.ask("POST", "/statements", body)).error
        assert status == 400, (body, words)
        assert type == "invalid", (body, words)
        assert words in message, (body, words)
        assert [] == (await server.ask("GET", "/statements")).payload["statements"], (body, words)


async def test_a_large_report_is_refused(server: OperatorServer) -> None:
    """An import over the limit of bytes or cells is refused with the name of the setting."""
    size = PAGE.stat().st_size
    for settings, words in (
        (ReconciliationSettings(max_file_bytes=size), ""),
        (ReconciliationSettings(max_file_bytes=size - 1), "reconciliation.max_file_bytes"),
        (ReconciliationSettings(max_rows=5), "reconciliation.max_rows"),
    ):
        server.services.money.reconciliation = lambda settings=settings: settings  # type: ignore[misc]
        answer = await server.ask("POST", "/statements", {"files": [str(PAGE)], "dry_run": True})
        assert words in json.dumps(answer.payload)
        assert (400 if words else 200) == answer.status

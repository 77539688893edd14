"""Bills that the console uploads: previewed, stored, limited, refused and audited."""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from gateway.bills.statements.sources.list import SOURCES
from gateway.configuration.sections import ReconciliationSettings
from gateway.core.paths import OPERATOR_API
from gateway.operations.bills import statements as handlers
from tests.integration.operations.server import OperatorServer, _read, operator_server
from tests.rounds import part

CASES = Path(__file__).parents[3] / "statements"
PAGE = CASES / "openai_costs/page.json"
REPORTS = sorted(path for path in CASES.glob("*/*") if not path.name.endswith(".expected.json"))


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[OperatorServer]:
    async with operator_server(tmp_path) as server:
        yield server


async def upload(
    server: OperatorServer, *files: tuple[str, bytes], headers: dict[str, str] | None = None, **query: str
) -> Any:
    """Send files as a form over the operator socket."""
    form = aiohttp.FormData()
    for name, content in files:
        form.add_field("file", content, filename=name, content_type="application/octet-stream")
    return await post(server, form() if files else aiohttp.MultipartWriter("form-data"), headers, **query)


async def post(server: OperatorServer, data: Any, headers: dict[str, str] | None = None, **query: str) -> Any:
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(server.socket))) as session:
        url = f"http://tollhouse{OPERATOR_API}/statement-uploads"
        given = {"X-Tollhouse-As": "ada@example.com", **(headers or {})}
        async with session.post(url, data=data, params=query, headers=given) as response:
            return await _read(response)


@pytest.mark.parametrize("path", part(REPORTS, every=3), ids=lambda path: f"{path.parent.name}/{path.name}")
async def test_every_format_is_previewed_as_it_is_imported(server: OperatorServer, path: Path) -> None:
    """The preview of an upload is the dry run of an import of the same file, and stores nothing."""
    imported = await server.ask("POST", "/statements", {"files": [str(path)], "dry_run": True})
    preview = await upload(server, (path.name, path.read_bytes()), dry_run="true")
    assert 200 == preview.status, preview.payload
    assert imported.payload == preview.payload
    [report] = preview.payload["imports"]
    assert report["source"] in SOURCES
    assert report["providers"] and report["months"]
    assert [] == (await server.ask("GET", "/statements")).payload["statements"]


async def test_a_preview_states_what_is_new_known_and_damaged(server: OperatorServer) -> None:
    """
    A preview has provider, months, rows, total and damaged rows. The second upload of a file says that every day is
    known. The audit has one row per change, and none for a preview.
    """
    for dry_run, new in (("true", 2), ("false", 2), ("false", 0)):
        answer = await upload(server, ("page.json.gz", gzip.compress(PAGE.read_bytes())), dry_run=dry_run)
        [report] = answer.payload["imports"]
        assert ["openai"] == report["providers"]
        assert ["2026-08"] == report["months"]
        assert {"USD": "5.8234569090123456789"} == report["amounts"]
        assert (2, new, 0) == (report["days"], report["days_new"], report["days_changed"])
        assert ["page 1, bucket 1, result 7: value is not a number"] == report["damaged_rows"]
    [month] = (await server.ask("GET", "/statements")).payload["statements"]
    assert "page.json.gz" == month["name"]
    audit = (await server.ask("GET", "/audit")).payload["audit"]
    [row] = [row for row in audit if row["action"] == "statement.import"]
    assert "ada@example.com" == row["actor"]


async def test_files_of_one_form_are_one_report(server: OperatorServer) -> None:
    """
    The files of one form are one report: parts of a report add up, as in one import. If parts were uploaded singly,
    each would replace the days of the others.
    """
    whole = (CASES / "focus/export.csv").read_text().splitlines(keepends=True)
    parts = [("one.csv", "".join(whole[:2]).encode()), ("two.csv", "".join([whole[0], *whole[2:]]).encode())]
    await upload(server, ("whole.csv", "".join(whole).encode()))
    [report] = (await upload(server, *parts)).payload["imports"]
    assert ["one.csv", "two.csv"] == report["files"]
    assert (0, 0) == (report["days_new"], report["days_changed"])
    [single] = (await upload(server, parts[0], dry_run="true")).payload["imports"]
    assert single["days_changed"]


async def test_no_way_removes_a_final_day_without_consent(server: OperatorServer, tmp_path: Path) -> None:
    """
    An upload or a file that would leave less than half of a final day is refused with both figures, and nothing is
    stored. With consent, it replaces the day.
    """
    less = tmp_path / "less.json"
    less.write_text(PAGE.read_text().replace('"value":5,', '"value":0.1,'))
    await upload(server, ("page.json", PAGE.read_bytes()))
    before = (await server.ask("GET", "/statements")).payload
    body = {"files": [str(less)]}
    for answer in (
        await upload(server, ("less.json", less.read_bytes())),
        await server.ask("POST", "/statements", body),
    ):
        assert (409, "would_remove") == answer.error[:2]
        assert "2026-08-01: 5.8234569090123456789 usd would become 0.9234569090123456789" in answer.error[2]
        assert before == (await server.ask("GET", "/statements")).payload
    assert 200 == (await server.ask("POST", "/statements", {**body, "replace": True})).status
    assert before != (await server.ask("GET", "/statements")).payload
    again = await upload(server, ("page.json", PAGE.read_bytes()), replace="true")
    assert 200 == again.status and again.payload["imports"][0]["days_changed"]


async def test_a_wrong_upload_is_refused_and_leaves_nothing(
    server: OperatorServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A form, a file or a parameter that is wrong gets a clear error, never a 500, and nothing is stored."""
    page = PAGE.read_bytes()
    boundary = {"Content-Type": "multipart/form-data; boundary=x"}
    field = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.json"\r\n\r\n{}'
    for answer, status, words in (
        (await upload(server), 400, "the form has no file"),
        (await upload(server, ("notes.txt", b"hello")), 400, "neither JSON nor CSV"),
        (await upload(server, ("page.json", page), source="nobody"), 400, "use one of: openai_usage"),
        (await upload(server, ("page.json", page), dry_run="yes"), 400, "dry_run must be one of"),
        (await upload(server, ("a.csv", b"a,b\n1,2\n")), 400, "choose it (--source), one of: openai_usage"),
        (await post(server, b"{}", {"Content-Type": "application/json"}), 415, "multipart/form-data"),
        (await post(server, b"{}", {"Content-Type": "multipart/form-data"}), 400, "damaged"),
        (await post(server, b"{}", boundary), 400, "damaged"),
        (await post(server, field, boundary), 400, "damaged"),
        (await post(server, field + b"\r\n--x", boundary), 400, ""),
        (await post(server, b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n--x--\r\n', boundary), 400,
         "nothing else"),
    ):  # fmt: skip
        assert (status, True) == (answer.status, words in answer.error[2]), (answer.payload, words)
    monkeypatch.setattr(handlers, "MAX_FILES", 2)
    assert 200 == (await upload(server, *[("a.json", page)] * 2, dry_run="true")).status
    assert 400 == (await upload(server, *[("a.json", page)] * 3, dry_run="true")).status
    assert [] == (await server.ask("GET", "/statements")).payload["statements"]


async def test_an_upload_has_a_limit(server: OperatorServer) -> None:
    """All files of a form together may have the limit in bytes, and none may unpack to more than its own limit."""
    page = PAGE.read_bytes()
    both = [("one.json", page), ("two.json", page)]
    for settings, status, words in (
        (ReconciliationSettings(max_upload_bytes=2 * len(page)), 200, ""),
        (ReconciliationSettings(max_upload_bytes=2 * len(page) - 1), 413, "reconciliation.max_upload_bytes"),
        (ReconciliationSettings(max_file_bytes=len(page) - 1), 400, "reconciliation.max_file_bytes"),
        (ReconciliationSettings(max_rows=5), 400, "reconciliation.max_rows"),
    ):
        server.services.money.reconciliation = lambda settings=settings: settings  # type: ignore[misc]
        answer = await upload(server, *both, dry_run="true")
        assert status == answer.status
        assert words in json.dumps(answer.payload)

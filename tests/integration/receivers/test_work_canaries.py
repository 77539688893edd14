"""
Ids of sessions and runs are personal data. They are in the log while records are stored, and for people who may view
records. Nothing else has them: totals, registry, metrics, logs, reports, FOCUS files, tools and pages.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.configuration.sections import Config, PrivacySettings, WorkSettings
from gateway.core.paths import OPERATOR_API, socket_path
from gateway.http.event_streams import EVENT_STREAM
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool.ledger.work import TREES
from spool.record import NS, Inference
from spool.registry.operators import Actor
from spool.registry.permission_sets import PERMISSION_SETS, VIEW_RECORDS, resolve_permission_sets
from spool.registry.roles import FULL, NewRole, RoleLimits
from spool.registry.scopes import CREATE_EVENT
from spool.settings import SpoolSettings
from tests.integration.conftest import Serve, Serving
from tests.integration.operations.people.test_sign_in import signed_in
from tests.integration.operations.server import OperatorServer
from tests.integration.payloads import json_span, json_traces
from tests.moved_clock import MovedClock
from tests.stored_files import contents_of

CASES = Path(__file__).parents[2] / "cases"
SIGNALS = {"resourceSpans": "traces", "resourceLogs": "logs", "resourceMetrics": "metrics"}
ROOT = Actor("root@example.com", "tests")
EVE, PERSON = "eve@example.com", "canary.person@example.com"
LEAST = 6  # letters of an id that nothing else contains by chance
FOR_EVER_S = 36_500 * 86_400.0  # a time in seconds that is longer than any case is old
LOG_FILES = {"spool.sqlite", "spool.sqlite-wal"}


def requests() -> Iterator[tuple[str, bytes]]:
    """Yield the address and the body of each case: every OTLP product and every gateway's format."""
    for path in sorted(CASES.glob("*/*/*.*json")):
        if path.name.endswith(".expected.json"):
            continue
        body = path.read_bytes()
        signal = next((signal for root, signal in SIGNALS.items() if root in body.decode()), None)
        if path.parts[-3] == "otlp" and signal is not None:
            yield f"/v1/{signal}", body
        elif path.parts[-3] == "gateway":
            yield f"/v1/ai-telemetry/{path.parent.name}", body


def files_with(directory: Path, ids: Collection[str]) -> set[str]:
    """Return the names of the files that contain one of the ids."""
    contents = contents_of(directory)
    names = {path: Path(path).name for path in contents}
    assert "ledger.sqlite" in names.values()
    return {names[path] for path, data in contents.items() if any(id.encode() in data for id in ids)}


async def counted(serving: Serving) -> None:
    storage = serving.app.services.storage
    await storage.ledger.catch_up(storage.log)


def found_in(text: str, ids: Collection[str]) -> list[str]:
    return [id for id in ids if id in text]


@pytest.mark.proves("Ids of sessions and runs leave the log")
async def test_ids_are_only_in_the_log(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Real requests of every product and format, links of their sessions, and each page, list, tool and file."""
    for name in ("gateway", "spool", "exporters"):
        caplog.set_level(logging.DEBUG, logger=name)
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0))
    serving = await serve(config=replace(config, work=WorkSettings(retention=FOR_EVER_S)))
    for path, body in requests():
        answer = await serving.send(path, body)
        assert answer.status in (200, 204, 207), (path, answer.body)
    records = [record for record in await serving.records() if isinstance(record, Inference)]
    of_source = {record.source for record in records if record.session}
    assert len(of_source) > 20, of_source
    ids = {
        id for each in records for id in (each.session, each.run, each.parent_run) if id and len(id) >= LEAST
    }
    # names of sessions that requests also state for another purpose
    ids -= {value for each in records for value in (each.user, each.team, each.device, each.api_key, each.request_id,
            *each.tags.values())}  # fmt: skip
    assert len(ids) > 25, ids
    jobs = await serving.make_key("jobs", scopes=[CREATE_EVENT])
    for id in sorted(ids, key=len)[-3:]:  # a shorter id may look like a digest
        event = {"type": "tollhouse.work.link", "data": {"session": id, "pull_request": "acme/shop#42"}}
        assert 200 == (await serving.send("/v1/events", orjson.dumps(event), key=jobs)).status
    await counted(serving)
    server = OperatorServer(
        serving.app.services.operators, serving.app.services.storage, MovedClock(), serving.url,
        socket_path(serving.app.config.data_dir),
    )  # fmt: skip
    # the session of an agent's run, with the days in which it ran
    session, start = max(
        (each.session or "", each.start_time or 0) for each in records if {each.session, each.run} <= ids
    )
    began = datetime.fromtimestamp(start / NS, UTC)
    days = (f"{began - timedelta(days=30):%Y-%m-%d}", f"{began + timedelta(days=30):%Y-%m-%d}")
    linked = await server.ask("POST", "/work/links", {"session": session, "ticket": "T-1"})
    assert 201 == linked.status, linked.payload
    conflict = await server.ask("POST", "/work/links", {"session": session, "ticket": "T-2"})
    assert (409, []) == (conflict.status, found_in(conflict.error[2], ids))

    for path, text in (await pages(serving, server, session, days)).items():
        assert [] == found_in(text.replace(session, "") if session in path else text, ids), path
    data = serving.app.config.data_dir
    reports = [("report", "--by", unit, "--from", days[0], "--to", days[1], "--csv") for unit in TREES]
    for words in (
        ("export", "focus", "--from", "2020-01-01", "--to", "2030-01-01", "--tag", "model"),
        *reports,
        *((*report, "--scope", "aggregated") for report in reports),
        ("work", "show", "session", session, "--from", days[0], "--to", days[1], "--json"),
        ("work", "show", "session", session, "--from", days[0], "--to", days[1]),
        ("work", "links"),
        ("work", "link", "--session", session, "--ticket", "T-3"),
        ("audit",),
    ):
        done = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--data", str(data)])
        assert found_in(done.output, ids) == [], (words, done.output)
    assert found_in(caplog.text, ids) == []
    assert files_with(data, ids) <= LOG_FILES
    # a caller with the right to view records sees the session
    seen = await server.ask("GET", f"/records?session={session}")
    assert {session} == {row["session"] for row in seen.payload["records"]}


async def pages(
    serving: Serving, server: OperatorServer, session: str, days: tuple[str, str]
) -> dict[str, str]:
    """Return what a person sees who may do everything except view records, and what nobody needs a right for."""
    granted = tuple(id for id in PERMISSION_SETS if VIEW_RECORDS not in resolve_permission_sets([id]))
    draft = NewRole(name="No records", data_access=FULL, members=(EVE,), permission_sets=granted)
    await server.registry.roles.create(draft, known_dimensions=(), limits=RoleLimits(), actor=ROOT)
    headers = await signed_in(server, "none", EVE)
    paths = [
        address.path.removeprefix(OPERATOR_API)
        for address in OPERATOR_ADDRESSES
        if address.methods == ("GET",) and "{" not in address.path
        and not any(EVENT_STREAM in content for content in address.gives.values())
    ]  # fmt: skip
    shown, span = server.as_shown("session", session), f"from={days[0]}&to={days[1]}"
    lists = [f"/report?by={unit}&{span}" for unit in TREES]
    paths += [
        *lists,
        *(f"{path}&scope=aggregated" for path in lists),
        f"/comparison?by=session&{span}",
        "/work/links",
    ]
    paths += [f"/work/session/{name}?{span}" for name in (shown, session)]
    found = {}
    statuses = set()
    for path in paths:
        url = f"{server.url}{OPERATOR_API}{path}"
        async with serving.client.get(url, headers=headers, allow_redirects=False) as answer:
            statuses.add(answer.status)
            found[path] = f"{dict(answer.headers)} {await answer.text()}"
    assert {200, 403} <= statuses
    assert all(
        shown in found[path] for path in paths if path.startswith(("/work/session", "/report?by=session"))
    )
    for tool, arguments in (
        ("get_cost_data", {"group_by": ["session"], "date_range": {"start": days[0], "end": days[1]}}),
        ("get_dimension_values", {"dimension": "run", "date_range": {"start": days[0], "end": days[1]}}),
        ("compare_costs", {"group_by": ["session"]}),
        ("get_org_context", {}),
    ):
        line = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments},
        }
        told = await server.over_http("POST", "/mcp", {"line": json.dumps(line)}, headers=headers)
        assert 200 == told.status
        found[tool] = json.dumps(told.payload)
    for path in ("/metrics", "/console/", "/readyz", "/livez"):
        async with serving.client.get(serving.app.operator_url + path) as response:
            found[path] = await response.text()
    return found


@pytest.mark.proves("Ids of sessions and runs leave the log")
@pytest.mark.parametrize("emails", ["hash", "drop"])
async def test_addresses_in_units_follow_the_setting(serve: Serve, tmp_path: Path, emails: str) -> None:
    """
    If a session, a run or any other unit is named after a person's address, the setting for addresses applies to
    it. Then no file has the address.
    """
    config = Config(spool=SpoolSettings(hold=0, counter_wait=0))
    serving = await serve(config=replace(config, privacy=PrivacySettings(emails=emails)))
    span = json_span()
    for name in (
        "gen_ai.conversation.id", "tollhouse.run", "tollhouse.parent_run", "vcs.ref.head.name",
        "vcs.ref.head.revision", "vcs.change.id", "ticket", "vcs.repository.name",
    ):  # fmt: skip
        span["attributes"].append({"key": name, "value": {"stringValue": PERSON}})
    assert 200 == (await serving.send("/v1/traces", json_traces(span))).status
    await counted(serving)
    [record] = await serving.records()
    assert isinstance(record, Inference)
    units: dict[str, Any] = {
        "session": record.session,
        "run": record.run,
        "parent_run": record.parent_run,
        **record.tags,
    }
    expected = {"session", "run", "parent_run", "branch", "commit", "pull_request", "ticket"}
    stated = {name for name, value in units.items() if value is not None}
    assert expected & stated == (expected if emails == "hash" else set())
    assert "repository" not in stated
    key = await serving.make_key("jobs", scopes=[CREATE_EVENT])
    event = {"type": "tollhouse.work.link", "data": {"session": PERSON, "ticket": PERSON}}
    answer = await serving.send("/v1/events", orjson.dumps(event), key=key)
    assert (200 if emails == "hash" else 400) == answer.status
    assert PERSON.encode() not in answer.body
    assert files_with(serving.app.config.data_dir, [PERSON]) == set()

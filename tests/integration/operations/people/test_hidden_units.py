"""Thousands of names that only others use, similar to a person's own, change no answer to the person."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from gateway.http.event_streams import EVENT_STREAM
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool.ledger.work import UNITS
from tests.integration.operations.people.test_limited_person import (
    FOREIGN,
    OWN,
    ROLES,
    Place,
    asked,
    place,
    quick_beat,
)
from tests.rounds import IS_LONG
from tests.spool.contract.examples import add, call, counted_from

__all__ = ["quick_beat"]  # a fixture for all tests in this file

HIDDEN = 4000 if IS_LONG else 400  # units of each kind that only others use; more than any list examines
WORD = "apollo"
OWN_NAMES = {"repository": f"zz/{WORD}", "ticket": f"{WORD}-999999", "branch": f"z-{WORD}", "commit": f"{WORD}999",
             "pull_request": f"zz/{WORD}#999999"}  # fmt: skip
DIMENSIONS = (
    "team",
    "user",
    "model",
    "request_model",
    "provider",
    "device",
    "api_key",
    "region",
    "tag:service",
)
SEARCHES = (WORD, f"{WORD}-", "999999", "zz/", "hidden-", f"{OWN}-", "(other)")


async def add_calls(there: Place, team: str, count: int) -> None:
    """Add calls of a team, each with further names of every kind, at the same time as all others."""
    now, log = there.server.clock.now(), there.server.services.spool.log
    for begin in range(0, count, 500):
        await add(log, *(
            call(
                50_000 + begin + number + (0 if team == OWN else 100_000),
                at=now - 60,
                team=team,
                cost="2",
                cost_source="reported",
                tags=OWN_NAMES | {"service": f"{WORD}-{OWN}"} if team == OWN else
                dict.fromkeys(OWN_NAMES, f"{WORD}-{begin + number:06}") | {"service": f"{WORD}-{number}"},
                session=f"{WORD}-{team}-{begin + number}",
                run=f"{0 if team == OWN else begin + number + 1:032x}",
                **{name: f"{WORD}-{team}-{name}-{begin + number:06}" for name in
                   ("user", "response_model", "request_model", "provider", "device", "api_key", "region")},
            )
            for number in range(min(500, count - begin))
        ))  # fmt: skip


def reads(there: Place) -> Iterator[str]:
    """Yield the searches, and reports, comparisons and pages of each unit of work. Proofs read every address."""
    yield from (f"/search?q={word}" for word in SEARCHES)
    for unit, name in OWN_NAMES.items():
        yield f"/work/{unit}/{quote(name, safe='')}"
    for name in (*DIMENSIONS, *UNITS) if IS_LONG else UNITS:
        yield f"/report?by={name}&range=last_30d&top=1"
        for more in ("", "&per=daily&top=2", "&format=csv") if IS_LONG else ():
            yield f"/report?by={name}&range=last_30d{more}"
        yield f"/comparison?by={name}&range=last_7d"
        yield f"/what-if?model=gpt-4o&by={name}"
    for row in OPERATOR_ADDRESSES if IS_LONG else ():
        if row.methods == ("GET",) and not any(EVENT_STREAM in content for content in row.gives.values()):
            for world in (there.own, there.foreign):
                yield from (path for path, _ in asked(row, world))


async def answers(there: Place) -> dict[str, tuple[int, str]]:
    """Return the answer of every read, and of the tools of an assistant."""
    found = {}
    for path in reads(there):
        status, text = await there.send("GET", path, None, there.eva)
        found[path] = status, text.partition("} ")[2]
    names = (*DIMENSIONS, *UNITS) if IS_LONG else UNITS
    tools: list[tuple[str, object]] = [("get_dimension_values", {"dimension": name}) for name in names]
    tools += [("get_cost_data", {"group_by": [name]}) for name in names]
    for tool, arguments in tools:
        params = {"name": tool, "arguments": arguments}
        line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
        status, text = await there.send("POST", "/mcp", {"line": line}, there.eva)
        found[f"{tool} {arguments}"] = status, text.partition("} ")[2]
    return found


@asynccontextmanager
async def crowded(directory: Path) -> AsyncIterator[Place]:
    async with place(directory, ROLES["is"]) as there:
        await add_calls(there, OWN, 2)
        await count_calls(there)
        yield there


async def count_calls(there: Place) -> None:
    """Run a report, which updates the totals. A search finds only names in totals."""
    assert 200 == (await there.send("GET", "/report?by=team&range=this_year", None, there.eva))[0]


@pytest.mark.proves("A person with restricted access sees other calls")
async def test_hidden_units_change_no_answer(tmp_path: Path) -> None:
    """Every read is equal to the last byte before and after hundreds of names of each kind in calls of others."""
    async with crowded(tmp_path) as there:
        before = await answers(there)
        await add_calls(there, FOREIGN, HIDDEN)
        await add(there.server.services.spool.log, counted_from("2026-08-01"))  # before all other calls
        await count_calls(there)
        after = await answers(there)
        differing = {path: (before[path], after[path]) for path in before if before[path] != after[path]}
        assert not differing, "\n".join(f"{path}\n  {one}\n  {two}" for path, (one, two) in differing.items())
        for word in (WORD, "999999", "zz/"):
            found = json.loads(after[f"/search?q={word}"][1])["found"]
            assert OWN_NAMES["repository"] in {each["id"] for each in found} or word == "999999"
            assert OWN_NAMES["pull_request"] in {each["id"] for each in found}
        assert 200 == after["/report?by=ticket&range=last_30d&top=1"][0]


async def test_everybody_finds_own_work_among_many_similar_names(tmp_path: Path) -> None:
    """A person who sees every call finds a name although hundreds of similar names of tickets come first."""
    async with crowded(tmp_path) as there:
        log, at = there.server.services.spool.log, there.server.clock.now() - 60
        tickets = [f"zz/{number:06}" for number in range(400)]
        await add(log, *(call(60_000 + n, at=at, tags={"ticket": name}) for n, name in enumerate(tickets)))
        await count_calls(there)
        found = (await there.server.ask("GET", "/search?q=zz/")).payload["found"]
        assert {"repository", "pull_request"} <= {each["kind"] for each in found}

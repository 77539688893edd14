"""Units of work change no other figure: reports, bills and FOCUS files are equal to the last byte without them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.core.paths import OPERATOR_API
from gateway.http.event_streams import EVENT_STREAM
from gateway.operations.money.insights import make_insight_updater
from gateway.service.addresses.table import OPERATOR_ADDRESSES
from spool import identity
from spool.ledger.dimensions import DIMENSIONS
from spool.ledger.work import UNITS
from tests.gateway.bills.reconciliation.simulator import book, month, record, statements
from tests.integration.operations.bills.test_reconciliation import NOW, put
from tests.integration.operations.server import OperatorServer, operator_server
from tests.moved_clock import MovedClock
from tests.rounds import some
from tests.spool.contract.examples import add

MARCH = "from=2026-03-01&to=2026-03-31"
DAYS = ("--from", "2026-03-01", "--to", "2026-03-31")
CALLS = month(a_day=1)
# Lists of single records show their units, two lists have ids or times of the machine, and an installation has a key.
OTHERS = re.compile("/(records|tail|audit|sessions?|spool|about|status|inspect.*|operators|verdict-key)$")

CURSOR = re.compile('"cursor":{[^}]*}')


def units_of(number: int) -> Mapping[str, str]:
    """Return the units of a call: several sessions, whose runs start runs."""
    return {
        "session": f"session-{number % 7}",
        "run": f"run-{number % 5}",
        "parent_run": f"run-{number % 3}",
        **{name: f"{name}-{number % 4}" for name in UNITS if name not in ("session", "run")},
    }


async def filled(server: OperatorServer, *, has_units: bool) -> None:
    prices = server.services.money.prices()
    records = [record(call) for call in CALLS]
    for number, each in enumerate(records):
        prices.price_record(each)
        if has_units:
            units = dict(units_of(number))
            each.session, each.run, each.parent_run = (
                units.pop(name) for name in ("session", "run", "parent_run")
            )
            each.tags = {**each.tags, **units}
    known = [identity.call_identity(each, response_id=f"chatcmpl-{n:032d}") for n, each in enumerate(records)]
    await add(server.services.spool.log, *zip(records, known, strict=True))
    await put(server, statements(CALLS))
    money = server.services.money
    await money.ledger.catch_up(server.services.spool.log)
    assert money.biller is not None
    assert await money.biller().recalculate_changed_months()
    await make_insight_updater(server.services).find_and_store_insights()


async def outputs(server: OperatorServer, directory: Path) -> dict[str, str]:
    paths = [
        address.path.removeprefix(OPERATOR_API)
        for address in OPERATOR_ADDRESSES
        if address.methods == ("GET",) and "{" not in address.path and not OTHERS.search(address.path)
        and not any(EVENT_STREAM in content for content in address.gives.values())
    ]  # fmt: skip
    for by in (*DIMENSIONS, "tag:service", "model,team,status"):
        paths += [
            f"/report?by={by}&{MARCH}{more}"
            for more in some(("", "&per=daily&compare=previous", "&format=csv&top=2"), every=2)
        ]
    for kind in ("billed_cost", "discounted_cost", "amortized_cost"):
        paths += [
            f"/report?by=model&{MARCH}&cost_type={kind}",
            f"/comparison?by=provider&{MARCH}&cost_type={kind}",
        ]
    paths += [f"/reconciliation?month=2026-03&by={by}" for by in ("day", "model", "key")]
    paths += [
        f"/report?by=user&unit=api_key&show=units,cost_per_unit,p95_per_unit&{MARCH}",
        f"/comparison?by=model&{MARCH}",
    ]
    found = {}
    connector = aiohttp.UnixConnector(str(server.socket))
    async with aiohttp.ClientSession(connector=connector) as session:
        for path in paths:
            url = f"http://tollhouse{OPERATOR_API}{path}"
            async with session.get(
                url, headers={"X-Tollhouse-As": "ada@example.com"}, allow_redirects=False
            ) as answer:
                found[path] = f"{answer.status} {CURSOR.sub('', await answer.text())}"
    for words in (
        ("export", "focus", *DAYS),
        ("export", "focus", *DAYS, "--tag", "model", "--tag", "api_key"),
        ("export", "focus", *DAYS, "--billed"),
        ("report", *DAYS),
    ):
        done = await asyncio.to_thread(CliRunner().invoke, main, [*words, "--data", str(directory)])
        found[" ".join(words)] = f"{done.exit_code} {done.output}"
    return found


@pytest.mark.proves("Units of work change another figure")
async def test_units_change_no_other_figure(tmp_path: Path) -> None:
    prices = book()
    both = []
    for has_units in (False, True):
        directory = tmp_path / str(has_units)
        directory.mkdir()
        async with AsyncExitStack() as stack:
            server = await stack.enter_async_context(
                operator_server(directory, clock=MovedClock(NOW.timestamp()), prices=lambda: prices)
            )
            await filled(server, has_units=has_units)
            both.append(await outputs(server, directory))
            units = (await server.ask("GET", f"/report?by=session&{MARCH}")).payload["rows"]
            assert (len(units) > 1) == has_units
    plain, with_units = both
    assert plain.keys() == with_units.keys()
    assert sum(found.startswith(("200", "0 ")) for found in plain.values()) > 80, plain
    differing = [path for path in plain if plain[path] != with_units[path]]
    assert differing == [], [(plain[path], with_units[path]) for path in differing]

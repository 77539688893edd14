"""
Fixtures of every fault scenario: a `trial` that counts into the table, and `sites` to break.

    @pytest.mark.fault("F13")
    def test_...(trial: Trial, sites: Sites) -> None:
        for rng in trial.rounds(short=1, full=20):
            site = sites(rng)
            site.start()
            with site.oracle.load(site.url):
                ...                              # the fault
            site.close(trial)                    # heals, waits, judges, counts; AssertionError names the defects
"""

from __future__ import annotations

import random
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.acceptance.conftest import installations as installations
from tests.faults.oracle import Oracle
from tests.faults.scenarios import SCENARIOS, FaultRow, Trial, table
from tests.faults.site import CONFIG, FaultSite
from tests.faults.upstream import ScriptedUpstream

_ROWS = pytest.StashKey[dict[str, FaultRow]]()


class Sites(Protocol):
    """
    Create an installation with an upstream and an oracle, which draw all random choices from `rng`.

    With a `key`, which the `server` settings must accept, nothing is written before the first start. Without
    `linger` there are as many deliveries as possible, so a fault meets most records in flight. `storage` is a
    storage table that is initialised first.
    """

    def __call__(
        self,
        rng: random.Random,
        *,
        hold: str = ...,
        timeout: str = ...,
        batch_records: int = ...,
        linger: str = ...,
        server: str = ...,
        key: str = ...,
        spool: str = ...,
        storage: str = ...,
        more: str = ...,
    ) -> FaultSite: ...


@pytest.fixture
def trial(request: pytest.FixtureRequest) -> Trial:
    """Return the trial of the scenario that the test's marker `fault` names."""
    name = _scenario(request.node)
    assert name in SCENARIOS, f"mark the test with pytest.mark.fault: {request.node.nodeid}"
    return Trial(name, _row(request.config, name))


@pytest.fixture
def sites(installations: Any, tmp_path: Path) -> Iterator[Sites]:
    made: list[FaultSite] = []

    def make(
        rng: random.Random,
        *,
        hold: str = "50ms",
        timeout: str = "2s",
        batch_records: int = 100,
        linger: str = "0s",
        server: str = "",
        key: str = "",
        spool: str = "",
        storage: str = "",
        more: str = "",
    ) -> FaultSite:
        name = f"site-{len(made)}"
        secret = tmp_path / f"{name}.key"
        secret.write_text("upstream-secret\n")
        upstream = ScriptedUpstream(rng)
        config = CONFIG.format(
            url=upstream.url,
            secret=secret,
            hold=hold,
            timeout=timeout,
            batch_records=batch_records,
            linger=linger,
            server=server,
            spool=spool,
            more=f"{more}\n{storage}",
        )
        if storage:  # on a shared storage, other nodes could write these files as well
            config = config.replace('type = "ndjson"', 'type = "ndjson"\nshared = true')
        tollhouse = installations(name, config=config)
        if storage:
            tollhouse.run("storage", "init")
        oracle = Oracle(tmp_path / f"{name}.acknowledged", rng, key or tollhouse.key("load"))
        made.append(FaultSite(tollhouse, upstream, oracle, secret))
        return made[-1]

    yield make
    for site in made:
        site.upstream.down()
        site.oracle.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    name = _scenario(item)
    if name in SCENARIOS and (report.when == "call" or not report.passed):
        _row(item.config, name).outcomes.add(report.outcome)
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    rows = config.stash.get(_ROWS, {})
    if rows:
        terminalreporter.section("fault scenarios")
        for line in table(rows):
            terminalreporter.write_line(line)


def _scenario(item: pytest.Item) -> str:
    marker = item.get_closest_marker("fault")
    return str(marker.args[0]) if marker else ""


def _row(config: pytest.Config, name: str) -> FaultRow:
    return config.stash.setdefault(_ROWS, {}).setdefault(name, FaultRow())
